//! Tests of the bridge.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use dray_platform::conformance::{
    self, PlatformFault, PlatformFixture, PlatformTraits, VisibleMessage, sample,
};
use dray_platform::{
    DeliveryTarget, ErrorKind, InboundMessage, InboundSink, InboundSource as _, Platform,
    SendOutcome, WebhookRequest,
};
use dray_types::Secret;
use futures_util::TryStreamExt as _;
use serde_json::json;
use tempfile::TempDir;
use tokio_util::sync::CancellationToken;

use super::{deliver, delivery, target, visible_messages};
use crate::fake_server::{BRIDGE_TOKEN, FakeBridge, InjectedFault};
use crate::{BridgeOptions, BridgePlatform};

#[derive(Debug)]
struct BridgeFixture {
    fake: FakeBridge,
    /// The directory that the client shares with the bridge.
    directory: TempDir,
}

impl BridgeFixture {
    async fn new() -> Self {
        Self {
            fake: FakeBridge::start().await.unwrap(),
            directory: tempfile::tempdir().unwrap(),
        }
    }

    fn options(&self) -> BridgeOptions {
        BridgeOptions {
            base_url: self.fake.url(),
            token: self.fake.token(),
            directory: self.directory.path().to_owned(),
            ..BridgeOptions::default()
        }
    }

    fn bridge(&self) -> BridgePlatform {
        BridgePlatform::new("", self.options()).unwrap()
    }

    /// Number of files in the shared directory.
    fn file_count(&self) -> usize {
        std::fs::read_dir(self.directory.path()).unwrap().count()
    }
}

#[async_trait]
impl PlatformFixture for BridgeFixture {
    fn platform(&self) -> Arc<dyn Platform> {
        Arc::new(self.bridge())
    }

    async fn chat(&self) -> DeliveryTarget {
        target(&self.fake.chat())
    }

    async fn visible_messages(&self, target: &DeliveryTarget) -> Vec<VisibleMessage> {
        visible_messages(self.fake.visible_messages(&target.chat))
    }

    async fn script(&self, fault: PlatformFault) -> bool {
        self.fake.script(match fault {
            PlatformFault::RateLimit(wait) => InjectedFault::RateLimit(wait),
            PlatformFault::FailAfterBody => InjectedFault::Fail(500),
            PlatformFault::LoseResponse => InjectedFault::LoseResponse,
            // The bytes are passed in the shared directory, not in the body of a request.
            PlatformFault::CloseDuringBody => return false,
            PlatformFault::TooLarge => InjectedFault::TooLarge,
            PlatformFault::ForgetFiles => InjectedFault::ForgetMessage,
            PlatformFault::Gibberish => InjectedFault::Gibberish,
        });
        true
    }

    fn unknown_target(&self) -> Option<DeliveryTarget> {
        None
    }

    fn with_wrong_credentials(&self) -> Option<Arc<dyn Platform>> {
        let options = BridgeOptions {
            token: Secret::new("wrong"),
            ..self.options()
        };
        Some(Arc::new(BridgePlatform::new("", options).unwrap()))
    }

    fn with_unreachable_server(&self) -> Option<Arc<dyn Platform>> {
        let options = BridgeOptions {
            base_url: "http://127.0.0.1:1".to_owned(),
            ..self.options()
        };
        Some(Arc::new(BridgePlatform::new("", options).unwrap()))
    }

    fn received(&self) -> u64 {
        0
    }

    fn secrets(&self) -> Vec<String> {
        vec![BRIDGE_TOKEN.to_owned()]
    }

    fn traits(&self) -> PlatformTraits {
        PlatformTraits::default()
    }
}

#[tokio::test]
async fn passes_the_conformance_suite() {
    let fixture = BridgeFixture::new().await;
    // Bytes are passed through a directory, so the number of bytes on connections is not meaningful.
    let cases_about_connections = ["a_large_file_is_not_held_in_memory"];
    let cases: Vec<_> = conformance::CONFORMANCE_CASES
        .iter()
        .filter(|(name, _)| !cases_about_connections.contains(name))
        .copied()
        .collect();
    match conformance::run_cases(&fixture, &cases).await {
        Ok(report) => assert_eq!(
            report.skipped,
            [
                "a_known_file_id_saves_the_upload",
                "a_thread_is_kept",
                "a_chat_that_does_not_exist_is_not_found",
                "a_connection_closed_in_the_body_sent_nothing",
            ]
        ),
        Err(failures) => panic!("{failures}"),
    }
    assert_eq!(
        fixture.file_count(),
        0,
        "files are removed from the shared directory"
    );
}

