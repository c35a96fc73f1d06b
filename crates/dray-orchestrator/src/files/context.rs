//! The files of a conversation as the model knows them (docs/file-context.md): one id for each, for as long as the
//! conversation lasts.

use std::sync::PoisonError;

use bytes::Bytes;
use dray_agent::message::{Attachment, Content, Message, Role};
use dray_proto::v1;
use dray_tool::{Failure, Storage as _, UrlClass};
use dray_types::ByteSize;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::ask::{Peer, Unanswered};
use super::storage::{KEY, key_of};
use super::turn::TurnFiles;

/// Longest context that is taken.
const BUILT: ByteSize = ByteSize::mib(16);
/// Beginning of the stable names of stored files.
const STORED: &str = "artifact/";
/// Messages that are seen: all of them.
const ALL: u64 = 1 << 20;

/// What tools look up.
#[derive(Clone, Debug, Default)]
pub struct Catalog {
    json: Bytes,
    entries: Vec<Entry>,
}

/// One file.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct Entry {
    /// Its id.
    pub id: String,
    /// Its name.
    pub name: String,
    /// Where its bytes are.
    pub url: String,
    /// `artifact/<sha256>/<size>` or `files/…`.
    pub key: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Built {
    #[serde(default)]
    rewritten_histories: Vec<Value>,
    current_user_message: Value,
    catalog: Value,
}

impl Catalog {
    /// The JSON that other services take.
    pub fn json(&self) -> Bytes {
        self.json.clone()
    }

    /// The files.
    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// A text with the stable names of stored files in the place of their links.
    fn without_links(&self, mut text: String) -> String {
        for entry in &self.entries {
            let key = entry.key.as_deref();
            let Some(key) = key.filter(|key| key.starts_with(STORED) && !entry.url.is_empty())
            else {
                continue;
            };
            for link in [entry.url.clone(), entry.url.replace('&', "&amp;")] {
                text = text.replace(&link, key);
            }
        }
        text
    }

    fn read(value: &Value) -> Self {
        let items = value.get("entries").unwrap_or(value);
        Self {
            json: value.to_string().into(),
            entries: serde_json::from_value(items.clone()).unwrap_or_default(),
        }
    }
}

impl TurnFiles {
    /// Whether the conversation has files.
    pub fn has_files(&self) -> bool {
        let catalog = self.catalog.lock().unwrap_or_else(PoisonError::into_inner);
        catalog
            .as_ref()
            .is_some_and(|catalog| !catalog.entries.is_empty())
    }

    /// The file of an id.
    pub(super) fn catalog_entry(&self, id: &str) -> Option<Entry> {
        let catalog = self.catalog.lock().unwrap_or_else(PoisonError::into_inner);
        let entries = catalog.as_ref()?.entries.iter();
        entries.into_iter().find(|entry| entry.id == id).cloned()
    }

    /// Gives ids to the files of a conversation, and tells the model of them in its messages where that is switched on.
    /// Without files nobody is asked. When the context cannot be built, the messages stay as they are.
    pub async fn prepare(&self, messages: Vec<Message>) -> Vec<Message> {
        if !messages
            .iter()
            .any(|message| !attachments(message).is_empty())
        {
            return messages;
        }
        match self.build(&messages).await {
            Ok(built) => {
                let catalog = Catalog::read(&built.catalog);
                let messages = if self.services.config.reminder {
                    told(messages, &built, &catalog)
                } else {
                    messages
                };
                *self.catalog.lock().unwrap_or_else(PoisonError::into_inner) = Some(catalog);
                messages
            }
            Err(failure) => {
                tracing::warn!(
                    error = &failure as &dyn std::error::Error,
                    "the files of a conversation got no ids"
                );
                messages
            }
        }
    }

