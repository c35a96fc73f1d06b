//! Tests of the app with its fake server.

mod events;
mod question;

use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use dray_platform::conformance::{
    self, NoProgress, PlatformFault, PlatformFixture, PlatformTraits, SeenFile, VisibleMessage,
    plain_delivery, sample, send_only_step,
};
use dray_platform::{
    DeliveryTarget, ErrorKind, InboundAttachment, InboundSource as _, OutgoingDelivery,
    OutgoingFile, Platform, ReconcileResult, SendOutcome, SendRequest, WebhookRequest,
};
use dray_types::{Clock, Period, Secret};
use futures_util::TryStreamExt as _;

use crate::fake_server::{
    DIRECT_CHANNEL, FakeSlack, InjectedFault, SIGNING_SECRET, USER_ID, signature_headers,
};
use crate::{SlackOptions, SlackPlatform};

const NOW_SECONDS: u64 = 1_700_000_000;

fn options(fake: &FakeSlack) -> SlackOptions {
    SlackOptions {
        token: fake.token(),
        signing_secret: Secret::new(SIGNING_SECRET),
        base_url: fake.url(),
        share_wait: Period::secs(1),
        ..SlackOptions::default()
    }
}

fn app(options: SlackOptions) -> SlackPlatform {
    SlackPlatform::new("", options, Clock::manual(NOW_SECONDS * 1000)).unwrap()
}

#[derive(Debug)]
struct SlackFixture {
    fake: FakeSlack,
}

fn target(chat: &str) -> DeliveryTarget {
    DeliveryTarget {
        platform: "slack".to_owned(),
        account: String::new(),
        chat: chat.to_owned(),
        thread: String::new(),
        reply_to: String::new(),
    }
}

#[async_trait]
impl PlatformFixture for SlackFixture {
    fn platform(&self) -> Arc<dyn Platform> {
        Arc::new(app(options(&self.fake)))
    }

    async fn chat(&self) -> DeliveryTarget {
        target(&self.fake.channel())
    }

    async fn visible_messages(&self, target: &DeliveryTarget) -> Vec<VisibleMessage> {
        let messages = self.fake.visible_messages(&target.chat).into_iter();
        messages
            .map(|message| VisibleMessage {
                message_id: message.ts,
                text: message.text,
                files: message
                    .files
                    .into_iter()
                    .map(|(name, content)| SeenFile::named(name, content.size, content.sha256))
                    .collect(),
                reply_to: message.thread.clone(),
                thread: message.thread,
            })
            .collect()
    }

    async fn script(&self, fault: PlatformFault) -> bool {
        self.fake.script(match fault {
            PlatformFault::RateLimit(wait) => InjectedFault::RateLimit(wait),
            PlatformFault::FailAfterBody => InjectedFault::Fail,
            PlatformFault::LoseResponse => InjectedFault::LoseResponse,
            PlatformFault::CloseDuringBody => InjectedFault::CloseDuringUpload,
            PlatformFault::TooLarge => InjectedFault::TooLarge,
            PlatformFault::ForgetFiles => InjectedFault::NeverShare,
            PlatformFault::Gibberish => InjectedFault::Gibberish,
        });
        true
    }

    fn unknown_target(&self) -> Option<DeliveryTarget> {
        Some(target("C404"))
    }

    fn with_wrong_credentials(&self) -> Option<Arc<dyn Platform>> {
        Some(Arc::new(app(SlackOptions {
            token: Secret::new("xoxb-wrong"),
            ..options(&self.fake)
        })))
    }

    fn with_unreachable_server(&self) -> Option<Arc<dyn Platform>> {
        Some(Arc::new(app(SlackOptions {
            base_url: "http://127.0.0.1:1/api".to_owned(),
            ..options(&self.fake)
        })))
    }

    fn received(&self) -> u64 {
        self.fake.received()
    }

    fn secrets(&self) -> Vec<String> {
        vec![
            self.fake.token().expose().to_owned(),
            SIGNING_SECRET.to_owned(),
            "xoxb-wrong".to_owned(),
        ]
    }

    fn traits(&self) -> PlatformTraits {
        PlatformTraits {
            thread: Some("1699999999.000001"),
            ..PlatformTraits::default()
        }
    }
}

