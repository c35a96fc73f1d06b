//! Tests of files that are sent from a sandbox to a chat and back by the command line, with every service as a process;
//! and of the outcome when one of these processes is killed in the middle.

mod faults;
mod kills;
mod platforms;
mod scenario;
mod transfer_fixture;

#[tokio::test(flavor = "multi_thread")]
async fn reported_states_are_true_when_any_service_is_killed() {
    let seed = rand::random();
    kills::kill_services(kills::KillRun {
        rounds: 1,
        seed,
        expires_leases: true,
    })
    .await;
}
