//! Failures as services report them to callers.

use std::fmt;
use std::time::Duration;

use serde::ser::SerializeStruct as _;
use serde::{Serialize, Serializer};

use crate::period::whole_millis;

/// Declares [`FaultCode`] from one line for each code: its name in logs, its status over HTTP, and its meaning.
macro_rules! fault_codes {
    ($($code:ident $name:literal $status:literal: $meaning:literal,)+) => {
        /// The closed set of failure codes. New reasons are *details*, not codes.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum FaultCode {
            $(#[doc = $meaning] $code,)+
        }

        impl FaultCode {
            /// Every code, in the order of the protobuf numbers.
            pub const ALL_CODES: [Self; [$($name),+].len()] = [$(Self::$code),+];

            /// The name used in logs, metrics and JSON.
            pub const fn as_str(self) -> &'static str {
                match self {
                    $(Self::$code => $name,)+
                }
            }

            /// What the code means to callers, as in `docs/faults.md`.
            pub const fn meaning(self) -> &'static str {
                match self {
                    $(Self::$code => $meaning,)+
                }
            }

            /// Status code of an HTTP response that reports a fault of this code.
            pub const fn http_status(self) -> u16 {
                match self {
                    $(Self::$code => $status,)+
                }
            }
        }
    };
}

fault_codes! {
    InvalidArgument "invalid_argument" 400: "The request is invalid; sending it again fails again.",
    NotFound "not_found" 404: "The named object does not exist.",
    Denied "denied" 403: "A policy or a permission refuses it.",
    TooLarge "too_large" 413: "A size limit is exceeded.",
    Unsupported "unsupported" 501: "The requested kind of operation or content is not supported.",
    RateLimited "rate_limited" 429:
        "A limit for a period or for concurrent requests is reached; a later request may succeed.",
    Timeout "timeout" 504: "The deadline or the time limit of a phase passed.",
    Unavailable "unavailable" 503: "A dependency failed or did not respond.",
    Internal "internal" 500: "A bug of the service; the message is always the same.",
}

impl fmt::Display for FaultCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Advice on whether the same request may succeed later.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RetryAdvice {
    /// The same request fails in the same way.
    Never,
    /// The same request may succeed, not before the given delay.
    After(Duration),
}

/// A failure for an agent or a calling service.
///
/// The message never contains a resolved address, an internal host, a host path, a header, a token or the text of
/// another crate's error. The full error chain is in the operator's log.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Fault {
    /// The code that callers act on, one of the closed set.
    pub code: FaultCode,
    /// The precise reason, a snake-case word from the owning service's list (`ssrf_blocked`). Used in logs, audit and
    /// metrics; empty if the code is precise enough.
    pub detail: String,
    /// One sentence on what happened, for the agent.
    pub message: String,
    /// One sentence on what to do next; empty without advice.
    pub advice: String,
    /// Advice on whether to repeat the request, and how long to wait before.
    pub retry: RetryAdvice,
    /// Trace id to quote to an operator; empty outside a trace.
    pub trace_id: String,
}

/// As programs read a fault: on the command line with `--json`, and in the protocol of tools. `retry_after_ms` is
/// `null` for a fault that no retry helps.
impl Serialize for Fault {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let retry_after_ms = match self.retry {
            RetryAdvice::Never => None,
            RetryAdvice::After(delay) => Some(whole_millis(delay)),
        };
        let mut members = serializer.serialize_struct("Fault", 7)?;
        members.serialize_field("code", self.code.as_str())?;
        members.serialize_field("detail", &self.detail)?;
        members.serialize_field("message", &self.message)?;
        members.serialize_field("advice", &self.advice)?;
        members.serialize_field("retryable", &self.is_retryable())?;
        members.serialize_field("retry_after_ms", &retry_after_ms)?;
        members.serialize_field("trace_id", &self.trace_id)?;
        members.end()
    }
}

