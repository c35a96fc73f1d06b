//! Tests of the bot with its fake server.

mod files;
mod inbox;
mod question;

use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use dray_media_type::kind;
use dray_platform::conformance::{
    self, NoProgress, PlatformFault, PlatformFixture, PlatformTraits, SeenFile, VisibleMessage,
    plain_delivery, sample, send_only_step,
};
use dray_platform::{
    ByteSource, ByteStream, CredentialCheck, DeliveryTarget, ErrorKind, FilePermission,
    OutgoingDelivery, OutgoingFile, Platform, Route, SendOutcome, SendRequest,
};
use dray_types::{Clock, Secret, Sha256Digest};
use futures_util::StreamExt as _;
use serde_json::json;

use crate::fake_server::{FakeDiscord, InjectedFault};
use crate::{DiscordOptions, DiscordPlatform};

/// One second after the time in the ids of the fake server, in Unix milliseconds.
const NOW_MS: u64 = 1_658_488_979_101 + 1000;

fn options(fake: &FakeDiscord) -> DiscordOptions {
    DiscordOptions {
        token: fake.token(),
        base_url: fake.url(),
        ..DiscordOptions::default()
    }
}

fn bot(options: DiscordOptions) -> DiscordPlatform {
    DiscordPlatform::new(options, Clock::manual(NOW_MS)).unwrap()
}

fn target(chat: &str) -> DeliveryTarget {
    DeliveryTarget {
        platform: "discord".to_owned(),
        account: String::new(),
        chat: chat.to_owned(),
        thread: String::new(),
        reply_to: String::new(),
    }
}

#[derive(Debug)]
struct DiscordFixture {
    fake: FakeDiscord,
}

#[async_trait]
impl PlatformFixture for DiscordFixture {
    fn platform(&self) -> Arc<dyn Platform> {
        Arc::new(bot(options(&self.fake)))
    }

    async fn chat(&self) -> DeliveryTarget {
        target(&self.fake.channel(2))
    }

    async fn visible_messages(&self, target: &DeliveryTarget) -> Vec<VisibleMessage> {
        let messages = self.fake.visible_messages(&target.chat).into_iter();
        messages
            .map(|message| VisibleMessage {
                message_id: message.id,
                text: message.text,
                files: message
                    .files
                    .into_iter()
                    .map(|(name, content)| SeenFile::named(name, content.size, content.sha256))
                    .collect(),
                thread: String::new(),
                reply_to: message.reply_to,
            })
            .collect()
    }

    async fn script(&self, fault: PlatformFault) -> bool {
        self.fake.script(match fault {
            PlatformFault::RateLimit(wait) => InjectedFault::RateLimit(wait),
            PlatformFault::FailAfterBody => InjectedFault::Fail(502),
            PlatformFault::LoseResponse => InjectedFault::LoseResponse,
            PlatformFault::CloseDuringBody => InjectedFault::CloseDuringBody,
            PlatformFault::TooLarge => {
                InjectedFault::Refuse(413, 40_005, "Request entity too large")
            }
            PlatformFault::ForgetFiles => InjectedFault::ForgetFiles,
            PlatformFault::Gibberish => InjectedFault::Gibberish,
        });
        true
    }

    fn unknown_target(&self) -> Option<DeliveryTarget> {
        Some(target("404"))
    }

    fn with_wrong_credentials(&self) -> Option<Arc<dyn Platform>> {
        Some(Arc::new(bot(DiscordOptions {
            token: Secret::new("wrong.token"),
            ..options(&self.fake)
        })))
    }

    fn with_unreachable_server(&self) -> Option<Arc<dyn Platform>> {
        Some(Arc::new(bot(DiscordOptions {
            base_url: "http://127.0.0.1:1/api/v10".to_owned(),
            ..options(&self.fake)
        })))
    }

    fn received(&self) -> u64 {
        self.fake.received()
    }

    fn secrets(&self) -> Vec<String> {
        vec![
            self.fake.token().expose().to_owned(),
            "wrong.token".to_owned(),
        ]
    }

