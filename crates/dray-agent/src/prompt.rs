//! The system prompt (quickapps 12).

use crate::manifest::Context;
use crate::message::{Message, Role};
use crate::skill::{self, Skill};

/// The configured prompt, the texts of the contexts and the list of skills, joined by a blank line; `None` when there is
/// nothing to say.
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

/// Makes `text` the system message at index 0. One that came with the request goes, unless `keep_inbound`: then it
/// stands in place of ours.
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
    fn an_inbound_system_message_goes_unless_it_may_stay() {
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
}
