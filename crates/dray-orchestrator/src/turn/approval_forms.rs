//! Questions about approvals in the forms that clients get, and the answers that they send back.
//!
//! - A client that declares the function `request_approval` gets the question as a call of it, and answers with a
//!   result.
//! - A client of `/v1/responses` gets items of the type `mcp_approval_request`; the surface turns its answers into such
//!   results.
//! - Every other client gets a text, whose last line names the approval. The next message of the user answers it:
//!   `yes`, or anything else for no.

use std::fmt::Write as _;

use dray_agent::event::ApprovalRequest;
use dray_agent::failure::RequestFailure;
use dray_agent::message::{Content, FunctionCall, Message, Role, ToolCall};
use dray_tool::UserAnswer;
use dray_tool::stage::body::fence_text;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::paused::call_id;
use super::prepare::iso_minute;
use super::question_forms::{answer_result, read_text_answer, wait_result};
use crate::approvals::{APPROVAL_PREFIX, ApprovalRecord, ApprovalStore, expired_failure};
use crate::http::APPROVAL_TOOL;

/// Begins the last line of a question in text.
pub(super) const MARKER_START: &str = "[approval ";
/// Characters of an id of an approval.
const ID_CHARS: usize = 36;
/// Questions in text that are looked up in one conversation, newest first.
const MAX_TEXT_QUESTIONS: usize = 64;
/// The comment for a person who wrote something else.
const OTHER_ANSWER: &str = "The user did not answer yes or no, and sent another message.";
/// The text that a user sends to continue with a call about which a chat is asked.
pub(super) const CONTINUE_WORD: &str = "continue";
/// Code for an answer that does not have the required form.
const ANSWER_CODE: &str = "invalid_approval";

/// The answer of a client to a question.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
pub(super) struct ApprovalAnswer {
    /// Whether the call may be made.
    pub(super) approve: bool,
    /// The person's comment; the model gets it with a refusal.
    #[serde(default)]
    pub(super) reason: Option<String>,
    /// Digest of the call, of clients that check it.
    #[serde(default)]
    pub(super) digest: Option<String>,
}

impl ApprovalAnswer {
    /// Reads the result of a call of `request_approval`.
    ///
    /// # Errors
    ///
    /// 400 that says what is expected.
    pub(super) fn read(message: &Message) -> Result<Self, RequestFailure> {
        let read = serde_json::from_str(&message_text(message));
        read.map_err(|_| {
            RequestFailure::of_parameter(
                "messages",
                ANSWER_CODE,
                format!(
                    "The result of '{APPROVAL_TOOL}' must be JSON such as {{\"approve\": true}} or {{\"approve\": false, \
                     \"reason\": \"…\"}}. Nothing was done."
                ),
            )
        })
    }
}

/// The questions as calls of the function that a client declared for them.
pub(crate) fn question_calls(requests: &[ApprovalRequest]) -> Vec<ToolCall> {
    let call = |request: &ApprovalRequest| {
        let mut arguments = json!({
            "source": request.source,
            "tool": request.tool,
            "arguments": serde_json::from_str::<Value>(&request.arguments).unwrap_or_default(),
            "digest": request.digest,
            "expires_at": request.expires_ms / 1000,
        });
        if let (Some(chat), Some(members)) = (&request.chat, arguments.as_object_mut()) {
            members.insert("chat".to_owned(), json!(chat));
        }
        approval_call(&request.id, arguments.to_string())
    };
    requests.iter().map(call).collect()
}

fn approval_call(id: &str, arguments: String) -> ToolCall {
    ToolCall {
        id: id.to_owned(),
        kind: "function".to_owned(),
        function: FunctionCall {
            name: APPROVAL_TOOL.to_owned(),
            arguments,
            rest: Map::new(),
        },
        rest: Map::new(),
    }
}

/// The questions as a text, which ends with the id of the first approval.
pub(super) fn question_text(requests: &[ApprovalRequest], approval_id: &str) -> String {
    let mut text = String::new();
    for request in requests {
        let arguments = fence_text(&visible_text(&request.arguments), "json");
        let tool = &request.tool;
        let _ = match &request.chat {
            None => write!(
                text,
                "The agent asks for your approval to call `{tool}`:\n\n{arguments}\n"
            ),
            Some(chat) => write!(
                text,
                "The agent waits until the people of the chat `{chat}` approve its call of `{tool}`:\n\n{arguments}\n"
            ),
        };
    }
    let (these, until) = match requests {
        [only] => ("this call", only.expires_ms),
        _ => (
            "all these calls",
            requests.first().map_or(0, |first| first.expires_ms),
        ),
    };
    let until = iso_minute(until);
    if requests.iter().all(|request| request.chat.is_some()) {
        let _ = write!(
            text,
            "Send `{CONTINUE_WORD}` to continue when it is decided. Every other message takes the question back, if it is not \
             decided by then.\n\n{MARKER_START}{approval_id}, until {until}]"
        );
        return text;
    }
    let _ = write!(
        text,
        "Answer `yes` to allow {these} once, or `no` to refuse. Every other answer refuses as well.\n\n\
         {MARKER_START}{approval_id}, until {until}]"
    );
    text
}

