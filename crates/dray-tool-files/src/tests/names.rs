//! Names of stored files: valid in their own conversation, unknown in all others.

use std::sync::Arc;

use dray_agent::message::Attachment;
use dray_proto::convert::ContentSource;
use dray_proto::v1;
use dray_tool::{FileStorage as _, ToolFailure};
use dray_types::{Clock, Fault, FaultCode, Secret, Sha256Digest, TenantId};
use serde_json::{Value, json};

use super::fixture::{FilesFixture, ReceivedCalls, call, lock, message, named};
use crate::{Config, FileServices, TurnFiles, TurnStart};

/// A turn of a conversation.
fn turn(services: &FileServices, session: &str) -> Arc<TurnFiles> {
    let opening = TurnStart {
        session: session.to_owned(),
        turn: "t".to_owned(),
        ..TurnStart::default()
    };
    Arc::new(TurnFiles::new(services.clone(), opening))
}

/// Stores a file and returns its name.
async fn keep(files: &TurnFiles) -> String {
    let stored = files
        .storage
        .keep("a.txt", "text/plain", "abc".into())
        .await;
    stored.unwrap().rest["key"].as_str().unwrap().to_owned()
}

async fn is_found(files: &TurnFiles, name: &str) -> bool {
    files
        .loader
        .names
        .named_claim(name, "a.txt")
        .await
        .unwrap()
        .is_some()
}

#[tokio::test]
async fn a_name_opens_its_file_in_later_turns_and_other_replicas_and_in_no_other_conversation() {
    let fixture = FilesFixture::new().await;
    let services = &fixture.services;
    let name = keep(&turn(services, "c-1")).await;
    assert!(is_found(&turn(services, "c-1"), &name).await);
    let replica = FileServices::new(
        services.bus.clone(),
        services.store.clone(),
        services.clock.clone(),
        services.tenant.clone(),
        Config::default(),
    );
    assert!(is_found(&turn(&replica, "c-1"), &name).await);
    assert!(!is_found(&turn(services, "c-2"), &name).await);
    let digest = Sha256Digest::of(b"abc").to_hex();
    for forged in [format!("artifact/{digest}"), format!("artifact/{digest}/3")] {
        assert!(!is_found(&turn(services, "c-1"), &forged).await, "{forged}");
    }
}

#[tokio::test]
async fn a_configured_key_is_the_same_for_replicas_with_other_store_credentials() {
    let fixture = FilesFixture::new().await;
    let with_key = |key: &str| {
        let services = &fixture.services;
        let config = Config {
            name_key: Secret::new(key),
            ..Config::default()
        };
        let (bus, store) = (services.bus.clone(), services.store.clone());
        FileServices::new(bus, store, Clock::system(), TenantId::default(), config)
    };
    let name = keep(&turn(&with_key("k"), "c-1")).await;
    assert!(is_found(&turn(&with_key("k"), "c-1"), &name).await);
    assert!(!is_found(&turn(&with_key("l"), "c-1"), &name).await);
    assert!(!is_found(&turn(&fixture.services, "c-1"), &name).await);
}

#[tokio::test]
async fn a_foreign_name_and_a_bare_digest_look_like_a_missing_file_to_the_model() {
    let fixture = FilesFixture::with(Config {
        always_read: true,
        sessions: false,
        ..Config::default()
    })
    .await;
    let foreign = keep(&turn(&fixture.services, "c-1")).await;
    let digest = foreign.rsplit_once('/').unwrap().0.to_owned();
    let files = turn(&fixture.services, "c-2");
    let mut messages = Vec::new();
    for path in [foreign, digest, "artifact/nothing".to_owned()] {
        let failure = call(&files, "read_attachment", json!({"file_path": path}))
            .await
            .unwrap_err();
        assert!(
            matches!(failure, ToolFailure::Parameter { .. }),
            "{failure}"
        );
        messages.push(failure.to_string());
    }
    assert_eq!(messages[0], messages[1]);
    assert_eq!(messages[0], messages[2]);
}

