//! Downloads of files that users sent.

use bytes::Bytes;
use dray_platform::conformance::sample;
use dray_platform::{ErrorKind, InboundAttachment, InboundSource as _, PlatformError};
use dray_testkit::http::{FakeHttpServer, ResponseScript, ScriptedResponder};
use futures_util::TryStreamExt as _;

use super::BotFixture;
use crate::fake_server::{BOT_TOKEN, FakeTelegram, InjectedFault, UserFile};

/// A user's file as the inbox reports it.
fn attachment(fixture: &BotFixture, file: UserFile) -> InboundAttachment {
    let update = fixture.fake.user_writes(fixture.chat, "", Some(file));
    let message = crate::update::inbound_message("", &update, Some(20 << 20));
    message.unwrap().unwrap().attachments.remove(0)
}

async fn fetch(
    fixture: &BotFixture,
    attachment: &InboundAttachment,
) -> Result<Vec<u8>, PlatformError> {
    let stream = fixture.bot.fetch(attachment).await?;
    let chunks: Vec<Bytes> = stream.try_collect().await?;
    Ok(chunks.concat())
}

#[tokio::test]
async fn every_kind_of_file_is_fetched_byte_for_byte() {
    let fixture = BotFixture::new().await;
    for kind in ["photo", "document", "audio", "voice", "video", "sticker"] {
        let bytes = sample::patterned_bytes(300_000);
        let received = attachment(&fixture, UserFile::new(kind, "ä b#c?.bin", bytes.clone()));
        assert_eq!(fetch(&fixture, &received).await.unwrap(), bytes, "{kind}");
    }
}

#[tokio::test]
async fn a_file_over_the_limit_is_not_requested() {
    let fixture = BotFixture::new().await;
    let big = UserFile {
        size: Some(21 << 20),
        ..UserFile::new("document", "big.zip", "")
    };
    let received = attachment(&fixture, big);
    let error = fetch(&fixture, &received).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::TooLarge);
    assert_eq!(error.numbers(), Some((21 << 20, 20 << 20)));
    assert_eq!(fixture.fake.requests(), Vec::<String>::new());
}

#[tokio::test]
async fn a_file_that_the_server_refuses_as_too_big_is_reported_with_the_limit() {
    let fixture = BotFixture::new().await;
    let big = UserFile {
        size: Some(21 << 20),
        ..UserFile::new("document", "big.zip", "")
    };
    let mut received = attachment(&fixture, big);
    received.size = 0;
    let error = fetch(&fixture, &received).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::TooLarge);
    assert_eq!(error.numbers().unwrap().1, 20 << 20);
    assert_eq!(fixture.fake.requests(), ["getFile"]);
}

#[tokio::test]
async fn a_file_id_that_the_server_forgot_is_stale() {
    let fixture = BotFixture::new().await;
    let received = attachment(&fixture, UserFile::new("document", "a.bin", "bytes"));
    fixture.fake.forget_files();
    let error = fetch(&fixture, &received).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::StaleFileId);
}

#[tokio::test]
async fn a_missing_path_does_not_show_the_token() {
    let fixture = BotFixture::new().await;
    let received = attachment(&fixture, UserFile::new("document", "a.bin", "bytes"));
    fixture
        .fake
        .script(InjectedFault::ReturnPath("documents/gone".to_owned()));
    let error = fetch(&fixture, &received).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::StaleFileId);
}

#[tokio::test]
async fn paths_outside_of_the_directory_are_not_followed() {
    let fixture = BotFixture::new().await;
    for path in [
        "../bot4242:x/getMe",
        "/etc/passwd",
        "a/../../b",
        "a//b",
        "a\\..\\b",
        "",
    ] {
        let received = attachment(&fixture, UserFile::new("document", "a.bin", "bytes"));
        fixture
            .fake
            .script(InjectedFault::ReturnPath(path.to_owned()));
        let error = fetch(&fixture, &received).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::BadFormat, "{path:?}");
    }
    assert!(!fixture.fake.requests().contains(&"file".to_owned()));
}

