//! The questions that chats show and that are not ended yet: one record for each chat of the configuration, changed by
//! compare-and-set, in the bucket `dray_platform`.
//!
//! A replica that is about to show or end a question moves [`OpenQuestion::due_ms`] first, so one replica does it, and
//! another one continues if the first one crashes. The texts have separate keys, so that the record stays small.
//! Answers are not stored here, so a lost record costs only an edit of a message.

use bytes::Bytes;
use dray_bus::{KeyError, KeyValue};
use dray_platform::ButtonPress;
use serde::{Deserialize, Serialize};

/// Most open questions of one chat, so that their record fits into a value of the bucket.
const MAX_OPEN_QUESTIONS: usize = 128;
/// Most of them may be about hosts; the rest is reserved for approvals when sessions ask about many hosts.
const MAX_HOST_QUESTIONS: usize = 96;
/// Attempts at a change that other replicas overtake.
const MAX_ATTEMPTS: usize = 8;

/// The subject of a question.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum QuestionKind {
    /// A call that waits for approval, or whose tool asks the user; the orchestrator decides.
    Call,
    /// A host; the egress-fetcher decides.
    Host,
}

/// One question of a chat.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct OpenQuestion {
    pub(crate) id: String,
    pub(crate) kind: QuestionKind,
    /// `None` until the platform has confirmed the message.
    pub(crate) message_id: Option<String>,
    /// Unix milliseconds from which no answer is accepted.
    pub(crate) expires_ms: u64,
    /// Unix milliseconds before which no replica acts on it: another one does.
    pub(crate) due_ms: u64,
    /// Steps that were begun.
    pub(crate) attempts: u32,
    /// A press that was confirmed to the platform, until it is decided.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) press: Option<KeptPress>,
}

/// A stored press, which another process can finish.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct KeptPress {
    pub(crate) message_id: String,
    pub(crate) sender: String,
    pub(crate) sender_name: String,
    pub(crate) data: String,
    pub(crate) reference: String,
    /// Unix milliseconds at which it arrived.
    pub(crate) taken_ms: u64,
}

impl KeptPress {
    /// Returns whether this is the record of a press.
    fn is_of(&self, press: &ButtonPress) -> bool {
        self.sender == press.sender
            && self.data == press.data
            && self.message_id == press.message_id
    }
}

/// The text of a question's message, and the place of the message.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct QuestionText {
    /// The chat, in its written form.
    pub(crate) target: String,
    pub(crate) text: String,
    pub(crate) detail: String,
    /// [`dray_proto::v1::AskInChatRequest::options`].
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) options: Vec<String>,
}

/// The record of a chat, and the revision that a change replaces.
#[derive(Clone, Debug, Default)]
pub(crate) struct RevisedQuestions {
    pub(crate) questions: Vec<OpenQuestion>,
    revision: Option<u64>,
}

impl RevisedQuestions {
    /// Adds a question unless it is there already; `false` when the record has too many.
    pub(crate) fn add(&mut self, question: OpenQuestion) -> bool {
        if self.questions.iter().any(|known| known.id == question.id) {
            return true;
        }
        let about_hosts = self.questions.iter();
        let about_hosts = about_hosts.filter(|question| question.kind == QuestionKind::Host);
        let has_room = self.questions.len() < MAX_OPEN_QUESTIONS
            && (question.kind != QuestionKind::Host || about_hosts.count() < MAX_HOST_QUESTIONS);
        if has_room {
            self.questions.push(question);
        }
        has_room
    }
}

/// Reads and changes the records. Chats are the names of the configuration.
#[derive(Clone, Debug)]
pub(crate) struct OpenQuestionStore {
    keys: KeyValue,
}

impl OpenQuestionStore {
    /// The records in this bucket.
    pub(crate) const fn new(keys: KeyValue) -> Self {
        Self { keys }
    }

    /// The open questions of a chat. A record that cannot be read counts as empty, and the next change replaces it.
    pub(crate) async fn read(&self, chat: &str) -> Result<RevisedQuestions, KeyError> {
        let Some(entry) = self.keys.get(&record_key(chat)).await? else {
            return Ok(RevisedQuestions::default());
        };
        let questions = serde_json::from_slice(&entry.value).unwrap_or_else(|error| {
            tracing::error!(chat, %error, "the record of open questions cannot be read");
            Vec::new()
        });
        Ok(RevisedQuestions {
            questions,
            revision: Some(entry.revision),
        })
    }

    /// Writes the record if no other replica changed it since it was read.
    pub(crate) async fn write(
        &self,
        chat: &str,
        record: &RevisedQuestions,
    ) -> Result<(), KeyError> {
        // Texts and numbers always have a form in JSON.
        let value = Bytes::from(serde_json::to_vec(&record.questions).unwrap_or_default());
        let key = record_key(chat);
        match record.revision {
            Some(revision) => self.keys.update(&key, value, revision).await,
            None => self.keys.create(&key, value).await,
        }
        .map(drop)
    }

    /// Adds a question; `false` when the chat has too many.
    pub(crate) async fn add(&self, chat: &str, question: OpenQuestion) -> Result<bool, KeyError> {
        let mut has_room = false;
        self.change(chat, |record| {
            has_room = record.add(question.clone());
            has_room
        })
        .await?;
        Ok(has_room)
    }

