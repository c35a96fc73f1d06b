//! Rules for the response of every target: its limits, the rule that allowed its request, and the fields that are not
//! passed on.

use dray_guard::{Code, RuleDecision};
use http::StatusCode;
use http::header::{
    CONNECTION, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue,
    PROXY_AUTHENTICATE, PROXY_AUTHORIZATION, TE, TRAILER, TRANSFER_ENCODING, UPGRADE,
};
use http_body::Body as _;
use hyper::body::Incoming;

use super::refusal::ProxyRefusal;
use crate::credential::Credential;
use crate::error::FetchPhase;
use crate::head::BodyFraming;
use crate::hop::is_malformed_head;

/// Most header fields of a response.
const MAX_RESPONSE_FIELDS: usize = 128;
/// Buffer of each side, and most bytes of a response head.
pub(super) const BUFFER_BYTES: usize = 64 * 1024;

/// Fields for the next recipient alone (RFC 9110, section 7.6.1; `HTTP2-Settings` by RFC 7540, section 3.2.1;
/// `Keep-Alive` and `Proxy-Connection` by custom).
static HOP_BY_HOP_FIELDS: [HeaderName; 10] = [
    CONNECTION,
    HeaderName::from_static("http2-settings"),
    HeaderName::from_static("keep-alive"),
    HeaderName::from_static("proxy-connection"),
    PROXY_AUTHENTICATE,
    PROXY_AUTHORIZATION,
    TE,
    TRAILER,
    TRANSFER_ENCODING,
    UPGRADE,
];

/// Fields that describe the content for all recipients, which `Connection` must not name (RFC 9110, section 7.6.1).
static CONTENT_FIELDS: [HeaderName; 3] = [CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE];

/// The client side of HTTP/1.1 towards a target.
pub(super) fn client_builder() -> hyper::client::conn::http1::Builder {
    let mut builder = hyper::client::conn::http1::Builder::new();
    builder
        .max_headers(MAX_RESPONSE_FIELDS)
        .max_header_size(BUFFER_BYTES)
        .max_buf_size(BUFFER_BYTES)
        .title_case_headers(true);
    builder
}

/// What the response to a request has to meet.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ResponseRules<'a> {
    /// The decision that allowed the request; `None` without policy files.
    pub(super) decision: Option<&'a RuleDecision>,
    /// The credential that was added to the request, which the client must not get.
    pub(super) credential: Option<&'a Credential>,
}

impl ResponseRules<'_> {
    /// Most bytes of the content.
    pub(super) fn max_bytes(&self) -> u64 {
        let limit = self.decision.and_then(RuleDecision::max_bytes);
        limit.unwrap_or(u64::MAX)
    }

    /// Removes the credential from a response head.
    ///
    /// # Errors
    ///
    /// The refusal of a head that still contains it.
    pub(super) fn remove_credential(&self, fields: &mut HeaderMap) -> Result<(), ProxyRefusal> {
        let Some(credential) = self.credential else {
            return Ok(());
        };
        let removed = credential.remove_from_response(fields);
        removed.map_err(|_| ProxyRefusal::Response)
    }

    /// Checks a response head by the rule that allowed the request: its media type, and its size if the head declares
    /// it. A redirect or an error with content of another type is passed without it: the client needs its status and
    /// its fields.
    ///
    /// # Errors
    ///
    /// `media_type_not_allowed` or `too_large`.
    pub(super) fn check(
        &self,
        status: StatusCode,
        fields: &HeaderMap,
        framing: BodyFraming,
        body: &Incoming,
    ) -> Result<ResponseContent, Code> {
        let Some(decision) = self.decision else {
            return Ok(ResponseContent::Passed);
        };
        let is_outcome_alone =
            status.is_redirection() || status.is_client_error() || status.is_server_error();
        match decision.check_media_type(declared_type(fields)) {
            Err(_) if is_without_content(status, fields, framing, body) => {}
            Err(_) if is_outcome_alone => return Ok(ResponseContent::Dropped),
            checked => checked?,
        }
        match framing {
            // The response to a HEAD, and a 304, have the length of a body that does not follow.
            BodyFraming::Length(length) if length > self.max_bytes() && !body.is_end_stream() => {
                Err(Code::TooLarge)
            }
            _ => Ok(ResponseContent::Passed),
        }
    }
}

/// What happens to the content of a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ResponseContent {
    /// The client gets it.
    Passed,
    /// The client gets the head alone ([`drop_content`]).
    Dropped,
}

/// Whether a response has no content that its type could describe.
fn is_without_content(
    status: StatusCode,
    fields: &HeaderMap,
    framing: BodyFraming,
    body: &Incoming,
) -> bool {
    match status {
        StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED => true,
        // Bytes of another protocol follow.
        _ if status.is_informational() => false,
        _ if framing == BodyFraming::Length(0) => true,
        // The response to a HEAD names the type of content that does not follow.
        _ => body.is_end_stream() && !fields.contains_key(CONTENT_TYPE),
    }
}

/// Makes a head for a response whose content is dropped, which says so (RFC 9209, section 2.1.3).
pub(super) fn drop_content(status: StatusCode, fields: &mut HeaderMap) {
    fields.remove(CONTENT_ENCODING);
    fields.insert(CONTENT_LENGTH, HeaderValue::from(0));
    let reason = format!(
        "dray; received-status={}; details=\"{}\"",
        status.as_u16(),
        Code::MediaTypeNotAllowed
    );
    if let Ok(reason) = HeaderValue::try_from(reason) {
        fields.append(HeaderName::from_static("proxy-status"), reason);
    }
}

/// The refusal that a client gets when a target sent no response head.
pub(super) fn refusal_without_head(error: &hyper::Error) -> ProxyRefusal {
    if is_malformed_head(error) {
        ProxyRefusal::Response
    } else {
        ProxyRefusal::Guard(Code::ConnectionClosed, FetchPhase::Head)
    }
}

/// Replaces equal lengths by one (RFC 9112, section 6.3), because the next recipient may refuse several.
pub(super) fn unify_length(fields: &mut HeaderMap, framing: BodyFraming) {
    if let BodyFraming::Length(length) = framing {
        fields.insert(CONTENT_LENGTH, HeaderValue::from(length));
    }
}

/// The media type of a response; empty when none or several are declared.
fn declared_type(fields: &HeaderMap) -> &str {
    let mut types = fields.get_all(CONTENT_TYPE).iter();
    match (types.next(), types.next()) {
        (Some(declared), None) => declared.to_str().unwrap_or_default(),
        _ => "",
    }
}

/// Removes the fields for one recipient, and those that `Connection` names.
pub(super) fn remove_hop_fields(fields: &mut HeaderMap) {
    let named: Vec<HeaderName> = fields
        .get_all(CONNECTION)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .filter_map(|name| HeaderName::from_bytes(name.trim().as_bytes()).ok())
        // Without them a body would have another length, or another type than the one that was judged.
        .filter(|name| !CONTENT_FIELDS.contains(name))
        .collect();
    for name in HOP_BY_HOP_FIELDS.iter().chain(&named) {
        fields.remove(name);
    }
}
