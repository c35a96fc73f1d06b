//! Tools for the files of DIAL (quickapps 43.1). Paths are relative to the app's own folder and never leave it. An edit
//! fails if the file changed since it was read, and no file is overwritten unless that is requested.

mod lines;
mod path;
mod search;
mod work;

use std::sync::Arc;

use async_trait::async_trait;
use dray_tool::{CallRules, Tool, ToolCall, ToolDeclaration, ToolFailure, ToolOutput, Turn};
use serde_json::{Value, json};

use super::scope::{TurnScope, time_left};
use super::tools::tool_declaration;
use super::turn::TurnFiles;

/// The tools for the files of DIAL.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum DialFileToolKind {
    List,
    ReadLines,
    Search,
    Find,
    Write,
    Edit,
    Delete,
    Copy,
    Move,
}

impl DialFileToolKind {
    const ALL_TOOLS: [Self; 9] = [
        Self::List,
        Self::ReadLines,
        Self::Search,
        Self::Find,
        Self::Write,
        Self::Edit,
        Self::Delete,
        Self::Copy,
        Self::Move,
    ];

    const fn name(self) -> &'static str {
        match self {
            Self::List => "internal_file_list",
            Self::ReadLines => "internal_file_read_lines",
            Self::Search => "internal_file_search",
            Self::Find => "internal_file_find",
            Self::Write => "internal_file_write",
            Self::Edit => "internal_file_edit",
            Self::Delete => "internal_file_delete",
            Self::Copy => "internal_file_copy",
            Self::Move => "internal_file_move",
        }
    }

    const fn label(self) -> &'static str {
        match self {
            Self::List => "List files",
            Self::ReadLines => "Read file",
            Self::Search => "Search in files",
            Self::Find => "Find files",
            Self::Write => "Write file",
            Self::Edit => "Edit file",
            Self::Delete => "Delete file",
            Self::Copy => "Copy file",
            Self::Move => "Move file",
        }
    }

    fn declaration(self) -> ToolDeclaration {
        let file = json!({"type": "string", "description": "Path relative to the files of this app, such as notes/a.txt."});
        let folder = json!({"type": "string", "description": "Folder, relative to the files of this app; all of them by default."});
        let overwrite = json!({"type": "boolean", "description": "Whether an existing file is replaced; false by default."});
        let (description, properties, required): (_, _, &[&str]) = match self {
            Self::List => (
                "Lists a folder of the app's files.",
                json!({ "path": folder }),
                &[],
            ),
            Self::ReadLines => (
                "Reads lines of a text file, with their numbers.",
                json!({
                    "path": file,
                    "start": {"type": "integer", "minimum": 1, "description": "First line; 1 by default."},
                    "start_byte": {"type": "integer", "minimum": 1, "description": "First byte of that line, to read on in a long one; 1 by default."},
                    "count": {"type": "integer", "minimum": 1, "description": "How many lines; 200 by default."},
                }),
                &["path"],
            ),
            Self::Search => (
                "Searches for a text, ignoring case, in the lines of all text files below a folder.",
                json!({"query": {"type": "string", "description": "What to search for."}, "path": folder}),
                &["query"],
            ),
            Self::Find => (
                "Finds files by name: * stands for anything, ? for one character.",
                json!({"pattern": {"type": "string", "description": "Name, such as *.csv."}, "path": folder}),
                &["pattern"],
            ),
            Self::Write => (
                "Writes a text file.",
                json!({"path": file, "content": {"type": "string", "description": "All of its text."}, "overwrite": overwrite}),
                &["path", "content"],
            ),
            Self::Edit => (
                "Replaces a part of a text file. The old text must occur exactly once, unless all occurrences are meant.",
                json!({
                    "path": file,
                    "old_text": {"type": "string", "description": "The text to replace, exactly as it is in the file."},
                    "new_text": {"type": "string", "description": "The text that replaces it."},
                    "replace_all": {"type": "boolean", "description": "Whether every occurrence is replaced; false by default."},
                }),
                &["path", "old_text", "new_text"],
            ),
            Self::Delete => ("Deletes a file.", json!({ "path": file }), &["path"]),
            Self::Copy => (
                "Copies a file.",
                json!({"source": file, "target": file, "overwrite": overwrite}),
                &["source", "target"],
            ),
            Self::Move => (
                "Moves or renames a file.",
                json!({"source": file, "target": file, "overwrite": overwrite}),
                &["source", "target"],
            ),
        };
        tool_declaration(self.name(), description, &properties, required)
    }
}

