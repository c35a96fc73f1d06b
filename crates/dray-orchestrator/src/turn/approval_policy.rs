//! Which calls of a turn a person must approve, and the form of the question.

use dray_agent::approval::{ApprovalRule, CallFacts};
use dray_agent::message::ToolCall;
use dray_tool::ToolQuestion;
use dray_tool::pipeline::parse_arguments;

use super::tool_sources::ToolSources;
use crate::config::approvals::ApprovalChat;
use crate::http::ApprovalForm;

/// Most calls of one round that are asked about.
const MAX_QUESTIONS: usize = 32;
/// Most bytes of the arguments of a call, and of what a tool asks, that a person is shown.
const MAX_SHOWN_BYTES: usize = 16 << 10;

/// Result of a call that needs approval in a round with calls for the client, who cannot be asked then.
const MIXED_ROUND: &str = "This call needs the approval of the user, which cannot be asked for beside calls of the client's \
     tools. It was not made. Call it again in a round of its own.";
/// Result of calls beyond [`MAX_QUESTIONS`].
const TOO_MANY: &str = "This call needs the approval of the user, and this round has too many such calls. It was not made. \
     Call it again in the next round.";
/// Result of a call that is too large to be shown.
pub(super) const TOO_LARGE: &str = "This call needs the approval of the user, and its arguments are too large to be shown. It was not \
     made. Call it with shorter arguments, or put the content into a file.";
/// Result of a call that no one can approve.
pub(super) const NO_QUESTION: &str =
    "This call needs the approval of the user, who cannot be asked here. It was not made.";

/// Rules on approval of the operator and of the manifest. A call needs approval if one of these rules covers it, so a
/// manifest cannot remove a rule of the operator.
#[derive(Debug, Default)]
pub(super) struct ApprovalPolicy {
    rules: Vec<ApprovalRule>,
    sources: ToolSources,
    form: ApprovalForm,
    takes_input_calls: bool,
    repeatable: Vec<ApprovalRule>,
    chats: Vec<ApprovalChat>,
}

/// The calls of a round, by how they are handled.
#[derive(Debug, Default)]
pub(super) struct CallGroups {
    /// Calls of tools of the client.
    pub(super) client: Vec<ToolCall>,
    /// Calls that wait for approval.
    pub(super) questions: Vec<ToolCall>,
    /// Calls about which the people of a chat decide, with the name of the chat.
    pub(super) in_chats: Vec<(ToolCall, String)>,
    /// Calls that are made now.
    pub(super) own: Vec<ToolCall>,
    /// Calls that are not made, with the results that the model gets instead.
    pub(super) refused: Vec<(ToolCall, &'static str)>,
}

impl ApprovalPolicy {
    /// A policy for tools of these sources.
    pub(super) fn new(
        operator: &[ApprovalRule],
        manifest: Option<&Vec<ApprovalRule>>,
        sources: ToolSources,
        form: ApprovalForm,
    ) -> Self {
        let manifest = manifest.map(Vec::as_slice).unwrap_or_default();
        Self {
            rules: [operator, manifest].concat(),
            sources,
            form,
            takes_input_calls: false,
            repeatable: Vec::new(),
            chats: Vec::new(),
        }
    }

    /// Adds the chats whose people decide instead of the caller.
    #[must_use]
    pub(super) fn with_chats(mut self, chats: &[ApprovalChat]) -> Self {
        chats.clone_into(&mut self.chats);
        self
    }

    /// The chat whose people decide about a call that needs approval.
    fn chat_of(&self, tool: &str, arguments: &str) -> Option<&str> {
        let chats = self.chats.iter().filter(|chat| chat.approvals);
        self.first_chat(chats, tool, arguments)
    }

    /// The chat that gets the questions of a tool during a call.
    pub(super) fn question_chat(&self, call: &ToolCall) -> Option<&str> {
        let chats = self.chats.iter().filter(|chat| chat.tool_questions);
        self.first_chat(chats, &call.function.name, &call.function.arguments)
    }

