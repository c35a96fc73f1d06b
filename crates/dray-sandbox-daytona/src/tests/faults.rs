//! Tests of faults of the provider and of the network, beyond those that all providers share.

use std::time::Duration;

use dray_sandbox::{Backend as _, BackendCheck, Error, ErrorKind, Follow};
use dray_sandbox_hosted::provider_suite::{run_fault_cases, write_file};
use dray_types::Secret;

use super::{DaytonaFixture, SANDBOX_ID, address};
use crate::{Config, DaytonaBackend};

#[tokio::test]
async fn faults_of_the_provider_have_their_kinds() {
    run_fault_cases(DaytonaFixture::new).await.unwrap();
}

fn kind<T>(result: Result<T, Error>) -> ErrorKind {
    result.map(drop).unwrap_err().kind()
}

#[tokio::test]
async fn a_sandbox_that_does_not_run_is_reported_with_its_state() {
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
        let stat_error = kind(sandbox.stat(&path, Follow::Yes).await);
        assert_eq!(stat_error, expected, "{state}");
        assert_eq!(kind(write_file(&*sandbox, &path, b"x").await), expected);
        let backend = fixture.backend();
        let handle = backend.resolve(&address()).await.unwrap();
        assert_eq!(kind(backend.open(&handle).await), expected);
    }
}

#[tokio::test]
async fn r_1_a_name_that_another_sandbox_has_now_is_reported_as_gone() {
    let fixture = DaytonaFixture::new().await;
    let backend = fixture.backend();
    let handle = backend.resolve(&address()).await.unwrap();
    assert_eq!(handle.incarnation, fixture.id);
    let replacement = fixture
        .fake_server
        .run(SANDBOX_ID, fixture.directory.path());
    assert_ne!(handle.incarnation, replacement);
    let gone_kind = ErrorKind::SandboxGone;
    assert_eq!(kind(backend.open(&handle).await), gone_kind);
}

#[tokio::test]
async fn r_11_a_lifetime_that_is_too_short_is_refused_before_the_transfer() {
    let fixture = DaytonaFixture::new().await;
    let sandbox = fixture.sandbox().await;
    let needed = Duration::from_mins(5);
    sandbox.ensure_lifetime(needed).await.unwrap();
    assert_eq!(sandbox.probe().await.unwrap().life_ms, None);
    fixture
        .fake_server
        .destroy_in(SANDBOX_ID, Duration::from_mins(6));
    sandbox.ensure_lifetime(needed).await.unwrap();
    fixture.clock.advance(Duration::from_mins(2));
    assert_eq!(sandbox.probe().await.unwrap().life_ms, Some(240_000));
    let refused = sandbox.ensure_lifetime(needed).await;
    assert_eq!(kind(refused), ErrorKind::SandboxGone);
}

#[tokio::test]
async fn a_check_reports_when_the_key_expires_and_finds_an_invalid_one() {
    let fixture = DaytonaFixture::new().await;
    let ready = fixture.backend().check().await.unwrap();
    assert!(
        matches!(&ready, BackendCheck::Ready(text) if text.contains("2099-01-01")),
        "{ready:?}"
    );
    let invalid = Config {
        api_key: Secret::new("dtn_wrong"),
        ..fixture.config()
    };
    let invalid = DaytonaBackend::new(&invalid, fixture.clock.clone()).unwrap();
    assert_eq!(invalid.check().await.unwrap_err().kind(), ErrorKind::Auth);
}
