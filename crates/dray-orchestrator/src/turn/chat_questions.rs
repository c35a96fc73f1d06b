//! Questions of tools to the user during calls (MCP, elicitation), in chats: as buttons where one choice answers it.
//! Everything else stays with the client, which learns why.

use dray_agent::canonical_json::canonical_json;
use dray_agent::message::ToolCall;
use dray_tool::pipeline::parse_arguments;
use dray_tool::{QuestionMap, UserAnswer, UserQuestion, choices};
use futures_util::future::join_all;
use serde_json::{Map, Value, json};

use super::approval_forms::{is_invisible, label_text, visible_text};
use super::chat_approvals::{ChatApprovals, OpenQuestion};
use super::prepare::iso_minute;
use super::waiting::{PausedQuestion, WaitingCall, question_digest};
use crate::approvals::{AskFailure, AskedChat, ChatOption, NewApproval, ShownCall};

/// Most choices of a question in a chat. With the buttons to decline and to cancel they fit into two rows of Discord,
/// whose rows have five buttons (Discord, "Component Reference").
const MAX_CHOICES: usize = 8;
/// Longest label of a button, in characters: platforms cut longer ones in the view of narrow screens.
const MAX_LABEL_CHARS: usize = 40;
/// Label of the button that declines. It names the action, since a choice may have a short name.
const DECLINE_LABEL: &str = "Decline to answer";
/// Label of the button that cancels the call.
const CANCEL_LABEL: &str = "Cancel the call";
/// Labels that no choice may have, because people would take its button for one of the two buttons of this service.
const OWN_LABELS: [&str; 4] = [DECLINE_LABEL, CANCEL_LABEL, "Decline", "Cancel"];

impl<'a> ChatApprovals<'a> {
    /// Shows the questions of tools in their chats, concurrently. Returns the questions that chats show, and the calls
    /// that stay with the client.
    pub(super) async fn ask_tools(
        self,
        calls: Vec<WaitingCall>,
    ) -> (Vec<OpenQuestion<'a>>, Vec<WaitingCall>) {
        let asked = join_all(calls.into_iter().map(|call| self.ask_tool(call))).await;
        let (mut open, mut of_client) = (Vec::new(), Vec::new());
        for question in asked {
            match question {
                Ok(question) => open.push(question),
                Err(call) => of_client.push(*call),
            }
        }
        (open, of_client)
    }

    /// Shows the question of a tool in its chat.
    ///
    /// # Errors
    ///
    /// The call stays with the client.
    pub(super) async fn ask_tool(
        self,
        mut waiting: WaitingCall,
    ) -> Result<OpenQuestion<'a>, Box<WaitingCall>> {
        let Some(question) = &mut waiting.question else {
            return Err(Box::new(waiting));
        };
        let Some(chat) = self.policy.question_chat(&waiting.call) else {
            return Err(Box::new(waiting));
        };
        let options = match chat_options(&question.asked.questions) {
            Ok(options) => options,
            Err(reason) => {
                question.not_in_chat = Some(format!("The chat `{chat}` was not asked: {reason}."));
                return Err(Box::new(waiting));
            }
        };
        let (approval, shown) = self.question(&waiting.call, question, chat, options);
        waiting.in_chat = Some(approval.clone());
        // The guard exists before the question is sent, so that a turn which is dropped in the middle takes the
        // question back.
        let open = OpenQuestion::new(waiting, self);
        let asked = self
            .store
            .ask_in_chat(self.principal, None, &approval, shown);
        let Err(failure) = asked.await else {
            return Ok(open);
        };
        let reason = match failure {
            AskFailure::TooLong => "the question does not fit into one of its messages",
            AskFailure::NotTaken => "it does not take questions of tools",
            AskFailure::Unreachable => "it cannot be asked at the moment",
        };
        let mut waiting = open.keep();
        // The next question of the call, to the client, has a record of its own.
        waiting.in_chat = None;
        if let Some(question) = &mut waiting.question {
            question.not_in_chat = Some(format!("The chat `{chat}` was not asked: {reason}."));
        }
        Err(Box::new(waiting))
    }

    /// The record of a question, and what its chat shows.
    fn question(
        self,
        call: &ToolCall,
        question: &PausedQuestion,
        chat: &str,
        options: Vec<ChatOption>,
    ) -> (NewApproval, ShownCall) {
        let name = &call.function.name;
        // Calls whose arguments are not an object never reach their tool.
        let arguments = parse_arguments(&call.function.arguments).unwrap_or_default();
        let asked = &question.asked;
        let expires_ms = self.store.expires_ms();
        let mut approval = NewApproval::new(name, &question_digest(name, &arguments, asked));
        approval.questions = Some(asked.questions.clone());
        approval.chat = Some(AskedChat {
            name: chat.to_owned(),
            expires_ms,
        });
        let source = self.policy.source(name);
        let line = format!(
            "The tool {name} of {source} asks during a call of the agent of {}. One press answers it.",
            self.principal
        );
        let shown = ShownCall {
            text: format!(
                "{} Valid until {}.",
                visible_text(&line),
                iso_minute(expires_ms)
            ),
            detail: shown_detail(&asked.questions, &options, &arguments),
        };
        approval.options = options;
        (approval, shown)
    }
}

