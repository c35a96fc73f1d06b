//! Additions of a client of `OpenAI`'s API to a turn: tools that it calls itself, and parameters for the model.

use std::collections::HashSet;
use std::sync::Arc;

use dray_agent::failure::RequestFailure;
use dray_agent::manifest::orchestrator::Orchestrator;
use dray_tool::{Tool, ToolDeclaration};
use serde_json::{Map, Value, json};

use super::body::ClientParameters;
use crate::http::unsupported_failure;

/// Names of the limit of an answer; the newer one is last.
const TOKEN_LIMITS: [&str; 2] = ["max_tokens", "max_completion_tokens"];

/// Tools that the client calls itself.
#[derive(Clone, Debug, Default)]
pub(super) struct ClientTools {
    declared: Vec<Value>,
    names: HashSet<String>,
}

impl ClientTools {
    /// The tools of a request, whose names were checked.
    pub(super) fn new(declared: Vec<Value>) -> Self {
        let names = declared.iter().filter_map(tool_name);
        Self {
            names: names.map(str::to_owned).collect(),
            declared,
        }
    }

    /// Whether the client has no tools.
    pub(super) fn is_empty(&self) -> bool {
        self.declared.is_empty()
    }

    /// Whether a call is for the client to make.
    pub(super) fn has(&self, name: &str) -> bool {
        self.names.contains(name)
    }

    /// Their names, in the order of the request.
    pub(super) fn names(&self) -> impl Iterator<Item = &str> {
        self.declared.iter().filter_map(tool_name)
    }

    /// The tools as the client declared them.
    pub(super) fn declarations(&self) -> &[Value] {
        &self.declared
    }

    /// The tools in the form of the agent's own. A function without parameters takes none, as in `OpenAI`'s API.
    pub(super) fn tool_declarations(&self) -> impl Iterator<Item = ToolDeclaration> {
        self.declared.iter().filter_map(|tool| {
            let description = tool.pointer("/function/description");
            let parameters = tool.pointer("/function/parameters");
            let parameters = parameters.filter(|parameters| parameters.is_object());
            Some(ToolDeclaration {
                name: tool_name(tool)?.to_owned(),
                description: description.and_then(Value::as_str).map(str::to_owned),
                parameters: parameters
                    .cloned()
                    .unwrap_or_else(|| json!({"type": "object", "properties": {}})),
            })
        })
    }

    /// Refuses a tool whose name one of the agent's own tools has: a call by the model would mean either.
    ///
    /// # Errors
    ///
    /// 400 with the place of the tool.
    pub(super) fn check_names(
        &self,
        own: &[Arc<dyn Tool>],
        statics: &[Value],
    ) -> Result<(), RequestFailure> {
        let statics = statics.iter().filter_map(|tool| {
            tool.pointer("/static_function/name")
                .and_then(Value::as_str)
        });
        let own = own.iter().map(|tool| tool.declaration().name.as_str());
        let taken: HashSet<&str> = own.chain(statics).collect();
        for (index, tool) in self.declared.iter().enumerate() {
            if let Some(name) = tool_name(tool).filter(|name| taken.contains(name)) {
                return Err(RequestFailure::of_parameter(
                    format!("tools.{index}.function.name"),
                    "tool_name_taken",
                    format!("The agent has a tool '{name}' of its own. Give yours another name."),
                ));
            }
        }
        Ok(())
    }

    /// Whether a choice requires a call of one of these tools. The tools of the agent do not count: a client that
    /// brings tools and requires a call expects to get one.
    pub(super) fn is_required_by(&self, choice: &Value) -> bool {
        choice == "required" && !self.is_empty()
    }

    /// The choice of exactly one tool of the client, if it has no other.
    pub(super) fn only_choice(&self) -> Option<Value> {
        let [tool] = self.declared.as_slice() else {
            return None;
        };
        let name = tool_name(tool)?;
        Some(json!({"type": "function", "function": {"name": name}}))
    }

