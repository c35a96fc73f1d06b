//! Checkpoints of a response in the background. Before and after each round of tools the progress of the turn is
//! stored, so that another replica can finish the response if this process dies.

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
    /// Called before calls are made. The replica that finishes the response repeats those in `repeated`. With `None`,
    /// one of them must not be repeated, and the response fails if this process ends.
    ///
    /// # Errors
    ///
    /// An earlier checkpoint could not be removed. With it another replica would repeat the calls that follow.
    pub(super) async fn begin_round(
        &self,
        messages: &[Message],
        repeated: Option<&[ToolCall]>,
    ) -> Result<(), RequestFailure> {
        let Some(repeated) = repeated else {
            return self.close().await;
        };
        self.store(messages, repeated.to_vec()).await;
        Ok(())
    }

    /// Called when all calls of a round have their results.
    pub(super) async fn end_round(&self, messages: &[Message]) {
        self.store(messages, Vec::new()).await;
    }

    /// From here on the response fails if this process ends.
    ///
    /// # Errors
    ///
    /// As [`Checkpoints::begin_round`].
    pub(super) async fn close(&self) -> Result<(), RequestFailure> {
        self.records
            .progress
            .set(self.principal, self.run, None)
            .await
    }

    async fn store(&self, messages: &[Message], repeated: Vec<ToolCall>) {
        let round_index = messages.iter().rposition(|one| !one.calls().is_empty());
        let Some((round_index, (round, after))) = round_index.and_then(|round_index| {
            Some((round_index, messages.get(round_index..)?.split_first()?))
        }) else {
            return;
        };
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
            later: Vec::new(),
            repeated,
            replaces: None,
        };
        let stored = async {
            let token = self.records.paused.save(self.principal, &record).await?;
            self.records
                .progress
                .set(self.principal, self.run, Some(&token))
                .await
        };
        if let Err(failure) = stored.await {
            // The calls that run now may be repeated, so an earlier checkpoint can stay.
            tracing::warn!(%failure, "a response has no newer checkpoint");
        }
    }

    fn resumed(&self) -> Option<&ResumedRecord> {
        self.resumed.filter(|_| self.run.takeovers > 0)
    }

    /// Index of the first message of a checkpoint: the round with which the turn was resumed, otherwise the first
    /// message of this request.
    fn first_index(&self, messages: &[Message]) -> usize {
        let Some(first) = self.resumed().and_then(|one| one.first_call.as_deref()) else {
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
            .and_then(|one| one.state.get(HISTORY_KEY)?.as_array());
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
