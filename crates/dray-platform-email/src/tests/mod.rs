//! The sender against its double.

mod conformance;
mod dovecot;
mod inbox;
mod liar;
mod python;
mod send;

use dray_platform::{
    Confirmed, Delivery, Error, Flags, OutgoingFile, Platform as _, Progress, Send, Target,
};
use dray_types::Clock;

use crate::{Email, Options};

/// In Unix milliseconds: 14 November 2023, 22:13:20.
const NOW: u64 = 1_700_000_000_000;

fn target(chat: &str) -> Target {
    format!("email:{chat}").parse().unwrap()
}

fn sender(options: Options) -> Email {
    Email::new(options, Clock::manual(NOW)).unwrap()
}

#[derive(Debug)]
struct Quiet;

impl Progress for Quiet {
    fn sent(&self, _: u64) {}
}

fn delivery(message: &str, files: Vec<OutgoingFile>) -> Delivery {
    Delivery {
        id: "d".to_owned(),
        target: target("ada@example.org"),
        message: message.to_owned(),
        files,
        flags: Flags::default(),
    }
}

/// Sends the only step of a delivery.
async fn deliver(email: &Email, delivery: &Delivery) -> Result<Vec<Confirmed>, Error> {
    let limits = email.limits(&delivery.target).await?;
    let steps = email.plan(delivery, &limits);
    let [step] = steps.as_slice() else {
        panic!("{steps:?}");
    };
    let send = Send {
        delivery,
        step,
        prepared: "",
        key: "AAAAAAAAAAAAAAAAAAAAAA",
    };
    email.send(send, &Quiet).await
}
