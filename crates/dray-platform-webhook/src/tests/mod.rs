//! Tests of the sender with its fake server.

mod python;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use async_trait::async_trait;
use bytes::Bytes;
use dray_platform::conformance::{
    self, PlatformFault, PlatformFixture, PlatformTraits, SeenFile, VisibleMessage, plain_delivery,
    repeat_only_step, sample, send_only_step,
};
use dray_platform::{
    ConfirmedFile, DeliveryTarget, ErrorKind, InboundSource as _, OutgoingDelivery, OutgoingFile,
    Platform, PlatformError, SendOutcome, WebhookRequest,
};
use dray_types::{Clock, Secret};
use futures_util::TryStreamExt as _;
use serde_json::json;

use crate::fake_server::{FakeReceiver, InjectedFault, SHARED_SECRET};
use crate::{WebhookAddress, WebhookOptions, WebhookPlatform, sign};

const NOW_SECONDS: u64 = 1_700_000_000;
/// Addresses of a fixture.
const HOOK_URLS: usize = 1000;

#[derive(Debug)]
struct WebhookFixture {
    fake: FakeReceiver,
    next: AtomicUsize,
}

impl WebhookFixture {
    async fn start() -> Self {
        Self {
            fake: FakeReceiver::start().await.unwrap(),
            next: AtomicUsize::new(0),
        }
    }

    fn sender(&self, change: impl Fn(&mut WebhookAddress)) -> WebhookPlatform {
        let hooks = (0..HOOK_URLS).map(|number| {
            let mut hook = self.fake.hook(&format!("/hooks/{number}"));
            change(&mut hook);
            (number.to_string(), hook)
        });
        let options = WebhookOptions {
            hooks: hooks.collect(),
            inbound_secret: Secret::new("inbound"),
            ..WebhookOptions::default()
        };
        WebhookPlatform::new("", options, Clock::manual(NOW_SECONDS * 1000)).unwrap()
    }
}

fn target(chat: &str) -> DeliveryTarget {
    format!("webhook:{chat}").parse().unwrap()
}

#[async_trait]
impl PlatformFixture for WebhookFixture {
    fn platform(&self) -> Arc<dyn Platform> {
        Arc::new(self.sender(|_| {}))
    }

    async fn chat(&self) -> DeliveryTarget {
        let number = self.next.fetch_add(1, Ordering::SeqCst);
        assert!(number < HOOK_URLS);
        target(&number.to_string())
    }

    async fn visible_messages(&self, target: &DeliveryTarget) -> Vec<VisibleMessage> {
        let events = self
            .fake
            .received_events(&format!("/hooks/{}", target.chat));
        events
            .into_iter()
            .map(|received| {
                let text = |pointer: &str| {
                    let value = received.event.pointer(pointer).unwrap();
                    value.as_str().unwrap().to_owned()
                };
                VisibleMessage {
                    message_id: received.id.clone(),
                    text: text("/caption"),
                    thread: text("/target/thread"),
                    reply_to: text("/target/reply_to"),
                    files: received
                        .files
                        .into_iter()
                        .map(|(name, content)| SeenFile::named(name, content.size, content.sha256))
                        .collect(),
                }
            })
            .collect()
    }

    async fn script(&self, fault: PlatformFault) -> bool {
        self.fake.script(match fault {
            PlatformFault::RateLimit(wait) => InjectedFault::RateLimit(wait),
            PlatformFault::FailAfterBody => InjectedFault::Refuse(500),
            PlatformFault::LoseResponse => InjectedFault::LoseResponse,
            PlatformFault::CloseDuringBody => InjectedFault::CloseDuringBody,
            PlatformFault::TooLarge => InjectedFault::Refuse(413),
            PlatformFault::ForgetFiles => InjectedFault::ForgetFiles,
            PlatformFault::Gibberish => InjectedFault::Gibberish,
        });
        true
    }

    fn unknown_target(&self) -> Option<DeliveryTarget> {
        Some(target("unconfigured"))
    }

    fn with_wrong_credentials(&self) -> Option<Arc<dyn Platform>> {
        Some(Arc::new(
            self.sender(|hook| hook.secret = Secret::new("a wrong secret")),
        ))
    }

    fn with_unreachable_server(&self) -> Option<Arc<dyn Platform>> {
        Some(Arc::new(self.sender(|hook| {
            hook.url = Secret::new("http://127.0.0.1:1/hooks/t0ken");
        })))
    }

    fn received(&self) -> u64 {
        self.fake.received()
    }

    fn secrets(&self) -> Vec<String> {
        vec![
            SHARED_SECRET.to_owned(),
            "a wrong secret".to_owned(),
            "t0ken".to_owned(),
        ]
    }

