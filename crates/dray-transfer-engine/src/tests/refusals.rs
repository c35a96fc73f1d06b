//! Tests of files that are not read, and of the reasons.

use dray_sandbox::metadata::FileKind;
use dray_sandbox_conformance::fake::{Call, Change, Fault};
use futures_util::future::join;

use super::get::{fixture, other};
use super::*;
use crate::policy::Finding;

#[tokio::test(start_paused = true)] // paused clock
async fn a_file_above_the_limit_is_not_opened() {
    let mut fixture = fixture();
    fixture.max_bytes = 4999;
    let failed = fixture.get("/work/a").await.0.unwrap_err();
    assert_eq!(failed.error.numbers(), Some((5000, 4999)));
    assert_eq!(fixture.fake.count(Call::Read), 0);
    fixture.max_bytes = 5000;
    fixture.got("/work/a").await;
}

#[tokio::test(start_paused = true)] // paused clock
async fn r_2_only_regular_files_are_opened() {
    let fixture = fixture();
    fixture.fake.special("/work/fifo", FileKind::Fifo);
    fixture.fake.special("/work/socket", FileKind::Socket);
    fixture.fake.special("/work/zero", FileKind::CharDevice);
    fixture.fake.link("/work/to-fifo", "fifo");
    fixture.fake.link("/work/loop", "loop");
    for (file, expected) in [
        ("/work/fifo", ErrorKind::NotRegular),
        ("/work/socket", ErrorKind::NotRegular),
        ("/work/zero", ErrorKind::NotRegular),
        ("/work/to-fifo", ErrorKind::NotRegular),
        ("/work", ErrorKind::IsDirectory),
        ("/work/loop", ErrorKind::Loop),
        ("/work/a/b", ErrorKind::NotDirectory),
        ("/work/none", ErrorKind::NotFound),
    ] {
        assert_eq!(fixture.refused(file).await.0, expected, "{file}");
    }
    assert_eq!(fixture.fake.count(Call::Read), 0);
}

#[tokio::test(start_paused = true)] // paused clock
async fn a_file_of_size_zero_that_returns_bytes_is_not_a_regular_file() {
    let fixture = fixture();
    fixture.fake.file("/work/pseudo", "");
    fixture.fake.script(Call::Read, [Fault::Endless(100)]);
    let (kind, receipt) = fixture.refused("/work/pseudo").await;
    assert_eq!((kind, receipt.attempts), (ErrorKind::NotRegular, 1));
}

#[tokio::test(start_paused = true)] // paused clock
async fn a_link_is_followed_only_to_where_its_target_may_be_read() {
    let fixture = fixture();
    fixture.fake.directory("/home/agent/.ssh");
    fixture.fake.file("/home/agent/x", "x");
    fixture.fake.directory("/etc");
    fixture.fake.file("/etc/shadow", "root");
    fixture.fake.file("/work/.env", "KEY=1");
    fixture.fake.link("/work/good", "./a");
    fixture.fake.link("/work/out", "../home/agent/x");
    fixture.fake.link("/work/shadow", "/etc/shadow");
    fixture.fake.link("/work/config.txt", ".env");
    fixture.fake.link("/work/dir", "/etc");
    assert_eq!(
        fixture.got("/work/a").await.0.sha256,
        fixture.get("/work/good").await.0.unwrap().sha256
    );
    let reads = fixture.fake.count(Call::Read);
    for (file, expected) in [
        ("/work/out", ErrorKind::OutsideRoot),
        ("/home/agent/x", ErrorKind::OutsideRoot),
        ("/work/shadow", ErrorKind::DeniedPath),
        ("/work/dir/shadow", ErrorKind::DeniedPath),
        ("/work/config.txt", ErrorKind::DeniedPath),
        ("/work/.env", ErrorKind::DeniedPath),
    ] {
        assert_eq!(fixture.refused(file).await.0, expected, "{file}");
    }
    assert_eq!(fixture.fake.count(Call::Read), reads);
}

#[tokio::test(start_paused = true)] // paused clock
async fn r_2_only_the_checked_file_is_read() {
    let fixture = fixture();
    fixture.fake.directory("/etc");
    fixture.fake.file("/etc/shadow", "root");
    let link = Change::Link(path("/etc/shadow"));
    fixture.fake.script(Call::Read, [Fault::Before(link)]);
    let (kind, _) = fixture.refused("/work/a").await;
    assert_eq!(kind, ErrorKind::NotRegular);
    let fixture = self::fixture();
    fixture
        .fake
        .script(Call::Read, [Fault::Before(Change::Replace(other(5000)))]);
    assert_eq!(fixture.got("/work/a").await.0.receipt.attempts, 2);
}

#[tokio::test(start_paused = true)] // paused clock
async fn a_failure_of_the_sink_is_not_tried_again() {
    let fixture = fixture();
    let mut sink = RecordingSink {
        fails_after: Some(2000),
        ..RecordingSink::default()
    };
    let failed = fixture.get_into("/work/a", &mut sink).await.unwrap_err();
    assert_eq!(
        (failed.error.kind(), failed.receipt.attempts),
        (ErrorKind::NoSpace, 1)
    );
    assert!(sink.aborted);
}