#[tokio::test]
async fn passes_the_conformance_suite() {
    let fixture = SlackFixture {
        fake: FakeSlack::start().await.unwrap(),
    };
    match conformance::run_all(&fixture).await {
        Ok(report) => assert_eq!(report.skipped, ["a_known_file_id_saves_the_upload"]),
        Err(failures) => panic!("{failures}"),
    }
}

fn delivery(chat: &str, files: Vec<OutgoingFile>) -> OutgoingDelivery {
    plain_delivery(target(chat), "", files)
}

/// Prepares and sends the only step of a delivery.
async fn deliver(
    slack: &SlackPlatform,
    delivery: &OutgoingDelivery,
) -> Result<String, dray_platform::PlatformError> {
    let confirmed = send_only_step(slack, delivery, "key").await?;
    Ok(confirmed.first().unwrap().message_id.clone())
}

#[tokio::test]
async fn r_9_uploads_carry_no_token_and_all_other_requests_do() {
    let fake = FakeSlack::start().await.unwrap();
    let channel = fake.channel();
    let slack = app(options(&fake));
    let delivery = delivery(&channel, vec![sample::binary_file("a.bin", 1000)]);
    deliver(&slack, &delivery).await.unwrap();
    for (method, token) in fake.requests() {
        assert_eq!(token, !method.contains("upload/"), "{method}");
    }
}

#[tokio::test]
async fn r_10_a_completed_upload_without_a_share_is_not_delivered() {
    let fake = FakeSlack::start().await.unwrap();
    let channel = fake.channel();
    let slack = app(options(&fake));
    let delivery = delivery(&channel, vec![sample::binary_file("a.bin", 10)]);
    fake.script(InjectedFault::NeverShare);
    let error = deliver(&slack, &delivery).await.unwrap_err();
    assert_eq!(error.send_outcome(), SendOutcome::Ambiguous);
    fake.script(InjectedFault::ShareLate(1));
    deliver(&slack, &delivery).await.unwrap();
}

#[tokio::test]
async fn a_lost_response_is_looked_up_before_a_send_is_repeated() {
    let fake = FakeSlack::start().await.unwrap();
    let channel = fake.channel();
    let slack = app(options(&fake));
    let delivery = delivery(&channel, vec![sample::binary_file("a.bin", 10)]);
    let limits = slack.limits(&delivery.target).await.unwrap();
    let steps = slack.plan(&delivery, &limits);
    let mut send = SendRequest {
        delivery: &delivery,
        step: &steps[0],
        prepared: "",
        key: "key",
        repeated: false,
    };
    let prepared = slack.prepare(send, &NoProgress).await.unwrap();
    send.prepared = &prepared;
    for (fault, expected) in [
        (InjectedFault::LoseRequest, false),
        (InjectedFault::LoseResponse, true),
    ] {
        fake.script(fault);
        let error = slack.send(send, &NoProgress).await.unwrap_err();
        assert_eq!(error.send_outcome(), SendOutcome::Ambiguous);
        let result = slack.reconcile(send).await.unwrap();
        assert_eq!(
            matches!(result, ReconcileResult::Sent(_)),
            expected,
            "{result:?}"
        );
    }
    assert_eq!(fake.visible_messages(&channel).len(), 1);
}

#[tokio::test]
async fn a_lost_response_stays_unknown_while_lookups_fail() {
    let fake = FakeSlack::start().await.unwrap();
    let channel = fake.channel();
    let slack = app(options(&fake));
    let delivery = delivery(&channel, vec![sample::binary_file("a.bin", 10)]);
    let limits = slack.limits(&delivery.target).await.unwrap();
    let steps = slack.plan(&delivery, &limits);
    let mut send = SendRequest {
        delivery: &delivery,
        step: &steps[0],
        prepared: "",
        key: "key",
        repeated: false,
    };
    let prepared = slack.prepare(send, &NoProgress).await.unwrap();
    send.prepared = &prepared;
    fake.script(InjectedFault::LoseResponse);
    slack.send(send, &NoProgress).await.unwrap_err();
    fake.script(InjectedFault::FailInfo(u32::MAX));
    let result = slack.reconcile(send).await.unwrap();
    assert_eq!(result, ReconcileResult::Unknown);
}

