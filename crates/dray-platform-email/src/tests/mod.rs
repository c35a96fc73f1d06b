//! The sender against its fake server.

mod account;
mod conformance;
mod dovecot;
mod inbox;
mod malformed;
mod python;
mod send;
mod unreadable;

use dray_platform::{
    ConfirmedFile, DeliveryTarget, OutgoingDelivery, OutgoingFile, Platform as _, PlatformError,
    SendFlags, SendRequest, UploadProgress,
};
use dray_types::Clock;

use crate::{EmailOptions, EmailPlatform};

/// In Unix milliseconds: 14 November 2023, 22:13:20.
const NOW_MS: u64 = 1_700_000_000_000;

fn target(chat: &str) -> DeliveryTarget {
    format!("email:{chat}").parse().unwrap()
}

fn sender(options: EmailOptions) -> EmailPlatform {
    EmailPlatform::new(options, Clock::manual(NOW_MS)).unwrap()
}

#[derive(Debug)]
struct NoProgress;

impl UploadProgress for NoProgress {
    fn sent(&self, _: u64) {}
}

fn delivery(message: &str, files: Vec<OutgoingFile>) -> OutgoingDelivery {
    OutgoingDelivery {
        id: "d".to_owned(),
        target: target("ada@example.org"),
        message: message.to_owned(),
        files,
        flags: SendFlags::default(),
    }
}

/// Sends the only step of a delivery.
async fn deliver(
    email: &EmailPlatform,
    delivery: &OutgoingDelivery,
) -> Result<Vec<ConfirmedFile>, PlatformError> {
    let limits = email.limits(&delivery.target).await?;
    let steps = email.plan(delivery, &limits);
    let [step] = steps.as_slice() else {
        panic!("{steps:?}");
    };
    let send = SendRequest {
        delivery,
        step,
        prepared: "",
        key: "AAAAAAAAAAAAAAAAAAAAAA",
    };
    email.send(send, &NoProgress).await
}
