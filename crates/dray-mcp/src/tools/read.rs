//! `read`: one document as Markdown, in parts that fit a model.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use dray_presentation::name;
use dray_proto::v1;
use dray_types::{ByteSize, Fault, FaultCode};
use rmcp::model::{CallToolResult, ContentBlock};
use serde_json::{Value, json};

use super::{ToolCall, extended, linked_result, next_call};
use crate::arguments::ReadArguments;
use crate::budget;
use crate::client::TRANSFER_TIMEOUT;
use crate::content::StoredFile;
use crate::location::Location;
use crate::options::ToolName;

/// Types that models take as pictures.
const PICTURE_TYPES: [&str; 4] = ["image/png", "image/jpeg", "image/gif", "image/webp"];
/// Largest picture that is sent to a model.
const MAX_PICTURE_BYTES: ByteSize = ByteSize::mib(3);
/// Limit of a picture over HTTP, where Python clients refuse events above 1 MiB. Base64 encodes three bytes as four.
const MAX_HTTP_PICTURE_BYTES: ByteSize = ByteSize::kib(760);
/// Most bytes by which a range can be longer or shorter than requested: both ends move to the next character.
const MAX_ROUNDING_BYTES: u64 = 3;
/// Largest framed text of a service; the service's own limit is lower.
const MAX_OUTPUT_BYTES: ByteSize = ByteSize::mib(16);

impl ToolCall<'_> {
    pub(super) async fn read(&mut self, read: ReadArguments) -> Result<CallToolResult, Fault> {
        let limit = budget::text_bytes(read.max_tokens)?;
        let location = self.access.parse(&read.path)?;
        let stored = self
            .access
            .store_within(&location, self.access.limits.read, &mut self.progress)
            .await?;
        let is_whole = read.range.is_empty() && read.find.is_empty() && read.member.is_empty();
        if is_whole && PICTURE_TYPES.contains(&stored.media_type.as_str()) {
            return self.picture(&stored).await;
        }
        let window = ByteWindow::parse(&read.range, limit);
        let range = window.map_or_else(|| read.range.clone(), ByteWindow::to_range);
        self.progress.step("reading").await;
        let request = v1::ReadAttachmentRequest {
            source: Some(v1::DocumentSource {
                source: Some(v1::document_source::Source::Claim(
                    stored.claim.clone().into(),
                )),
            }),
            name: document_name(&location, &stored),
            summarize: read.summarize,
            focus: read.focus.clone(),
            range,
            find: read.find.clone(),
            member: read.member.clone(),
            inline_budget_bytes: limit + MAX_ROUNDING_BYTES,
            ..v1::ReadAttachmentRequest::default()
        };
        let client = &self.access.client;
        let reply = client.call_when_ready(TRANSFER_TIMEOUT, &request).await?;
        let text = client.text(reply.output.clone(), MAX_OUTPUT_BYTES).await?;
        if reply.outcome == "refuse" && reply.error_code == "kind_not_allowed" && is_whole {
            return Ok(binary_result(&stored));
        }
        check_outcome(&reply, &text)?;
        let next = next_window(&reply, window, limit)
            .map(|window| next_call(ToolName::Read, &next_arguments(&read, &stored, window)));
        Ok(text_result(&stored, &reply, &text, next))
    }

    /// A picture that is sent to the model as an image.
    async fn picture(&self, stored: &StoredFile) -> Result<CallToolResult, Fault> {
        let size = stored.claim.artifact.size;
        let limit = if self.is_http {
            MAX_HTTP_PICTURE_BYTES
        } else {
            MAX_PICTURE_BYTES
        };
        if size > limit.as_u64() {
            return Ok(linked_result(
                stored,
                extended(
                    stored.describe(),
                    json!({
                        "outcome": "link",
                        "warnings": [format!("The picture is larger than {limit}, so it is not shown.")],
                    }),
                ),
            ));
        }
        let client = &self.access.client;
        let deadline = client.deadline(TRANSFER_TIMEOUT);
        let reader = client
            .store
            .read(&client.tenant, &stored.claim, deadline)
            .await?;
        let bytes = reader.read_all(limit).await?;
        let value = extended(stored.describe(), json!({"outcome": "picture"}));
        let mut result = super::structured_result(value);
        let image = ContentBlock::image(STANDARD.encode(&bytes), &stored.media_type);
        result.content.push(image);
        Ok(result)
    }
}

/// The name of the document in its frame. Its extension determines the kind of text.
fn document_name(location: &Location, stored: &StoredFile) -> String {
    let named = &stored.claim.artifact.name;
    match location {
        Location::Local(path) | Location::Sandbox(path) => name::shown_text(path, 200),
        _ if !named.is_empty() => named.clone(),
        Location::Url(_) => "page".to_owned(),
        Location::Artifact(_) | Location::Ticket(_) => "document".to_owned(),
    }
}

fn check_outcome(reply: &v1::ReadAttachmentReply, text: &str) -> Result<(), Fault> {
    let code = match reply.outcome.as_str() {
        "refuse" => match reply.error_code.as_str() {
            "too_large" => FaultCode::TooLarge,
            "kind_not_allowed" => FaultCode::Unsupported,
            "not_found" | "member_not_found" => FaultCode::NotFound,
            "internal" => return Err(Fault::internal()),
            _ => FaultCode::InvalidArgument,
        },
        "cancelled" => FaultCode::Unavailable,
        _ => return Ok(()),
    };
    let message = text.trim_start_matches("Error: ").trim_end();
    Err(Fault::new(code, message).detail(reply.error_code.clone()))
}

