//! A turn from its first stage to its ending.

use dray_agent::event::{AnswerEnd, Event, StageStatus};
use dray_agent::failure::RequestFailure;
use dray_agent::issues;
use dray_agent::message::{Message, Role};
use dray_agent::pair::{self, CallPair};
use dray_agent::state::{self, InterpreterState, TurnState};
use dray_tool::{ClientGone, EventSink};
use serde_json::{Value, json};

use super::body::BodyTemplate;
use super::open::OpenTurn;
use super::prepare::with_stable_names;
use super::rounds::{LoopEnd, LoopError, ToolLoop};
use super::session;
use super::speech::TextRelay;
use super::tally::{TurnTally, execution_time};
use crate::files::media::MediaTagFilter;

/// The tool that appears to have announced files that were put into the sandbox.
const UPLOADS_TOOL: &str = "sandbox_uploads";

impl OpenTurn {
    /// Runs the turn. The state is sent in every case, also after a failure.
    pub(super) async fn run(mut self, sink: &EventSink) -> Result<AnswerEnd, RequestFailure> {
        let mut tally = TurnTally::default();
        let done = match self.show_and_loop(sink, &mut tally).await {
            Ok(done) => Ok(done),
            Err(LoopError::Gone) => return Err(client_gone_failure()),
            Err(LoopError::Failed(failure)) => Err(failure),
        };
        let told = async {
            sink.close_deferred().await?;
            if self.parts.config.show_usage_statistics && tally.total().is_some() {
                write_stage(sink, "Usage Statistics", tally.table()).await?;
            }
            sink.send(Event::State(self.state().await)).await?;
            if done.is_ok() && self.parts.config.show_execution_time_stage {
                write_stage(sink, "Execution time", execution_time(self.begun.elapsed())).await?;
            }
            Ok::<_, ClientGone>(())
        };
        told.await.map_err(|_| client_gone_failure())?;
        let done = done?;
        Ok(AnswerEnd {
            reason: done.reason,
            usage: tally.total().filter(|_| self.counts),
            per_model: if self.counts {
                tally.per_model().to_vec()
            } else {
                Vec::new()
            },
        })
    }

    async fn show_and_loop(
        &mut self,
        sink: &EventSink,
        tally: &mut TurnTally,
    ) -> Result<LoopEnd, LoopError> {
        if let Some(text) = self.issues.text() {
            let stage = sink.open(Some(issues::STAGE_NAME.to_owned())).await?;
            stage.content(text).await?;
            stage
                .close(if self.issues.is_hard() {
                    StageStatus::Failed
                } else {
                    StageStatus::Completed
                })
                .await?;
        }
        std::mem::replace(&mut self.prompt, Ok(())).map_err(LoopError::Failed)?;
        self.take_uploads().await;
        let deployment = &self.manifest.orchestrator.deployment;
        let mut messages = std::mem::take(&mut self.messages);
        let mut speech = TextRelay::new(MediaTagFilter::new(&self.files).await, self.is_dial);
        let mut rounds = ToolLoop {
            chat: &self.parts.chat,
            deployment: &deployment.deployment_id,
            template: BodyTemplate::new(
                deployment,
                &self.tools,
                &self.statics,
                self.response_format.take(),
                self.tool_choice.take(),
                self.counts,
            ),
            outgoing: &mut self.outgoing,
            tools: &self.tools,
            files: &self.files,
            turn: &self.turn,
            settings: self.settings,
            sink,
            propagates_stages: self.manifest.orchestrator.propagate_stages,
            most: self
                .manifest
                .orchestrator
                .max_iterations
                .unwrap_or(self.parts.config.max_iterations),
            metrics: &self.parts.metrics,
            log_payloads: self.parts.config.payload_length(),
        };
        let hooks = std::mem::take(&mut self.hooks);
        let done = rounds
            .run_with(&hooks, &mut messages, &mut speech, tally)
            .await;
        self.messages = messages;
        done
    }

    /// Puts the user's files into the sandbox, and adds a message with their paths for the model.
    async fn take_uploads(&mut self) {
        let last = self
            .messages
            .iter()
            .rfind(|message| message.role == Role::User);
        let Some(last) = last.cloned() else {
            return;
        };
        let lines = self.files.place_uploads(&last).await;
        if !lines.is_empty() {
            let told = CallPair {
                tool: UPLOADS_TOOL.to_owned(),
                arguments: json!({}),
                content: lines.join("\n"),
            };
            pair::insert_pair(
                &mut self.messages,
                &told,
                pair::PairPlace::End,
                pair::PairFrequency::Always,
            );
        }
    }

    /// What the next turn needs.
    async fn state(&self) -> Value {
        let named: Vec<_> = self.messages.iter().map(with_stable_names).collect();
        let packed = TurnState {
            history: state::pack_history(&named),
            orchestrator: orchestrator_state(&self.messages),
            interpreter: self
                .turn
                .interpreter()
                .map(|session_id| InterpreterState { session_id }),
        };
        let mut value = serde_json::to_value(packed).unwrap_or_else(|_| json!({}));
        // The next turn finds its sandbox, its chat and its programs by the session.
        let programs = &self.parts.kinds.mcp.programs;
        if self.files.is_bound().await || programs.is_running(&self.conversation) {
            session::note_session(&mut value, &self.turn.session);
        }
        value
    }
}

/// What the model's own deployment returned last in this turn.
fn orchestrator_state(messages: &[Message]) -> Option<Value> {
    let user = messages
        .iter()
        .rposition(|message| message.role == Role::User);
    let turn = messages.get(user.map_or(0, |at| at + 1)..)?;
    turn.iter().rev().find_map(|message| {
        let state = message.custom_content.as_ref()?.state.as_ref()?;
        state.get(state::ORCHESTRATOR_KEY).cloned()
    })
}

async fn write_stage(sink: &EventSink, name: &str, text: String) -> Result<(), ClientGone> {
    let stage = sink.open(Some(name.to_owned())).await?;
    stage.content(text).await?;
    stage.close(StageStatus::Completed).await
}

/// It has no reader.
fn client_gone_failure() -> RequestFailure {
    RequestFailure::new(499, "The client is gone.")
}
