//! Handles requests and notifications of a server.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use dray_agent::caller::Caller;
use dray_tool::{AnswerMap, QuestionMap, UserAnswer, UserQuestion};
use rmcp::ClientHandler;
use rmcp::model::{
    ClientCapabilities, ClientConfig, ElicitRequestParams, ElicitResult, ElicitationAction,
    ElicitationCapability, ErrorData, ExtensionCapabilities, FormElicitationCapability,
    Implementation, JsonObject, ListRootsRequestMethod, ProtocolVersion, TASKS_EXTENSION_ID,
    UrlElicitationCapability,
};
use rmcp::service::{NotificationContext, RequestContext, RoleClient};

use crate::error::SessionError;
use crate::input::{MAX_PENDING_BYTES, PendingCall, ResumePoint};
use crate::questions::{MAX_QUESTIONS, QuestionPort, elicit_result, question_of_params};

/// Most questions that a user is asked during one call, one after another. Further ones are cancelled.
const MAX_ASKED_QUESTIONS: usize = 32;

/// How questions during one call are answered.
#[derive(Clone, Debug)]
pub(crate) struct CallQuestions {
    /// Asks the user while the call waits; without it the call returns its questions.
    pub(crate) port: Option<Arc<dyn QuestionPort>>,
    /// The tool set, as users know it.
    pub(crate) toolset: String,
    pub(crate) caller: Caller,
    /// Address of the server.
    pub(crate) server: String,
    /// Answers that the user gave in the conversation, with the call that waited for them.
    pub(crate) given: Option<(PendingCall, AnswerMap)>,
}

impl CallQuestions {
    /// Asks all questions one after another; `None` if no user can be asked.
    pub(crate) async fn ask_all(&self, questions: &QuestionMap) -> Option<AnswerMap> {
        let port = self.port.as_ref()?;
        let mut answers = AnswerMap::new();
        for (key, question) in questions {
            let answer = port.ask(&self.toolset, question, &self.caller).await;
            answers.insert(key.clone(), answer);
        }
        Some(answers)
    }

    /// The answer that the user gave to this question before the call.
    fn given_answer(&self, question: &UserQuestion) -> Option<UserAnswer> {
        let (pending, answers) = self.given.as_ref()?;
        if pending.resume != ResumePoint::Ask {
            return None;
        }
        let all = pending.all_answers(answers);
        let mut known = all.into_iter().rev();
        known.find_map(|(known, answer)| (known == *question).then_some(answer))
    }

    /// A call that waits for these answers, together with earlier answers.
    ///
    /// # Errors
    ///
    /// The pending answer is longer than [`MAX_PENDING_BYTES`].
    pub(crate) fn pending(
        &self,
        tool: &str,
        questions: QuestionMap,
        resume: ResumePoint,
    ) -> Result<PendingCall, SessionError> {
        let given = self.given.as_ref().filter(|_| resume == ResumePoint::Ask);
        let pending = PendingCall {
            server: self.server.clone(),
            tool: tool.to_owned(),
            questions,
            resume,
            earlier: given.map_or_else(Vec::new, |(pending, answers)| pending.all_answers(answers)),
        };
        // The client sends it back with each later message of the conversation.
        if pending.encoded_bytes() > MAX_PENDING_BYTES {
            return Err(SessionError::Malformed(
                "its questions, or the state that it keeps for them, are too long",
            ));
        }
        Ok(pending)
    }
}

/// A running call, with the questions that could not be answered during it.
#[derive(Debug)]
pub(crate) struct ActiveCall {
    questions: CallQuestions,
    unanswered: Mutex<QuestionMap>,
    /// Number of questions that the user was asked.
    asked: AtomicUsize,
}

