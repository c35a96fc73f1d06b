//! Files without an id: their message lists them, and the ids of other files do not change.

use serde_json::{Value, json};

use super::{build, file, message, text};
use crate::ExclusionReason;

fn file_with_key(name: &str, key: &str) -> Value {
    json!({"file": {"type": "file", "name": name, "key": key, "url": format!("https://s3.example/{name}")}})
}

fn ids(built: &crate::BuiltContext) -> Vec<&str> {
    let files = built.current_files.iter();
    files.map(|file| file.id.as_str()).collect()
}

fn reasons(built: &crate::BuiltContext) -> Vec<(&str, ExclusionReason)> {
    let left_out = built.left_out.iter();
    left_out
        .map(|file| (file.name.as_str(), file.reason))
        .collect()
}

#[test]
fn an_unusable_name_does_not_change_the_ids_of_other_files() {
    for bad in ["files/B/../x", "files//B/x", "files/"] {
        let parts = [
            file_with_key("a.pdf", "files/B/a.pdf"),
            file_with_key("bad.pdf", bad),
            file("file", "ftp.txt", "ftp://h.example/ftp.txt"),
            file_with_key("b.pdf", "files/B/b.pdf"),
        ];
        let request = json!({
            "responseChatItemId": "a1", "question": "q",
            "userMessage": message("Human", "q1", &parts),
            "renewals": {"invalid": [bad], "signed": {
                "files/B/a.pdf": "https://h.example/a", "files/B/b.pdf": "https://h.example/b"}},
        });
        let built = build(request);
        assert_eq!(ids(&built), ["a1-0", "a1-2"], "{bad}");
        assert_eq!(
            reasons(&built),
            [
                ("bad.pdf", ExclusionReason::Name),
                ("ftp.txt", ExclusionReason::Url)
            ]
        );
        let message_text = built.current_user_message.text();
        assert!(
            message_text.contains("\n- bad.pdf: no file with this name can be opened\n"),
            "{message_text}"
        );
        assert!(
            message_text.contains("\n- ftp.txt: its address cannot be used\n"),
            "{message_text}"
        );
    }
}

#[test]
fn a_file_that_was_left_out_keeps_its_number_so_ids_are_the_same_in_the_next_turn() {
    let parts = [
        file_with_key("bad.pdf", "files/B/../x"),
        file_with_key("gone.pdf", "files/B/gone.pdf"),
        file_with_key("b.pdf", "files/B/b.pdf"),
        text("q"),
    ];
    let renewals = json!({"invalid": ["files/B/../x"],
        "signed": {"files/B/gone.pdf": null, "files/B/b.pdf": "https://h.example/b"}});
    let question = message("Human", "q1", &parts);
    let now =
        build(json!({"responseChatItemId": "a1", "userMessage": question, "renewals": renewals}));
    assert_eq!(ids(&now), ["a1-2"]);
    let history = json!([question, message("AI", "a1", &[])]);
    let later = build(json!({"history": history, "renewals": renewals}));
    assert_eq!(later.catalog.find("a1-2").unwrap().file.name, "b.pdf");
    assert_eq!(reasons(&later), [("bad.pdf", ExclusionReason::Name)]);
    let message_text = later.rewritten_histories[0].text();
    assert!(
        message_text.contains("- bad.pdf: ")
            && message_text.contains("<status>unavailable</status>")
    );
}

#[test]
fn files_above_the_limit_are_counted_and_the_message_explains_how_to_reach_them() {
    let parts: Vec<_> = (0..300)
        .map(|number| file("file", "", &format!("https://h.example/{number}.pdf")))
        .collect();
    let request = json!({
        "responseChatItemId": "a1", "question": "q",
        "userMessage": message("Human", "q1", &parts), "reach": "call read_attachment with their address.",
    });
    let built = build(request);
    assert_eq!(built.current_files.len(), 20);
    assert_eq!(built.left_out.len(), 280);
    let message_text = built.current_user_message.text();
    assert!(
        message_text.contains("- 280 more files of this message (20.pdf, 21.pdf, 22.pdf, 23.pdf, 24.pdf, …): call read_attachment with their address."),
        "{message_text}"
    );
}

#[test]
fn a_message_whose_only_file_is_left_out_lists_it() {
    let parts = [file("file", "x", "not-a-url"), text("t")];
    let built = build(json!({"history": [message("Human", "h", &parts)]}));
    let message_text = built.rewritten_histories[0].text();
    assert!(
        message_text.contains("- x: its address cannot be used"),
        "{message_text}"
    );
    // With a `generation` the message is not changed.
    let built = build(json!({"generation": "g1", "history": [message("Human", "h", &parts)]}));
    assert_eq!(built.rewritten_histories, built.chat_histories);
    assert!(built.left_out.is_empty());
}

#[test]
fn the_name_of_an_inline_file_does_not_contain_its_bytes() {
    let url = format!("data:text/plain;base64,{}", "A".repeat(100_000));
    let parts = [file("file", "", &url)];
    let built =
        build(json!({"responseChatItemId": "a", "userMessage": message("Human", "q", &parts)}));
    assert!(built.current_user_message.text().len() < 1000);
    assert!(built.left_out[0].name.len() <= 200);
}
