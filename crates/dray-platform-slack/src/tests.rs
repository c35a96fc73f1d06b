//! The app against its double.

use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use dray_platform::conformance::{self, Fault as Wanted, Fixture, Seen, SeenFile, Traits, sample};
use dray_platform::{
    Delivery, ErrorKind, Flags, InboundAttachment, Inbox as _, Moment, OutgoingFile, Platform,
    Progress, Reconciled, Send, Target, WebhookRequest,
};
use dray_types::{Clock, Period, Secret};
use futures_util::TryStreamExt as _;
use hmac::{Hmac, Mac as _};
use sha2::Sha256;

use crate::double::{DIRECT, Double, Fault, SIGNING_SECRET, USER};
use crate::{Options, Slack};

const NOW: u64 = 1_700_000_000;

fn options(double: &Double) -> Options {
    Options {
        token: double.token(),
        signing_secret: Secret::new(SIGNING_SECRET),
        base_url: double.url(),
        share_wait: Period::secs(1),
        ..Options::default()
    }
}

fn app(options: Options) -> Slack {
    Slack::new("", options, Clock::manual(NOW * 1000)).unwrap()
}

#[derive(Debug)]
struct World {
    double: Double,
}

fn target(chat: &str) -> Target {
    Target {
        platform: "slack".to_owned(),
        account: String::new(),
        chat: chat.to_owned(),
        thread: String::new(),
        reply_to: String::new(),
    }
}

#[async_trait]
impl Fixture for World {
    fn platform(&self) -> Arc<dyn Platform> {
        Arc::new(app(options(&self.double)))
    }

    async fn chat(&self) -> Target {
        target(&self.double.channel())
    }

    async fn seen(&self, target: &Target) -> Vec<Seen> {
        let shown = self.double.seen(&target.chat).into_iter();
        shown
            .map(|shown| Seen {
                message_id: shown.ts,
                text: shown.text,
                files: shown
                    .files
                    .into_iter()
                    .map(|(name, content)| SeenFile {
                        name: Some(name),
                        size: content.size,
                        sha256: content.sha256,
                    })
                    .collect(),
                reply_to: shown.thread.clone(),
                thread: shown.thread,
            })
            .collect()
    }

    async fn script(&self, fault: Wanted) -> bool {
        self.double.script(match fault {
            Wanted::RateLimit(wait) => Fault::RateLimit(wait),
            Wanted::FailAfterBody => Fault::Fail,
            Wanted::LoseAnswer => Fault::LoseAnswer,
            Wanted::CloseDuringBody => Fault::CloseDuringUpload,
            Wanted::TooLarge => Fault::TooLarge,
            Wanted::ForgetFiles => Fault::NeverShare,
            Wanted::Gibberish => Fault::Gibberish,
        });
        true
    }

    fn nowhere(&self) -> Option<Target> {
        Some(target("C404"))
    }

    fn with_wrong_credentials(&self) -> Option<Arc<dyn Platform>> {
        Some(Arc::new(app(Options {
            token: Secret::new("xoxb-wrong"),
            ..options(&self.double)
        })))
    }

    fn with_nobody_there(&self) -> Option<Arc<dyn Platform>> {
        Some(Arc::new(app(Options {
            base_url: "http://127.0.0.1:1/api".to_owned(),
            ..options(&self.double)
        })))
    }

    fn received(&self) -> u64 {
        self.double.received()
    }

    fn secrets(&self) -> Vec<String> {
        vec![
            self.double.token().expose().to_owned(),
            SIGNING_SECRET.to_owned(),
            "xoxb-wrong".to_owned(),
        ]
    }

    fn traits(&self) -> Traits {
        Traits {
            thread: Some("1699999999.000001"),
            ..Traits::default()
        }
    }
}

#[tokio::test]
async fn it_does_what_every_platform_does() {
    let world = World {
        double: Double::start().await.unwrap(),
    };
    match conformance::run_all(&world).await {
        Ok(report) => assert_eq!(report.skipped, ["a_known_file_id_saves_the_upload"]),
        Err(failures) => panic!("{failures}"),
    }
}

#[derive(Debug)]
struct Quiet;

impl Progress for Quiet {
    fn sent(&self, _: u64) {}
}

fn delivery(chat: &str, files: Vec<OutgoingFile>) -> Delivery {
    Delivery {
        id: "d".to_owned(),
        target: target(chat),
        message: String::new(),
        files,
        flags: Flags::default(),
    }
}

/// Prepares and sends the only step of a delivery.
async fn deliver(slack: &Slack, delivery: &Delivery) -> Result<String, dray_platform::Error> {
    let limits = slack.limits(&delivery.target).await?;
    let steps = slack.plan(delivery, &limits);
    let mut send = Send {
        delivery,
        step: steps.first().unwrap(),
        prepared: "",
        key: "key",
    };
    let prepared = slack.prepare(send, &Quiet).await?;
    send.prepared = &prepared;
    let confirmed = slack.send(send, &Quiet).await?;
    Ok(confirmed.first().unwrap().message_id.clone())
}

