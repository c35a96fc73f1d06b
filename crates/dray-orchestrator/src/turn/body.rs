//! The body of a call of the model (quickapps 17).

use std::sync::Arc;

use bytes::Bytes;
use dray_agent::failure::RequestFailure;
use dray_agent::manifest::orchestrator::Deployment;
use dray_agent::message::Message;
use dray_tool::Tool;
use serde::ser::{SerializeMap as _, SerializeSeq as _};
use serde::{Serialize, Serializer};
use serde_json::{Map, Value};

use super::client_tools::{ClientTools, lasting_choice, merge_parameters, tool_name};
use super::tool_search::DeferredTools;

/// The client's parameters for calls of the model.
#[derive(Clone, Debug, Default)]
pub(super) struct ClientParameters {
    /// The tool that the model must call first.
    pub(super) tool_choice: Option<Value>,
    /// Form of the answer.
    pub(super) response_format: Option<Value>,
    /// Other parameters, such as those of sampling, that the manifest lets clients set.
    pub(super) parameters: Map<String, Value>,
    /// Tools that the client calls itself.
    pub(super) tools: ClientTools,
}

impl ClientParameters {
    /// Checks the client's tools and its choice against the tools of the agent.
    ///
    /// # Errors
    ///
    /// 400 for a name that is taken, and for the choice of a tool that does not exist.
    pub(super) fn check_tools(
        &self,
        own: &[Arc<dyn Tool>],
        statics: &[Value],
    ) -> Result<(), RequestFailure> {
        self.tools.check_names(own, statics)?;
        self.tools.check_choice(self.tool_choice.as_ref(), own)
    }

    /// The parameters of the calls of the model after the first one of a turn, for another replica. A choice that holds
    /// for the first call would make the model call its tool once more.
    #[must_use]
    pub(super) fn after_first_call(mut self) -> Self {
        let tools = &self.tools;
        self.tool_choice = self.tool_choice.and_then(|choice| {
            if tools.is_required_by(&choice) {
                Some(choice)
            } else {
                lasting_choice(&choice)
            }
        });
        self
    }

    /// The same for another agent. A choice that names tools is removed, because that agent has other tools.
    #[must_use]
    pub(super) fn for_next_agent(mut self) -> Self {
        self = self.after_first_call();
        self.tool_choice = self.tool_choice.filter(Value::is_string);
        self
    }
}

/// The client's `tool_choice`, and the calls of the model for which it holds.
#[derive(Debug)]
enum ToolChoice {
    /// For the first call: a choice that requires a call would otherwise do so in every round, and the loop would never
    /// end.
    FirstCall(Value),
    /// For all calls, with another form after the first one.
    Lasting { first: Value, later: Value },
    /// Until the model calls a tool of the client, with which the loop ends. The model may call tools of the agent
    /// before.
    UntilClientTool {
        choice: Value,
        /// The choice in the last round that the turn may have.
        last_choice: Option<Value>,
        last_round: u32,
    },
}

impl ToolChoice {
    fn new(choice: Value, tools: &ClientTools, max_rounds: u32) -> Self {
        if !tools.is_required_by(&choice) {
            return match lasting_choice(&choice) {
                Some(later) => Self::Lasting {
                    first: choice,
                    later,
                },
                None => Self::FirstCall(choice),
            };
        }
        Self::UntilClientTool {
            choice,
            last_choice: tools.only_choice(),
            last_round: max_rounds,
        }
    }

    /// Whether the client's tools alone are offered in the last round, because they are several and no choice names
    /// exactly them in a way that all services know.
    const fn ends_with_client_tools(&self) -> bool {
        matches!(
            self,
            Self::UntilClientTool {
                last_choice: None,
                ..
            }
        )
    }

    /// Whether a round is the last one that the turn may have, and the client has to get a call by then.
    const fn is_last_chance(&self, round: u32) -> bool {
        matches!(self, Self::UntilClientTool { last_round, .. } if round >= *last_round)
    }

