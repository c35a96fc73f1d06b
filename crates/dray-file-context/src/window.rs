//! The part of the history that a request includes (agent-file-context 6.1).

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value;

use crate::generation::ContractGeneration;
use crate::model::{ChatItem, MessageRole};

/// The part of the history that an app requests.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum HistoryWindow {
    /// No history; its files are neither shown nor readable. Unset, null, false and 0 mean this.
    #[default]
    None,
    /// This many rounds at the end of the history.
    Rounds(u32),
    /// The messages of the request, never trimmed.
    Given(Vec<ChatItem>),
}

impl Serialize for HistoryWindow {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            // Apps store 0 for no history (6.1).
            Self::None => serializer.serialize_u32(0),
            Self::Rounds(rounds) => serializer.serialize_u32(*rounds),
            Self::Given(items) => items.serialize(serializer),
        }
    }
}

impl<'de> Deserialize<'de> for HistoryWindow {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        match Value::deserialize(deserializer)? {
            // Every value that is falsy in the peer's language means no history (6.1).
            Value::Null | Value::Bool(false) => Ok(Self::None),
            Value::String(text) if text.is_empty() => Ok(Self::None),
            Value::Number(number) => {
                let rounds = number.as_u64().or_else(|| whole_number(number.as_f64()?));
                let rounds =
                    rounds.ok_or_else(|| D::Error::custom("history must not be negative"))?;
                Ok(match u32::try_from(rounds).unwrap_or(u32::MAX) {
                    0 => Self::None,
                    rounds => Self::Rounds(rounds),
                })
            }
            Value::Array(items) => serde_json::from_value(Value::Array(items))
                .map(Self::Given)
                .map_err(D::Error::custom),
            _ => Err(D::Error::custom(
                "history must be a number or an array of messages",
            )),
        }
    }
}

/// An integer that JSON has in decimal notation.
fn whole_number(number: f64) -> Option<u64> {
    (number >= 0.0 && number.fract() == 0.0 && number < f64::from(u32::MAX))
        // The conversion goes through text: integers have no `TryFrom<f64>`, and `as` would hide a loss.
        .then(|| format!("{number:.0}").parse().ok())
        .flatten()
}

/// Positions in `histories` of the messages that are kept, in order. `histories` is the array itself when the setting
/// is [`HistoryWindow::Given`].
pub(crate) fn kept_positions(
    histories: &[ChatItem],
    setting: &HistoryWindow,
    generation: ContractGeneration,
) -> Vec<usize> {
    match setting {
        HistoryWindow::Given(_) => (0..histories.len()).collect(),
        HistoryWindow::None => resumed_positions(histories, generation),
        HistoryWindow::Rounds(rounds) => recent_rounds(histories, *rounds),
    }
}

/// The leading system messages, then the last `2n` others, or everything from the newest checkpoint on.
fn recent_rounds(histories: &[ChatItem], rounds: u32) -> Vec<usize> {
    let system_count = histories
        .iter()
        .take_while(|item| item.obj == MessageRole::System)
        .count();
    let checkpoint = histories.iter().rposition(|item| item.checkpoint);
    let message_count = usize::try_from(rounds)
        .unwrap_or(usize::MAX)
        .saturating_mul(2);
    let recent = histories.len().saturating_sub(message_count);
    // All messages after a checkpoint are kept without a limit, because the checkpoint summarises older ones (6.1).
    let from = checkpoint
        .filter(|&index| index >= system_count)
        .unwrap_or(recent.max(system_count));
    (0..system_count).chain(from..histories.len()).collect()
}

/// Without history: the last pair, if its answer waits for a person (from G5 on).
fn resumed_positions(histories: &[ChatItem], generation: ContractGeneration) -> Vec<usize> {
    let resumes = matches!(
        generation,
        ContractGeneration::G5 | ContractGeneration::G6 | ContractGeneration::Stable
    );
    let last = histories
        .iter()
        .rposition(|item| item.obj == MessageRole::Ai);
    let Some(answer) = last.filter(|_| resumes) else {
        return Vec::new();
    };
    if !histories
        .get(answer)
        // The interaction could not continue without its question (6.1).
        .is_some_and(|item| item.awaiting_input)
    {
        return Vec::new();
    }
    let before = histories.iter().take(answer);
    let question = before.rev().position(|item| item.obj == MessageRole::Human);
    question
        // `back` counts from the message before the answer.
        .map(|back| vec![answer - 1 - back, answer])
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn items(roles: &str) -> Vec<ChatItem> {
        let role = |letter| match letter {
            'S' => MessageRole::System,
            'A' | 'I' => MessageRole::Ai,
            _ => MessageRole::Human,
        };
        let mut items: Vec<_> = roles
            .chars()
            .map(|letter| ChatItem::new(role(letter), None, vec![]))
            .collect();
        for (item, letter) in items.iter_mut().zip(roles.chars()) {
            item.checkpoint = letter == 'C';
            item.awaiting_input = letter == 'I';
        }
        items
    }

    fn check(roles: &str, setting: &HistoryWindow, expected: &[usize]) {
        assert_eq!(
            kept_positions(&items(roles), setting, ContractGeneration::Stable),
            expected
        );
    }

    #[test]
    fn an_unset_history_is_empty_and_an_array_is_never_trimmed() {
        check("SHAHA", &HistoryWindow::None, &[]);
        check(
            "HAHAHA",
            &HistoryWindow::Given(items("HAHAHA")),
            &[0, 1, 2, 3, 4, 5],
        );
    }

    #[test]
    fn a_number_keeps_leading_system_messages_and_the_last_rounds() {
        check("SSHAHAHA", &HistoryWindow::Rounds(1), &[0, 1, 6, 7]);
        check("HAHSHA", &HistoryWindow::Rounds(2), &[2, 3, 4, 5]);
        check("SHA", &HistoryWindow::Rounds(6), &[0, 1, 2]);
        check("SSS", &HistoryWindow::Rounds(1), &[0, 1, 2]);
    }

    #[test]
    fn the_newest_checkpoint_replaces_the_trim() {
        check(
            "SHCAHACAHAHA",
            &HistoryWindow::Rounds(1),
            &[0, 6, 7, 8, 9, 10, 11],
        );
    }

    #[test]
    fn an_unfinished_interaction_is_kept_without_history_from_g5_on() {
        check("HAHI", &HistoryWindow::None, &[2, 3]);
        check("HIHA", &HistoryWindow::None, &[]);
        let positions =
            kept_positions(&items("HAHI"), &HistoryWindow::None, ContractGeneration::G4);
        assert!(positions.is_empty());
    }

    #[test]
    fn settings_are_read_from_json_as_falsy_number_or_array() {
        for falsy in [json!(null), json!(0), json!(false), json!(""), json!(0.0)] {
            assert_eq!(
                serde_json::from_value::<HistoryWindow>(falsy).unwrap(),
                HistoryWindow::None
            );
        }
        assert_eq!(
            serde_json::from_value::<HistoryWindow>(json!(6.0)).unwrap(),
            HistoryWindow::Rounds(6)
        );
        let given = json!([{"obj": "Human", "value": []}]);
        let read: HistoryWindow = serde_json::from_value(given.clone()).unwrap();
        assert_eq!(serde_json::to_value(&read).unwrap(), given);
        assert!(serde_json::from_value::<HistoryWindow>(json!(-1)).is_err());
        assert!(serde_json::from_value::<HistoryWindow>(json!({"a": 1})).is_err());
    }
}
