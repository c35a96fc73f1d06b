//! The record of a turn that waits, and the values that a request restores from it.

use dray_agent::message::{Content, Message, ToolCall};
use dray_agent::state;
use dray_tool::AnswerMap;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::approvals::{ApprovalDecision, ApprovalRecord, NewApproval};
use crate::records::RevisedRecord;
use crate::turn::waiting::WaitingCall;

/// The progress of a turn when it begins to wait.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(in crate::turn) struct PausedTurn {
    /// Unix milliseconds at which it began to wait.
    pub(in crate::turn) created_ms: u64,
    /// State of the turn, as in `custom_content.state`: its whole rounds are in it.
    pub(in crate::turn) state: Value,
    /// The message of the model with all calls of the last round.
    pub(in crate::turn) round: Message,
    /// Results of those calls that the server made itself.
    pub(in crate::turn) results: Vec<Message>,
    /// The model's ids of the calls that the client makes, by their number.
    pub(in crate::turn) pending: Vec<String>,
    /// Calls that wait for approval; their numbers follow those of the client's calls.
    #[serde(default)]
    pub(in crate::turn) approvals: Vec<PausedApproval>,
    /// Other waiting calls, about which the client was not asked yet.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(in crate::turn) later: Vec<WaitingCall>,
    /// In a checkpoint: calls that ran when the process ended, and that may be made again.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(in crate::turn) repeated: Vec<ToolCall>,
    /// The earlier record of the same round, which this record replaces: the client was asked again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(in crate::turn) replaces: Option<String>,
}

impl PausedTurn {
    /// Removes the text of the model beside its calls, and the files of its message.
    pub(in crate::turn) fn remove_texts(&mut self) {
        state::remove_texts(&mut self.state);
        let round = &mut self.round;
        // Models require text in each message.
        round.content = Some(Content::Text(state::DELETED_TEXT.to_owned()));
        for name in state::TEXT_MEMBERS {
            round.rest.shift_remove(name);
        }
        if let Some(custom) = &mut round.custom_content {
            custom.attachments = None;
        }
    }
}

/// A call about which the user was asked, and that waits for the answer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(in crate::turn) struct PausedApproval {
    pub(in crate::turn) approval: NewApproval,
    #[serde(flatten)]
    pub(in crate::turn) waiting: WaitingCall,
}

/// A call about which the request brings a decision. No decision was recorded and no call made yet.
#[derive(Debug)]
pub(in crate::turn) struct DecidedCall {
    pub(in crate::turn) paused: PausedApproval,
    pub(in crate::turn) record: RevisedRecord<ApprovalRecord>,
    pub(in crate::turn) decision: ApprovalDecision,
    /// Answers for the tool that asked.
    pub(in crate::turn) answers: Option<AnswerMap>,
}

/// Calls of the agent's own tools that an earlier request left open.
#[derive(Debug, Default)]
pub(in crate::turn) struct ResumedCalls {
    /// Calls that the request decides about.
    pub(in crate::turn) decided: Vec<DecidedCall>,
    /// Calls about which the client has to be asked next.
    pub(in crate::turn) later: Vec<WaitingCall>,
    /// Whether those calls end without a question.
    pub(in crate::turn) ends_later: bool,
    /// Calls that ran when their process ended, and are repeated.
    pub(in crate::turn) repeated: Vec<ToolCall>,
    /// The restored record, which a new record of the same round replaces.
    pub(in crate::turn) record: Option<ResumedRecord>,
}

/// A record with which a turn continues.
#[derive(Clone, Debug)]
pub(in crate::turn) struct ResumedRecord {
    pub(in crate::turn) token: String,
    pub(in crate::turn) state: Value,
    /// The first call of its round, by the model's id.
    pub(in crate::turn) first_call: Option<String>,
}

impl ResumedCalls {
    /// Ends the calls about which the client was not asked.
    pub(in crate::turn) const fn end_later(&mut self) {
        self.ends_later = true;
    }
}