    /// The choice of a round, which counts from 1.
    fn of_round(&self, round: u32) -> Option<&Value> {
        match self {
            Self::FirstCall(choice) => Some(choice).filter(|_| round == 1),
            Self::Lasting { first, later } => Some(if round == 1 { first } else { later }),
            Self::UntilClientTool {
                choice,
                last_choice,
                ..
            } => {
                let last_choice = last_choice.as_ref().filter(|_| self.is_last_chance(round));
                Some(last_choice.unwrap_or(choice))
            }
        }
    }
}

/// The parts of a request body that all calls of one turn share, serialised once: the declarations of tools are most of
/// a request, and the same in each.
#[derive(Debug)]
pub(super) struct BodyTemplate {
    /// A JSON object up to the value of its last member, `messages`.
    prefix: Vec<u8>,
    /// The same with the client's tools alone, for the last round in which a client with several can get a call.
    last_prefix: Option<Vec<u8>>,
    /// Parameters of the manifest and the client, for traces.
    parameters: Map<String, Value>,
    tool_choice: Option<ToolChoice>,
}

impl BodyTemplate {
    /// A template. `statics` are the tools that the model's own deployment runs, unchanged; `deferred` ones are left out.
    /// A turn has at most `max_rounds` calls of the model.
    ///
    /// # Errors
    ///
    /// A parameter is not JSON.
    pub(super) fn new(
        deployment: &Deployment,
        tools: &[Arc<dyn Tool>],
        statics: &[Value],
        (client_parameters, deferred): (ClientParameters, &DeferredTools),
        max_rounds: u32,
    ) -> Result<Self, serde_json::Error> {
        let ClientParameters {
            tool_choice,
            response_format,
            parameters,
            tools: client_tools,
        } = client_parameters;
        let mut fixed = match serde_json::to_value(&deployment.parameters) {
            Ok(Value::Object(parameters)) => parameters,
            _ => Map::new(),
        };
        merge_parameters(&mut fixed, parameters);
        // Other code writes these members, below or for each call; a name that occurs twice has no defined value (RFC
        // 8259 section 4).
        for name in OWN_MEMBERS {
            fixed.shift_remove(name);
        }
        let is_declared = |tool: &&Value| tool_name(tool).is_none_or(|name| !deferred.has(name));
        let client = client_tools.declarations();
        let own = tools.iter();
        let tools = ToolList {
            own: own
                .filter(|tool| !deferred.has(&tool.declaration().name))
                .collect(),
            statics,
            client: client.iter().filter(is_declared).collect(),
        };
        if tools.is_empty() {
            // Services refuse this member in a request without tools, where it has no meaning.
            fixed.shift_remove("parallel_tool_calls");
        }
        let members = FixedMembers {
            parameters: &fixed,
            model: &deployment.deployment_id,
            tools: &tools,
            response_format: response_format.as_ref(),
        };
        // Services refuse a choice without tools. Only `auto` and `none` get here without any.
        let tool_choice = tool_choice
            .filter(|_| !tools.is_empty())
            .map(|choice| ToolChoice::new(choice, &client_tools, max_rounds));
        let only_client_tools = ToolList {
            own: Vec::new(),
            statics: &[],
            client: client.iter().collect(),
        };
        let last_members = FixedMembers {
            tools: &only_client_tools,
            ..members
        };
        let last_prefix = tool_choice
            .as_ref()
            .filter(|choice| choice.ends_with_client_tools())
            .map(|_| last_members.to_prefix());
        Ok(Self {
            prefix: members.to_prefix()?,
            last_prefix: last_prefix.transpose()?,
            tool_choice,
            parameters: fixed,
        })
    }

    /// The body of one call. `round` counts from 1.
    pub(super) fn body(
        &self,
        messages: &[Message],
        round: u32,
    ) -> Result<Bytes, serde_json::Error> {
        let choice = self.tool_choice.as_ref();
        let last_prefix = self.last_prefix.as_ref();
        let last_prefix =
            last_prefix.filter(|_| choice.is_some_and(|choice| choice.is_last_chance(round)));
        let mut body = last_prefix.unwrap_or(&self.prefix).clone();
        serde_json::to_writer(&mut body, messages)?;
        if let Some(choice) = choice.and_then(|choice| choice.of_round(round)) {
            body.extend_from_slice(b",\"tool_choice\":");
            serde_json::to_writer(&mut body, choice)?;
        }
        body.push(b'}');
        Ok(body.into())
    }

