//! Tests of faults of the provider and of the network, beyond those that all providers share.

use std::fs;
use std::time::Duration;

use dray_sandbox::{
    Backend as _, BackendCheck, Error, ErrorKind, Follow, Metadata, Sandbox, SandboxPath,
};
use dray_sandbox_hosted::fake_server::ProviderFault;
use dray_sandbox_hosted::provider_suite::{read_file, run_fault_cases, write_file};
use dray_types::Secret;

use super::{E2bFixture, SANDBOX_ID, address};
use crate::{Config, E2bBackend};

#[tokio::test]
async fn faults_of_the_provider_have_their_kinds() {
    run_fault_cases(E2bFixture::new).await.unwrap();
}

async fn stat_path(sandbox: &dyn Sandbox, path: &SandboxPath) -> Metadata {
    sandbox.stat(path, Follow::Yes).await.unwrap()
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
    let file = stat_path(&*sandbox, &path).await;
    fixture
        .fake_server
        .script(ProviderFault::CutDownload(100_000));
    let cut = kind(read_file(&*sandbox, &file, 0).await);
    assert!(
        matches!(cut, ErrorKind::Unavailable | ErrorKind::Truncated),
        "{cut}"
    );
    let rest = read_file(&*sandbox, &file, 100_000).await.unwrap();
    assert_eq!(rest, bytes[100_000..]);
    let requests = fixture.fake_server.requests();
    assert!(requests.contains(&"GET /files bytes=100000-".to_owned()));
}

#[tokio::test]
async fn a_range_that_is_ignored_is_not_taken_for_the_rest() {
    let fixture = E2bFixture::new().await;
    let sandbox = fixture.sandbox().await;
    let path = fixture.path("file");
    fs::write(path.to_text().unwrap(), b"0123456789").unwrap();
    let file = stat_path(&*sandbox, &path).await;
    fixture.fake_server.script(ProviderFault::IgnoreRange);
    assert_eq!(
        kind(read_file(&*sandbox, &file, 4).await),
        ErrorKind::Protocol
    );
}

#[tokio::test]
async fn a_paused_sandbox_is_reported_as_paused() {
    let fixture = E2bFixture::new().await;
    let sandbox = fixture.sandbox().await;
    fixture.fake_server.pause(SANDBOX_ID);
    let path = fixture.path("file");
    let paused = ErrorKind::SandboxPaused;
    assert_eq!(kind(sandbox.stat(&path, Follow::Yes).await), paused);
    assert_eq!(kind(write_file(&*sandbox, &path, b"x").await), paused);
    let backend = fixture.backend();
    let handle = backend.resolve(&address()).await.unwrap();
    assert_eq!(kind(backend.open(&handle).await), paused);
}

#[tokio::test]
async fn a_token_that_is_refused_is_not_a_missing_sandbox() {
    let fixture = E2bFixture::new().await;
    let sandbox = fixture.sandbox().await;
    fixture.fake_server.forget_token(SANDBOX_ID);
    let refused = sandbox.stat(&fixture.path("file"), Follow::Yes).await;
    assert_eq!(kind(refused), ErrorKind::Auth);
}

#[tokio::test]
async fn output_that_is_cut_after_its_first_frames_is_never_a_result() {
    let fixture = E2bFixture::new().await;
    let sandbox = fixture.sandbox().await;
    fixture.fake_server.script(ProviderFault::CutOutput(200));
    let stat_result = sandbox.stat(&fixture.path(""), Follow::Yes).await;
    assert_eq!(kind(stat_result), ErrorKind::Unavailable);
}

#[tokio::test]
async fn old_daemons_get_files_as_forms() {
    let fixture = E2bFixture::new().await;
    fixture
        .fake_server
        .run_version(SANDBOX_ID, fixture.directory.path(), "0.5.6");
    let sandbox = fixture.sandbox().await;
    let path = fixture.path("a \"quoted\" отчёт.csv");
    write_file(&*sandbox, &path, b"1,2\n").await.unwrap();
    assert_eq!(fs::read(path.to_text().unwrap()).unwrap(), b"1,2\n");
}

#[tokio::test]
async fn a_target_on_another_file_system_is_replaced_by_a_command() {
    let fixture = E2bFixture::new().await;
    let sandbox = fixture.sandbox().await;
    let (from, to) = (fixture.path("from"), fixture.path("to"));
    fs::write(from.to_text().unwrap(), b"new").unwrap();
    fs::write(to.to_text().unwrap(), b"old").unwrap();
    let fault = ProviderFault::Refuse("/filesystem", 500, "rename: invalid cross-device link");
    fixture.fake_server.script(fault);
    sandbox.rename(&from, &to, true).await.unwrap();
    assert_eq!(fs::read(to.to_text().unwrap()).unwrap(), b"new");
    assert_eq!(fixture.fake_server.faults(), []);
}

