//! Loads files from outside, through the egress-fetcher (quickapps 33.7, 34; R1).
//!
//! Only this module of the crate reaches addresses that an agent chose. It opens no connection, but
//! calls the egress-fetcher over the bus.

use dray_bus::{Bus, CallError, Meta};
use dray_guard::Code;
use dray_proto::convert::ContentSource;
use dray_proto::v1;
use dray_types::{ByteSize, Claim, Fault, Sha256Digest};

use crate::error::ResolveError;
use crate::loader::{LoadError, LoadedFile};
use crate::shown::DisplayName;

/// How a file from outside is requested.
#[derive(Clone, Debug)]
pub struct ExternalFetch {
    /// Envelope of the call.
    pub meta: Meta,
    /// The policy of the app on outside URLs.
    pub app_policy: Option<v1::AppPolicy>,
    /// Most bytes of the stored file.
    pub limit: ByteSize,
    /// Longest time of the tool call, in milliseconds.
    pub tool_timeout_ms: u64,
}

/// Fetches `url` through the egress-fetcher and checks the reply.
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
        revalidate: false,
    };
    // The fetcher itself retries; a repeated call would multiply its attempts.
    match bus.call_once(&fetch.meta, &request).await {
        Ok(reply) => Ok(check_reply(reply, fetch)?),
        Err(error) => Err(load_error(error, url)),
    }
}

/// A failure about the URL is for the model, which can choose another one; any other ends the request.
fn load_error(error: CallError, url: &str) -> LoadError {
    let display_name = DisplayName::url(url);
    match error {
        CallError::Fault(fault) => {
            match Code::of_fault(&fault).filter(|code| code.is_about_url()) {
                Some(code) => LoadError::Correctable(Fault {
                    message: code.model_message(&fault.message, &display_name),
                    trace_id: String::new(),
                    ..fault
                }),
                None => fetch_failure(display_name, CallError::Fault(fault)),
            }
        }
        error => fetch_failure(display_name, error),
    }
}

fn fetch_failure(url: DisplayName, source: CallError) -> LoadError {
    LoadError::Failed(ResolveError::Egress {
        url,
        source: Box::new(source),
    })
}

/// Checks the fetcher's reply against itself and against the request.
fn check_reply(reply: v1::FetchReply, fetch: &ExternalFetch) -> Result<LoadedFile, ResolveError> {
    let invalid_reply = |what| ResolveError::EgressAnswer(what);
    let sha256 = Sha256Digest::try_from(reply.sha256.as_slice())
        .map_err(|_| invalid_reply("the digest is not 32 bytes"))?;
    let content = reply
        .content
        .ok_or(invalid_reply("the reply has no content"))?;
    let content =
        ContentSource::try_from(content).map_err(|_| invalid_reply("the content is not valid"))?;
    let (size, is_consistent) = match &content {
        ContentSource::Inline(bytes) => (
            u64::try_from(bytes.len()).unwrap_or(u64::MAX),
            // Inline bytes are cheap to hash; each reader checks the bytes of a claim (K-5).
            Sha256Digest::of(bytes) == sha256,
        ),
        ContentSource::Claim(Claim { artifact, .. }) => (artifact.size, artifact.sha256 == sha256),
    };
    if !is_consistent || size != reply.size {
        return Err(invalid_reply(
            "the content does not match the size or digest of the reply",
        ));
    }
    if size > fetch.limit.as_u64() {
        return Err(invalid_reply("the content is larger than requested"));
    }
    // The type that the server declared has priority; the detected one is used only where it is missing.
    let media_type = if reply.media_type.is_empty() {
        reply.sniffed_media_type
    } else {
        reply.media_type
    };
    Ok(LoadedFile {
        content,
        size,
        sha256,
        media_type,
    })
}
