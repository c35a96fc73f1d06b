//! Tools that only some callers may use.

use std::collections::BTreeMap;

use dray_agent::approval::matches_pattern;
use dray_service::config::ConfigProblem;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Config;

/// Tools that only the callers of this entry may use, in the agents of all manifests. A tool that several entries cover
/// is for the callers of each of them; one that no entry covers is for all. In a pattern `*` stands for any text, and
/// upper and lower case differ.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default, deny_unknown_fields)]
pub struct ToolAccess {
    /// Patterns of the names of tools as the model sees them.
    pub tools: Vec<String>,
    /// Patterns of the sources of tools, as in `require_approval`.
    pub tool_sets: Vec<String>,
    /// Patterns of callers: `client:` and a name of `clients`, `local`, or `dial` for users of DIAL Core. A caller has
    /// to match each of the members that are given; without any of them no one may use the tools.
    pub callers: Vec<String>,
    /// Patterns of users: the text of the client's `user_header`, or the bucket of a user of DIAL Core.
    pub users: Vec<String>,
    /// Patterns of groups, of which the user has to be in one: those of the client's `groups_header`, or the roles of a
    /// user of DIAL Core.
    pub groups: Vec<String>,
    /// Patterns of the values of claims of a user of DIAL Core, by the names of the claims. One value of each claim has
    /// to match.
    pub claims: BTreeMap<String, Vec<String>>,
}

/// The facts about a caller that the patterns of entries are compared with.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CallerFacts {
    /// `client:` and a name, `local` or `dial`.
    pub caller: String,
    /// The user, where one is named.
    pub user: Option<String>,
    /// The groups of the user.
    pub groups: Vec<String>,
    /// The claims of the user.
    pub claims: BTreeMap<String, Vec<String>>,
}

fn any_matches<'a>(patterns: &[String], mut texts: impl Iterator<Item = &'a String>) -> bool {
    texts.any(|text| {
        patterns
            .iter()
            .any(|pattern| matches_pattern(pattern, text))
    })
}

impl ToolAccess {
    /// Whether the entry is about a tool, by its name.
    pub fn covers_tool(&self, name: &str) -> bool {
        self.tools
            .iter()
            .any(|pattern| matches_pattern(pattern, name))
    }

    /// Whether the entry is about a tool, by its sources.
    pub fn covers_sources(&self, sources: &[String]) -> bool {
        any_matches(&self.tool_sets, sources.iter())
    }

    /// Whether the entry asks for more than the kind of caller, which every request shows.
    pub fn needs_user(&self) -> bool {
        !(self.users.is_empty() && self.groups.is_empty() && self.claims.is_empty())
    }

    /// Whether a caller may use the tools of the entry. A fact that is not known matches no pattern.
    pub fn permits(&self, facts: &CallerFacts) -> bool {
        let is_for_someone = !self.callers.is_empty() || self.needs_user();
        is_for_someone
            && (self.callers.is_empty()
                || any_matches(&self.callers, std::iter::once(&facts.caller)))
            && (self.users.is_empty() || any_matches(&self.users, facts.user.iter()))
            && (self.groups.is_empty() || any_matches(&self.groups, facts.groups.iter()))
            && self.claims.iter().all(|(name, patterns)| {
                let values = facts.claims.get(name);
                any_matches(patterns, values.into_iter().flatten())
            })
    }
}

impl Config {
    /// The problems of the entries.
    pub(super) fn tool_access_problems(&self) -> Vec<ConfigProblem> {
        let mut problems = Vec::new();
        for (number, access) in self.tool_access.iter().enumerate() {
            if access.tools.is_empty() && access.tool_sets.is_empty() {
                problems.push(ConfigProblem::new(
                    format!("tool_access.{number}.tools"),
                    "must name tools, or tool_sets must be given",
                ));
            }
        }
        problems
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn permits(access: Value) -> bool {
        let access: ToolAccess = serde_json::from_value(access).unwrap();
        access.permits(&CallerFacts {
            caller: "client:chat".to_owned(),
            user: Some("ann".to_owned()),
            groups: vec!["staff".to_owned(), "finance".to_owned()],
            claims: [("title".to_owned(), vec!["cfo".to_owned()])].into(),
        })
    }

    #[test]
    fn each_member_that_is_given_has_to_match() {
        for access in [
            json!({"callers": ["client:*"]}),
            json!({"users": ["ann", "bob"]}),
            json!({"groups": ["fin*"]}),
            json!({"claims": {"title": ["c?o", "cfo"]}}),
            json!({"callers": ["client:chat"], "users": ["ann"], "groups": ["staff"], "claims": {"title": ["*"]}}),
        ] {
            assert!(permits(access.clone()), "{access}");
        }
        for access in [
            json!({}),
            json!({"callers": ["local"]}),
            json!({"callers": ["client:chat"], "users": ["bob"]}),
            json!({"groups": ["Finance"]}),
            json!({"groups": [""]}),
            json!({"claims": {"title": []}}),
            json!({"claims": {"title": ["cfo"], "site": ["*"]}}),
        ] {
            assert!(!permits(access.clone()), "{access}");
        }
    }

    #[test]
    fn unknown_facts_match_no_pattern() {
        let any = json!({"users": ["*"], "groups": ["*"]});
        let any: ToolAccess = serde_json::from_value(any).unwrap();
        let facts = CallerFacts {
            caller: "client:chat".to_owned(),
            user: Some("ann".to_owned()),
            ..CallerFacts::default()
        };
        assert!(!any.permits(&facts));
        assert!(!any.permits(&CallerFacts::default()));
    }
}
