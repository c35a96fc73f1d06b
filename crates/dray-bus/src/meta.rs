//! The envelope of every message: the headers of messaging-reliability 4.1.

use dray_types::{
    AppId, Deadline, Fault, FaultCode, OperationId, SessionId, TenantId, TraceContext,
};

use crate::headers::{self, MessageHeaders};

/// The tenant and operation of a message, its deadline, and its trace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Meta {
    /// Created once by the service that accepted the operation.
    pub operation: OperationId,
    /// The tenant that owns the data.
    pub tenant: TenantId,
    /// The conversation, if any.
    pub session: Option<SessionId>,
    /// The agent application, if any.
    pub app: Option<AppId>,
    /// Passed on unchanged to every later message of the operation.
    pub deadline: Deadline,
    /// Empty outside a trace.
    pub trace: TraceContext,
}

impl Meta {
    /// The envelope of a new operation, whose id is minted here.
    pub fn new(tenant: TenantId, deadline: Deadline) -> Self {
        Self {
            operation: OperationId::mint(),
            tenant,
            session: None,
            app: None,
            deadline,
            trace: TraceContext::default(),
        }
    }

    /// Sets the id of an operation that has one already.
    #[must_use]
    pub fn with_operation(mut self, operation: OperationId) -> Self {
        self.operation = operation;
        self
    }

    /// Sets the session of the conversation.
    #[must_use]
    pub fn with_session(mut self, session: SessionId) -> Self {
        self.session = Some(session);
        self
    }

    /// Sets the app on whose behalf the call is made.
    #[must_use]
    pub fn with_app(mut self, app: AppId) -> Self {
        self.app = Some(app);
        self
    }

    /// Sets the trace to which the call belongs.
    #[must_use]
    pub fn with_trace(mut self, trace: TraceContext) -> Self {
        self.trace = trace;
        self
    }

    /// Replaces the deadline.
    #[must_use]
    pub fn with_deadline(mut self, deadline: Deadline) -> Self {
        self.deadline = deadline;
        self
    }

    /// Writes the headers of 4.1, without `Nats-Msg-Id`.
    pub fn headers(&self, schema: &str) -> MessageHeaders {
        let mut headers = MessageHeaders::new();
        headers.append(headers::SCHEMA_HEADER, schema);
        headers.append(headers::OPERATION_HEADER, self.operation.as_str());
        headers.append(
            headers::DEADLINE_HEADER,
            self.deadline.unix_ms().to_string(),
        );
        headers.append(headers::TENANT_HEADER, self.tenant.as_str());
        if let Some(session) = &self.session {
            headers.append(headers::SESSION_HEADER, session.as_str());
        }
        if let Some(app) = &self.app {
            headers.append(headers::APP_HEADER, app.as_str());
        }
        if !self.trace.is_empty() {
            headers.append(headers::TRACEPARENT_HEADER, self.trace.traceparent.as_str());
            if !self.trace.tracestate.is_empty() {
                headers.append(headers::TRACESTATE_HEADER, self.trace.tracestate.as_str());
            }
        }
        headers.append(headers::CONTENT_TYPE, headers::PROTOBUF_CONTENT_TYPE);
        headers
    }

    /// Parses the headers. A malformed trace starts a new trace; any other malformed header is an error.
    ///
    /// # Errors
    ///
    /// [`InvalidEnvelope`] for a missing or malformed header, and for a header that controls the server (E-1).
    pub fn from_headers(headers: &MessageHeaders) -> Result<Self, InvalidEnvelope> {
        // Reserved headers are checked first: a message with such a header may have changed its stream (F-16).
        if let Some(name) = headers.reserved() {
            return Err(InvalidEnvelope::Reserved(name.to_owned()));
        }
        let required = |name| headers.get(name).ok_or(InvalidEnvelope::Missing(name));
        let invalid = |name| move |_| InvalidEnvelope::Invalid(name);
        let deadline = required(headers::DEADLINE_HEADER)?;
        Ok(Self {
            operation: OperationId::new(required(headers::OPERATION_HEADER)?)
                .map_err(invalid(headers::OPERATION_HEADER))?,
            tenant: TenantId::new(required(headers::TENANT_HEADER)?)
                .map_err(invalid(headers::TENANT_HEADER))?,
            session: headers
                .get(headers::SESSION_HEADER)
                .map(SessionId::new)
                .transpose()
                .map_err(invalid(headers::SESSION_HEADER))?,
            app: headers
                .get(headers::APP_HEADER)
                .map(AppId::new)
                .transpose()
                .map_err(invalid(headers::APP_HEADER))?,
            deadline: deadline
                .parse()
                .map(Deadline::from_unix_ms)
                .map_err(|_| InvalidEnvelope::Invalid(headers::DEADLINE_HEADER))?,
            // Values that break the W3C grammar give an empty context: they do not make the message invalid (17).
            trace: TraceContext::new(
                headers.get(headers::TRACEPARENT_HEADER).unwrap_or_default(),
                headers.get(headers::TRACESTATE_HEADER).unwrap_or_default(),
            ),
        })
    }
}

