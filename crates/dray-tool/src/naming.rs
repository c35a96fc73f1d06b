//! Makes names of tools that models accept (quickapps 19.1), and drops tools with repeated names (R10).

use std::collections::HashSet;
use std::sync::Arc;

use crate::{SetupIssue, Tool};

/// Longest name, in characters.
const MAX_NAME_CHARACTERS: usize = 64;

/// The name of a tool of a set: `{toolset}_{tool}`, with only characters that models accept.
pub fn qualified_name(toolset: &str, tool: &str) -> String {
    sanitise_name(&format!("{toolset}_{tool}"))
}

/// A text with one `_` for every run of characters outside `[a-zA-Z0-9_-]`, cut to 64 characters.
pub fn sanitise_name(text: &str) -> String {
    let mut name = String::with_capacity(text.len().min(MAX_NAME_CHARACTERS));
    let mut in_run = false;
    for character in text.chars() {
        let fits = character.is_ascii_alphanumeric() || matches!(character, '_' | '-');
        if fits || !in_run {
            name.push(if fits { character } else { '_' });
        }
        in_run = !fits;
    }
    // All characters are ASCII here, so bytes are characters.
    name.truncate(MAX_NAME_CHARACTERS);
    name
}

/// Drops every tool whose name is already used by an earlier tool, and returns an issue for each.
pub fn drop_duplicates(tools: &mut Vec<Arc<dyn Tool>>) -> Vec<SetupIssue> {
    let mut known = HashSet::new();
    let mut issues = Vec::new();
    tools.retain(|tool| {
        let name = &tool.declaration().name;
        let is_new = known.insert(name.clone());
        if !is_new {
            issues.push(SetupIssue {
                tool: Some(name.clone()),
                toolset: None,
                message: "Another tool has the same name; only the first one is used.".to_owned(),
                details: Vec::new(),
                is_for_user: false,
            });
        }
        is_new
    });
    issues
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::fakes::FakeTool;

    #[test]
    fn a_run_of_other_characters_is_one_underscore() {
        assert_eq!(
            qualified_name("My shop!", "get order"),
            "My_shop__get_order"
        );
        assert_eq!(qualified_name("a", "(x) é€y-z_"), "a__x_y-z_");
        assert_eq!(qualified_name("погода", "t"), "__t");
    }

    #[test]
    fn a_name_has_at_most_64_characters() {
        let long = qualified_name(&"s".repeat(60), "order");
        assert_eq!(long, format!("{}_ord", "s".repeat(60)));
    }

    #[test]
    fn r_10_of_tools_with_one_name_the_first_stays_and_the_rest_are_reported() {
        let tool = |name: &str, text: &str| -> Arc<dyn Tool> { FakeTool::named(name).says(text) };
        let mut tools = vec![tool("a", "1"), tool("b", "2"), tool("a", "3")];
        let first = Arc::clone(&tools[0]);
        let issues = drop_duplicates(&mut tools);
        assert_eq!(tools.len(), 2);
        assert!(Arc::ptr_eq(&tools[0], &first));
        assert_eq!(issues.len(), 1);
        assert_eq!(issues[0].tool.as_deref(), Some("a"));
        assert!(issues[0].message.contains("same name"));
        assert_eq!(drop_duplicates(&mut tools), []);
    }

    proptest! {
        #[test]
        fn every_name_is_one_that_models_accept(set in ".*", tool in ".*") {
            let name = qualified_name(&set, &tool);
            prop_assert!((1..=64).contains(&name.len()));
            prop_assert!(name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-'));
            prop_assert_eq!(sanitise_name(&name), name);
        }
    }
}
