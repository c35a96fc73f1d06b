//! The tool that gives the model the content of a file (quickapps 16).

use async_trait::async_trait;
use dray_agent::lazy;
use dray_agent::manifest::Context;
use dray_agent::manifest::call::AttachmentRules;
use dray_agent::message::{Attachment, Message, Role};
use dray_tool::{
    CallRules, FileIds, Tool, ToolCall, ToolDeclaration, ToolFailure, ToolOutput, Turn, UrlClass,
};
use percent_encoding::percent_decode_str;
use serde_json::{Value, json};

/// Argument: the address of the file.
const URL_ARGUMENT: &str = "attachment_url";

/// Another name that models use for it.
const URL_ARGUMENT_ALIAS: &str = "context_url";

/// Whether there is a file that the model could take.
pub(super) fn is_useful(contexts: &[Context], messages: &[Message], types: &[String]) -> bool {
    let of_contexts = contexts.iter().any(|context| match context {
        Context::File { url, .. } => lazy::accepts_type(types, dray_media_type::type_of_name(url)),
        Context::UserDefined { .. } | Context::Folder { .. } => false,
    });
    of_contexts
        || user_attachments(messages).any(|file| lazy::accepts_type(types, file.kind.as_deref()))
}

/// Files of the user's messages.
fn user_attachments(messages: &[Message]) -> impl Iterator<Item = &Attachment> {
    messages
        .iter()
        .filter(|message| message.role == Role::User)
        .filter_map(|message| message.custom_content.as_ref()?.attachments.as_ref())
        .flatten()
}

/// Files for the model, by address.
#[derive(Debug)]
pub(super) struct GetContent {
    declaration: ToolDeclaration,
    rules: CallRules,
    contexts: Vec<Context>,
    types: Vec<String>,
}

impl GetContent {
    pub(super) fn new(contexts: &[Context], types: &[String]) -> Self {
        Self {
            declaration: super::tool_declaration(
                lazy::CONTENT_TOOL,
                "Gives you a file to look at: one that the user attached, one of the available context, or one of \
                 the web.",
                json!({
                    "type": "object",
                    "properties": {URL_ARGUMENT: {
                        "type": "string",
                        "description": "Address of the file, as file:url::ADDRESS.",
                    }},
                    "required": [URL_ARGUMENT],
                }),
            ),
            rules: CallRules {
                // The user has the file already, or did not request it.
                attachments: AttachmentRules {
                    propagate_types_to_choice: Some(Vec::new()),
                    ..AttachmentRules::default()
                },
                by_reference: vec![URL_ARGUMENT.to_owned(), URL_ARGUMENT_ALIAS.to_owned()],
                file_ids: FileIds::Addresses,
                ..super::call_rules("Get file content", false)
            },
            contexts: contexts.to_vec(),
            types: types.to_vec(),
        }
    }

    /// The file as a lasting attachment; `None` for an address that does not name a file.
    async fn file(&self, url: &str, turn: &Turn) -> Result<Option<Attachment>, ToolFailure> {
        let found = match turn.storage.classify(url) {
            UrlClass::Unsupported | UrlClass::Data => return Ok(None),
            UrlClass::Dial if url.starts_with("files/") => {
                if !is_path(url) {
                    return Ok(None);
                }
                // The conversation gives the type without a call of DIAL.
                match self.known_file(url, turn) {
                    Some(known) => known,
                    None => turn.storage.durable(URL_ARGUMENT, url).await?,
                }
            }
            UrlClass::Dial | UrlClass::External => turn.storage.durable(URL_ARGUMENT, url).await?,
        };
        // The filter before each call of the model keeps only addresses with `files/` inline (quickapps 16).
        let is_kept = found
            .url
            .as_deref()
            .is_some_and(|url| url.starts_with("files/"));
        Ok(Some(found).filter(|_| is_kept))
    }

    /// The attachment or context entry of a file, if one gives its type.
    fn known_file(&self, url: &str, turn: &Turn) -> Option<Attachment> {
        let mut attached = user_attachments(&turn.history);
        let has_same_url = |attachment: &&Attachment| {
            attachment
                .url
                .as_deref()
                .is_some_and(|other| strip_leading_slash(other) == url)
        };
        let file = |title: Option<String>, kind: &str| Attachment {
            kind: Some(kind.to_owned()),
            title: title.or_else(|| url.rsplit('/').next().map(str::to_owned)),
            url: Some(url.to_owned()),
            ..Attachment::default()
        };
        let by_user = attached.find(has_same_url);
        if let Some(found) = by_user
            && let Some(kind) = found.kind.as_deref().filter(|kind| !kind.is_empty())
        {
            return Some(file(found.title.clone(), kind));
        }
        let is_context = self.contexts.iter().any(|context| match context {
            Context::File { url: other, .. } => strip_leading_slash(other) == url,
            Context::UserDefined { .. } | Context::Folder { .. } => false,
        });
        let kind = dray_media_type::type_of_name(url).filter(|_| is_context)?;
        Some(file(None, kind))
    }

    fn refusal_output(&self, error: &str) -> ToolOutput {
        ToolOutput::text(
            lazy::refused_file_text(error, &self.types),
            "application/json",
        )
    }
}

#[async_trait]
impl Tool for GetContent {
    fn declaration(&self) -> &ToolDeclaration {
        &self.declaration
    }

    fn rules(&self) -> &CallRules {
        &self.rules
    }

    async fn call(&self, call: ToolCall, turn: &Turn) -> Result<ToolOutput, ToolFailure> {
        let text = |name| {
            call.arguments
                .get(name)
                .and_then(Value::as_str)
                .map(str::trim)
        };
        let given_text = |name| text(name).filter(|text| !text.is_empty());
        let Some(url) = given_text(URL_ARGUMENT).or_else(|| given_text(URL_ARGUMENT_ALIAS)) else {
            return Ok(self.refusal_output(lazy::MISSING_URL_MESSAGE));
        };
        let Some(file) = self.file(strip_leading_slash(url), turn).await? else {
            return Ok(self.refusal_output(lazy::INVALID_PATH_MESSAGE));
        };
        if !lazy::accepts_type(&self.types, file.kind.as_deref()) {
            return Ok(self.refusal_output(lazy::UNACCEPTED_TYPE_MESSAGE));
        }
        Ok(ToolOutput {
            attachments: vec![file.clone()],
            ..ToolOutput::text(lazy::given_file_text(&file), "application/json")
        })
    }
}

/// The address without the one slash that may precede it.
fn strip_leading_slash(url: &str) -> &str {
    url.strip_prefix('/').unwrap_or(url)
}

/// Whether `files/…` is the path of a file: a bucket and a name, without segments that leave the directory.
fn is_path(url: &str) -> bool {
    let parts: Vec<_> = url
        .split('/')
        // The part is decoded first: `%2e%2e` leads to the parent as well (path traversal).
        .map(|part| percent_decode_str(part).collect::<Vec<u8>>())
        .collect();
    let leaves_directory =
        |part: &[u8]| part.is_empty() || part == b"." || part == b".." || part.contains(&0);
    parts.len() > 2 && !parts.iter().any(|part| leaves_directory(part))
}