    /// Refuses a choice of a tool that does not exist.
    ///
    /// # Errors
    ///
    /// 400 with the parameter.
    pub(super) fn check_choice(
        &self,
        choice: Option<&Value>,
        own: &[Arc<dyn Tool>],
    ) -> Result<(), RequestFailure> {
        let Some(choice) = choice else { return Ok(()) };
        if matches!(choice.as_str(), Some("auto" | "none" | "required")) {
            return Ok(());
        }
        let is_known =
            |name: &str| self.has(name) || own.iter().any(|tool| tool.declaration().name == name);
        let kind = choice.get("type").and_then(Value::as_str);
        let names = chosen_names(choice);
        let unknown = names.iter().find(|name| !is_known(name));
        let message = match (kind, unknown) {
            (Some("function" | "allowed_tools"), Some(name)) => {
                format!("The tool '{name}' does not exist, so it cannot be chosen.")
            }
            (Some("function"), None) if names.is_empty() => {
                "The chosen function has no name.".to_owned()
            }
            (Some("allowed_tools"), None) if !is_list_of_names(choice, &names) => {
                "It must have 'allowed_tools' with the 'mode' 'auto' or 'required', and 'tools' with the names of \
                 functions."
                    .to_owned()
            }
            (Some("function" | "allowed_tools"), None) => return Ok(()),
            _ => "It must be 'auto', 'none', 'required', or name functions.".to_owned(),
        };
        Err(RequestFailure::of_parameter(
            "tool_choice",
            "invalid_tool_choice",
            message,
        ))
    }
}

/// Name of a declared function.
pub(super) fn tool_name(tool: &Value) -> Option<&str> {
    tool.pointer("/function/name")?.as_str()
}

/// The tools that a choice names: one, or those that it allows.
pub(super) fn chosen_names(choice: &Value) -> Vec<&str> {
    let allowed = choice.pointer("/allowed_tools/tools");
    let allowed = allowed.and_then(Value::as_array).into_iter().flatten();
    allowed
        .chain(std::iter::once(choice))
        .filter_map(tool_name)
        .collect()
}

/// Whether a choice of allowed tools is complete: one name for each of its tools, and a mode.
fn is_list_of_names(choice: &Value, names: &[&str]) -> bool {
    let mode = choice
        .pointer("/allowed_tools/mode")
        .and_then(Value::as_str);
    let tools = choice
        .pointer("/allowed_tools/tools")
        .and_then(Value::as_array);
    matches!(mode, Some("auto" | "required"))
        && tools.is_some_and(|tools| !tools.is_empty() && tools.len() == names.len())
}

/// The calls that a client's `tool_choice` leaves to the model. A model that makes another call has ignored the choice.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) enum PermittedCalls {
    #[default]
    All,
    None,
    /// Only calls of tools with these names.
    Named(Vec<String>),
}

impl PermittedCalls {
    /// The calls that `choice` permits in every round of a turn.
    pub(super) fn of_choice(choice: Option<&Value>) -> Self {
        match choice.and_then(lasting_choice) {
            None => Self::All,
            Some(choice) if choice == "none" => Self::None,
            Some(choice) => Self::Named(
                chosen_names(&choice)
                    .into_iter()
                    .map(str::to_owned)
                    .collect(),
            ),
        }
    }

    /// Whether the model may call the tool `name`.
    pub(super) fn has(&self, name: &str) -> bool {
        match self {
            Self::All => true,
            Self::None => false,
            Self::Named(names) => names.iter().any(|permitted| permitted == name),
        }
    }
}

/// The part of a choice that holds in every round of a turn: `none`, and the allowed tools without the requirement of a
/// call, which would never let the turn end.
pub(super) fn lasting_choice(choice: &Value) -> Option<Value> {
    if choice == "none" {
        return Some(choice.clone());
    }
    let mut lasting = choice.clone();
    *lasting.pointer_mut("/allowed_tools/mode")? = json!("auto");
    Some(lasting)
}

/// Refuses parameters that the manifest does not let a client set.
///
/// # Errors
///
/// 400 with the parameter.
pub(super) fn check_parameters(
    orchestrator: &Orchestrator,
    client_parameters: &ClientParameters,
) -> Result<(), RequestFailure> {
    let structured = [
        ("tools", !client_parameters.tools.is_empty()),
        ("tool_choice", client_parameters.tool_choice.is_some()),
        (
            "response_format",
            client_parameters.response_format.is_some(),
        ),
    ];
    let structured = structured.into_iter().filter(|(_, is_set)| *is_set);
    let names = structured
        .map(|(name, _)| name)
        .chain(client_parameters.parameters.keys().map(String::as_str));
    for name in names {
        if !orchestrator.allows_parameter(name) {
            return Err(unsupported_failure(
                name,
                "the agent does not let clients set it",
            ));
        }
    }
    Ok(())
}

