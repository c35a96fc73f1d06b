//! Conversations of the playground, in memory: their messages, and the answer that is arriving.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use dray_agent::message::{Attachment, Message};
use dray_dial::chat::{ChatAnswer, ChunkDelta, StageDelta, StageEnd};
use dray_types::hex::hex_digits;
use dray_types::{Fault, FaultCode, OperationId};
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

/// Most conversations of one login.
const MAX_LOGIN_CONVERSATIONS: usize = 4;
/// Most conversations of the console.
const MAX_CONVERSATIONS: usize = 16;
/// Bytes of messages and stages from which on a conversation accepts no further message.
const MAX_CONVERSATION_BYTES: usize = 12 << 20;
/// Most messages of a person in one conversation.
const MAX_TURNS: usize = 50;
/// Largest answer in bytes of text, attachments and state together: the agent is not trusted.
const MAX_ANSWER_BYTES: usize = 8 << 20;
/// Stages of one answer that are kept.
const MAX_STAGES: usize = 200;
/// Text of all stages of one answer that is kept, in bytes.
const MAX_STAGE_BYTES: usize = 256 * 1024;

/// All open conversations of the console.
#[derive(Debug, Default)]
pub(crate) struct ConversationStore(Mutex<HashMap<String, Arc<Conversation>>>);

impl ConversationStore {
    /// The conversation with this id; `None` for a login that did not begin it.
    pub(super) fn find(&self, id: &str, login: &str) -> Option<Arc<Conversation>> {
        let conversations = self.lock();
        let conversation = conversations.get(id)?;
        (conversation.login == login).then(|| Arc::clone(conversation))
    }

    /// The conversations of a login, oldest first.
    pub(super) fn of_login(&self, login: &str) -> Vec<Arc<Conversation>> {
        let conversations = self.lock();
        let own = conversations.values().filter(|own| own.login == login);
        let mut own: Vec<_> = own.map(Arc::clone).collect();
        own.sort_by(|left, right| (left.begun_ms, &left.id).cmp(&(right.begun_ms, &right.id)));
        own
    }

    /// Removes the conversations of logins that ended, and begins a conversation with an agent. A form that was sent
    /// before gets the conversation that it began.
    ///
    /// # Errors
    /// The login or the console has reached its limit of conversations.
    pub(super) fn begin(
        &self,
        login: &str,
        agent: &str,
        form: &OperationId,
        now_ms: u64,
        is_open: impl Fn(&str) -> bool,
    ) -> Result<BegunConversation, Fault> {
        let mut conversations = self.lock();
        let mut all = conversations.values();
        let repeated = all.find(|begun| begun.login == login && begun.form == *form);
        if let Some(conversation) = repeated {
            return Ok(BegunConversation::Repeated(Arc::clone(conversation)));
        }
        conversations.retain(|_, conversation| {
            let is_kept = is_open(&conversation.login);
            if !is_kept {
                conversation.cancel();
            }
            is_kept
        });
        let own = conversations.values().filter(|own| own.login == login);
        if own.count() >= MAX_LOGIN_CONVERSATIONS || conversations.len() >= MAX_CONVERSATIONS {
            return Err(
                Fault::new(FaultCode::RateLimited, "Too many conversations are open.")
                    .detail("conversations")
                    .advice("End one of them."),
            );
        }
        // 128 random bits, so that no other conversation can be guessed from the URL of a page.
        let id = hex_digits(&rand::random::<[u8; 16]>());
        let conversation = Arc::new(Conversation {
            id: id.clone(),
            login: login.to_owned(),
            agent: agent.to_owned(),
            form: form.clone(),
            begun_ms: now_ms,
            content: Mutex::default(),
            revision: watch::Sender::new(0),
        });
        conversations.insert(id, Arc::clone(&conversation));
        Ok(BegunConversation::New(conversation))
    }

    /// Forgets a conversation and cancels its answer.
    pub(super) fn end(&self, id: &str, login: &str) {
        if let Some(conversation) = self.find(id, login) {
            conversation.cancel();
            self.lock().remove(id);
        }
    }

