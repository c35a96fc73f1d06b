//! Tests of faults of the provider and of the network.

use std::fs;
use std::time::Duration;

use dray_sandbox::{
    Backend as _, BackendCheck, Body, Error, ErrorKind, Follow, Metadata, Read, Sandbox,
    SandboxPath, Transport, Write,
};
use dray_types::Secret;

use super::{DaytonaFixture, SANDBOX_ID, address};
use crate::fake_server::InjectedFault;
use crate::{Config, DaytonaBackend};

async fn look(sandbox: &dyn Sandbox, path: &SandboxPath) -> Metadata {
    sandbox.stat(path, Follow::Yes).await.unwrap()
}

async fn read(sandbox: &dyn Sandbox, file: &Metadata) -> Result<Vec<u8>, Error> {
    let transport = Transport::Files;
    let read = Read {
        transport,
        file,
        offset: 0,
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
async fn a_download_that_is_cut_is_never_whole() {
    let fixture = DaytonaFixture::new().await;
    let sandbox = fixture.sandbox().await;
    let path = fixture.path("file");
    let bytes: Vec<u8> = (0..200_000_u32).flat_map(u32::to_be_bytes).collect();
    fs::write(path.to_text().unwrap(), &bytes).unwrap();
    let file = look(&*sandbox, &path).await;
    fixture
        .fake_server
        .script(InjectedFault::CutDownload(100_000));
    let cut = kind(read(&*sandbox, &file).await);
    assert!(
        matches!(cut, ErrorKind::Unavailable | ErrorKind::Truncated),
        "{cut}"
    );
    assert_eq!(read(&*sandbox, &file).await.unwrap(), bytes);
}

#[tokio::test]
async fn a_clean_answer_of_another_length_is_a_change() {
    let fixture = DaytonaFixture::new().await;
    let sandbox = fixture.sandbox().await;
    let path = fixture.path("file");
    fs::write(path.to_text().unwrap(), b"0123456789").unwrap();
    let file = look(&*sandbox, &path).await;
    fixture.fake_server.script(InjectedFault::Instead(b"01234"));
    let changed = ErrorKind::ChangedDuringTransfer;
    assert_eq!(kind(read(&*sandbox, &file).await), changed);
}

#[tokio::test]
async fn a_sandbox_that_dies_in_the_middle_is_gone() {
    let fixture = DaytonaFixture::new().await;
    let sandbox = fixture.sandbox().await;
    let path = fixture.path("file");
    fs::write(path.to_text().unwrap(), vec![7; 300_000]).unwrap();
    let file = look(&*sandbox, &path).await;
    fixture
        .fake_server
        .script(InjectedFault::DieDuringDownload(1000));
    let gone = ErrorKind::SandboxGone;
    assert_eq!(kind(read(&*sandbox, &file).await), gone);
    assert_eq!(kind(read(&*sandbox, &file).await), gone);
    fixture.fake_server.run(SANDBOX_ID, fixture.folder.path());
    let sandbox = fixture.sandbox().await;
    fixture.fake_server.script(InjectedFault::DieDuringUpload);
    let written = write(&*sandbox, &fixture.path("new"), &vec![7; 300_000]).await;
    assert_eq!(kind(written), gone);
}

#[tokio::test]
async fn a_gateway_that_gives_up_is_not_a_sandbox_that_is_gone() {
    let fixture = DaytonaFixture::new().await;
    let sandbox = fixture.sandbox().await;
    let path = fixture.path("file");
    fs::write(path.to_text().unwrap(), b"here").unwrap();
    let file = look(&*sandbox, &path).await;
    let fault = InjectedFault::Refuse("files", 502, "upstream request timeout");
    fixture.fake_server.script(fault);
    let refused = kind(read(&*sandbox, &file).await);
    assert_eq!(refused, ErrorKind::Unavailable);
    assert_eq!(read(&*sandbox, &file).await.unwrap(), b"here");
}

#[tokio::test]
async fn refusals_have_their_kinds_and_delays() {
    let fixture = DaytonaFixture::new().await;
    let sandbox = fixture.sandbox().await;
    let path = fixture.path("file");
    fs::write(path.to_text().unwrap(), b"here").unwrap();
    let file = look(&*sandbox, &path).await;
    fixture
        .fake_server
        .script(InjectedFault::RateLimit(Duration::from_secs(17)));
    let limited = read(&*sandbox, &file).await.unwrap_err();
    assert_eq!(limited.kind(), ErrorKind::RateLimited);
    assert_eq!(limited.retry_after(), Some(Duration::from_secs(17)));
    for (status, message, expected) in [
        (507, "not enough disk space available", ErrorKind::NoSpace),
        (401, "invalid signature", ErrorKind::Auth),
        (413, "too large", ErrorKind::Protocol),
    ] {
        fixture
            .fake_server
            .script(InjectedFault::Refuse("files", status, message));
        let written = write(&*sandbox, &fixture.path("new"), b"x").await;
        assert_eq!(kind(written), expected, "{status}");
        fs::remove_file(fixture.path("new").to_text().unwrap()).unwrap();
    }
    assert_eq!(fixture.fake_server.faults(), []);
}

#[tokio::test]
async fn a_key_that_is_refused_is_no_missing_sandbox() {
    let fixture = DaytonaFixture::new().await;
    for key in ["", "dtn_wrong"] {
        let config = Config {
            api_key: Secret::new(key),
            ..fixture.config()
        };
        let backend = DaytonaBackend::new(&config, fixture.clock.clone()).unwrap();
        assert_eq!(kind(backend.resolve(&address()).await), ErrorKind::Auth);
    }
}

#[tokio::test]
async fn r_8_an_upload_that_kept_less_is_noticed() {
    let fixture = DaytonaFixture::new().await;
    let sandbox = fixture.sandbox().await;
    fixture.fake_server.script(InjectedFault::KeepOnly(999));
    let written = write(&*sandbox, &fixture.path("new"), &[7; 1000]).await;
    assert_eq!(kind(written), ErrorKind::Truncated);
}

#[tokio::test]
async fn a_lost_response_is_not_a_success() {
    let fixture = DaytonaFixture::new().await;
    let sandbox = fixture.sandbox().await;
    fixture.fake_server.script(InjectedFault::LoseAnswer);
    let written = write(&*sandbox, &fixture.path("new"), b"x").await;
    assert_eq!(kind(written), ErrorKind::Unavailable);
}

#[tokio::test]
async fn output_that_is_cut_is_never_an_answer() {
    let fixture = DaytonaFixture::new().await;
    let sandbox = fixture.sandbox().await;
    for kept in [0, 3, 40] {
        fixture.fake_server.script(InjectedFault::CutOutput(kept));
        let said = sandbox.stat(&fixture.path(""), Follow::Yes).await;
        assert_eq!(kind(said), ErrorKind::Unavailable, "{kept}");
    }
}

#[tokio::test]
async fn a_sandbox_that_does_not_run_says_how() {
    let fixture = DaytonaFixture::new().await;
    let sandbox = fixture.sandbox().await;
    let path = fixture.path("file");
    for (state, expected) in [
        ("stopped", ErrorKind::SandboxStopped),
        ("archived", ErrorKind::SandboxStopped),
        ("paused", ErrorKind::SandboxPaused),
        ("destroyed", ErrorKind::SandboxGone),
    ] {
        fixture.fake_server.set_state(SANDBOX_ID, state);
        let said = kind(sandbox.stat(&path, Follow::Yes).await);
        assert_eq!(said, expected, "{state}");
        assert_eq!(kind(write(&*sandbox, &path, b"x").await), expected);
        let backend = fixture.backend();
        let handle = backend.resolve(&address()).await.unwrap();
        assert_eq!(kind(backend.open(&handle).await), expected);
    }
}

#[tokio::test]
async fn r_1_a_name_that_went_to_another_sandbox_is_gone() {
    let fixture = DaytonaFixture::new().await;
    let backend = fixture.backend();
    let handle = backend.resolve(&address()).await.unwrap();
    assert_eq!(handle.incarnation, fixture.id);
    let other = fixture.fake_server.run(SANDBOX_ID, fixture.folder.path());
    assert_ne!(handle.incarnation, other);
    let gone = ErrorKind::SandboxGone;
    assert_eq!(kind(backend.open(&handle).await), gone);
}

#[tokio::test]
async fn r_11_a_life_that_is_too_short_is_refused_before() {
    let fixture = DaytonaFixture::new().await;
    let sandbox = fixture.sandbox().await;
    let needed = Duration::from_mins(5);
    sandbox.ensure_life(needed).await.unwrap();
    assert_eq!(sandbox.probe().await.unwrap().life_ms, None);
    fixture
        .fake_server
        .destroy_in(SANDBOX_ID, Duration::from_mins(6));
    sandbox.ensure_life(needed).await.unwrap();
    fixture.clock.advance(Duration::from_mins(2));
    assert_eq!(sandbox.probe().await.unwrap().life_ms, Some(240_000));
    let refused = sandbox.ensure_life(needed).await;
    assert_eq!(kind(refused), ErrorKind::SandboxGone);
}

#[tokio::test]
async fn a_check_says_when_the_key_ends_and_finds_a_wrong_one() {
    let fixture = DaytonaFixture::new().await;
    let ready = fixture.backend().check().await.unwrap();
    assert!(
        matches!(&ready, BackendCheck::Ready(text) if text.contains("2099-01-01")),
        "{ready:?}"
    );
    let wrong = Config {
        api_key: Secret::new("dtn_wrong"),
        ..fixture.config()
    };
    let wrong = DaytonaBackend::new(&wrong, fixture.clock.clone()).unwrap();
    assert_eq!(wrong.check().await.unwrap_err().kind(), ErrorKind::Auth);
}