/// Adds a client's parameters to those of the manifest. The parameters of the client win, except for the limit of the
/// answer: there the lower value applies, under the client's name for it.
pub(super) fn merge_parameters(fixed: &mut Map<String, Value>, client: Map<String, Value>) {
    let limit = TOKEN_LIMITS
        .iter()
        .filter_map(|name| fixed.get(*name)?.as_u64())
        .min();
    if TOKEN_LIMITS.iter().any(|name| client.contains_key(*name)) {
        // Services refuse a request that has both.
        for name in TOKEN_LIMITS {
            fixed.shift_remove(name);
        }
    }
    for (name, value) in client {
        let value = match (limit, value.as_u64()) {
            (Some(limit), Some(requested)) if TOKEN_LIMITS.contains(&name.as_str()) => {
                json!(requested.min(limit))
            }
            _ => value,
        };
        fixed.insert(name, value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn merge_objects(fixed: Value, client: Value) -> Value {
        let (Value::Object(mut fixed), Value::Object(client)) = (fixed, client) else {
            panic!("both values must be objects");
        };
        merge_parameters(&mut fixed, client);
        Value::Object(fixed)
    }

    #[test]
    fn a_client_overrides_the_manifest_but_never_raises_the_limit_of_the_answer() {
        assert_eq!(
            merge_objects(
                json!({"temperature": 0.2, "top_p": 0.9, "max_tokens": 100}),
                json!({"temperature": 1, "max_completion_tokens": 500})
            ),
            json!({"temperature": 1, "top_p": 0.9, "max_completion_tokens": 100})
        );
        assert_eq!(
            merge_objects(json!({"max_tokens": 100}), json!({"max_tokens": 50})),
            json!({"max_tokens": 50})
        );
        assert_eq!(
            merge_objects(json!({"max_tokens": 100}), json!({"seed": 1})),
            json!({"max_tokens": 100, "seed": 1})
        );
    }

    #[test]
    fn allowed_tools_and_none_limit_the_calls_of_all_rounds() {
        let tools = json!([{"type": "function", "function": {"name": "a"}}]);
        let allowed =
            json!({"type": "allowed_tools", "allowed_tools": {"mode": "required", "tools": tools}});
        let permitted = PermittedCalls::of_choice(Some(&allowed));
        assert!(permitted.has("a") && !permitted.has("b"));
        let lasting = lasting_choice(&allowed).unwrap();
        assert_eq!(lasting["allowed_tools"]["mode"], "auto");
        assert_eq!(lasting["allowed_tools"]["tools"], tools);
        assert!(!PermittedCalls::of_choice(Some(&json!("none"))).has("a"));
        let named = json!({"type": "function", "function": {"name": "a"}});
        for choice in [None, Some(&json!("required")), Some(&named)] {
            let permitted = PermittedCalls::of_choice(choice);
            assert_eq!(permitted, PermittedCalls::All, "{choice:?}");
        }
    }

    #[test]
    fn a_choice_names_a_tool_that_exists() {
        let tools = ClientTools::new(vec![
            json!({"type": "function", "function": {"name": "theirs"}}),
        ]);
        let named = |name: &str| json!({"type": "function", "function": {"name": name}});
        let allowed = |mode: &str, tools: Value| json!({"type": "allowed_tools", "allowed_tools": {"mode": mode, "tools": tools}});
        for choice in [
            json!("auto"),
            json!("required"),
            named("theirs"),
            allowed("auto", json!([named("theirs")])),
        ] {
            assert_eq!(tools.check_choice(Some(&choice), &[]), Ok(()), "{choice}");
        }
        for choice in [
            json!("some"),
            named("other"),
            allowed("auto", json!([named("theirs"), named("other")])),
            allowed("all", json!([named("theirs")])),
            allowed("required", json!([])),
            allowed("required", json!([named("theirs"), {"type": "function"}])),
            json!({"type": "allowed_tools"}),
            json!({"type": "function"}),
            json!({"type": "custom"}),
        ] {
            let failure = tools.check_choice(Some(&choice), &[]).unwrap_err();
            assert_eq!(failure.param.as_deref(), Some("tool_choice"), "{choice}");
        }
    }
}