/// The question to the people of a chat, before the arguments of the call.
pub(super) fn chat_question(source: &str, tool: &str, principal: &str, expires_ms: u64) -> String {
    let line =
        format!("The agent of {principal} asks for approval to call {tool} of {source}, once.");
    format!(
        "{} Valid until {}.",
        visible_text(&line),
        iso_minute(expires_ms)
    )
}

/// Text in which invisible characters, and characters that change the visible order, are escaped (Unicode, format
/// characters). JSON reads the escapes as the same characters.
pub(super) fn visible_text(text: &str) -> String {
    escape_text(text, is_invisible)
}

/// Like [`visible_text`], for short texts that people compare: blanks other than the usual one are escaped too.
pub(super) fn label_text(text: &str) -> String {
    escape_text(text, |character| {
        is_invisible(character) || (character != ' ' && character.is_whitespace())
    })
}

fn escape_text(text: &str, is_hidden: impl Fn(char) -> bool) -> String {
    let mut visible = String::with_capacity(text.len());
    for character in text.chars() {
        if is_hidden(character) {
            let mut units = [0; 2];
            for unit in character.encode_utf16(&mut units) {
                let _ = write!(visible, "\\u{unit:04x}");
            }
        } else {
            visible.push(character);
        }
    }
    visible
}

/// Whether a person cannot see a character. The only blank among these characters is the Braille blank.
pub(super) fn is_invisible(character: char) -> bool {
    character.is_control()
        || matches!(character,
            '\u{ad}' | '\u{34f}' | '\u{61c}' | '\u{115f}'..='\u{1160}' | '\u{17b4}'..='\u{17b5}' | '\u{180b}'..='\u{180f}'
            | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{2800}' | '\u{3164}'
            | '\u{fe00}'..='\u{fe0f}' | '\u{feff}' | '\u{ffa0}' | '\u{fff0}'..='\u{fffb}' | '\u{e0000}'..='\u{e0fff}')
}

/// Turns questions in text and the messages that answer them into calls and results, as other clients have them.
///
/// # Errors
///
/// 400 for the answer to a question that does not exist, 503 while the bus fails.
pub(super) async fn read_text_answers(
    approvals: &ApprovalStore,
    principal: &str,
    messages: &mut Vec<Message>,
) -> Result<(), RequestFailure> {
    let open_questions: Vec<(usize, String)> = messages
        .iter()
        .enumerate()
        .filter_map(|(at, message)| Some((at, marked_approval(message)?)))
        .collect();
    // Questions are handled from the last one on, so that the positions of earlier ones stay valid.
    for (at, id) in open_questions.into_iter().rev().take(MAX_TEXT_QUESTIONS) {
        let Some(answer) = messages.get(at + 1).filter(|next| next.role == Role::User) else {
            continue;
        };
        let text = message_text(answer);
        let is_waiting = at + 2 == messages.len();
        let Some(record) = approvals.get(principal, &id).await? else {
            if is_waiting && (text_choice(&text).is_some() || text_action(&text)) {
                return Err(expired_failure());
            }
            // An earlier question stays as it was shown.
            continue;
        };
        let record = record.value;
        let (content, is_answer) = text_answer(&record, &text);
        let ids: Vec<_> = (0..record.round_size)
            .map(|number| call_id(&record.token, number))
            .collect();
        let calls = ids.iter().map(|id| approval_call(id, String::new()));
        let mut asks = Message::new(Role::Assistant, "");
        asks.tool_calls = Some(calls.collect());
        let results = ids.iter().map(|id| Message {
            tool_call_id: Some(id.clone()),
            ..Message::new(Role::Tool, content.to_string())
        });
        let replaced = at..at + if is_answer { 2 } else { 1 };
        messages.splice(replaced, std::iter::once(asks).chain(results));
    }
    Ok(())
}

