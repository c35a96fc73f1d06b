//! Texts of paused turns whose messages were deleted from a conversation. The records are immutable, so the answers are
//! marked ([`TEXTS_DELETED_KEY`]), and the texts are removed from what a request restores.

use std::collections::{HashMap, HashSet};

use dray_agent::message::Message;
use dray_agent::state::TEXTS_DELETED_KEY;
use serde_json::Value;

use super::{RestoredTurn, id_parts};

/// Removes the texts of records whose messages are deleted, and of the records that replace them.
pub(super) fn remove_deleted_texts(
    messages: &[Message],
    records: &mut HashMap<String, RestoredTurn>,
) {
    let deleted = messages.iter().filter(|message| {
        let custom = message.custom_content.as_ref();
        let state = custom.and_then(|custom| custom.state.as_ref());
        state.is_some_and(|state| state.get(TEXTS_DELETED_KEY) == Some(&Value::Bool(true)))
    });
    let calls = deleted.flat_map(Message::calls);
    let mut tokens: Vec<String> = calls
        .filter_map(|call| id_parts(&call.id).map(|(token, _)| token.to_owned()))
        .collect();
    let mut done = HashSet::new();
    while let Some(token) = tokens.pop() {
        if !done.insert(token.clone()) {
            continue;
        }
        // Later records of the same round exist when the client was asked again.
        let later = records
            .iter()
            .filter(|(_, (record, _))| record.replaces.as_ref() == Some(&token));
        tokens.extend(later.map(|(later, _)| later.clone()));
        if let Some((record, _)) = records.get_mut(&token) {
            record.remove_texts();
        }
    }
}
