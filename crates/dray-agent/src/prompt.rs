//! The system prompt (quickapps 12).

use serde_json::Value;

use crate::manifest::Context;
use crate::message::{Content, Message, Role};
use crate::skill::{self, Skill};

/// The configured prompt, the texts of the contexts and the list of skills, joined by a blank line; `None` if all are
/// empty.
pub fn assemble_prompt(configured: &str, contexts: &[Context], skills: &[Skill]) -> Option<String> {
    let texts = contexts.iter().filter_map(|context| match context {
        Context::UserDefined { content } => Some(content.clone()),
        Context::File { .. } | Context::Folder { .. } => None,
    });
    let parts: Vec<_> = std::iter::once(configured.to_owned())
        .chain(texts)
        .chain(skill::skills_listing(skills))
        .filter(|part| !part.trim().is_empty())
        .collect();
    (!parts.is_empty()).then(|| parts.join("\n\n"))
}

/// Makes `text` the system message at index 0. A system message in the request is removed, unless `keep_inbound`: then
/// it replaces `text`.
pub fn place_system_message(messages: &mut Vec<Message>, text: Option<String>, keep_inbound: bool) {
    let inbound = messages.iter().any(|message| message.role == Role::System);
    // The operator allows it with `allow_override_system_message` (quickapps 12).
    if keep_inbound && inbound {
        return;
    }
    messages.retain(|message| message.role != Role::System);
    if let Some(text) = text {
        messages.insert(0, Message::new(Role::System, text));
    }
}

/// Joins all system messages of a client, in their order, into one after `text` at index 0. With `keep_inbound` they
/// replace `text`, as in [`place_system_message`]. For clients of `OpenAI`'s API, which may send instructions anywhere.
pub fn merge_system_messages(
    messages: &mut Vec<Message>,
    text: Option<String>,
    keep_inbound: bool,
) {
    let (inbound, others): (Vec<_>, Vec<_>) = std::mem::take(messages)
        .into_iter()
        .partition(|message| message.role == Role::System);
    let inbound: Vec<_> = inbound
        .iter()
        .map(|message| content_text(message.content.as_ref()))
        .filter(|text| !text.trim().is_empty())
        .collect();
    let own = text.filter(|_| !keep_inbound || inbound.is_empty());
    let all: Vec<_> = own.into_iter().chain(inbound).collect();
    if !all.is_empty() {
        messages.push(Message::new(Role::System, all.join("\n\n")));
    }
    messages.extend(others);
}

/// The text of a message; for parts, the text parts, each on separate lines.
fn content_text(content: Option<&Content>) -> String {
    match content {
        None => String::new(),
        Some(Content::Text(text)) => text.clone(),
        Some(Content::Parts(parts)) => {
            let texts = parts
                .iter()
                .filter_map(|part| part.get("text").and_then(Value::as_str));
            texts.collect::<Vec<_>>().join("\n")
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn context(content: &str) -> Context {
        Context::UserDefined {
            content: content.to_owned(),
        }
    }

    #[test]
    fn parts_are_joined_by_one_blank_line() {
        let contexts = [context("one"), context(" "), context("two")];
        let skills = [Skill::new("s", "d")];
        let text = assemble_prompt("base", &contexts, &skills).unwrap();
        assert!(text.starts_with("base\n\none\n\ntwo\n\n<available_skills>\n"));
        assert_eq!(assemble_prompt("", &[], &[]), None);
    }

    #[test]
    fn an_inbound_system_message_is_removed_unless_it_may_stay() {
        let inbound = [
            Message::new(Role::System, "in"),
            Message::new(Role::User, "u"),
        ];
        let placed = |text: Option<&str>, keep| {
            let mut messages = inbound.to_vec();
            place_system_message(&mut messages, text.map(str::to_owned), keep);
            messages
        };
        assert_eq!(
            placed(Some("ours"), false)[0],
            Message::new(Role::System, "ours")
        );
        assert_eq!(placed(Some("ours"), false).len(), 2);
        assert_eq!(placed(Some("ours"), true), inbound);
        assert_eq!(placed(None, false), [Message::new(Role::User, "u")]);
    }

    #[test]
    fn instructions_of_a_client_follow_those_of_the_manifest() {
        let parts = serde_json::from_value(serde_json::json!({"role": "system", "content": [
            {"type": "text", "text": "second"}, {"type": "text", "text": "third"}]}));
        let inbound = [
            Message::new(Role::User, "u"),
            Message::new(Role::System, "first"),
            Message::new(Role::User, "v"),
            parts.unwrap(),
            Message::new(Role::System, " "),
        ];
        let merged = |text: Option<&str>, keep| {
            let mut messages = inbound.to_vec();
            merge_system_messages(&mut messages, text.map(str::to_owned), keep);
            messages
        };
        let users = [Message::new(Role::User, "u"), Message::new(Role::User, "v")];
        for (text, keep, expected) in [
            (Some("ours"), false, "ours\n\nfirst\n\nsecond\nthird"),
            (Some("ours"), true, "first\n\nsecond\nthird"),
            (None, false, "first\n\nsecond\nthird"),
        ] {
            let placed = merged(text, keep);
            assert_eq!(placed[0], Message::new(Role::System, expected));
            assert_eq!(placed[1..], users);
        }
        let mut without = users.to_vec();
        merge_system_messages(&mut without, Some("ours".to_owned()), true);
        assert_eq!(without[0], Message::new(Role::System, "ours"));
        without.remove(0);
        merge_system_messages(&mut without, None, false);
        assert_eq!(without, users);
    }
}