fn binary_result(stored: &StoredFile) -> CallToolResult {
    let value = extended(
        stored.describe(),
        json!({
            "outcome": "link",
            "warnings": ["The file is not a document. Pass its handle to another tool instead of its content."],
        }),
    );
    linked_result(stored, value)
}

fn text_result(
    stored: &StoredFile,
    reply: &v1::ReadAttachmentReply,
    text: &str,
    next: Option<Value>,
) -> CallToolResult {
    let mut shown = text.trim_end().to_owned();
    for warning in &reply.warnings {
        shown.push_str("\nWarning: ");
        shown.push_str(warning);
    }
    let mut value = extended(
        stored.describe(),
        json!({
            "outcome": reply.outcome,
            "text": text,
            "truncated": reply.truncated || next.is_some(),
            "warnings": reply.warnings,
        }),
    );
    if let Some(next) = next {
        shown.push_str("\nThere is more. Next call: ");
        shown.push_str(&next.to_string());
        value = extended(value, json!({"next": next}));
    }
    let mut result = CallToolResult::success(vec![ContentBlock::text(shown)]);
    result.structured_content = Some(value);
    result
}

/// Bytes of the Markdown, first and last included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct ByteWindow {
    first: u64,
    last: u64,
}

impl ByteWindow {
    fn starting_at(first: u64, limit: u64) -> Self {
        Self {
            first,
            last: first.saturating_add(limit - 1),
        }
    }

    /// A range of bytes, cut to the limit. `None` for any other range, and for one that the service has to refuse.
    fn parse(range: &str, limit: u64) -> Option<Self> {
        let (first, last) = range.trim().strip_prefix("bytes ")?.split_once('-')?;
        let first = first.trim().parse().ok()?;
        let max_window = Self::starting_at(first, limit);
        match last.trim() {
            "" => Some(max_window),
            last => {
                let last: u64 = last.parse().ok()?;
                (last >= first).then(|| Self {
                    first,
                    last: last.min(max_window.last),
                })
            }
        }
    }

    fn length(self) -> u64 {
        self.last - self.first + 1
    }

    fn to_range(self) -> String {
        format!("bytes {}-{}", self.first, self.last)
    }
}

/// The part that follows what a reply shows; `None` at the end, and if the parts are not byte ranges.
fn next_window(
    reply: &v1::ReadAttachmentReply,
    window: Option<ByteWindow>,
    limit: u64,
) -> Option<ByteWindow> {
    match window {
        Some(window) => {
            let converted = converted_bytes(&reply.metrics).unwrap_or(window.length());
            // If it is shorter than the window, the document ended in it.
            let is_full = converted.saturating_add(MAX_ROUNDING_BYTES) >= window.length();
            (reply.outcome == "inline" && is_full)
                .then(|| ByteWindow::starting_at(window.last.saturating_add(1), limit))
        }
        // After an excerpt or a summary, the text is read from the start.
        None if reply.outcome == "summary" || reply.error_code == "summary_failed" => {
            Some(ByteWindow::starting_at(0, limit))
        }
        None => None,
    }
}

/// The first number of `123 bytes converted`.
fn converted_bytes(metrics: &str) -> Option<u64> {
    metrics.split(' ').next()?.parse().ok()
}

fn next_arguments(read: &ReadArguments, stored: &StoredFile, window: ByteWindow) -> Value {
    // The file is named by its handle, so that the next part is of the same bytes even if the source changes meanwhile.
    let mut arguments = json!({"path": stored.handle(), "range": window.to_range()});
    if !read.member.is_empty() {
        arguments = extended(arguments, json!({"member": read.member}));
    }
    if let Some(tokens) = read.max_tokens {
        arguments = extended(arguments, json!({"max_tokens": tokens}));
    }
    arguments
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_of_bytes_are_cut_to_the_limit_and_others_are_not_changed() {
        let range = |text: &str| ByteWindow::parse(text, 100).map(ByteWindow::to_range);
        assert_eq!(range("bytes 0-"), Some("bytes 0-99".to_owned()));
        assert_eq!(range("bytes 50-60"), Some("bytes 50-60".to_owned()));
        assert_eq!(range("bytes 50-9999"), Some("bytes 50-149".to_owned()));
        for other in ["", "pages 1-2", "bytes x-", "bytes 9-1", "bytes -5"] {
            assert_eq!(range(other), None, "{other}");
        }
        let end = format!("bytes {}-", u64::MAX);
        assert_eq!(range(&end), Some(format!("bytes {0}-{0}", u64::MAX)));
    }

    #[test]
    fn the_last_part_names_no_next_call() {
        let reply = |metrics: &str| v1::ReadAttachmentReply {
            outcome: "inline".to_owned(),
            metrics: metrics.to_owned(),
            ..v1::ReadAttachmentReply::default()
        };
        let window = Some(ByteWindow::starting_at(0, 100));
        let next = next_window(&reply("100 bytes converted"), window, 100);
        assert_eq!(next, Some(ByteWindow::starting_at(100, 100)));
        assert_eq!(next_window(&reply("90 bytes converted"), window, 100), None);
        assert_eq!(next_window(&reply("99 bytes converted"), None, 100), None);
    }
}