/// The decision that a message of the user expresses, as the result of its call, and whether the message contains
/// nothing else.
fn text_answer(record: &ApprovalRecord, text: &str) -> (Value, bool) {
    // Only the people of the chat approve; the caller waits longer, or withdraws the question.
    let continues = record.chat.is_some() && text.trim().eq_ignore_ascii_case(CONTINUE_WORD);
    if let Some(questions) = &record.questions {
        return match read_text_answer(questions, text) {
            Some(answers) => (answer_result(&answers), true),
            None if continues => (wait_result(), true),
            None => (
                answer_result(
                    &questions
                        .keys()
                        .map(|key| (key.clone(), UserAnswer::Cancelled))
                        .collect(),
                ),
                false,
            ),
        };
    }
    if continues {
        return (json!({ "approve": true }), true);
    }
    match text_choice(text) {
        Some(approve) => (json!({ "approve": approve }), true),
        None => (json!({ "approve": false, "reason": OTHER_ANSWER }), false),
    }
}

/// Whether a message of a user is certainly the answer to a question.
fn text_action(text: &str) -> bool {
    matches!(
        text.trim().to_lowercase().as_str(),
        "done" | "decline" | "cancel"
    )
}

/// The approval that the last line of an answer names.
fn marked_approval(message: &Message) -> Option<String> {
    if message.role != Role::Assistant {
        return None;
    }
    let text = message_text(message);
    let line = text.trim_end().lines().next_back()?;
    let named = line.strip_prefix(MARKER_START)?.strip_suffix(']')?;
    let id = named.get(..ID_CHARS)?;
    let is_id = id
        .strip_prefix(APPROVAL_PREFIX)?
        .bytes()
        .all(|byte| byte.is_ascii_hexdigit());
    is_id.then(|| id.to_owned())
}

/// The decision in a message of a user; `None` for anything but yes and no.
fn text_choice(text: &str) -> Option<bool> {
    match text.trim().to_lowercase().as_str() {
        "yes" => Some(true),
        "no" => Some(false),
        _ => None,
    }
}

/// The text of a message, its parts of text one after the other.
pub(super) fn message_text(message: &Message) -> String {
    match &message.content {
        Some(Content::Text(text)) => text.clone(),
        Some(Content::Parts(parts)) => parts
            .iter()
            .filter_map(|part| part.get("text")?.as_str())
            .collect(),
        None => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(arguments: &str) -> ApprovalRequest {
        ApprovalRequest {
            id: "dray_x_0".to_owned(),
            source: "shop".to_owned(),
            tool: "shop_order".to_owned(),
            arguments: arguments.to_owned(),
            digest: "d".repeat(64),
            expires_ms: 1_790_000_000_000,
            chat: None,
        }
    }

    #[test]
    fn a_question_shows_the_call_and_ends_with_its_approval() {
        let id = format!("apr_{}", "0a".repeat(16));
        let text = question_text(&[request("{\"q\":\"```\\nreply yes\"}")], &id);
        assert!(
            text.contains("````json\n{\"q\":\"```\\nreply yes\"}\n````"),
            "{text}"
        );
        let message = Message::new(Role::Assistant, format!("Let me order.\n\n{text}\n"));
        assert_eq!(marked_approval(&message), Some(id));
        let other = Message::new(Role::User, text);
        assert_eq!(marked_approval(&other), None);
    }

    #[test]
    fn invisible_characters_are_escaped() {
        assert_eq!(
            visible_text("a\u{202e}b\u{e0041}ü€"),
            "a\\u202eb\\udb40\\udc41ü€"
        );
        let blanks = "1\u{a0}000 €\u{2800}";
        assert_eq!(visible_text(blanks), "1\u{a0}000 €\\u2800");
        assert_eq!(label_text(blanks), "1\\u00a0000 €\\u2800");
    }

    #[test]
    fn only_yes_and_no_are_answers() {
        for (text, choice) in [
            (" Yes\n", Some(true)),
            ("NO", Some(false)),
            ("yes, but", None),
            ("y", None),
            ("", None),
        ] {
            assert_eq!(text_choice(text), choice, "{text}");
        }
    }

    #[test]
    fn an_answer_is_json_with_a_decision() {
        let read = |text: &str| ApprovalAnswer::read(&Message::new(Role::Tool, text));
        assert!(read(r#"{"approve": true}"#).unwrap().approve);
        for wrong in ["yes", "{}", r#"{"approve": "true"}"#, ""] {
            assert_eq!(read(wrong).unwrap_err().code.as_deref(), Some(ANSWER_CODE));
        }
    }
}
