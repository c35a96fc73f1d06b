//! Tests of the client with the fake DIAL Core, faults included.

#![cfg(test)]

mod faults;
mod tool_timeouts;

use std::time::Duration;

use dray_agent::caller::Caller;
use dray_dial::files::UploadCondition;
use dray_dial::signin::SignIn;
use dray_dial::{
    DialClient, DialFolder, DialOptions, ErrorKind, FileUrl, InterpreterAction, InterpreterEndpoint,
};
use dray_http::{ByteStream, HttpTimeouts};
use dray_testkit::dial::{ApiFault, DialCore, InjectedFault};
use dray_types::Secret;
use futures_util::{StreamExt as _, stream};
use serde_json::json;

fn options(fake_server: &DialCore) -> DialOptions {
    let mut options = DialOptions::new(fake_server.url(), "2025-01-01");
    options.backoff = Duration::from_millis(1);
    options
}

/// A client for calls that must end with a timeout.
fn client_with_short_timeouts(fake_server: &DialCore) -> DialClient {
    let mut options = options(fake_server);
    options.limits = HttpTimeouts {
        // Long enough that what precedes a stall arrives in time on a busy machine.
        idle: Duration::from_secs(3),
        response: Duration::from_secs(3),
        ..HttpTimeouts::default()
    };
    DialClient::new(options).unwrap()
}

async fn start() -> (DialCore, DialClient, Caller) {
    let fake_server = DialCore::start().await.unwrap();
    fake_server.add_key("k", "b");
    let core = DialClient::new(options(&fake_server)).unwrap();
    (fake_server, core, caller("k"))
}

fn caller(key: &str) -> Caller {
    Caller {
        api_key: Some(Secret::new(key)),
        authorization: Some(Secret::new("Bearer user")),
        forwarded: vec![("x-tenant".to_owned(), "a".to_owned())],
        channel: Some("channel".to_owned()),
        ..Caller::default()
    }
}

/// A body of one chunk.
fn body(text: &'static str) -> ByteStream {
    stream::iter([Ok(text.into())]).boxed()
}

fn file(path: &str) -> FileUrl {
    FileUrl::parse(path).unwrap()
}

#[tokio::test]
async fn a_download_returns_the_uploaded_bytes_and_metadata() {
    let (fake_server, core, me) = start().await;
    let home = core.home(&me).await.unwrap();
    assert_eq!(home.url(), "files/b/");
    let stored = core
        .upload(
            &me,
            &home.file("ä b.txt"),
            "text/plain",
            3,
            body("one"),
            &UploadCondition::NoneMatch,
        )
        .await
        .unwrap();
    assert_eq!(
        core.origin().file(&stored.url),
        Some(file("files/b/ä b.txt"))
    );
    assert_eq!(
        core.metadata(&me, &file("files/b/ä b.txt")).await.unwrap(),
        stored
    );
    let download = core
        .download(&me, &file("files/b/ä b.txt"), 3)
        .await
        .unwrap();
    assert_eq!(download.media_type.as_deref(), Some("text/plain"));
    assert_eq!(
        (download.length, download.etag.clone()),
        (Some(3), stored.etag)
    );
    let etag = download.etag.clone();
    assert_eq!(download.bytes().await.unwrap(), "one");
    let stored_file = file("files/b/ä b.txt");
    let other_state = core.delete(&me, &stored_file, Some("other")).await;
    assert_eq!(other_state.unwrap_err().kind, ErrorKind::Conflict);
    core.delete(&me, &stored_file, etag.as_deref())
        .await
        .unwrap();
    assert_eq!(fake_server.file("b/ä b.txt"), None);
    let requests = fake_server.received_requests();
    assert!(
        requests
            .iter()
            .all(|requests| requests.header("api-key") == "k"
                && requests.header("authorization") == "Bearer user")
    );
}

#[tokio::test]
async fn conditions_of_an_upload_hold() {
    let (fake_server, core, me) = start().await;
    fake_server.put("b/a", "one", "text/plain");
    let etag = core
        .metadata(&me, &file("files/b/a"))
        .await
        .unwrap()
        .etag
        .unwrap();
    for (condition, expected) in [
        (UploadCondition::NoneMatch, Some(ErrorKind::Conflict)),
        (
            UploadCondition::Match("other".to_owned()),
            Some(ErrorKind::Conflict),
        ),
        (UploadCondition::Match(etag), None),
        (UploadCondition::Any, None),
    ] {
        let body = stream::iter([Ok("two".into())]).boxed();
        let done = core
            .upload(&me, &file("files/b/a"), "text/plain", 3, body, &condition)
            .await;
        assert_eq!(
            done.err().map(|error| error.kind),
            expected,
            "{condition:?}"
        );
    }
}

