//! Compaction: an outline replaces old messages of a long conversation in the prompt.
//!
//! The decision at a message depends only on the messages up to it. So each request of a conversation compacts the same
//! messages to the same bytes until the next compaction, so that prompt caches hit in between. This module does no I/O:
//! the caller stores the [`transcript`] as a file that the model can read.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use crate::message::{Content, Message, Role};
use crate::pair::{self, CallPair};
use crate::skill::READ_SKILL_TOOL;

/// Name of the synthetic tool whose result replaces compacted messages.
pub const COMPACTION_TOOL: &str = "internal_conversation_compacted";
/// Lowest threshold in tokens that leaves room for an outline and for the newest messages.
pub const MIN_THRESHOLD_TOKENS: u64 = 1_000;

/// Bytes of text per token in estimates, as in budgets.
const BYTES_PER_TOKEN: usize = 4;
/// Assumed bytes of a part that is not text, such as a picture: a thousand tokens.
const PART_BYTES: usize = 4_000;
/// Bytes for the role and the frame of a message.
const FRAME_BYTES: usize = 16;
/// Most bytes of an outline.
const MAX_OUTLINE_BYTES: usize = 8 << 10;
/// Bytes for the sentences around an outline.
const NOTICE_BYTES: usize = 512;
/// Most bytes of a message of the user in an outline.
const MAX_USER_LINE_BYTES: usize = 240;
/// Most bytes of any other message in an outline.
const MAX_OTHER_LINE_BYTES: usize = 160;

/// Which messages are compacted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CompactionPlan {
    /// The messages before this index stay: the instructions, and the first message of the user.
    head: usize,
    /// The user's message to which the remaining messages belong, if it is among the compacted ones. It is shown
    /// completely.
    question: Option<usize>,
    /// The messages from this index on stay.
    tail: usize,
    /// Most bytes of the outline.
    outline_bytes: usize,
}

impl CompactionPlan {
    /// The plan for a prompt of these messages; `None` while it is below the threshold.
    ///
    /// Messages are compacted when the prompt is estimated at more than `threshold_tokens`, until half of that remains.
    /// A call and its results are not separated. The newest messages are kept, even if they alone exceed the threshold.
    pub fn new(messages: &[Message], threshold_tokens: u64) -> Option<Self> {
        let head = head_length(messages)?;
        let limit = usize::try_from(threshold_tokens)
            .unwrap_or(usize::MAX)
            .saturating_mul(BYTES_PER_TOKEN);
        let outline_bytes = MAX_OUTLINE_BYTES.min(limit / 8);
        let sums = size_sums(messages);
        let sum = |at: usize| sums.get(at).copied().unwrap_or_default();
        let size = |from: usize, to: usize| sum(to).saturating_sub(sum(from));
        let mut plan: Option<Self> = None;
        // Every position at which the model was called, in order, to repeat the decisions of earlier requests.
        for end in (head + 1..=messages.len()).filter(|at| is_boundary(messages, *at)) {
            let begin = plan.map_or(head, |plan| plan.tail);
            let fixed = match plan {
                None => size(0, head),
                Some(plan) => {
                    let question = plan.question.map_or(0, |at| size(at, at + 1));
                    size(0, head) + outline_bytes + NOTICE_BYTES + question
                }
            };
            if fixed + size(begin, end) <= limit {
                continue;
            }
            let room = (limit / 2).saturating_sub(size(0, head) + outline_bytes + NOTICE_BYTES);
            let mut tails = (begin + 1..end).filter(|at| is_boundary(messages, *at));
            let fitting = tails.clone().find(|at| size(*at, end) <= room);
            let Some(tail) = fitting.or_else(|| tails.next_back()) else {
                continue;
            };
            plan = Some(Self {
                head,
                question: open_question(messages, head, tail, end),
                tail,
                outline_bytes,
            });
        }
        plan
    }

