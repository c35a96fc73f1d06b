//! Tests of files that the model requests.

use serde_json::{Value, json};

use super::*;

fn types() -> Vec<String> {
    ["application/pdf", "image/*"].map(str::to_owned).to_vec()
}

fn message(role: &str, attachments: &Value) -> Message {
    let wire =
        json!({"role": role, "content": "x", "custom_content": {"attachments": attachments}});
    serde_json::from_value(wire).unwrap()
}

fn pdf(url: &str) -> Value {
    json!({"type": "application/pdf", "title": "a", "url": url})
}

/// A conversation whose last user message has files.
fn conversation_with(files: &Value) -> Vec<Message> {
    vec![
        Message::new(Role::System, "s"),
        message("user", &json!([pdf("files/B/old.pdf")])),
        Message::new(Role::Assistant, "a"),
        message("user", files),
    ]
}

fn inject_into_message(files: &Value) -> Vec<Message> {
    let mut messages = conversation_with(files);
    inject_files(&mut messages, &types());
    messages
}

#[test]
fn files_of_the_last_user_message_follow_it_as_pairs() {
    let files = json!([pdf("/files/B/a.pdf"), {"type": "image/png", "url": "files/B/b%20c.png", "data": "QQ=="}]);
    let messages = inject_into_message(&files);
    assert_eq!(messages[..4], conversation_with(&files)[..]);
    assert_eq!(messages.len(), 8);
    let call = &messages[4].calls()[0];
    assert_eq!(call.function.name, "internal_attachments_get_content");
    assert_eq!(
        call.function.arguments,
        r#"{"attachment_url":"file:url::files/B/a.pdf"}"#
    );
    assert_eq!(messages[5].tool_call_id.as_ref(), Some(&call.id));
    assert_eq!(
        serde_json::to_value(&messages[5]).unwrap(),
        json!({
            "role": "tool", "tool_call_id": call.id,
            "content": r#"{"ok":true,"url":"files/B/a.pdf","title":"a","type":"application/pdf"}"#,
            "custom_content": {"attachments": [pdf("files/B/a.pdf")]},
        })
    );
    assert_eq!(
        messages[7].content,
        Some(Content::Text(
            r#"{"ok":true,"url":"files/B/b%20c.png","title":"b%20c.png","type":"image/png"}"#
                .to_owned()
        ))
    );
    assert_eq!(message_attachments(&messages[7])[0].data, None);
}

#[test]
fn only_files_of_dial_with_accepted_types_are_given_and_each_once() {
    let files = json!([
        {"type": "text/csv", "url": "files/B/a.csv"},
        {"url": "files/B/untyped.pdf"},
        pdf("https://example.com/a.pdf"),
        pdf("//files/B/a.pdf"),
        {"type": "image/png", "data": "QQ=="},
        pdf("files/B/a.pdf"),
        pdf("/files/B/a.pdf"),
    ]);
    assert_eq!(inject_into_message(&files).len(), 6);
    let mut none = vec![Message::new(Role::System, "s")];
    inject_files(&mut none, &types());
    assert_eq!(none.len(), 1);
    let mut nothing_accepted = conversation_with(&json!([pdf("files/B/a.pdf")]));
    inject_files(&mut nothing_accepted, &[]);
    assert_eq!(nothing_accepted.len(), 4);
}

#[test]
fn r_16_pairs_are_the_same_each_time_and_have_ids_of_their_own() {
    let files = json!([pdf("files/B/a.pdf")]);
    assert_eq!(inject_into_message(&files), inject_into_message(&files));
    let mut messages = inject_into_message(&files);
    let repeated = message("user", &files);
    messages.push(repeated);
    inject_files(&mut messages, &types());
    let ids: Vec<_> = messages
        .iter()
        .flat_map(Message::calls)
        .map(|call| &call.id)
        .collect();
    assert_eq!(ids.len(), 2);
    assert_eq!(*ids[1], format!("{}_2", ids[0]));
}

#[test]
fn files_stay_inline_only_with_the_answer_that_gave_them() {
    let messages = inject_into_message(&json!([pdf("files/B/a.pdf")]));
    let (result, file) = (&messages[5], message_attachments(&messages[5]).remove(0));
    assert!(keeps_attachment(result, &file, &types()));
    assert!(!keeps_attachment(result, &file, &["text/*".to_owned()]));
    assert!(!keeps_attachment(&messages[3], &file, &types()));
    let mut other = result.clone();
    for content in [
        "plain",
        r#"{"ok":false,"url":"files/B/a.pdf"}"#,
        r#"{"ok":true,"url":"files/B/b.pdf"}"#,
    ] {
        other.content = Some(Content::Text(content.to_owned()));
        assert!(!keeps_attachment(&other, &file, &types()), "{content}");
    }
    let away = Attachment {
        url: Some("https://example.com/a.pdf".to_owned()),
        ..file.clone()
    };
    let mut external = result.clone();
    external.content = Some(Content::Text(given_file_text(&away)));
    assert!(!keeps_attachment(&external, &away, &types()));
    let inline = Attachment { url: None, ..file };
    assert!(!keeps_attachment(result, &inline, &types()));
}

#[test]
fn refused_files_become_failures_and_are_then_dropped() {
    let mut messages = inject_into_message(&json!([pdf("files/B/a.pdf")]));
    let before = messages.clone();
    assert!(remove_refused_files(&mut messages, &types()));
    assert_eq!(messages[..5], before[..5]);
    assert_eq!(
        messages[5].content,
        Some(Content::Text(
            r#"{"ok":false,"error":"Orchestrator deployment does not accept this file type.","accepted_types":["application/pdf","image/*"]}"#
                .to_owned()
        ))
    );
    assert_eq!(message_attachments(&messages[5]), []);
    assert!(!remove_refused_files(&mut messages, &types()));
    assert!(!remove_refused_files(
        &mut conversation_with(&json!([pdf("files/B/a.pdf")])),
        &types()
    ));
}

#[test]
fn texts_of_failures_are_those_that_models_know() {
    assert_eq!(MISSING_URL_MESSAGE, "Missing or empty attachment_url.");
    assert_eq!(
        INVALID_PATH_MESSAGE,
        "Invalid storage path for attachment file."
    );
    assert_eq!(
        UNACCEPTED_TYPE_MESSAGE,
        "Orchestrator deployment does not accept this file type."
    );
}
