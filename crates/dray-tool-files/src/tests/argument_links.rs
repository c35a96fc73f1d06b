//! Tests of ids and keys of files in arguments of other tools.

use dray_proto::convert::ContentSource;
use dray_proto::v1;
use dray_tool::{ArgumentResolver as _, FileStorage as _, ToolFailure};
use dray_types::{Fault, FaultCode};
use serde_json::{Value, json};

use super::fixture::{FilesFixture, lock, message, named, object};
use super::reading::{contexts, inline};

#[tokio::test]
async fn ids_in_arguments_become_urls_and_other_arguments_send_no_request() {
    let mut fixture = FilesFixture::new().await;
    contexts(&mut fixture).await;
    let requests = fixture
        .serve(|_: &v1::SubstituteIdsRequest| {
            Ok(v1::SubstituteIdsReply {
                arguments: Some(inline(r#"{"doc":"https://signed.example/a"}"#)),
                ..v1::SubstituteIdsReply::default()
            })
        })
        .await;
    let files = fixture.turn();
    files
        .context
        .prepare(&[message(
            "q",
            vec![named("a.pdf", "https://e.example/a.pdf")],
        )])
        .await;
    let plain = object(json!({"doc": "a1-0 is nice"}));
    assert_eq!(
        files.resolver().replace_ids(plain.clone()).await.unwrap(),
        plain
    );
    assert_eq!(lock(&requests).len(), 0);
    let done = files
        .resolver()
        .replace_ids(object(json!({"doc": "a1-0"})))
        .await
        .unwrap();
    assert_eq!(done["doc"], "https://signed.example/a");
}

#[tokio::test]
async fn an_id_without_a_link_fails_the_call_and_a_former_link_stays() {
    let mut fixture = FilesFixture::new().await;
    contexts(&mut fixture).await;
    fixture
        .serve(|request: &v1::SubstituteIdsRequest| {
            Ok(v1::SubstituteIdsReply {
                arguments: request.arguments.clone(),
                unresolved: vec!["a1-0".to_owned(), "a1-1".to_owned()],
                ..v1::SubstituteIdsReply::default()
            })
        })
        .await;
    let files = fixture.turn();
    let attachments = vec![named("a.pdf", "files/b/a.pdf"), named("b", "files/b/b")];
    files.context.prepare(&[message("q", attachments)]).await;
    let arguments = json!({"note": "https://former.example/b", "docs": [{"doc": "a1-0"}]});
    let failure = files
        .resolver()
        .replace_ids(object(arguments))
        .await
        .unwrap_err();
    assert!(
        matches!(&failure, ToolFailure::Parameter { name, message } if name == "docs" && message.contains("a1-0")),
        "{failure}"
    );
}

#[tokio::test]
async fn the_key_of_a_result_becomes_a_link_without_any_file_of_the_conversation() {
    let fixture = FilesFixture::new().await;
    let files = fixture.turn();
    let claim = fixture.put("out.csv", b"a,b").await;
    let key = files.context.names.name_of(&claim);
    let forged = format!("{key}0");
    let arguments = object(json!({"doc": key, "more": [forged, {"doc": key}]}));
    let done = files.resolver().replace_ids(arguments).await.unwrap();
    let link = done["doc"].as_str().unwrap();
    assert!(link.starts_with("http"), "{link}");
    assert_eq!(done["more"], json!([forged, {"doc": link}]));
    let mut gone = claim.clone();
    gone.artifact.sha256 = dray_types::Sha256Digest::of(b"gone");
    let arguments = json!({"doc": files.context.names.name_of(&gone)});
    let failure = files
        .resolver()
        .replace_ids(object(arguments))
        .await
        .unwrap_err();
    assert!(
        matches!(&failure, ToolFailure::Parameter { name, .. } if name == "doc"),
        "{failure}"
    );
}

#[tokio::test]
async fn ids_become_addresses_for_tools_that_take_files_themselves() {
    let mut fixture = FilesFixture::new().await;
    fixture.drive();
    contexts(&mut fixture).await;
    let files = fixture.turn();
    let attachments = vec![
        named("a.pdf", "files/b/a.pdf"),
        named("b.pdf", "https://e.example/b.pdf"),
    ];
    files.context.prepare(&[message("q", attachments)]).await;
    let mut urls = json!(["a1-0", "a1-1", "a1-2", "files/b/c.pdf"]);
    files.resolver().replace_ids_by_addresses(&mut urls);
    assert_eq!(
        urls,
        json!([
            "files/b/a.pdf",
            "https://e.example/b.pdf",
            "a1-2",
            "files/b/c.pdf"
        ])
    );
    // Tools that read earlier arguments ask the storage.
    let addresses = ["a1-0", "a1-2"].map(|id| files.storage.address_of(id));
    assert_eq!(addresses, [Some("files/b/a.pdf".to_owned()), None]);
}

#[tokio::test]
async fn references_take_ids_of_files_that_have_an_address() {
    let mut fixture = FilesFixture::new().await;
    fixture.drive();
    contexts(&mut fixture).await;
    let requests = fixture
        .serve(|_: &v1::ResolveRequest| Err(Fault::new(FaultCode::Denied, "DIAL refuses the key.")))
        .await;
    let files = fixture.turn();
    let attachments = vec![
        named("a.pdf", "files/b/a.pdf"),
        named("b.pdf", "https://e.example/b.pdf"),
    ];
    files.context.prepare(&[message("q", attachments)]).await;
    let arguments = json!({
        "a": "file:text::a1-0", "b": ["file:base64::a1-1\n", "a1-1"], "c": "file:text::a1-9",
        "d": {"e": "file:text::a1-0"},
    });
    let resolving = files.resolver().resolve("tool", object(arguments)).await;
    resolving.unwrap_err();
    let sent = lock(&requests)[0].1.arguments.clone().unwrap();
    let Ok(ContentSource::Inline(sent)) = ContentSource::try_from(sent) else {
        panic!("the content must be inline")
    };
    let sent: Value = serde_json::from_slice(&sent).unwrap();
    let expected = json!({
        "a": "file:text::files/b/a.pdf", "b": ["file:base64::https://e.example/b.pdf", "a1-1"],
        "c": "file:text::a1-9", "d": {"e": "file:text::a1-0"},
    });
    assert_eq!(sent, expected);
}

#[tokio::test]
async fn a_reference_to_the_address_of_a_stored_file_is_its_link() {
    let fixture = FilesFixture::new().await;
    let files = fixture.turn();
    let claim = fixture.put("out.csv", b"a,b").await;
    let key = files.context.names.name_of(&claim);
    let arguments = json!({"doc": format!("file:url::{key}"), "text": "file:url::files/b/a.pdf"});
    let done = files.resolver().replace_ids(object(arguments)).await;
    let done = done.unwrap();
    let link = done["doc"].as_str().unwrap();
    assert!(link.starts_with("http"), "{link}");
    assert_eq!(done["text"], "file:url::files/b/a.pdf");
}
