//! Files out of a sandbox to a chat and back, by the command line, with every service a process of its own; and what
//! happens when one of them dies in the middle.

mod faults;
mod kills;
mod rig;
mod story;

#[tokio::test(flavor = "multi_thread")]
async fn whichever_service_dies_every_delivery_ends_truthfully() {
    kills::kills(1, true).await;
}
