//! Tests of what an engine remembers, and when it tries a transport again.

use std::time::Duration;

use dray_sandbox::backend::Follow;
use dray_sandbox_conformance::fake::{Call, Fault};
use tokio::time::Instant;

use super::*;
use crate::policy::{PolicyOptions, TransferDirection};
use crate::schedule::{Schedule, TransferError};

#[tokio::test(start_paused = true)] // paused clock
async fn a_sandbox_is_probed_once_and_again_only_after_a_failure() {
    let fixture = EngineFixture::new(Fake::new());
    fixture
        .fake
        .script(Call::Probe, [Fault::Fail(ErrorKind::Unavailable)]);
    assert!(fixture.engine.probe().await.is_err());
    for _ in 0..3 {
        assert_eq!(
            fixture.engine.probe().await.unwrap().home,
            path("/home/agent")
        );
    }
    assert_eq!(fixture.fake.count(Call::Probe), 2);
}

#[tokio::test(start_paused = true)] // paused clock
async fn a_new_probe_ends_when_the_sandbox_does_not_answer() {
    let fixture = EngineFixture::new(Fake::new());
    let first = fixture.engine.probe().await.unwrap().clone();
    assert_eq!(fixture.engine.probe_again().await.unwrap(), first);
    fixture.fake.script(Call::Probe, [Fault::Hang]);
    let asked = tokio::time::timeout(Duration::from_mins(10), fixture.engine.probe_again());
    let failed = asked.await.expect("it ends by itself").unwrap_err();
    assert_eq!(failed.kind(), ErrorKind::Timeout);
}

#[tokio::test(start_paused = true)] // paused clock
async fn roots_and_home_count_as_written_and_as_resolved() {
    let fake = Fake::new();
    fake.directory("/data");
    fake.directory("/data/agent");
    fake.directory("/data/space");
    fake.file("/data/space/a", "1");
    fake.directory("/data/agent/.ssh");
    fake.file("/data/agent/.ssh/config", "Host *");
    fake.link("/home/agent", "/data/agent");
    fake.link("/workspace", "/data/space");
    fake.link("/mnt", "/");
    let mut fixture = EngineFixture::new(fake);
    let options = PolicyOptions::default();
    fixture.policy = fixture.engine.policy(&options, None).await.unwrap();
    fixture.got("/data/space/a").await;
    assert_eq!(fixture.get("/workspace/a").await.0.unwrap().size, 1);
    assert_eq!(
        fixture
            .refused("/workspace/../data/agent/.ssh/config")
            .await
            .0,
        ErrorKind::DeniedPath
    );
    assert_eq!(
        fixture.refused("/home/agent/.ssh/config").await.0,
        ErrorKind::DeniedPath
    );
    assert!(
        fixture
            .policy
            .check(&path("/opt/x"), TransferDirection::Outbound)
            .is_err()
    );
    // The session's own directory replaces that of the sandbox.
    let policy = fixture
        .engine
        .policy(&options, Some(path("/srv/s1")))
        .await
        .unwrap();
    assert!(
        policy
            .check(&path("/srv/s1/a"), TransferDirection::Outbound)
            .is_ok()
    );
    assert!(
        policy
            .check(&path("/work/a"), TransferDirection::Outbound)
            .is_err()
    );
}

#[tokio::test(start_paused = true)] // paused clock
async fn the_target_of_a_link_is_shown_only_if_the_link_is_in_a_root() {
    let fixture = EngineFixture::new(Fake::new());
    fixture.fake.link("/work/link", "/etc/shadow");
    fixture.fake.link("/home/agent/link", "x");
    fixture.fake.link("/work/dir", "/home/agent");
    let stat = |file| {
        let (engine, policy, file) = (&fixture.engine, &fixture.policy, path(file));
        async move { engine.stat(policy, &file, Follow::No).await }
    };
    let link = stat("/work/link").await.unwrap();
    assert_eq!(link.link_target.as_deref(), Some(&b"/etc/shadow"[..]));
    let error = stat("/work/dir/link").await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::OutsideRoot);
}

#[tokio::test(start_paused = true)] // paused clock
async fn a_provider_that_asks_to_wait_is_obeyed_up_to_a_limit_and_then_reported() {
    let options = EngineOptions {
        max_provider_delay: Duration::from_mins(1),
        ..EngineOptions::default()
    };
    let fixture = EngineFixture::with(Fake::new(), options);
    fixture.fake.file("/work/a", "abc");
    let later = |seconds| [Fault::Later(Duration::from_secs(seconds))];
    fixture.fake.script(Call::Read, later(45));
    let started = Instant::now();
    fixture.got("/work/a").await;
    // Exact, because the clock is paused.
    assert_eq!(started.elapsed().as_secs(), 45);
    fixture.fake.script(Call::Read, later(61));
    let failed = fixture.get("/work/a").await.0.unwrap_err();
    assert_eq!(failed.error.kind(), ErrorKind::RateLimited);
    assert_eq!(failed.error.retry_after(), Some(Duration::from_secs(61)));
    assert_eq!(started.elapsed().as_secs(), 45);
}

#[tokio::test(start_paused = true)] // paused clock
async fn r_10_a_copy_that_makes_progress_may_break_any_number_of_times() {
    let fixture = EngineFixture::new(Fake::new());
    let mut schedule = Schedule::new(&fixture.engine, TransferDirection::Outbound);
    let mut receipt = Receipt::default();
    let mut broken = async |schedule: &mut Schedule<'_>| {
        let error = Error::new(ErrorKind::Unavailable, "the wire");
        schedule
            .after(TransferError::transport(error), &mut receipt)
            .await
    };
    for round in 1..10 {
        for _ in 0..4 {
            broken(&mut schedule).await.unwrap();
        }
        schedule.record_progress(round * (16 << 20));
    }
    for _ in 0..4 {
        broken(&mut schedule).await.unwrap();
        schedule.record_progress(9 * (16 << 20) + 1000);
    }
    assert!(
        broken(&mut schedule).await.is_err(),
        "a copy with almost no progress is repeated without end"
    );
}
