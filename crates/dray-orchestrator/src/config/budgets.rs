//! Budgets and prices. Holds values only; `crate::budgets` enforces them.

use std::collections::BTreeMap;

use dray_agent::budget::{BudgetLimits, TokenPrice, TurnLimits};
use dray_service::config::ConfigProblem;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Config;

/// Limits of tokens and cost, and the prices of tokens.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Budgets {
    /// Limits of each turn; a manifest may only lower them.
    pub turn: TurnLimits,
    /// Limits of each conversation of a caller, over all its turns.
    pub conversation: BudgetLimits,
    /// Limits of each caller without an entry in `clients`, for a day in UTC.
    pub caller: BudgetLimits,
    /// Limits of single clients by their names in `clients`, for a day in UTC. Other clients have those of
    /// `budgets.caller`.
    pub clients: BTreeMap<String, BudgetLimits>,
    /// Prices of a million tokens by the name of the model or deployment, all in one currency. Required with a limit of
    /// cost.
    pub prices: BTreeMap<String, TokenPrice>,
}

impl Budgets {
    /// Whether any limit is on cost, which needs a price for every model.
    pub fn limits_cost(&self) -> bool {
        let turn = &self.turn.limits;
        let shared = [turn, &self.conversation, &self.caller];
        let mut all = shared.into_iter().chain(self.clients.values());
        all.any(|limits| limits.max_cost.is_some())
    }
}

impl Config {
    /// The problems of the budgets.
    pub(super) fn budget_problems(&self) -> Vec<ConfigProblem> {
        let budgets = &self.budgets;
        let mut problems = Vec::new();
        if self.max_agent_depth > 8 {
            problems.push(ConfigProblem::new("max_agent_depth", "must be 0 to 8"));
        }
        if self.max_handoffs > 16 {
            problems.push(ConfigProblem::new("max_handoffs", "must be 0 to 16"));
        }
        for name in budgets.clients.keys() {
            if !self.clients.contains_key(name) {
                let field = format!("budgets.clients.{name}");
                problems.push(ConfigProblem::new(field, "must name one of `clients`"));
            }
        }
        if budgets.turn.max_seconds == Some(0) {
            let message = "must be at least 1";
            problems.push(ConfigProblem::new("budgets.turn.max_seconds", message));
        }
        if budgets.limits_cost() && budgets.prices.is_empty() {
            let message = "must have the prices of models, because a budget limits cost";
            problems.push(ConfigProblem::new("budgets.prices", message));
        }
        problems
    }
}