#[tokio::test]
async fn folders_are_listed_page_by_page() {
    let (fake_server, core, me) = start().await;
    for name in ["1", "2", "3"] {
        fake_server.put(format!("b/f/{name}"), name.to_owned(), "text/plain");
    }
    fake_server.page(2);
    let folder = DialFolder::parse("b/f").unwrap();
    let first = core.list(&me, &folder, None).await.unwrap();
    assert!(first.is_folder());
    let second = core
        .list(&me, &folder, first.next_token.as_deref())
        .await
        .unwrap();
    let names: Vec<_> = first
        .items
        .iter()
        .chain(&second.items)
        .map(|item| item.name.clone())
        .collect();
    assert_eq!(
        (names.join(""), second.next_token),
        ("123".to_owned(), None)
    );
}

#[tokio::test]
async fn r_3_limits_hold_on_what_is_read() {
    let (fake_server, core, me) = start().await;
    fake_server.put("b/a", "0123456789", "text/plain");
    let error = core.download(&me, &file("files/b/a"), 9).await.unwrap_err();
    assert_eq!(error.kind, ErrorKind::TooLarge);
    fake_server.inject_file_fault("b/a", InjectedFault::Endless);
    let endless = core.download(&me, &file("files/b/a"), 1000).await.unwrap();
    assert_eq!(endless.bytes().await.unwrap_err().kind, ErrorKind::TooLarge);
    fake_server.inject_file_fault("b/a", InjectedFault::Truncated);
    let broken = core.download(&me, &file("files/b/a"), 1000).await.unwrap();
    assert_eq!(broken.bytes().await.unwrap_err().kind, ErrorKind::Broken);
    fake_server.inject_file_fault("b/a", InjectedFault::Stalled);
    let short = client_with_short_timeouts(&fake_server);
    let stalled = short.download(&me, &file("files/b/a"), 1000).await.unwrap();
    assert_eq!(stalled.bytes().await.unwrap_err().kind, ErrorKind::Timeout);
    fake_server.inject_file_fault("b/a", InjectedFault::Encoded);
    assert_eq!(
        core.download(&me, &file("files/b/a"), 1000)
            .await
            .unwrap_err()
            .kind,
        ErrorKind::Malformed
    );
    fake_server.inject_file_fault("b/a", InjectedFault::GarbledMetadata);
    assert_eq!(
        core.metadata(&me, &file("files/b/a"))
            .await
            .unwrap_err()
            .kind,
        ErrorKind::Malformed
    );
}

#[tokio::test]
async fn a_granted_file_can_be_read_by_its_receiver() {
    let (fake_server, core, me) = start().await;
    fake_server.put("b/a b", "x", "text/plain");
    fake_server.add_key("tool", "t");
    fake_server.receiver("toolsets/b/t", "tool");
    let named = file("files/b/a b");
    assert_eq!(
        core.metadata(&caller("tool"), &named)
            .await
            .unwrap_err()
            .status,
        Some(403)
    );
    core.grant(&me, std::slice::from_ref(&named), "toolsets/b/t")
        .await
        .unwrap();
    core.grant(&me, &[], "toolsets/b/t").await.unwrap();
    assert_eq!(fake_server.grants().len(), 1);
    assert_eq!(fake_server.grants()[0].urls, ["files/b/a%20b"]);
    assert!(core.metadata(&caller("tool"), &named).await.is_ok());
    let foreign = core
        .grant(&me, &[file("files/other/a")], "toolsets/b/t")
        .await;
    assert_eq!(foreign.unwrap_err().status, Some(403));
}

#[tokio::test]
async fn r_14_metadata_are_typed_cached_per_caller_and_forgotten() {
    let (fake_server, core, me) = start().await;
    fake_server.add_key("other", "o");
    let told = json!({
        "display_name": {"de": "Modell", "en": "Model"}, "input_attachment_types": ["image/*"],
        "max_input_attachments": 2, "features": {"url_attachments": true, "mcp": null},
        "defaults": {"tools": []},
    });
    fake_server.document("/openai/applications/applications/b/my app", told);
    let deployment = core
        .deployment(&me, "applications/b/my%20app")
        .await
        .unwrap();
    assert_eq!(
        (
            deployment.display_name.as_str(),
            deployment.max_input_attachments
        ),
        ("Model", Some(2))
    );
    assert_eq!(deployment.input_attachment_types, ["image/*"]);
    assert!(deployment.features.url_attachments && !deployment.features.mcp);
    assert!(deployment.defaults.contains_key("tools"));
    let asked = fake_server.received_requests().len();
    core.deployment(&me, "applications/b/my app").await.unwrap();
    assert_eq!(fake_server.received_requests().len(), asked);
    core.deployment(&caller("other"), "applications/b/my app")
        .await
        .unwrap();
    assert_eq!(fake_server.received_requests().len(), asked + 2);
    core.forget(&me, "applications/b/my app");
    core.deployment(&me, "applications/b/my app").await.unwrap();
    assert_eq!(fake_server.received_requests().len(), asked + 4);
}

