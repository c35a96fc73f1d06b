//! Tests of the calls that hooks make, and of their results.

use async_trait::async_trait;
use dray_tool::{CallRules, ToolCall, ToolDeclaration, ToolFailure, ToolOutput, Turn};
use serde_json::json;

use super::*;

#[derive(Debug)]
struct NamedTool(ToolDeclaration, CallRules);

#[async_trait]
impl Tool for NamedTool {
    fn declaration(&self) -> &ToolDeclaration {
        &self.0
    }

    fn rules(&self) -> &CallRules {
        &self.1
    }

    async fn call(&self, call: ToolCall, _: &Turn) -> Result<ToolOutput, ToolFailure> {
        Ok(ToolOutput::text(call.id, "text/plain"))
    }
}

fn tool(name: &str, rules: CallRules) -> Arc<dyn Tool> {
    let declaration = ToolDeclaration {
        name: name.to_owned(),
        description: None,
        parameters: json!({}),
    };
    Arc::new(NamedTool(declaration, rules))
}

fn hook(value: &Value) -> Hook {
    let mut document = json!({"type": "tool", "event": "on_request_start", "tool": "t"});
    let members = document.as_object_mut().unwrap();
    members.extend(value.as_object().unwrap().clone());
    serde_json::from_value(document).unwrap()
}

fn plan_hook(value: &Value) -> PlannedCall {
    let (mut planned, missing) = plan_hooks(&[hook(value)], &[tool("t", CallRules::default())]);
    assert_eq!(missing, []);
    planned.remove(0)
}

fn result(text: &str) -> Message {
    Message::new(Role::Tool, text)
}

/// The number of pairs after these results were added one after the other.
fn pairs(hook: &PlannedCall, results: &[&str]) -> usize {
    let mut messages = vec![Message::new(Role::User, "x")];
    for text in results {
        hook.append(result(text), &mut messages);
    }
    (messages.len() - 1) / 2
}

#[test]
fn only_enabled_hooks_with_a_tool_are_called_even_if_the_tool_is_hidden() {
    let hooks = [
        hook(&json!({})),
        hook(&json!({"enabled": false, "tool": "nowhere"})),
        hook(&json!({"tool": "u", "event": "on_completion"})),
        hook(&json!({"tool": "secret"})),
    ];
    let hidden = CallRules {
        hidden: true,
        ..CallRules::default()
    };
    let tools = [tool("t", CallRules::default()), tool("secret", hidden)];
    let (planned, missing) = plan_hooks(&hooks, &tools);
    let names: Vec<_> = planned
        .iter()
        .map(|call| call.tool.declaration().name.as_str())
        .collect();
    assert_eq!(names, ["t", "secret"]);
    assert_eq!(
        missing,
        [HookIssue {
            event: "on_completion".to_owned(),
            tool: "u".to_owned(),
            message: "No tool has this name; the hook is not called.".to_owned(),
        }]
    );
}

#[test]
fn a_result_that_equals_the_newest_is_added_again_only_in_the_mode_always() {
    let texts = ["a", "a", "b", "b", "a"];
    assert_eq!(pairs(&plan_hook(&json!({})), &texts), 3);
    assert_eq!(pairs(&plan_hook(&json!({"mode": "always"})), &texts), 5);
}

#[test]
fn a_result_of_other_arguments_is_not_the_same() {
    let (first_hook, second_hook) = (
        plan_hook(&json!({"arguments": {"q": 1}})),
        plan_hook(&json!({"arguments": {"q": 2}})),
    );
    let mut messages = Vec::new();
    for hook in [&first_hook, &second_hook, &first_hook, &second_hook] {
        hook.append(result("same"), &mut messages);
    }
    assert_eq!(messages.len(), 4);
}

#[test]
fn a_call_that_the_model_made_itself_counts() {
    let hook = plan_hook(&json!({"arguments": {"q": 1}}));
    let model_call = CallPair {
        tool: "t".to_owned(),
        arguments: json!({"q": 1}),
        content: "r".to_owned(),
    };
    let mut messages = model_call.messages_as("call_1".to_owned()).to_vec();
    hook.append(result("r"), &mut messages);
    assert_eq!(messages.len(), 2);
}

#[test]
fn files_and_state_of_a_result_are_kept() {
    let mut result_with_files = result("r");
    result_with_files.custom_content = serde_json::from_value(
        json!({"attachments": [{"title": "a"}], "state": {"_message_metadata": {}}}),
    )
    .unwrap();
    let custom = result_with_files.custom_content.clone();
    let mut messages = Vec::new();
    plan_hook(&json!({})).append(result_with_files, &mut messages);
    assert_eq!(messages[1].custom_content, custom);
    assert_eq!(
        messages[1].tool_call_id.as_ref(),
        Some(&messages[0].calls()[0].id)
    );
    assert!(pair::is_synthetic(&messages[0].calls()[0].id, "t"));
}

#[test]
fn a_hook_ignores_the_strategies_of_its_tool() {
    let strict = json!({"strategies": [{"type": "hard_stop"}], "display_error_in_stage": false});
    let rules = CallRules {
        fallback: serde_json::from_value(strict).unwrap(),
        ..CallRules::default()
    };
    let (planned, _) = plan_hooks(&[hook(&json!({}))], &[tool("t", rules)]);
    let fallback = &planned[0].tool.rules().fallback;
    assert_eq!(fallback.strategies, Fallback::default().strategies);
    assert!(!fallback.display_error_in_stage);
}

#[test]
fn a_failure_that_ends_requests_of_a_model_is_reported_after_a_hook() {
    let ran = failed_call("The tool call `t` timed out after 1 seconds.");
    let content =
        "The tool call failed with an error: The tool call `t` timed out after 1 seconds.";
    assert_eq!(ran.message.content, Some(Content::Text(content.to_owned())));
    assert!(ran.failed);
}
