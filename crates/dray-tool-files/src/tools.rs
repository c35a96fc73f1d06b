//! The tools that every agent has for files. Their results are the texts of the services that they call.

mod fetch_url;
mod get;
mod list;
mod put;
mod read;
mod send_file;
mod tickets;

use std::sync::{Arc, LazyLock};

use async_trait::async_trait;
use dray_agent::manifest::call::AttachmentRules;
use dray_tool::{
    CallRules, StageStyle, Tool, ToolCall, ToolDeclaration, ToolFailure, ToolOutput, Turn,
};
use serde_json::{Value, json};

use super::turn::TurnFiles;
pub(super) use send_file::SEND_FILE_TOOL;

/// The tools of this module.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FileToolKind {
    SendFile,
    ReadAttachment,
    ReadFiles,
    FetchUserFile,
    FetchUrl,
    List,
    Put,
    Get,
    RequestUpload,
    DownloadLink,
}

/// All tools, in the order in which a model gets them.
const FILE_TOOL_KINDS: [FileToolKind; 10] = [
    FileToolKind::SendFile,
    FileToolKind::ReadAttachment,
    FileToolKind::ReadFiles,
    FileToolKind::FetchUserFile,
    FileToolKind::FetchUrl,
    FileToolKind::List,
    FileToolKind::Put,
    FileToolKind::Get,
    FileToolKind::RequestUpload,
    FileToolKind::DownloadLink,
];

/// The part of a tool that is the same in all turns. Building the schemas in each turn would cost more than most other
/// steps at its start.
#[derive(Debug)]
struct FileToolSpec {
    kind: FileToolKind,
    declaration: ToolDeclaration,
    rules: CallRules,
}

/// One tool in one turn.
#[derive(Debug)]
struct FileTool {
    spec: &'static FileToolSpec,
    files: Arc<TurnFiles>,
}

/// Constant data of all tools, in the order of [`FILE_TOOL_KINDS`].
static FILE_TOOL_SPECS: LazyLock<[FileToolSpec; FILE_TOOL_KINDS.len()]> =
    LazyLock::new(|| FILE_TOOL_KINDS.map(FileToolSpec::new));

/// The tools for this turn: sandbox tools if there is a sandbox, reading tools if there are files to read, and the web
/// tool if the manifest or the operator enables it. `needs_reader` is whether the model may have to read files that are
/// not of the conversation: those that the manifest names, and results and old messages that the turn stores.
pub async fn offered_tools(files: &Arc<TurnFiles>, needs_reader: bool) -> Vec<Arc<dyn Tool>> {
    let sandbox = files.session.has_sandbox().await;
    let has_files = files.catalog.has_files();
    let config = &files.scope.services.config;
    let web = files.scope.features.web_fetch.as_ref();
    let mut kinds = Vec::new();
    if sandbox || has_files {
        kinds.push(FileToolKind::SendFile);
    }
    if sandbox || has_files || config.always_read || needs_reader {
        kinds.push(FileToolKind::ReadAttachment);
    }
    if has_files || config.always_read {
        kinds.push(FileToolKind::ReadFiles);
    }
    if sandbox && has_files {
        kinds.push(FileToolKind::FetchUserFile);
    }
    if config.always_fetch || web.is_some_and(|web| web.enabled) {
        kinds.push(FileToolKind::FetchUrl);
    }
    if sandbox {
        kinds.extend([FileToolKind::List, FileToolKind::Put, FileToolKind::Get]);
    }
    if sandbox && config.tickets {
        kinds.extend([FileToolKind::RequestUpload, FileToolKind::DownloadLink]);
    }
    let specs = FILE_TOOL_SPECS
        .iter()
        .filter(|spec| kinds.contains(&spec.kind));
    specs
        .map(|spec| {
            Arc::new(FileTool {
                spec,
                files: Arc::clone(files),
            }) as Arc<dyn Tool>
        })
        .collect()
}