#[tokio::test(start_paused = true)] // paused clock
async fn cancelling_closes_the_stream_and_aborts_the_sink() {
    let fixture = fixture();
    fixture.fake.script(Call::Read, [Fault::Stall(1024)]);
    let cancel = CancellationToken::new();
    let mut sink = RecordingSink::default();
    let options = GetOptions {
        policy: &fixture.policy,
        max_bytes: 1 << 20,
    };
    let file = path("/work/a");
    let get = fixture.engine.get(&file, &options, &mut sink, &(), &cancel);
    let stop = async {
        until(|| fixture.fake.streams() == 1).await;
        cancel.cancel();
    };
    let (got, ()) = join(get, stop).await;
    let failed = got.unwrap_err();
    assert!(failed.cancelled && sink.aborted && sink.finished.is_none());
    assert_eq!(fixture.fake.streams(), 0);
}

#[tokio::test(start_paused = true)] // paused clock
async fn the_number_of_concurrent_transfers_is_limited() {
    let fake = Fake::new();
    fake.parallel(1);
    fake.file("/work/a", pattern(5000));
    fake.script(Call::Read, [Fault::Stall(0)]);
    let fixture = EngineFixture::new(fake);
    let options = GetOptions {
        policy: &fixture.policy,
        max_bytes: 1 << 20,
    };
    let (file, cancel) = (path("/work/a"), CancellationToken::new());
    let (mut one, mut two) = (RecordingSink::default(), RecordingSink::default());
    let first = fixture.engine.get(&file, &options, &mut one, &(), &cancel);
    let second = fixture.engine.get(&file, &options, &mut two, &(), &cancel);
    let watch = async {
        until(|| fixture.fake.streams() == 1).await;
        for _ in 0..1000 {
            tokio::task::yield_now().await;
            assert_eq!(fixture.fake.count(Call::Read), 1);
        }
    };
    let ((first, second), ()) = join(join(first, second), watch).await;
    first.unwrap();
    second.unwrap();
}

#[tokio::test(start_paused = true)] // paused clock
async fn r_11_a_sandbox_that_will_end_too_early_gets_no_transfer() {
    let fake = Fake::new();
    fake.file("/work/long", vec![7; 9 << 20]);
    let fixture = EngineFixture::new(fake);
    fixture
        .fake
        .script(Call::EnsureLifetime, [Fault::Fail(ErrorKind::SandboxGone)]);
    let (kind, receipt) = fixture.refused("/work/long").await;
    assert_eq!((kind, receipt.attempts), (ErrorKind::SandboxGone, 0));
    fixture
        .fake
        .script(Call::EnsureLifetime, [Fault::Fail(ErrorKind::Unavailable)]);
    fixture.got("/work/long").await;
}

#[tokio::test(start_paused = true)] // paused clock
async fn refuses_a_bundle_whose_private_key_follows_a_certificate() {
    let fixture = fixture();
    let certificate = format!(
        "-----BEGIN CERTIFICATE-----\n{}\n-----END CERTIFICATE-----\n",
        "MIIBszCCAVmgAwIBAgIU".repeat(8000)
    );
    for (name, after, refused) in [
        ("/work/bundle.pem", "-----BEGIN PRIVATE KEY-----\nMII", true),
        ("/work/ca.pem", "", false),
    ] {
        fixture.fake.file(name, format!("{certificate}{after}"));
        if refused {
            let (kind, receipt) = fixture.refused(name).await;
            assert_eq!((kind, receipt.attempts), (ErrorKind::DeniedPath, 1));
        } else {
            assert_eq!(fixture.got(name).await.0.warning, None);
        }
    }
}

#[tokio::test(start_paused = true)] // paused clock
async fn content_that_looks_like_a_secret_is_reported_or_refused() {
    let mut fixture = fixture();
    fixture
        .fake
        .file("/work/notes.txt", format!("token: ghp_{}", "x1".repeat(20)));
    fixture
        .fake
        .file("/work/server.pem", "-----BEGIN PRIVATE KEY-----\nMII");
    fixture
        .fake
        .file("/work/key.txt", "my key:\n-----BEGIN PRIVATE KEY-----\nMII");
    let (got, _) = fixture.got("/work/notes.txt").await;
    assert_eq!(got.warning, Some(Finding::Token("GitHub")));
    assert_eq!(
        fixture.refused("/work/key.txt").await.0,
        ErrorKind::DeniedPath
    );
    fixture.policy = fixture.policy.with_content(ContentAction::Warn);
    let (got, _) = fixture.got("/work/key.txt").await;
    assert_eq!(got.warning, Some(Finding::PrivateKey));
    let (kind, receipt) = fixture.refused("/work/server.pem").await;
    assert_eq!((kind, receipt.attempts), (ErrorKind::DeniedPath, 1));
    fixture.policy = fixture.policy.with_content(ContentAction::Block);
    assert_eq!(
        fixture.refused("/work/notes.txt").await.0,
        ErrorKind::DeniedPath
    );
    assert_eq!(fixture.got("/work/a").await.0.warning, None);
}
