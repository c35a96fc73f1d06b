//! Ids of files: the id that a file gets, and the older ids that also refer to it (agent-file-context 6.2, R-1).

use std::collections::{BTreeMap, BTreeSet};

use dray_types::Sha256Digest;

use crate::address;
use crate::collect::FoundFile;
use crate::generation::ContractGeneration;
use crate::model::{ChatItem, MessageRole};

/// The parts of a message from which the ids of its files are made.
#[derive(Clone, Debug, Default)]
pub(crate) struct IdOwner<'a> {
    /// Id of the answer to the message.
    pub(crate) answer: Option<&'a str>,
    /// Id of the message itself.
    pub(crate) question: Option<&'a str>,
    /// Index of the message in the history for the model.
    pub(crate) position: Option<usize>,
    /// The caller's prefix for messages without an id.
    pub(crate) fallback: Option<&'a str>,
    /// Whether this is the current message.
    pub(crate) current: bool,
}

/// The id of the answer to the question at `index`: the first answer with an id before the next question.
pub(crate) fn answer_to(histories: &[ChatItem], index: usize) -> Option<&str> {
    let after = histories.iter().skip(index + 1);
    after
        // An answer after the next question never belongs to this question (6.2).
        .take_while(|item| item.obj != MessageRole::Human)
        .filter(|item| item.obj == MessageRole::Ai)
        .find_map(ChatItem::id)
}

/// Assigns ids, and records to which file each of them belongs.
#[derive(Debug, Default)]
pub(crate) struct IdAllocator {
    /// The identity of the file of each id.
    owners: BTreeMap<String, String>,
}

/// The id of a file, and older ids of the same file.
pub(crate) struct NamedId {
    pub(crate) id: String,
    /// Older ids that refer only to this file.
    pub(crate) aliases: Vec<String>,
    /// Older ids that are only a position and a number: too short to be searched for in arguments.
    pub(crate) positions: Vec<String>,
}

impl IdAllocator {
    /// Reserves a persisted id. Call it for all files before [`Self::assign`].
    pub(crate) fn reserve(&mut self, found: &FoundFile) {
        if let Some(attachment) = &found.attachment {
            let owner = self.owners.entry(attachment.id.clone());
            // When two files have the same persisted id, the first keeps it, and `stable` gives the second another id.
            owner.or_insert_with(|| lasting_identity(found));
        }
    }

    /// Assigns the id of one file by the rules of the generation.
    pub(crate) fn assign(
        &mut self,
        generation: ContractGeneration,
        owner: &IdOwner<'_>,
        found: &FoundFile,
    ) -> NamedId {
        let id = match generation {
            ContractGeneration::G6 => found.url.clone(),
            ContractGeneration::Stable => self.stable_id(owner, found),
            _ => persisted_id(found).unwrap_or_else(|| generation_id(generation, owner, found)),
        };
        let (aliases, positions) = older_ids(owner, found);
        let differs = |alias: &String| *alias != id;
        NamedId {
            aliases: aliases.into_iter().filter(differs).collect(),
            positions: positions.into_iter().filter(differs).collect(),
            id,
        }
    }

    /// Returns the persisted id, otherwise an id made from the message, otherwise an id made from the file. Two files
    /// never get the same id.
    fn stable_id(&mut self, owner: &IdOwner<'_>, found: &FoundFile) -> String {
        let identity = lasting_identity(found);
        let prefix = owner.answer.or(owner.question);
        let from_message = prefix.map(|prefix| format!("{prefix}-{}", found.index));
        let from_fallback = owner
            .fallback
            .map(|prefix| format!("{prefix}-{}", found.index));
        let file_id = format!("file-{}", short_digest(&identity));
        // The candidates are in the order of their lifetimes: persisted, from the message, from the caller, from the
        // file.
        let candidates = [
            persisted_id(found),
            from_message,
            from_fallback,
            Some(file_id.clone()),
        ];
        for id in candidates.into_iter().flatten() {
            if self.claim(&id, &identity) {
                return id;
            }
        }
        let mut count = 1;
        while !self.claim(&format!("{file_id}-{count}"), &identity) {
            count += 1;
        }
        format!("{file_id}-{count}")
    }

