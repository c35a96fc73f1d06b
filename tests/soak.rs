//! The long rounds of the system tests, run by `cargo xtask soak`; those of deliveries alone with
//! `cargo xtask soak -- deliveries`.

#[cfg(test)]
#[path = "transfer/kills.rs"]
mod kills;
#[cfg(test)]
#[expect(dead_code, reason = "single faults use more of the machine")]
#[path = "transfer/rig.rs"]
mod rig;
#[cfg(test)]
#[expect(dead_code, reason = "other stories use more of it")]
mod support;

#[tokio::test(flavor = "multi_thread")]
async fn deliveries_end_truthfully_while_each_service_is_killed_two_hundred_times() {
    kills::kills(200, false).await;
}
