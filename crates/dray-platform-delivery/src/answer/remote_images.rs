//! Pictures on other servers that a final text shows: they are fetched and sent as files (platform-delivery 3.6).
//!
//! This service opens no connection to an address that an agent chose: egress-fetcher judges and fetches each of them.

use std::collections::BTreeMap;
use std::ops::Range;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use dray_bus::{CallError, Meta};
use dray_guard::Code;
use dray_media_type::{extension_start, type_of_name, usual_extension};
use dray_presentation::media::{self, RemoteImage};
use dray_presentation::name;
use dray_proto::convert::ContentSource;
use dray_proto::v1;
use dray_types::{
    ByteSize, Claim, Deadline, OperationId, RedactedUrl, SessionId, Sha256Digest, whole_millis,
};
use futures_util::StreamExt as _;
use percent_encoding::percent_decode_str;
use prost::Message as _;
use serde::{Deserialize, Serialize};

use super::TextSender;
use crate::error::DeliveryError;
use crate::records::RecordError;

/// Most pictures of one text that are fetched. Further ones stay in the text.
const MAX_FETCHED_IMAGES: usize = 16;
/// Most pictures of one text that are fetched concurrently.
const MAX_CONCURRENT_FETCHES: usize = 4;
/// Largest picture.
const MAX_IMAGE_SIZE: ByteSize = ByteSize::mib(20);
/// Longest time for all pictures of one text.
const MAX_FETCH_TIME: Duration = Duration::from_secs(30);
/// How long the outcomes of the fetches are stored, for repeated calls.
const OUTCOME_RETENTION: Duration = Duration::from_hours(24);

/// Reasons of this service why a picture stays in the text.
const UNAVAILABLE_SENTENCE: &str = "The picture is not available right now.";
const LATE_SENTENCE: &str = "The picture did not arrive in time.";
const OTHER_CONTENT_SENTENCE: &str = "The address has no picture.";

/// The pictures of a text that are sent, and the sentences about those that stay.
#[derive(Debug, Default)]
pub(super) struct SendableImages {
    /// The mentions of the pictures that are sent, in the order of the text.
    spans: Vec<Range<usize>>,
    /// The pictures, each once.
    pub(super) claims: Vec<v1::Claim>,
    /// A sentence for each address that stays for a reason.
    pub(super) notices: Vec<String>,
}

impl SendableImages {
    /// The text without the pictures that are sent.
    pub(super) fn cut_from(&self, text: String) -> String {
        if self.spans.is_empty() {
            return text;
        }
        media::cut_spans(&text, &self.spans)
    }
}

/// The outcome of one fetch, as it is stored.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum ImageOutcome {
    /// The picture arrived: its claim, in base64.
    Stored(String),
    /// The picture stays in the text: a sentence with the reason, or an empty one.
    Failed(String),
}

/// Outcomes by address. The key is a digest, because an address may contain a signature.
type ImageOutcomes = BTreeMap<String, ImageOutcome>;

impl TextSender {
    /// Fetches the pictures of a text, at most `max_images`. A repeated call gets the outcomes of the first one.
    ///
    /// # Errors
    /// The outcomes were not read or stored. A picture that does not arrive is not an error.
    pub(super) async fn fetch_images(
        &self,
        meta: &Meta,
        session: &str,
        text: &str,
        max_images: usize,
    ) -> Result<SendableImages, DeliveryError> {
        let images = media::remote_images(text);
        let mut urls: Vec<&str> = Vec::new();
        for image in &images {
            if !urls.contains(&image.url.as_str()) {
                urls.push(&image.url);
            }
        }
        urls.truncate(max_images.min(MAX_FETCHED_IMAGES));
        if urls.is_empty() {
            return Ok(SendableImages::default());
        }
        let key = outcome_key(meta);
        let found = self.platform_cache.find(&key).await;
        let outcomes = if let Some(outcomes) = found.map_err(RecordError::Unreachable)? {
            outcomes
        } else {
            let fetched = self.fetch_urls(meta, session, &urls).await;
            // Of two concurrent calls of the same operation, both return what the first one stored: only one of the
            // two deliveries is published.
            let kept = self
                .platform_cache
                .keep_first(&key, fetched, OUTCOME_RETENTION)
                .await;
            kept.map_err(RecordError::Unreachable)?
        };
        Ok(sendable_images(&images, &outcomes))
    }