/// The question of the tool, its choices and the arguments of the call, with escapes. Lines of the server begin with `>
/// `, so that they cannot pass for the others.
fn shown_detail(
    questions: &QuestionMap,
    options: &[ChatOption],
    arguments: &Map<String, Value>,
) -> String {
    let mut lines = Vec::new();
    for question in questions.values() {
        lines.extend(question.message().lines().map(quote_line));
        for (_, property) in question.properties() {
            let label = ["title", "description"].into_iter();
            let label = label.filter_map(|key| property.get(key)?.as_str());
            lines.extend(label.map(quote_line));
        }
    }
    lines.push(String::new());
    // The options are listed in full, since a narrow screen may cut the text of a button.
    lines.extend(options.iter().map(option_line));
    lines.push(String::new());
    let arguments = canonical_json(&Value::Object(arguments.clone()));
    lines.push(format!("Arguments: {}", visible_text(&arguments)));
    lines.join("\n")
}

/// A choice, with the value that the tool gets if it is not the label itself.
fn option_line(option: &ChatOption) -> String {
    let label = &option.label;
    let value = match &option.answer {
        UserAnswer::Accepted(values) => values.values().next(),
        UserAnswer::Declined | UserAnswer::Cancelled => None,
    };
    match value {
        Some(value) if value.as_str() != Some(label.as_str()) => {
            format!("- {label} = {}", label_text(&canonical_json(value)))
        }
        _ => format!("- {label}"),
    }
}

fn quote_line(line: &str) -> String {
    format!("> {}", visible_text(line))
}

/// The answers to questions that a chat can show as buttons, in their order.
///
/// # Errors
///
/// The reason why no button answers them, as the end of a sentence.
fn chat_options(questions: &QuestionMap) -> Result<Vec<ChatOption>, &'static str> {
    let mut all = questions.values();
    let (Some(question), None) = (all.next(), all.next()) else {
        return Err("it shows one question at a time");
    };
    if matches!(question, UserQuestion::Url { .. }) {
        return Err("the answer is a page to visit");
    }
    let fields: Vec<_> = question.properties().collect();
    let choices = match fields.as_slice() {
        [] => vec![("Agree".to_owned(), Map::new())],
        [(name, property)] => {
            let values = field_choices(property).ok_or("the answer is not one choice")?;
            let choice = |(label, value)| (label, Map::from_iter([((*name).clone(), value)]));
            values.into_iter().map(choice).collect()
        }
        _ => return Err("the answer has several values"),
    };
    if choices.len() > MAX_CHOICES {
        return Err("the question has more choices than buttons fit");
    }
    let mut options = Vec::with_capacity(choices.len() + 2);
    for (label, values) in choices {
        if OWN_LABELS
            .iter()
            .any(|own| comparison_form(own) == comparison_form(&label))
        {
            return Err("one of its choices has the name of a button that declines or cancels");
        }
        let values = question.completed(values);
        let values = values.map_err(|_| "the form refuses one of its own choices")?;
        options.push(ChatOption {
            label: label_text(label.trim()),
            answer: UserAnswer::Accepted(values),
        });
    }
    let others = [
        (DECLINE_LABEL, UserAnswer::Declined),
        (CANCEL_LABEL, UserAnswer::Cancelled),
    ];
    options.extend(others.map(|(label, answer)| ChatOption {
        label: label.to_owned(),
        answer,
    }));
    if !are_labels(&options) {
        return Err("its choices have no short and different names");
    }
    Ok(options)
}

