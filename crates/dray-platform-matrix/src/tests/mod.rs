//! The user against its double.

mod conformance;
mod inbox;
mod python;
mod send;

use dray_platform::{
    Confirmed, Delivery, Error, Flags, OutgoingFile, Platform as _, Progress, Send, Target,
};
use dray_types::{Clock, Period};

use crate::double::Double;
use crate::{Matrix, Options};

/// In Unix milliseconds, as the double has it.
const NOW: u64 = 1_700_000_000_000;

fn target(room: &str) -> Target {
    format!("matrix:{room}").parse().unwrap()
}

fn options(double: &Double) -> Options {
    Options {
        homeserver: double.url(),
        token: double.token(),
        poll_wait: Period::secs(30),
        ..Options::default()
    }
}

fn user(options: Options) -> Matrix {
    Matrix::new("", options, Clock::manual(NOW)).unwrap()
}

async fn start() -> Double {
    Double::start(100 << 20).await.unwrap()
}

#[derive(Debug)]
struct Quiet;

impl Progress for Quiet {
    fn sent(&self, _: u64) {}
}

fn delivery(room: &str, message: &str, files: Vec<OutgoingFile>) -> Delivery {
    Delivery {
        id: "d".to_owned(),
        target: target(room),
        message: message.to_owned(),
        files,
        flags: Flags::default(),
    }
}

/// Prepares and sends the only step of a delivery.
async fn deliver(matrix: &Matrix, delivery: &Delivery, key: &str) -> Result<Confirmed, Error> {
    let limits = matrix.limits(&delivery.target).await?;
    let steps = matrix.plan(delivery, &limits);
    let [step] = steps.as_slice() else {
        panic!("{steps:?}");
    };
    let mut send = Send {
        delivery,
        step,
        prepared: "",
        key,
    };
    let prepared = matrix.prepare(send, &Quiet).await?;
    send.prepared = &prepared;
    let mut confirmed = matrix.send(send, &Quiet).await?;
    Ok(confirmed.pop().unwrap())
}
