//! A turn from its first stage to its end.

use std::time::Duration;

use dray_agent::event::{AnswerEnd, Event, StageStatus};
use dray_agent::failure::RequestFailure;
use dray_agent::issues;
use dray_agent::manifest::feature::StageLevel;
use dray_agent::message::{Attachment, Message, Role};
use dray_agent::pair::{self, CallPair};
use dray_agent::state::{self, InterpreterState, TurnState};
use dray_tool::{ClientGone, EventSink, Turn};
use serde_json::{Value, json};
use tracing::Instrument as _;

use super::body::{BodyTemplate, ClientParameters};
use super::chat_approvals::ChatApprovals;
use super::checkpoint::Checkpoints;
use super::client_tools::PermittedCalls;
use super::compactor::Compactor;
use super::failures::client_gone_failure;
use super::file_links::files_text;
use super::model_caller::{CalledModel, ModelCaller};
use super::open::OpenTurn;
use super::pause::Questions;
use super::prepare::with_stable_names;
use super::report::{TurnEnd, loop_outcome};
use super::rounds::{LoopEnd, LoopError, ToolLoop};
use super::sequence::{TurnSequence, run_with_time_limit};
use super::session;
use super::settle::Settlement;
use super::speech::TextRelay;
use super::tally::{TurnTally, execution_time};
use super::tool_runner::ToolRunner;
use dray_tool_files::media::MediaTagFilter;

/// Name of the synthetic tool whose result lists files that were put into the sandbox.
const UPLOADS_TOOL: &str = "sandbox_uploads";
/// Text of the stage that names the agent to which the conversation was handed over.
const HANDED_OVER_TEXT: &str = "The conversation was handed over to this agent, which answers.";

impl OpenTurn {
    /// Runs the turn. The state is sent in every case, even after a failure.
    pub(super) async fn run(self, sink: &EventSink) -> Result<TurnEnd, RequestFailure> {
        let mut tally = TurnTally::default();
        let (last, outcome) = Box::pin(self.run_agents(sink, &mut tally)).await?;
        let ended = last.finish(sink, &tally, outcome).await;
        last.telemetry.report.end(ended.as_ref());
        ended
    }

    async fn finish(
        &self,
        sink: &EventSink,
        tally: &TurnTally,
        mut outcome: Result<LoopEnd, RequestFailure>,
    ) -> Result<TurnEnd, RequestFailure> {
        // The end is classified before `end` takes the calls of the client out of the outcome.
        let ended_as = outcome.as_ref().map(loop_outcome).unwrap_or_default();
        self.end(sink, tally, &mut outcome).await?;
        // A failure returns only here, because the state is sent before the error event (quickapps 4).
        let outcome = outcome?;
        // The client has the state with the lines about uploads.
        self.session.files.uploads().acknowledge().await;
        let counts = self.response.counts;
        let per_model = if counts { tally.per_model() } else { &[] };
        let answer = AnswerEnd {
            reason: outcome.reason,
            usage: tally.total().filter(|_| counts),
            per_model: per_model.to_vec(),
        };
        Ok(TurnEnd {
            answer,
            outcome: ended_as,
        })
    }

    /// Runs the loops of the agents that answer, one after the other. Returns the last agent with its end.
    async fn run_agents(
        mut self,
        sink: &EventSink,
        tally: &mut TurnTally,
    ) -> Result<(Self, Result<LoopEnd, RequestFailure>), RequestFailure> {
        loop {
            let span = self.span.clone();
            let outcome = self.show_and_loop(sink, tally).instrument(span).await;
            self.telemetry.end_part(&self.span);
            match outcome {
                Ok(LoopEnd {
                    handoff: Some(handoff),
                    has_text,
                    ..
                }) => self = self.hand_over(handoff, has_text).await,
                Ok(outcome) => return Ok((self, Ok(outcome))),
                Err(LoopError::Gone) => return Err(client_gone_failure()),
                Err(LoopError::Failed(failure)) => return Ok((self, Err(failure))),
            }
        }
    }

