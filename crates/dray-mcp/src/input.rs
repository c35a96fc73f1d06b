//! Questions to the person at the client, in both eras of the protocol.
//!
//! With 2025-11-25 the server sends `elicitation/create` and waits. In protocol version 2026-07-28 the result is
//! `input_required`, and the client repeats its request with the answer and with the request state. The client keeps
//! this state but cannot change it: it is signed, expires, and is valid only for the question that the user was asked.

use std::time::Duration;

use rmcp::model::{
    CallToolRequestParams, ClientCapabilities, ElicitRequest, ElicitRequestParams,
    ElicitationAction, ElicitationSchema, GetPromptRequestParams, InputRequest, InputRequests,
    InputRequiredResult, InputResponses, ProtocolVersion, RequestStateCodec, SealOptions,
};
use rmcp::service::RequestContext;
use rmcp::{ErrorData, RoleServer};
use serde_json::Value;

/// How long an answer of a user is valid, and how long the server waits for one.
const ANSWER_TIMEOUT: Duration = Duration::from_mins(10);
/// Length of the signing key, in bytes.
const KEY_BYTES: usize = 32;

/// A question to a user.
#[derive(Clone, Debug)]
pub struct InputQuestion {
    /// The question's name among the questions of one result.
    pub key: &'static str,
    /// The text for the person.
    pub message: String,
    /// The form of the answer.
    pub schema: ElicitationSchema,
    /// The context of the answer, such as the tool and its arguments. An answer is valid only for the same binding.
    /// `None` accepts an answer without an earlier question.
    pub binding: Option<String>,
}

/// The data of earlier results in a repeated request.
#[derive(Clone, Copy, Debug, Default)]
pub struct InputRound<'a> {
    /// The answers, by the keys of the questions.
    pub responses: Option<&'a InputResponses>,
    /// The request state of the last result, as the client sent it.
    pub state: Option<&'a str>,
}

impl<'a> From<&'a CallToolRequestParams> for InputRound<'a> {
    fn from(request: &'a CallToolRequestParams) -> Self {
        Self {
            responses: request.input_responses.as_ref(),
            state: request.request_state.as_deref(),
        }
    }
}

impl<'a> From<&'a GetPromptRequestParams> for InputRound<'a> {
    fn from(request: &'a GetPromptRequestParams) -> Self {
        Self {
            responses: request.input_responses.as_ref(),
            state: request.request_state.as_deref(),
        }
    }
}

/// The outcome of a question.
#[derive(Clone, Debug)]
pub enum InputAnswer {
    /// The person agreed and filled in the form.
    Accepted(Value),
    /// The person declined, or closed the question.
    Refused,
    /// The answer is pending: the client asks the user and repeats the request.
    Pending(InputRequiredResult),
}

