//! Questions to people about hosts in the configuration.

use std::time::Duration;

use dray_types::Period;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::compile::ProblemCollector;

/// Longest time of a question or an answer. It is shorter than the lifetime of the records.
const MAX_QUESTION_TIME: Period = Period::secs(7 * 24 * 3600);

/// Questions to people, which rules with the outcome `ask` cause.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct QuestionConfig {
    /// How long a question waits for an answer before it is withdrawn; at most 7 days.
    pub wait_time: Period,
    /// How long an answer holds, whether it allows or denies, unless the person says less; at most 7 days.
    pub answer_time: Period,
    /// Most questions of one session that wait or whose answers still hold: 1 to 64. Further hosts are refused.
    pub max_per_session: u32,
}

impl Default for QuestionConfig {
    fn default() -> Self {
        Self {
            wait_time: Period::secs(3600),
            answer_time: Period::secs(8 * 3600),
            max_per_session: 16,
        }
    }
}

/// The checked settings of questions.
#[derive(Clone, Copy, Debug)]
pub struct QuestionSettings {
    /// Longest wait for an answer to a question.
    pub wait_time: Duration,
    /// How long an answer holds at most.
    pub answer_time: Duration,
    /// Questions of one session.
    pub max_per_session: usize,
}

/// Most questions of a session that an operator may configure: all of them are one record of 64 KiB.
const MAX_QUESTIONS: u32 = 64;

impl QuestionConfig {
    /// Checks the fields.
    pub(super) fn compile(&self, checks: &mut ProblemCollector) -> QuestionSettings {
        let mut period = |field: &str, value| {
            checks.period(&format!("questions.{field}"), value, MAX_QUESTION_TIME)
        };
        let wait_time = period("wait_time", self.wait_time);
        let answer_time = period("answer_time", self.answer_time);
        if !(1..=MAX_QUESTIONS).contains(&self.max_per_session) {
            checks.add("questions.max_per_session", "must be 1 to 64");
        }
        QuestionSettings {
            wait_time,
            answer_time,
            max_per_session: usize::try_from(self.max_per_session).unwrap_or(usize::MAX),
        }
    }
}