    /// Fetches these addresses. At most half of the caller's time is used, so that the files are sent within the rest.
    async fn fetch_urls(&self, meta: &Meta, session: &str, urls: &[&str]) -> ImageOutcomes {
        let now_ms = self.intake.context.clock.now_ms();
        let time = (meta.deadline.remaining(now_ms) / 2).min(MAX_FETCH_TIME);
        let until = Deadline::after(now_ms, time);
        let mut fetches = Vec::new();
        for (index, url) in urls.iter().enumerate() {
            fetches.push(self.fetch_image(fetch_meta(meta, session, index, until), url));
        }
        futures_util::stream::iter(fetches)
            .buffered(MAX_CONCURRENT_FETCHES)
            .collect()
            .await
    }

    /// Fetches one picture into the store.
    async fn fetch_image(&self, meta: Meta, url: &str) -> (String, ImageOutcome) {
        let remaining = meta.deadline.remaining(self.intake.context.clock.now_ms());
        let request = v1::FetchRequest {
            url: url.to_owned(),
            app_policy: None,
            size_limit_bytes: MAX_IMAGE_SIZE.as_u64(),
            tool_timeout_ms: whole_millis(remaining),
            sink: v1::Sink::ClaimOnly.into(),
            revalidate: false,
        };
        // The fetcher itself retries; a repeated call would multiply its attempts.
        let stored = match self.bus.call_once(&meta, &request).await {
            Ok(reply) => stored_image(reply).map_err(str::to_owned),
            Err(error) => Err(failure_sentence(error)),
        };
        let outcome = match stored {
            Ok(claim) => {
                ImageOutcome::Stored(STANDARD.encode(v1::Claim::from(claim).encode_to_vec()))
            }
            Err(sentence) => ImageOutcome::Failed(image_notice(url, &sentence)),
        };
        (url_digest(url), outcome)
    }
}

/// The pictures of a text that are sent, by these outcomes. A picture without an outcome stays without a sentence.
fn sendable_images(images: &[RemoteImage], outcomes: &ImageOutcomes) -> SendableImages {
    let mut sendable = SendableImages::default();
    for image in images {
        match outcomes.get(&url_digest(&image.url)) {
            Some(ImageOutcome::Stored(encoded)) => {
                let Some(claim) = decode_claim(encoded) else {
                    continue;
                };
                sendable.spans.push(image.span.clone());
                // The digest is part of the claim, so the same picture from two addresses is sent once.
                let digest = |claim: &v1::Claim| {
                    let artifact = claim.artifact.as_ref();
                    artifact.map(|artifact| artifact.sha256.clone())
                };
                let mut earlier = sendable.claims.iter();
                if !earlier.any(|known| digest(known) == digest(&claim)) {
                    sendable.claims.push(claim);
                }
            }
            Some(ImageOutcome::Failed(notice))
                if !notice.is_empty() && !sendable.notices.contains(notice) =>
            {
                sendable.notices.push(notice.clone());
            }
            Some(ImageOutcome::Failed(_)) | None => {}
        }
    }
    sendable
}

fn decode_claim(encoded: &str) -> Option<v1::Claim> {
    let bytes = STANDARD.decode(encoded).ok()?;
    v1::Claim::decode(bytes.as_slice()).ok()
}

/// The envelope of one fetch. The id of its operation is the same when the call is repeated.
fn fetch_meta(meta: &Meta, session: &str, index: usize, until: Deadline) -> Meta {
    let id = format!("{}-i{index}", meta.operation.ledger_token());
    let operation = OperationId::new(id).unwrap_or_else(|_| meta.operation.clone());
    let fetch = meta.clone().with_operation(operation).with_deadline(until);
    // Hosts that a person allowed are allowed for one session.
    match SessionId::new(session) {
        Ok(session) => fetch.with_session(session),
        Err(_) => fetch,
    }
}

