//! Problems as documents and responses (RFC 9457).

use axum::body::Body;
use axum::response::Response;
use http::{HeaderMap, HeaderName, HeaderValue, header};
use serde_json::{Value, json};

use super::{DestinationFailure, TicketProblem};
use crate::protocol::TUS_VERSION;
use crate::response::set;

/// Prefix of every problem type of this crate.
const PROBLEM_TYPE_PREFIX: &str = "urn:drayage:problem:";
/// Problem types of the resumable uploads, which the IANA registers.
const IANA_PROBLEM_PREFIX: &str = "https://iana.org/assignments/http-problem-types#";

impl TicketProblem {
    /// The `type` of the document.
    pub fn type_uri(&self) -> String {
        let prefix = match self {
            Self::OffsetMismatch { .. } | Self::InconsistentLength => IANA_PROBLEM_PREFIX,
            _ => PROBLEM_TYPE_PREFIX,
        };
        format!("{prefix}{}", self.name())
    }

    fn document(&self) -> Value {
        let mut document = json!({
            "type": self.type_uri(),
            "title": self.status().canonical_reason().unwrap_or("Checksum Mismatch"),
            "status": self.status().as_u16(),
            "detail": self.to_string(),
            "advice": self.advice(),
        });
        if let (Self::OffsetMismatch { expected, provided }, Some(fields)) =
            (self, document.as_object_mut())
        {
            fields.insert("expected-offset".to_owned(), json!(expected));
            fields.insert("provided-offset".to_owned(), json!(provided));
        }
        if let (Self::DestinationFailed(failure), Some(fields)) = (self, document.as_object_mut()) {
            fields.extend(failure.fields());
        }
        document
    }

    /// The response. It is never cached.
    pub(crate) fn into_response(self) -> Response {
        let mut response = Response::new(Body::from(self.document().to_string()));
        *response.status_mut() = self.status();
        let headers = response.headers_mut();
        headers.insert(
            header::CONTENT_TYPE,
            HeaderValue::from_static("application/problem+json"),
        );
        self.set_fields(headers);
        response
    }

    /// Sets the header fields that only this problem has.
    pub(crate) fn set_fields(&self, headers: &mut HeaderMap) {
        match self {
            Self::OffsetMismatch { expected, .. } => {
                headers.insert(
                    HeaderName::from_static("upload-offset"),
                    HeaderValue::from(*expected),
                );
            }
            Self::RangeNotSatisfiable { size } => {
                if let Ok(value) = HeaderValue::try_from(format!("bytes */{size}")) {
                    headers.insert(header::CONTENT_RANGE, value);
                }
            }
            // RFC 5789 section 2.2.
            Self::WrongPartType { expected } => set(headers, "accept-patch", expected),
            // RFC 9110 section 15.5.16.
            Self::CodedBody => set(headers, "accept-encoding", "identity"),
            Self::TusVersion => set(headers, "tus-version", TUS_VERSION),
            Self::MethodNotAllowed { allowed } => {
                set(headers, "allow", allowed);
            }
            Self::DestinationFailed(failure) if !failure.is_retryable => {}
            Self::InUse
            | Self::Unavailable
            | Self::SourceUnavailable
            | Self::DestinationFailed(_) => {
                headers.insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
            }
            Self::Unauthorized => {
                // RFC 6750 section 3.
                let challenge = HeaderValue::from_static("Bearer realm=\"drayage tickets\"");
                headers.insert(header::WWW_AUTHENTICATE, challenge);
            }
            _ => {}
        }
    }
}

impl DestinationFailure {
    /// The members of the problem document that only this problem has.
    fn fields(&self) -> serde_json::Map<String, Value> {
        let content = self.content.as_ref();
        let members = json!({
            "destination": self.kind,
            "fault": self.code,
            "fault_detail": self.detail,
            "fault_advice": self.advice,
            "retryable": self.is_retryable,
            "operation_id": self.operation_id,
            "artifact": content.map(|content| format!("dray://artifact/{}", content.sha256)),
            "sha256": content.map(|content| content.sha256.as_str()),
            "size": content.map(|content| content.size),
        });
        match members {
            Value::Object(members) => members,
            _ => serde_json::Map::new(),
        }
    }
}
