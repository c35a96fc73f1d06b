//! Describes to the model the files that it always has (quickapps 13): metadata, never content.

use std::collections::HashSet;

use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::manifest::Context;
use crate::message::{Content, Message, Role};
use crate::pair::CallPair;

/// Name of the tool that lists the files.
pub const LIST_TOOL: &str = "internal_attachments_available_context";

/// How a file differs from the last list that the model got.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum FileStatus {
    /// The file was in no earlier list.
    New,
    /// The file's description or type changed.
    Updated,
    /// The file is no longer in the manifest.
    Removed,
}

/// A file of the manifest, as the result lists it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileEntry {
    /// Last segment of the address, in its spelling there.
    pub title: String,
    /// Address of the file, as in the manifest.
    pub url: String,
    /// MIME type by its extension; empty if unknown.
    #[serde(rename = "type")]
    pub kind: String,
    /// Description of its content, by the manifest.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// Absent if the file did not change.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<FileStatus>,
}

/// The result of the tool.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileNotice {
    /// The files; removed ones last.
    pub entries: Vec<FileEntry>,
}

impl FileNotice {
    /// Compares the files of the manifest with the last notice in the conversation.
    pub fn of(contexts: &[Context], messages: &[Message]) -> Self {
        let last_seen_urls = last_seen(messages).unwrap_or_default();
        let mut urls = HashSet::new();
        let mut entries = Vec::new();
        for context in contexts {
            if let Context::File { url, description } = context
                // An address that is configured twice appears once (quickapps 13).
                && urls.insert(url.as_str())
            {
                entries.push(file_entry(url, description.clone(), &last_seen_urls));
            }
        }
        let removed = last_seen_urls
            .into_iter()
            .filter(|old| !urls.contains(old.url.as_str()));
        // The removed files come last, each once: the next notice no longer counts them as known.
        entries.extend(removed.map(|old| FileEntry {
            status: Some(FileStatus::Removed),
            ..old
        }));
        Self { entries }
    }

    /// Whether no file is new or changed for the model.
    pub fn is_known(&self) -> bool {
        self.entries.iter().all(|entry| entry.status.is_none())
    }

    /// The result of the tool: JSON, characters beyond ASCII as they are.
    pub fn text(&self) -> String {
        json!({"entries": self.entries}).to_string()
    }
}

/// Whether the tool is offered: the manifest has a file, or the conversation contains the tool.
pub fn is_active(contexts: &[Context], messages: &[Message]) -> bool {
    let calls = messages.iter().flat_map(Message::calls);
    contexts
        .iter()
        .any(|context| matches!(context, Context::File { .. }))
        // The list is sent without files too: the model must be informed that the last file was removed.
        || calls
            .into_iter()
            .any(|call| call.function.name == LIST_TOOL)
}

/// Addresses of the files that the conversation knows.
pub fn known_urls(messages: &[Message]) -> impl Iterator<Item = String> {
    let seen = last_seen(messages).unwrap_or_default();
    seen.into_iter().map(|entry| entry.url)
}

/// The call and result for the end of the conversation; `None` without changes.
pub fn notice_pair(contexts: &[Context], messages: &[Message]) -> Option<CallPair> {
    let notice = FileNotice::of(contexts, messages);
    // The same condition as for the tool, because a call of a tool that is not offered would mislead the model.
    (is_active(contexts, messages) && !notice.is_known()).then(|| CallPair {
        tool: LIST_TOOL.to_owned(),
        arguments: json!({}),
        content: notice.text(),
    })
}

fn file_entry(url: &str, description: Option<String>, seen: &[FileEntry]) -> FileEntry {
    let kind = dray_media_type::type_of_name(url)
        .unwrap_or_default()
        .to_owned();
    let status = match seen.iter().find(|old| old.url == url) {
        None => Some(FileStatus::New),
        Some(old) if old.kind != kind || old.description != description => {
            Some(FileStatus::Updated)
        }
        Some(_) => None,
    };
    FileEntry {
        // The name is not percent-decoded (quickapps 13).
        title: url.rsplit('/').next().unwrap_or(url).to_owned(),
        url: url.to_owned(),
        kind,
        description,
        status,
    }
}

