//! The files of a conversation for the model (docs/file-context.md): each has one id for the whole conversation.

use std::sync::Arc;

use dray_agent::message::{Attachment, Message, Role};
use dray_proto::v1;
use dray_tool::{ToolFailure, UrlClass};
use dray_types::ByteSize;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::ask::{CallFailure, PeerService};
use super::catalog::{ConversationCatalog, FileCatalog};
use super::loader::FileLoader;
use super::name_key::{NAME_PREFIX, key_of, key_of_artifact};
use super::scope::TurnScope;
use super::storage::STORED_NAME_FIELD;
use super::stored_names::StoredNames;

/// Largest context that is accepted.
pub(super) const MAX_CONTEXT_BYTES: ByteSize = ByteSize::mib(16);
/// Number of messages in the context: all of them.
const ALL_MESSAGES: u64 = 1 << 20;
/// How the model reads files beyond the limit of one message.
const TOO_MANY_FILES_ADVICE: &str =
    "call read_attachment with the url that the list of attachments gives for them.";

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct BuiltContext {
    #[serde(default)]
    rewritten_histories: Vec<Value>,
    current_user_message: Value,
    catalog: Value,
}

/// Assigns ids to the files of a conversation, through the service that reads files.
#[derive(Debug)]
pub struct ContextBuilder {
    pub(super) scope: Arc<TurnScope>,
    pub(super) names: Arc<StoredNames>,
    pub(super) loader: Arc<FileLoader>,
    pub(super) catalog: Arc<ConversationCatalog>,
}

impl ContextBuilder {
    /// Assigns ids to the files of a conversation, and stores the reminders for its messages if they are enabled.
    /// Without files no request is sent. If the context cannot be built, files have no ids.
    pub async fn prepare(&self, messages: &[Message]) {
        // Files of results are not files of the conversation: no id is given to them.
        let mut of_conversation = messages.iter().filter(|message| message.role != Role::Tool);
        if !of_conversation.any(|message| !message_attachments(message).is_empty()) {
            return;
        }
        match self.build(messages).await {
            Ok(built) => {
                self.catalog.set(FileCatalog::read(&built.catalog));
                if self.scope.services.config.reminder {
                    self.catalog.set_reminders(file_reminders(messages, &built));
                }
            }
            Err(failure) => tracing::warn!(
                error = &failure as &dyn std::error::Error,
                "could not assign ids to the files of a conversation"
            ),
        }
    }

    async fn build(&self, messages: &[Message]) -> Result<BuiltContext, ToolFailure> {
        let mut items = Vec::new();
        let mut turn = 0;
        for message in messages {
            let (author, id) = match message.role {
                Role::User => {
                    turn += 1;
                    ("Human", format!("q{turn}"))
                }
                Role::Assistant if message.calls().is_empty() => ("AI", format!("a{turn}")),
                _ => continue,
            };
            // The texts of messages are left out, so that each result is only the reminder.
            let mut value = Vec::new();
            for attachment in message_attachments(message) {
                value.push(json!({ "file": self.part(attachment).await }));
            }
            items.push(json!({"obj": author, "dataId": id, "value": value}));
        }
        let current = items
            .iter()
            .rposition(|item| item.get("obj") == Some(&json!("Human")));
        let current = current
            .map(|at| items.split_off(at))
            .and_then(|tail| tail.into_iter().next());
        let config = &self.scope.services.config;
        let conversation = json!({
            "histories": items,
            "history": ALL_MESSAGES,
            "userMessage": current,
            "responseChatItemId": format!("a{turn}"),
            "language": config.reminder_language,
            // The message's list of attachments already contains each file, and a link would differ each time.
            "hideUrls": true,
            // Most models get media only as entries in the list of attachments.
            "keepMedia": false,
            "maxFiles": config.message_files,
            "reach": TOO_MANY_FILES_ADVICE,
        });
        let services = &self.scope.services;
        let request = v1::BuildContextRequest {
            request: Some(
                services
                    .content(conversation.to_string().into(), "application/json")
                    .await?,
            ),
            scope: Vec::new(),
            allowed_hosts: Vec::new(),
            link_seconds: 0,
        };
        let time = services.config.call_timeout.as_duration();
        let reply = services
            .ask(PeerService::Documents, &self.scope.meta(time), &request)
            .await?;
        let built = services
            .read(PeerService::Documents, reply.built, MAX_CONTEXT_BYTES, time)
            .await?;
        serde_json::from_slice(&built)
            .map_err(|_| CallFailure::Malformed(PeerService::Documents).into())
    }

