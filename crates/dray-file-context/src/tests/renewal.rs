//! Tests of the renewal of expired links.

use serde_json::{Value, json};

use super::{message, text};
use crate::renew::{RenewalRefusal, StoreScope};
use crate::{BuildError, BuiltContext, ContextBuilder, ContextRequest};

fn stored_file(name: &str, key: &str) -> Value {
    json!({"file": {"type": "file", "name": name, "key": key, "url": format!("https://s3.example/{key}?X-Amz-Signature=old")}})
}

fn try_build(request: Value) -> Result<BuiltContext, BuildError> {
    let request: ContextRequest = serde_json::from_value(request).unwrap();
    ContextBuilder::build(&request)
}

fn signed_url(key: &str) -> String {
    format!("https://s3.example/{key}?X-Amz-Signature=new")
}

#[test]
fn r_15_urls_are_signed_again_and_a_file_is_still_found_by_its_old_url() {
    let question = message(
        "Human",
        "h",
        &[stored_file("a.pdf", "chat/x/a.pdf"), text("t")],
    );
    let request = json!({"history": [question], "renewals": {"scope": ["chat/x"],
        "signed": {"chat/x/a.pdf": signed_url("chat/x/a.pdf")}}});
    let built = try_build(request).unwrap();
    assert_eq!(built.file_url_map["h-0"], signed_url("chat/x/a.pdf"));
    assert!(
        built.rewritten_histories[0]
            .text()
            .contains("Signature=new")
    );
    assert!(
        !built.rewritten_histories[0]
            .text()
            .contains("Signature=old")
    );
    let old = built
        .catalog
        .find_url("https://s3.example/chat/x/a.pdf?X-Amz-Signature=old");
    assert_eq!(old.unwrap().file.id, "h-0");
    // The stored message itself is unchanged.
    assert!(
        serde_json::to_string(&built.chat_histories)
            .unwrap()
            .contains("Signature=old")
    );
}

#[test]
fn r_15_each_key_of_the_conversation_is_to_be_signed_once_and_no_other_key() {
    let request: ContextRequest = serde_json::from_value(json!({"histories": [
            message("Human", "old", &[stored_file("o", "chat/x/out-of-window")]), message("AI", "", &[]),
            message("Human", "h", &[stored_file("a", "chat/x/a"), stored_file("b", "chat/y/b")]), message("AI", "", &[])],
        "history": 1, "userMessage": message("Human", "q", &[stored_file("a", "chat/x/a"), stored_file("c", "chat/x/c")])}))
    .unwrap();
    let scope = StoreScope::of(["chat/x".to_owned()]);
    assert_eq!(request.keys_to_sign(Some(&scope)), ["chat/x/a", "chat/x/c"]);
}

#[test]
fn r_15_a_failure_in_history_is_a_warning_and_the_file_is_marked() {
    let history = json!([message(
        "Human",
        "h",
        &[
            stored_file("a.pdf", "chat/other/a.pdf"),
            stored_file("b.pdf", "chat/x/b.pdf"),
            text("t")
        ]
    )]);
    let built = try_build(json!({"history": history, "renewals": {"scope": ["chat/x"], "signed": {"chat/x/b.pdf": null}}})).unwrap();
    let reasons: Vec<_> = built
        .warnings
        .iter()
        .map(|warning| (warning.id.as_str(), warning.reason))
        .collect();
    assert_eq!(
        reasons,
        [
            ("h-0", RenewalRefusal::Scope),
            ("h-1", RenewalRefusal::Unsigned)
        ]
    );
    assert!(
        built.files_map.is_empty()
            && built.file_url_map.is_empty()
            && built.all_files_map.is_empty()
    );
    let text_of_history = built.rewritten_histories[0].text();
    assert_eq!(
        text_of_history
            .matches("<status>unavailable</status>")
            .count(),
        2
    );
    assert!(!text_of_history.contains("<url>"));
    assert!(built.catalog.find("h-0").unwrap().unavailable);
}

#[test]
fn r_15_a_failure_in_the_current_message_is_an_error_in_the_peers_generations() {
    let current = |key: &str, renewals: Value| {
        let request = json!({"generation": "g5", "renewals": renewals,
            "userMessage": message("Human", "q", &[stored_file("a.pdf", key)])});
        try_build(request).unwrap_err().to_string()
    };
    assert_eq!(
        current("chat/other/a", json!({"scope": ["chat/x"]})),
        "Workflow file key does not belong to the current workflow"
    );
    assert_eq!(
        current("chat/x/a", json!({"scope": ["chat/x"]})),
        "The file is no longer available: its link could not be renewed"
    );
    let external = json!({"generation": "g5", "fileInput": ["https://evil.example/a.pdf"], "renewals": {"allowedHosts": ["good.example"]}});
    let error = try_build(external).unwrap_err();
    assert_eq!(error.to_string(), "Invalid workflow file URL");
    let zone = try_build(json!({"now": {"at": "2026-05-14T10:00:00Z", "timeZone": "Nowhere"}}));
    assert!(matches!(zone, Err(BuildError::Zone(_))));
}

#[test]
fn r_15_unavailable_media_are_not_sent_to_a_model() {
    let part = json!({"file": {"type": "image", "name": "p.png", "key": "chat/x/p.png", "url": "https://s3.example/p.png"}});
    let built =
        try_build(json!({"history": [message("Human", "h", &[part, text("t")])], "renewals": {}}))
            .unwrap();
    assert!(built.rewritten_histories[0].files().is_empty());
    assert_eq!(built.warnings.len(), 1);
}

#[test]
fn two_parts_with_one_key_are_one_file() {
    let parts = [
        stored_file("a.pdf", "chat/x/a.pdf"),
        json!({"file": {"type": "file", "name": "b.pdf", "key": "chat/x/a.pdf", "url": "https://s3.example/other"}}),
    ];
    for generation in ["g5", "stable"] {
        let built = try_build(
            json!({"generation": generation, "userMessage": message("Human", "q", &parts),
            "renewals": {"signed": {"chat/x/a.pdf": signed_url("chat/x/a.pdf")}}}),
        )
        .unwrap();
        assert_eq!(built.current_files.len(), 1);
        assert_eq!(built.current_files[0].name, "a.pdf");
    }
}

#[test]
fn r_1_the_id_of_a_file_does_not_change_when_another_file_cannot_be_renewed() {
    let history = json!([message(
        "Human",
        "h",
        &[
            stored_file("a.pdf", "chat/x/a.pdf"),
            stored_file("b.pdf", "chat/x/b.pdf")
        ]
    )]);
    let id_of_b = |signed_a: Value| {
        let built = try_build(json!({"history": history, "renewals": {"signed": {
            "chat/x/a.pdf": signed_a, "chat/x/b.pdf": signed_url("chat/x/b.pdf")}}}))
        .unwrap();
        built
            .catalog
            .find("h-1")
            .map(|entry| entry.file.name.clone())
    };
    assert_eq!(id_of_b(json!(null)), Some("b.pdf".to_owned()));
    assert_eq!(
        id_of_b(json!(signed_url("chat/x/a.pdf"))),
        Some("b.pdf".to_owned())
    );
}
