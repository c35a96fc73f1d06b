//! Events of an answer, in the order in which the client gets them (quickapps 3.2).

use serde_json::Value;

use crate::citation::CitationSource;
use crate::message::{Attachment, ToolCall};

/// One event for the client. Texts of stages and of the answer are appended to earlier ones.
#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    /// Text that is appended to the answer.
    Content(String),
    /// More of the model's reasoning, only for clients of `OpenAI`'s API.
    Reasoning(String),
    /// More of a refusal by the model, only for clients of `OpenAI`'s API.
    Refusal(String),
    /// Log probabilities of the last text, as the model wrote them.
    Logprobs(Value),
    /// The server's own tools run. Their output is not shown, but the stream begins now, so that heartbeats keep the
    /// connection open.
    ToolsStarted,
    /// Calls begin that another request must not make again. It shows nothing; a failure that follows says that the
    /// request must not be repeated automatically.
    CallsStarted,
    /// A file of the answer.
    Attachment(Attachment),
    /// A file of the answer that the client can read from `/v1/files`, only for clients of `/v1/responses`.
    OutputFile {
        /// Id of the file in `/v1/files`.
        id: String,
        /// The file's name for people.
        name: String,
    },
    /// Sources that the answer may cite from now on, only for clients of `OpenAI`'s API. It shows nothing by itself.
    Sources(Vec<CitationSource>),
    /// A stage begins. Numbers count from 0 in order of opening.
    StageOpened {
        /// Number of the new stage; the other events name it.
        stage: u32,
        /// Name of the stage, if it is known already.
        name: Option<String>,
    },
    /// Text that is appended to the name of a stage.
    StageName {
        /// Number of the stage.
        stage: u32,
        /// Text that is appended to the name.
        name: String,
    },
    /// Text that is appended to the content of a stage.
    StageContent {
        /// Number of the stage.
        stage: u32,
        /// Text that is appended to the content.
        content: String,
    },
    /// A file of a stage.
    StageAttachment {
        /// Number of the stage.
        stage: u32,
        /// The file, with content or an address.
        attachment: Attachment,
    },
    /// A stage ends; no text is added afterwards.
    StageClosed {
        /// Number of the stage.
        stage: u32,
        /// The outcome of its work.
        status: StageStatus,
    },
    /// The state for the next turn; once per answer.
    State(Value),
    /// Calls that the client must make itself.
    ToolCalls(Vec<ToolCall>),
    /// Calls that a person must approve, only for clients of `/v1/responses`.
    ApprovalRequests(Vec<ApprovalRequest>),
    /// The tools of an MCP server, only for clients of `/v1/responses`. It shows nothing by itself.
    McpTools(McpToolList),
    /// A call of a tool of an MCP server begins, only for clients of `/v1/responses`.
    McpCallStarted(McpCallStart),
    /// A call of an MCP tool ends.
    McpCallEnded(McpCallEnd),
}

/// The tools of an MCP server.
#[derive(Clone, Debug, PartialEq)]
pub struct McpToolList {
    /// Name of the tool set.
    pub server: String,
    /// The server's tools, as the model gets them.
    pub tools: Vec<McpListedTool>,
    /// The reason why there are none.
    pub error: Option<String>,
}

/// A tool of an MCP server.
#[derive(Clone, Debug, PartialEq)]
pub struct McpListedTool {
    /// The tool's name for the model.
    pub name: String,
    /// Description of the tool.
    pub description: Option<String>,
    /// JSON schema of its arguments.
    pub input_schema: Value,
}

/// A call of a tool of an MCP server that begins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct McpCallStart {
    /// The model's id of the call.
    pub call_id: String,
    /// Name of the tool set.
    pub server: String,
    /// Name of the tool for the model.
    pub tool: String,
    /// The call's arguments as the model wrote them.
    pub arguments: String,
    /// Id of the question by which the client approved it; see [`ApprovalRequest::id`].
    pub approval_id: Option<String>,
    /// Whether it continues after a question to the user, and may have begun before.
    pub continues: bool,
}

/// A call of a tool of an MCP server that ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct McpCallEnd {
    /// The model's id of the call.
    pub call_id: String,
    /// The result as the model gets it.
    pub text: String,
    /// Whether the result is a failure.
    pub failed: bool,
}

/// A call that waits for the approval of a person.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ApprovalRequest {
    /// Id of the question, which the answer has to contain.
    pub id: String,
    /// The source of the tool, for people.
    pub source: String,
    /// Name of the tool.
    pub tool: String,
    /// Canonical JSON of the arguments.
    pub arguments: String,
    /// SHA-256 of tool and arguments in hexadecimal digits, see [`crate::approval::call_digest`].
    pub digest: String,
    /// Unix milliseconds from which an answer is not accepted.
    pub expires_ms: u64,
    /// The chat whose people decide; the client is only informed of it.
    pub chat: Option<String>,
}

/// The result of a stage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StageStatus {
    /// The work of the stage succeeded.
    Completed,
    /// The work of the stage failed or was cut short.
    Failed,
}

impl StageStatus {
    /// The name on the wire.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Completed => "completed",
            Self::Failed => "failed",
        }
    }
}

/// The reason why an answer ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FinishReason {
    /// The model ended its answer.
    #[default]
    Stop,
    /// The client must make calls.
    ToolCalls,
    /// The model reached a limit.
    Length,
    /// A filter stopped the model.
    ContentFilter,
}

impl FinishReason {
    /// The name on the wire.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Stop => "stop",
            Self::ToolCalls => "tool_calls",
            Self::Length => "length",
            Self::ContentFilter => "content_filter",
        }
    }

    /// A remark after the text of an answer with this end, for a model that would take it for a complete one.
    pub const fn incomplete_remark(self) -> Option<&'static str> {
        match self {
            Self::Stop | Self::ToolCalls => None,
            Self::Length => Some("\n\n[The answer reached a limit and is not complete.]"),
            Self::ContentFilter => Some("\n\n[A filter ended the answer before it was complete.]"),
        }
    }
}

/// Tokens of one call of a model, or of several together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TokenUsage {
    /// Tokens of the prompt.
    pub prompt: u64,
    /// Tokens of the answer.
    pub completion: u64,
    /// Tokens of the prompt that the model's service had cached.
    pub cached: u64,
    /// Tokens of the prompt that the model's service wrote to its cache.
    pub cache_written: u64,
    /// Tokens of the answer that were used for reasoning.
    pub reasoning: u64,
}

impl TokenUsage {
    /// Highest number of tokens that a service can report for one call. A higher one is an error of the service, and
    /// sums of such numbers overflow.
    pub const MAX_COUNT: u64 = u32::MAX as u64;

    /// The sum of both; each number saturates.
    #[must_use]
    pub const fn plus(self, more: Self) -> Self {
        Self {
            prompt: self.prompt.saturating_add(more.prompt),
            completion: self.completion.saturating_add(more.completion),
            cached: self.cached.saturating_add(more.cached),
            cache_written: self.cache_written.saturating_add(more.cache_written),
            reasoning: self.reasoning.saturating_add(more.reasoning),
        }
    }
}

/// Tokens of one model.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ModelUsage {
    /// Id of the model or deployment.
    pub model: String,
    /// Tokens of its prompts and completions.
    pub tokens: TokenUsage,
}

/// The end of an answer; sent last.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AnswerEnd {
    /// The reason why the last answer of the model ended.
    pub reason: FinishReason,
    /// All tokens, when they were counted.
    pub usage: Option<TokenUsage>,
    /// Tokens by model, in order of first use.
    pub per_model: Vec<ModelUsage>,
}