#[tokio::test]
async fn a_bridge_that_is_not_connected_sends_no_message() {
    let fixture = BridgeFixture::new().await;
    let chat = fixture.fake.chat();
    fixture.fake.script(InjectedFault::Fail(503));
    let delivery = delivery(&chat, vec![sample::binary_file("a.bin", 10)]);
    let error = deliver(&fixture.bridge(), &delivery).await.unwrap_err();
    assert_eq!(
        (error.kind(), error.send_outcome()),
        (ErrorKind::Transient, SendOutcome::NotSent)
    );
    assert_eq!(fixture.file_count(), 0);
}

#[tokio::test]
async fn the_bridge_gets_the_path_that_is_valid_on_its_machine() {
    let fixture = BridgeFixture::new().await;
    let other = tempfile::tempdir().unwrap();
    let link = other.path().join("as-the-bridge-sees-it");
    std::os::unix::fs::symlink(fixture.directory.path(), &link).unwrap();
    let options = BridgeOptions {
        bridge_directory: Some(link.clone()),
        ..fixture.options()
    };
    let bridge = BridgePlatform::new("", options).unwrap();
    let chat = fixture.fake.chat();
    deliver(
        &bridge,
        &delivery(&chat, vec![sample::binary_file("a.bin", 10)]),
    )
    .await
    .unwrap();
    let messages = fixture.fake.visible_messages(&chat);
    let path = messages[0].payload["filePath"].as_str().unwrap();
    assert!(path.starts_with(link.to_str().unwrap()), "{path}");
}

#[tokio::test]
async fn copies_that_a_killed_process_left_are_removed_after_their_time() {
    let fixture = BridgeFixture::new().await;
    let copy = |name: &str, age: Duration| {
        let directory = fixture.directory.path().join(name);
        std::fs::create_dir(&directory).unwrap();
        let file = std::fs::File::create(directory.join("report.pdf")).unwrap();
        let modified = file.metadata().unwrap().modified().unwrap() - age;
        file.set_modified(modified).unwrap();
        std::fs::File::open(&directory)
            .unwrap()
            .set_modified(modified)
            .unwrap();
    };
    copy("out-1", Duration::from_hours(3));
    copy("out-2", Duration::from_mins(30));
    copy("in-1", Duration::from_hours(3));
    let left = || {
        let entries = std::fs::read_dir(fixture.directory.path()).unwrap();
        let mut names: Vec<_> = entries.map(|entry| entry.unwrap().file_name()).collect();
        names.sort();
        names
    };
    let chat = fixture.fake.chat();
    let delivery = delivery(&chat, vec![sample::binary_file("a.bin", 10)]);
    deliver(&fixture.bridge(), &delivery).await.unwrap();
    assert_eq!(left(), ["in-1", "out-2"]);
    copy("out-3", Duration::from_hours(3));
    fixture
        .fake
        .write(json!({ "messageId": "m1", "chatId": "49@s.whatsapp.net" }));
    let bridge = fixture.bridge();
    let stop = CancellationToken::new();
    let (sink, _stored) = conformance::RecordingSink::new(0);
    let polling = bridge.poll(&sink, stop.clone());
    let stopping = async {
        dray_testkit::eventually("the removal", async || (left().len() == 2).then_some(())).await;
        stop.cancel();
    };
    let (polled, ()) = tokio::join!(polling, stopping);
    polled.unwrap();
    assert_eq!(left(), ["in-1", "out-2"]);
}

#[derive(Debug, Default)]
struct RecordingSink {
    messages: Mutex<Vec<InboundMessage>>,
    stop: CancellationToken,
}

#[async_trait]
impl InboundSink for RecordingSink {
    async fn message(&self, message: InboundMessage) -> Result<(), dray_platform::PlatformError> {
        self.messages.lock().unwrap().push(message);
        self.stop.cancel();
        Ok(())
    }
}