#[tokio::test]
async fn a_lost_response_is_found_when_the_first_lookups_fail() {
    let fake = FakeSlack::start().await.unwrap();
    let channel = fake.channel();
    let slack = app(options(&fake));
    let delivery = delivery(&channel, vec![sample::binary_file("a.bin", 10)]);
    let limits = slack.limits(&delivery.target).await.unwrap();
    let steps = slack.plan(&delivery, &limits);
    let mut send = SendRequest {
        delivery: &delivery,
        step: &steps[0],
        prepared: "",
        key: "key",
        repeated: false,
    };
    let prepared = slack.prepare(send, &NoProgress).await.unwrap();
    send.prepared = &prepared;
    fake.script(InjectedFault::LoseResponse);
    slack.send(send, &NoProgress).await.unwrap_err();
    fake.script(InjectedFault::FailInfo(2));
    let result = slack.reconcile(send).await.unwrap();
    assert!(matches!(result, ReconcileResult::Sent(_)), "{result:?}");
}

#[tokio::test]
async fn an_upload_with_another_byte_count_is_not_completed() {
    let fake = FakeSlack::start().await.unwrap();
    let channel = fake.channel();
    let slack = app(options(&fake));
    fake.script(InjectedFault::Miscount);
    let delivery = delivery(&channel, vec![sample::binary_file("a.bin", 10)]);
    let error = deliver(&slack, &delivery).await.unwrap_err();
    assert_eq!(
        (error.kind(), error.send_outcome()),
        (ErrorKind::Transient, SendOutcome::NotSent)
    );
    assert!(fake.visible_messages(&channel).is_empty());
}

#[tokio::test]
async fn a_file_for_a_user_is_sent_to_the_direct_conversation() {
    let fake = FakeSlack::start().await.unwrap();
    let slack = app(options(&fake));
    let direct = delivery(USER_ID, vec![sample::binary_file("a.bin", 10)]);
    deliver(&slack, &direct).await.unwrap();
    assert_eq!(fake.visible_messages(DIRECT_CHANNEL).len(), 1);
    let unknown = delivery("U404", vec![sample::binary_file("a.bin", 10)]);
    let error = deliver(&slack, &unknown).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound);
}

#[tokio::test]
async fn refusals_are_final_and_show_nothing() {
    let fake = FakeSlack::start().await.unwrap();
    let channel = fake.channel();
    let slack = app(options(&fake));
    for (code, kind) in [
        ("not_in_channel", ErrorKind::Forbidden),
        ("file_type_not_allowed", ErrorKind::UnsupportedKind),
        ("token_revoked", ErrorKind::Auth),
        ("never_heard_of", ErrorKind::Unknown),
    ] {
        fake.script(InjectedFault::Refuse(code));
        let delivery = delivery(&channel, vec![sample::binary_file("a.bin", 10)]);
        let error = deliver(&slack, &delivery).await.unwrap_err();
        assert_eq!(
            (error.kind(), error.send_outcome()),
            (kind, SendOutcome::NotSent),
            "{code}"
        );
    }
    assert!(fake.visible_messages(&channel).is_empty());
}

fn signed_request(body: &str, timestamp: u64, secret: &str) -> WebhookRequest {
    let headers = signature_headers(body, timestamp, secret).into_iter();
    WebhookRequest {
        method: "POST".to_owned(),
        query: String::new(),
        headers: headers
            .map(|(name, value)| (name.to_owned(), value))
            .collect(),
        body: Bytes::from(body.to_owned()),
    }
}

#[tokio::test]
async fn only_fresh_and_signed_events_are_read() {
    let fake = FakeSlack::start().await.unwrap();
    let slack = app(options(&fake));
    let hello = r#"{"type":"url_verification","challenge":"abc"}"#;
    let reply = slack
        .webhook(&signed_request(hello, NOW_SECONDS, SIGNING_SECRET))
        .unwrap();
    assert_eq!(reply.body, Some(("text/plain", "abc".to_owned())));
    let mut changed = signed_request(hello, NOW_SECONDS, SIGNING_SECRET);
    changed.body = Bytes::from_static(br#"{"type":"url_verification","challenge":"abd"}"#);
    let mut unsigned = signed_request(hello, NOW_SECONDS, SIGNING_SECRET);
    unsigned.headers.clear();
    for request in [
        signed_request(hello, NOW_SECONDS - 301, SIGNING_SECRET),
        signed_request(hello, NOW_SECONDS + 301, SIGNING_SECRET),
        signed_request(hello, NOW_SECONDS, "other secret"),
        changed,
        unsigned,
    ] {
        let error = slack.webhook(&request).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Auth);
    }
    let without_secret = app(SlackOptions {
        signing_secret: Secret::default(),
        ..options(&fake)
    });
    assert!(
        without_secret
            .webhook(&signed_request(hello, NOW_SECONDS, ""))
            .is_err()
    );
    let error = slack
        .webhook(&signed_request("{", NOW_SECONDS, SIGNING_SECRET))
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::BadFormat);
}

