//! Decides which attachments reach a model inline (quickapps 14). Changes the copies that are made for a call of the
//! model.

use serde_json::{Map, Value, json};

use crate::message::{Attachment, Content, Message, Role};
use crate::text::escape_markup;

/// Whether an attachment of a message stays inline. The message is passed without its list of attachments.
pub type InlinePolicy<'a> = &'a dyn Fn(&Message, &Attachment) -> bool;

/// Images of users stay: the policy if no attachment strategy is configured.
pub fn legacy_user_image(message: &Message, attachment: &Attachment) -> bool {
    let kind = attachment.kind.as_deref().unwrap_or_default();
    message.role == Role::User && kind.starts_with("image/")
}

/// The messages for the model: attachments that no policy keeps are only listed in the text.
pub fn for_model(mut messages: Vec<Message>, policies: &[InlinePolicy<'_>]) -> Vec<Message> {
    for message in &mut messages {
        filter_message(message, policies);
    }
    messages
}

fn filter_message(message: &mut Message, policies: &[InlinePolicy<'_>]) {
    let custom = message.custom_content.as_mut();
    let list = custom.and_then(|custom| custom.attachments.as_mut());
    // `[]` stays `[]`: messages without attachments pass unchanged.
    let Some(list) = list.filter(|list| !list.is_empty()) else {
        return;
    };
    let attachments = std::mem::take(list);
    let stays = |attachment: &&Attachment| policies.iter().any(|keep| keep(&*message, attachment));
    let filtered: Vec<_> = attachments.iter().filter(stays).cloned().collect();
    // An empty list is sent as `[]` (quickapps 14).
    if let Some(custom) = &mut message.custom_content {
        custom.attachments = Some(filtered);
    }
    let content = message
        .content
        // `null` becomes text, even if no list follows (quickapps 14).
        .get_or_insert_with(|| Content::Text(String::new()));
    // A model that sees the list in its own messages would imitate it (quickapps 14).
    if message.role != Role::Assistant {
        append_text(content, &format!("\n{}", attachments_listing(&attachments)));
    }
}

/// Appends to text, or adds a part of text.
fn append_text(content: &mut Content, text: &str) {
    match content {
        Content::Text(before) => before.push_str(text),
        Content::Parts(parts) => parts.push(Map::from_iter([
            ("type".to_owned(), json!("text")),
            ("text".to_owned(), Value::String(text.to_owned())),
        ])),
    }
}

fn attachments_listing(attachments: &[Attachment]) -> String {
    let mut lines = vec!["<attachments>".to_owned()];
    for attachment in attachments {
        lines.push("  <attachment>".to_owned());
        for (name, value) in [
            ("title", &attachment.title),
            ("type", &attachment.kind),
            // Missing values give empty elements; only `reference_url` is left out (quickapps 14).
            ("url", &attachment.url),
        ] {
            let value = escape_markup(value.as_deref().unwrap_or_default());
            lines.push(format!("    <{name}>{value}</{name}>"));
        }
        if let Some(url) = &attachment.reference_url {
            lines.push(format!(
                "    <reference_url>{}</reference_url>",
                escape_markup(url)
            ));
        }
        lines.push("  </attachment>".to_owned());
    }
    lines.push("</attachments>".to_owned());
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn message(role: &str, content: &Value) -> Message {
        serde_json::from_value(
            json!({"role": role, "content": content, "custom_content": {"attachments": [
                {"title": "a&b", "type": "image/png", "url": "files/B/a"},
                {"type": "text/<x>", "reference_url": "r"},
            ]}}),
        )
        .unwrap()
    }

    const ATTACHMENTS_XML: &str = "\n<attachments>\n  <attachment>\n    <title>a&amp;b</title>\n    <type>image/png</type>\n    \
        <url>files/B/a</url>\n  </attachment>\n  <attachment>\n    <title></title>\n    \
        <type>text/&lt;x&gt;</type>\n    <url></url>\n    <reference_url>r</reference_url>\n  </attachment>\n\
        </attachments>";

    fn attachment_count(message: &Message) -> usize {
        let custom = message.custom_content.as_ref().unwrap();
        custom.attachments.as_ref().unwrap().len()
    }

    #[test]
    fn all_attachments_are_named_and_only_images_of_users_stay() {
        let filtered = for_model(vec![message("user", &Value::Null)], &[&legacy_user_image]);
        assert_eq!(
            filtered[0].content,
            Some(Content::Text(ATTACHMENTS_XML.to_owned()))
        );
        assert_eq!(attachment_count(&filtered[0]), 1);
        let filtered = for_model(vec![message("tool", &json!("r"))], &[&legacy_user_image]);
        assert_eq!(
            filtered[0].content,
            Some(Content::Text(format!("r{ATTACHMENTS_XML}")))
        );
        assert_eq!(attachment_count(&filtered[0]), 0);
    }

    #[test]
    fn messages_of_assistants_get_no_list_of_attachments() {
        let filtered = for_model(vec![message("assistant", &Value::Null)], &[]);
        assert_eq!(filtered[0].content, Some(Content::Text(String::new())));
        assert_eq!(attachment_count(&filtered[0]), 0);
    }

    #[test]
    fn parts_get_one_more_part() {
        let parts = json!([{"type": "text", "text": "x"}]);
        let filtered = for_model(vec![message("user", &parts)], &[]);
        assert_eq!(
            serde_json::to_value(&filtered[0].content).unwrap(),
            json!([{"type": "text", "text": "x"}, {"type": "text", "text": ATTACHMENTS_XML}])
        );
    }

    #[test]
    fn messages_without_attachments_and_the_canonical_list_stay_as_they_are() {
        let plain = Message::new(Role::User, "x");
        assert_eq!(for_model(vec![plain.clone()], &[]), [plain]);
        let canonical = vec![message("user", &json!("x"))];
        let first = for_model(canonical.clone(), &[]);
        assert_eq!(for_model(canonical, &[]), first);
    }

    proptest! {
        #[test]
        fn r_16_the_same_conversation_is_the_same_each_time_and_is_named_once(
            talk in prop::collection::vec((0..4_usize, any::<bool>(), ".*", 0..3_usize), 0..8),
        ) {
            let talk: Vec<Message> = talk
                .into_iter()
                .map(|(role, parts, text, files)| {
                    let role = ["user", "assistant", "tool", "system"][role];
                    let content = if parts { json!([{"type": "text", "text": text}]) } else { json!(text) };
                    let file = json!({"type": "image/png", "title": text, "url": "files/B/a"});
                    serde_json::from_value(json!({
                        "role": role, "content": content,
                        "custom_content": {"attachments": vec![file; files]},
                    }))
                    .unwrap()
                })
                .collect();
            let first = for_model(talk.clone(), &[&legacy_user_image]);
            prop_assert_eq!(&for_model(talk.clone(), &[&legacy_user_image]), &first);
            for (before, after) in talk.iter().zip(&first) {
                let count = |message: &Message| {
                    serde_json::to_string(&message.content).unwrap().matches("<attachments>").count()
                };
                let files = before.custom_content.as_ref().unwrap().attachments.as_ref().unwrap();
                let named = !files.is_empty() && before.role != Role::Assistant;
                prop_assert_eq!(count(after), count(before) + usize::from(named));
                let stay = if before.role == Role::User { files.len() } else { 0 };
                prop_assert_eq!(attachment_count(after), stay);
            }
        }
    }
}
