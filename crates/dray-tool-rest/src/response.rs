//! Converts a response into a result (quickapps 23.2). Bytes are kept unchanged.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use dray_agent::manifest::tool::ResponseAsAttachment;
use dray_agent::message::Attachment;
use dray_http::HttpResponse;
use dray_tool::{FileStorage, ToolFailure, ToolOutput};
use dray_types::Clock;
use jiff::Timestamp;

use crate::{body, failure};

/// Most bytes of a refusal that are read.
const MAX_REFUSAL_BYTES: usize = 64 << 10;

/// Most bytes that are put into the attachment itself when they cannot be stored elsewhere. Every turn sends messages
/// to the model, to the client and back again.
const MAX_INLINE_BYTES: usize = 256 << 10;

/// How a response becomes the result of a tool: as text up to a limit, or as a file with a name.
#[derive(Clone, Debug)]
pub(crate) struct ResponseRules {
    /// Name of the function; the files of its responses are called after it.
    pub(crate) function: String,
    /// The manifest's settings for responses as files.
    pub(crate) as_file: Option<ResponseAsAttachment>,
    /// Most bytes of a response that are read.
    pub(crate) limit: usize,
    /// Time in the names of files.
    pub(crate) clock: Clock,
}

impl ResponseRules {
    /// Reads a response.
    ///
    /// # Errors
    ///
    /// A failure for a status outside 2xx, a response that breaks or is too long, and a file that cannot be stored.
    pub(crate) async fn output(
        &self,
        response: HttpResponse,
        storage: &dyn FileStorage,
    ) -> Result<ToolOutput, ToolFailure> {
        let content_type = response
            .header("content-type")
            .unwrap_or_default()
            .to_owned();
        if !response.is_success() {
            return Err(refusal_failure(response, &content_type).await);
        }
        // No content encoding was requested, and none is decoded here.
        let encoding = response.header("content-encoding").unwrap_or("identity");
        if !encoding.trim().eq_ignore_ascii_case("identity") {
            let text = "The response of the server is compressed, which was not requested.";
            return Err(failure::of_answer(text));
        }
        let read = response.bytes(self.limit).await;
        let bytes = read.map_err(|error| failure::of_transport(error, "server"))?;
        let kind = dray_media_type::essence(&content_type);
        let text = body::decode_text(&bytes, &content_type);
        match text {
            Some(text) if !self.wants_file(&kind) => Ok(ToolOutput::text(text, &content_type)),
            // Binary content becomes a file even if the manifest requests none (quickapps 23.2).
            text => self.file(bytes, kind, text, &content_type, storage).await,
        }
    }

    /// Whether the manifest requests files for a type.
    fn wants_file(&self, kind: &str) -> bool {
        self.as_file.as_ref().is_some_and(|rules| {
            let types = &rules.content_types;
            let is_listed = types
                .iter()
                .any(|listed| dray_media_type::essence(listed) == kind);
            rules.enabled && (types.is_empty() || is_listed)
        })
    }

    async fn file(
        &self,
        bytes: Bytes,
        kind: String,
        text: Option<String>,
        content_type: &str,
        storage: &dyn FileStorage,
    ) -> Result<ToolOutput, ToolFailure> {
        let kind = if kind.is_empty() {
            "application/octet-stream".to_owned()
        } else {
            kind
        };
        let title = self.title(&kind);
        let attachment = match storage.keep(&title, &kind, bytes.clone()).await {
            Ok(stored) => stored,
            Err(error) => {
                let size = bytes.len();
                tracing::warn!(%error, size, "could not store the response of a tool");
                match inline_attachment(&bytes, text.as_deref()) {
                    Some(attachment) => attachment,
                    None => return too_large_output(text, &kind, size, content_type),
                }
            }
        };
        // The storage may have chosen another name, so that no file is overwritten.
        let title = attachment.title.clone().unwrap_or(title);
        let shows_text = self
            .as_file
            .as_ref()
            .is_none_or(|rules| rules.include_body_as_content);
        let content = match text {
            Some(text) if shows_text => text,
            _ => format!("See attached file: {title}"),
        };
        let attachment = Attachment {
            kind: Some(kind),
            title: Some(title),
            ..attachment
        };
        Ok(ToolOutput {
            attachments: vec![attachment],
            ..ToolOutput::text(content, content_type)
        })
    }

    /// `{function}-{time}{extension}`, without characters that are special in paths.
    fn title(&self, kind: &str) -> String {
        let now = i64::try_from(self.clock.now_ms()).unwrap_or_default();
        let now = Timestamp::from_millisecond(now).unwrap_or_default();
        let time = now.strftime("%Y-%m-%dT%H:%M:%S.%6f");
        let title = format!("{}-{time}.{}", self.function, body::type_extension(kind));
        title
            .chars()
            .map(|character| {
                if character.is_alphanumeric() || matches!(character, '.' | '-' | '_') {
                    character
                } else {
                    '_'
                }
            })
            .collect()
    }
}

/// Content in the attachment itself: text unchanged, other content as base64.
fn inline_attachment(bytes: &[u8], text: Option<&str>) -> Option<Attachment> {
    if bytes.len() > MAX_INLINE_BYTES {
        return None;
    }
    let data = text.map_or_else(|| STANDARD.encode(bytes), str::to_owned);
    Some(Attachment {
        data: Some(data),
        ..Attachment::default()
    })
}

/// The result for a large response that cannot be stored. The request was made, so a text is not a failure.
fn too_large_output(
    text: Option<String>,
    kind: &str,
    size: usize,
    content_type: &str,
) -> Result<ToolOutput, ToolFailure> {
    let output = text.map(|text| ToolOutput::text(text, content_type));
    output.ok_or_else(|| {
        failure::of_answer(&format!(
            "The request was made. Its answer is a file of type {kind} with {size} bytes, which could not be stored."
        ))
    })
}

/// The failure of a call that was refused, with the readable part of the response.
async fn refusal_failure(mut response: HttpResponse, content_type: &str) -> ToolFailure {
    let status = response.status();
    let mut refusal = Vec::new();
    while refusal.len() < MAX_REFUSAL_BYTES {
        match response.chunk().await {
            Ok(Some(chunk)) => refusal.extend_from_slice(&chunk),
            Ok(None) | Err(_) => break,
        }
    }
    let is_cut = refusal.len() > MAX_REFUSAL_BYTES;
    refusal.truncate(MAX_REFUSAL_BYTES);
    let text = if is_cut {
        // The cut may have split a character.
        Some(String::from_utf8_lossy(&refusal).into_owned())
            .filter(|_| body::decode_text(b"", content_type).is_some())
    } else {
        body::decode_text(&refusal, content_type)
    };
    failure::of_status(status, &text.unwrap_or_default(), content_type)
}