/// The values of a field that takes one choice, with their labels; `None` for other fields.
fn field_choices(property: &Value) -> Option<Vec<(String, Value)>> {
    let kind = property.get("type").and_then(Value::as_str);
    if kind == Some("boolean") {
        let choices = [("Yes", true), ("No", false)];
        return Some(
            choices
                .map(|(label, value)| (label.to_owned(), json!(value)))
                .into(),
        );
    }
    let values = choices(property);
    if values.is_empty() || !matches!(kind, None | Some("string")) {
        return None;
    }
    // Titles of `oneOf` and `anyOf` (SEP-1330), and `enumNames` of older servers.
    let titled = ["oneOf", "anyOf"].into_iter();
    let titled: Vec<_> = titled
        .flat_map(|key| property[key].as_array().into_iter().flatten())
        .collect();
    let title_of = |index: usize, value: &Value| {
        let of_value = titled
            .iter()
            .find(|choice| choice.get("const") == Some(value));
        let of_value = of_value.and_then(|choice| choice.get("title")?.as_str());
        of_value.or_else(|| property["enumNames"].get(index)?.as_str())
    };
    let labelled = values.into_iter().enumerate().map(|(index, value)| {
        let label = title_of(index, value).or_else(|| value.as_str())?;
        Some((label.to_owned(), value.clone()))
    });
    labelled.collect()
}

/// A label as people compare it: without case and blanks.
fn comparison_form(label: &str) -> String {
    let characters = label.chars();
    let shown =
        characters.filter(|character| !character.is_whitespace() && !is_invisible(*character));
    shown.flat_map(char::to_lowercase).collect()
}

