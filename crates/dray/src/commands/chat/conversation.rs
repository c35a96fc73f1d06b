//! The conversation and its file: JSON, version 1, written completely and readable only by its owner.

use std::io::{ErrorKind, Read as _, Write as _};
use std::path::{Path, PathBuf};

use dray_agent::message::{Message, Role, shape};
use dray_types::Sha256Digest;
use serde::{Deserialize, Serialize};

use crate::outcome::CommandFailure;

/// Version of the format. A file with another version is refused and not changed.
const FORMAT_VERSION: u32 = 1;
/// Largest file that is read, in bytes.
const MAX_CONVERSATION_BYTES: u64 = 256 << 20;

/// The content of the file.
#[derive(Debug, Serialize, Deserialize)]
struct SavedConversation {
    version: u32,
    messages: Vec<Message>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    unanswered: Option<Message>,
}

/// A conversation, with its file, if one was given.
#[derive(Debug, Default)]
pub(super) struct ConversationFile {
    /// Questions and answers in turn; it ends with an answer.
    messages: Vec<Message>,
    /// A question whose answer failed or was stopped.
    unanswered: Option<Message>,
    file: Option<PathBuf>,
    /// Digest of the file as this program last read or wrote it; `None` if it does not exist.
    known: Option<Sha256Digest>,
}

/// A question that was not yet answered.
#[derive(Debug)]
pub(super) struct ChatQuestion {
    message: Message,
    /// Number of messages before it.
    after: usize,
}

impl ConversationFile {
    /// A new conversation, or the one in `file`. Checks that the file can be written, before a question is asked.
    pub(super) fn open(file: Option<&Path>) -> Result<Self, CommandFailure> {
        let Some(file) = file else {
            return Ok(Self::default());
        };
        // A symbolic link is kept: writing replaces its target.
        let file = file.canonicalize().unwrap_or_else(|_| file.to_owned());
        let found = read_conversation_file(&file)?;
        let directory = directory_of(&file);
        // Writing replaces the file by a new one, so the directory must be writable.
        tempfile::NamedTempFile::new_in(directory).map_err(CommandFailure::local(format!(
            "cannot write {}",
            file.display()
        )))?;
        let Some(bytes) = found else {
            return Ok(Self {
                file: Some(file),
                ..Self::default()
            });
        };
        let saved = parse_conversation(&bytes).map_err(|reason| {
            CommandFailure::Usage(format!(
                "{} is not a conversation: {reason}. It was not changed; name another file with --conversation",
                file.display()
            ))
        })?;
        Ok(Self {
            messages: saved.messages,
            unanswered: saved.unanswered,
            file: Some(file),
            known: Some(Sha256Digest::of(&bytes)),
        })
    }

    /// Whether the conversation is stored in a file.
    pub(super) const fn has_file(&self) -> bool {
        self.file.is_some()
    }

    /// Begins a question. An earlier one without an answer is dropped.
    pub(super) fn begin_question(&mut self, message: Message) -> ChatQuestion {
        self.unanswered = None;
        ChatQuestion {
            message,
            after: self.messages.len(),
        }
    }

    /// Returns the last question for a retry: the unanswered one, otherwise the one whose answer will be replaced.
    pub(super) fn retry_question(&mut self) -> Option<ChatQuestion> {
        if let Some(message) = self.unanswered.take() {
            return Some(ChatQuestion {
                message,
                after: self.messages.len(),
            });
        }
        let after = self.messages.len().checked_sub(2)?;
        let message = self.messages.get(after)?.clone();
        Some(ChatQuestion { message, after })
    }

    /// All messages that are sent with a question, oldest first.
    pub(super) fn messages<'a>(&'a self, question: &'a ChatQuestion) -> Vec<&'a Message> {
        let before = self.messages.iter().take(question.after);
        before.chain([&question.message]).collect()
    }

    /// Adds a question with its answer, which replaces an earlier answer to it.
    pub(super) fn record_answer(&mut self, question: ChatQuestion, answer: Message) {
        self.messages.truncate(question.after);
        self.messages.extend([question.message, answer]);
    }

    /// Records that a question has no answer, for `/retry`. An earlier answer to the same question is kept.
    pub(super) fn record_unanswered(&mut self, question: ChatQuestion) {
        if question.after == self.messages.len() {
            self.unanswered = Some(question.message);
        }
    }