    /// The messages that are compacted.
    pub fn compacted<'a>(&self, messages: &'a [Message]) -> &'a [Message] {
        messages.get(self.head..self.tail).unwrap_or_default()
    }

    /// The prompt with a notice instead of the compacted messages. `reading_hint` is the sentence on how to read them.
    pub fn apply(&self, messages: &[Message], reading_hint: &str) -> Vec<Message> {
        let compacted = self.compacted(messages);
        let outline = outline(compacted, self.outline_bytes);
        let count = compacted.len();
        let notice = CallPair {
            tool: COMPACTION_TOOL.to_owned(),
            arguments: serde_json::json!({}),
            content: format!(
                "{count} earlier messages of this conversation are not shown here, to save room. {reading_hint} An outline of them:\n{outline}"
            ),
        };
        let question = self.question.and_then(|at| messages.get(at));
        let head = messages.get(..self.head).unwrap_or_default();
        let tail = messages.get(self.tail..).unwrap_or_default();
        let mut all = head.to_vec();
        all.extend(notice.messages());
        all.extend(question.cloned());
        all.extend_from_slice(tail);
        all
    }
}

/// Estimated tokens of a prompt of these messages: one for four bytes of text, a thousand for a picture.
///
/// ```
/// use dray_agent::compaction::estimated_tokens;
/// use dray_agent::message::{Message, Role};
///
/// let message = Message::new(Role::User, "x".repeat(400));
/// // 100 for the text, 4 for the role and the frame.
/// assert_eq!(estimated_tokens(&[message]), 104);
/// ```
pub fn estimated_tokens(messages: &[Message]) -> u64 {
    tokens_of_bytes(messages.iter().map(message_bytes).sum())
}

/// Estimates the tokens of a text outside of messages, such as the declaration of a tool.
pub fn estimated_text_tokens(text: &str) -> u64 {
    tokens_of_bytes(text.len())
}

fn tokens_of_bytes(bytes: usize) -> u64 {
    u64::try_from(bytes.div_ceil(BYTES_PER_TOKEN)).unwrap_or(u64::MAX)
}

/// The messages as a text, each with its number and author. Parts that are not text are named by their type.
pub fn transcript(messages: &[Message]) -> String {
    let mut text = String::new();
    for (number, message) in messages.iter().enumerate() {
        let _ = writeln!(text, "[{}] {}", number + 1, author(message));
        let content = content_text(message);
        if !content.trim().is_empty() {
            let _ = writeln!(text, "{content}");
        }
        for call in message.calls() {
            let function = &call.function;
            let _ = writeln!(text, "calls {} with {}", function.name, function.arguments);
        }
        text.push('\n');
    }
    text
}

/// Number of messages that are kept at the beginning; `None` without a message of the user.
fn head_length(messages: &[Message]) -> Option<usize> {
    let first = messages
        .iter()
        .position(|message| message.role == Role::User)?;
    let mut head = first + 1;
    // These messages explain how files are passed in arguments, which the model needs in each round.
    while let Some([call, _result]) = messages.get(head..head + 2)
        && call
            .calls()
            .iter()
            .any(|call| pair::is_synthetic(&call.id, READ_SKILL_TOOL))
    {
        head += 2;
    }
    Some(head)
}

/// Whether a prompt may be cut before this message, so that each call stays with its results.
fn is_boundary(messages: &[Message], index: usize) -> bool {
    let is_result = messages
        .get(index)
        .is_some_and(|message| message.role == Role::Tool);
    let before = index.checked_sub(1).and_then(|before| messages.get(before));
    !is_result && before.is_none_or(|message| message.calls().is_empty())
}

/// The newest message of the user, unless it stays in any case.
fn open_question(messages: &[Message], head: usize, tail: usize, end: usize) -> Option<usize> {
    let newest = messages
        .get(..end)?
        .iter()
        .rposition(|message| message.role == Role::User)?;
    (head..tail).contains(&newest).then_some(newest)
}

/// For each index, the estimated bytes of all messages before it.
fn size_sums(messages: &[Message]) -> Vec<usize> {
    let mut sum = 0;
    let mut sums = vec![0];
    for message in messages {
        sum += message_bytes(message);
        sums.push(sum);
    }
    sums
}

