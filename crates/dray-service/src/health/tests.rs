//! Tests of health as the host and the probes of a cluster read it.

use std::path::Path;
use std::time::Duration;

use dray_types::ByteSize;

use super::probe::run_round;
use super::*;

#[tokio::test(start_paused = true)]
async fn a_watchdog_that_is_not_scheduled_means_not_live() {
    let health = ProcessHealth::new();
    tokio::time::advance(Duration::from_secs(9)).await;
    assert!(health.is_live());
    health.tick();
    tokio::time::advance(Duration::from_secs(9)).await;
    assert!(health.is_live());
    tokio::time::advance(Duration::from_secs(2)).await;
    assert!(!health.is_live());
}

#[test]
fn changes_at_the_same_time_are_published_in_their_order() {
    // Two threads rarely change a process at the same moment, so the test uses many processes.
    for _ in 0..1_000 {
        let processes: Vec<_> = (0..1_000).map(|_| ProcessHealth::new()).collect();
        let barrier = std::sync::Barrier::new(2);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                barrier.wait();
                processes.iter().for_each(ProcessHealth::set_started);
            });
            barrier.wait();
            processes.iter().for_each(ProcessHealth::set_stopping);
        });
        let ready = processes.iter().filter(|health| health.is_ready()).count();
        assert_eq!(ready, 0, "all of them are stopping");
    }
}

#[test]
fn ready_means_started_not_stopping_and_every_check_passed() {
    let health = ProcessHealth::new();
    health.expect("bus");
    health.expect("store");
    health.record("bus", Ok(()));
    assert!(!health.is_ready(), "the store was not checked yet");
    health.record("store", Ok(()));
    assert!(!health.is_ready(), "not started yet");
    assert!(health.readiness().failing.contains_key("start"));
    health.set_started();
    assert!(health.is_ready());
    for _ in 0..3 {
        health.record("bus", Err("away".to_owned()));
    }
    let readiness = health.readiness();
    assert!(!readiness.ready);
    assert_eq!(
        readiness.failing,
        [("bus".to_owned(), "away".to_owned())].into()
    );
    health.record("bus", Ok(()));
    assert!(health.is_ready());
    health.set_stopping();
    assert!(!health.is_ready());
    assert!(health.readiness().stopping && health.has_started());
}

#[tokio::test(start_paused = true)]
async fn a_check_that_hangs_fails_and_does_not_delay_others() {
    let health = ProcessHealth::new();
    health.set_started();
    let probes = [
        ReadinessProbe::new("hangs", std::future::pending),
        ReadinessProbe::new("passes", || async { Ok(()) }),
    ];
    run_round(&health, &probes, Duration::from_secs(5)).await;
    let failing = health.readiness().failing;
    assert_eq!(
        failing,
        [("hangs".to_owned(), "no response in time".to_owned())].into()
    );
}

#[tokio::test(start_paused = true)]
async fn rounds_repeat_and_waiters_get_changes() {
    let health = ProcessHealth::new();
    health.set_started();
    health.expect("store");
    let (store_state, watched) = tokio::sync::watch::channel(true);
    let probe = ReadinessProbe::new("store", move || {
        let good = *watched.borrow();
        async move { if good { Ok(()) } else { Err("bad".to_owned()) } }
    });
    let mut rounds = tokio::task::JoinSet::new();
    rounds.spawn(run_probes(
        health.clone(),
        vec![probe],
        Duration::from_secs(5),
    ));
    health.wait_ready().await;
    store_state.send_replace(false);
    let before = Instant::now();
    health.wait_unready().await;
    assert!(
        before.elapsed() > Duration::from_secs(9),
        "only the third failure counts"
    );
    store_state.send_replace(true);
    health.wait_ready().await;
}

#[test]
fn disk_headroom_is_checked_in_percent_of_the_volume_or_in_bytes() {
    let directory = tempfile::tempdir().unwrap();
    let never = ByteSize::bytes(u64::MAX);
    assert_eq!(free_disk(directory.path(), 0, never), Ok(()));
    assert!(
        free_disk(directory.path(), 101, never)
            .unwrap_err()
            .contains("101 %")
    );
    assert_eq!(free_disk(directory.path(), 101, ByteSize::bytes(1)), Ok(()));
    assert!(free_disk(Path::new("/nowhere/at/all"), 0, never).is_err());
}