/// The reason why the headers of a message are refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidEnvelope {
    /// A header that every message needs is absent.
    #[error("header `{0}` is missing")]
    Missing(&'static str),
    /// A header's value breaks its grammar.
    #[error("header `{0}` is not valid")]
    Invalid(&'static str),
    /// A header that controls the server; messages from outside must not have it (E-1).
    #[error("header `{0}` is not allowed")]
    Reserved(String),
}

impl From<InvalidEnvelope> for Fault {
    fn from(invalid: InvalidEnvelope) -> Self {
        let message = match invalid {
            InvalidEnvelope::Missing(name) => format!("The message lacks its `{name}` header."),
            InvalidEnvelope::Invalid(name) => {
                format!("The `{name}` header of the message is not valid.")
            }
            InvalidEnvelope::Reserved(_) => {
                "The message has a header that controls the server, which is not allowed."
                    .to_owned()
            }
        };
        Self::new(FaultCode::InvalidArgument, message)
            .detail("invalid_envelope")
            .advice("Correct the headers and send the message again.")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn meta() -> Meta {
        Meta::new(TenantId::new("Acme").unwrap(), Deadline::from_unix_ms(42))
            .with_session(SessionId::new("s").unwrap())
            .with_app(AppId::new("a").unwrap())
            .with_trace(TraceContext::new(
                "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
                "k=v",
            ))
    }

    #[test]
    fn envelopes_cross_the_wire_unchanged() {
        let meta = meta();
        assert_eq!(Meta::from_headers(&meta.headers("x/1")), Ok(meta));
    }

    #[test]
    fn a_message_needs_each_header_of_the_envelope_and_no_other() {
        let complete = meta().headers("x/1");
        let read = |left_out: Option<&str>| {
            let sent: MessageHeaders = headers::ENVELOPE_HEADERS
                .into_iter()
                .filter(|name| Some(*name) != left_out)
                .filter_map(|name| Some((name, complete.get(name)?)))
                .collect();
            Meta::from_headers(&sent)
        };
        assert!(read(None).is_ok());
        for name in headers::ENVELOPE_HEADERS {
            assert_eq!(read(Some(name)), Err(InvalidEnvelope::Missing(name)));
        }
    }

    #[test]
    fn malformed_headers_are_named() {
        let check = |name: &'static str, value: Option<&str>, expected: InvalidEnvelope| {
            let mut headers = meta().headers("x/1");
            headers.remove(name);
            if let Some(value) = value {
                headers.append(name, value);
            }
            assert_eq!(
                Meta::from_headers(&headers),
                Err(expected),
                "{name} {value:?}"
            );
        };
        for name in [
            headers::OPERATION_HEADER,
            headers::DEADLINE_HEADER,
            headers::TENANT_HEADER,
        ] {
            check(name, None, InvalidEnvelope::Missing(name));
            check(name, Some("a b"), InvalidEnvelope::Invalid(name));
        }
        check(
            headers::DEADLINE_HEADER,
            Some("-1"),
            InvalidEnvelope::Invalid(headers::DEADLINE_HEADER),
        );
        check(
            headers::SESSION_HEADER,
            Some(""),
            InvalidEnvelope::Invalid(headers::SESSION_HEADER),
        );
        check(
            headers::APP_HEADER,
            Some("\u{fc}"),
            InvalidEnvelope::Invalid(headers::APP_HEADER),
        );
        check(
            "Nats-Rollup",
            Some("all"),
            InvalidEnvelope::Reserved("Nats-Rollup".into()),
        );
        check(
            "Nats-Sequence",
            Some("1"),
            InvalidEnvelope::Reserved("Nats-Sequence".into()),
        );
    }

    #[test]
    fn a_malformed_trace_starts_a_new_one() {
        let mut headers = meta().headers("x/1");
        headers.set(headers::TRACEPARENT_HEADER, "nonsense");
        assert!(Meta::from_headers(&headers).unwrap().trace.is_empty());
    }
}
