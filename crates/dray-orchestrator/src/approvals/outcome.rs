//! Texts about the decision of a question for people of a chat: after a press, and in its message.

use dray_proto::v1::DecideInChatReply;

use super::{ApprovalDecision, ApprovalRecord, Decider};

/// Notice to a person whose press decided.
const RECORDED_NOTICE: &str = "Your answer is recorded.";
/// Notice to a person whose press came after the decision.
const DECIDED_BEFORE: &str = "This was decided before; your answer changes nothing.";
/// Notice while no request has used a decision.
const NOT_USED_YET: &str = "The request has not used the decision yet; the message of the question will show whether it did.";
/// Notice about a decision that no request used.
const LAPSED_NOTICE: &str =
    "The request had ended before it used this: the call is not made. Ask the agent again.";

/// The line that the chat shows for a decision.
fn outcome_text(record: &ApprovalRecord) -> String {
    let decided_ms = record.decided_ms.unwrap_or_default();
    let time = minute(decided_ms);
    let by = record.decided_by.as_ref().map(shown_decider);
    if record.is_lapsed {
        let word = if record.questions.is_some() {
            "Answered"
        } else {
            "Approved"
        };
        let by = by.as_deref().unwrap_or("the caller");
        return format!("{word} by {by}, {time}. {LAPSED_NOTICE}");
    }
    if record.is_abandoned {
        let effect = abandoned_effect(record);
        return format!(
            "Ended, {time}: the request that asked is gone, so {effect}. Ask the agent again."
        );
    }
    if record.questions.is_some() {
        return answer_outcome(record, by.as_deref(), &time);
    }
    match (&record.decision, by) {
        (Some(ApprovalDecision::Approved), Some(by)) => format!("Approved by {by}, {time}."),
        (Some(_), Some(by)) => format!("Refused by {by}, {time}."),
        (_, None) => format!("Taken back, {time}: the call is not made."),
        (None, Some(_)) => String::new(),
    }
}

/// The line for a question of a tool, which the caller may answer too.
fn answer_outcome(record: &ApprovalRecord, by: Option<&str>, time: &str) -> String {
    let by = by.unwrap_or("the caller");
    let option = record.chosen_option();
    match (&record.decision, option) {
        (Some(ApprovalDecision::Answered), Some(option)) => {
            format!("Answered by {by}, {time}: {option}.")
        }
        // The content of the answer is not shown: it may be meant for the tool alone.
        (Some(ApprovalDecision::Answered), None) => format!("Answered by {by}, {time}."),
        (Some(ApprovalDecision::Declined), _) => format!("Declined by {by}, {time}."),
        (Some(ApprovalDecision::Cancelled), _) if is_expired(record) => expired_text(record),
        (Some(ApprovalDecision::Cancelled), _) => format!("Cancelled by {by}, {time}."),
        _ => format!("Taken back, {time}: no answer is accepted."),
    }
}

/// Whether a question ended because it had no answer in time.
fn is_expired(record: &ApprovalRecord) -> bool {
    record.decided_by.is_none() && record.decided_ms >= Some(record.expires_ms)
}

fn expired_text(record: &ApprovalRecord) -> String {
    let time = minute(record.expires_ms);
    if record.questions.is_some() {
        return format!("Expired, {time}: the tool gets no answer.");
    }
    format!("Expired, {time}: the call is not made.")
}

fn shown_decider(decider: &Decider) -> String {
    let id = decider.id.rsplit_once(':').map_or("", |(_, id)| id);
    // The id stands beside the name, because anyone can choose a name.
    format!("{} ({id})", decider.name).trim().to_owned()
}

/// The reply about a decision that is used, or needs no use. `is_new` when this press made it.
pub(super) fn decided_reply(record: &ApprovalRecord, is_new: bool) -> DecideInChatReply {
    if record.is_abandoned {
        return abandoned_reply(record);
    }
    let outcome = outcome_text(record);
    let notice = match (is_new, record.is_lapsed) {
        (true, false) => RECORDED_NOTICE.to_owned(),
        (true, true) => format!("{RECORDED_NOTICE} {LAPSED_NOTICE}"),
        (false, _) => format!("{DECIDED_BEFORE} {outcome}"),
    };
    DecideInChatReply {
        recorded: is_new,
        notice,
        outcome,
    }
}

/// The reply while no request has used a decision. It leaves the message of the question open.
pub(super) fn unused_reply(is_new: bool) -> DecideInChatReply {
    let begin = if is_new {
        RECORDED_NOTICE
    } else {
        DECIDED_BEFORE
    };
    DecideInChatReply {
        recorded: is_new,
        ..notice(&format!("{begin} {NOT_USED_YET}"))
    }
}

/// The reply about a question whose request is gone.
fn abandoned_reply(record: &ApprovalRecord) -> DecideInChatReply {
    let effect = abandoned_effect(record);
    DecideInChatReply {
        recorded: false,
        notice: format!(
            "The request that asked this had ended before your answer, so {effect}. Ask the agent again."
        ),
        outcome: outcome_text(record),
    }
}

/// The effect of the end of a request on the subject of its question.
const fn abandoned_effect(record: &ApprovalRecord) -> &'static str {
    if record.questions.is_some() {
        "the tool gets no answer to this"
    } else {
        "the call is not made"
    }
}

pub(super) fn expired_reply(record: &ApprovalRecord) -> DecideInChatReply {
    DecideInChatReply {
        recorded: false,
        notice: "This question has expired; your answer changes nothing.".to_owned(),
        outcome: expired_text(record),
    }
}

pub(super) fn waiting_reply() -> DecideInChatReply {
    notice("This question waits for an answer.")
}

pub(super) fn mismatch_reply() -> DecideInChatReply {
    notice("This button does not answer the question. Nothing was done.")
}

pub(super) fn unknown_reply() -> DecideInChatReply {
    notice("This question does not exist any more; your answer changes nothing.")
}

/// A reply that leaves the message as it is.
fn notice(text: &str) -> DecideInChatReply {
    DecideInChatReply {
        recorded: false,
        notice: text.to_owned(),
        outcome: String::new(),
    }
}

fn minute(time_ms: u64) -> String {
    let time = i64::try_from(time_ms).unwrap_or_default();
    let time = jiff::Timestamp::from_millisecond(time).unwrap_or_default();
    time.strftime("%Y-%m-%d %H:%M UTC").to_string()
}
