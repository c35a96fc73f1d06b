//! Services are killed at random moments while files are on their way to four platforms, as often as asked for: a few
//! times in the default suite, hundreds of times in the soak.
//!
//! What must hold of every delivery: it ends; it is told as delivered only if it is shown; it is shown at most once.

use std::collections::BTreeMap;
use std::time::Duration;

use dray_http::double::Content;
use dray_platform_discord::double::Fault as DiscordFault;
use dray_platform_slack::double::Fault as SlackFault;
use dray_platform_telegram::double::Fault as TelegramFault;
use dray_platform_webhook::double::Fault as WebhookFault;
use dray_proto::v1;
use dray_types::Sha256Digest;
use rand::Rng as _;

use super::rig::{HOOK, Rig, SERVICES, Service, target};

/// Most time between the publication of work and the kill, in milliseconds: about what the work of a round takes.
const LATEST: u64 = 400;
/// Files to each platform in a round.
const EACH: usize = 2;
/// How long a delivery may take to its end once nothing dies any more: two leases and redeliveries, and every wait of
/// a delivery, on a busy machine.
const PATIENCE: Duration = Duration::from_mins(6);

/// A delivery that was accepted.
struct Sent {
    id: String,
    target: v1::ChatTarget,
    digest: Sha256Digest,
}

impl Sent {
    /// How often its file is shown.
    fn shown(&self, rig: &Rig) -> usize {
        let same = |files: &[(String, Content)]| {
            let same = files.iter().filter(|(_, file)| file.sha256 == self.digest);
            same.count()
        };
        let chat = &self.target.chat;
        match self.target.platform.as_str() {
            "telegram" => rig.shown_in(chat.parse().unwrap(), self.digest),
            "discord" => {
                let seen = rig.discord.seen(chat);
                seen.iter().map(|message| same(&message.files)).sum()
            }
            "slack" => {
                let seen = rig.slack.seen(chat);
                seen.iter().map(|message| same(&message.files)).sum()
            }
            _ => {
                let taken = rig.webhook.taken(HOOK);
                taken.iter().map(|event| same(&event.files)).sum()
            }
        }
    }
}

/// Kills each of the services `count` times. `hurry` lets the leases of the dead run out at once after the last kill;
/// otherwise they take as long as they take.
pub(crate) async fn kills(count: usize, hurry: bool) {
    let rig = Rig::start().await;
    let mut running: BTreeMap<&str, Service> = BTreeMap::new();
    for service in SERVICES {
        running.insert(service, rig.up(service).await);
    }
    let mut sent = Vec::new();
    for round in 0..count {
        for (place, victim) in SERVICES.into_iter().enumerate() {
            trouble(&rig);
            sent.extend(submit(&rig, round * SERVICES.len() + place).await);
            some_millis(LATEST).await;
            running.remove(victim).unwrap().kill9();
            if hurry && round + 1 == count && victim == "platform-delivery" {
                rig.leases_run_out().await;
            }
            running.insert(victim, rig.up(victim).await);
        }
    }
    if hurry {
        rig.hand_out_again().await;
    }
    check(&rig, &sent).await;
    let taken_over = rig.taken_over().await;
    assert!(
        taken_over >= count / 20,
        "{count} times each was killed, and work was cut only {taken_over} times"
    );
}

/// Files to each platform, each to a chat of its own, so that no limit of a chat holds it up.
async fn submit(rig: &Rig, round: usize) -> Vec<Sent> {
    let targets = || {
        [
            target("telegram", &rig.telegram.chat()),
            target("discord", &rig.discord.channel(0)),
            target("slack", &rig.slack.channel()),
            target("webhook", "box"),
        ]
    };
    let mut sent = Vec::new();
    for (place, target) in (0..EACH).flat_map(|_| targets()).enumerate() {
        let id = format!("{}-{round}-{place}", target.platform);
        let name = format!("{id}.bin");
        let size = rand::rng().random_range(1..400_000);
        let mut bytes = id.clone().into_bytes();
        bytes.resize(bytes.len() + size, 0xa5);
        let digest = rig.write(&name, &bytes);
        rig.submit(&id, &name, target.clone()).await;
        sent.push(Sent { id, target, digest });
    }
    sent
}

/// Platforms lose answers and requests too, sometimes.
fn trouble(rig: &Rig) {
    let mut random = rand::rng();
    match random.random_range(0..4) {
        0 => rig.telegram.script(TelegramFault::NeverAnswer),
        1 => rig.telegram.script(TelegramFault::LoseAnswer),
        2 => rig.telegram.script(TelegramFault::CloseDuringBody),
        _ => {}
    }
    match random.random_range(0..4) {
        0 => rig.discord.script(DiscordFault::LoseAnswer),
        1 => rig.discord.script(DiscordFault::CloseDuringBody),
        _ => {}
    }
    match random.random_range(0..4) {
        0 => rig.slack.script(SlackFault::LoseAnswer),
        1 => rig.slack.script(SlackFault::LoseRequest),
        _ => {}
    }
    match random.random_range(0..4) {
        0 => rig.webhook.script(WebhookFault::LoseAnswer),
        1 => rig.webhook.script(WebhookFault::CloseDuringBody),
        _ => {}
    }
}

/// A random moment of work goes by.
async fn some_millis(most: u64) {
    let moment = Duration::from_millis(rand::rng().random_range(0..=most));
    tokio::time::timeout(moment, std::future::pending::<()>())
        .await
        .ok();
}

async fn check(rig: &Rig, sent: &[Sent]) {
    let mut states: BTreeMap<(String, String), usize> = BTreeMap::new();
    let mut wrong = Vec::new();
    for delivery in sent {
        let file = rig.ended(&delivery.id, PATIENCE).await;
        let shown = delivery.shown(rig);
        let truthful = match file.state.as_str() {
            "delivered" => shown == 1,
            "unknown" => shown <= 1,
            "failed" | "rejected" => shown == 0,
            _ => false,
        };
        if !truthful {
            wrong.push(format!("{} shown {shown} times: {file:?}", delivery.id));
        }
        let of = (delivery.target.platform.clone(), file.state);
        *states.entry(of).or_default() += 1;
    }
    assert!(wrong.is_empty(), "{states:?}\n{}", wrong.join("\n"));
    // Repeating is harmless there: whatever dies, the file arrives.
    for (platform, state) in states.keys() {
        assert!(platform != "webhook" || state == "delivered", "{states:?}");
    }
    assert_eq!(states.values().sum::<usize>(), sent.len());
}
