//! The context that was built for a request, and its maps (agent-file-context 2, 11).

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::catalog::{AnyTarget, DocumentTarget, FileCatalog, FileTurn};
use crate::generation::ContractGeneration;
use crate::model::{AgentInputFile, ChatItem, MessageAttachment};
use crate::renew::RenewalRefusal;

/// The context that was built for a request. Also its JSON form.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct BuiltContext {
    /// The history for the model, unmodified.
    pub chat_histories: Vec<ChatItem>,
    /// The same messages in the same order, those with files rewritten. Never stored.
    pub rewritten_histories: Vec<ChatItem>,
    /// This turn's message: the reminder, the question, and the media.
    pub current_user_message: ChatItem,
    /// The text of the raw message, which is not the question.
    pub query_input: String,
    /// Files of this turn, in the order of their indexes.
    pub current_files: Vec<AgentInputFile>,
    /// Id to document, for `read_files`.
    pub files_map: BTreeMap<String, DocumentTarget>,
    /// Id to file of any type.
    pub all_files_map: BTreeMap<String, AnyTarget>,
    /// Id to URL of any type, for arguments of tools.
    pub file_url_map: BTreeMap<String, String>,
    /// Everything above that tools look up, with older ids and former URLs.
    pub catalog: FileCatalog,
    /// Attachments that the caller stores with this turn's message, so that its files keep ids and names.
    pub current_attachments: Vec<MessageAttachment>,
    /// Files of the history that can no longer be fetched.
    pub warnings: Vec<FileWarning>,
    /// Files without an id; the reminder of their message lists them.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub left_out: Vec<ExcludedFile>,
}

/// A file that has no id.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ExcludedFile {
    /// Name of the file; its URL when it has no name.
    pub name: String,
    /// The reason why it has no id.
    pub reason: ExclusionReason,
    /// The turn of the file: the current message or an earlier one.
    pub turn: FileTurn,
}

/// The reason why a file has no id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ExclusionReason {
    /// The message has more files than allowed.
    Limit,
    /// No file can be opened by this name.
    Name,
    /// The file's URL cannot be used, or its host is not allowed.
    Url,
    /// The file belongs to another conversation.
    Scope,
    /// The file's link could not be renewed.
    Unsigned,
}

impl From<RenewalRefusal> for ExclusionReason {
    fn from(refusal: RenewalRefusal) -> Self {
        match refusal {
            RenewalRefusal::Name => Self::Name,
            RenewalRefusal::Scope => Self::Scope,
            RenewalRefusal::Unsigned => Self::Unsigned,
            RenewalRefusal::Url => Self::Url,
        }
    }
}

/// A file that is listed as unavailable.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct FileWarning {
    /// Id that the model uses.
    pub id: String,
    /// Name that the model uses.
    pub name: String,
    /// The reason why its link could not be renewed.
    pub reason: RenewalRefusal,
}

/// Id to document. The newest generation has no maps.
pub(crate) fn files_map(
    catalog: &FileCatalog,
    generation: ContractGeneration,
) -> BTreeMap<String, DocumentTarget> {
    let documents = catalog
        .entries()
        .iter()
        // An unavailable file is listed for the model, but no tool can open it.
        .filter(|entry| entry.file.file_type.is_document() && !entry.unavailable)
        .filter(|_| generation != ContractGeneration::G6);
    documents
        .map(|entry| {
            let url = entry.file.url.clone();
            let target = if generation.maps_names() {
                let name = entry.file.name.clone();
                DocumentTarget::Named { name, url }
            } else {
                DocumentTarget::Url(url)
            };
            (entry.file.id.clone(), target)
        })
        .collect()
}

/// Id to file of any type. The newest generation has no maps.
pub(crate) fn all_files_map(
    catalog: &FileCatalog,
    generation: ContractGeneration,
) -> BTreeMap<String, AnyTarget> {
    let usable = catalog.entries().iter().filter(|entry| !entry.unavailable);
    // G6 has no maps: its handle is the URL itself (section 1).
    let usable = usable.filter(|_| generation != ContractGeneration::G6);
    usable
        .map(|entry| {
            let target = AnyTarget {
                name: entry.file.name.clone(),
                file_type: entry.file.file_type,
                url: entry.file.url.clone(),
            };
            (entry.file.id.clone(), target)
        })
        .collect()
}