    /// Writes the file, if there is one. Fails if another program has changed it.
    pub(super) fn save(&mut self) -> Result<(), CommandFailure> {
        let Some(file) = self.file.clone() else {
            return Ok(());
        };
        // This check is not atomic with the write below. It detects a second chat on the same file, but not a race
        // within milliseconds.
        let there = read_conversation_file(&file)?.map(|bytes| Sha256Digest::of(&bytes));
        if there != self.known {
            return Err(CommandFailure::Usage(format!(
                "{} was changed by another program and is not overwritten; keep this conversation with /save FILE",
                file.display()
            )));
        }
        self.known = Some(self.write(&file, true)?);
        Ok(())
    }

    /// Writes a copy to a new file. An existing file is not replaced.
    pub(super) fn copy(&self, file: &Path) -> Result<(), CommandFailure> {
        self.write(file, false).map(drop)
    }

    fn write(&self, file: &Path, replace: bool) -> Result<Sha256Digest, CommandFailure> {
        let saved = SavedConversation {
            version: FORMAT_VERSION,
            messages: self.messages.clone(),
            unanswered: self.unanswered.clone(),
        };
        let write_error = || CommandFailure::local(format!("cannot write {}", file.display()));
        let bytes = serde_json::to_vec_pretty(&saved)
            .map_err(std::io::Error::from)
            .map_err(write_error())?;
        // The draft is in the same directory, so that it can be renamed into place. `tempfile` makes it readable only
        // for its owner.
        let mut part = tempfile::NamedTempFile::new_in(directory_of(file)).map_err(write_error())?;
        part.write_all(&bytes).map_err(write_error())?;
        // The file is synced before the rename: after a crash the name must not lead to a file without content.
        part.as_file().sync_all().map_err(write_error())?;
        let placed = if replace {
            part.persist(file)
        } else {
            part.persist_noclobber(file)
        };
        placed.map_err(|error| write_error()(error.error))?;
        Ok(Sha256Digest::of(&bytes))
    }
}

fn directory_of(file: &Path) -> &Path {
    match file.parent() {
        // A bare file name has an empty parent.
        Some(directory) if !directory.as_os_str().is_empty() => directory,
        _ => Path::new("."),
    }
}

/// The bytes of the file; `None` if it does not exist.
fn read_conversation_file(file: &Path) -> Result<Option<Vec<u8>>, CommandFailure> {
    let read_error = || CommandFailure::local(format!("cannot read {}", file.display()));
    let metadata = match file.metadata() {
        Ok(metadata) => metadata,
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(read_error()(error)),
    };
    // Only regular files are read: opening a named pipe would wait for a writer.
    if !metadata.is_file() {
        return Err(CommandFailure::Usage(format!(
            "{} is not a file that can hold a conversation",
            file.display()
        )));
    }
    let mut bytes = Vec::new();
    let mut opened = std::fs::File::open(file)
        .map_err(read_error())?
        .take(MAX_CONVERSATION_BYTES + 1);
    opened.read_to_end(&mut bytes).map_err(read_error())?;
    if bytes.len() as u64 > MAX_CONVERSATION_BYTES {
        return Err(CommandFailure::Usage(format!(
            "{} is too large for a conversation",
            file.display()
        )));
    }
    Ok(Some(bytes))
}