/// The claim for a picture that was fetched, or the reason why the reply has none.
fn stored_image(reply: v1::FetchReply) -> Result<Claim, &'static str> {
    let content = reply.content.clone().map(ContentSource::try_from);
    let Some(Ok(ContentSource::Claim(mut claim))) = content else {
        return Err(UNAVAILABLE_SENTENCE);
    };
    let artifact = &claim.artifact;
    let is_consistent = artifact.sha256.as_bytes().as_slice() == reply.sha256.as_slice()
        && artifact.size == reply.size
        && reply.size <= MAX_IMAGE_SIZE.as_u64();
    if !is_consistent {
        return Err(UNAVAILABLE_SENTENCE);
    }
    // The declared type is a claim of the server, and many servers respond with a page where a picture is missing.
    if !reply.sniffed_media_type.starts_with("image/") {
        return Err(OTHER_CONTENT_SENTENCE);
    }
    claim.artifact.name = image_name(&reply);
    claim.artifact.media_type = reply.sniffed_media_type;
    Ok(claim)
}

/// The name of a picture: that of the response, or the last part of the address, with the extension of its content.
/// Platforms show a file by its extension, and servers choose the format of a picture by the client.
fn image_name(reply: &v1::FetchReply) -> String {
    let path = reply.final_url.split(['?', '#']).next().unwrap_or_default();
    let last = path
        .split_once("://")
        .and_then(|(_, rest)| rest.split_once('/'))
        .and_then(|(_, path)| path.rsplit('/').next())
        .unwrap_or_default();
    let raw = match reply.name.as_str() {
        "" => percent_decode_str(last).decode_utf8_lossy(),
        name => name.into(),
    };
    let named = match raw.trim() {
        "" => "image".to_owned(),
        raw => name::clean_name(raw),
    };
    let media_type = reply.sniffed_media_type.as_str();
    let claimed = type_of_name(&named);
    let Some(extension) = usual_extension(media_type).filter(|_| claimed != Some(media_type))
    else {
        return named;
    };
    // Only the extension of another kind of picture is replaced: any other may be a part of the name.
    let stem = match extension_start(&named) {
        Some(start) if claimed.is_some_and(|claimed| claimed.starts_with("image/")) => {
            named.get(..start).unwrap_or_default()
        }
        _ => named.as_str(),
    };
    name::clean_name(format!("{stem}.{extension}"))
}

/// The reason for the notice; empty for none.
fn failure_sentence(error: CallError) -> String {
    let error = match error {
        CallError::Fault(fault) => match Code::of_fault(&fault) {
            // Without any fetch, links are all that a text can show. That is how the operator wants it.
            Some(Code::DisabledByAdmin) => return String::new(),
            Some(code) if code.is_about_url() => return fault.message,
            _ => CallError::Fault(fault),
        },
        error => error,
    };
    tracing::warn!(
        error = &error as &dyn std::error::Error,
        "could not fetch a picture of a text"
    );
    let sentence = match error {
        CallError::Timeout(_) => LATE_SENTENCE,
        _ => UNAVAILABLE_SENTENCE,
    };
    sentence.to_owned()
}

/// The sentence with the address, without its query; empty for an empty sentence.
fn image_notice(url: &str, sentence: &str) -> String {
    let shown = RedactedUrl::from_text(url);
    // Most sentences of the fetcher contain the address already.
    if sentence.is_empty() || sentence.contains(shown.as_str()) {
        return sentence.to_owned();
    }
    format!("{shown}: {sentence}")
}

/// SHA-256 of an address, in hexadecimal digits.
fn url_digest(url: &str) -> String {
    Sha256Digest::of(url.as_bytes()).to_hex()
}

/// Key of the outcomes of one call.
fn outcome_key(meta: &Meta) -> String {
    let operation = meta.operation.ledger_token();
    format!("images.{}.{operation}", meta.tenant.token())
}

#[cfg(test)]
mod tests {
    use dray_types::{Artifact, Fault, FaultCode, TenantId};

    use super::*;

    const BYTES: &[u8] = b"picture";