    fn first_chat<'a>(
        &self,
        mut chats: impl Iterator<Item = &'a ApprovalChat>,
        tool: &str,
        arguments: &str,
    ) -> Option<&'a str> {
        let chat = chats.find(|chat| {
            chat.calls.is_empty() || self.covers(&chat.calls, tool, arguments).unwrap_or(false)
        })?;
        Some(&chat.chat)
    }

    /// Adds the rules on calls that may be made again when their process ends.
    #[must_use]
    pub(super) fn with_repeatable(
        mut self,
        operator: &[ApprovalRule],
        manifest: Option<&Vec<ApprovalRule>>,
    ) -> Self {
        let manifest = manifest.map(Vec::as_slice).unwrap_or_default();
        self.repeatable = [operator, manifest].concat();
        self
    }

    /// Whether a call may be repeated if its process ended during it. A call whose arguments are not an object has no
    /// effect, so it may, and so may a handoff, which changes nothing but the turn itself.
    pub(super) fn is_repeatable(&self, tool: &str, arguments: &str) -> bool {
        if self.sources.is_handoff(tool) {
            return true;
        }
        self.covers(&self.repeatable, tool, arguments)
            .unwrap_or(true)
    }

    /// Whether one of these rules covers a call; `None` for arguments that are not an object.
    fn covers(&self, rules: &[ApprovalRule], tool: &str, arguments: &str) -> Option<bool> {
        // Arguments are parsed as they are for the call, so that the rule covers exactly what is called.
        let arguments = parse_arguments(arguments).ok()?;
        let facts = CallFacts {
            tool,
            sources: self.sources.of(tool),
            arguments: &arguments,
        };
        Some(rules.iter().any(|rule| rule.covers(facts)))
    }

    /// Sets whether the client declares a function for questions of tools.
    #[must_use]
    pub(super) const fn with_input_calls(mut self, takes_input_calls: bool) -> Self {
        self.takes_input_calls = takes_input_calls;
        self
    }

    /// How the client gets what tools ask: as calls, as text, or not at all.
    pub(super) const fn input_form(&self) -> ApprovalForm {
        match self.form {
            ApprovalForm::Unavailable => ApprovalForm::Unavailable,
            _ if self.takes_input_calls => ApprovalForm::ClientTool,
            _ => ApprovalForm::Text,
        }
    }

    /// Whether the user can be asked this question of a tool.
    pub(super) fn can_ask(&self, question: &ToolQuestion) -> bool {
        let shown = serde_json::to_vec(&question.questions).unwrap_or_default();
        self.form != ApprovalForm::Unavailable && shown.len() <= MAX_SHOWN_BYTES
    }

    /// The form of the question.
    pub(super) const fn form(&self) -> ApprovalForm {
        self.form
    }

    /// Where a tool comes from, for people.
    pub(super) fn source(&self, tool: &str) -> &str {
        self.sources
            .of(tool)
            .first()
            .map_or("agent", String::as_str)
    }

    /// Name of the tool set of a tool of an MCP server.
    pub(super) fn mcp_server(&self, tool: &str) -> Option<&str> {
        self.sources.mcp_server(tool)
    }

    /// MCP servers without tools, each with the reason.
    pub(super) fn failed_servers(&self) -> &[(String, String)] {
        self.sources.failed_servers()
    }

    /// Whether a tool is another agent, which charges its usage to the budgets itself.
    pub(super) fn is_agent(&self, tool: &str) -> bool {
        self.sources.is_agent(tool)
    }

    /// Whether a call must be approved. One whose arguments are not an object is never made, so it needs no approval.
    pub(super) fn requires(&self, tool: &str, arguments: &str) -> bool {
        if self.rules.is_empty() {
            return false;
        }
        self.covers(&self.rules, tool, arguments).unwrap_or(false)
    }

    /// Sorts the calls of a round. `is_client` is true for tools of the client.
    pub(super) fn group(
        &self,
        calls: Vec<ToolCall>,
        is_client: impl Fn(&str) -> bool,
    ) -> CallGroups {
        let mut groups = CallGroups::default();
        let (client, own): (Vec<_>, Vec<_>) = calls
            .into_iter()
            .partition(|call| is_client(&call.function.name));
        let is_mixed = !client.is_empty() && self.form == ApprovalForm::Text;
        groups.client = client;
        for call in own {
            let function = &call.function;
            if !self.requires(&function.name, &function.arguments) {
                groups.own.push(call);
                continue;
            }
            let chat = self.chat_of(&function.name, &function.arguments);
            if self.form == ApprovalForm::Unavailable {
                groups.refused.push((call, NO_QUESTION));
            } else if is_mixed && chat.is_none() {
                groups.refused.push((call, MIXED_ROUND));
            } else if function.arguments.len() > MAX_SHOWN_BYTES {
                groups.refused.push((call, TOO_LARGE));
            } else if groups.questions.len() + groups.in_chats.len() >= MAX_QUESTIONS {
                groups.refused.push((call, TOO_MANY));
            } else if let Some(chat) = chat {
                groups.in_chats.push((call, chat.to_owned()));
            } else {
                groups.questions.push(call);
            }
        }
        groups
    }
}