    fn traits(&self) -> PlatformTraits {
        PlatformTraits::default()
    }
}

#[tokio::test]
async fn passes_the_conformance_suite() {
    let fixture = DiscordFixture {
        fake: FakeDiscord::start().await.unwrap(),
    };
    match conformance::run_all(&fixture).await {
        Ok(report) => assert_eq!(
            report.skipped,
            ["a_known_file_id_saves_the_upload", "a_thread_is_kept"]
        ),
        Err(failures) => panic!("{failures}"),
    }
}

fn delivery(chat: &str, files: Vec<OutgoingFile>) -> OutgoingDelivery {
    plain_delivery(target(chat), "", files)
}

async fn deliver(
    discord: &DiscordPlatform,
    delivery: &OutgoingDelivery,
    key: &str,
) -> Result<String, dray_platform::PlatformError> {
    let confirmed = send_only_step(discord, delivery, key).await?;
    Ok(confirmed.first().unwrap().message_id.clone())
}

#[tokio::test]
async fn r_8_the_same_key_returns_the_same_message() {
    let fake = FakeDiscord::start().await.unwrap();
    let channel = fake.channel(0);
    let discord = bot(options(&fake));
    let delivery = delivery(&channel, vec![sample::binary_file("a.bin", 10)]);
    let key = "abcdefghijklmnopqrstuv";
    fake.script(InjectedFault::LoseResponse);
    let lost = deliver(&discord, &delivery, key).await.unwrap_err();
    assert_eq!(lost.send_outcome(), SendOutcome::Ambiguous);
    let repeated = deliver(&discord, &delivery, key).await.unwrap();
    let messages = fake.visible_messages(&channel);
    assert_eq!(messages.len(), 1);
    assert_eq!(messages[0].id, repeated);
    deliver(&discord, &delivery, "another-key-of-a-step1")
        .await
        .unwrap();
    assert_eq!(fake.visible_messages(&channel).len(), 2);
}

#[tokio::test]
async fn r_6_limits_follow_the_boosts_of_the_server() {
    let fake = FakeDiscord::start().await.unwrap();
    for (boosts, expected) in [(0, 10 << 20), (1, 10 << 20), (2, 50 << 20), (3, 100 << 20)] {
        let channel = fake.channel(boosts);
        let discord = bot(options(&fake));
        let limits = discord.limits(&target(&channel)).await.unwrap();
        assert_eq!(limits.of(Route::Attachment), expected, "level {boosts}");
    }
}

#[tokio::test]
async fn an_archived_thread_is_unarchived_once() {
    let fake = FakeDiscord::start().await.unwrap();
    let (channel, thread) = (fake.channel(0), fake.channel(0));
    fake.archive(&thread);
    let discord = bot(options(&fake));
    let mut delivery = delivery(&channel, vec![sample::binary_file("a.bin", 10)]);
    delivery.target.thread.clone_from(&thread);
    deliver(&discord, &delivery, "k").await.unwrap();
    assert_eq!(fake.visible_messages(&thread).len(), 1);
    fake.script(InjectedFault::Refuse(400, 50_083, "Thread is archived"));
    fake.script(InjectedFault::Refuse(400, 50_083, "Thread is archived"));
    let error = deliver(&discord, &delivery, "l").await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Forbidden);
}

#[tokio::test]
async fn a_message_that_the_filter_for_links_blocks_is_sent_once_more_without_previews() {
    let fake = FakeDiscord::start().await.unwrap();
    let channel = fake.channel(0);
    let discord = bot(options(&fake));
    let delivery = delivery(&channel, vec![sample::binary_file("a.bin", 10)]);
    let block = || {
        let reason = "Message blocked by harmful links filter";
        fake.script(InjectedFault::Refuse(400, 240_000, reason));
    };
    block();
    deliver(&discord, &delivery, "k").await.unwrap();
    assert_eq!(fake.visible_messages(&channel)[0].payload["flags"], 4);
    block();
    block();
    let error = deliver(&discord, &delivery, "l").await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Forbidden);
}

