//! The files of a conversation by their ids, available after the context of the turn was built.

use std::sync::{Mutex, PoisonError};

use bytes::Bytes;
use dray_tool::UrlClass;
use serde::Deserialize;
use serde_json::Value;

use super::services::FileServices;

/// The files of a conversation with their ids.
#[derive(Clone, Debug, Default)]
pub struct FileCatalog {
    json: Bytes,
    entries: Vec<CatalogEntry>,
}

/// A file of the conversation, as tools find it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct CatalogEntry {
    /// Id by which the model names the file in this conversation.
    pub id: String,
    /// File name for the model.
    pub name: String,
    /// URL of the content.
    pub url: String,
    /// `artifact/<sha256>/<size>` or `files/…`: for other services, never from a client or a model.
    pub key: Option<String>,
}

impl FileCatalog {
    /// The JSON that other services take.
    pub fn json(&self) -> Bytes {
        self.json.clone()
    }

    /// All files of the conversation that have an id.
    pub fn entries(&self) -> &[CatalogEntry] {
        &self.entries
    }

    pub(super) fn read(value: &Value) -> Self {
        let items = value.get("entries").unwrap_or(value);
        Self {
            json: value.to_string().into(),
            entries: serde_json::from_value(items.clone()).unwrap_or_default(),
        }
    }
}

/// The catalog of the turn's conversation, and the reminders of its messages. Both are empty until the context is
/// built.
#[derive(Debug, Default)]
pub struct ConversationCatalog {
    catalog: Mutex<Option<FileCatalog>>,
    /// Reminder for each message of the user; `None` for one without files.
    reminders: Mutex<Vec<Option<String>>>,
}

impl ConversationCatalog {
    /// Whether the conversation has files.
    pub fn has_files(&self) -> bool {
        let catalog = self.catalog.lock().unwrap_or_else(PoisonError::into_inner);
        catalog
            .as_ref()
            .is_some_and(|catalog| !catalog.entries.is_empty())
    }

    /// Address of the file of an id, `files/…` or a URL, for tools that get files of DIAL through the storage of the
    /// turn. Unlike a link, such an address permits nothing.
    pub(super) fn address_of(&self, id: &str, services: &FileServices) -> Option<String> {
        let entry = self.entry(id)?;
        let path = entry.key.filter(|key| key.starts_with("files/"));
        let is_external = services.classify(&entry.url) == UrlClass::External;
        path.or_else(|| is_external.then_some(entry.url))
    }

    /// The file of an id.
    pub(super) fn entry(&self, id: &str) -> Option<CatalogEntry> {
        let catalog = self.catalog.lock().unwrap_or_else(PoisonError::into_inner);
        let entries = catalog.as_ref()?.entries.iter();
        entries.into_iter().find(|entry| entry.id == id).cloned()
    }

    /// The id of the file with this key.
    pub(super) fn id_of_key(&self, key: &str) -> Option<String> {
        let catalog = self.catalog.lock().unwrap_or_else(PoisonError::into_inner);
        let entries = catalog.as_ref()?.entries.iter();
        entries
            .into_iter()
            .find(|entry| entry.key.as_deref() == Some(key))
            .map(|entry| entry.id.clone())
    }

    /// The catalog as JSON for the file resolver; empty until a context was built.
    pub(super) fn json(&self) -> Bytes {
        let catalog = self.catalog.lock().unwrap_or_else(PoisonError::into_inner);
        catalog.as_ref().map_or_else(Bytes::new, FileCatalog::json)
    }

    /// Stores the catalog of a built context.
    pub(super) fn set(&self, catalog: FileCatalog) {
        *self.catalog.lock().unwrap_or_else(PoisonError::into_inner) = Some(catalog);
    }

    /// Stores the reminder for each message of the user.
    pub(super) fn set_reminders(&self, reminders: Vec<Option<String>>) {
        *self
            .reminders
            .lock()
            .unwrap_or_else(PoisonError::into_inner) = reminders;
    }

    /// The reminder for each message of the user, in their order; empty without files.
    pub fn reminders(&self) -> Vec<Option<String>> {
        let reminders = self.reminders.lock();
        reminders.unwrap_or_else(PoisonError::into_inner).clone()
    }
}