#[tokio::test]
async fn files_of_users_are_read_from_the_shared_directory_only() {
    let fixture = BridgeFixture::new().await;
    let path = fixture.directory.path().join("in.txt");
    std::fs::write(&path, "hello").unwrap();
    fixture.fake.write(json!({
        "messageId": "m1", "chatId": "49@s.whatsapp.net", "senderId": "49@s.whatsapp.net", "body": "look",
        "mediaType": "document", "mediaUrls": [path],
    }));
    let bridge = fixture.bridge();
    let inbound = RecordingSink::default();
    bridge.poll(&inbound, inbound.stop.clone()).await.unwrap();
    let message = inbound.messages.lock().unwrap().pop().unwrap();
    assert_eq!(
        (message.text.as_str(), message.message_id.as_str()),
        ("look", "m1")
    );
    let stream = bridge.fetch(&message.attachments[0]).await.unwrap();
    let chunks: Vec<Bytes> = stream.try_collect().await.unwrap();
    assert_eq!(chunks.concat(), b"hello");
    std::os::unix::fs::symlink("/etc/passwd", fixture.directory.path().join("link")).unwrap();
    for outside in ["/etc/passwd", "link", "."] {
        let mut attachment = message.attachments[0].clone();
        attachment.reference = fixture
            .directory
            .path()
            .join(outside)
            .to_str()
            .unwrap()
            .to_owned();
        let error = bridge.fetch(&attachment).await.map(drop).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Forbidden, "{outside}");
    }
    let request = WebhookRequest {
        method: "POST".to_owned(),
        query: String::new(),
        headers: Vec::new(),
        body: Bytes::new(),
    };
    assert!(bridge.webhook(&request).is_err());
}

#[tokio::test]
async fn messages_that_could_not_be_stored_are_stored_by_the_next_poll() {
    let fixture = BridgeFixture::new().await;
    for id in ["m1", "m2"] {
        fixture.fake.write(json!({
            "messageId": id, "chatId": "49@s.whatsapp.net", "senderId": "49@s.whatsapp.net", "body": "hello",
        }));
    }
    let bridge = fixture.bridge();
    let (sink, mut stored) = conformance::RecordingSink::new(1);
    let stop = CancellationToken::new();
    let error = bridge.poll(&sink, stop.clone()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Transient);
    stop.cancel();
    bridge.poll(&sink, stop).await.unwrap();
    let mut ids = Vec::new();
    while let Ok(message) = stored.try_recv() {
        ids.push(message.message_id);
    }
    assert_eq!(ids, ["m1", "m2"]);
}

#[tokio::test]
async fn a_malformed_message_does_not_hide_the_others() {
    let fixture = BridgeFixture::new().await;
    for id in [json!(5), json!("m2")] {
        fixture.fake.write(json!({
            "messageId": id, "chatId": "49@s.whatsapp.net", "senderId": "49@s.whatsapp.net", "body": "hello",
        }));
    }
    let (sink, mut stored) = conformance::RecordingSink::new(0);
    let stop = CancellationToken::new();
    stop.cancel();
    fixture.bridge().poll(&sink, stop).await.unwrap();
    assert_eq!(stored.try_recv().unwrap().message_id, "m2");
}

#[tokio::test]
async fn a_wrong_token_ends_the_polling() {
    let fixture = BridgeFixture::new().await;
    let options = BridgeOptions {
        token: Secret::new("wrong"),
        ..fixture.options()
    };
    let bridge = BridgePlatform::new("", options).unwrap();
    let error = bridge
        .poll(&RecordingSink::default(), CancellationToken::new())
        .await
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Auth);
}

#[tokio::test]
async fn bridges_outside_loopback_are_refused() {
    let fixture = BridgeFixture::new().await;
    for (url, is_accepted) in [
        ("http://127.0.0.1:3000", true),
        ("http://[::1]:3000", true),
        ("http://localhost:3000", true),
        ("http://10.0.0.1:3000", false),
        ("https://bridge.example", false),
        ("nowhere", false),
    ] {
        let options = BridgeOptions {
            base_url: url.to_owned(),
            ..fixture.options()
        };
        assert_eq!(
            BridgePlatform::new("", options).is_ok(),
            is_accepted,
            "{url}"
        );
    }
}

#[tokio::test]
async fn an_account_check_reports_whether_the_phone_is_connected() {
    let fixture = BridgeFixture::new().await;
    let bridge = BridgePlatform::new("", fixture.options()).unwrap();
    let check = bridge.check_account().await.unwrap();
    assert_eq!(check.files, dray_platform::FilePermission::Allowed);
    fixture.fake.report_status("disconnected");
    let failed = bridge.check_account().await.unwrap_err();
    assert_eq!(
        (failed.kind(), failed.send_outcome()),
        (ErrorKind::Transient, SendOutcome::NotSent)
    );
    let wrong = BridgeOptions {
        token: Secret::new("wrong"),
        ..fixture.options()
    };
    let refused = BridgePlatform::new("", wrong)
        .unwrap()
        .check_account()
        .await;
    assert_eq!(refused.unwrap_err().kind(), ErrorKind::Auth);
}