    async fn build(&self, messages: &[Message]) -> Result<Built, Failure> {
        let mut items = Vec::new();
        let mut turn = 0;
        for message in messages {
            let obj = match message.role {
                Role::User => {
                    turn += 1;
                    ("Human", format!("q{turn}"))
                }
                Role::Assistant if message.calls().is_empty() => ("AI", format!("a{turn}")),
                _ => continue,
            };
            let mut value = vec![json!({"text": {"content": text_of(message)}})];
            for attachment in attachments(message) {
                if let Some(file) = self.part(attachment).await {
                    value.push(json!({ "file": file }));
                }
            }
            items.push(json!({"obj": obj.0, "dataId": obj.1, "value": value}));
        }
        let current = items
            .iter()
            .rposition(|item| item.get("obj") == Some(&json!("Human")));
        let current = current
            .map(|at| items.split_off(at))
            .and_then(|tail| tail.into_iter().next());
        let question = messages
            .iter()
            .rev()
            .find(|message| message.role == Role::User);
        let conversation = json!({
            "histories": items,
            "history": ALL,
            "userMessage": current,
            "question": question.map(text_of).unwrap_or_default(),
            "responseChatItemId": format!("a{turn}"),
        });
        let services = &self.services;
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
            .ask(Peer::Documents, &self.meta(time), &request)
            .await?;
        let built = services
            .read(Peer::Documents, reply.built, BUILT, time)
            .await?;
        serde_json::from_slice(&built).map_err(|_| Unanswered::Garbled(Peer::Documents).into())
    }

    /// A file as the context takes it; nothing for what has neither content nor address that can be opened.
    async fn part(&self, attachment: &Attachment) -> Option<Value> {
        let kind = attachment.kind.as_deref().unwrap_or_default();
        let named = attachment
            .rest
            .get(KEY)
            .and_then(Value::as_str)
            .map(str::to_owned);
        let url = attachment.url.clone().unwrap_or_default();
        let (key, url) = match (named, self.classify(&url)) {
            (Some(key), _) => (Some(key), url),
            (None, UrlClass::Dial) => {
                let path = self.dial_path(&url)?;
                (Some(path.clone()), format!("/v1/{path}"))
            }
            (None, UrlClass::External) => (None, url),
            (None, UrlClass::Data | UrlClass::Unsupported) => {
                let (claim, _) = self.attached_claim(attachment).await.ok()?;
                let key = key_of(&claim);
                (Some(key.clone()), key)
            }
        };
        let url = Some(url).filter(|url| !url.starts_with(STORED));
        let last = url
            .as_deref()
            .unwrap_or_default()
            .split(['?', '#'])
            .next()
            .and_then(|path| path.rsplit('/').next());
        let name = attachment.title.clone().or_else(|| last.map(str::to_owned));
        let mut part = Map::new();
        let is_image = kind.starts_with("image/");
        part.insert(
            "type".to_owned(),
            json!(if is_image { "image" } else { "file" }),
        );
        part.insert("name".to_owned(), json!(name.unwrap_or_default()));
        // A stored file goes by its key alone: who builds the context signs a link where one is needed.
        if let Some(url) = url {
            part.insert("url".to_owned(), json!(url));
        }
        if let Some(key) = key {
            part.insert("key".to_owned(), json!(key));
        }
        Some(Value::Object(part))
    }

    /// Puts fresh URLs in the place of ids in the arguments of a tool that takes URLs. Nobody is asked where no argument
    /// is an id.
    ///
    /// # Errors
    ///
    /// The reader cannot be asked.
    pub async fn substitute(
        &self,
        arguments: Map<String, Value>,
    ) -> Result<Map<String, Value>, Failure> {
        let mut arguments = arguments;
        arguments
            .values_mut()
            .for_each(|value| self.name_by_id(value));
        if !self.has_files() || !arguments.values().any(|value| self.names_a_file(value)) {
            return Ok(arguments);
        }
        let services = &self.services;
        let bytes = Value::Object(arguments).to_string();
        let request = v1::SubstituteIdsRequest {
            catalog: Some(
                services
                    .content(self.catalog_json(), "application/json")
                    .await?,
            ),
            arguments: Some(services.content(bytes.into(), "application/json").await?),
            link_seconds: 0,
        };
        let time = services.config.call_timeout.as_duration();
        let reply = services
            .ask(Peer::Documents, &self.meta(time), &request)
            .await?;
        let done = services
            .read(Peer::Documents, reply.arguments, BUILT, time)
            .await?;
        serde_json::from_slice(&done).map_err(|_| Unanswered::Garbled(Peer::Documents).into())
    }