#[derive(Debug)]
struct DialFileTool {
    kind: DialFileToolKind,
    declaration: ToolDeclaration,
    rules: CallRules,
    files: Arc<TurnFiles>,
}

/// The tools that the manifest switches on; none without DIAL.
pub fn offered_tools(files: &Arc<TurnFiles>) -> Vec<Arc<dyn Tool>> {
    if !files.scope.reads_drive() {
        return Vec::new();
    }
    let enabled = files.scope.features.dial_files.as_ref();
    let enabled = enabled.and_then(|files| files.enabled_tools.as_ref());
    let is_on = |kind: &DialFileToolKind| {
        enabled.is_none_or(|names| {
            // Manifests name these tools with the prefix or without it.
            let short = kind.name().trim_start_matches("internal_file_");
            names
                .iter()
                .any(|name| name == kind.name() || name == short)
        })
    };
    let kinds = DialFileToolKind::ALL_TOOLS.into_iter().filter(is_on);
    kinds
        .map(|kind| {
            Arc::new(DialFileTool {
                kind,
                declaration: kind.declaration(),
                rules: CallRules {
                    label: kind.label().to_owned(),
                    by_reference: ["path", "source", "target"].map(str::to_owned).to_vec(),
                    ..CallRules::default()
                },
                files: Arc::clone(files),
            }) as Arc<dyn Tool>
        })
        .collect()
}

#[async_trait]
impl Tool for DialFileTool {
    fn declaration(&self) -> &ToolDeclaration {
        &self.declaration
    }

    fn rules(&self) -> &CallRules {
        &self.rules
    }

    async fn call(&self, call: ToolCall, _turn: &Turn) -> Result<ToolOutput, ToolFailure> {
        let work = work::DialFileCall::of(&self.files, &call).await?;
        let remaining = time_left(&call);
        let done = async {
            match self.kind {
                DialFileToolKind::List => work.list().await,
                DialFileToolKind::ReadLines => work.read_lines().await,
                DialFileToolKind::Search => work.search().await,
                DialFileToolKind::Find => work.find().await,
                DialFileToolKind::Write => work.write().await,
                DialFileToolKind::Edit => work.edit().await,
                DialFileToolKind::Delete => work.delete().await,
                DialFileToolKind::Copy => work.copy(false).await,
                DialFileToolKind::Move => work.copy(true).await,
            }
        };
        match tokio::time::timeout(remaining, Box::pin(done)).await {
            Ok(result) => result.map(|text| ToolOutput::text(text, "text/plain")),
            Err(_elapsed) => Err(ToolFailure::TimedOut),
        }
    }
}

/// The URL of the app's own file at a relative path; `None` if there is none, or the model has no tools over them.
pub(super) async fn app_file_url(scope: &TurnScope, path: &str) -> Option<String> {
    let drive = scope.services.drive.as_ref();
    let drive = drive.filter(|_| scope.reads_drive())?;
    let relative = path::relative_path(path, false)?;
    let home = drive.home(&scope.caller).await.ok()?;
    let url = format!("{home}{relative}");
    let item = drive.metadata(&scope.caller, &url).await.ok()?;
    (!item.is_folder()).then_some(url)
}

/// A number of the arguments; models write it as text as well.
fn number_argument(call: &ToolCall, name: &str, default: usize) -> Result<usize, ToolFailure> {
    let wrong = || ToolFailure::parameter(name, "It must be a whole number of at least 1.");
    let number = match call.arguments.get(name) {
        None | Some(Value::Null) => return Ok(default),
        Some(Value::Number(number)) => number.as_u64(),
        Some(Value::String(text)) => text.trim().parse().ok(),
        Some(_) => None,
    };
    let number = number.and_then(|number| usize::try_from(number).ok());
    number.filter(|number| *number > 0).ok_or_else(wrong)
}