#[tokio::test]
async fn toolsets_models_prompts_and_configurations_are_reported() {
    let (fake_server, core, me) = start().await;
    fake_server.document(
        "/openai/toolsets/toolsets/b/t",
        json!({"transport": "HTTP", "allowed_tools": ["x"]}),
    );
    fake_server.document("/openai/models/gpt", json!({"pricing": {"unit": "token"}}));
    fake_server.document(
        "/v1/deployments/gpt/configuration",
        json!({"type": "object"}),
    );
    fake_server.document("/v1/prompts/b/p q", json!({"name": "p", "content": "text"}));
    let toolset = core.toolset(&me, "toolsets/b/t").await.unwrap();
    assert_eq!(toolset.display_name, "toolsets/b/t");
    assert_eq!(
        (toolset.transport.as_deref(), toolset.allowed_tools),
        (Some("HTTP"), vec!["x".to_owned()])
    );
    assert_eq!(
        core.model(&me, "gpt").await.unwrap()["pricing"]["unit"],
        "token"
    );
    assert_eq!(
        core.deployment_configuration(&me, "gpt").await.unwrap()["type"],
        "object"
    );
    assert_eq!(
        core.prompt(&me, "prompts/b/p%20q").await.unwrap().content,
        "text"
    );
    assert_eq!(
        core.prompt(&me, "files/b/p").await.unwrap_err().kind,
        ErrorKind::Request
    );
    assert_eq!(
        core.toolset(&me, "../admin").await.unwrap_err().kind,
        ErrorKind::Request
    );
    assert_eq!(
        core.origin().mcp_url("toolsets/b/t t"),
        Some(format!(
            "{}/v1/toolset/toolsets/b/t%20t/mcp",
            fake_server.url()
        ))
    );
    assert_eq!(core.origin().mcp_url("a/../b"), None);
}

#[tokio::test]
async fn every_sign_in_has_its_own_outcome() {
    let (fake_server, core, me) = start().await;
    fake_server.sign_in("a", json!({"result": "success"}));
    fake_server.sign_in("b", json!({"result": "denied"}));
    fake_server.sign_in("c", json!({"error": {"code": 1}}));
    let ids: Vec<_> = ["a", "b", "c", "d"].map(ToOwned::to_owned).to_vec();
    let wait = Duration::from_mins(1);
    let expected = [SignIn::Done, SignIn::Denied, SignIn::Failed, SignIn::Failed];
    assert_eq!(core.sign_in(&me, &ids, wait).await, expected);
    assert_eq!(
        fake_server
            .received_requests()
            .last()
            .unwrap()
            .header("x-dial-client-channel-id"),
        "channel"
    );
    assert_eq!(fake_server.bodies()[0].1[0]["params"]["toolsetId"], "a");
    let path = "/v1/ops/client-channel/interact";
    let short_wait = Duration::from_millis(200);
    for (trouble, wait, outcome) in [
        (ApiFault::Silent, short_wait, SignIn::TimedOut),
        (
            ApiFault::Stalled(": wait\n\n".to_owned()),
            short_wait,
            SignIn::TimedOut,
        ),
        (ApiFault::Cut("data: [".to_owned()), wait, SignIn::Failed),
        (
            ApiFault::Body("data: <html>\n\n".to_owned()),
            wait,
            SignIn::Failed,
        ),
        (ApiFault::Status(401), wait, SignIn::Failed),
    ] {
        fake_server.inject_fault(path, Some(trouble.clone()));
        assert_eq!(
            core.sign_in(&me, &ids[..1], wait).await,
            [outcome],
            "{trouble:?}"
        );
    }
    let silent = Caller {
        channel: None,
        ..me
    };
    assert_eq!(
        core.sign_in(&silent, &ids[..1], wait).await,
        [SignIn::NoChannel]
    );
}

#[tokio::test]
async fn the_interpreter_is_asked_once_and_with_its_own_key_elsewhere() {
    let (fake_server, core, me) = start().await;
    fake_server.interpreter("open_session", 200, json!({"sessionId": "s"}));
    assert_eq!(
        core.interpreter(&me, InterpreterAction::OpenSession, &json!({}))
            .await
            .unwrap()["sessionId"],
        "s"
    );
    fake_server.interpreter(
        "execute_code",
        429,
        json!({"error": {"message": "too many", "code": 7}}),
    );
    let error = core
        .interpreter(&me, InterpreterAction::ExecuteCode, &json!({"code": "1"}))
        .await
        .unwrap_err();
    assert_eq!(
        (error.status, error.message.as_str(), error.code.as_deref()),
        (Some(429), "too many", Some("7"))
    );
    assert_eq!(fake_server.received_requests().len(), 2);
    // R2: at another origin no credential of the caller arrives.
    let other = DialCore::start().await.unwrap();
    for key in [None, Some(Secret::new("own"))] {
        let mut options = options(&fake_server);
        let expected = key
            .as_ref()
            .map_or("", |key: &Secret| key.expose())
            .to_owned();
        options.interpreter = Some(InterpreterEndpoint {
            url: other.url(),
            key,
        });
        let core = DialClient::new(options).unwrap();
        let refused = core
            .interpreter(&me, InterpreterAction::GetSession, &json!({}))
            .await
            .unwrap_err();
        assert_eq!(refused.status, Some(401));
        let requests = other.received_requests();
        let last = requests.last().unwrap();
        assert_eq!(
            (last.header("api-key"), last.header("authorization")),
            (expected.as_str(), "")
        );
    }
}