    /// Puts the id of a file in the place of its stable name, by which the model knows stored files.
    fn name_by_id(&self, value: &mut Value) {
        match value {
            Value::String(text) if text.starts_with(STORED) => {
                let catalog = self.catalog.lock().unwrap_or_else(PoisonError::into_inner);
                let mut entries = catalog.iter().flat_map(|catalog| &catalog.entries);
                let named = entries.find(|entry| entry.key.as_deref() == Some(text.as_str()));
                if let Some(entry) = named {
                    text.clone_from(&entry.id);
                }
            }
            Value::Array(items) => items.iter_mut().for_each(|item| self.name_by_id(item)),
            Value::Object(members) => members
                .values_mut()
                .for_each(|member| self.name_by_id(member)),
            _ => {}
        }
    }

    fn names_a_file(&self, value: &Value) -> bool {
        match value {
            Value::String(text) => self.catalog_entry(text).is_some(),
            Value::Array(items) => items.iter().any(|item| self.names_a_file(item)),
            Value::Object(members) => members.values().any(|member| self.names_a_file(member)),
            _ => false,
        }
    }
}

fn attachments(message: &Message) -> &[Attachment] {
    let custom = message.custom_content.as_ref();
    let given = custom.and_then(|custom| custom.attachments.as_deref());
    given.unwrap_or_default()
}

/// The text of a message.
fn text_of(message: &Message) -> String {
    match &message.content {
        None => String::new(),
        Some(Content::Text(text)) => text.clone(),
        Some(Content::Parts(parts)) => {
            let texts = parts.iter().filter_map(|part| part.get("text")?.as_str());
            texts.collect::<Vec<_>>().join("\n")
        }
    }
}

/// The messages with what the model is told of their files. Links to stored files are not in it: they end, open the
/// file to everybody, and differ from one turn to the next.
fn told(mut messages: Vec<Message>, built: &Built, catalog: &Catalog) -> Vec<Message> {
    let humans = built.rewritten_histories.iter();
    let humans = humans.filter(|item| item.get("obj") == Some(&json!("Human")));
    let texts: Vec<_> = humans
        .chain([&built.current_user_message])
        .map(|item| Some(catalog.without_links(rewritten(item)?)))
        .collect();
    let users = messages
        .iter_mut()
        .filter(|message| message.role == Role::User);
    for (message, text) in users.zip(texts) {
        if !attachments(message).is_empty()
            && let Some(text) = text
        {
            replace(message, text);
        }
    }
    messages
}

fn rewritten(item: &Value) -> Option<String> {
    let parts = item.get("value")?.as_array()?;
    let texts: Vec<_> = parts
        .iter()
        .filter_map(|part| part.get("text")?.get("content")?.as_str())
        .collect();
    (!texts.is_empty()).then(|| texts.join("\n"))
}

/// Puts another text into a message; parts that are no text stay.
fn replace(message: &mut Message, text: String) {
    match &mut message.content {
        Some(Content::Parts(parts)) => {
            parts.retain(|part| part.get("type").and_then(Value::as_str) != Some("text"));
            let mut part = Map::new();
            part.insert("type".to_owned(), json!("text"));
            part.insert("text".to_owned(), json!(text));
            parts.insert(0, part);
        }
        content => *content = Some(Content::Text(text)),
    }
}
