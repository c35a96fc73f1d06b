//! Tests of files that the command line sends from a sandbox to a chat and back, with every service as a process. Other
//! tests kill one of these processes in the middle and check the outcome.

mod account_reload;
mod credential_reload;
mod faults;
mod kills;
mod platforms;
mod sandbox_reload;
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
