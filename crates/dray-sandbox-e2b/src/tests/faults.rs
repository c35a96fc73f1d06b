//! Tests of faults of the provider and of the network.

use std::fs;
use std::time::Duration;

use dray_sandbox::{
    Backend as _, BackendCheck, Body, Error, ErrorKind, Follow, Metadata, Read, Sandbox,
    SandboxPath, Transport, Write,
};
use dray_types::Secret;

use super::{E2bFixture, SANDBOX_ID, address};
use crate::fake_server::InjectedFault;
use crate::{Config, E2bBackend};

async fn look(sandbox: &dyn Sandbox, path: &SandboxPath) -> Metadata {
    sandbox.stat(path, Follow::Yes).await.unwrap()
}

async fn read(sandbox: &dyn Sandbox, file: &Metadata, offset: u64) -> Result<Vec<u8>, Error> {
    let transport = Transport::Files;
    let read = Read {
        transport,
        file,
        offset,
    };
    sandbox.read(read).await?.read_all(1 << 24).await
}

async fn write(sandbox: &dyn Sandbox, path: &SandboxPath, bytes: &[u8]) -> Result<(), Error> {
    let write = Write {
        transport: Transport::Files,
        path,
        size: bytes.len() as u64,
        offset: 0,
        mode: 0o644,
    };
    sandbox.write(write, Body::from_bytes(bytes.to_vec())).await
}

fn kind<T>(result: Result<T, Error>) -> ErrorKind {
    result.map(drop).unwrap_err().kind()
}

#[tokio::test]
async fn a_cut_download_is_noticed_and_continues_with_a_range() {
    let fixture = E2bFixture::new().await;
    let sandbox = fixture.sandbox().await;
    let path = fixture.path("file");
    let bytes: Vec<u8> = (0..200_000_u32).flat_map(u32::to_be_bytes).collect();
    fs::write(path.to_text().unwrap(), &bytes).unwrap();
    let file = look(&*sandbox, &path).await;
    fixture
        .fake_server
        .script(InjectedFault::CutDownload(100_000));
    let cut = kind(read(&*sandbox, &file, 0).await);
    assert!(
        matches!(cut, ErrorKind::Unavailable | ErrorKind::Truncated),
        "{cut}"
    );
    let rest = read(&*sandbox, &file, 100_000).await.unwrap();
    assert_eq!(rest, bytes[100_000..]);
    let asked = fixture.fake_server.requests();
    assert!(asked.contains(&"GET /files bytes=100000-".to_owned()));
}

#[tokio::test]
async fn a_range_that_is_ignored_is_not_taken_for_the_rest() {
    let fixture = E2bFixture::new().await;
    let sandbox = fixture.sandbox().await;
    let path = fixture.path("file");
    fs::write(path.to_text().unwrap(), b"0123456789").unwrap();
    let file = look(&*sandbox, &path).await;
    fixture.fake_server.script(InjectedFault::IgnoreRange);
    assert_eq!(kind(read(&*sandbox, &file, 4).await), ErrorKind::Protocol);
}

#[tokio::test]
async fn a_clean_answer_of_another_length_is_a_change() {
    let fixture = E2bFixture::new().await;
    let sandbox = fixture.sandbox().await;
    let path = fixture.path("file");
    fs::write(path.to_text().unwrap(), b"0123456789").unwrap();
    let file = look(&*sandbox, &path).await;
    fixture.fake_server.script(InjectedFault::Instead(b"01234"));
    let changed = ErrorKind::ChangedDuringTransfer;
    assert_eq!(kind(read(&*sandbox, &file, 0).await), changed);
}

#[tokio::test]
async fn a_sandbox_that_dies_in_the_middle_is_gone() {
    let fixture = E2bFixture::new().await;
    let sandbox = fixture.sandbox().await;
    let path = fixture.path("file");
    fs::write(path.to_text().unwrap(), vec![7; 300_000]).unwrap();
    let file = look(&*sandbox, &path).await;
    fixture
        .fake_server
        .script(InjectedFault::DieDuringDownload(1000));
    let gone = ErrorKind::SandboxGone;
    assert_eq!(kind(read(&*sandbox, &file, 0).await), gone);
    assert_eq!(kind(read(&*sandbox, &file, 1000).await), gone);
    fixture.fake_server.run(SANDBOX_ID, fixture.folder.path());
    let sandbox = fixture.sandbox().await;
    fixture.fake_server.script(InjectedFault::DieDuringUpload);
    let written = write(&*sandbox, &fixture.path("new"), &vec![7; 300_000]).await;
    assert_eq!(kind(written), gone);
}

