//! One call of a tool, from the request to its result, with rounds of questions (MCP 2026-07-28, `input_required`) and
//! tasks (`io.modelcontextprotocol/tasks`) in between.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use dray_tool::QuestionMap;
use dray_types::TraceContext;
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, CancelTaskParams, CreateTaskResult,
    DetailedTask, GetTaskParams, InputRequiredResult, InputResponses, JsonObject,
    RequestParamsMeta as _, TaskPayload, UpdateTaskParams,
};
use serde_json::Value;

use crate::error::{SessionError, bounded_message};
use crate::handler::CallQuestions;
use crate::input::{PendingCall, ResumePoint, required_questions};
use crate::questions::{input_responses, required_pages};
use crate::session::McpSession;
use crate::wire::CLOSE_TIMEOUT;

/// Most rounds of questions in one call.
const MAX_ROUNDS: usize = 10;

/// Time between two polls of a task, if the server names none.
const DEFAULT_POLL_INTERVAL: Duration = Duration::from_secs(1);

/// Most polls of a task that fail in a row. With the delays between them, a server has 12 s to start again.
const MAX_FAILED_POLLS: u32 = 8;

/// Shortest poll interval; a shorter one of a server counts as this.
const MIN_POLL_INTERVAL: Duration = Duration::from_millis(100);
/// Longest poll interval; a longer one of a server counts as this.
const MAX_POLL_INTERVAL: Duration = Duration::from_secs(10);

/// The end of a call.
#[derive(Debug)]
pub(crate) enum CallEnd {
    /// The tool ran.
    Done(Box<CallToolResult>),
    /// The tool waits for answers of the user. A result is included if the call continued without them (MCP
    /// 2025-11-25).
    Pending(PendingCall, Option<Box<CallToolResult>>),
}

impl McpSession {
    /// Calls a tool as a part of `trace`. Dropping the future cancels the call at the server, or the task that it has
    /// become.
    pub(crate) async fn call(
        self: &Arc<Self>,
        tool: &str,
        arguments: JsonObject,
        questions: &CallQuestions,
        trace: Option<TraceContext>,
    ) -> Result<CallEnd, SessionError> {
        let mut params = CallToolRequestParams::new(tool.to_owned()).with_arguments(arguments);
        if let Some(trace) = trace {
            // The trace is in the message, because programs have no headers (SEP-414).
            params.set_traceparent(&trace.traceparent);
            if !trace.tracestate.is_empty() {
                params.set_tracestate(&trace.tracestate);
            }
        }
        if let Some((pending, answers)) = &questions.given {
            let responses = input_responses(&pending.questions, answers.clone());
            match &pending.resume {
                ResumePoint::Repeat { state } => {
                    params.input_responses = Some(responses);
                    params.request_state.clone_from(state);
                }
                ResumePoint::Task { id } => {
                    return self.resume_task(tool, id, responses, questions).await;
                }
                // The server asks again, or needs no answer.
                ResumePoint::Ask | ResumePoint::Visit => {}
            }
        }
        let active = self.handler().begin_call(questions);
        for _ in 0..MAX_ROUNDS {
            // The call has no time limit: when the caller's time is over, it drops the future, which cancels the call.
            let response = self.peer().call_tool_once(params.clone()).await;
            let response = match response.map_err(|error| self.failure(error)) {
                Err(SessionError::PagesRequired(data)) => return visit(tool, &data, questions),
                response => response?,
            };
            match response {
                CallToolResponse::Complete(result) => {
                    let unanswered = active.call.unanswered();
                    return complete_call(tool, result, unanswered, questions);
                }
                CallToolResponse::Task(created) => {
                    let CreateTaskResult { task, .. } = created;
                    return self
                        .follow_task(tool, &task.task_id, HashSet::new(), questions)
                        .await;
                }
                CallToolResponse::InputRequired(required) => {
                    let new_questions =
                        required_questions(&required).map_err(SessionError::Malformed)?;
                    if new_questions.is_empty() {
                        // The server only wants more time (SEP-2322): the request is sent again with only the state.
                        tokio::time::sleep(DEFAULT_POLL_INTERVAL).await;
                        // The answers were sent with the last request; if they were sent again, they would answer a new
                        // question.
                        params.input_responses = None;
                        params.request_state = required.request_state;
                        continue;
                    }
                    let Some(answers) = questions.ask_all(&new_questions).await else {
                        return pending_round(tool, required, new_questions, questions);
                    };
                    params.input_responses = Some(input_responses(&new_questions, answers));
                    params.request_state = required.request_state;
                }
                _ => return Err(SessionError::Malformed("its response is not a tool result")),
            }
        }
        Err(SessionError::Malformed("it does not stop asking questions"))
    }

    /// Continues a task with the answers to the questions for which an earlier call returned.
    async fn resume_task(
        self: &Arc<Self>,
        tool: &str,
        id: &str,
        responses: InputResponses,
        questions: &CallQuestions,
    ) -> Result<CallEnd, SessionError> {
        let answered = responses.keys().cloned().collect();
        let update = UpdateTaskParams::new(id, responses);
        let updated = self.peer().update_task(update).await;
        updated.map_err(|error| self.failure(error))?;
        self.follow_task(tool, id, answered, questions).await
    }

