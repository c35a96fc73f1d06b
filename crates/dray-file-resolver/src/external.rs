//! Files from outside, by way of the egress-fetcher (quickapps 33.7, 34; R1).
//!
//! This is the only way from here to an address that an agent chose, and it opens no connection: it asks over the bus.

use dray_bus::{Bus, CallError, Meta};
use dray_proto::convert::ContentSource;
use dray_proto::v1;
use dray_types::{ByteSize, Claim, Fault, Sha256Digest};

use crate::error::ResolveError;
use crate::loader::{LoadError, LoadedFile};
use crate::reply;
use crate::shown::DisplayName;

/// Details of the fetcher that are about the URL itself: its judgement, or what the other server did
/// (egress-security 17). The model can react to them. Everything else is about the fetcher or the way to it.
const ABOUT_THE_URL: [&str; 29] = [
    "disabled_by_admin",
    "disabled_by_app",
    "host_not_in_admin_allowlist",
    "host_not_in_app_allowlist",
    "policy_invalid",
    "invalid_url",
    "unsupported_scheme",
    "url_credentials",
    "ambiguous_host",
    "port_not_allowed",
    "blocked_host",
    "ssrf_blocked",
    "redirect_limit",
    "redirect_downgrade",
    "redirect_invalid",
    "too_large",
    "timeout",
    "deadline_expired",
    "dns_not_found",
    "dns_failure",
    "connect_failed",
    "tls_error",
    "connection_closed",
    "malformed_response",
    "http_status",
    "unexpected_partial",
    "truncated",
    "unsupported_encoding",
    "decode_error",
];

/// How a file from outside is asked for.
#[derive(Clone, Debug)]
pub struct ExternalFetch {
    /// Envelope of the call.
    pub meta: Meta,
    /// What the app allows.
    pub app_policy: Option<v1::AppPolicy>,
    /// Most bytes of the file.
    pub limit: ByteSize,
    /// Milliseconds that the tool call may take.
    pub tool_timeout_ms: u64,
}

/// Asks the egress-fetcher for `url`.
pub async fn fetch_external(
    bus: &Bus,
    fetch: &ExternalFetch,
    url: &str,
) -> Result<LoadedFile, LoadError> {
    let request = v1::FetchRequest {
        url: url.to_owned(),
        app_policy: fetch.app_policy.clone(),
        size_limit_bytes: fetch.limit.as_u64(),
        tool_timeout_ms: fetch.tool_timeout_ms,
        sink: v1::Sink::Unspecified.into(),
    };
    // The fetcher decides what is fetched again; a repeated call would multiply its attempts.
    match bus.call_once(&fetch.meta, &request).await {
        Ok(answer) => Ok(check_reply(answer, fetch)?),
        Err(CallError::Fault(fault)) if ABOUT_THE_URL.contains(&fault.detail.as_str()) => {
            Err(LoadError::Correctable(with_advice(fault, url)))
        }
        Err(source) => Err(LoadError::Failed(ResolveError::Egress {
            url: DisplayName::url(url),
            source: Box::new(source),
        })),
    }
}

fn with_advice(mut fault: Fault, url: &str) -> Fault {
    let shown = DisplayName::url(url);
    fault.message = reply::egress_message(&fault.detail, &fault.message, &shown);
    fault.trace_id = String::new();
    fault
}

/// The fetcher's answer, checked against itself and against what was asked.
fn check_reply(answer: v1::FetchReply, fetch: &ExternalFetch) -> Result<LoadedFile, ResolveError> {
    let broken = |what| ResolveError::EgressAnswer(what);
    let sha256 = Sha256Digest::try_from(answer.sha256.as_slice())
        .map_err(|_| broken("the digest is not 32 bytes"))?;
    let content = answer.content.ok_or(broken("there is no content"))?;
    let content =
        ContentSource::try_from(content).map_err(|_| broken("the content is not valid"))?;
    let (size, is_consistent) = match &content {
        ContentSource::Inline(bytes) => (
            u64::try_from(bytes.len()).unwrap_or(u64::MAX),
            Sha256Digest::of(bytes) == sha256,
        ),
        ContentSource::Claim(Claim { artifact, .. }) => (artifact.size, artifact.sha256 == sha256),
    };
    if !is_consistent || size != answer.size {
        return Err(broken("the content is not what the answer says"));
    }
    if size > fetch.limit.as_u64() {
        return Err(broken("the content is larger than asked for"));
    }
    let media_type = if answer.media_type.is_empty() {
        answer.sniffed_media_type
    } else {
        answer.media_type
    };
    Ok(LoadedFile {
        content,
        size,
        sha256,
        media_type,
    })
}