    fn traits(&self) -> PlatformTraits {
        PlatformTraits {
            empty_files: true,
            thread: Some("a thread"),
            people: false,
            ..PlatformTraits::default()
        }
    }
}

#[tokio::test]
async fn passes_the_conformance_suite() {
    match conformance::run_all(&WebhookFixture::start().await).await {
        Ok(report) => assert_eq!(
            report.skipped,
            [
                "a_known_file_id_saves_the_upload",
                "mass_mentions_notify_no_one"
            ]
        ),
        Err(failures) => panic!("{failures}"),
    }
}

fn delivery(message: &str, files: Vec<OutgoingFile>) -> OutgoingDelivery {
    plain_delivery(target("7"), message, files)
}

/// Sends the only step of a delivery with this key.
async fn deliver(
    webhook: &WebhookPlatform,
    delivery: &OutgoingDelivery,
    key: &str,
) -> Result<Vec<ConfirmedFile>, PlatformError> {
    send_only_step(webhook, delivery, key).await
}

#[tokio::test]
async fn the_event_describes_the_files() {
    let fixture = WebhookFixture::start().await;
    let webhook = fixture.sender(|_| {});
    let file = sample::memory_file("a \"b\".csv", "a,b\n");
    let digest = file.sha256.to_hex();
    let outgoing = delivery("for @everyone", vec![file]);
    deliver(&webhook, &outgoing, "key").await.unwrap();
    let events = fixture.fake.received_events("/hooks/7");
    assert_eq!(
        events[0].event,
        json!({
            "delivery_id": "d",
            "target": { "name": "7", "thread": "", "reply_to": "" },
            "caption": "for @everyone",
            "files": [{ "name": "a \"b\".csv", "size": 4, "sha256": digest, "mime": "text/csv" }],
        })
    );
}

#[tokio::test]
async fn the_same_key_is_accepted_once_and_reported_as_delivered() {
    let fixture = WebhookFixture::start().await;
    let webhook = fixture.sender(|_| {});
    let files = delivery("", vec![sample::binary_file("a.bin", 100)]);
    let first = deliver(&webhook, &files, "key").await.unwrap();
    let repeated = repeat_only_step(&webhook, &files, "key").await.unwrap();
    assert_eq!(first, repeated);
    assert_eq!(fixture.fake.received_events("/hooks/7").len(), 1);
    deliver(&webhook, &files, "other").await.unwrap();
    assert_eq!(fixture.fake.received_events("/hooks/7").len(), 2);
}

#[tokio::test]
async fn a_conflict_is_a_refusal_of_a_first_request_and_no_confirmation_of_a_repeated_one() {
    let fixture = WebhookFixture::start().await;
    let webhook = fixture.sender(|_| {});
    let files = delivery("", vec![sample::binary_file("a.bin", 100)]);
    fixture.fake.script(InjectedFault::Refuse(409));
    let error = deliver(&webhook, &files, "key").await.unwrap_err();
    assert_eq!(
        (error.kind(), error.send_outcome(), error.platform_code()),
        (ErrorKind::BadFormat, SendOutcome::NotSent, "409")
    );
    // The receiver may still be working on the request whose response was lost.
    fixture.fake.script(InjectedFault::Refuse(409));
    let repeated = repeat_only_step(&webhook, &files, "key").await;
    let error = repeated.unwrap_err();
    assert_eq!(
        (error.kind(), error.send_outcome(), error.platform_code()),
        (ErrorKind::Transient, SendOutcome::Ambiguous, "409")
    );
    assert!(fixture.fake.received_events("/hooks/7").is_empty());
}

#[tokio::test]
async fn an_empty_success_is_accepted_with_the_key_as_its_id() {
    let fixture = WebhookFixture::start().await;
    let webhook = fixture.sender(|_| {});
    for (status, key) in [(200, "a"), (202, "b"), (204, "c")] {
        fixture.fake.script(InjectedFault::Bare(status));
        let files = delivery("", vec![sample::binary_file("a.bin", 100)]);
        let confirmed = deliver(&webhook, &files, key).await.unwrap();
        assert_eq!(confirmed[0].message_id, key);
    }
    fixture.fake.script(InjectedFault::OtherBytes);
    let files = delivery("", vec![sample::binary_file("a.bin", 100)]);
    let error = deliver(&webhook, &files, "d").await.unwrap_err();
    assert_eq!(
        (error.kind(), error.send_outcome()),
        (ErrorKind::Unknown, SendOutcome::Ambiguous)
    );
}