fn message_bytes(message: &Message) -> usize {
    let content = match &message.content {
        None => 0,
        Some(Content::Text(text)) => text.len(),
        Some(Content::Parts(parts)) => parts
            .iter()
            .map(|part| match part.get("text") {
                Some(text) => text.as_str().map_or(0, str::len),
                None => PART_BYTES,
            })
            .sum(),
    };
    let calls = message.calls().iter();
    let calls: usize = calls
        .map(|call| call.id.len() + call.function.name.len() + call.function.arguments.len())
        .sum();
    FRAME_BYTES + content + calls
}

/// One line for each message, at most `limit` bytes in total. If not all fit, messages of the user and newer ones have
/// priority.
fn outline(messages: &[Message], limit: usize) -> String {
    let lines: Vec<_> = messages
        .iter()
        .enumerate()
        .map(|(number, message)| format!("[{}] {}", number + 1, outline_line(message)))
        .collect();
    let is_user = |index: &usize| {
        messages
            .get(*index)
            .is_some_and(|message| message.role == Role::User)
    };
    let newest_first = || (0..lines.len()).rev();
    let by_priority = newest_first()
        .filter(is_user)
        .chain(newest_first().filter(|index| !is_user(index)));
    let mut room = limit;
    let mut shown = BTreeSet::new();
    for index in by_priority {
        // One byte for the line feed.
        let Some(rest) = room.checked_sub(lines.get(index).map_or(0, String::len) + 1) else {
            continue;
        };
        room = rest;
        shown.insert(index);
    }
    let shown = shown
        .into_iter()
        .filter_map(|index| lines.get(index).cloned());
    shown.collect::<Vec<_>>().join("\n")
}

fn outline_line(message: &Message) -> String {
    let limit = match message.role {
        Role::User => MAX_USER_LINE_BYTES,
        _ => MAX_OTHER_LINE_BYTES,
    };
    let mut text = content_text(message);
    for call in message.calls() {
        let function = &call.function;
        let _ = write!(text, " calls {} {}", function.name, function.arguments);
    }
    let text = text.split_whitespace().collect::<Vec<_>>().join(" ");
    let shown = text
        .get(..text.floor_char_boundary(limit))
        .unwrap_or_default();
    let more = if shown.len() < text.len() { " …" } else { "" };
    format!("{}: {shown}{more}", author(message))
}

fn author(message: &Message) -> &'static str {
    match message.role {
        Role::Tool => "result",
        role => role.as_str(),
    }
}