/// The complete tool message for an argument that the model can correct (quickapps 19.4).
///
/// The resolver's `InvalidParameter.tool_message` and the loop of the agent both use this text. A `Fault` contains only
/// `message`, so that the prefix is not added twice.
pub fn invalid_parameter_message(name: &str, message: &str) -> String {
    format!(
        "Parameter {name} is invalid, try to call the tool again with fixed exception: {message}"
    )
}

/// The message of every internal fault; the cause is only logged.
pub const INTERNAL_MESSAGE: &str = "Something went wrong inside the file service.";

impl Fault {
    /// A fault without detail or advice, which advises against a retry until [`Fault::retry_after`] is called.
    pub fn new(code: FaultCode, message: impl Into<String>) -> Self {
        Self {
            code,
            detail: String::new(),
            message: message.into(),
            advice: String::new(),
            retry: RetryAdvice::Never,
            trace_id: String::new(),
        }
    }

    /// The fault for a defect of Drayage. Its message is always the same, because the cause may contain data that an
    /// agent must not see.
    pub fn internal() -> Self {
        Self::new(FaultCode::Internal, INTERNAL_MESSAGE)
            .advice("Try again; if it happens again, report the trace id to the operator.")
            .retry_after(Duration::from_secs(1))
    }

    /// Sets the precise reason, a snake-case word.
    #[must_use]
    pub fn detail(mut self, detail: impl Into<String>) -> Self {
        self.detail = detail.into();
        self
    }

    /// Sets the sentence on what to do next.
    #[must_use]
    pub fn advice(mut self, advice: impl Into<String>) -> Self {
        self.advice = advice.into();
        self
    }

    /// Advises a retry after `delay` or later.
    #[must_use]
    pub fn retry_after(mut self, delay: Duration) -> Self {
        self.retry = RetryAdvice::After(delay);
        self
    }

    /// Sets the trace id to quote to an operator.
    #[must_use]
    pub fn trace_id(mut self, trace_id: impl Into<String>) -> Self {
        self.trace_id = trace_id.into();
        self
    }

    /// Whether the same request may succeed later.
    pub const fn is_retryable(&self) -> bool {
        matches!(self.retry, RetryAdvice::After(_))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn codes_are_the_closed_set() {
        let names: Vec<_> = FaultCode::ALL_CODES
            .iter()
            .map(|code| code.as_str())
            .collect();
        assert_eq!(
            names.join(" "),
            "invalid_argument not_found denied too_large unsupported rate_limited timeout unavailable internal"
        );
    }

    #[test]
    fn each_code_has_its_own_error_status_over_http() {
        let statuses = FaultCode::ALL_CODES.map(FaultCode::http_status);
        let distinct: std::collections::BTreeSet<u16> = statuses.into_iter().collect();
        assert_eq!(distinct.len(), statuses.len(), "{statuses:?}");
        assert!(statuses.iter().all(|status| (400..600).contains(status)));
        // The request is valid, but this server cannot do it (RFC 9110, section 15.6.2).
        assert_eq!(FaultCode::Unsupported.http_status(), 501);
    }

    #[test]
    fn programs_read_the_code_the_texts_and_the_delay() {
        let fault = Fault::new(FaultCode::RateLimited, "Too many fetches.")
            .detail("quota")
            .advice("Wait.")
            .retry_after(Duration::from_millis(1500))
            .trace_id("4bf9");
        assert_eq!(
            serde_json::to_value(&fault).unwrap(),
            serde_json::json!({
                "code": "rate_limited", "detail": "quota", "message": "Too many fetches.", "advice": "Wait.",
                "retryable": true, "retry_after_ms": 1500, "trace_id": "4bf9",
            })
        );
        let last = serde_json::to_value(Fault::new(FaultCode::Denied, "No.")).unwrap();
        assert_eq!(last["retryable"], false);
        assert!(last["retry_after_ms"].is_null());
    }

    #[test]
    fn internal_faults_do_not_contain_the_cause() {
        assert_eq!(Fault::internal().to_string(), INTERNAL_MESSAGE);
        assert!(Fault::internal().is_retryable());
    }
}