#[tokio::test]
async fn a_gateway_that_gives_up_is_not_a_sandbox_that_is_gone() {
    let fixture = E2bFixture::new().await;
    let sandbox = fixture.sandbox().await;
    let path = fixture.path("file");
    fs::write(path.to_text().unwrap(), b"here").unwrap();
    let file = look(&*sandbox, &path).await;
    let fault = InjectedFault::Refuse("/files", 502, "upstream request timeout");
    fixture.fake_server.script(fault);
    let refused = kind(read(&*sandbox, &file, 0).await);
    assert_eq!(refused, ErrorKind::Unavailable);
    assert_eq!(read(&*sandbox, &file, 0).await.unwrap(), b"here");
}

#[tokio::test]
async fn a_paused_sandbox_says_so() {
    let fixture = E2bFixture::new().await;
    let sandbox = fixture.sandbox().await;
    fixture.fake_server.pause(SANDBOX_ID);
    let path = fixture.path("file");
    let paused = ErrorKind::SandboxPaused;
    assert_eq!(kind(sandbox.stat(&path, Follow::Yes).await), paused);
    assert_eq!(kind(write(&*sandbox, &path, b"x").await), paused);
    let backend = fixture.backend();
    let handle = backend.resolve(&address()).await.unwrap();
    assert_eq!(kind(backend.open(&handle).await), paused);
}

#[tokio::test]
async fn refusals_have_their_kinds_and_delays() {
    let fixture = E2bFixture::new().await;
    let sandbox = fixture.sandbox().await;
    let path = fixture.path("file");
    fs::write(path.to_text().unwrap(), b"here").unwrap();
    let file = look(&*sandbox, &path).await;
    fixture
        .fake_server
        .script(InjectedFault::RateLimit(Duration::from_secs(17)));
    let limited = read(&*sandbox, &file, 0).await.unwrap_err();
    assert_eq!(limited.kind(), ErrorKind::RateLimited);
    assert_eq!(limited.retry_after(), Some(Duration::from_secs(17)));
    for (status, message, expected) in [
        (507, "not enough disk space available", ErrorKind::NoSpace),
        (401, "invalid signature", ErrorKind::Auth),
        (406, "no acceptable encoding found", ErrorKind::Protocol),
    ] {
        fixture
            .fake_server
            .script(InjectedFault::Refuse("/files", status, message));
        let written = write(&*sandbox, &fixture.path("new"), b"x").await;
        assert_eq!(kind(written), expected, "{status}");
        fs::remove_file(fixture.path("new").to_text().unwrap()).unwrap();
    }
    assert_eq!(fixture.fake_server.faults(), []);
}

#[tokio::test]
async fn a_key_or_token_that_is_refused_is_no_missing_sandbox() {
    let fixture = E2bFixture::new().await;
    for key in ["", "e2b_wrong"] {
        let config = Config {
            api_key: Secret::new(key),
            ..fixture.config()
        };
        let backend = E2bBackend::new(&config, fixture.clock.clone()).unwrap();
        assert_eq!(kind(backend.resolve(&address()).await), ErrorKind::Auth);
    }
    let sandbox = fixture.sandbox().await;
    fixture.fake_server.forget_token(SANDBOX_ID);
    let refused = sandbox.stat(&fixture.path("file"), Follow::Yes).await;
    assert_eq!(kind(refused), ErrorKind::Auth);
}

#[tokio::test]
async fn r_8_an_upload_that_kept_less_is_noticed() {
    let fixture = E2bFixture::new().await;
    let sandbox = fixture.sandbox().await;
    fixture.fake_server.script(InjectedFault::KeepOnly(999));
    let written = write(&*sandbox, &fixture.path("new"), &[7; 1000]).await;
    assert_eq!(kind(written), ErrorKind::Truncated);
}