    /// A reply for a PNG from this address, with this name of the response.
    fn reply(final_url: &str, name: &str) -> v1::FetchReply {
        let claim = Claim {
            artifact: Artifact {
                tenant: TenantId::default(),
                sha256: Sha256Digest::of(BYTES),
                size: BYTES.len() as u64,
                media_type: "text/html".to_owned(),
                name: name.to_owned(),
            },
            store: "s".to_owned(),
            version_id: None,
            created_at_ms: 0,
            expires_at_ms: 0,
        };
        v1::FetchReply {
            content: Some(ContentSource::Claim(claim).into()),
            sha256: Sha256Digest::of(BYTES).as_bytes().to_vec(),
            size: BYTES.len() as u64,
            sniffed_media_type: "image/png".to_owned(),
            name: name.to_owned(),
            final_url: final_url.to_owned(),
            ..v1::FetchReply::default()
        }
    }

    #[test]
    fn a_picture_is_named_by_its_response_or_address_and_by_its_content() {
        for (url, name, expected) in [
            ("https://h/a/cat.png", "", "cat.png"),
            ("https://h/a/cat.png", "dog.png", "dog.png"),
            ("https://h/a/my%20cat.PNG", "", "my cat.PNG"),
            ("https://h/a/cat.jpg", "", "cat.png"),
            ("https://h/files/1", "", "1.png"),
            ("https://h/show.php", "", "show.php.png"),
            ("https://h/v1.2", "", "v1.2.png"),
            ("https://h/", "", "image.png"),
            ("https://h", "", "image.png"),
            ("https://h/..%2F..%2Fetc", "", "etc.png"),
        ] {
            let stored = stored_image(reply(url, name)).unwrap();
            assert_eq!(stored.artifact.name, expected, "{url} {name}");
            assert_eq!(stored.artifact.media_type, "image/png");
        }
    }

    #[test]
    fn only_a_consistent_reply_with_a_picture_is_sent() {
        let valid = reply("https://h/a.png", "");
        let page = v1::FetchReply {
            sniffed_media_type: "text/html".to_owned(),
            ..valid.clone()
        };
        assert_eq!(stored_image(page), Err(OTHER_CONTENT_SENTENCE));
        let inline = ContentSource::Inline(BYTES.into());
        for changed in [
            v1::FetchReply {
                content: None,
                ..valid.clone()
            },
            v1::FetchReply {
                content: Some(inline.into()),
                ..valid.clone()
            },
            v1::FetchReply {
                sha256: Sha256Digest::of(b"other").as_bytes().to_vec(),
                ..valid.clone()
            },
            v1::FetchReply { size: 1, ..valid },
        ] {
            assert_eq!(stored_image(changed), Err(UNAVAILABLE_SENTENCE));
        }
        let mut large = reply("https://h/a.png", "");
        large.size = MAX_IMAGE_SIZE.as_u64() + 1;
        let content = large.content.as_mut().unwrap().body.as_mut().unwrap();
        if let v1::content::Body::Claim(claim) = content {
            claim.artifact.as_mut().unwrap().size = large.size;
        }
        assert_eq!(stored_image(large), Err(UNAVAILABLE_SENTENCE));
    }

    #[test]
    fn a_notice_has_the_address_once_and_neither_its_query_nor_an_internal_reason() {
        const URL: &str = "https://u:p@h.example/a.png?sig=secret";
        let fault = |detail: &'static str, message: &str| {
            CallError::Fault(Fault::new(FaultCode::Denied, message).detail(detail))
        };
        for (error, expected) in [
            (
                fault("policy_denied", "Not allowed."),
                "https://h.example/a.png: Not allowed.",
            ),
            (
                fault("ssrf_blocked", "URL https://h.example/a.png is blocked."),
                "URL https://h.example/a.png is blocked.",
            ),
            (
                fault("sink_failed", "disk 7"),
                "https://h.example/a.png: The picture is not available right now.",
            ),
            (
                CallError::NoResponder("dray.secret".to_owned()),
                "https://h.example/a.png: The picture is not available right now.",
            ),
            (
                CallError::Timeout("dray.secret".to_owned()),
                "https://h.example/a.png: The picture did not arrive in time.",
            ),
            (fault("disabled_by_admin", "Fetching is disabled."), ""),
        ] {
            assert_eq!(image_notice(URL, &failure_sentence(error)), expected);
        }
    }
}