impl ActiveCall {
    /// The questions that the user has not answered; none when all were.
    pub(crate) fn unanswered(&self) -> QuestionMap {
        let unanswered = self.unanswered.lock();
        unanswered.unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn record(&self, question: &UserQuestion) {
        let mut unanswered = self
            .unanswered
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let number = unanswered.len() + 1;
        if number <= MAX_QUESTIONS && unanswered.values().all(|known| known != question) {
            unanswered.insert(format!("question_{number}"), question.clone());
        }
    }
}

/// The capabilities of this client, and its handling of messages from the server.
#[derive(Clone, Debug, Default)]
pub(crate) struct SessionHandler {
    has_changed_tools: Arc<AtomicBool>,
    /// Running calls of this session: a request of the server does not name the call to which it belongs.
    calls: Arc<Mutex<Vec<Arc<ActiveCall>>>>,
}

/// Keeps a call in the list of running calls until it is dropped.
#[derive(Debug)]
pub(crate) struct ActiveCallGuard {
    handler: SessionHandler,
    pub(crate) call: Arc<ActiveCall>,
}

impl Drop for ActiveCallGuard {
    fn drop(&mut self) {
        let mut calls = self.handler.calls();
        calls.retain(|call| !Arc::ptr_eq(call, &self.call));
    }
}

impl SessionHandler {
    /// Whether the server has reported a changed list of tools.
    pub(crate) fn has_changed_tools(&self) -> bool {
        self.has_changed_tools.load(Ordering::Relaxed)
    }

    pub(crate) fn note_changed_tools(&self) {
        self.has_changed_tools.store(true, Ordering::Relaxed);
    }

    /// Answers questions for this call until the guard is dropped.
    pub(crate) fn begin_call(&self, questions: &CallQuestions) -> ActiveCallGuard {
        let call = Arc::new(ActiveCall {
            questions: questions.clone(),
            unanswered: Mutex::default(),
            asked: AtomicUsize::new(0),
        });
        self.calls().push(Arc::clone(&call));
        ActiveCallGuard {
            handler: self.clone(),
            call,
        }
    }

    fn calls(&self) -> MutexGuard<'_, Vec<Arc<ActiveCall>>> {
        self.calls.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn answer(&self, question: &UserQuestion) -> UserAnswer {
        let calls = self.calls().clone();
        let mut newest = calls.iter().rev();
        if let Some(answer) = newest.find_map(|call| call.questions.given_answer(question)) {
            return answer;
        }
        let interactive = calls.iter().rev().find_map(|call| {
            let port = call.questions.port.as_ref()?;
            Some((port, call))
        });
        if let Some((port, call)) = interactive {
            let questions = &call.questions;
            if call.asked.fetch_add(1, Ordering::Relaxed) >= MAX_ASKED_QUESTIONS {
                tracing::warn!(
                    toolset = questions.toolset,
                    "an MCP server asks too many questions during a call"
                );
                return UserAnswer::Cancelled;
            }
            return port
                .ask(&questions.toolset, question, &questions.caller)
                .await;
        }
        for call in &calls {
            call.record(question);
        }
        UserAnswer::Cancelled
    }
}

impl ClientHandler for SessionHandler {
    fn get_info(&self) -> ClientConfig {
        let mut elicitation = ElicitationCapability::new();
        elicitation.form = Some(FormElicitationCapability::new());
        elicitation.url = Some(UrlElicitationCapability::new());
        let mut capabilities = ClientCapabilities::default();
        capabilities.elicitation = Some(elicitation);
        let tasks = (TASKS_EXTENSION_ID.to_owned(), JsonObject::new());
        capabilities.extensions = Some(ExtensionCapabilities::from_iter([tasks]));
        ClientConfig::new(
            capabilities,
            Implementation::new("drayage", env!("CARGO_PKG_VERSION")),
        )
        .with_protocol_version(ProtocolVersion::LATEST_WITH_INITIALIZE)
    }

    async fn create_elicitation(
        &self,
        params: ElicitRequestParams,
        context: RequestContext<RoleClient>,
    ) -> Result<ElicitResult, ErrorData> {
        let Some(question) = question_of_params(&params) else {
            return Ok(ElicitResult::new(ElicitationAction::Cancel));
        };
        let answer = tokio::select! {
            answer = self.answer(&question) => answer,
            // The server does not wait for the answer any longer.
            () = context.ct.cancelled() => UserAnswer::Cancelled,
        };
        Ok(elicit_result(&question, answer))
    }

    #[expect(deprecated, reason = "servers of 2025-11-25 may send the request")]
    async fn list_roots(
        &self,
        _: RequestContext<RoleClient>,
    ) -> Result<rmcp::model::ListRootsResult, ErrorData> {
        // The capability is not declared; the default of `rmcp` is an empty list.
        Err(ErrorData::method_not_found::<ListRootsRequestMethod>())
    }

    async fn on_tool_list_changed(&self, _: NotificationContext<RoleClient>) {
        self.note_changed_tools();
    }
}
