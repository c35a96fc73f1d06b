//! Tests with a real nats-server that is killed, paused or restarted, is full, has small limits, or denies requests.

#![expect(
    clippy::unwrap_used,
    reason = "a helper that cannot continue fails the test"
)]

#[path = "faults/fixture.rs"]
mod fixture;
#[path = "faults/identity.rs"]
mod identity;
#[path = "faults/limits.rs"]
mod limits;
#[path = "faults/outages.rs"]
mod outages;
#[path = "faults/recovery.rs"]
mod recovery;
#[path = "faults/rounds.rs"]
mod rounds;

#[tokio::test(flavor = "multi_thread")]
async fn a_server_killed_while_work_is_published_loses_nothing_acknowledged() {
    rounds::kill_during_publish(2, 20).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_killed_paused_and_restarted_while_work_is_done_loses_and_duplicates_nothing() {
    rounds::server_faults_during_work(3, 20).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn workers_stopped_under_load_lose_and_duplicate_nothing() {
    rounds::stops_under_load(5, 10).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn workers_killed_under_load_lose_and_duplicate_nothing() {
    rounds::kills_under_load(3, 6).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn work_of_a_killed_worker_is_taken_over_within_a_short_deadline() {
    recovery::take_over_from_a_killed_worker().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_outage_longer_than_a_lease_interrupts_no_handler() {
    recovery::outlive_an_outage_longer_than_the_lease().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn work_is_parked_without_an_attempt_while_its_calls_have_no_responder() {
    recovery::park_without_responders(20).await;
}