#[tokio::test]
async fn a_reply_to_a_deleted_message_is_sent_as_a_plain_message() {
    let fake = FakeDiscord::start().await.unwrap();
    let channel = fake.channel(0);
    let discord = bot(options(&fake));
    let mut delivery = delivery(&channel, vec![sample::binary_file("a.bin", 10)]);
    "404".clone_into(&mut delivery.target.reply_to);
    fake.script(InjectedFault::Refuse(400, 10_008, "Unknown Message"));
    deliver(&discord, &delivery, "k").await.unwrap();
    assert_eq!(fake.visible_messages(&channel)[0].reply_to, "");
}

#[tokio::test]
async fn a_mention_notifies_no_user_and_a_link_has_no_preview() {
    let fake = FakeDiscord::start().await.unwrap();
    let channel = fake.channel(0);
    let discord = bot(options(&fake));
    let delivery = delivery(&channel, Vec::new());
    let step = dray_platform::SendStep::Link("https://example.org/x?sig=1".to_owned());
    let send = SendRequest {
        delivery: &delivery,
        step: &step,
        prepared: "",
        key: "k",
        repeated: false,
    };
    discord.send(send, &NoProgress).await.unwrap();
    let payload = &fake.visible_messages(&channel)[0].payload;
    assert_eq!(payload["flags"], 4);
    assert_eq!(payload["allowed_mentions"], json!({ "parse": [] }));
}

/// An Ogg page that ends with this sample.
fn ogg_page(granule: u64, body: &[u8]) -> Vec<u8> {
    let mut page = b"OggS\0\0".to_vec();
    page.extend_from_slice(&granule.to_le_bytes());
    page.extend_from_slice(&[0; 12]);
    page.push(1);
    page.push(u8::try_from(body.len()).unwrap());
    page.extend_from_slice(body);
    page
}

#[derive(Debug)]
struct ChunkedSource(Vec<u8>, usize);

#[async_trait]
impl ByteSource for ChunkedSource {
    async fn open(&self) -> Result<ByteStream, dray_platform::PlatformError> {
        let chunks: Vec<_> = self
            .0
            .chunks(self.1)
            .map(Bytes::copy_from_slice)
            .map(Ok)
            .collect();
        Ok(futures_util::stream::iter(chunks).boxed())
    }
}

#[tokio::test]
async fn a_voice_message_has_its_duration() {
    let fake = FakeDiscord::start().await.unwrap();
    let channel = fake.channel(0);
    let discord = bot(options(&fake));
    let mut bytes = ogg_page(0, b"OpusHead\x01\x01\0\0\x80\xbb\0\0\0\0\0");
    bytes.extend(ogg_page(48_000, &[1; 200]));
    bytes.extend(ogg_page(120_000, &[2; 100]));
    for chunk in [bytes.len(), 7, 1] {
        let file = OutgoingFile {
            name: "voice.ogg".to_owned(),
            size: bytes.len() as u64,
            sha256: Sha256Digest::of(&bytes),
            detected: kind::detect_kind(&bytes, "voice.ogg", bytes.len() as u64),
            source: Arc::new(ChunkedSource(bytes.clone(), chunk)),
            file_id: None,
        };
        let mut delivery = delivery(&channel, vec![file]);
        delivery.flags.as_voice = true;
        deliver(&discord, &delivery, &format!("key{chunk}"))
            .await
            .unwrap();
        let payload = fake
            .visible_messages(&channel)
            .last()
            .unwrap()
            .payload
            .clone();
        assert_eq!(payload["flags"], 8192);
        assert_eq!(payload["attachments"][0]["duration_secs"], 2.5, "{payload}");
        let waveform = payload["attachments"][0]["waveform"].as_str();
        assert!(waveform.is_some_and(|waveform| !waveform.is_empty()));
    }
}