impl FileToolSpec {
    fn new(kind: FileToolKind) -> Self {
        let (declaration, label) = match kind {
            FileToolKind::SendFile => (send_file::send_file_declaration(), "Send file"),
            FileToolKind::ReadAttachment => (read::attachment_declaration(), "Read document"),
            FileToolKind::ReadFiles => (read::files_declaration(), "Read files"),
            FileToolKind::FetchUserFile => (read::fetch_declaration(), "Copy file to the sandbox"),
            FileToolKind::FetchUrl => (fetch_url::fetch_url_declaration(), "Fetch from the web"),
            FileToolKind::List => (list::list_declaration(), "List files"),
            FileToolKind::Put => (put::put_declaration(), "Write file"),
            FileToolKind::Get => (get::get_declaration(), "Get file"),
            FileToolKind::RequestUpload => (tickets::upload_declaration(), "Request upload"),
            FileToolKind::DownloadLink => (tickets::download_declaration(), "Make download link"),
        };
        // The user gets sent files of all types; fetched files and files from the sandbox are for the model.
        let propagated = match kind {
            FileToolKind::SendFile => vec!["*/*".to_owned()],
            _ => Vec::new(),
        };
        let by_reference = match kind {
            FileToolKind::SendFile => &["path", "paths", "files"][..],
            FileToolKind::ReadAttachment => &["file_path"],
            FileToolKind::FetchUrl => &["url", "save_path"],
            FileToolKind::Put => &["file", "path"],
            FileToolKind::List | FileToolKind::Get | FileToolKind::DownloadLink => &["path"],
            FileToolKind::RequestUpload => &["directory"],
            FileToolKind::ReadFiles | FileToolKind::FetchUserFile => &[],
        };
        Self {
            kind,
            declaration,
            rules: CallRules {
                label: label.to_owned(),
                style: StageStyle::Api,
                attachments: AttachmentRules {
                    propagate_types_to_choice: Some(propagated),
                    ..AttachmentRules::default()
                },
                by_reference: by_reference.iter().map(|name| (*name).to_owned()).collect(),
                ..CallRules::default()
            },
        }
    }
}

#[async_trait]
impl Tool for FileTool {
    fn declaration(&self) -> &ToolDeclaration {
        &self.spec.declaration
    }

    fn rules(&self) -> &CallRules {
        &self.spec.rules
    }

    async fn call(&self, call: ToolCall, _turn: &Turn) -> Result<ToolOutput, ToolFailure> {
        let files = &self.files;
        match self.spec.kind {
            FileToolKind::SendFile => Box::pin(send_file::send_files(files, &call)).await,
            FileToolKind::ReadAttachment => Box::pin(read::read_attachment(files, &call)).await,
            FileToolKind::ReadFiles => read::read_files(files, &call).await,
            FileToolKind::FetchUserFile => read::fetch_user_file(files, &call).await,
            FileToolKind::FetchUrl => Box::pin(fetch_url::fetch_url(files, &call)).await,
            FileToolKind::List => list::list_files(files, &call).await,
            FileToolKind::Put => Box::pin(put::put_file(files, &call)).await,
            FileToolKind::Get => Box::pin(get::get_file(files, &call)).await,
            FileToolKind::RequestUpload => tickets::request_upload(files, &call).await,
            FileToolKind::DownloadLink => tickets::make_download_link(files, &call).await,
        }
    }
}

/// A declaration; `properties` is the schema of its arguments.
pub(super) fn tool_declaration(
    name: &str,
    description: &str,
    properties: &Value,
    required: &[&str],
) -> ToolDeclaration {
    ToolDeclaration {
        name: name.to_owned(),
        description: Some(description.to_owned()),
        parameters: json!({
            "type": "object",
            "properties": properties,
            "required": required,
            "additionalProperties": false,
        }),
    }
}

/// Returns an argument, or the sentence for the model that it is missing.
pub(super) fn required_argument<'a>(
    call: &'a ToolCall,
    name: &str,
) -> Result<&'a str, ToolFailure> {
    super::turn::text_argument(&call.arguments, name)
        .ok_or_else(|| ToolFailure::parameter(name, "It must be a text that is not empty."))
}

/// The texts of a list argument. A single text counts as a list of one.
fn text_list(call: &ToolCall, name: &str) -> Result<Vec<String>, ToolFailure> {
    let wrong = || ToolFailure::parameter(name, "It must be a list of texts.");
    match call.arguments.get(name) {
        None | Some(Value::Null) => Ok(Vec::new()),
        Some(Value::String(one)) if one.trim().is_empty() => Ok(Vec::new()),
        Some(Value::String(one)) => Ok(vec![one.clone()]),
        Some(Value::Array(items)) => items
            .iter()
            .map(|item| item.as_str().map(str::to_owned).ok_or_else(wrong))
            .collect(),
        Some(_) => Err(wrong()),
    }
}

/// A switch; models write it as text as well.
pub(super) fn is_on(call: &ToolCall, name: &str) -> bool {
    match call.arguments.get(name) {
        Some(Value::Bool(on)) => *on,
        Some(Value::String(text)) => text.eq_ignore_ascii_case("true"),
        _ => false,
    }
}