    /// Sends everything that follows the last loop: files, questions, stages, the state, and calls of the client.
    async fn end(
        &self,
        sink: &EventSink,
        tally: &TurnTally,
        outcome: &mut Result<LoopEnd, RequestFailure>,
    ) -> Result<(), RequestFailure> {
        let state = self.state().await;
        let mut questions = Questions::default();
        if let Ok(end) = outcome
            && end.waits()
        {
            match self.keep_paused(&state, end).await {
                Ok(stored_questions) => questions = stored_questions,
                Err(failure) => *outcome = Err(failure),
            }
        }
        let (links, cited) = match outcome {
            Ok(_) => self.files_of_answer(tally).await,
            Err(_) => (None, Vec::new()),
        };
        let report = async {
            if let Some(links) = links {
                sink.send(Event::Content(links)).await?;
            }
            for file in cited {
                sink.send(file).await?;
            }
            if let Ok(end) = outcome {
                self.ask(&mut questions, end, sink).await?;
            }
            sink.close_deferred().await?;
            if outcome.is_ok() && !self.takes_over && self.agents.handed_over_agent().is_some() {
                // The agent is shown only now: until something is shown, a failure has an HTTP status.
                self.show_agent(sink).await?;
            }
            if self.parts.config.show_usage_statistics && tally.total().is_some() {
                write_stage(sink, "Usage Statistics", tally.table(&self.parts.prices)).await?;
            }
            sink.send(Event::State(state)).await?;
            if outcome.is_ok() && self.parts.config.show_execution_time_stage {
                write_stage(
                    sink,
                    "Execution time",
                    execution_time(self.budget.started_at().elapsed()),
                )
                .await?;
            }
            if !questions.items.is_empty() {
                sink.send(Event::ApprovalRequests(questions.items)).await?;
            }
            if let Ok(end) = outcome
                && !end.pending.is_empty()
            {
                sink.send(Event::ToolCalls(std::mem::take(&mut end.pending)))
                    .await?;
            }
            Ok::<_, ClientGone>(())
        };
        report.await.map_err(|_| client_gone_failure())
    }

    /// The files of the answer as text and as citations, as far as the client supports each.
    async fn files_of_answer(&self, tally: &TurnTally) -> (Option<String>, Vec<Event>) {
        let links = if self.response.links_files {
            let mode = self.parts.config.answer_files;
            files_text(tally.files(), mode, &self.session.files).await
        } else {
            None
        };
        let cited = if self.response.cites_files {
            let mut cited = self.output_files(tally.files()).await;
            // The citations come at the end, when the last part is still open: only files that an answer names are
            // cited.
            if !self.named_files.is_empty() {
                cited.push(Event::Sources(self.named_files.clone()));
            }
            cited
        } else {
            Vec::new()
        };
        (links, cited)
    }

    /// Makes files of the answer readable at `/v1/files`.
    async fn output_files(&self, shown: &[Attachment]) -> Vec<Event> {
        let mut cited = Vec::new();
        for attachment in shown {
            let Some(claim) = self.session.files.output_claim(attachment).await else {
                continue;
            };
            let files = &self.parts.records.client_files;
            match files.add_output(&self.principal, &claim).await {
                Ok(id) => cited.push(Event::OutputFile {
                    id,
                    name: claim.artifact.name,
                }),
                Err(failure) => tracing::warn!(%failure, "a file of an answer has no id"),
            }
        }
        cited
    }