#[tokio::test]
async fn a_refused_voice_message_is_sent_as_a_file_after_the_text() {
    let fake = FakeDiscord::start().await.unwrap();
    let discord = bot(options(&fake));
    let channel = fake.channel(0);
    let bytes = ogg_page(0, b"OpusHead\x01\x01\0\0\x80\xbb\0\0\0\0\0");
    let file = OutgoingFile {
        name: "voice.ogg".to_owned(),
        size: bytes.len() as u64,
        sha256: Sha256Digest::of(&bytes),
        detected: kind::detect_kind(&bytes, "voice.ogg", bytes.len() as u64),
        source: Arc::new(ChunkedSource(bytes.clone(), 10)),
        file_id: None,
    };
    let mut delivery = delivery(&channel, vec![file, sample::binary_file("a.bin", 10)]);
    delivery.flags.as_voice = true;
    "hear".clone_into(&mut delivery.message);
    let limits = discord.limits(&delivery.target).await.unwrap();
    let steps = discord.plan(&delivery, &limits);
    let routes: Vec<_> = steps
        .iter()
        .map(|step| (step.route(), step.text()))
        .collect();
    assert_eq!(routes, [(Route::Attachment, "hear"), (Route::Voice, "")]);
    let refused = dray_platform::PlatformError::new(ErrorKind::BadFormat, "no voice here");
    let fallback = discord.fallback(&delivery, &steps[1], &refused).unwrap();
    assert_eq!(fallback.route(), Route::Attachment);
    assert!(discord.fallback(&delivery, &steps[0], &refused).is_none());
}

#[tokio::test]
async fn ids_that_are_not_numbers_are_refused() {
    let fake = FakeDiscord::start().await.unwrap();
    let discord = bot(options(&fake));
    for chat in ["../users/@me", "1/2", "", "1?x"] {
        let error = discord.limits(&target(chat)).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NotFound, "{chat}");
    }
    assert!(fake.requests().is_empty());
}

#[tokio::test]
async fn discord_py_accepts_the_fake_api() {
    let fake = FakeDiscord::start().await.unwrap();
    let channel = fake.channel(0);
    fake.join("a server", 1 << 15);
    let arguments = [
        fake.url(),
        fake.token().expose().to_owned(),
        channel.clone(),
    ];
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let output = dray_testkit::python::run_script("discord_client.py", "discord", &arguments).await;
    let messages = fake.visible_messages(&channel);
    assert_eq!(output["id"], messages[0].id);
    assert_eq!(output["sizes"], json!([102_400, 5]));
    assert_eq!(messages[0].files[1].1.sha256, Sha256Digest::of(b"small"));
    assert_eq!(output["answer"], "hello");
    assert_eq!(messages[1].reply_to, messages[0].id);
    assert_eq!(output["channel"], 10_003);
    assert_eq!(output["empty"], 50_006);
    assert_eq!(output["servers"], json!(["a server"]));
}

#[tokio::test]
async fn an_account_check_names_the_bot_and_counts_servers_where_it_may_attach_files() {
    let fake = FakeDiscord::start().await.unwrap();
    let discord = bot(options(&fake));
    let file_permission = async || discord.check_account().await.unwrap().files;
    assert!(
        matches!(file_permission().await, FilePermission::PerChat(reason) if reason.contains("no server"))
    );
    fake.join("mute", 1 << 11);
    assert!(matches!(file_permission().await, FilePermission::Denied(_)));
    fake.join("open", 1 << 15);
    let check = discord.check_account().await.unwrap();
    assert_eq!(check.identity, "fake");
    assert_eq!(check.credentials, CredentialCheck::Accepted);
    assert!(
        matches!(check.files, FilePermission::PerChat(reason) if reason.contains("in 1 of 2 servers"))
    );
    assert_eq!(check.limits.unwrap(), discord.options.limits(0));
    let wrong_token = bot(DiscordOptions {
        token: Secret::new("wrong"),
        ..options(&fake)
    });
    assert_eq!(
        wrong_token.check_account().await.unwrap_err().kind(),
        ErrorKind::Auth
    );
    let is_get = |request: &String| request.starts_with("GET ");
    assert!(fake.requests().iter().all(is_get), "{:?}", fake.requests());
}
