//! The result of a call (quickapps 27.3): texts for the model, and files stored where the client can fetch them.
//! Content that is not supported, and a file that cannot be read or stored, is replaced by a sentence for the model: the
//! tool has run, so the call is not reported as failed.

use bytes::Bytes;
use dray_agent::manifest::call::AttachmentRules;
use dray_agent::message::Attachment;
use dray_dial::decode_base64;
use dray_tool::{FileStorage, HandledFailure, ToolFailure, ToolOutput, matching};
use dray_types::terminal::printable_text;
use rmcp::model::{CallToolResult, ContentBlock, Resource, ResourceContents};

use crate::server::ServerTarget;

/// Most resources that are read for one result; further links remain texts.
const MAX_LINKED_RESOURCES: usize = 16;

/// Most files of one result, those behind links included.
const MAX_RESULT_FILES: usize = 64;

/// Files that cannot be stored, after which no more are tried: each may take the store's whole timeout.
const MAX_STORE_FAILURES: usize = 3;

/// Names for files of one call.
#[derive(Debug)]
pub(crate) struct FileNames {
    pub(crate) tool: String,
    pub(crate) now_ms: u64,
    /// Number of files that have a name already.
    pub(crate) count: usize,
}

impl FileNames {
    /// `{tool}-{timestamp}{ext}`, from the second file on with a number.
    fn next(&mut self, media_type: &str) -> String {
        self.count += 1;
        let ext = dray_media_type::usual_extension(media_type).unwrap_or("bin");
        let (tool, now) = (&self.tool, self.now_ms);
        match self.count {
            1 => format!("{tool}-{now}.{ext}"),
            count => format!("{tool}-{now}-{count}.{ext}"),
        }
    }
}

/// The files of one result, with the names that they get.
struct ResultFiles<'a> {
    names: FileNames,
    storage: &'a dyn FileStorage,
    attachments: Vec<Attachment>,
    /// Number of files above the limit, which are not stored.
    omitted: usize,
    /// Number of files that could not be stored.
    lost: usize,
}

impl ResultFiles<'_> {
    const fn has_room(&self) -> bool {
        self.attachments.len() < MAX_RESULT_FILES
    }

    /// Stores a file of a supported type. Only stored files get a name, so that the numbers have no gaps.
    async fn add(&mut self, media_type: &str, bytes: Bytes) {
        if !self.has_room() {
            self.omitted += 1;
            return;
        }
        if self.lost >= MAX_STORE_FAILURES {
            self.lost += 1;
            return;
        }
        let (name, size) = (self.names.next(media_type), bytes.len());
        match self.storage.keep(&name, media_type, bytes).await {
            Ok(mut attachment) => {
                attachment.kind.get_or_insert_with(|| media_type.to_owned());
                self.attachments.push(attachment);
            }
            Err(failure) => {
                tracing::warn!(%failure, media_type, size, "a file of an MCP server cannot be stored");
                self.names.count -= 1;
                self.lost += 1;
            }
        }
    }

    /// Sentences for the model about the files that are not stored.
    fn notices(&self) -> impl Iterator<Item = String> {
        let (omitted, lost) = (self.omitted, self.lost);
        let omitted = (omitted > 0).then(|| {
            format!(
                "(The tool also returned {omitted} further files. A result has at most {MAX_RESULT_FILES}.)"
            )
        });
        let lost = (lost > 0).then(|| {
            format!(
                "(The tool also returned files, of which {lost} could not be stored. The tool has run: do not call it again \
                 only for them.)"
            )
        });
        omitted.into_iter().chain(lost)
    }
}

/// The result of a call, or a failure if the tool reports one.
pub(crate) async fn result_output(
    result: CallToolResult,
    names: FileNames,
    rules: &AttachmentRules,
    storage: &dyn FileStorage,
    server: &ServerTarget,
) -> Result<ToolOutput, ToolFailure> {
    let mut texts = Vec::new();
    let tool = names.tool.clone();
    let mut files = ResultFiles {
        names,
        storage,
        attachments: Vec::new(),
        omitted: 0,
        lost: 0,
    };
    let is_error = result.is_error == Some(true);
    // Servers repeat structured content as text for older clients (MCP 2025-06-18). Links and files do not repeat it.
    let has_text = result.content.iter().any(is_text);
    let mut links_left = if is_error { 0 } else { MAX_LINKED_RESOURCES };
    for block in result.content {
        match read_block(block) {
            ResultBlock::Text(text) => texts.push(text),
            ResultBlock::File(media_type, bytes) => {
                if is_error {
                    // A failure has no files.
                } else if is_supported(rules, &media_type) {
                    files.add(&media_type, bytes).await;
                } else {
                    texts.push(format!(
                        "(The tool also returned {media_type} content, which this agent does not take.)"
                    ));
                }
            }
            ResultBlock::Link(link) => {
                texts.push(linked_text(&link));
                let is_read =
                    links_left > 0 && files.has_room() && is_readable(&link, rules, server);
                links_left -= usize::from(is_read);
                for (media_type, bytes) in linked_files(&link, is_read, server).await {
                    if is_supported(rules, &media_type) {
                        files.add(&media_type, bytes).await;
                    }
                }
            }
        }
    }
    let structured = result.structured_content.filter(|_| !has_text);
    let is_structured = structured.is_some();
    if let Some(structured) = structured {
        texts.retain(|text| !text.is_empty());
        texts.insert(0, structured.to_string());
    }
    texts.extend(files.notices());
    let kind = if is_structured && texts.len() == 1 {
        "application/json"
    } else {
        "text/plain"
    };
    let content = texts.join("\n\n");
    if is_error {
        return Err(failed_call(content, &tool));
    }
    Ok(ToolOutput {
        attachments: files.attachments,
        ..ToolOutput::text(content, kind)
    })
}

