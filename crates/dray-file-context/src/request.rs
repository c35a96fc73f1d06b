//! The input of one request. Every type here is also its JSON form.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::clock::LocalTime;
use crate::dataset::DatasetCache;
use crate::generation::{ContractGeneration, ReminderLayout};
use crate::model::{ChatItem, FileType};
use crate::reminder::{ReminderLanguage, SandboxSkill};
use crate::renew::{RenewedLinks, StoreScope};
use crate::window::HistoryWindow;

/// Everything that a context is built from.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ContextRequest {
    /// The contract to follow.
    pub generation: ContractGeneration,
    /// The reminder's layout; absent means the generation's own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub layout: Option<ReminderLayout>,
    /// The reminder's language. Absent means English, or the peer's Chinese if a `generation` or a `layout` of the peer
    /// is selected by name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub language: Option<ReminderLanguage>,
    /// Whether the reminder names files by their ids alone; `fileUrlMap` has the URLs anyway.
    #[serde(skip_serializing_if = "crate::is_false")]
    pub hide_urls: bool,
    /// Whether images, audio and video stay parts of their message; absent means the default of the generation. The
    /// reminder mentions attached media only if they are attached.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub keep_media: Option<bool>,
    /// Everything stored before this turn, oldest first.
    pub histories: Vec<ChatItem>,
    /// The part of the history that the model gets.
    pub history: HistoryWindow,
    /// The raw message of this turn: its files and its text as they were sent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub user_message: Option<ChatItem>,
    /// The question for the model; a workflow may have changed it.
    pub question: String,
    /// The node's file input. Absent if the node does not declare one; values that are not text are dropped.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub file_input: Option<Vec<Value>>,
    /// The id under which the answer will be stored.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub response_chat_item_id: Option<String>,
    /// The prefix if neither message has an id. Absent means an id made from the file itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fallback_id: Option<String>,
    /// Most files of one message; zero means 20.
    pub max_files: usize,
    /// The way in which the model reaches files above that limit, as the end of a sentence.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reach: Option<String>,
    /// The public origin of the server that got the request.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub origin: Option<String>,
    /// Types that the caller knows, by exact URL.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub declared_types: BTreeMap<String, FileType>,
    /// The current time; absent means that the reminder has none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub now: Option<LocalTime>,
    /// The sandbox's working directory, when the node uses one; empty is absent.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub working_directory: Option<String>,
    /// Skills in the sandbox.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub skills: Vec<SandboxSkill>,
    /// Directory in which skills may be written.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub write_boundary: Option<String>,
    /// Datasets that the node selects.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub datasets: Option<DatasetCache>,
    /// Fresh URLs. Absent means that stored URLs never expire, and that the scope is not checked.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub renewals: Option<RenewedLinks>,
    /// Texts of files by id, for the tool-call layout.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub contents: BTreeMap<String, String>,
}

impl ContextRequest {
    /// The language that the reminder is written in.
    pub(crate) fn reminder_language(&self) -> ReminderLanguage {
        let is_own = self.generation == ContractGeneration::Stable && self.layout.is_none();
        let default = if is_own {
            ReminderLanguage::English
        } else {
            ReminderLanguage::Chinese
        };
        self.language.unwrap_or(default)
    }

    /// The sandbox's working directory; an empty one counts as absent.
    pub(crate) fn directory(&self) -> Option<&str> {
        let directory = self.working_directory.as_deref();
        directory.filter(|directory| !directory.trim().is_empty())
    }

    /// Whether images, audio and video stay parts of their message.
    pub(crate) fn keeps_media(&self) -> bool {
        self.keep_media.unwrap_or(self.generation.keeps_media())
    }

    /// The messages to which the history setting applies.
    pub fn stored(&self) -> &[ChatItem] {
        match &self.history {
            // An explicit array replaces the stored history (6.1).
            HistoryWindow::Given(items) => items,
            HistoryWindow::None | HistoryWindow::Rounds(_) => &self.histories,
        }
    }

    /// The keys that have to be signed before [`crate::ContextBuilder::build`]: keys of the current message and of the
    /// history for the model, each once, and none outside `scope`.
    pub fn keys_to_sign(&self, scope: Option<&StoreScope>) -> Vec<String> {
        let stored = self.stored();
        let positions = crate::window::kept_positions(stored, &self.history, self.generation);
        let items = positions
            .into_iter()
            .filter_map(|position| stored.get(position));
        let mut keys = Vec::new();
        for item in items.chain(&self.user_message) {
            keys.extend(item.files().into_iter().filter_map(|file| file.key));
            // Files of a node's input are not parts of the message; only this list has them.
            keys.extend(
                item.attachments
                    .iter()
                    .filter_map(|attachment| attachment.key.clone()),
            );
        }
        RenewedLinks::keys_to_sign(scope, keys.iter().map(String::as_str))
    }
}
