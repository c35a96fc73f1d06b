//! The script: rules that choose the answer to a request.

use serde::Deserialize;
use serde_json::Value;

/// Rules; the first matching one determines the answer.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Script {
    /// The rules in order of precedence.
    pub rules: Vec<ScriptRule>,
}

/// An answer and when it is given.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ScriptRule {
    /// Requests that it answers; all by default.
    #[serde(default)]
    pub when: RuleCondition,
    /// The answer to a request that matches the rule.
    pub reply: ScriptedReply,
    /// Number of times it answers; unlimited by default.
    #[serde(default)]
    pub times: Option<u32>,
}

/// Conditions on a request; all set ones must be true.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct RuleCondition {
    /// The last message of the user contains this.
    pub last_user_contains: Option<String>,
    /// The newest calls, which all have results, include one of this tool, and no message follows them.
    pub tool_result_of: Option<String>,
    /// The conversation has this many messages of the user.
    pub nth: Option<usize>,
    /// The requested model.
    pub model: Option<String>,
    /// A tool of this name is offered.
    pub has_tool: Option<String>,
}

/// An answer: stages, text, files, state and calls, in this order.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ScriptedReply {
    /// Text; `{user}` is replaced by the last message of the user, `{result}` by the newest result of a tool.
    pub say: String,
    /// Calls of tools, in order; they come after the text.
    pub call: Vec<ScriptedCall>,
    /// Stages, as deployments of DIAL show them.
    pub stages: Vec<ScriptedStage>,
    /// Files, as in `custom_content.attachments`.
    pub attachments: Vec<Value>,
    /// The state of the model.
    pub state: Option<Value>,
    /// The finish reason; by default it follows from the calls.
    pub finish_reason: Option<String>,
    /// Tokens; by default counted by words.
    pub usage: Option<ScriptedUsage>,
    /// A failure instead of an answer.
    pub fail: Option<ScriptedFailure>,
    /// The connection breaks after this many chunks.
    pub cut_after: Option<usize>,
    /// Wait before each chunk, in milliseconds.
    pub delay_ms: u64,
    /// Most characters of text in a chunk; all by default.
    pub piece: Option<usize>,
}

/// A call of a tool.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ScriptedCall {
    /// Name of the tool, offered or not.
    pub name: String,
    /// Arguments; a text is used unchanged, even if it is malformed.
    #[serde(default)]
    pub arguments: Value,
}

/// A stage of a deployment, as `custom_content.stages` shows it.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ScriptedStage {
    /// Name that the chat shows for it.
    pub name: String,
    /// Markdown below the name; may be empty.
    #[serde(default)]
    pub content: String,
    /// `completed`, `failed`, or `None` for a stage that stays open.
    #[serde(default)]
    pub status: Option<String>,
}

/// Token counts that the answer reports.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ScriptedUsage {
    /// Tokens of the request's messages.
    pub prompt: u64,
    /// Tokens of the answer's text.
    pub completion: u64,
}

/// An HTTP failure in place of an answer.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ScriptedFailure {
    /// HTTP status of the response.
    pub status: u16,
    /// The complete body; by default an error with `message`.
    #[serde(default)]
    pub body: Option<Value>,
    /// Message of the error; unused when there is a `body`.
    #[serde(default)]
    pub message: String,
}

impl Script {
    /// A script with a constant answer.
    pub fn saying(text: &str) -> Self {
        Self {
            rules: vec![ScriptRule {
                reply: ScriptedReply {
                    say: text.to_owned(),
                    ..ScriptedReply::default()
                },
                ..ScriptRule::default()
            }],
        }
    }

    /// Reads a script.
    ///
    /// # Errors
    ///
    /// When the text is not JSON or not a script.
    pub fn from_json(text: &str) -> Result<Self, serde_json::Error> {
        serde_json::from_str(text)
    }
}

impl RuleCondition {
    /// Whether a request meets the conditions.
    pub(super) fn matches(&self, model: &str, body: &Value) -> bool {
        let messages = request_messages(body);
        let is_met = |expected: &Option<String>, test: &dyn Fn(&str) -> bool| {
            expected.as_deref().is_none_or(test)
        };
        is_met(&self.model, &|expected| expected == model)
            && is_met(&self.last_user_contains, &|expected| {
                last_user(messages).contains(expected)
            })
            && is_met(&self.tool_result_of, &|expected| {
                newest_calls(messages).any(|name| name == expected)
            })
            && is_met(&self.has_tool, &|expected| {
                let tools = body.get("tools").and_then(Value::as_array);
                let mut names = tools
                    .into_iter()
                    .flatten()
                    .map(|tool| pointer_text(tool, "/function/name"));
                names.any(|name| name == expected)
            })
            // The messages in the request are counted, and not the requests to the server, so that a repeated request
            // gets the same response.
            && self.nth.is_none_or(|nth| {
                let users = messages
                    .iter()
                    .filter(|message| pointer_text(message, "/role") == "user");
                users.count() == nth
            })
    }
}

pub(super) fn request_messages(body: &Value) -> &[Value] {
    body.get("messages")
        .and_then(Value::as_array)
        .map_or(&[], Vec::as_slice)
}

fn pointer_text<'a>(value: &'a Value, pointer: &str) -> &'a str {
    value
        .pointer(pointer)
        .and_then(Value::as_str)
        .unwrap_or_default()
}

/// The text of the user's last message; parts are joined.
pub(super) fn last_user(messages: &[Value]) -> String {
    let user = messages
        .iter()
        .rev()
        .find(|message| pointer_text(message, "/role") == "user");
    user.map(message_content).unwrap_or_default()
}

/// The newest result of a tool after the last message of the user; empty without one.
pub(super) fn newest_result(messages: &[Value]) -> String {
    let since = messages
        .iter()
        .rev()
        // Results of earlier turns do not count, because a message of the user follows them.
        .take_while(|message| pointer_text(message, "/role") != "user");
    let mut results = since.filter(|message| pointer_text(message, "/role") == "tool");
    results.next().map(message_content).unwrap_or_default()
}

fn message_content(message: &Value) -> String {
    match message.get("content") {
        Some(Value::String(text)) => text.clone(),
        Some(Value::Array(parts)) => parts
            .iter()
            .map(|part| pointer_text(part, "/text"))
            .collect(),
        _ => String::new(),
    }
}

/// Tools of the newest round of calls; none if a message other than a result follows them.
fn newest_calls(messages: &[Value]) -> impl Iterator<Item = &str> {
    let is_result = |message: &&Value| pointer_text(message, "/role") == "tool";
    let has_results = messages.last().is_some_and(|last| is_result(&last));
    let caller = messages.iter().rev().find(|message| !is_result(message));
    let calls = caller
        .filter(|_| has_results)
        .and_then(|caller| caller.get("tool_calls")?.as_array());
    calls
        .into_iter()
        .flatten()
        .map(|call| pointer_text(call, "/function/name"))
}
