//! Rebuilds messages from the state of earlier turns.

use serde::Deserialize;
use serde_json::Value;
use thiserror::Error;

use super::HISTORY_KEY;
use crate::message::{Attachment, Content, CustomContent, Message, Role, ToolCall};

/// Messages with their tool rounds, and the problems to log.
#[derive(Clone, Debug, PartialEq)]
pub struct UnpackedHistory {
    /// The conversation, with tool rounds in place.
    pub messages: Vec<Message>,
    /// Irregularities, in the order of the messages.
    pub notices: Vec<HistoryNotice>,
}

/// An irregularity of a stored history, for the log. `index` counts the messages that were given, from 0.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum HistoryNotice {
    /// The history has the form of early releases and was read.
    #[error("message {index}: tool history of the deprecated form")]
    Legacy {
        /// Position of the assistant message that carried it.
        index: usize,
    },
    /// The history cannot be read; the conversation continues without it.
    #[error("message {index}: tool history left out: item {item}: {reason}")]
    Unreadable {
        /// Position of the assistant message that carried it.
        index: usize,
        /// The item, from 0.
        item: usize,
        /// The problem of the item; never a part of its content.
        reason: &'static str,
    },
    /// Calls without results, or results without calls, were left out of it.
    #[error("message {index}: incomplete tool rounds left out")]
    Incomplete {
        /// Position of the assistant message that carried it.
        index: usize,
    },
    /// The history is not a list; the conversation continues without it.
    #[error("message {index}: tool history left out: not a list")]
    NotAList {
        /// Position of the assistant message that carried it.
        index: usize,
    },
}

/// Puts the tool rounds that assistant messages carry before these messages, and removes them from their state.
/// Messages without rounds are not changed.
///
/// The state was stored at the client, so it may have any content. A history with an unreadable item is left out
/// completely, because a partial round is worse than none.
pub fn unpack_history(messages: Vec<Message>) -> UnpackedHistory {
    let mut unpacked = UnpackedHistory {
        messages: Vec::with_capacity(messages.len()),
        notices: Vec::new(),
    };
    for (index, mut message) in messages.into_iter().enumerate() {
        match take_history(&mut message) {
            Some(Value::Array(items)) => expand_history(index, &message, items, &mut unpacked),
            None | Some(Value::Null) => {}
            Some(_) => unpacked.notices.push(HistoryNotice::NotAList { index }),
        }
        unpacked.messages.push(message);
    }
    unpacked
}

/// Removes the history from the state of an assistant message.
fn take_history(message: &mut Message) -> Option<Value> {
    if message.role != Role::Assistant {
        return None;
    }
    let state = message.custom_content.as_mut()?.state.as_mut()?;
    // Other keys stay: they are read later, or belong to the model's deployment (quickapps 11.3).
    state.as_object_mut()?.shift_remove(HISTORY_KEY)
}

/// Reads all items of one history, or none.
fn expand_history(
    index: usize,
    message: &Message,
    items: Vec<Value>,
    unpacked: &mut UnpackedHistory,
) {
    let mut rounds = Vec::with_capacity(items.len());
    let mut is_legacy = false;
    for (item_index, item) in items.into_iter().enumerate() {
        // Items of early releases are pairs of a call and its result and have no role.
        let read = if item.get("role").is_some() {
            parse_current_item(item).map(|item| rounds.push(item))
        } else {
            is_legacy = true;
            parse_legacy_item(message, item).map(|pair| rounds.extend(pair))
        };
        // The check comes before messages are appended: a history is used completely or not at all.
        if let Err(reason) = read {
            unpacked.notices.push(HistoryNotice::Unreadable {
                index,
                item: item_index,
                reason,
            });
            return;
        }
    }
    if is_legacy {
        unpacked.notices.push(HistoryNotice::Legacy { index });
    }
    let before = rounds.len();
    keep_complete_rounds(&mut rounds);
    if rounds.len() < before {
        unpacked.notices.push(HistoryNotice::Incomplete { index });
    }
    unpacked.messages.append(&mut rounds);
}

/// Drops rounds that lack a result, and results without their call: a model's service refuses either, in this turn and
/// in all that follow.
fn keep_complete_rounds(rounds: &mut Vec<Message>) {
    let mut is_complete = false;
    // The flags are decided before messages are removed, because whether a round is complete depends on the messages
    // after it.
    let keep_flags: Vec<bool> = (0..rounds.len())
        .map(|position| {
            let (Some(message), Some(after)) = (rounds.get(position), rounds.get(position + 1..))
            else {
                return false;
            };
            if message.role == Role::Assistant {
                // The results that follow are treated like their round.
                is_complete = !message.calls().is_empty() && super::is_answered(message, after);
            }
            is_complete
        })
        .collect();
    let mut keep_flags = keep_flags.into_iter();
    rounds.retain(|_| keep_flags.next().unwrap_or(false));
    for message in rounds
        .iter_mut()
        .filter(|message| message.content.is_none())
    {
        // Packing removed a `null` content, and some services refuse a message without a content.
        message.content = Some(Content::Text(String::new()));
    }
}

/// An item that is a message, of a role that [`super::pack_history`] writes.
fn parse_current_item(item: Value) -> Result<Message, &'static str> {
    match serde_json::from_value::<Message>(item) {
        // The state was stored at the client, so a message of another role could inject instructions.
        Ok(message) if matches!(message.role, Role::Assistant | Role::Tool) => Ok(message),
        Ok(_) => Err("only assistant and tool messages have a place in it"),
        Err(_) => Err("not a message"),
    }
}

/// An item of early releases.
#[derive(Deserialize)]
struct LegacyItem {
    tool_call: ToolCall,
    tool_execution_result: LegacyResult,
}

/// The result in an item of early releases.
#[derive(Deserialize)]
struct LegacyResult {
    tool_call_id: Option<String>,
    content: Option<Content>,
    attachments: Option<Vec<Attachment>>,
    state: Option<Value>,
}

/// A copy of the assistant message with this one call, and a tool message.
fn parse_legacy_item(message: &Message, item: Value) -> Result<[Message; 2], &'static str> {
    let LegacyItem {
        tool_call,
        tool_execution_result: result,
    } = serde_json::from_value(item).map_err(|_| "neither a message nor a call with its result")?;
    let mut tool_message = Message::new(Role::Tool, "");
    tool_message.content = result.content.or(tool_message.content);
    tool_message.tool_call_id = result.tool_call_id.or_else(|| Some(tool_call.id.clone()));
    if result.attachments.is_some() || result.state.is_some() {
        tool_message.custom_content = Some(CustomContent {
            attachments: result.attachments,
            state: result.state,
            ..CustomContent::default()
        });
    }
    let call = Message {
        content: Some(Content::Text(String::new())),
        tool_calls: Some(vec![tool_call]),
        // Its history was already removed, so the copy does not contain it again.
        ..message.clone()
    };
    Ok([call, tool_message])
}