fn parse_conversation(bytes: &[u8]) -> Result<SavedConversation, String> {
    // The version is read first: another version may have members of other types.
    #[derive(Deserialize)]
    struct VersionHead {
        version: u32,
    }
    let head: VersionHead = serde_json::from_slice(bytes).map_err(|error| error.to_string())?;
    if head.version != FORMAT_VERSION {
        return Err(format!(
            "its version is {}, and this program knows {FORMAT_VERSION}",
            head.version
        ));
    }
    let saved: SavedConversation =
        serde_json::from_slice(bytes).map_err(|error| error.to_string())?;
    // The roles are checked with a question at the end, as the next request has one: the server would refuse a wrong
    // order.
    let mut roles: Vec<_> = saved.messages.iter().map(|message| message.role).collect();
    roles.push(
        saved
            .unanswered
            .as_ref()
            .map_or(Role::User, |message| message.role),
    );
    shape::check_roles(&roles).map_err(|error| error.display_message())?;
    Ok(saved)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use serde_json::json;

    use super::*;

    fn user(text: &str) -> Message {
        Message::new(Role::User, text)
    }

    fn add_exchange(conversation: &mut ConversationFile, text: &str, answer: &Message) {
        let question = conversation.begin_question(user(text));
        conversation.record_answer(question, answer.clone());
    }

    fn texts(conversation: &ConversationFile, question: &ChatQuestion) -> Vec<String> {
        let text = |message: &&Message| serde_json::to_value(&message.content).unwrap();
        let texts = conversation.messages(question);
        texts
            .iter()
            .map(|message| text(message).as_str().unwrap().to_owned())
            .collect()
    }

    #[test]
    fn a_conversation_continues_with_its_messages_and_state() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("a.json");
        let answer: Message = serde_json::from_value(json!({
            "role": "assistant", "content": "yes",
            "custom_content": {"state": {"tool_execution_history": [{"role": "tool", "z": 1.50}], "mine": null}},
        }))
        .unwrap();
        let mut conversation = ConversationFile::open(Some(&file)).unwrap();
        add_exchange(&mut conversation, "one", &answer);
        conversation.save().unwrap();
        let mode = file.metadata().unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        let mut conversation = ConversationFile::open(Some(&file)).unwrap();
        assert_eq!(conversation.messages, [user("one"), answer]);
        let question = conversation.begin_question(user("two"));
        assert_eq!(texts(&conversation, &question), ["one", "yes", "two"]);
        conversation.save().unwrap();
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_question_without_an_answer_is_asked_again_and_never_sent_twice() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("a.json");
        let mut conversation = ConversationFile::open(Some(&file)).unwrap();
        add_exchange(
            &mut conversation,
            "one",
            &Message::new(Role::Assistant, "1"),
        );
        let question = conversation.begin_question(user("two"));
        conversation.record_unanswered(question);
        conversation.save().unwrap();
        let mut conversation = ConversationFile::open(Some(&file)).unwrap();
        let question = conversation.retry_question().unwrap();
        assert_eq!(texts(&conversation, &question), ["one", "1", "two"]);
        conversation.record_unanswered(question);
        let question = conversation.begin_question(user("three"));
        assert_eq!(texts(&conversation, &question), ["one", "1", "three"]);
    }

    #[test]
    fn a_second_answer_replaces_the_first() {
        let mut conversation = ConversationFile::default();
        assert!(conversation.retry_question().is_none());
        add_exchange(
            &mut conversation,
            "one",
            &Message::new(Role::Assistant, "1"),
        );
        let question = conversation.retry_question().unwrap();
        assert_eq!(texts(&conversation, &question), ["one"]);
        conversation.record_unanswered(question);
        let question = conversation.retry_question().unwrap();
        assert_eq!(texts(&conversation, &question), ["one"]);
        conversation.record_answer(question, Message::new(Role::Assistant, "uno"));
        let question = conversation.begin_question(user("two"));
        assert_eq!(texts(&conversation, &question), ["one", "uno", "two"]);
    }

    #[test]
    fn a_file_that_is_not_a_conversation_is_refused_and_not_changed() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("a.json");
        for (text, reason) in [
            ("", "EOF"),
            ("{", "EOF"),
            ("[]", "invalid"),
            (r#"{"version": 2, "messages": "later"}"#, "version is 2"),
            (
                r#"{"version": 1, "messages": [{"role": "robot"}]}"#,
                "robot",
            ),
            (
                r#"{"version": 1, "messages": [{"role": "user", "content": "a"}]}"#,
                "expected role 'assistant'",
            ),
        ] {
            std::fs::write(&file, text).unwrap();
            let refused = ConversationFile::open(Some(&file)).unwrap_err().to_string();
            assert!(refused.contains(reason), "{refused}");
            assert_eq!(std::fs::read_to_string(&file).unwrap(), text);
        }
        let refused = ConversationFile::open(Some(directory.path())).unwrap_err();
        assert!(matches!(refused, CommandFailure::Usage(_)));
        let refused =
            ConversationFile::open(Some(&directory.path().join("none/a.json"))).unwrap_err();
        assert!(matches!(refused, CommandFailure::Local { .. }));
    }

    #[test]
    fn a_file_of_another_writer_is_not_overwritten() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("a.json");
        let mut conversation = ConversationFile::open(Some(&file)).unwrap();
        std::fs::write(&file, "mine").unwrap();
        assert!(
            matches!(conversation.save(), Err(CommandFailure::Usage(reason)) if reason.contains("/save"))
        );
        assert!(conversation.copy(&file).is_err());
        assert_eq!(std::fs::read_to_string(&file).unwrap(), "mine");
        conversation.copy(&directory.path().join("b.json")).unwrap();
        assert!(ConversationFile::open(Some(&directory.path().join("b.json"))).is_ok());
    }
}
