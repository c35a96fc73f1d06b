//! Checkpoints of a response. Before and after each round of tools the progress of the turn is stored, so that another
//! replica can finish the response if this process dies. A response in the background has checkpoints from its first
//! round on, one with a client from its first question in a chat on.

use dray_agent::failure::RequestFailure;
use dray_agent::message::{Message, Role, ToolCall};
use dray_agent::state::HISTORY_KEY;
use dray_tool::Turn;
use serde_json::{Value, json};

use super::TurnRecords;
use super::finish::StatePacker;
use super::handoff::TurnAgents;
use super::paused::{PausedTurn, ResumedRecord};
use super::prepare::with_stable_names;
use super::waiting::WaitingCall;
use crate::progress::ResponseRun;

/// Stores the checkpoints of one response.
#[derive(Debug)]
pub(super) struct Checkpoints<'a> {
    pub(super) records: &'a TurnRecords,
    pub(super) principal: &'a str,
    pub(super) run: &'a ResponseRun,
    /// Index of the first message that this request adds.
    pub(super) begins_at: usize,
    /// The record with which the turn continues; when the response was taken over, its checkpoint.
    pub(super) resumed: Option<&'a ResumedRecord>,
    pub(super) turn: &'a Turn,
    /// The agents that can answer in this request.
    pub(super) agents: &'a TurnAgents,
}

impl Checkpoints<'_> {
    /// Stores the progress before calls are made. The replica that finishes the response repeats those in `repeated`,
    /// and makes those in `in_chats` when their chats permit it: each decision is used once, so a call that was begun
    /// is not repeated. With `None`, a call must not be repeated, and the response fails if this process ends. Returns
    /// the name of the checkpoint, which is empty if none was stored.
    ///
    /// # Errors
    ///
    /// An earlier checkpoint could not be removed. With it another replica would repeat the calls that follow.
    pub(super) async fn begin_round(
        &self,
        messages: &[Message],
        repeated: Option<&[ToolCall]>,
        in_chats: &[WaitingCall],
    ) -> Result<String, RequestFailure> {
        if in_chats.is_empty() && !self.run.has_checkpoints() {
            return Ok(String::new());
        }
        let Some(repeated) = repeated else {
            self.close().await?;
            return Ok(String::new());
        };
        if let Err(failure) = self.records.progress.begin(self.run).await {
            tracing::warn!(%failure, "a response that asks a chat has no checkpoint");
            return Ok(String::new());
        }
        let stored = self.store(messages, repeated, in_chats).await;
        if stored.is_none() && !in_chats.is_empty() {
            // An earlier checkpoint would ask the model and the chats again, even about a call that was made.
            self.close().await?;
        }
        Ok(stored.unwrap_or_default())
    }

    /// Stores the progress when all calls of a round have their results.
    pub(super) async fn end_round(&self, messages: &[Message]) {
        if self.run.has_checkpoints() {
            self.store(messages, &[], &[]).await;
        }
    }

    /// Whether a client waits for the response on a connection, and can continue the turn by another request.
    pub(super) const fn has_client(&self) -> bool {
        self.run.has_client()
    }

    /// Removes the checkpoint: from here on the response fails if this process ends.
    ///
    /// # Errors
    ///
    /// Those of [`Checkpoints::begin_round`].
    pub(super) async fn close(&self) -> Result<(), RequestFailure> {
        if !self.run.has_checkpoints() {
            return Ok(());
        }
        self.records
            .progress
            .set(self.principal, self.run, None)
            .await
    }

    /// Returns the name of the checkpoint, if it was stored.
    async fn store(
        &self,
        messages: &[Message],
        repeated: &[ToolCall],
        in_chats: &[WaitingCall],
    ) -> Option<String> {
        let round_index = messages
            .iter()
            .rposition(|message| !message.calls().is_empty());
        let (round_index, (round, after)) = round_index.and_then(|round_index| {
            Some((round_index, messages.get(round_index..)?.split_first()?))
        })?;
        let before = messages
            .get(self.first_index(messages)..round_index)
            .unwrap_or_default();
        let results = after.iter().filter(|message| message.role == Role::Tool);
        let record = PausedTurn {
            created_ms: self.records.paused.now_ms(),
            state: self.state(before, messages),
            round: with_stable_names(round),
            results: results.map(with_stable_names).collect(),
            pending: Vec::new(),
            approvals: Vec::new(),
            later: in_chats.to_vec(),
            repeated: repeated.to_vec(),
            replaces: None,
        };
        let stored = async {
            let token = self.records.paused.save(self.principal, &record).await?;
            let progress = &self.records.progress;
            let set = progress.set(self.principal, self.run, Some(&token));
            set.await.map(|()| token)
        };
        let stored = stored.await.inspect_err(|failure| {
            // The calls that run now may be repeated, so an earlier checkpoint can stay.
            tracing::warn!(%failure, "a response has no newer checkpoint");
        });
        stored.ok()
    }

    fn resumed(&self) -> Option<&ResumedRecord> {
        self.resumed.filter(|_| self.run.takeovers > 0)
    }

    /// Index of the first message of a checkpoint: the round with which the turn was resumed, otherwise the first
    /// message of this request.
    fn first_index(&self, messages: &[Message]) -> usize {
        let Some(first) = self
            .resumed()
            .and_then(|resumed| resumed.first_call.as_deref())
        else {
            return self.begins_at;
        };
        let is_round = |message: &Message| message.calls().iter().any(|call| call.id == first);
        let own = messages.get(..self.begins_at).unwrap_or_default();
        own.iter().rposition(is_round).unwrap_or(self.begins_at)
    }

    fn state(&self, new: &[Message], messages: &[Message]) -> Value {
        let mut state = StatePacker { turn: self.turn }.pack(new, messages);
        let earlier = self
            .resumed
            .and_then(|resumed| resumed.state.get(HISTORY_KEY)?.as_array());
        if let (Some(earlier), Some(members)) = (earlier, state.as_object_mut()) {
            let rounds = members.entry(HISTORY_KEY).or_insert_with(|| json!([]));
            if let Some(rounds) = rounds.as_array_mut() {
                rounds.splice(..0, earlier.iter().cloned());
            }
        }
        // The replica that finishes the response continues with the same sandbox and files.
        super::session::note_session(&mut state, &self.turn.session);
        self.agents.note(&mut state);
        state
    }
}
