//! Events of other workspaces, of shared channels and of people whose files look like those of bots.

use bytes::Bytes;
use dray_platform::{ErrorKind, InboundSource as _, WebhookReply};
use dray_types::Secret;
use futures_util::TryStreamExt as _;
use serde_json::{Value, json};

use super::{NOW_SECONDS, app, options, signed_request};
use crate::fake_server::{FakeSlack, SIGNING_SECRET};
use crate::{SlackOptions, SlackPlatform};

/// An event with a message of a person, with these fields besides those of the message.
fn message_event(fields: &Value, message: &Value) -> Value {
    let mut event = json!({
        "type": "event_callback",
        "event": { "type": "message", "user": "U1", "channel": "C1", "ts": "1.2", "text": "look" },
    });
    let extend = |target: &mut Value, fields: &Value| {
        let (target, fields) = (target.as_object_mut().unwrap(), fields.as_object().unwrap());
        target.extend(fields.clone());
    };
    extend(&mut event, fields);
    extend(&mut event["event"], message);
    event
}

fn read(slack: &SlackPlatform, event: &Value) -> WebhookReply {
    let request = signed_request(&event.to_string(), NOW_SECONDS, SIGNING_SECRET);
    slack.webhook(&request).unwrap()
}

#[tokio::test]
async fn only_events_of_the_workspace_of_the_token_are_served() {
    let fake = FakeSlack::start().await.unwrap();
    let slack = app(options(&fake));
    let connected =
        json!({ "team_id": "T2", "authorizations": [{ "team_id": "T1", "enterprise_id": "E1" }] });
    let organization = json!({
        "team_id": "T2",
        "authorizations": [{ "team_id": null, "enterprise_id": "E1", "is_enterprise_install": true }],
    });
    for (fields, expected) in [
        (json!({ "team_id": "T1" }), true),
        (json!({ "team_id": "T2" }), false),
        (connected, true),
        (
            json!({ "team_id": "T1", "authorizations": [{ "team_id": "T2" }] }),
            false,
        ),
        (json!({ "team_id": "T2", "context_team_id": "T1" }), true),
        (organization, false),
        (json!({ "team": { "id": "T1" } }), true),
        (json!({ "team": null, "enterprise": { "id": "E1" } }), false),
    ] {
        let reply = read(&slack, &message_event(&fields, &json!({})));
        let is_served = slack.serves_workspaces(&reply.workspaces).await;
        assert_eq!(is_served.unwrap(), expected, "{fields}");
    }
    let identified = fake.requests();
    let identified = identified
        .iter()
        .filter(|(method, _)| method == "auth.test");
    assert_eq!(identified.count(), 1, "the workspace is requested once");
    let event = message_event(&json!({}), &json!({})).to_string();
    let without_workspace = signed_request(&event, NOW_SECONDS, SIGNING_SECRET);
    let error = slack.webhook(&without_workspace).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::BadFormat);
}

#[tokio::test]
async fn an_app_whose_workspace_is_unknown_serves_no_events() {
    let fake = FakeSlack::start().await.unwrap();
    let slack = app(SlackOptions {
        token: Secret::new("xoxb-wrong"),
        ..options(&fake)
    });
    let served = slack.serves_workspaces(&["T1".to_owned()]).await;
    assert_eq!(served.unwrap_err().kind(), ErrorKind::Auth);
}

#[tokio::test]
async fn a_file_of_another_organization_is_fetched_by_its_id() {
    let fake = FakeSlack::start().await.unwrap();
    let slack = app(options(&fake));
    let id = fake.keep_shared("report.csv", b"a,b".to_vec());
    let files = json!({ "subtype": "file_share", "files": [{
        "id": id, "mode": "file_access", "file_access": "check_file_info", "created": 0, "timestamp": 0, "user": "",
    }] });
    let reply = read(&slack, &message_event(&json!({ "team_id": "T1" }), &files));
    let attachment = &reply.messages[0].attachments[0];
    assert_eq!(attachment.unavailable, "");
    let described = slack.describe(attachment).await.unwrap();
    assert_eq!((described.name.as_str(), described.size), ("report.csv", 3));
    let stream = slack.fetch(&described).await.unwrap();
    let chunks: Vec<Bytes> = stream.try_collect().await.unwrap();
    assert_eq!(chunks.concat(), b"a,b");
    let mut deleted = attachment.clone();
    "F404".clone_into(&mut deleted.reference);
    let error = slack.describe(&deleted).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::StaleFileId);
}

#[tokio::test]
async fn a_forward_has_the_text_and_the_files_of_the_forwarded_message() {
    let fake = FakeSlack::start().await.unwrap();
    let slack = app(options(&fake));
    let file = json!({ "id": "F1", "name": "a.txt", "url_private": "https://files.slack.com/a" });
    let message = json!({
        "text": "please check",
        "attachments": [
            { "is_share": true, "is_msg_unfurl": true, "text": "a &lt; b", "fallback": "[May 1] bo: a", "files": [file] },
            { "is_share": true, "text": "", "fallback": "[May 2] bo: blocks" },
            { "is_share": true, "text": "", "fallback": "[May 3] bo: b.txt", "files": [file] },
            { "from_url": "https://example.org", "text": "a preview of a page" },
        ],
    });
    let reply = read(
        &slack,
        &message_event(&json!({ "team_id": "T1" }), &message),
    );
    let received = &reply.messages[0];
    assert_eq!(
        received.text,
        "please check\n\nForwarded message:\na < b\n\nForwarded message:\n[May 2] bo: blocks"
    );
    assert_eq!(received.attachments.len(), 2);
}

#[tokio::test]
async fn a_file_of_a_person_with_a_bot_id_of_null_is_accepted() {
    let fake = FakeSlack::start().await.unwrap();
    let slack = app(options(&fake));
    let file = json!({ "id": "F1", "name": "a.txt", "url_private": "https://files.slack.com/a" });
    let message = json!({
        "text": "", "files": [file], "upload": true, "display_as_bot": false, "bot_id": null,
    });
    let reply = read(
        &slack,
        &message_event(&json!({ "team_id": "T1" }), &message),
    );
    assert_eq!(reply.messages[0].attachments.len(), 1);
}