    /// Parameters of the manifest and the client that are in each body.
    pub(super) const fn parameters(&self) -> &Map<String, Value> {
        &self.parameters
    }
}

/// Members of a body that are not parameters.
const OWN_MEMBERS: [&str; 7] = [
    "stream",
    "model",
    "tools",
    "response_format",
    "stream_options",
    "messages",
    "tool_choice",
];

/// The members of a body that are equal in all calls of a turn.
#[derive(Clone, Copy)]
struct FixedMembers<'a> {
    parameters: &'a Map<String, Value>,
    model: &'a str,
    tools: &'a ToolList<'a>,
    response_format: Option<&'a Value>,
}

impl FixedMembers<'_> {
    /// The body up to the value of its last member, `messages`.
    fn to_prefix(self) -> Result<Vec<u8>, serde_json::Error> {
        let mut prefix = serde_json::to_vec(&self)?;
        // The closing brace is left out, since each call adds its messages.
        prefix.pop();
        prefix.extend_from_slice(b",\"messages\":");
        Ok(prefix)
    }
}

impl Serialize for FixedMembers<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut members = serializer.serialize_map(None)?;
        for (name, value) in self.parameters {
            members.serialize_entry(name, value)?;
        }
        members.serialize_entry("stream", &true)?;
        members.serialize_entry("model", self.model)?;
        if !self.tools.is_empty() {
            members.serialize_entry("tools", self.tools)?;
        }
        if let Some(format) = self.response_format {
            members.serialize_entry("response_format", format)?;
        }
        // Budgets and metrics need the token counts even if the client does not.
        members.serialize_entry(
            "stream_options",
            &StreamOptions {
                include_usage: true,
            },
        )?;
        members.end()
    }
}

#[derive(Serialize)]
struct StreamOptions {
    include_usage: bool,
}

/// All tools of a request, in the order in which the model gets them.
struct ToolList<'a> {
    own: Vec<&'a Arc<dyn Tool>>,
    statics: &'a [Value],
    /// The client's tools come last, so that the agent's own part of the prompt is the same for all clients.
    client: Vec<&'a Value>,
}

impl ToolList<'_> {
    fn is_empty(&self) -> bool {
        self.own.is_empty() && self.statics.is_empty() && self.client.is_empty()
    }
}

impl Serialize for ToolList<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut tools = serializer.serialize_seq(None)?;
        for tool in &self.own {
            tools.serialize_element(tool.declaration())?;
        }
        for tool in self.statics.iter().chain(self.client.iter().copied()) {
            tools.serialize_element(tool)?;
        }
        tools.end()
    }
}

#[cfg(test)]
mod tests {
    use dray_agent::message::Role;
    use serde_json::json;

    use super::*;

    fn template(client_parameters: ClientParameters, statics: &[Value]) -> BodyTemplate {
        let deployment = serde_json::from_value(json!({
            "deployment_id": "gpt",
            "parameters": {"temperature": 0.5},
        }));
        let client_parameters = (client_parameters, &DeferredTools::default());
        BodyTemplate::new(&deployment.unwrap(), &[], statics, client_parameters, 3).unwrap()
    }

    fn body(template: &BodyTemplate, round: u32) -> Value {
        let messages = [Message::new(Role::User, "a \"b\"")];
        serde_json::from_slice(&template.body(&messages, round).unwrap()).unwrap()
    }