    /// Records the message that shows a question. A question that ended meanwhile stays ended.
    pub(crate) async fn set_message(
        &self,
        chat: &str,
        id: &str,
        message_id: &str,
    ) -> Result<(), KeyError> {
        self.change(chat, |record| {
            let mut questions = record.questions.iter_mut();
            let Some(question) = questions.find(|question| question.id == id) else {
                return false;
            };
            question.message_id = Some(message_id.to_owned());
            question.due_ms = 0;
            question.attempts = 0;
            true
        })
        .await
    }

    /// Keeps a press of a question that is open. The first press is kept, because it decides. Returns whether
    /// the question is open.
    pub(crate) async fn keep_press(
        &self,
        chat: &str,
        id: &str,
        press: &KeptPress,
    ) -> Result<bool, KeyError> {
        let mut is_open = false;
        self.change(chat, |record| {
            let mut questions = record.questions.iter_mut();
            let open = questions.find(|question| question.id == id);
            is_open = open.is_some();
            let unpressed = open.filter(|question| question.press.is_none());
            unpressed
                .map(|question| question.press = Some(press.clone()))
                .is_some()
        })
        .await?;
        Ok(is_open)
    }

    /// Removes the press of a question after its decision. The press of another person stays.
    pub(crate) async fn clear_press(
        &self,
        chat: &str,
        id: &str,
        press: &ButtonPress,
    ) -> Result<(), KeyError> {
        self.change(chat, |record| {
            let mut questions = record.questions.iter_mut();
            let question = questions.find(|question| question.id == id);
            question
                .and_then(|question| question.press.take_if(|kept| kept.is_of(press)))
                .is_some()
        })
        .await
    }

    /// Gives back the claims in `claimed` of steps that were not begun. Claims that another replica has by now stay.
    pub(crate) async fn release_claims(
        &self,
        chat: &str,
        ids: &[&str],
        claimed: &RevisedQuestions,
    ) -> Result<(), KeyError> {
        let is_claimed = |question: &OpenQuestion| {
            let mut own = claimed.questions.iter();
            ids.contains(&question.id.as_str())
                && own.any(|known| known.id == question.id && known.due_ms == question.due_ms)
        };
        self.change(chat, |record| {
            let mut is_changed = false;
            for question in &mut record.questions {
                if is_claimed(question) {
                    question.due_ms = 0;
                    question.attempts = question.attempts.saturating_sub(1);
                    is_changed = true;
                }
            }
            is_changed
        })
        .await
    }

    /// Removes a question and its text.
    pub(crate) async fn remove(&self, chat: &str, id: &str) -> Result<(), KeyError> {
        self.change(chat, |record| {
            let before = record.questions.len();
            record.questions.retain(|question| question.id != id);
            record.questions.len() != before
        })
        .await?;
        let key = text_key(chat, id);
        if let Some(entry) = self.keys.get(&key).await? {
            match self.keys.delete(&key, entry.revision).await {
                // Another replica removes it too.
                Ok(()) | Err(KeyError::Stale) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Reads the text of a question's message; `None` when it is no longer stored.
    pub(crate) async fn text(
        &self,
        chat: &str,
        id: &str,
    ) -> Result<Option<QuestionText>, KeyError> {
        let entry = self.keys.get(&text_key(chat, id)).await?;
        Ok(entry.and_then(|entry| serde_json::from_slice(&entry.value).ok()))
    }

    /// Keeps what the message of a question shows. The first text is kept, because it may be visible already.
    pub(crate) async fn keep_text(
        &self,
        chat: &str,
        id: &str,
        text: &QuestionText,
    ) -> Result<(), KeyError> {
        let value = Bytes::from(serde_json::to_vec(text).unwrap_or_default());
        match self.keys.create(&text_key(chat, id), value).await {
            Ok(_) | Err(KeyError::Exists) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Changes the record of a chat, unless `change` returns that it changed nothing.
    async fn change(
        &self,
        chat: &str,
        mut change: impl FnMut(&mut RevisedQuestions) -> bool,
    ) -> Result<(), KeyError> {
        for _ in 0..MAX_ATTEMPTS {
            let mut record = self.read(chat).await?;
            if !change(&mut record) {
                return Ok(());
            }
            match self.write(chat, &record).await {
                // Another replica or a press was faster: its change is read first.
                Err(KeyError::Stale | KeyError::Exists) => {}
                written => return written,
            }
        }
        Err(KeyError::Stale)
    }
}

fn record_key(chat: &str) -> String {
    format!("questions.{chat}")
}

// Names of chats and ids of questions have no character that keys do not have.
fn text_key(chat: &str, id: &str) -> String {
    format!("question-text.{chat}.{id}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn question(id: usize, kind: QuestionKind) -> OpenQuestion {
        OpenQuestion {
            id: id.to_string(),
            kind,
            message_id: None,
            expires_ms: 0,
            due_ms: 0,
            attempts: 0,
            press: None,
        }
    }

    #[test]
    fn questions_about_hosts_leave_room_for_calls() {
        let mut record = RevisedQuestions::default();
        for id in 0..MAX_HOST_QUESTIONS {
            assert!(record.add(question(id, QuestionKind::Host)));
        }
        assert!(!record.add(question(MAX_HOST_QUESTIONS, QuestionKind::Host)));
        for id in MAX_HOST_QUESTIONS..MAX_OPEN_QUESTIONS {
            assert!(record.add(question(id, QuestionKind::Call)));
        }
        assert!(!record.add(question(MAX_OPEN_QUESTIONS, QuestionKind::Call)));
    }
}
