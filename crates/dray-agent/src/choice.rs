//! Checks the `tool_choice` of a request against the tools that exist (quickapps 17).

use serde_json::Value;

use crate::failure::RequestFailure;

/// Refuses a `tool_choice` that cannot be satisfied because no tool is configured.
///
/// # Errors
/// 400 for `required` or a named function without any tool.
pub fn check_tool_choice(
    tool_choice: Option<&Value>,
    has_tools: bool,
) -> Result<(), Box<RequestFailure>> {
    let forces = tool_choice.is_some_and(|choice| {
        // `auto` and `none` do not require a call, so they need no tool.
        choice == "required" || choice.get("type").is_some_and(|kind| kind == "function")
    });
    if has_tools || !forces {
        return Ok(());
    }
    let message = "tool_choice requires at least one tool to be configured";
    Err(Box::new(RequestFailure::new(400, message).display(
        "Cannot enforce tool_choice: no tools are available. Configure at least one tool set or use \
         tool_choice='auto'.",
    )))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_choice_without_tools_is_refused() {
        for choice in [
            json!("required"),
            json!({"type": "function", "function": {"name": "t"}}),
        ] {
            let failure = check_tool_choice(Some(&choice), false).unwrap_err();
            assert_eq!(failure.status, 400);
            assert_eq!(
                failure.message,
                "tool_choice requires at least one tool to be configured"
            );
            assert_eq!(
                failure.display_message.unwrap(),
                "Cannot enforce tool_choice: no tools are available. Configure at least one tool set or use \
                 tool_choice='auto'."
            );
            assert_eq!(check_tool_choice(Some(&choice), true), Ok(()));
        }
    }

    #[test]
    fn a_choice_that_forces_nothing_needs_no_tools() {
        for choice in [
            json!("auto"),
            json!("none"),
            json!({"type": "auto"}),
            json!({}),
        ] {
            assert_eq!(check_tool_choice(Some(&choice), false), Ok(()), "{choice}");
        }
        assert_eq!(check_tool_choice(None, false), Ok(()));
    }
}