#[tokio::test]
async fn r_9_uploads_bear_no_token_and_everything_else_does() {
    let double = Double::start().await.unwrap();
    let channel = double.channel();
    let slack = app(options(&double));
    let delivery = delivery(&channel, vec![sample::binary("a.bin", 1000)]);
    deliver(&slack, &delivery).await.unwrap();
    for (method, token) in double.requests() {
        assert_eq!(token, !method.contains("upload/"), "{method}");
    }
}

#[tokio::test]
async fn r_10_a_completion_without_a_share_is_not_delivered() {
    let double = Double::start().await.unwrap();
    let channel = double.channel();
    let slack = app(options(&double));
    let delivery = delivery(&channel, vec![sample::binary("a.bin", 10)]);
    double.script(Fault::NeverShare);
    let error = deliver(&slack, &delivery).await.unwrap_err();
    assert_eq!(error.moment(), Moment::Ambiguous);
    double.script(Fault::ShareLate(1));
    deliver(&slack, &delivery).await.unwrap();
}

#[tokio::test]
async fn a_lost_answer_is_looked_for_before_anything_is_sent_again() {
    let double = Double::start().await.unwrap();
    let channel = double.channel();
    let slack = app(options(&double));
    let delivery = delivery(&channel, vec![sample::binary("a.bin", 10)]);
    let limits = slack.limits(&delivery.target).await.unwrap();
    let steps = slack.plan(&delivery, &limits);
    let mut send = Send {
        delivery: &delivery,
        step: &steps[0],
        prepared: "",
        key: "key",
    };
    let prepared = slack.prepare(send, &Quiet).await.unwrap();
    send.prepared = &prepared;
    for (fault, expected) in [(Fault::LoseRequest, false), (Fault::LoseAnswer, true)] {
        double.script(fault);
        let error = slack.send(send, &Quiet).await.unwrap_err();
        assert_eq!(error.moment(), Moment::Ambiguous);
        let found = slack.reconcile(send).await.unwrap();
        assert_eq!(matches!(found, Reconciled::Sent(_)), expected, "{found:?}");
    }
    assert_eq!(double.seen(&channel).len(), 1);
}

#[tokio::test]
async fn an_upload_that_is_counted_otherwise_is_not_completed() {
    let double = Double::start().await.unwrap();
    let channel = double.channel();
    let slack = app(options(&double));
    double.script(Fault::Miscount);
    let delivery = delivery(&channel, vec![sample::binary("a.bin", 10)]);
    let error = deliver(&slack, &delivery).await.unwrap_err();
    assert_eq!(
        (error.kind(), error.moment()),
        (ErrorKind::Transient, Moment::NotSent)
    );
    assert!(double.seen(&channel).is_empty());
}

#[tokio::test]
async fn a_user_gets_files_in_a_conversation() {
    let double = Double::start().await.unwrap();
    let slack = app(options(&double));
    let found = delivery(USER, vec![sample::binary("a.bin", 10)]);
    deliver(&slack, &found).await.unwrap();
    assert_eq!(double.seen(DIRECT).len(), 1);
    let unknown = delivery("U404", vec![sample::binary("a.bin", 10)]);
    let error = deliver(&slack, &unknown).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NotFound);
}

#[tokio::test]
async fn refusals_are_final_and_show_nothing() {
    let double = Double::start().await.unwrap();
    let channel = double.channel();
    let slack = app(options(&double));
    for (word, kind) in [
        ("not_in_channel", ErrorKind::Forbidden),
        ("file_type_not_allowed", ErrorKind::UnsupportedKind),
        ("token_revoked", ErrorKind::Auth),
        ("never_heard_of", ErrorKind::Unknown),
    ] {
        double.script(Fault::Refuse(word));
        let delivery = delivery(&channel, vec![sample::binary("a.bin", 10)]);
        let error = deliver(&slack, &delivery).await.unwrap_err();
        assert_eq!(
            (error.kind(), error.moment()),
            (kind, Moment::NotSent),
            "{word}"
        );
    }
    assert!(double.seen(&channel).is_empty());
}

fn signed(body: &str, stamp: u64, secret: &str) -> WebhookRequest {
    let mut mac = Hmac::<Sha256>::new_from_slice(secret.as_bytes()).unwrap();
    mac.update(format!("v0:{stamp}:{body}").as_bytes());
    let signature: String = mac
        .finalize()
        .into_bytes()
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect::<Vec<_>>()
        .concat();
    WebhookRequest {
        method: "POST".to_owned(),
        query: String::new(),
        headers: vec![
            ("x-slack-request-timestamp".to_owned(), stamp.to_string()),
            ("x-slack-signature".to_owned(), format!("v0={signature}")),
        ],
        body: Bytes::from(body.to_owned()),
    }
}