fn content_text(message: &Message) -> String {
    match &message.content {
        None => String::new(),
        Some(Content::Text(text)) => text.clone(),
        Some(Content::Parts(parts)) => {
            let texts = parts.iter().map(|part| {
                let text = part.get("text").and_then(serde_json::Value::as_str);
                let kind = part.get("type").and_then(serde_json::Value::as_str);
                text.map_or_else(|| format!("({})", kind.unwrap_or("part")), str::to_owned)
            });
            texts.collect::<Vec<_>>().join("\n")
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const THRESHOLD_TOKENS: u64 = 1_000;

    /// A conversation of `turns`, each with a question, `rounds` calls with results of `result_bytes`, and an answer.
    fn conversation(turns: usize, rounds: usize, result_bytes: usize) -> Vec<Message> {
        let mut messages = vec![Message::new(Role::System, "You help.")];
        for turn in 0..turns {
            messages.push(Message::new(Role::User, format!("question {turn}")));
            for round in 0..rounds {
                let pair = CallPair {
                    tool: "shop".to_owned(),
                    arguments: json!({"turn": turn, "round": round}),
                    content: format!("{turn}/{round} ").repeat(result_bytes / 4),
                };
                messages.extend(pair.messages());
            }
            messages.push(Message::new(Role::Assistant, format!("answer {turn}")));
        }
        messages
    }

    fn compact(messages: &[Message]) -> Vec<Message> {
        match CompactionPlan::new(messages, THRESHOLD_TOKENS) {
            Some(plan) => plan.apply(messages, "All of it is in a file."),
            None => messages.to_vec(),
        }
    }

    fn total_bytes(messages: &[Message]) -> usize {
        messages.iter().map(message_bytes).sum()
    }

    #[test]
    fn a_short_conversation_stays_as_it_is() {
        let messages = conversation(3, 1, 200);
        assert_eq!(CompactionPlan::new(&messages, THRESHOLD_TOKENS), None);
        assert_eq!(CompactionPlan::new(&[], THRESHOLD_TOKENS), None);
    }

    #[test]
    fn every_prompt_of_a_long_conversation_fits_and_begins_with_the_one_before_but_for_compactions()
    {
        let messages = conversation(30, 2, 300);
        let mut before: Vec<Message> = Vec::new();
        let (mut calls, mut broken) = (0, 0);
        for end in (2..=messages.len()).filter(|at| is_boundary(&messages, *at)) {
            let prompt = compact(&messages[..end]);
            assert!(total_bytes(&prompt) <= 4_000, "{}", total_bytes(&prompt));
            assert_eq!(
                prompt[..2],
                messages[..2],
                "instructions and the first question stay"
            );
            calls += 1;
            broken += usize::from(!prompt.starts_with(&before));
            before = prompt;
        }
        // Each compaction halves the prompt, so few prompts differ from the beginning of the one before.
        assert!(
            calls > 100 && (5..30).contains(&broken),
            "{broken} of {calls}"
        );
    }

    #[test]
    fn calls_stay_with_their_results_and_the_open_question_is_shown_whole() {
        let mut messages = conversation(1, 0, 0);
        messages.extend(conversation(1, 40, 300).split_off(1));
        messages.pop();
        let question = "the long task ".repeat(50);
        messages[3].content = Some(Content::Text(question.clone()));
        let prompt = compact(&messages);
        assert!(prompt.len() < messages.len());
        assert!(prompt.contains(&Message::new(Role::User, question)));
        for (at, message) in prompt.iter().enumerate() {
            for call in message.calls() {
                assert_eq!(prompt[at + 1].tool_call_id.as_ref(), Some(&call.id));
            }
            let is_result = message.role == Role::Tool;
            assert!(!is_result || !prompt[at - 1].calls().is_empty());
        }
        assert_eq!(prompt.last(), messages.last());
    }

    #[test]
    fn the_newest_messages_stay_even_if_they_exceed_the_limit_by_themselves() {
        let messages = conversation(2, 1, 20_000);
        let end = messages.len() - 1;
        let prompt = compact(&messages[..end]);
        assert_eq!(prompt.last(), messages.get(end - 1));
        assert!(total_bytes(&prompt) < 25_000);
    }

    #[test]
    fn the_outline_lists_the_messages_of_the_transcript() {
        let messages = conversation(8, 1, 900);
        let plan = CompactionPlan::new(&messages, THRESHOLD_TOKENS).unwrap();
        let compacted = plan.compacted(&messages);
        let text = transcript(compacted);
        for message in compacted {
            assert!(text.contains(content_text(message).as_str()));
        }
        let prompt = plan.apply(&messages, "Kept as artifact/1.");
        let notice = content_text(&prompt[3]);
        assert!(
            notice.contains("Kept as artifact/1.") && notice.contains("user: question"),
            "{notice}"
        );
        assert!(notice.contains("calls shop {"), "{notice}");
    }

    #[test]
    fn a_picture_counts_by_its_number_and_not_by_its_bytes() {
        let url = format!("data:image/png;base64,{}", "A".repeat(1 << 20));
        let mut picture = Message::new(Role::User, "");
        let parts = json!([{"type": "text", "text": "look"}, {"type": "image_url", "image_url": {"url": url}}]);
        picture.content = Some(serde_json::from_value(parts).unwrap());
        assert!(message_bytes(&picture) < 5_000);
        assert_eq!(transcript(&[picture]), "[1] user\nlook\n(image_url)\n\n");
    }
}
