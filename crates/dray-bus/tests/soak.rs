//! The long rounds of the fault tests, run by `cargo xtask soak`.

#![expect(
    clippy::unwrap_used,
    reason = "a helper that cannot continue fails the test"
)]

#[path = "faults/fixture.rs"]
mod fixture;
#[path = "faults/rounds.rs"]
mod rounds;

#[tokio::test(flavor = "multi_thread")]
async fn the_server_is_killed_fifteen_times_while_work_is_published() {
    rounds::kill_during_publish(15, 100).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_server_fails_thirty_times_while_work_is_done() {
    rounds::server_faults_during_work(30, 60).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn workers_are_stopped_two_hundred_times_under_load() {
    rounds::stops_under_load(200, 20).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn workers_are_killed_two_hundred_times_under_load() {
    rounds::kills_under_load(200, 5).await;
}