    fn claim(&mut self, id: &str, identity: &str) -> bool {
        let holder = self.owners.entry(id.to_owned());
        holder.or_insert_with(|| identity.to_owned()) == identity
    }
}

fn persisted_id(found: &FoundFile) -> Option<String> {
    found
        .attachment
        .as_ref()
        .map(|attachment| attachment.id.clone())
}

/// The id by the exact rule of one generation.
fn generation_id(generation: ContractGeneration, owner: &IdOwner<'_>, found: &FoundFile) -> String {
    let answer = owner.answer.filter(|_| generation.names_by_answer());
    let prefix = match (answer, owner.question, owner.position) {
        (Some(answer), ..) => answer.to_owned(),
        (None, ..) if owner.current && generation.names_by_answer() => "current".to_owned(),
        (None, Some(question), _) => question.to_owned(),
        (None, None, Some(position)) => position.to_string(),
        (None, None, None) => match owner.fallback {
            Some(fallback) => fallback.to_owned(),
            None => format!("file-{}", short_digest(&lasting_identity(found))),
        },
    };
    format!("{prefix}-{}", found.index)
}

/// The ids that other generations assigned or would assign to the file.
fn older_ids(owner: &IdOwner<'_>, found: &FoundFile) -> (Vec<String>, Vec<String>) {
    let mut aliases = BTreeSet::new();
    for prefix in [owner.answer, owner.question].into_iter().flatten() {
        aliases.insert(format!("{prefix}-{}", found.index_with_data_urls));
    }
    if let Some(question) = owner.question {
        // Generations from G3 on do not count files with `data:` URLs (section 3, step 2).
        aliases.insert(format!("{question}-{}", found.index_without_data_urls));
    }
    if owner.current {
        aliases.insert(format!("current-{}", found.index_with_data_urls));
    }
    let has_no_message_id = owner.answer.is_none() && owner.question.is_none();
    // The peer uses the position only when neither message has an id (6.2).
    let positions = owner.position.filter(|_| has_no_message_id).into_iter();
    let positions = positions.map(|position| format!("{position}-{}", found.index_with_data_urls));
    (aliases.into_iter().collect(), positions.collect())
}

/// Identity of the file, which does not change when its URL is signed again.
pub(crate) fn lasting_identity(found: &FoundFile) -> String {
    match &found.key {
        Some(key) => format!("chat:{key}"),
        None => format!("external:{}", address::without_signature(&found.url)),
    }
}

/// The first twelve hexadecimal digits of a SHA-256.
fn short_digest(identity: &str) -> String {
    let mut digits = Sha256Digest::of(identity.as_bytes()).to_hex();
    digits.truncate(12);
    digits
}

#[cfg(test)]
mod tests {
    use super::*;

    fn items(letters: &str) -> Vec<ChatItem> {
        letters
            .split(' ')
            .map(|word| {
                let (role, id) = word.split_at(1);
                let role = match role {
                    "H" => MessageRole::Human,
                    "A" => MessageRole::Ai,
                    _ => MessageRole::System,
                };
                ChatItem::new(role, Some(id), vec![])
            })
            .collect()
    }

    #[test]
    fn the_first_answer_with_an_id_belongs_to_a_question() {
        assert_eq!(answer_to(&items("Hh Ss A Aa Ab"), 0), Some("a"));
        assert_eq!(answer_to(&items("Hh Aa"), 0), Some("a"));
    }

    #[test]
    fn an_answer_after_the_next_question_does_not_belong_to_the_first() {
        assert_eq!(answer_to(&items("Hh Hi Aa"), 0), None);
        assert_eq!(answer_to(&items("Hh A Hi Aa"), 0), None);
        assert_eq!(answer_to(&items("Hh"), 0), None);
    }
}
