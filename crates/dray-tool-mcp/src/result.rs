//! What a call gave (quickapps 27.3): texts for the model, files kept where the client can fetch them. Nothing is lost
//! without a word.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use bytes::Bytes;
use dray_agent::manifest::call::AttachmentRules;
use dray_agent::message::Attachment;
use dray_tool::{FileStorage, HandledFailure, ToolFailure, ToolOutput, matching};
use rmcp::model::{CallToolResult, ContentBlock, Resource, ResourceContents};

/// Names for files of one call.
#[derive(Debug)]
pub(crate) struct FileNames {
    pub(crate) tool: String,
    pub(crate) now_ms: u64,
    pub(crate) used: usize,
}

impl FileNames {
    /// `{tool}-{timestamp}{ext}`, from the second file on with a number.
    fn next(&mut self, media_type: &str) -> String {
        self.used += 1;
        let (tool, now, ext) = (&self.tool, self.now_ms, file_extension(media_type));
        match self.used {
            1 => format!("{tool}-{now}{ext}"),
            used => format!("{tool}-{now}-{used}{ext}"),
        }
    }
}

fn file_extension(media_type: &str) -> &'static str {
    let essence = media_type.split(';').next().unwrap_or_default().trim();
    match essence.to_ascii_lowercase().as_str() {
        "image/png" => ".png",
        "image/jpeg" => ".jpg",
        "image/gif" => ".gif",
        "image/webp" => ".webp",
        "image/svg+xml" => ".svg",
        "audio/wav" | "audio/x-wav" => ".wav",
        "audio/mpeg" => ".mp3",
        "audio/ogg" => ".ogg",
        "application/pdf" => ".pdf",
        "application/json" => ".json",
        "application/zip" => ".zip",
        "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet" => ".xlsx",
        "application/vnd.openxmlformats-officedocument.wordprocessingml.document" => ".docx",
        "text/plain" => ".txt",
        "text/csv" => ".csv",
        "text/html" => ".html",
        "text/markdown" => ".md",
        _ => ".bin",
    }
}

/// The result of a call, or its failure when the tool says so.
pub(crate) async fn result_output(
    result: CallToolResult,
    mut names: FileNames,
    rules: &AttachmentRules,
    storage: &dyn FileStorage,
) -> Result<ToolOutput, ToolFailure> {
    let mut texts = Vec::new();
    let mut attachments = Vec::new();
    for block in result.content {
        match read_block(block, &names.tool)? {
            ResultBlock::Text(text) => texts.push(text),
            ResultBlock::File(media_type, bytes) => {
                let supported = rules.supported();
                if !supported
                    .iter()
                    .any(|pattern| matching::matches_pattern(Some(&media_type), pattern))
                {
                    texts.push(format!(
                        "(The tool also returned {media_type} content, which this agent does not take.)"
                    ));
                    continue;
                }
                let name = names.next(&media_type);
                attachments.push(keep_file(storage, &name, &media_type, bytes).await?);
            }
        }
    }
    let mut kind = "text/plain";
    if texts.is_empty()
        && let Some(structured) = result.structured_content
    {
        kind = "application/json";
        texts.push(structured.to_string());
    }
    let content = texts.join("\n\n");
    if result.is_error == Some(true) {
        let text = if content.is_empty() {
            format!(
                "Error calling MCP tool '{}': it failed without a word",
                names.tool
            )
        } else {
            content
        };
        let shown = format!("> ##### Error:\n{text}\n");
        return Err(HandledFailure::new(text).shown(shown).into());
    }
    Ok(ToolOutput {
        attachments,
        ..ToolOutput::text(content, kind)
    })
}

async fn keep_file(
    storage: &dyn FileStorage,
    name: &str,
    media_type: &str,
    bytes: Bytes,
) -> Result<Attachment, ToolFailure> {
    let mut attachment = storage.keep(name, media_type, bytes).await?;
    attachment.kind.get_or_insert_with(|| media_type.to_owned());
    Ok(attachment)
}

enum ResultBlock {
    Text(String),
    File(String, Bytes),
}

fn read_block(block: ContentBlock, tool: &str) -> Result<ResultBlock, ToolFailure> {
    let file = |media_type: String, data: &str| match BASE64_STANDARD.decode(data.trim()) {
        Ok(bytes) => Ok(ResultBlock::File(media_type, bytes.into())),
        Err(error) => Err(HandledFailure::new(format!(
            "Error calling MCP tool '{tool}': a file of its answer is not base64"
        ))
        .because(error)
        .into()),
    };
    match block {
        ContentBlock::Text(text) => Ok(ResultBlock::Text(text.text)),
        ContentBlock::Image(image) => file(image.mime_type, &image.data),
        ContentBlock::Audio(audio) => file(audio.mime_type, &audio.data),
        ContentBlock::Resource(embedded) => match embedded.resource {
            ResourceContents::TextResourceContents {
                mime_type, text, ..
            } => {
                let media_type = mime_type.unwrap_or_else(|| "text/plain".to_owned());
                Ok(ResultBlock::File(media_type, text.into()))
            }
            ResourceContents::BlobResourceContents {
                mime_type, blob, ..
            } => {
                let unknown = || "application/octet-stream".to_owned();
                file(mime_type.unwrap_or_else(unknown), &blob)
            }
            _ => Ok(ResultBlock::Text(
                "(The tool also returned a resource of an unknown form.)".to_owned(),
            )),
        },
        ContentBlock::ResourceLink(link) => Ok(ResultBlock::Text(linked_text(&link))),
        _ => Ok(ResultBlock::Text(
            "(The tool also returned content of an unknown form.)".to_owned(),
        )),
    }
}

fn linked_text(link: &Resource) -> String {
    let name = link.title.as_ref().unwrap_or(&link.name);
    match &link.description {
        Some(description) => format!("{name}: {} ({description})", link.uri),
        None => format!("{name}: {}", link.uri),
    }
}