    #[expect(
        clippy::too_many_lines,
        reason = "one line for each part of the loop, which borrows single fields"
    )]
    async fn show_and_loop(
        &mut self,
        sink: &EventSink,
        tally: &mut TurnTally,
    ) -> Result<LoopEnd, LoopError> {
        self.prepare(sink).await?;
        let orchestrator = &self.manifest.orchestrator;
        let (max_rounds, approval_wait) = (self.max_rounds(), self.approval_wait());
        let client_parameters = std::mem::take(&mut self.response.client_parameters);
        let client_tools = client_parameters.tools.clone();
        let is_structured = !self.response.is_dial
            && !super::plain::is_text(client_parameters.response_format.as_ref());
        let permitted_calls = PermittedCalls::of_choice(client_parameters.tool_choice.as_ref());
        let models = self.called_models(&client_parameters, max_rounds)?;
        let mut models = models.into_iter();
        let model = models.next();
        let model = model.ok_or_else(|| LoopError::Failed(RequestFailure::unexpected()))?;
        // The messages are moved out, because the loop borrows other fields of `self`.
        let mut messages = std::mem::take(&mut self.messages);
        let files = &self.session.files;
        let media = MediaTagFilter::new(files).await;
        let mut speech = TextRelay::new(media, self.response.is_dial).after_text(self.has_text);
        let mut rounds = ToolLoop {
            model: ModelCaller {
                endpoint: &self.parts.model,
                caller: &self.session.turn.caller,
                model,
                fallbacks: models,
                outgoing: &mut self.response.outgoing,
                compactor: Compactor::new(files, self.response.compaction),
                propagates_stages: orchestrator.propagate_stages
                    && self.tools.settings.level.shows(false),
                holds_answers: self.tools.holds_answers(is_structured),
                is_plain: !self.response.is_dial,
                log_payloads: self.parts.config.payload_length(),
                budget: &self.budget,
                telemetry: &self.telemetry,
            },
            runner: ToolRunner {
                tools: &self.tools.offered,
                client_tools: &client_tools,
                approvals: &self.tools.approvals,
                guardrails: &self.tools.guardrails,
                is_judging: false,
                budget: &self.budget,
                files,
                turn: &self.session.turn,
                settings: self.tools.settings,
                metrics: &self.parts.metrics,
                telemetry: &self.telemetry,
                mcp: self.response.mcp,
                cites_pages: !self.response.is_dial,
                sink,
            },
            metrics: &self.parts.metrics,
            sink,
            max_rounds,
            is_structured,
            heartbeat: self.parts.config.heartbeat_interval.as_duration(),
            client_tools: client_tools.clone(),
            permitted_calls,
            agents: &self.agents,
            chats: ChatApprovals {
                store: &self.parts.records.approvals,
                principal: &self.principal,
                policy: &self.tools.approvals,
                max_wait: approval_wait,
                response: self.background.as_ref().map(|run| run.id.as_str()),
            },
            checkpoints: self.background.as_ref().map(|run| Checkpoints {
                records: &self.parts.records,
                principal: &self.principal,
                run,
                begins_at: self.continued_at.unwrap_or_default(),
                resumed: self.resumed.as_ref(),
                turn: &self.session.turn,
                agents: &self.agents,
            }),
        };
        let sequence = TurnSequence {
            hooks: &self.tools.hooks,
            part: std::mem::take(&mut self.part),
            approvals: Settlement {
                approvals: &self.parts.records.approvals,
                principal: &self.principal,
            },
        };
        let outcome =
            run_with_time_limit(sequence, &mut rounds, &mut messages, &mut speech, tally).await;
        // The messages are kept after a failure as well: the state is packed from them (quickapps 11.2).
        self.messages = messages;
        outcome
    }

    /// How long the request stays open for the decision of a chat. A response without a client has no connection that
    /// would have to stay open.
    fn approval_wait(&self) -> Duration {
        let config = &self.parts.config;
        let wait = match &self.background {
            Some(run) if !run.has_client() => config.approval_timeout,
            _ => config.approval_wait,
        };
        wait.as_duration()
    }

    /// Most calls of the model in this turn.
    fn max_rounds(&self) -> u32 {
        let own = self.manifest.orchestrator.max_iterations;
        own.unwrap_or(self.parts.config.max_iterations)
    }

    /// The models that the turn may call, each with the common parts of its calls.
    fn called_models(
        &self,
        client_parameters: &ClientParameters,
        max_rounds: u32,
    ) -> Result<Vec<CalledModel>, LoopError> {
        let deferred = &self.response.outgoing.deferred;
        let tools = &self.tools.offered;
        let models = self.manifest.orchestrator.models().enumerate();
        let models = models.map(|(index, deployment)| {
            // `statics` are tools that the first deployment runs itself.
            let statics: &[_] = if index == 0 { &self.tools.statics } else { &[] };
            let parameters = (client_parameters.clone(), deferred);
            let template = BodyTemplate::new(deployment, tools, statics, parameters, max_rounds);
            let template = template.map_err(|_| LoopError::Failed(RequestFailure::unexpected()))?;
            Ok(CalledModel {
                deployment: deployment.deployment_id.clone(),
                template,
            })
        });
        models.collect()
    }

    async fn prepare(&mut self, sink: &EventSink) -> Result<(), LoopError> {
        if std::mem::replace(&mut self.is_prepared, true) {
            return Ok(());
        }
        self.list_mcp_tools(sink).await?;
        if self.takes_over {
            self.show_agent(sink).await?;
        }
        self.show_issues(sink).await?;
        self.show_user_text(sink).await?;
        // The prompt is used after the issues are shown, so that the author sees why the prompt is missing (quickapps
        // 8.4).
        std::mem::replace(&mut self.setup.prompt, Ok(())).map_err(LoopError::Failed)?;
        self.take_uploads().await;
        Ok(())
    }

    /// Shows a stage with the name of the agent that answers.
    async fn show_agent(&self, sink: &EventSink) -> Result<(), ClientGone> {
        if self.tools.settings.level == StageLevel::None {
            return Ok(());
        }
        let name = format!("Agent: {}", self.agents.current());
        write_stage(sink, &name, HANDED_OVER_TEXT.to_owned()).await
    }

    async fn show_issues(&self, sink: &EventSink) -> Result<(), ClientGone> {
        let Some(text) = self.setup.issues.text() else {
            return Ok(());
        };
        // The log is for the operator: clients without stages do not show this.
        tracing::warn!(
            agent = self.agents.current(),
            issues = text,
            "an agent begins without a part of what its manifest names"
        );
        if !self.tools.settings.level.shows(self.setup.issues.is_hard()) {
            return Ok(());
        }
        let stage = sink.open(Some(issues::STAGE_NAME.to_owned())).await?;
        stage.content(text).await?;
        stage
            .close(if self.setup.issues.is_hard() {
                StageStatus::Failed
            } else {
                StageStatus::Completed
            })
            .await
    }

    /// Adds to the answer what the user can do about a missing tool set, because some clients show no stages. Left out
    /// if the answer has to be a document.
    async fn show_user_text(&self, sink: &EventSink) -> Result<(), ClientGone> {
        let is_text =
            super::plain::is_text(self.response.client_parameters.response_format.as_ref());
        match self.setup.issues.user_text() {
            Some(text) if is_text && !self.part.continues => sink.send(Event::Content(text)).await,
            _ => Ok(()),
        }
    }

    /// Puts the user's files into the sandbox, and adds a message for the model with their paths.
    async fn take_uploads(&mut self) {
        // The files were placed when the turn began.
        if self.part.continues || self.takes_over {
            return;
        }
        let last = self
            .messages
            .iter()
            .rfind(|message| message.role == Role::User);
        // Files of earlier messages were placed in their own turns.
        let Some(last) = last.cloned() else {
            return;
        };
        let lines = self.session.files.uploads().place_uploads(&last).await;
        if !lines.is_empty() {
            let report = CallPair {
                tool: UPLOADS_TOOL.to_owned(),
                arguments: json!({}),
                content: lines.join("\n"),
            };
            pair::insert_pair(
                &mut self.messages,
                &report,
                pair::PairPosition::End,
                pair::PairFrequency::Always,
            );
        }
    }

    /// The state that the client stores for the next turn.
    async fn state(&self) -> Value {
        // In a turn that continues, the states of earlier requests contain their rounds.
        let new = self.messages.get(self.continued_at.unwrap_or_default()..);
        let packer = StatePacker {
            turn: &self.session.turn,
        };
        let mut value = packer.pack(new.unwrap_or_default(), &self.messages);
        // The next turn finds its sandbox, its chat and its programs by the session.
        let programs = &self.parts.kinds.mcp.programs;
        if self.session.files.session.is_bound().await
            || programs.is_running(&self.session.conversation)
        {
            session::note_session(&mut value, &self.session.turn.session);
        }
        self.agents.note(&mut value);
        value
    }
}

/// Packs the state of a turn.
#[derive(Clone, Copy, Debug)]
pub(super) struct StatePacker<'a> {
    pub(super) turn: &'a Turn,
}

impl StatePacker<'_> {
    /// The state with the rounds of `new`, of a turn with these messages.
    pub(super) fn pack(self, new: &[Message], messages: &[Message]) -> Value {
        // Only the packed messages are copied: earlier messages may be megabytes.
        let added = state::messages_of_turn(new);
        // The state outlives links, and clients may store it.
        let named: Vec<_> = added.iter().map(with_stable_names).collect();
        let packed = TurnState {
            history: state::pack_history(&named),
            orchestrator: orchestrator_state(messages),
            interpreter: self
                .turn
                .interpreter()
                .map(|session_id| InterpreterState { session_id }),
        };
        // Each answer has exactly one state, even an empty one (quickapps 11.2).
        serde_json::to_value(packed).unwrap_or_else(|_| json!({}))
    }
}

/// The state that the model's own deployment returned last in this turn.
fn orchestrator_state(messages: &[Message]) -> Option<Value> {
    let turn = state::messages_of_turn(messages);
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