#[tokio::test]
async fn a_lost_response_is_not_a_success() {
    let fixture = E2bFixture::new().await;
    let sandbox = fixture.sandbox().await;
    fixture.fake_server.script(InjectedFault::LoseAnswer);
    let written = write(&*sandbox, &fixture.path("new"), b"x").await;
    assert_eq!(kind(written), ErrorKind::Unavailable);
}

#[tokio::test]
async fn output_that_is_cut_is_never_an_answer() {
    let fixture = E2bFixture::new().await;
    let sandbox = fixture.sandbox().await;
    for kept in [0, 3, 40, 200] {
        fixture.fake_server.script(InjectedFault::CutOutput(kept));
        let said = sandbox.stat(&fixture.path(""), Follow::Yes).await;
        assert_eq!(kind(said), ErrorKind::Unavailable, "{kept}");
    }
}

#[tokio::test]
async fn old_daemons_take_files_in_forms() {
    let fixture = E2bFixture::new().await;
    fixture
        .fake_server
        .run_version(SANDBOX_ID, fixture.folder.path(), "0.5.6");
    let sandbox = fixture.sandbox().await;
    let path = fixture.path("a \"quoted\" отчёт.csv");
    write(&*sandbox, &path, b"1,2\n").await.unwrap();
    assert_eq!(fs::read(path.to_text().unwrap()).unwrap(), b"1,2\n");
}

#[tokio::test]
async fn a_target_elsewhere_is_replaced_by_a_command() {
    let fixture = E2bFixture::new().await;
    let sandbox = fixture.sandbox().await;
    let (from, to) = (fixture.path("from"), fixture.path("to"));
    fs::write(from.to_text().unwrap(), b"new").unwrap();
    fs::write(to.to_text().unwrap(), b"old").unwrap();
    let fault = InjectedFault::Refuse("/filesystem", 500, "rename: invalid cross-device link");
    fixture.fake_server.script(fault);
    sandbox.rename(&from, &to, true).await.unwrap();
    assert_eq!(fs::read(to.to_text().unwrap()).unwrap(), b"new");
    assert_eq!(fixture.fake_server.faults(), []);
}

#[tokio::test]
async fn r_11_a_life_is_read_first_and_extended() {
    let fixture = E2bFixture::new().await;
    let sandbox = fixture.sandbox().await;
    let secs = Duration::from_secs;
    let timeouts = || {
        let asked = fixture.fake_server.requests();
        asked
            .iter()
            .filter(|line| line.ends_with("/timeout"))
            .count()
    };
    sandbox.ensure_life(secs(300)).await.unwrap();
    assert_eq!(timeouts(), 0);
    sandbox.ensure_life(secs(1000)).await.unwrap();
    assert_eq!(timeouts(), 1);
    assert_eq!(fixture.fake_server.left(SANDBOX_ID), Some(secs(1030)));
    fixture.clock.advance(secs(900));
    assert_eq!(sandbox.probe().await.unwrap().life_ms, Some(130_000));
}

#[tokio::test]
async fn r_11_a_life_that_cannot_be_long_enough_is_refused() {
    let fixture = E2bFixture::new().await;
    let sandbox = fixture.sandbox().await;
    let gone = ErrorKind::SandboxGone;
    let needed = Duration::from_secs(1000);
    fixture.fake_server.allow(Duration::from_mins(10));
    assert_eq!(kind(sandbox.ensure_life(needed).await), gone);
    assert_eq!(
        fixture.fake_server.left(SANDBOX_ID),
        Some(Duration::from_mins(5))
    );
    let needed = Duration::from_hours(2);
    assert_eq!(kind(sandbox.ensure_life(needed).await), gone);
}

#[tokio::test]
async fn a_check_lists_at_most_one_sandbox_and_finds_a_wrong_key() {
    let fixture = E2bFixture::new().await;
    let ready = fixture.backend().check().await.unwrap();
    assert!(matches!(ready, BackendCheck::Ready(_)), "{ready:?}");
    let wrong = Config {
        api_key: Secret::new("e2b_wrong"),
        ..fixture.config()
    };
    let wrong = E2bBackend::new(&wrong, fixture.clock.clone()).unwrap();
    assert_eq!(wrong.check().await.unwrap_err().kind(), ErrorKind::Auth);
}