#[tokio::test]
async fn r_11_a_lifetime_is_extended_only_when_it_is_too_short() {
    let fixture = E2bFixture::new().await;
    let sandbox = fixture.sandbox().await;
    let secs = Duration::from_secs;
    let extensions = || {
        let requests = fixture.fake_server.requests();
        requests
            .iter()
            .filter(|line| line.ends_with("/refreshes") || line.ends_with("/timeout"))
            .count()
    };
    sandbox.ensure_lifetime(secs(300)).await.unwrap();
    assert_eq!(extensions(), 0);
    sandbox.ensure_lifetime(secs(1000)).await.unwrap();
    assert_eq!(extensions(), 1);
    assert_eq!(fixture.fake_server.left(SANDBOX_ID), Some(secs(1030)));
    fixture.clock.advance(secs(900));
    assert_eq!(sandbox.probe().await.unwrap().life_ms, Some(130_000));
}

#[tokio::test]
async fn r_11_concurrent_extensions_keep_the_longer_lifetime() {
    let fixture = E2bFixture::new().await;
    let sandbox = fixture.sandbox().await;
    let (long, short) = (Duration::from_secs(1000), Duration::from_secs(400));
    let (first, second) = tokio::join!(
        sandbox.ensure_lifetime(long),
        sandbox.ensure_lifetime(short)
    );
    first.unwrap();
    second.unwrap();
    assert!(fixture.fake_server.left(SANDBOX_ID) >= Some(long));
}

#[tokio::test]
async fn r_11_an_extension_of_another_client_is_never_shortened() {
    let fixture = E2bFixture::new().await;
    let sandbox = fixture.sandbox().await;
    let longer = Duration::from_secs(2000);
    fixture.fake_server.extend_meanwhile(longer);
    sandbox
        .ensure_lifetime(Duration::from_secs(1000))
        .await
        .unwrap();
    assert_eq!(fixture.fake_server.left(SANDBOX_ID), Some(longer));
}

#[tokio::test]
async fn r_11_a_server_without_the_call_that_only_extends_sets_the_lifetime() {
    let fixture = E2bFixture::new().await;
    let sandbox = fixture.sandbox().await;
    fixture.fake_server.script(ProviderFault::Refuse(
        "/sandboxes/i3xy8zq0/refreshes",
        404,
        "no such call",
    ));
    let needed = Duration::from_secs(1000);
    sandbox.ensure_lifetime(needed).await.unwrap();
    assert!(fixture.fake_server.faults().is_empty());
    assert!(fixture.fake_server.left(SANDBOX_ID) >= Some(needed));
}

#[tokio::test]
async fn r_11_a_lifetime_above_an_hour_is_set() {
    let fixture = E2bFixture::new().await;
    let long = Duration::from_hours(2);
    fixture.fake_server.allow(long);
    let config = Config {
        longest_life: long.into(),
        ..fixture.config()
    };
    let backend = E2bBackend::new(&config, fixture.clock.clone()).unwrap();
    let handle = backend.resolve(&address()).await.unwrap();
    let sandbox = backend.open(&handle).await.unwrap();
    let needed = Duration::from_mins(90);
    sandbox.ensure_lifetime(needed).await.unwrap();
    assert!(fixture.fake_server.left(SANDBOX_ID) >= Some(needed));
}

#[tokio::test]
async fn r_11_a_lifetime_that_another_process_shortened_is_extended_again() {
    let fixture = E2bFixture::new().await;
    let (ours, theirs) = (fixture.sandbox().await, fixture.sandbox().await);
    let long = Duration::from_secs(1000);
    ours.ensure_lifetime(long).await.unwrap();
    // The other process saw the time before this extension, and set its own.
    fixture
        .fake_server
        .shorten(SANDBOX_ID, Duration::from_mins(1));
    theirs
        .ensure_lifetime(Duration::from_secs(100))
        .await
        .unwrap();
    assert_eq!(
        fixture.fake_server.left(SANDBOX_ID),
        Some(Duration::from_secs(130))
    );
    ours.ensure_lifetime(Duration::from_secs(10)).await.unwrap();
    assert!(fixture.fake_server.left(SANDBOX_ID) >= Some(long));
}

#[tokio::test]
async fn r_11_a_lifetime_that_cannot_be_extended_enough_is_refused() {
    let fixture = E2bFixture::new().await;
    let sandbox = fixture.sandbox().await;
    let gone_kind = ErrorKind::SandboxGone;
    let needed = Duration::from_secs(1000);
    fixture.fake_server.allow(Duration::from_mins(10));
    assert_eq!(kind(sandbox.ensure_lifetime(needed).await), gone_kind);
    assert_eq!(
        fixture.fake_server.left(SANDBOX_ID),
        Some(Duration::from_mins(5))
    );
    let needed = Duration::from_hours(2);
    assert_eq!(kind(sandbox.ensure_lifetime(needed).await), gone_kind);
}

#[tokio::test]
async fn a_check_lists_at_most_one_sandbox_and_finds_a_wrong_key() {
    let fixture = E2bFixture::new().await;
    let ready = fixture.backend().check().await.unwrap();
    assert!(matches!(ready, BackendCheck::Ready(_)), "{ready:?}");
    let invalid = Config {
        api_key: Secret::new("e2b_wrong"),
        ..fixture.config()
    };
    let invalid = E2bBackend::new(&invalid, fixture.clock.clone()).unwrap();
    assert_eq!(invalid.check().await.unwrap_err().kind(), ErrorKind::Auth);
}