    /// Waits for the end of a task, and answers its questions. Those of `answered` were answered before.
    async fn follow_task(
        self: &Arc<Self>,
        tool: &str,
        id: &str,
        mut answered: HashSet<String>,
        questions: &CallQuestions,
    ) -> Result<CallEnd, SessionError> {
        // A caller that stops waiting drops this future; the guard then cancels the task at its server.
        let mut guard = TaskGuard::new(Arc::clone(self), id);
        let mut rounds = 0;
        loop {
            let state = self.task_state(id).await?;
            match state.payload {
                TaskPayload::Completed { result } => {
                    guard.is_over = true;
                    let result = serde_json::from_value(Value::Object(result));
                    let result =
                        result.map_err(|_| SessionError::Malformed("its task has no result"))?;
                    return Ok(CallEnd::Done(Box::new(result)));
                }
                TaskPayload::Failed { error } => {
                    guard.is_over = true;
                    return Err(task_failure(&error));
                }
                TaskPayload::Cancelled => {
                    guard.is_over = true;
                    return Err(SessionError::Malformed("it cancelled the task"));
                }
                TaskPayload::InputRequired { input_requests } => {
                    let mut required = InputRequiredResult::new(Some(input_requests), None);
                    // A server may return a question until it has processed the answer (SEP-2663).
                    let open_requests = required.input_requests.get_or_insert_default();
                    open_requests.retain(|key, _| !answered.contains(key));
                    let new_questions =
                        required_questions(&required).map_err(SessionError::Malformed)?;
                    if !new_questions.is_empty() {
                        rounds += 1;
                        if rounds > MAX_ROUNDS {
                            return Err(SessionError::Malformed(
                                "it does not stop asking questions",
                            ));
                        }
                        let Some(answers) = questions.ask_all(&new_questions).await else {
                            let resume = ResumePoint::Task { id: id.to_owned() };
                            let pending = questions.pending(tool, new_questions, resume)?;
                            // The task continues with the answers, in a later call.
                            guard.is_over = true;
                            return Ok(CallEnd::Pending(pending, None));
                        };
                        answered.extend(new_questions.keys().cloned());
                        let responses = input_responses(&new_questions, answers);
                        let update = UpdateTaskParams::new(id, responses);
                        let updated = self.peer().update_task(update).await;
                        updated.map_err(|error| self.failure(error).into_task_failure())?;
                    }
                }
                _ => {}
            }
            tokio::time::sleep(poll_interval(state.task.poll_interval_ms)).await;
        }
    }

    /// The state of a task. A poll has no effect, so it is repeated while the server cannot be reached.
    async fn task_state(&self, id: &str) -> Result<DetailedTask, SessionError> {
        let mut failed_polls = 0;
        loop {
            let polled = self.peer().get_task(GetTaskParams::new(id)).await;
            let error = match polled.map_err(|error| self.failure(error)) {
                Ok(state) => return Ok(state.task),
                Err(error) => error,
            };
            failed_polls += 1;
            let may_repeat = matches!(&error, SessionError::Wire(cause) if cause.is_transient())
                && failed_polls < MAX_FAILED_POLLS
                && !self.is_closed();
            if !may_repeat {
                return Err(error.into_task_failure());
            }
            tracing::debug!(%error, "a task of an MCP server is polled again");
            tokio::time::sleep(MIN_POLL_INTERVAL * (1 << (failed_polls - 1))).await;
        }
    }
}

fn poll_interval(requested_ms: Option<u64>) -> Duration {
    let requested = requested_ms.map_or(DEFAULT_POLL_INTERVAL, Duration::from_millis);
    requested.clamp(MIN_POLL_INTERVAL, MAX_POLL_INTERVAL)
}

/// A call that succeeds when the user has visited pages.
fn visit(tool: &str, data: &Value, questions: &CallQuestions) -> Result<CallEnd, SessionError> {
    let pages = required_pages(data);
    if pages.is_empty() {
        return Err(SessionError::Malformed(
            "it names no page that the user can visit",
        ));
    }
    let pending = questions.pending(tool, pages, ResumePoint::Visit)?;
    Ok(CallEnd::Pending(pending, None))
}

fn complete_call(
    tool: &str,
    result: CallToolResult,
    unanswered: QuestionMap,
    questions: &CallQuestions,
) -> Result<CallEnd, SessionError> {
    let result = Box::new(result);
    if unanswered.is_empty() {
        return Ok(CallEnd::Done(result));
    }
    let pending = questions.pending(tool, unanswered, ResumePoint::Ask)?;
    Ok(CallEnd::Pending(pending, Some(result)))
}

fn pending_round(
    tool: &str,
    required: InputRequiredResult,
    new_questions: QuestionMap,
    questions: &CallQuestions,
) -> Result<CallEnd, SessionError> {
    let resume = ResumePoint::Repeat {
        state: required.request_state,
    };
    let pending = questions.pending(tool, new_questions, resume)?;
    Ok(CallEnd::Pending(pending, None))
}

fn task_failure(error: &JsonObject) -> SessionError {
    let code = error.get("code").and_then(Value::as_i64);
    let message = error.get("message").and_then(Value::as_str);
    SessionError::Refused {
        code: code
            .and_then(|code| i32::try_from(code).ok())
            .unwrap_or_default(),
        message: bounded_message(message.unwrap_or("the task failed")),
    }
}

/// Cancels a task for which no caller waits any longer.
struct TaskGuard {
    session: Arc<McpSession>,
    id: String,
    is_over: bool,
}

impl TaskGuard {
    fn new(session: Arc<McpSession>, id: &str) -> Self {
        Self {
            session,
            id: id.to_owned(),
            is_over: false,
        }
    }
}

impl Drop for TaskGuard {
    fn drop(&mut self) {
        if self.is_over {
            return;
        }
        let params = CancelTaskParams::new(&self.id);
        let session = Arc::clone(&self.session);
        self.session.spawn(async move {
            let cancelling = session.peer().cancel_task(params);
            if !matches!(
                tokio::time::timeout(CLOSE_TIMEOUT, cancelling).await,
                Ok(Ok(()))
            ) {
                tracing::debug!("a task of an MCP server was not cancelled");
            }
        });
    }
}