#[tokio::test]
async fn r_9_a_redirect_is_not_followed() {
    let fixture = BotFixture::new().await;
    let other = FakeHttpServer::start(ScriptedResponder::always(ResponseScript::ok("evil")))
        .await
        .unwrap();
    let address = format!("http://{}/x", other.address());
    let received = attachment(&fixture, UserFile::new("document", "a.bin", "bytes"));
    fixture
        .fake
        .script(InjectedFault::RedirectDownload(address));
    let error = fetch(&fixture, &received).await.unwrap_err();
    assert!(!format!("{error:?}").contains(BOT_TOKEN));
    assert_eq!(other.received_requests(), []);
}

#[tokio::test]
async fn a_download_that_breaks_is_a_failure() {
    let fixture = BotFixture::new().await;
    let bytes = sample::patterned_bytes(300_000);
    let received = attachment(&fixture, UserFile::new("document", "a.bin", bytes));
    fixture.fake.script(InjectedFault::CutDownload);
    let error = fetch(&fixture, &received).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Transient);
}

#[tokio::test]
async fn a_file_of_another_length_than_reported_is_a_failure() {
    let fixture = BotFixture::new().await;
    for size in [4, 6] {
        let file = UserFile {
            size: Some(size),
            ..UserFile::new("document", "a.bin", "bytes")
        };
        let error = fetch(&fixture, &attachment(&fixture, file))
            .await
            .unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Transient, "{size}");
    }
}

/// A self-hosted server in local mode, with files in a directory.
async fn local_server(directory: Option<std::path::PathBuf>) -> BotFixture {
    let fake = FakeTelegram::start_with(2_000_000_000).await.unwrap();
    let mut options = super::options(&fake);
    options.local_mode = true;
    options.local_files = directory;
    BotFixture {
        bot: super::TelegramPlatform::new("", options).unwrap(),
        chat: fake.chat(),
        fake,
    }
}

#[tokio::test]
async fn files_of_a_local_server_are_read_from_its_directory_only() {
    let directory = tempfile::tempdir().unwrap();
    let outside = tempfile::tempdir().unwrap();
    let inside = directory.path().join("documents");
    std::fs::create_dir(&inside).unwrap();
    std::fs::write(inside.join("file_1"), "bytes").unwrap();
    std::fs::write(outside.path().join("secret"), "bytes").unwrap();
    let link = inside.join("link");
    std::os::unix::fs::symlink(outside.path().join("secret"), &link).unwrap();
    let fixture = local_server(Some(directory.path().to_owned())).await;
    let ask = async |path: std::path::PathBuf| {
        let received = attachment(&fixture, UserFile::new("document", "a.bin", "bytes"));
        let path = path.to_str().unwrap().to_owned();
        fixture.fake.script(InjectedFault::ReturnPath(path));
        fetch(&fixture, &received).await
    };
    assert_eq!(ask(inside.join("file_1")).await.unwrap(), b"bytes");
    for path in [
        outside.path().join("secret"),
        link,
        inside.join("../../secret-that-is-none"),
        inside.clone(),
    ] {
        let error = ask(path.clone()).await.unwrap_err();
        let kinds = [ErrorKind::Forbidden, ErrorKind::Transient];
        assert!(kinds.contains(&error.kind()), "{path:?}: {error}");
        assert!(!error.context().contains("secret"));
    }
}

#[tokio::test]
async fn without_its_directory_no_file_of_a_local_server_is_read() {
    let fixture = local_server(None).await;
    let received = attachment(&fixture, UserFile::new("document", "a.bin", "bytes"));
    fixture
        .fake
        .script(InjectedFault::ReturnPath("/etc/hostname".to_owned()));
    let error = fetch(&fixture, &received).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Forbidden);
}

#[tokio::test]
async fn a_local_server_serves_relative_paths_by_http() {
    let fixture = local_server(None).await;
    let bytes = sample::patterned_bytes(100_000);
    let received = attachment(&fixture, UserFile::new("document", "a.bin", bytes.clone()));
    assert_eq!(fetch(&fixture, &received).await.unwrap(), bytes);
}
