//! The configuration of the chats in which people answer questions.

use std::collections::BTreeMap;

use dray_platform::DeliveryTarget;
use dray_service::config::ConfigProblem;
use dray_types::Period;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::config::{AccountConfig, is_name};

/// Longest time for which an answer about a host may hold. It equals the maximum of the egress-fetcher's setting.
const MAX_HOST_ANSWER_TIME: Period = Period::secs(7 * 24 * 3600);

/// A chat in which people answer questions.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct QuestionChat {
    /// The chat, written as `telegram:-1001234` or `telegram/ACCOUNT:-1001234#TOPIC`, with the id that the platform
    /// itself has for it.
    pub chat: String,
    /// Who may answer, by the platform's ids of people. At least one.
    pub people: Vec<String>,
    /// Asks in this chat about hosts for which a rule of the egress policy asks (`ask`), for all sessions of the tenant
    /// that the account serves. Default false.
    pub host_questions: bool,
    /// Shows the questions that tools ask the user during calls (MCP elicitation), if one choice answers them. The
    /// orchestrator selects the tools. Their texts and choices are those of the tool's server. Default false.
    pub tool_questions: bool,
    /// How long an answer about a host holds: above 0 and at most `7d`. The egress-fetcher's `questions.answer_time`
    /// limits it too. Default `1h`.
    pub host_answer_time: Period,
}

impl Default for QuestionChat {
    fn default() -> Self {
        Self {
            chat: String::new(),
            people: Vec::new(),
            host_questions: false,
            tool_questions: false,
            host_answer_time: Period::secs(3600),
        }
    }
}

/// Problems of the chats for questions; empty when they are valid.
pub(crate) fn question_problems(
    chats: &BTreeMap<String, QuestionChat>,
    accounts: &BTreeMap<String, AccountConfig>,
) -> Vec<ConfigProblem> {
    let mut problems = Vec::new();
    let mut unless = |right: bool, field: &str, message: &str| {
        if !right {
            problems.push(ConfigProblem::new(field, message));
        }
    };
    let chat_name = |chat: &QuestionChat| {
        let target = chat.chat.parse::<DeliveryTarget>().ok()?;
        Some((target.platform, target.account, target.chat))
    };
    for (name, chat) in chats {
        let field = format!("question_chats.{name}");
        unless(
            is_name(name),
            &field,
            "must be 1 to 64 of a-z, 0-9, _ and -",
        );
        unless(
            chat_name(chat).is_some(),
            &format!("{field}.chat"),
            "must be written like telegram:12345",
        );
        unless(
            has_one_account(chat, accounts),
            &format!("{field}.chat"),
            "must name the account, like telegram/ACCOUNT:12345: the platform has several",
        );
        unless(
            !chat.people.is_empty() && chat.people.iter().all(|person| !person.is_empty()),
            &format!("{field}.people"),
            "must name at least one person",
        );
        unless(
            chat.host_answer_time > Period::default()
                && chat.host_answer_time <= MAX_HOST_ANSWER_TIME,
            &format!("{field}.host_answer_time"),
            "must be above 0 and at most 7d",
        );
        // A press identifies only its chat, so one entry must decide who may answer in that chat.
        let is_only = chats
            .iter()
            .all(|(other, given)| other == name || chat_name(given) != chat_name(chat));
        unless(
            is_only,
            &format!("{field}.chat"),
            "must be the chat of one entry only",
        );
    }
    problems
}

/// Whether an entry says which account writes in its chat. A question that ends without a press has no tenant by which
/// the account could be found.
fn has_one_account(chat: &QuestionChat, accounts: &BTreeMap<String, AccountConfig>) -> bool {
    let target = chat.chat.parse::<DeliveryTarget>().ok();
    target.is_none_or(|target| {
        let matching = accounts
            .values()
            .filter(|account| account.is_of(&target.platform));
        !target.account.is_empty() || matching.count() <= 1
    })
}
