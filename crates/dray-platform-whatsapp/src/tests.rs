//! Both ways against their doubles.

mod bridge;
mod cloud;

use dray_platform::conformance::{Seen, SeenFile};
use dray_platform::{Delivery, Flags, OutgoingFile, Platform, Progress, Send, Target};

use crate::double::Shown;

#[derive(Debug)]
struct Quiet;

impl Progress for Quiet {
    fn sent(&self, _: u64) {}
}

fn target(chat: &str) -> Target {
    Target {
        platform: "whatsapp".to_owned(),
        account: String::new(),
        chat: chat.to_owned(),
        thread: String::new(),
        reply_to: String::new(),
    }
}

fn delivery(chat: &str, files: Vec<OutgoingFile>) -> Delivery {
    Delivery {
        id: "d".to_owned(),
        target: target(chat),
        message: String::new(),
        files,
        flags: Flags::default(),
    }
}

fn seen(shown: Vec<Shown>) -> Vec<Seen> {
    shown
        .into_iter()
        .map(|shown| Seen {
            message_id: shown.id,
            text: shown.text,
            files: shown
                .file
                .into_iter()
                .map(|(name, content)| SeenFile {
                    name,
                    size: content.size,
                    sha256: content.sha256,
                })
                .collect(),
            thread: String::new(),
            reply_to: shown.reply_to,
        })
        .collect()
}

/// Prepares and sends the first step of a delivery.
async fn deliver(
    platform: &dyn Platform,
    delivery: &Delivery,
) -> Result<dray_platform::Confirmed, dray_platform::Error> {
    let limits = platform.limits(&delivery.target).await?;
    let steps = platform.plan(delivery, &limits);
    let mut send = Send {
        delivery,
        step: steps.first().unwrap(),
        prepared: "",
        key: "key",
    };
    let prepared = platform.prepare(send, &Quiet).await?;
    send.prepared = &prepared;
    let confirmed = platform.send(send, &Quiet).await?;
    Ok(confirmed.into_iter().next().unwrap())
}