#[tokio::test]
async fn a_redirect_is_not_followed() {
    let fixture = WebhookFixture::start().await;
    fixture.fake.script(InjectedFault::Refuse(307));
    let webhook = fixture.sender(|_| {});
    let error = deliver(&webhook, &delivery("words", Vec::new()), "key")
        .await
        .unwrap_err();
    assert_eq!(
        (error.kind(), error.send_outcome()),
        (ErrorKind::NotFound, SendOutcome::NotSent)
    );
    assert_eq!(error.platform_code(), "redirect_307");
    assert!(fixture.fake.received_events("/hooks/7").is_empty());
}

fn signed_request(body: &str, timestamp: u64, secret: &str) -> WebhookRequest {
    let timestamp = timestamp.to_string();
    let signature = sign::sign_body(&Secret::new(secret), &timestamp, body.as_bytes()).unwrap();
    WebhookRequest {
        method: "POST".to_owned(),
        query: String::new(),
        headers: vec![
            ("x-timestamp".to_owned(), timestamp),
            ("x-signature-256".to_owned(), signature),
        ],
        body: Bytes::from(body.to_owned()),
    }
}

#[tokio::test]
async fn only_signed_messages_to_configured_names_are_read() {
    let fixture = WebhookFixture::start().await;
    let webhook = fixture.sender(|_| {});
    let body = json!({
        "id": "m1", "target": "7", "thread": "t", "sender": "ci", "text": "done",
        "files": [{ "name": "a.txt", "size": 5, "mime": "text/plain", "url": "https://x.example/a" }, { "name": "b" }],
    })
    .to_string();
    let reply = webhook
        .webhook(&signed_request(&body, NOW_SECONDS, "inbound"))
        .unwrap();
    let [message] = reply.messages.as_slice() else {
        panic!("{reply:?}");
    };
    assert_eq!(message.target.to_string(), "webhook:7#t");
    assert_eq!(
        (message.message_id.as_str(), message.text.as_str()),
        ("m1", "done")
    );
    assert_eq!(message.attachments[0].unavailable, "");
    assert_ne!(message.attachments[1].unavailable, "");
    assert_ne!(message.attachments[0].id, message.attachments[1].id);
    for (request, kind) in [
        (
            signed_request(&body, NOW_SECONDS - 301, "inbound"),
            ErrorKind::Auth,
        ),
        (
            signed_request(&body, NOW_SECONDS, SHARED_SECRET),
            ErrorKind::Auth,
        ),
        (
            signed_request("{", NOW_SECONDS, "inbound"),
            ErrorKind::BadFormat,
        ),
        (
            signed_request(r#"{"id":"","target":"7"}"#, NOW_SECONDS, "inbound"),
            ErrorKind::BadFormat,
        ),
        (
            signed_request(r#"{"id":"1","target":"x"}"#, NOW_SECONDS, "inbound"),
            ErrorKind::NotFound,
        ),
    ] {
        assert_eq!(webhook.webhook(&request).unwrap_err().kind(), kind);
    }
    let mut unsigned = signed_request(&body, NOW_SECONDS, "inbound");
    unsigned.headers.clear();
    assert_eq!(
        webhook.webhook(&unsigned).unwrap_err().kind(),
        ErrorKind::Auth
    );
}

#[tokio::test]
async fn r_9_files_are_fetched_from_configured_hosts() {
    let fixture = WebhookFixture::start().await;
    let url = fixture.fake.keep(b"hello".to_vec());
    let host = url.trim_start_matches("http://").split('/').next().unwrap();
    let options = WebhookOptions {
        hooks: [("7".to_owned(), fixture.fake.hook("/hooks/7"))].into(),
        inbound_secret: Secret::new("inbound"),
        file_hosts: vec![host.to_owned()],
        allow_http: true,
        ..WebhookOptions::default()
    };
    let webhook = WebhookPlatform::new("", options, Clock::manual(NOW_SECONDS * 1000)).unwrap();
    let fetch = async |url: &str| {
        let body = json!({ "id": "1", "target": "7", "files": [{ "url": url }] }).to_string();
        let reply = webhook
            .webhook(&signed_request(&body, NOW_SECONDS, "inbound"))
            .unwrap();
        let stream = webhook.fetch(&reply.messages[0].attachments[0]).await?;
        let chunks: Vec<Bytes> = stream.try_collect().await?;
        Ok::<_, PlatformError>(chunks.concat())
    };
    assert_eq!(fetch(&url).await.unwrap(), b"hello");
    let missing = fetch(&url.replace("/files/0", "/files/9")).await;
    assert_eq!(missing.unwrap_err().kind(), ErrorKind::NotFound);
    let other_host = fetch("http://127.0.0.1:1/files/0").await;
    assert_eq!(other_host.unwrap_err().kind(), ErrorKind::Forbidden);
}