/// The reason why the form was not answered.
#[derive(Debug, thiserror::Error)]
pub enum InputError {
    /// The client cannot ask a user.
    #[error("the client cannot ask a person: it does not declare elicitation")]
    NotSupported,
    /// The request state was changed, has expired, or belongs to another request.
    #[error("the request state is not valid")]
    InvalidState(#[source] rmcp::model::RequestStateError),
    /// The client was asked and failed to answer.
    #[error("the client did not answer the question")]
    Failed(#[source] rmcp::ServiceError),
}

impl From<InputError> for ErrorData {
    fn from(error: InputError) -> Self {
        let text = format!("The user gave no response: {error}.");
        match error {
            InputError::NotSupported => Self::missing_required_client_capability(
                ClientCapabilities::builder().enable_elicitation().build(),
            ),
            InputError::InvalidState(_) => Self::invalid_params(text, None),
            InputError::Failed(_) => Self::internal_error(text, None),
        }
    }
}

/// Asks users and signs the request state. The key is random and belongs to the process: a request that was begun
/// before a restart asks again.
#[derive(Clone, Debug)]
pub struct InputGate {
    codec: RequestStateCodec,
}

impl Default for InputGate {
    fn default() -> Self {
        // The key is in memory only: a key on disk would let another process forge confirmations.
        let key: [u8; KEY_BYTES] = rand::random();
        Self {
            // This constructor does not check the length, which the array type ensures.
            codec: RequestStateCodec::new_unchecked(key),
        }
    }
}

impl InputGate {
    /// Signs the state of a request for [`Self::open`] with the same binding. The client can read it.
    pub fn seal(&self, state: &str, binding: &str) -> String {
        let options = SealOptions::new()
            // The binding is authenticated and not stored in the state: a state for one call does not open for another.
            .associated_data(binding.as_bytes())
            .ttl(ANSWER_TIMEOUT);
        self.codec.seal_with(state.as_bytes(), &options)
    }

    /// The state that [`Self::seal`] signed.
    ///
    /// # Errors
    ///
    /// [`InputError::InvalidState`].
    pub fn open(&self, sealed: &str, binding: &str) -> Result<String, InputError> {
        let opened = self.codec.open_with(sealed, binding.as_bytes());
        opened
            .map(|state| String::from_utf8_lossy(&state).into_owned())
            .map_err(InputError::InvalidState)
    }

    /// Asks the user, or uses the answer in the repeated request.
    ///
    /// # Errors
    ///
    /// [`InputError`].
    pub async fn ask(
        &self,
        context: &RequestContext<RoleServer>,
        round: InputRound<'_>,
        question: InputQuestion,
    ) -> Result<InputAnswer, InputError> {
        let capabilities = context.client_capabilities();
        // The capability is checked before a message is sent: a client without elicitation would respond with an error
        // that looks like a bug of this server.
        if capabilities.is_none_or(|capabilities| capabilities.elicitation.is_none()) {
            return Err(InputError::NotSupported);
        }
        let params = ElicitRequestParams::FormElicitationParams {
            meta: None,
            message: question.message,
            requested_schema: question.schema,
        };
        if !is_stateless(context) {
            let asking = context
                .peer
                .create_elicitation_with_timeout(params, Some(ANSWER_TIMEOUT));
            let result = asking.await.map_err(InputError::Failed)?;
            return Ok(to_input_answer(&result.action, result.content));
        }
        let binding = question.binding.as_deref();
        let answer = round.responses.and_then(|all| all.get(question.key));
        if let Some(answered) = answer.and_then(parse_answer)
            && self.is_asked(round.state, question.key, binding)?
        {
            return Ok(answered);
        }
        let request = InputRequest::Elicitation(ElicitRequest::new(params));
        let requests = InputRequests::from([(question.key.to_owned(), request)]);
        // A new nonce each time, so that a repeated answer can be distinguished from a new one.
        let question_key = format!("{}#{:016x}", question.key, rand::random::<u64>());
        let state = binding.map(|binding| self.seal(&question_key, binding));
        Ok(InputAnswer::Pending(InputRequiredResult::new(
            Some(requests),
            state,
        )))
    }

    /// Whether a question with this binding was asked. A state that was changed is an error, not another question.
    fn is_asked(
        &self,
        state: Option<&str>,
        key: &str,
        binding: Option<&str>,
    ) -> Result<bool, InputError> {
        match (binding, state) {
            (None, _) => Ok(true),
            (Some(_), None) => Ok(false),
            (Some(binding), Some(state)) => {
                let question_key = self.open(state, binding)?;
                // The nonce is after `#`.
                Ok(question_key.split('#').next() == Some(key))
            }
        }
    }
}

/// Whether the request is of 2026-07-28 or later, where the server cannot ask the client.
pub(crate) fn is_stateless(context: &RequestContext<RoleServer>) -> bool {
    let version = context.protocol_version();
    version.is_some_and(|version| version.as_str() >= ProtocolVersion::V_2026_07_28.as_str())
}

fn to_input_answer(action: &ElicitationAction, content: Option<Value>) -> InputAnswer {
    match action {
        ElicitationAction::Accept => InputAnswer::Accepted(content.unwrap_or(Value::Null)),
        // Actions that this version of the protocol does not have count as a refusal too: only a clear "accept" sends
        // files.
        _ => InputAnswer::Refused,
    }
}

/// An answer as the client sent it; anything else counts as no answer.
fn parse_answer(given: &Value) -> Option<InputAnswer> {
    let action = serde_json::from_value(given.get("action")?.clone()).ok()?;
    Some(to_input_answer(&action, given.get("content").cloned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_changed_state_and_one_of_another_request_are_refused() {
        let gate = InputGate::default();
        let sealed = gate.seal("step 1", "send_file a.txt");
        assert_eq!(gate.open(&sealed, "send_file a.txt").unwrap(), "step 1");
        for (state, binding) in [
            (format!("{sealed}x"), "send_file a.txt"),
            (sealed.clone(), "send_file b.txt"),
            (String::new(), "send_file a.txt"),
        ] {
            let error = gate.open(&state, binding).unwrap_err();
            assert!(matches!(error, InputError::InvalidState(_)), "{error}");
        }
        let other = InputGate::default();
        assert!(other.open(&sealed, "send_file a.txt").is_err());
    }

    #[test]
    fn an_answer_without_an_action_counts_as_missing() {
        assert!(parse_answer(&serde_json::json!(12345)).is_none());
        assert!(parse_answer(&serde_json::json!({"content": {}})).is_none());
        let declined = parse_answer(&serde_json::json!({"action": "decline"}));
        assert!(matches!(declined, Some(InputAnswer::Refused)));
    }
}
