//! The tools that every agent has for files. Their results are the sentences of the services behind them.

mod fetch_url;
mod get;
mod list;
mod put;
mod read;
mod send_file;

use std::sync::Arc;

use async_trait::async_trait;
use dray_agent::manifest::call::AttachmentRules;
use dray_tool::{Call, Declaration, Failure, Output, Rules, Style, Tool, Turn};
use serde_json::{Value, json};

use super::turn::TurnFiles;

/// What can be called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    SendFile,
    ReadAttachment,
    ReadFiles,
    FetchUserFile,
    FetchUrl,
    List,
    Put,
    Get,
}

/// One of them, for one turn.
#[derive(Debug)]
struct FileTool {
    kind: Kind,
    declaration: Declaration,
    rules: Rules,
    files: Arc<TurnFiles>,
}

/// The tools that make sense in this turn: those of sandboxes where there is one, those that read where there is
/// something to read, and the web where manifest or operator say so.
pub async fn offered(files: &Arc<TurnFiles>) -> Vec<Arc<dyn Tool>> {
    let sandbox = files.has_sandbox().await;
    let has_files = files.has_files();
    let config = &files.services.config;
    let web = files.features.web_fetch.as_ref();
    let mut kinds = Vec::new();
    if sandbox || has_files {
        kinds.push(Kind::SendFile);
    }
    if sandbox || has_files || config.always_read || files.offload_threshold().is_some() {
        kinds.push(Kind::ReadAttachment);
    }
    if has_files || config.always_read {
        kinds.push(Kind::ReadFiles);
    }
    if sandbox && has_files {
        kinds.push(Kind::FetchUserFile);
    }
    if config.always_fetch || web.is_some_and(|web| web.enabled) {
        kinds.push(Kind::FetchUrl);
    }
    if sandbox {
        kinds.extend([Kind::List, Kind::Put, Kind::Get]);
    }
    kinds
        .into_iter()
        .map(|kind| FileTool::new(kind, Arc::clone(files)) as Arc<dyn Tool>)
        .collect()
}

impl FileTool {
    fn new(kind: Kind, files: Arc<TurnFiles>) -> Arc<Self> {
        let (declaration, label) = match kind {
            Kind::SendFile => (send_file::declaration(), "Send file"),
            Kind::ReadAttachment => (read::attachment_declaration(), "Read document"),
            Kind::ReadFiles => (read::files_declaration(), "Read files"),
            Kind::FetchUserFile => (read::fetch_declaration(), "Copy file to the sandbox"),
            Kind::FetchUrl => (fetch_url::declaration(), "Fetch from the web"),
            Kind::List => (list::declaration(), "List files"),
            Kind::Put => (put::declaration(), "Write file"),
            Kind::Get => (get::declaration(), "Get file"),
        };
        // What is sent is for the person, for all types; what is fetched or got is for the model.
        let propagated = match kind {
            Kind::SendFile => vec!["*/*".to_owned()],
            _ => Vec::new(),
        };
        let by_reference = match kind {
            Kind::SendFile => &["path", "paths", "files"][..],
            Kind::ReadAttachment => &["file_path"],
            Kind::FetchUrl => &["url", "save_path"],
            Kind::Put => &["file", "path"],
            Kind::List | Kind::Get => &["path"],
            Kind::ReadFiles | Kind::FetchUserFile => &[],
        };
        Arc::new(Self {
            kind,
            declaration,
            rules: Rules {
                label: label.to_owned(),
                style: Style::Api,
                attachments: AttachmentRules {
                    propagate_types_to_choice: Some(propagated),
                    ..AttachmentRules::default()
                },
                by_reference: by_reference.iter().map(|name| (*name).to_owned()).collect(),
                ..Rules::default()
            },
            files,
        })
    }
}

#[async_trait]
impl Tool for FileTool {
    fn declaration(&self) -> &Declaration {
        &self.declaration
    }

    fn rules(&self) -> &Rules {
        &self.rules
    }

    async fn call(&self, call: Call, _turn: &Turn) -> Result<Output, Failure> {
        let files = &self.files;
        match self.kind {
            Kind::SendFile => Box::pin(send_file::call(files, &call)).await,
            Kind::ReadAttachment => Box::pin(read::attachment(files, &call)).await,
            Kind::ReadFiles => read::files(files, &call).await,
            Kind::FetchUserFile => read::fetch_user_file(files, &call).await,
            Kind::FetchUrl => Box::pin(fetch_url::call(files, &call)).await,
            Kind::List => list::call(files, &call).await,
            Kind::Put => Box::pin(put::call(files, &call)).await,
            Kind::Get => Box::pin(get::call(files, &call)).await,
        }
    }
}

/// A declaration; `properties` is the schema of its arguments.
pub(super) fn declared(
    name: &str,
    description: &str,
    properties: &Value,
    required: &[&str],
) -> Declaration {
    Declaration {
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

/// An argument that must be there.
pub(super) fn required<'a>(call: &'a Call, name: &str) -> Result<&'a str, Failure> {
    super::turn::text(&call.arguments, name)
        .ok_or_else(|| Failure::parameter(name, "It must be a text that is not empty."))
}

/// Texts of a list, or the one text that stands in its place.
fn texts(call: &Call, name: &str) -> Result<Vec<String>, Failure> {
    let wrong = || Failure::parameter(name, "It must be a list of texts.");
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
pub(super) fn is_on(call: &Call, name: &str) -> bool {
    match call.arguments.get(name) {
        Some(Value::Bool(on)) => *on,
        Some(Value::String(text)) => text.eq_ignore_ascii_case("true"),
        _ => false,
    }
}