    /// Forgets all conversations of a login.
    pub(crate) fn end_login(&self, login: &str) {
        self.lock().retain(|_, conversation| {
            let is_kept = conversation.login != login;
            if !is_kept {
                conversation.cancel();
            }
            is_kept
        });
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, Arc<Conversation>>> {
        // Every change is one insertion or removal, so a poisoned map is still whole.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The conversation of a form that begins one.
#[derive(Debug)]
pub(super) enum BegunConversation {
    New(Arc<Conversation>),
    /// The form was sent before.
    Repeated(Arc<Conversation>),
}

/// One conversation with an agent.
#[derive(Debug)]
pub(crate) struct Conversation {
    pub(super) id: String,
    login: String,
    pub(super) agent: String,
    /// Operation of the form that began it.
    form: OperationId,
    begun_ms: u64,
    content: Mutex<ConversationContent>,
    /// Grows with every change; readers wait for it.
    revision: watch::Sender<u64>,
}

/// Turns and messages of one conversation.
#[derive(Debug, Default)]
pub(super) struct ConversationContent {
    /// Questions and answers of the turns that were completed, as the next request repeats them.
    messages: Vec<Message>,
    /// Bytes of messages and stages.
    bytes: usize,
    pub(super) turns: Vec<ChatTurn>,
    running: Option<CancellationToken>,
}

/// Whether a form began a turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BegunTurn {
    New,
    /// The form was sent before.
    Repeated,
}

/// A message of the person and its answer.
#[derive(Debug)]
pub(super) struct ChatTurn {
    /// Operation of the form that sent it.
    form: OperationId,
    /// The text of the person.
    pub(super) text: String,
    /// Names and sizes of the attached files.
    pub(super) files: Vec<(String, usize)>,
    /// Number of messages of the conversation before it.
    after: usize,
    /// The message as it is sent; `None` while its files are uploaded.
    question: Option<Message>,
    pub(super) answer: String,
    pub(super) stages: Vec<AnswerStage>,
    pub(super) attachments: Vec<Attachment>,
    pub(super) ending: TurnEnding,
    stage_bytes: usize,
    /// Revision of the newest attachment.
    pub(super) attached_at: u64,
}

/// Whether and how a turn ended.
#[derive(Clone, Debug)]
pub(super) enum TurnEnding {
    /// The answer is not complete.
    Running,
    /// With the reason that the agent names, and the tokens of question and answer where it reports them.
    Done {
        reason: String,
        tokens: Option<(u64, u64)>,
    },
    /// The person cancelled it, or the login or the console ended.
    Cancelled,
    /// The reason why the answer is absent or incomplete.
    Failed(Box<Fault>),
}

/// A step of the agent.
#[derive(Debug)]
pub(super) struct AnswerStage {
    /// Number of the stage in the answer.
    pub(super) index: u32,
    pub(super) name: String,
    pub(super) content: String,
    /// Names of files of the stage.
    pub(super) files: Vec<String>,
    /// The end of the stage; `None` while it runs.
    pub(super) status: Option<StageEnd>,
    /// Whether text was dropped at the limit [`MAX_STAGE_BYTES`].
    pub(super) is_cut: bool,
    /// Revision of its newest change.
    pub(super) changed_at: u64,
}

impl Conversation {
    /// Begins a turn, unless its form was sent before. Its answer ends when the token is cancelled.
    ///
    /// # Errors
    /// The previous answer is not complete, or the conversation has reached its limit of length.
    pub(super) fn begin_turn(
        &self,
        form: &OperationId,
        text: String,
        files: Vec<(String, usize)>,
        cancel: CancellationToken,
    ) -> Result<BegunTurn, Fault> {
        let mut content = self.lock();
        // This check precedes the next one: a double click must not show that the turn of its first request still runs.
        if content.turns.iter().any(|turn| turn.form == *form) {
            return Ok(BegunTurn::Repeated);
        }
        if content.running.is_some() {
            return Err(
                Fault::new(FaultCode::RateLimited, "The last answer is not complete.")
                    .detail("turn_running")
                    .advice("Wait for it, or cancel it."),
            );
        }
        if content.turns.len() >= MAX_TURNS || content.bytes >= MAX_CONVERSATION_BYTES {
            return Err(Fault::new(
                FaultCode::TooLarge,
                "The conversation has reached the longest length that the playground keeps.",
            )
            .detail("conversation_length")
            .advice("Begin another one."));
        }
        content.running = Some(cancel);
        // The request page rebuilds the request of a turn with the messages before this number.
        let after = content.messages.len();
        content.turns.push(ChatTurn {
            form: form.clone(),
            text,
            files,
            after,
            question: None,
            answer: String::new(),
            stages: Vec::new(),
            attachments: Vec::new(),
            ending: TurnEnding::Running,
            stage_bytes: 0,
            attached_at: 0,
        });
        Ok(BegunTurn::New)
    }

    /// Removes the newest turn, which was not sent.
    pub(super) fn drop_turn(&self) {
        let mut content = self.lock();
        content.running = None;
        // The newest turn is the one to remove, because no other turn begins while it runs.
        content.turns.pop();
    }

    /// Sets the message of the newest turn, and returns the body of its request.
    pub(super) fn set_question(&self, question: Message) -> Value {
        let mut content = self.lock();
        let newest = content.turns.len().saturating_sub(1);
        if let Some(turn) = content.turns.last_mut() {
            turn.question = Some(question);
        }
        content.request(&self.agent, newest).unwrap_or_default()
    }

    /// The body of the request of a turn; `None` before it is known.
    pub(super) fn request(&self, turn: usize) -> Option<Value> {
        self.lock().request(&self.agent, turn)
    }

    /// Adds a chunk of the newest turn's answer.
    ///
    /// # Errors
    /// The answer is larger than [`MAX_ANSWER_BYTES`].
    pub(super) fn add(&self, answer: &mut ChatAnswer, delta: ChunkDelta) -> Result<(), Fault> {
        let mut content = self.lock();
        let revision = *self.revision.borrow() + 1;
        if let Some(turn) = content.turns.last_mut() {
            for stage in &delta.stages {
                turn.add_stage(stage, revision);
            }
            turn.answer.extend(delta.content.iter().map(String::as_str));
            if !delta.attachments.is_empty() {
                turn.attachments.extend(delta.attachments.iter().cloned());
                turn.attached_at = revision;
            }
        }
        answer.add(delta);
        // The readers are notified after the lock is released, because each woken reader takes the lock.
        drop(content);
        self.revision.send_replace(revision);
        if answer.size() > MAX_ANSWER_BYTES {
            return Err(Fault::new(
                FaultCode::TooLarge,
                "The answer is larger than the 8 MiB that the playground keeps.",
            )
            .detail("answer_too_large"));
        }
        Ok(())
    }

    /// Ends the newest turn. A complete answer becomes part of the conversation. An incomplete answer is only shown:
    /// the next request has neither the answer nor its question.
    pub(super) fn end_turn(&self, ending: TurnEnding, answer: ChatAnswer) {
        let mut content = self.lock();
        let size = answer.size();
        let mut question = None;
        let mut stage_bytes = 0;
        if let Some(turn) = content.turns.last_mut() {
            stage_bytes = turn.stage_bytes;
            if matches!(ending, TurnEnding::Done { .. }) {
                question.clone_from(&turn.question);
            }
            turn.ending = ending;
        }
        if let Some(question) = question {
            content.bytes += question_bytes(&question);
            content.messages.push(question);
            content.messages.push(answer.into_message());
        }
        // A failed answer counts too, because it stays on the page.
        content.bytes += size + stage_bytes;
        content.running = None;
        drop(content);
        let revision = *self.revision.borrow() + 1;
        self.revision.send_replace(revision);
    }

    /// Cancels the running answer, if there is one.
    pub(super) fn cancel(&self) {
        if let Some(running) = &self.lock().running {
            running.cancel();
        }
    }

    /// Reads turns and messages while they are locked.
    pub(super) fn read<T>(&self, read: impl FnOnce(&ConversationContent) -> T) -> T {
        read(&self.lock())
    }

    /// Changes with every change of the conversation.
    pub(super) fn watch_revision(&self) -> watch::Receiver<u64> {
        self.revision.subscribe()
    }

    fn lock(&self) -> MutexGuard<'_, ConversationContent> {
        // No method panics between two changes that belong together, so a poisoned content is still consistent.
        self.content.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl ConversationContent {
    fn request(&self, agent: &str, turn: usize) -> Option<Value> {
        let turn = self.turns.get(turn)?;
        let question = turn.question.as_ref()?;
        let before = self.messages.get(..turn.after).unwrap_or_default();
        let messages: Vec<&Message> = before.iter().chain([question]).collect();
        Some(json!({ "model": agent, "messages": messages, "stream": true }))
    }
}

impl ChatTurn {
    fn add_stage(&mut self, delta: &StageDelta, revision: u64) {
        let position = self
            .stages
            .iter()
            .position(|stage| stage.index == delta.index);
        if position.is_none() && self.stages.len() >= MAX_STAGES {
            return;
        }
        let position = position.unwrap_or(self.stages.len());
        if position == self.stages.len() {
            self.stages.push(AnswerStage {
                index: delta.index,
                name: String::new(),
                content: String::new(),
                files: Vec::new(),
                status: None,
                is_cut: false,
                changed_at: 0,
            });
        }
        let Some(stage) = self.stages.get_mut(position) else {
            return;
        };
        let used_bytes = &mut self.stage_bytes;
        stage.is_cut |= !append(&mut stage.name, delta.name.as_deref(), used_bytes);
        stage.is_cut |= !append(&mut stage.content, delta.content.as_deref(), used_bytes);
        for file in &delta.attachments {
            let mut name = String::new();
            stage.is_cut |= !append(
                &mut name,
                file.title.as_deref().or(Some("file")),
                used_bytes,
            );
            stage.files.push(name);
        }
        stage.status = delta.status.or(stage.status);
        stage.changed_at = revision;
    }
}

/// Appends as much text as [`MAX_STAGE_BYTES`] allows, counts it in `used_bytes`, and returns whether all of it fitted.
fn append(text: &mut String, more: Option<&str>, used_bytes: &mut usize) -> bool {
    let more = more.unwrap_or_default();
    let free_bytes = MAX_STAGE_BYTES.saturating_sub(*used_bytes);
    let fitting_bytes = more.floor_char_boundary(free_bytes);
    text.push_str(more.get(..fitting_bytes).unwrap_or_default());
    *used_bytes += fitting_bytes;
    fitting_bytes == more.len()
}

fn question_bytes(question: &Message) -> usize {
    serde_json::to_vec(question).map_or(0, |bytes| bytes.len())
}

#[cfg(test)]
mod tests;
