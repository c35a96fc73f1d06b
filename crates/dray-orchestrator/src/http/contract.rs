//! The interface between the HTTP surface and the turns behind it.

use std::sync::Arc;

use async_trait::async_trait;
use dray_agent::caller::Caller;
use dray_agent::event::AnswerEnd;
use dray_agent::failure::RequestFailure;
use dray_agent::manifest::Manifest;
use dray_agent::message::Message;
use dray_tool::EventSink;
use dray_types::TraceContext;
use serde_json::{Map, Value};

use crate::permissions::CallerIdentity;
use crate::progress::ResponseRun;

/// The agent that answers requests.
#[async_trait]
pub trait Agent: Send + Sync + 'static {
    /// Answers one chat request. Events go to `sink` as they happen; the state is one of them and is sent after a
    /// failure too. The surface writes the start chunk, the end chunk and the error event.
    ///
    /// The future is dropped as soon as the client has disconnected, and a send to `sink` waits while the client is
    /// slow.
    ///
    /// # Errors
    ///
    /// [`RequestFailure`]. The client gets it as HTTP status and body when only the state was sent before, or
    /// when it did not ask for a stream; else as the last event of the stream.
    async fn answer(
        &self,
        asked: CheckedChatRequest,
        sink: EventSink,
    ) -> Result<AnswerEnd, RequestFailure>;

    /// Asks DIAL Core whose key a caller sent. The surface calls this before anything else for a caller.
    ///
    /// # Errors
    ///
    /// [`RequestFailure`] with status 401 for a key that DIAL Core does not know, 503 when it cannot be asked.
    async fn verify(&self, caller: &Caller) -> Result<CallerIdentity, RequestFailure>;

    /// The manifest that a request names, read and checked.
    ///
    /// # Errors
    ///
    /// [`RequestFailure`] when there is none, it is refused, or it is not for this caller.
    async fn manifest(
        &self,
        caller: &Caller,
        identity: &CallerIdentity,
        source: &ManifestSource,
    ) -> Result<Arc<Manifest>, RequestFailure>;

    /// A deployment tool for a manifest, made from the metadata of a deployment of DIAL (quickapps 24.4, 38).
    ///
    /// # Errors
    ///
    /// [`RequestFailure`]; 404 for an unknown deployment.
    async fn template(&self, caller: &Caller, deployment: &str) -> Result<Value, RequestFailure>;
}

/// A chat request whose body, caller and manifest source are known and valid.
#[derive(Clone, Debug)]
pub struct CheckedChatRequest {
    /// The body, read and checked.
    pub request: ChatRequest,
    /// Credentials and headers of the request, for calls on its behalf.
    pub caller: Caller,
    /// The caller; a key of DIAL was verified with DIAL Core.
    pub identity: CallerIdentity,
    /// The source of the agent's manifest.
    pub manifest: ManifestSource,
    /// The deployment in the path; for plain `OpenAI` requests, the model.
    pub deployment: String,
    /// Whether the request was sent to a deployment as DIAL has them, and not to the plain endpoint.
    pub is_dial: bool,
    /// Id of the request in the log; the client has it in `x-request-id`.
    pub request_id: String,
    /// The trace that the client names; empty if it names none.
    pub trace: TraceContext,
}

/// The source of a manifest (quickapps 2.2).
#[derive(Clone, Debug, PartialEq)]
pub enum ManifestSource {
    /// The request contains the manifest.
    Given(Value),
    /// DIAL Core has the manifest, as the properties of this application.
    Application(String),
    /// The local directory has the manifest, under this name.
    Named(String),
    /// The request names none.
    Default,
}

/// The fields of a body that are used (quickapps 3.1). Sampling parameters are checked; those of DIAL's requests have
/// no effect, because the manifest decides about sampling.
#[derive(Clone, Debug, Default)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is an independent option of the client"
)]
pub struct ChatRequest {
    /// The model that the body names.
    pub model: Option<String>,
    /// The conversation; its order of roles was checked.
    pub messages: Vec<Message>,
    /// Whether the client wants the answer as a stream. The agent sends events either way.
    pub stream: bool,
    /// Tools that the client would call itself.
    pub tools: Vec<Value>,
    /// The tool that the model must call first.
    pub tool_choice: Option<Value>,
    /// Form of the answer.
    pub response_format: Option<Value>,
    /// `custom_fields.configuration`: what the user chose of the agent's configuration, such as a starter.
    pub configuration: Option<Value>,
    /// `stream_options.include_usage`: whether the answer ends with the tokens that it used.
    pub include_usage: bool,
    /// For plain requests: other parameters for the model that the client sets, by name. The manifest decides which of
    /// them may be set.
    pub parameters: Map<String, Value>,
    /// Whether the request has a `custom_content`: its client finds files of the answer there.
    pub knows_custom_content: bool,
    /// Whether files of the answer become files of `/v1/files`, which the answer cites, and are not named in its text.
    pub cites_files: bool,
    /// Whether calls of MCP servers become items of the answer.
    pub shows_mcp_calls: bool,
    /// Whether the tools of MCP servers become items of the answer, which is so at the beginning of a conversation.
    pub lists_mcp_tools: bool,
    /// How the client gets questions about approvals.
    pub approval_form: ApprovalForm,
    /// Whether the client gets questions of tools as calls of `INPUT_TOOL`, which it declared; otherwise as text.
    pub takes_input_calls: bool,
    /// The response that the turn makes, which another replica may have to finish.
    pub background: Option<ResponseRun>,
}

/// Name of the function that a client declares to get questions about approvals as calls. The model never sees it.
pub(crate) const APPROVAL_TOOL: &str = "request_approval";

/// Name of the function that a client declares to get questions of tools as calls. The model never sees it.
pub(crate) const INPUT_TOOL: &str = "request_input";

/// The form in which a client gets questions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ApprovalForm {
    /// The client gets a question as text of the answer, and the next message of the user answers it.
    #[default]
    Text,
    /// The client gets a question as a call of `APPROVAL_TOOL`, which the client declared.
    ClientTool,
    /// The client gets a question as an item of `/v1/responses`.
    Items,
    /// The client cannot get questions: such calls are refused.
    Unavailable,
}