/// The newest result of the tool that can be read, without the files that it lists as removed.
fn last_seen(messages: &[Message]) -> Option<Vec<FileEntry>> {
    let ids: HashSet<_> = messages
        .iter()
        .flat_map(Message::calls)
        .filter(|call| call.function.name == LIST_TOOL)
        .map(|call| call.id.as_str())
        .collect();
    messages.iter().rev().find_map(|message| {
        let id = message.tool_call_id.as_deref()?;
        match &message.content {
            Some(Content::Text(text)) if message.role == Role::Tool && ids.contains(id) => {
                // A result that cannot be parsed is skipped in favour of an older one (quickapps 13).
                let notice: FileNotice = serde_json::from_str(text).ok()?;
                let mut entries = notice.entries;
                entries.retain(|entry| entry.status != Some(FileStatus::Removed));
                Some(entries)
            }
            _ => None,
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pair;

    fn file(url: &str, description: Option<&str>) -> Context {
        Context::File {
            url: url.to_owned(),
            description: description.map(str::to_owned),
        }
    }

    #[test]
    fn a_first_notice_names_each_file_once() {
        let contexts = [
            file("files/B/ä.pdf", Some("d")),
            file("files/B/ä.pdf", None),
        ];
        assert_eq!(
            notice_pair(&contexts, &[]).unwrap().content,
            r#"{"entries":[{"title":"ä.pdf","url":"files/B/ä.pdf","type":"application/pdf","description":"d","status":"new"}]}"#
        );
        assert_eq!(notice_pair(&[], &[]), None);
    }

    #[test]
    fn later_notices_contain_changes_until_nothing_changes() {
        let mut talk = Vec::new();
        talk.extend(
            notice_pair(&[file("a/x", None), file("a/y.txt", None)], &talk)
                .unwrap()
                .messages(),
        );
        let now = [file("a/y.txt", Some("more")), file("a/z", None)];
        let notice = FileNotice::of(&now, &talk);
        let statuses: Vec<_> = notice
            .entries
            .iter()
            .map(|entry| (entry.url.as_str(), entry.status))
            .collect();
        assert_eq!(
            statuses,
            [
                ("a/y.txt", Some(FileStatus::Updated)),
                ("a/z", Some(FileStatus::New)),
                ("a/x", Some(FileStatus::Removed)),
            ]
        );
        talk.extend(notice_pair(&now, &talk).unwrap().messages());
        assert_eq!(notice_pair(&now, &talk), None);
    }

    #[test]
    fn unreadable_results_are_ignored() {
        let contexts = [file("a/x", None)];
        let mut talk = notice_pair(&contexts, &[]).unwrap().messages().to_vec();
        let broken = CallPair {
            tool: LIST_TOOL.to_owned(),
            arguments: json!({}),
            content: "broken".to_owned(),
        };
        talk.extend(broken.messages());
        assert_eq!(notice_pair(&contexts, &talk), None);
        assert!(is_active(&[], &talk) && !is_active(&[], &[]));
    }

    #[test]
    fn r_16_each_notice_about_a_file_that_is_removed_and_added_again_has_its_own_id() {
        let conversation = || {
            let (with, without) = ([file("a/x", None)], []);
            let mut talk = vec![Message::new(Role::User, "x")];
            for contexts in [&with[..], &without[..], &with[..], &without[..]] {
                let notice = notice_pair(contexts, &talk).unwrap();
                pair::insert_pair(
                    &mut talk,
                    &notice,
                    pair::PairPosition::End,
                    pair::PairFrequency::Always,
                );
                assert_eq!(notice_pair(contexts, &talk), None);
            }
            talk
        };
        let talk = conversation();
        let calls = talk.iter().flat_map(Message::calls);
        let ids: HashSet<_> = calls.map(|call| call.id.clone()).collect();
        assert_eq!(ids.len(), 4);
        assert_eq!(conversation(), talk);
    }
}