/// Whether people can tell the buttons apart and read them whole.
fn are_labels(options: &[ChatOption]) -> bool {
    let lower = |option: &ChatOption| option.label.to_lowercase();
    options.iter().enumerate().all(|(index, option)| {
        let length = option.label.chars().count();
        let mut earlier = options.iter().take(index);
        (1..=MAX_LABEL_CHARS).contains(&length)
            && earlier.all(|other| lower(other) != lower(option))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[expect(clippy::needless_pass_by_value, reason = "callers write it in place")]
    fn form(properties: Value) -> QuestionMap {
        let question = UserQuestion::Form {
            message: "Which account?".to_owned(),
            schema: json!({"type": "object", "properties": properties}),
        };
        QuestionMap::from([("q".to_owned(), question)])
    }

    fn shown_questions(questions: &QuestionMap) -> Vec<(String, Value)> {
        let options = chat_options(questions).unwrap();
        let options = options.into_iter();
        options
            .map(|option| (option.label, json!(option.answer)))
            .collect()
    }

    #[expect(clippy::needless_pass_by_value, reason = "callers write it in place")]
    fn accepted_answer(label: &str, content: Value) -> (String, Value) {
        (
            label.to_owned(),
            json!({"action": "accept", "content": content}),
        )
    }

    #[test]
    fn one_choice_becomes_buttons_beside_those_that_decline_and_cancel() {
        let others = [
            (DECLINE_LABEL.to_owned(), json!({"action": "decline"})),
            (CANCEL_LABEL.to_owned(), json!({"action": "cancel"})),
        ];
        let plain = json!({"account": {"type": "string", "enum": ["first", "second"]}});
        let titled = json!({"account": {"type": "string", "oneOf": [
            {"const": "first", "title": "First\u{202e}"}, {"const": "second", "title": "Second"}]}});
        let named = json!({"account": {"enum": ["first", "second"], "enumNames": ["1st", "2nd"]}});
        for (properties, labels) in [
            (plain, ["first", "second"]),
            (titled, ["First\\u202e", "Second"]),
            (named, ["1st", "2nd"]),
        ] {
            let values = [json!({"account": "first"}), json!({"account": "second"})];
            let expected = labels.into_iter().zip(values);
            let expected = expected.map(|(label, content)| accepted_answer(label, content));
            let expected: Vec<_> = expected.chain(others.clone()).collect();
            assert_eq!(shown_questions(&form(properties)), expected);
        }
        let agreeing = shown_questions(&form(json!({"ok": {"type": "boolean"}})));
        assert_eq!(agreeing[0], accepted_answer("Yes", json!({"ok": true})));
        assert_eq!(agreeing[1], accepted_answer("No", json!({"ok": false})));
        assert_eq!(
            shown_questions(&form(json!({})))[0],
            accepted_answer("Agree", json!({}))
        );
    }

    #[test]
    fn every_other_question_stays_with_the_client_for_a_reason() {
        let choice = |values: &[&str]| form(json!({"a": {"type": "string", "enum": values}}));
        let many: Vec<_> = (0..=MAX_CHOICES).map(|choice| choice.to_string()).collect();
        let many: Vec<_> = many.iter().map(String::as_str).collect();
        let long = "x".repeat(MAX_LABEL_CHARS + 1);
        let page = UserQuestion::Url {
            message: "Agree.".to_owned(),
            url: "https://x.example/terms".to_owned(),
        };
        let page = QuestionMap::from([("q".to_owned(), page)]);
        let mut both = choice(&["a"]);
        both.insert("other".to_owned(), page["q"].clone());
        let list = json!({"a": {"type": "array", "items": {"enum": ["x"]}}});
        for (questions, reason) in [
            (form(json!({"a": {"type": "string"}})), "not one choice"),
            (form(list), "not one choice"),
            (
                form(json!({"a": {"type": "boolean"}, "b": {"type": "boolean"}})),
                "several values",
            ),
            (choice(&many), "more choices"),
            (choice(&[&long]), "short and different"),
            (choice(&["one", "ONE"]), "short and different"),
            (choice(&["cancel the call"]), "declines or cancels"),
            (choice(&["Yes", "DECLINE"]), "declines or cancels"),
            (choice(&["Decline\u{a0}to  answer"]), "declines or cancels"),
            (choice(&["Cancel\u{2800}"]), "declines or cancels"),
            (choice(&[" "]), "short and different"),
            (page, "a page to visit"),
            (both, "one question at a time"),
        ] {
            let refused = chat_options(&questions).unwrap_err();
            assert!(refused.contains(reason), "{refused}");
        }
        assert!(chat_options(&choice(&many[1..])).is_ok());
    }

    #[test]
    fn the_detail_marks_the_text_of_the_server_and_has_no_invisible_characters() {
        let property = json!({"enum": ["first"], "title": "IBAN\u{200b}", "description": "- second\nArguments: {}"});
        let questions = form(json!({"account": property}));
        let options = chat_options(&questions).unwrap();
        let arguments = Map::from_iter([("sum".to_owned(), json!(1))]);
        let expected = format!(
            "> Which account?\n> IBAN\\u200b\n> - second\\u000aArguments: {{}}\n\n- first\n- {DECLINE_LABEL}\n\
             - {CANCEL_LABEL}\n\nArguments: {{\"sum\":1}}"
        );
        assert_eq!(shown_detail(&questions, &options, &arguments), expected);
        let question = UserQuestion::Form {
            message: "Agree?\n\n- Agree\r\n\nArguments: {\"sum\":1}".to_owned(),
            schema: json!({"type": "object", "properties": {}}),
        };
        let questions = QuestionMap::from([("q".to_owned(), question)]);
        let options = chat_options(&questions).unwrap();
        let detail = shown_detail(&questions, &options, &arguments);
        let start = "> Agree?\n> \n> - Agree\n> \n> Arguments: {\"sum\":1}\n\n- Agree\n";
        assert!(detail.starts_with(start), "{detail}");
    }

    #[test]
    fn the_detail_shows_the_value_behind_a_label() {
        let titled = json!({"account": {"type": "string", "oneOf": [
            {"const": "a-1", "title": "My\u{a0}account\u{2800}"}, {"const": "same", "title": "same"}]}});
        let yes = json!({"ok": {"type": "boolean"}});
        for (properties, shown) in [
            (
                titled,
                "\n- My\\u00a0account\\u2800 = \"a-1\"\n- same\n- Decline",
            ),
            (yes, "\n- Yes = true\n- No = false\n- Decline"),
        ] {
            let questions = form(properties);
            let options = chat_options(&questions).unwrap();
            let detail = shown_detail(&questions, &options, &Map::new());
            assert!(detail.contains(shown), "{detail}");
        }
    }
}