#[cfg(test)]
mod tests {
    use dray_agent::message::FunctionCall;
    use serde_json::{Map, json};

    use super::*;

    fn call(name: &str, arguments: &str) -> ToolCall {
        ToolCall {
            id: name.to_owned(),
            kind: "function".to_owned(),
            function: FunctionCall {
                name: name.to_owned(),
                arguments: arguments.to_owned(),
                rest: Map::new(),
            },
            rest: Map::new(),
        }
    }

    fn policy(form: ApprovalForm) -> ApprovalPolicy {
        let rules = |value| serde_json::from_value::<Vec<ApprovalRule>>(value).unwrap();
        let operator = rules(json!([{"tools": ["own_b"]}]));
        let manifest = rules(json!([{"tools": ["own_*"], "arguments": {"q": "danger*"}}]));
        ApprovalPolicy::new(&operator, Some(&manifest), ToolSources::default(), form)
    }

    #[test]
    fn a_rule_of_the_operator_or_of_the_manifest_is_enough() {
        let policy = policy(ApprovalForm::Text);
        assert!(policy.requires("own_b", ""));
        assert!(policy.requires("own_b", "{}"));
        assert!(policy.requires("own_a", r#"{"q": "danger zone"}"#));
        assert!(!policy.requires("own_a", r#"{"q": "tame"}"#));
        assert!(
            !policy.requires("own_b", "{not json"),
            "such a call is never made"
        );
    }

    #[test]
    fn the_first_chat_that_covers_a_call_decides_about_it() {
        let chats: Vec<ApprovalChat> = serde_json::from_value(json!([
            {"chat": "danger", "calls": [{"tools": ["*"], "arguments": {"q": "danger*"}}]},
            {"chat": "ops"},
        ]))
        .unwrap();
        let policy = policy(ApprovalForm::Text).with_chats(&chats);
        let calls = vec![
            call("theirs", "{}"),
            call("own_a", r#"{"q": "danger zone"}"#),
            call("own_b", r#"{"q": "tame"}"#),
            call("own_a", r#"{"q": "tame"}"#),
        ];
        let groups = policy.group(calls, |name| name == "theirs");
        let chats: Vec<_> = groups
            .in_chats
            .iter()
            .map(|(call, chat)| (call.id.as_str(), chat.as_str()))
            .collect();
        // Chats decide beside calls of the client as well, since the client is not asked.
        assert_eq!(chats, [("own_a", "danger"), ("own_b", "ops")]);
        assert_eq!(policy.question_chat(&call("own_b", "{}")), None);
        assert_eq!((groups.own.len(), groups.client.len()), (1, 1));
        assert!(groups.refused.is_empty() && groups.questions.is_empty());
    }

    #[test]
    fn a_chat_for_questions_of_tools_alone_decides_about_no_call() {
        let chats: Vec<ApprovalChat> = serde_json::from_value(json!([
            {"chat": "danger", "calls": [{"tools": ["own_a"]}], "approvals": false, "tool_questions": true},
            {"chat": "ops"},
        ]))
        .unwrap();
        let policy = policy(ApprovalForm::Text).with_chats(&chats);
        let asking = call("own_a", r#"{"q": "danger zone"}"#);
        assert_eq!(policy.question_chat(&asking), Some("danger"));
        assert_eq!(policy.question_chat(&call("own_b", "{}")), None);
        let groups = policy.group(vec![asking], |_| false);
        assert_eq!(groups.in_chats[0].1, "ops");
    }

    #[test]
    fn only_clients_that_know_questions_get_them_beside_their_own_calls() {
        let calls = || {
            vec![
                call("theirs", "{}"),
                call("own_a", "{}"),
                call("own_b", "{}"),
            ]
        };
        let names = |calls: &[ToolCall]| -> Vec<String> {
            calls.iter().map(|call| call.id.clone()).collect()
        };
        let groups = policy(ApprovalForm::ClientTool).group(calls(), |name| name == "theirs");
        assert_eq!(names(&groups.client), ["theirs"]);
        assert_eq!(names(&groups.own), ["own_a"]);
        assert_eq!(names(&groups.questions), ["own_b"]);
        let groups = policy(ApprovalForm::Text).group(calls(), |name| name == "theirs");
        assert!(groups.questions.is_empty());
        assert_eq!(groups.refused[0].1, MIXED_ROUND);
        let large = format!(r#"{{"q": "{}"}}"#, "x".repeat(MAX_SHOWN_BYTES));
        let groups = policy(ApprovalForm::Text).group(vec![call("own_b", &large)], |_| false);
        assert_eq!(groups.refused[0].1, TOO_LARGE);
    }
}
