//! Where people decide about calls that need approval, and answer what tools ask during calls.

use dray_agent::approval::ApprovalRule;
use dray_service::config::ConfigProblem;
use dray_types::TenantId;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::{Config, MAX_CLIENT_TOOL_TIMEOUT, ONE_HOUR};

/// A chat whose people decide about calls that need approval, or answer what tools ask.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ApprovalChat {
    /// Its name in `platform-delivery.question_chats`.
    pub chat: String,
    /// The calls that it is asked about: rules as in `require_approval`. Without any it is asked about all. The first
    /// chat that covers a call is asked about it.
    pub calls: Vec<ApprovalRule>,
    /// Whether the chat decides about those of the calls that need approval. Default true.
    pub approvals: bool,
    /// Whether the chat also gets what tools ask the user during the calls (MCP elicitation), where one choice answers
    /// it. The caller may answer too, and the first answer holds. `platform-delivery` must allow it with
    /// `tool_questions` of the chat. Default false.
    pub tool_questions: bool,
}

impl Default for ApprovalChat {
    fn default() -> Self {
        Self {
            chat: String::new(),
            calls: Vec::new(),
            approvals: true,
            tool_questions: false,
        }
    }
}

impl Config {
    /// Problems of the rules on calls of tools; empty when they are valid.
    pub(super) fn approval_problems(&self) -> Vec<ConfigProblem> {
        let mut problems = Vec::new();
        if self.approval_timeout > MAX_CLIENT_TOOL_TIMEOUT {
            problems.push(ConfigProblem::new(
                "approval_timeout",
                "must be at most 15d, which is how long the store keeps what it needs",
            ));
        }
        if self.approval_wait > ONE_HOUR {
            problems.push(ConfigProblem::new("approval_wait", "must be at most 1h"));
        }
        let chats = self.approval_chats.iter().enumerate();
        let of_chats = chats.map(|(number, chat)| {
            if chat.chat.is_empty() {
                let field = format!("approval_chats.{number}.chat");
                problems.push(ConfigProblem::new(field, "must name a chat"));
            }
            if !chat.approvals && !chat.tool_questions {
                let field = format!("approval_chats.{number}.approvals");
                let reason = "must be true, or `tool_questions` must be: the chat is never asked";
                problems.push(ConfigProblem::new(field, reason));
            }
            (format!("approval_chats.{number}.calls"), &chat.calls)
        });
        let of_chats: Vec<_> = of_chats.collect();
        let lists = [
            ("require_approval".to_owned(), &self.require_approval),
            ("repeatable_tools".to_owned(), &self.repeatable_tools),
        ];
        for (list, rules) in lists.into_iter().chain(of_chats) {
            for (number, rule) in rules.iter().enumerate() {
                if let Some((member, reason)) = rule.problem() {
                    let field = format!("{list}.{number}.{member}");
                    problems.push(ConfigProblem::new(field, reason));
                }
            }
        }
        problems.extend(self.tool_access_problems());
        if TenantId::new(self.tenant.as_str()).is_err() {
            problems.push(ConfigProblem::new("tenant", "must be a tenant's name"));
        }
        problems
    }
}