#[tokio::test]
async fn only_fresh_and_signed_events_are_read() {
    let double = Double::start().await.unwrap();
    let slack = app(options(&double));
    let hello = r#"{"type":"url_verification","challenge":"abc"}"#;
    let reply = slack.webhook(&signed(hello, NOW, SIGNING_SECRET)).unwrap();
    assert_eq!(reply.body, Some(("text/plain", "abc".to_owned())));
    let mut changed = signed(hello, NOW, SIGNING_SECRET);
    changed.body = Bytes::from_static(br#"{"type":"url_verification","challenge":"abd"}"#);
    let mut unsigned = signed(hello, NOW, SIGNING_SECRET);
    unsigned.headers.clear();
    for request in [
        signed(hello, NOW - 301, SIGNING_SECRET),
        signed(hello, NOW + 301, SIGNING_SECRET),
        signed(hello, NOW, "other secret"),
        changed,
        unsigned,
    ] {
        let error = slack.webhook(&request).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Auth);
    }
    let deaf = app(Options {
        signing_secret: Secret::default(),
        ..options(&double)
    });
    assert!(deaf.webhook(&signed(hello, NOW, "")).is_err());
    let error = slack
        .webhook(&signed("{", NOW, SIGNING_SECRET))
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::BadFormat);
}

#[tokio::test]
async fn files_of_users_come_with_their_messages() {
    let double = Double::start().await.unwrap();
    let slack = app(options(&double));
    let url = double.keep(b"hello".to_vec());
    let event = serde_json::json!({
        "type": "event_callback",
        "event": {
            "type": "message", "subtype": "file_share", "user": "U1", "channel": "C1", "ts": "1.2",
            "thread_ts": "1.1", "text": "look &lt;here&gt;",
            "files": [{ "id": "F1", "name": "a.txt", "mimetype": "text/plain", "size": 5, "url_private_download": url }],
        },
    });
    let request = signed(&event.to_string(), NOW, SIGNING_SECRET);
    let reply = slack.webhook(&request).unwrap();
    let [message] = reply.messages.as_slice() else {
        panic!("{reply:?}");
    };
    assert_eq!(
        (message.text.as_str(), message.target.thread.as_str()),
        ("look <here>", "1.1")
    );
    let stream = slack.fetch(&message.attachments[0]).await.unwrap();
    let pieces: Vec<Bytes> = stream.try_collect().await.unwrap();
    assert_eq!(pieces.concat(), b"hello");
    for noise in [
        r#"{"type":"event_callback","event":{"type":"message","bot_id":"B1","user":"U1","channel":"C1","ts":"1"}}"#,
        r#"{"type":"event_callback","event":{"type":"message","subtype":"message_changed","channel":"C1","ts":"1"}}"#,
        r#"{"type":"event_callback","event":{"type":"reaction_added","user":"U1"}}"#,
    ] {
        let reply = slack.webhook(&signed(noise, NOW, SIGNING_SECRET)).unwrap();
        assert!(reply.messages.is_empty(), "{noise}");
    }
}

#[tokio::test]
async fn a_login_page_is_no_file_and_other_hosts_get_no_token() {
    let double = Double::start().await.unwrap();
    let url = double.keep(b"hello".to_vec());
    let attachment = |reference: &str| InboundAttachment {
        id: "F1".to_owned(),
        name: "a".to_owned(),
        size: 5,
        media_type: String::new(),
        reference: reference.to_owned(),
        kind: "document".to_owned(),
        unavailable: String::new(),
    };
    let wrong = app(Options {
        token: Secret::new("xoxb-wrong"),
        ..options(&double)
    });
    let refused = |result: Result<_, dray_platform::Error>| result.map(drop).unwrap_err().kind();
    assert_eq!(
        refused(wrong.fetch(&attachment(&url)).await),
        ErrorKind::Auth
    );
    let slack = app(options(&double));
    for elsewhere in [
        "http://127.0.0.1:1/x",
        "https://evil.example/files.slack.com",
    ] {
        assert_eq!(
            refused(slack.fetch(&attachment(elsewhere)).await),
            ErrorKind::Forbidden
        );
    }
}

#[tokio::test]
async fn slack_sdk_takes_the_double_for_the_api() {
    let double = Double::start().await.unwrap();
    let channel = double.channel();
    let arguments = [
        double.url(),
        double.token().expose().to_owned(),
        channel.clone(),
    ];
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let shown = dray_testkit::python::run("slack_client.py", "slack_sdk", &arguments).await;
    let seen = double.seen(&channel);
    assert_eq!(seen.len(), 2);
    assert_eq!(shown["uploaded"], true);
    assert_eq!(shown["size"], 102_400);
    assert_eq!(shown["shared"], serde_json::json!([channel]));
    assert_eq!(seen[0].files[0].0, "отчёт.bin");
    assert_eq!(seen[0].files[0].1.size, 102_400);
    assert_eq!(shown["ts"], seen[1].ts);
    assert_eq!(seen[1].thread, "1.2");
    assert_eq!(shown["channel"], "channel_not_found");
    assert_eq!(shown["token"], "invalid_auth");
}