/// Records the conversations of requests and returns an empty context.
async fn conversations(fixture: &mut FilesFixture) -> ReceivedCalls<v1::BuildContextRequest> {
    fixture
        .serve(|_: &v1::BuildContextRequest| Err(Fault::new(FaultCode::Internal, "no")))
        .await
}

fn conversation(asked: &ReceivedCalls<v1::BuildContextRequest>) -> Value {
    let request = lock(asked)[0].1.request.clone().unwrap();
    let Ok(ContentSource::Inline(bytes)) = ContentSource::try_from(request) else {
        panic!("the content must be inline")
    };
    serde_json::from_slice(&bytes).unwrap()
}

fn attachment_with_key(title: &str, key: &str) -> Attachment {
    let mut attachment = named(title, "https://s3.example/expired");
    attachment.rest.insert("key".to_owned(), Value::from(key));
    attachment
}

#[tokio::test]
async fn an_attachment_is_its_stored_file_only_by_a_name_of_its_own_conversation() {
    let mut fixture = FilesFixture::new().await;
    let requests = conversations(&mut fixture).await;
    let own = keep(&turn(&fixture.services, "c-1")).await;
    let foreign = keep(&turn(&fixture.services, "c-2")).await;
    let digest = Sha256Digest::of(b"abc").to_hex();
    let attachments = vec![
        attachment_with_key("own", &own),
        attachment_with_key("foreign", &foreign),
        attachment_with_key("digest", &format!("artifact/{digest}/3")),
        attachment_with_key("dial", "files/other/a.pdf"),
    ];
    turn(&fixture.services, "c-1")
        .context
        .prepare(&[message("q", attachments)])
        .await;
    let parts = conversation(&requests)["userMessage"]["value"].clone();
    let keys: Vec<_> = (0..4).map(|at| parts[at]["file"]["key"].clone()).collect();
    let key = Value::from(format!("artifact/{digest}/3"));
    assert_eq!(keys, [key, Value::Null, Value::Null, Value::Null]);
}

#[tokio::test]
async fn the_reader_is_asked_for_ids_without_links_and_gets_every_name() {
    let mut fixture = FilesFixture::with(Config {
        message_files: 7,
        reminder_language: crate::config::ReminderLanguage::Zh,
        ..Config::default()
    })
    .await;
    fixture.drive();
    let requests = conversations(&mut fixture).await;
    let mut image = named("p.png", "files/b/p.png");
    image.kind = Some("image/png".to_owned());
    let attachments = vec![
        named("up.txt", "files/B/../x"),
        named("empty.txt", "files//B/x"),
        named("none", "files/"),
        named("ftp.txt", "ftp://h/ftp.txt"),
        named("bytes", "data:;base64,***"),
        image,
    ];
    turn(&fixture.services, "c-1")
        .context
        .prepare(&[message("a secret question", attachments)])
        .await;
    let conversation = conversation(&requests);
    assert_eq!(
        (&conversation["language"], &conversation["maxFiles"]),
        (&json!("zh"), &json!(7))
    );
    assert_eq!(
        (&conversation["hideUrls"], &conversation["keepMedia"]),
        (&json!(true), &json!(false))
    );
    assert!(!conversation.to_string().contains("secret question"));
    let parts = conversation["userMessage"]["value"].as_array().unwrap();
    let files: Vec<_> = parts.iter().map(|part| &part["file"]).collect();
    let names: Vec<_> = files
        .iter()
        .map(|file| file["name"].as_str().unwrap())
        .collect();
    assert_eq!(
        names,
        ["up.txt", "empty.txt", "none", "ftp.txt", "bytes", "p.png"]
    );
    assert_eq!(files[0]["key"], "files/B/../x");
    assert_eq!(
        (&files[4]["url"], &files[5]["type"]),
        (&json!(""), &json!("image"))
    );
}
