//! The sender with its fake server.

mod account;
mod bounce;
mod conformance;
mod dovecot;
mod inbox;
mod malformed;
mod python;
mod send;
mod unreadable;

use dray_platform::conformance::{NoProgress, plain_delivery, send_only_step};
use dray_platform::{
    ConfirmedFile, DeliveryTarget, OutgoingDelivery, OutgoingFile, Platform as _, PlatformError,
};
use dray_types::Clock;

use crate::{EmailOptions, EmailPlatform};

/// The time of the tests in Unix milliseconds: 14 November 2023, 22:13:20.
const NOW_MS: u64 = 1_700_000_000_000;

fn target(chat: &str) -> DeliveryTarget {
    format!("email:{chat}").parse().unwrap()
}

fn sender(options: EmailOptions) -> EmailPlatform {
    EmailPlatform::new(options, Clock::manual(NOW_MS)).unwrap()
}

fn delivery(message: &str, files: Vec<OutgoingFile>) -> OutgoingDelivery {
    plain_delivery(target("ada@example.org"), message, files)
}

/// Sends the only step of a delivery.
async fn deliver(
    email: &EmailPlatform,
    delivery: &OutgoingDelivery,
) -> Result<Vec<ConfirmedFile>, PlatformError> {
    send_only_step(email, delivery, "AAAAAAAAAAAAAAAAAAAAAA").await
}