    /// The description of a file for the context. A file that cannot be opened keeps its name in the list, so that the
    /// model gets the name.
    async fn part(&self, attachment: &Attachment) -> Value {
        let kind = attachment.kind.as_deref().unwrap_or_default();
        let (key, url) = self.locate(attachment).await;
        let url = Some(url).filter(|url| !url.starts_with(NAME_PREFIX));
        let last = url
            .as_deref()
            .unwrap_or_default()
            .split(['?', '#'])
            .next()
            .and_then(|path| path.rsplit('/').next());
        let name = attachment.title.clone().or_else(|| last.map(str::to_owned));
        let mut part = Map::new();
        let media = ["image", "audio", "video"];
        let file_type = media
            .into_iter()
            .find(|media| kind.split('/').next() == Some(media));
        part.insert("type".to_owned(), json!(file_type.unwrap_or("file")));
        part.insert("name".to_owned(), json!(name.unwrap_or_default()));
        // A stored file is identified only by its key: the reader signs a link if one is needed.
        if let Some(url) = url {
            part.insert("url".to_owned(), json!(url));
        }
        if let Some(key) = key {
            part.insert("key".to_owned(), json!(key));
        }
        Value::Object(part)
    }

    /// The key and the URL of an attachment. A name of a stored file counts only if it belongs to this conversation.
    async fn locate(&self, attachment: &Attachment) -> (Option<String>, String) {
        let url = attachment.url.clone().unwrap_or_default();
        let named = attachment
            .rest
            .get(STORED_NAME_FIELD)
            .and_then(Value::as_str);
        if let Some((sha256, size)) = named.and_then(|name| self.names.checked_name(name)) {
            return (Some(key_of(&sha256, size)), url);
        }
        match self.scope.services.classify(&url) {
            UrlClass::Dial => match self.scope.services.dial_path(&url) {
                Some(path) => {
                    let url = format!("/v1/{path}");
                    (Some(path), url)
                }
                None => (None, url),
            },
            UrlClass::External => (None, url),
            class @ (UrlClass::Data | UrlClass::Unsupported) => {
                let link = match self.loader.attached_claim(attachment).await {
                    Ok((claim, _)) => {
                        let link = self.scope.services.link(&claim).await;
                        link.ok()
                            .map(|link| (key_of_artifact(&claim.artifact), link))
                    }
                    Err(_) => None,
                };
                match link {
                    Some((key, link)) => (Some(key), link.url.expose().to_owned()),
                    // The content in a `data:` URL must not be passed on as a URL.
                    None if class == UrlClass::Data => (None, String::new()),
                    None => (None, url),
                }
            }
        }
    }
}

fn message_attachments(message: &Message) -> &[Attachment] {
    let custom = message.custom_content.as_ref();
    let given = custom.and_then(|custom| custom.attachments.as_deref());
    given.unwrap_or_default()
}

/// The reminder for each message of the user; `None` for one without files.
fn file_reminders(messages: &[Message], built: &BuiltContext) -> Vec<Option<String>> {
    let humans = built.rewritten_histories.iter();
    let humans = humans.filter(|item| item.get("obj") == Some(&json!("Human")));
    let texts = humans
        .chain([&built.current_user_message])
        .map(rewritten_text);
    let users = messages.iter().filter(|message| message.role == Role::User);
    users
        .zip(texts)
        .map(|(message, text)| text.filter(|_| !message_attachments(message).is_empty()))
        .collect()
}

fn rewritten_text(item: &Value) -> Option<String> {
    let parts = item.get("value")?.as_array()?;
    let texts: Vec<_> = parts
        .iter()
        .filter_map(|part| part.get("text")?.get("content")?.as_str())
        .collect();
    (!texts.is_empty()).then(|| texts.join("\n"))
}