#[tokio::test]
async fn a_message_of_a_user_has_its_files() {
    let fake = FakeSlack::start().await.unwrap();
    let slack = app(options(&fake));
    let url = fake.keep(b"hello".to_vec());
    let event = serde_json::json!({
        "type": "event_callback", "team_id": "T1",
        "event": {
            "type": "message", "subtype": "file_share", "user": "U1", "channel": "C1", "ts": "1.2",
            "thread_ts": "1.1", "text": "look &lt;here&gt;",
            "files": [{ "id": "F1", "name": "a.txt", "mimetype": "text/plain", "size": 5, "url_private_download": url }],
        },
    });
    let request = signed_request(&event.to_string(), NOW_SECONDS, SIGNING_SECRET);
    let reply = slack.webhook(&request).unwrap();
    let [message] = reply.messages.as_slice() else {
        panic!("{reply:?}");
    };
    assert_eq!(
        (message.text.as_str(), message.target.thread.as_str()),
        ("look <here>", "1.1")
    );
    let stream = slack.fetch(&message.attachments[0]).await.unwrap();
    let chunks: Vec<Bytes> = stream.try_collect().await.unwrap();
    assert_eq!(chunks.concat(), b"hello");
    for ignored in [
        r#"{"type":"event_callback","team_id":"T1","event":{"type":"message","bot_id":"B1","user":"U1","channel":"C1","ts":"1"}}"#,
        r#"{"type":"event_callback","team_id":"T1","event":{"type":"message","subtype":"message_changed","channel":"C1","ts":"1"}}"#,
        r#"{"type":"event_callback","team_id":"T1","event":{"type":"reaction_added","user":"U1"}}"#,
    ] {
        let reply = slack
            .webhook(&signed_request(ignored, NOW_SECONDS, SIGNING_SECRET))
            .unwrap();
        assert!(reply.messages.is_empty(), "{ignored}");
    }
}

#[tokio::test]
async fn a_login_page_is_refused_and_other_hosts_get_no_token() {
    let fake = FakeSlack::start().await.unwrap();
    let url = fake.keep(b"hello".to_vec());
    let attachment = |reference: &str| InboundAttachment {
        id: "F1".to_owned(),
        name: "a".to_owned(),
        size: 5,
        media_type: String::new(),
        reference: reference.to_owned(),
        kind: "document".to_owned(),
        unavailable: String::new(),
    };
    let with_wrong_token = app(SlackOptions {
        token: Secret::new("xoxb-wrong"),
        ..options(&fake)
    });
    let refused =
        |result: Result<_, dray_platform::PlatformError>| result.map(drop).unwrap_err().kind();
    assert_eq!(
        refused(with_wrong_token.fetch(&attachment(&url)).await),
        ErrorKind::Auth
    );
    let slack = app(options(&fake));
    for other_host in [
        "http://127.0.0.1:1/x",
        "https://evil.example/files.slack.com",
    ] {
        assert_eq!(
            refused(slack.fetch(&attachment(other_host)).await),
            ErrorKind::Forbidden
        );
    }
}

#[tokio::test]
async fn slack_sdk_accepts_the_fake_api() {
    let fake = FakeSlack::start().await.unwrap();
    let channel = fake.channel();
    let arguments = [
        fake.url(),
        fake.token().expose().to_owned(),
        channel.clone(),
    ];
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let output = dray_testkit::python::run_script("slack_client.py", "slack_sdk", &arguments).await;
    let messages = fake.visible_messages(&channel);
    assert_eq!(messages.len(), 2);
    assert_eq!(output["scopes"], "files:read,files:write,chat:write");
    assert_eq!(output["uploaded"], true);
    assert_eq!(output["size"], 102_400);
    assert_eq!(output["shared"], serde_json::json!([channel]));
    assert_eq!(messages[0].files[0].0, "отчёт.bin");
    assert_eq!(messages[0].files[0].1.size, 102_400);
    assert_eq!(output["ts"], messages[1].ts);
    assert_eq!(messages[1].thread, "1.2");
    assert_eq!(output["channel"], "channel_not_found");
    assert_eq!(output["token"], "invalid_auth");
}
