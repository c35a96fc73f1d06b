//! The account with its fake server.

mod account;
mod conformance;
mod inbox;
mod python;
mod send;

use dray_platform::conformance::{NoProgress, plain_delivery, send_only_step};
use dray_platform::{
    ConfirmedFile, DeliveryTarget, OutgoingDelivery, OutgoingFile, Platform as _, PlatformError,
};
use dray_types::{Clock, Period};

use crate::fake_server::FakeHomeserver;
use crate::{MatrixOptions, MatrixPlatform};

/// The time of the fake server, in Unix milliseconds.
const NOW_MS: u64 = 1_700_000_000_000;

fn target(room: &str) -> DeliveryTarget {
    format!("matrix:{room}").parse().unwrap()
}

fn options(fake: &FakeHomeserver) -> MatrixOptions {
    MatrixOptions {
        homeserver: fake.url(),
        token: fake.token(),
        poll_wait: Period::secs(30),
        ..MatrixOptions::default()
    }
}

fn user(options: MatrixOptions) -> MatrixPlatform {
    MatrixPlatform::new("", options, Clock::manual(NOW_MS)).unwrap()
}

async fn start() -> FakeHomeserver {
    FakeHomeserver::start(100 << 20).await.unwrap()
}

fn delivery(room: &str, message: &str, files: Vec<OutgoingFile>) -> OutgoingDelivery {
    plain_delivery(target(room), message, files)
}

/// Prepares and sends the only step of a delivery.
async fn deliver(
    matrix: &MatrixPlatform,
    delivery: &OutgoingDelivery,
    key: &str,
) -> Result<ConfirmedFile, PlatformError> {
    let mut confirmed = send_only_step(matrix, delivery, key).await?;
    Ok(confirmed.pop().unwrap())
}
