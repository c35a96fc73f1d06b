//! Handoffs: another agent continues the turn. It gets the request and the tool rounds of the agents before it.

use std::sync::Arc;

use dray_agent::clock::CLOCK_TOOL;
use dray_agent::failure::RequestFailure;
use dray_agent::message::{Message, Role};
use dray_agent::notify::LIST_TOOL;
use dray_agent::pair;
use dray_agent::skill::READ_SKILL_TOOL;
use dray_proto::v1::TurnCause;
use tokio::time::Instant;
use tracing::Instrument as _;

use super::body::ClientParameters;
use super::handoff::{HandoffContext, HandoffRequest, InheritedTurn};
use super::open::{OpenTurn, TurnEntry, open_agent};
use super::sequence::TurnPart;
use super::settle::place_result;
use super::telemetry::TurnTelemetry;
use crate::http::ManifestSource;

/// Synthetic tools whose results each agent adds for itself, so that they are not handed over.
pub(super) const ADDED_AGAIN: [&str; 3] = [CLOCK_TOOL, LIST_TOOL, READ_SKILL_TOOL];

impl OpenTurn {
    /// Hands the turn over to the agent that the model named. If that fails, this agent continues, and its model gets
    /// the reason as the result of the call.
    pub(super) async fn hand_over(mut self, handoff: HandoffRequest, has_text: bool) -> Self {
        // The basis is moved and not cloned, because the request may be megabytes.
        let Some(basis) = self.basis.take() else {
            // An agent without a basis has no tool for handoffs.
            return self;
        };
        match Box::pin(self.successor(&handoff, &basis, has_text)).await {
            Ok(mut next) => {
                self.telemetry.report.hand_over();
                next.agents.hand_over(&handoff.agent);
                next.resumed = self.resumed.take();
                let uploads = next.session.files.uploads();
                uploads.take_over(&self.session.files.uploads());
                let delivery = &next.session.files.delivery;
                delivery.take_over(&self.session.files.delivery);
                if let Some(interpreter) = self.session.turn.interpreter() {
                    next.session.turn.set_interpreter(interpreter);
                }
                // No agent follows one without handoffs, so the request need not be kept.
                let may_hand_over = next.manifest.handoff_agents().next().is_some();
                next.basis = may_hand_over.then_some(basis);
                next
            }
            Err(failure) => {
                let agent = &handoff.agent;
                tracing::warn!(%failure, %agent, "a turn could not be handed over");
                let text = format!(
                    "The agent '{agent}' could not take the conversation over, so you still answer: {}",
                    failure.message
                );
                place_result(
                    &mut self.messages,
                    &handoff.call_id,
                    Message::new(Role::Tool, text),
                );
                // The failed agent counts as one that had the turn, so that the model does not name it again and again.
                self.continue_turn(basis, has_text);
                self
            }
        }
    }

    /// Prepares for more rounds of the same agent.
    fn continue_turn(&mut self, basis: Box<HandoffContext>, has_text: bool) {
        self.response.client_parameters = later_parameters(&basis);
        self.part = TurnPart {
            continues: true,
            ..TurnPart::default()
        };
        self.basis = Some(basis);
        self.is_prepared = true;
        self.has_text = has_text;
    }

    async fn successor(
        &self,
        handoff: &HandoffRequest,
        basis: &HandoffContext,
        has_text: bool,
    ) -> Result<Self, RequestFailure> {
        let parts = &self.parts;
        let mut asked = basis.asked.clone();
        asked.manifest = ManifestSource::Named(handoff.agent.clone());
        let (before, rounds) = self.rounds();
        let messages = &mut asked.request.messages;
        take_results(messages, before);
        messages.extend(rounds.iter().cloned());
        let loading = parts
            .loader
            .load(&asked.caller, &asked.identity, &asked.manifest);
        let loaded = loading.await?;
        let parent = self.telemetry.report.as_parent(TurnCause::Handoff);
        let telemetry = Arc::new(TurnTelemetry::new(parts, &asked, Some(parent)));
        let span = telemetry.agent_span();
        let entry = TurnEntry {
            started_at: Instant::now(),
            client_parameters: later_parameters(basis),
            part: TurnPart {
                continues: basis.continues,
                takes_over: true,
                ..TurnPart::default()
            },
            agent: handoff.agent.clone(),
            agents: Arc::clone(&self.agents),
            inherited: Some(InheritedTurn {
                session: self.session.turn.session.clone(),
                conversation: self.session.pages.clone(),
                budget: Arc::clone(&self.budget),
                rounds: rounds.len(),
                has_text,
            }),
            requested: None,
            span: span.clone(),
        };
        let lineage = basis.lineage.clone();
        let opening = open_agent(parts, asked, loaded, lineage, Arc::clone(&telemetry), entry);
        let opened = Box::pin(opening.instrument(span)).await;
        telemetry.report_opening(&opened);
        opened
    }

    /// The messages before those of this request, and the rounds of tools in it.
    fn rounds(&self) -> (&[Message], Vec<Message>) {
        let is_user = |message: &Message| message.role == Role::User;
        // The messages after the last one of the user belong to this request.
        let user = self.messages.iter().rposition(is_user);
        let begin = self
            .continued_at
            .unwrap_or(user.map_or(0, |index| index + 1));
        let (before, new) = self.messages.split_at_checked(begin).unwrap_or_default();
        let mut is_kept = false;
        let rounds = new.iter().filter(|message| {
            if message.role != Role::Tool {
                let calls = message.calls();
                let is_called_by_model =
                    |id: &str| !ADDED_AGAIN.iter().any(|tool| pair::is_synthetic(id, tool));
                is_kept = calls.iter().any(|call| is_called_by_model(&call.id));
            }
            is_kept
        });
        (before, rounds.cloned().collect())
    }
}

/// The client's parameters for the calls of the model by the next agent.
fn later_parameters(basis: &HandoffContext) -> ClientParameters {
    basis.client_parameters.clone().for_next_agent()
}

/// Replaces the results of the last round in a request by those of this turn. The request has empty results for calls
/// that waited for a decision.
fn take_results(messages: &mut [Message], current: &[Message]) {
    // Only calls of the last round can have waited: the model continues only when all results of a round are there.
    let round = messages
        .iter()
        .rposition(|message| !message.calls().is_empty());
    let later_messages = messages.get_mut(round.map_or(usize::MAX, |index| index + 1)..);
    let later_messages = later_messages.into_iter().flatten();
    for message_slot in later_messages.take_while(|message| message.role == Role::Tool) {
        let result = current.iter().rfind(|message| {
            message.role == Role::Tool && message.tool_call_id == message_slot.tool_call_id
        });
        if let Some(result) = result {
            *message_slot = result.clone();
        }
    }
}