    #[test]
    fn parameters_cannot_replace_or_repeat_the_members_of_the_service() {
        let parameters = OWN_MEMBERS.map(|name| (name.to_owned(), json!("other")));
        let client_parameters = ClientParameters {
            parameters: Map::from_iter(parameters),
            ..ClientParameters::default()
        };
        let template = template(client_parameters, &[]);
        assert_eq!(
            body(&template, 1),
            json!({
                "temperature": 0.5,
                "stream": true,
                "model": "gpt",
                "stream_options": {"include_usage": true},
                "messages": [{"role": "user", "content": "a \"b\""}],
            })
        );
        let bytes = template.body(&[], 1).unwrap();
        assert_eq!(
            bytes
                .windows(9)
                .filter(|part| part == b"\"stream\":")
                .count(),
            1
        );
    }

    #[test]
    fn a_choice_of_a_tool_is_in_the_first_request_only_and_never_without_tools() {
        let client_parameters = || ClientParameters {
            tool_choice: Some(json!("required")),
            parameters: Map::from_iter([("parallel_tool_calls".to_owned(), json!(false))]),
            ..ClientParameters::default()
        };
        let tool = json!({"type": "static_function", "static_function": {"name": "s"}});
        let with_tools = template(client_parameters(), std::slice::from_ref(&tool));
        assert_eq!(body(&with_tools, 1)["tool_choice"], "required");
        assert_eq!(body(&with_tools, 1)["tools"], json!([tool]));
        assert_eq!(body(&with_tools, 1)["parallel_tool_calls"], json!(false));
        assert_eq!(body(&with_tools, 2).get("tool_choice"), None);
        let later = client_parameters().after_first_call();
        assert_eq!(later.tool_choice, None, "another agent or replica");
        let without = body(&template(client_parameters(), &[]), 1);
        for name in ["tool_choice", "tools", "parallel_tool_calls"] {
            assert_eq!(without.get(name), None, "{name}");
        }
    }

    #[test]
    fn allowed_tools_hold_in_every_request_and_for_other_replicas() {
        let tool = json!({"type": "function", "function": {"name": "a"}});
        let choice = |mode: &str| json!({"type": "allowed_tools", "allowed_tools": {"mode": mode, "tools": [tool]}});
        let client_parameters = ClientParameters {
            tool_choice: Some(choice("required")),
            tools: ClientTools::new(vec![tool.clone()]),
            ..ClientParameters::default()
        };
        let with_tools = template(client_parameters.clone(), &[]);
        assert_eq!(body(&with_tools, 1)["tool_choice"], choice("required"));
        assert_eq!(body(&with_tools, 2)["tool_choice"], choice("auto"));
        let later = client_parameters.clone().after_first_call();
        assert_eq!(later.tool_choice, Some(choice("auto")));
        // The next agent has other tools.
        assert_eq!(client_parameters.for_next_agent().tool_choice, None);
    }

    #[test]
    fn a_client_that_requires_a_call_gets_one_of_its_own_tools() {
        let required = |tools: &[Value]| ClientParameters {
            tool_choice: Some(json!("required")),
            tools: ClientTools::new(tools.to_vec()),
            ..ClientParameters::default()
        };
        let tool = |name: &str| json!({"type": "function", "function": {"name": name}});
        // Tools of the agent may be called first, so the choice holds in every round; the last one leaves no other
        // tool.
        let only = template(required(&[tool("a")]), &[]);
        for round in [1, 2] {
            assert_eq!(body(&only, round)["tool_choice"], "required", "{round}");
        }
        assert_eq!(body(&only, 3)["tool_choice"], tool("a"));
        let own = json!({"type": "static_function", "static_function": {"name": "s"}});
        let several = required(&[tool("a"), tool("b")]).after_first_call();
        let several = template(several, std::slice::from_ref(&own));
        assert_eq!(
            body(&several, 2)["tools"],
            json!([own, tool("a"), tool("b")])
        );
        for round in [3, 4] {
            let last = body(&several, round);
            assert_eq!(last["tools"], json!([tool("a"), tool("b")]), "{round}");
            assert_eq!(last["tool_choice"], "required", "{round}");
        }
        let named = ClientParameters {
            tool_choice: Some(tool("a")),
            ..required(&[tool("a")])
        };
        assert_eq!(
            body(&template(named.clone(), &[]), 2).get("tool_choice"),
            None
        );
        assert_eq!(named.after_first_call().tool_choice, None);
    }
}
