//! Calls of tools that a person must approve: the rules that select them, and the digest that binds an approval to one
//! call.

use std::collections::BTreeMap;

use dray_types::Sha256Digest;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::canonical_json::canonical_json;

/// Prefix of references to files, whose content is not matched with patterns.
const FILE_REFERENCE: &str = "file:";

/// Calls of tools, for a list of calls that a person must approve, or of calls that may be repeated. In a pattern `*`
/// stands for any text, and upper and lower case differ.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
// One of the two members is required, for which JSON Schema checks here have no keyword.
#[schemars(extend("x-rule" = "approval"))]
pub struct ApprovalRule {
    /// Patterns of the names of tools as the model sees them.
    pub tools: Vec<String>,
    /// Patterns of the sources of tools: names of tool sets and templates, `stdio:` and the name of a program, hosts
    /// and whole addresses of servers, ids of deployments, applications and tool sets of DIAL.
    pub tool_sets: Vec<String>,
    /// Patterns of the values of arguments, by the names of the arguments. All must match; without any, each call does.
    pub arguments: BTreeMap<String, String>,
}

/// A call, as the rules see it.
#[derive(Clone, Copy, Debug)]
pub struct CallFacts<'a> {
    /// Name of the tool for the model.
    pub tool: &'a str,
    /// Sources of the tool, see [`ApprovalRule::tool_sets`].
    pub sources: &'a [String],
    /// The arguments as the model wrote them.
    pub arguments: &'a Map<String, Value>,
}

impl ApprovalRule {
    /// Whether a call needs approval by this rule.
    pub fn covers(&self, call: CallFacts<'_>) -> bool {
        let is_named = self
            .tools
            .iter()
            .any(|pattern| matches_pattern(pattern, call.tool))
            || self.tool_sets.iter().any(|pattern| {
                call.sources
                    .iter()
                    .any(|source| matches_pattern(pattern, source))
            });
        is_named
            && self.arguments.iter().all(|(name, pattern)| {
                let value = call.arguments.get(name);
                value.is_some_and(|value| matches_value(pattern, value))
            })
    }

    /// The problem of the rule: the member and the reason.
    pub fn problem(&self) -> Option<(&'static str, &'static str)> {
        (self.tools.is_empty() && self.tool_sets.is_empty())
            .then_some(("tools", "must name tools, or tool_sets must be given"))
    }
}

/// The digest of a call: SHA-256 of the canonical JSON of its tool and its arguments.
pub fn call_digest(tool: &str, arguments: &Map<String, Value>) -> Sha256Digest {
    let call = serde_json::json!({ "tool": tool, "arguments": arguments });
    Sha256Digest::of(canonical_json(&call).as_bytes())
}

/// Whether a value, or one inside it, matches. The content of a file reference is unknown, so a reference always
/// matches.
fn matches_value(pattern: &str, value: &Value) -> bool {
    match value {
        Value::String(text) => text.starts_with(FILE_REFERENCE) || matches_pattern(pattern, text),
        Value::Array(items) => items.iter().any(|item| matches_value(pattern, item)),
        Value::Object(members) => members
            .values()
            .any(|member| matches_value(pattern, member)),
        Value::Null | Value::Bool(_) | Value::Number(_) => {
            matches_pattern(pattern, &canonical_json(value))
        }
    }
}

/// Whether a text matches a pattern in which `*` matches any text. The time is at most proportional to the product of
/// the lengths.
pub fn matches_pattern(pattern: &str, text: &str) -> bool {
    let mut parts = pattern.split('*');
    let Some(mut rest) = text.strip_prefix(parts.next().unwrap_or_default()) else {
        return false;
    };
    let Some(last) = parts.next_back() else {
        return rest.is_empty();
    };
    for part in parts {
        // The first occurrence is sufficient, because any text may follow it.
        let Some((_, after)) = rest.split_once(part) else {
            return false;
        };
        rest = after;
    }
    rest.ends_with(last)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn covers(rule: Value, tool: &str, arguments: &Value) -> bool {
        let rule: ApprovalRule = serde_json::from_value(rule).unwrap();
        rule.covers(CallFacts {
            tool,
            sources: &["shop".to_owned(), "shop.example".to_owned()],
            arguments: arguments.as_object().unwrap(),
        })
    }

    #[test]
    fn patterns_match_whole_texts() {
        for (pattern, text, is_match) in [
            ("shop_order", "shop_order", true),
            ("shop_order", "shop_orders", false),
            ("shop_*", "shop_", true),
            ("*", "", true),
            ("*_delete*", "shop_delete_all", true),
            ("a*b*a", "aba", true),
            ("a*a", "a", false),
            ("*.example", "shop.example.org", false),
            ("", "", true),
            ("", "a", false),
            ("**", "ü", true),
        ] {
            assert_eq!(matches_pattern(pattern, text), is_match, "{pattern} {text}");
        }
    }

    #[test]
    fn a_rule_names_tools_or_sources_and_all_its_arguments_match() {
        let none = json!({});
        assert!(covers(
            json!({"tools": ["x", "shop_*"]}),
            "shop_order",
            &none
        ));
        assert!(covers(
            json!({"tool_sets": ["*.example"]}),
            "anything",
            &none
        ));
        assert!(!covers(
            json!({"tools": ["x"], "tool_sets": ["y"]}),
            "shop_order",
            &none
        ));
        let rule = json!({"tools": ["*"], "arguments": {"path": "/etc/*", "mode": "w"}});
        assert!(covers(
            rule.clone(),
            "t",
            &json!({"path": "/etc/x", "mode": "w"})
        ));
        assert!(!covers(
            rule.clone(),
            "t",
            &json!({"path": "/tmp/x", "mode": "w"})
        ));
        assert!(!covers(rule, "t", &json!({"path": "/etc/x"})));
    }

    #[test]
    fn values_inside_and_references_to_files_match() {
        let rule = json!({"tools": ["*"], "arguments": {"q": "drop *"}});
        assert!(covers(
            rule.clone(),
            "t",
            &json!({"q": [{"sql": "drop table"}]})
        ));
        assert!(covers(
            rule.clone(),
            "t",
            &json!({"q": "file:text::files/B/a.sql"})
        ));
        assert!(!covers(rule, "t", &json!({"q": ["select"]})));
        let number = json!({"tools": ["*"], "arguments": {"n": "1*"}});
        assert!(covers(number.clone(), "t", &json!({"n": 1000.0})));
        assert!(!covers(number, "t", &json!({"n": 2})));
    }

    #[test]
    fn the_digest_is_of_the_tool_and_of_the_values() {
        let digest =
            |tool: &str, arguments: Value| call_digest(tool, arguments.as_object().unwrap());
        let one = digest("t", json!({"a": 1, "b": [2.0]}));
        assert_eq!(one, digest("t", json!({"b": [2], "a": 1.0})));
        assert_ne!(one, digest("u", json!({"a": 1, "b": [2]})));
        assert_ne!(one, digest("t", json!({"a": 1, "b": [3]})));
    }

    #[test]
    fn a_rule_without_a_tool_is_a_mistake() {
        let rule: ApprovalRule = serde_json::from_value(json!({"arguments": {"a": "*"}})).unwrap();
        assert_eq!(rule.problem().map(|(member, _)| member), Some("tools"));
    }
}