/// The failure that a tool reports with this text.
fn failed_call(content: String, tool: &str) -> ToolFailure {
    let text = if content.is_empty() {
        format!("Error calling MCP tool '{tool}': it failed without a message")
    } else {
        content
    };
    let shown = format!("> ##### Error:\n{text}\n");
    HandledFailure::new(text).shown(shown).into()
}

fn is_text(block: &ContentBlock) -> bool {
    matches!(block, ContentBlock::Text(text) if !text.text.is_empty())
}

fn is_supported(rules: &AttachmentRules, media_type: &str) -> bool {
    let supported = rules.supported();
    supported
        .iter()
        .any(|pattern| matching::matches_pattern(Some(media_type), pattern))
}

/// Whether a linked resource can become a file: it belongs to the server, and has an accepted type and size.
fn is_readable(link: &Resource, rules: &AttachmentRules, server: &ServerTarget) -> bool {
    // The user can open an address of the web; the server need not read it (MCP, resources).
    let is_web =
        url::Url::parse(&link.uri).is_ok_and(|url| matches!(url.scheme(), "http" | "https"));
    let type_fits = link.mime_type.as_deref();
    let type_fits = type_fits.is_none_or(|media_type| is_supported(rules, media_type));
    // Base64 encodes three bytes as four. A response that is too long would end the session with a program.
    let limit = u64::try_from(server.settings.limit / 4 * 3).unwrap_or(u64::MAX);
    let size_fits = link.size.is_none_or(|bytes| bytes < limit);
    !is_web && type_fits && size_fits
}

/// The contents of a linked resource with their types; none when it cannot be read, since the call itself succeeded.
async fn linked_files(
    link: &Resource,
    is_read: bool,
    server: &ServerTarget,
) -> Vec<(String, Bytes)> {
    if !is_read {
        return Vec::new();
    }
    let contents = match Box::pin(server.read(&link.uri, None)).await {
        Ok(contents) => contents,
        Err(error) => {
            tracing::debug!(%error, "a resource of an MCP server could not be read");
            return Vec::new();
        }
    };
    let blocks = contents.into_iter().map(read_resource);
    let files = blocks.filter_map(|block| match block {
        ResultBlock::File(media_type, bytes) => Some((media_type, bytes)),
        ResultBlock::Text(_) | ResultBlock::Link(_) => None,
    });
    files.collect()
}

enum ResultBlock {
    Text(String),
    File(String, Bytes),
    Link(Box<Resource>),
}

fn read_block(block: ContentBlock) -> ResultBlock {
    match block {
        ContentBlock::Text(text) => ResultBlock::Text(text.text),
        ContentBlock::Image(image) => decode_file(image.mime_type, &image.data),
        ContentBlock::Audio(audio) => decode_file(audio.mime_type, &audio.data),
        ContentBlock::Resource(embedded) => read_resource(embedded.resource),
        ContentBlock::ResourceLink(link) => ResultBlock::Link(Box::new(link)),
        _ => ResultBlock::Text("(The tool also returned content of an unknown form.)".to_owned()),
    }
}

fn read_resource(contents: ResourceContents) -> ResultBlock {
    match contents {
        ResourceContents::TextResourceContents {
            mime_type, text, ..
        } => {
            // The server decides whether a resource has a type (MCP).
            let media_type = mime_type.unwrap_or_else(|| "text/plain".to_owned());
            ResultBlock::File(media_type, text.into())
        }
        ResourceContents::BlobResourceContents {
            mime_type, blob, ..
        } => {
            let unknown = || "application/octet-stream".to_owned();
            decode_file(mime_type.unwrap_or_else(unknown), &blob)
        }
        _ => {
            ResultBlock::Text("(The tool also returned a resource of an unknown form.)".to_owned())
        }
    }
}

fn decode_file(media_type: String, data: &str) -> ResultBlock {
    match decode_base64(data) {
        Some(bytes) => ResultBlock::File(media_type, bytes.into()),
        None => ResultBlock::Text(format!(
            "(The tool also returned a file of type {media_type} whose content is not base64.)"
        )),
    }
}

/// A link for the model, in contrast to the backend, which drops links (quickapps 27.3).
fn linked_text(link: &Resource) -> String {
    let name = link.title.as_ref().unwrap_or(&link.name);
    let text = match &link.description {
        Some(description) => format!("{name}: {} ({description})", link.uri),
        None => format!("{name}: {}", link.uri),
    };
    printable_text(&text).into_owned()
}
