//! Tests that kill services while files are delivered to all platforms: a few times in the default suite, hundreds of
//! times in the soak. Half of the kills happen at a random time; the others follow a step of a delivery: its files are
//! stored, a visible request begins, the request has ended.
//!
//! Every delivery must end, be reported as delivered only if it is shown, and be shown at most once.

use std::collections::BTreeMap;
use std::time::Duration;

use dray_proto::NamedCode as _;
use dray_proto::v1::{self, FileState};
use dray_types::Sha256Digest;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom as _;
use rand::{Rng as _, SeedableRng as _};

use super::platforms::{ALL_PLATFORMS, IDEMPOTENT_PLATFORMS};
use super::transfer_fixture::{SERVICE_NAMES, TransferFixture};
use crate::support::service_process::ServiceProcess;

/// Longest time between the publication of work and the kill, in milliseconds: about the duration of a step.
const MAX_WORK_DELAY_MS: u64 = 400;
/// Longest time between a step of a delivery and the kill, in milliseconds.
const MAX_STEP_DELAY_MS: u64 = 30;
/// Longest wait for a step of a delivery.
const STEP_TIMEOUT: Duration = Duration::from_secs(2);
/// Number of platforms to which files are sent before each kill.
const PLATFORMS_PER_KILL: usize = 4;
/// Number of files that each of these platforms gets.
const FILES_PER_PLATFORM: usize = 2;
/// Longest time until a delivery ends after the last kill: two leases and redeliveries, and every wait of a delivery,
/// on a busy machine.
const DELIVERY_TIMEOUT: Duration = Duration::from_mins(6);
/// Attempts after which work becomes a dead letter, and attempts of a visible request.
const MAX_ATTEMPTS: u32 = 5;

/// The parameters of a run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct KillRun {
    /// Number of kills of each service.
    pub(crate) rounds: usize,
    /// Seed of all random choices.
    pub(crate) seed: u64,
    /// Whether the test ends the leases of killed processes after the last kill; otherwise the test waits until they
    /// expire.
    pub(crate) expires_leases: bool,
}

/// A delivery whose work was published.
struct AcceptedDelivery {
    id: String,
    target: v1::ChatTarget,
    digest: Sha256Digest,
}

/// When a service is killed.
#[derive(Clone, Copy, Debug)]
enum KillMoment {
    /// This many milliseconds after the work was published.
    After(u64),
    /// As soon as the record of a delivery has this state, and this many milliseconds later.
    When(KillStep, u64),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum KillStep {
    Stored,
    Sending,
    Finished,
}

impl KillMoment {
    fn random(random: &mut StdRng) -> Self {
        let delay_ms = random.random_range(0..=MAX_STEP_DELAY_MS);
        match random.random_range(0..6) {
            0 => Self::When(KillStep::Stored, delay_ms),
            1 => Self::When(KillStep::Sending, delay_ms),
            2 => Self::When(KillStep::Finished, delay_ms),
            _ => Self::After(random.random_range(0..=MAX_WORK_DELAY_MS)),
        }
    }

    /// Waits until it is time to kill.
    async fn wait(self, fixture: &TransferFixture, id: &str) {
        let millis = match self {
            Self::After(millis) => millis,
            Self::When(step, millis) => {
                let step_reached = async {
                    while !has_reached(fixture, id, step).await {
                        tokio::task::yield_now().await;
                    }
                };
                // If a step does not occur in time, the service is killed nevertheless.
                tokio::time::timeout(STEP_TIMEOUT, step_reached).await.ok();
                millis
            }
        };
        let delay = Duration::from_millis(millis);
        tokio::time::timeout(delay, std::future::pending::<()>())
            .await
            .ok();
    }
}

async fn has_reached(fixture: &TransferFixture, id: &str, step: KillStep) -> bool {
    let Some(record) = fixture.record(id).await else {
        return false;
    };
    match step {
        KillStep::Stored => true,
        KillStep::Sending => !record.steps.is_empty(),
        KillStep::Finished => record.finished,
    }
}

/// Kills each of the services as often as `run` says, and then checks the outcome of every delivery.
pub(crate) async fn kill_services(run: KillRun) {
    println!("{run:?}");
    let fixture = TransferFixture::start().await;
    let mut random = StdRng::seed_from_u64(run.seed);
    let mut running: BTreeMap<&str, ServiceProcess> = BTreeMap::new();
    for service in SERVICE_NAMES {
        running.insert(service, fixture.up(service).await);
    }
    let mut sent = Vec::new();
    for round in 0..run.rounds {
        for (index, victim) in SERVICE_NAMES.into_iter().enumerate() {
            fixture.platforms.inject_random_fault(&mut random);
            let batch = submit(&fixture, round * SERVICE_NAMES.len() + index, &mut random).await;
            let watched_id = batch.choose(&mut random).unwrap().id.clone();
            KillMoment::random(&mut random)
                .wait(&fixture, &watched_id)
                .await;
            running.remove(victim).unwrap().kill9();
            if run.expires_leases && round + 1 == run.rounds && victim == "platform-delivery" {
                fixture.expire_leases().await;
            }
            running.insert(victim, fixture.up(victim).await);
            sent.extend(batch);
        }
        if round % 10 == 9 {
            println!(
                "{} of {} rounds, {} deliveries",
                round + 1,
                run.rounds,
                sent.len()
            );
        }
    }
    if run.expires_leases {
        fixture.shorten_ack_wait().await;
    }
    check(&fixture, &sent, run).await;
    let taken_over = fixture.taken_over().await;
    println!("work was interrupted {taken_over} times");
    assert!(
        taken_over >= run.rounds / 20,
        "{run:?}: work was interrupted only {taken_over} times"
    );
}

/// Publishes deliveries of files to some of the platforms, each to a separate chat.
async fn submit(
    fixture: &TransferFixture,
    step: usize,
    random: &mut StdRng,
) -> Vec<AcceptedDelivery> {
    let platforms: Vec<_> = ALL_PLATFORMS
        .choose_multiple(random, PLATFORMS_PER_KILL)
        .collect();
    let mut sent = Vec::new();
    for (index, platform) in (0..FILES_PER_PLATFORM)
        .flat_map(|_| platforms.clone())
        .enumerate()
    {
        let id = format!("{platform}-{step}-{index}");
        let name = format!("{id}.bin");
        let size = random.random_range(1..200_000);
        let mut bytes = id.clone().into_bytes();
        bytes.resize(bytes.len() + size, 0xa5);
        let digest = fixture.write(&name, &bytes);
        let target = fixture.platforms.chat(platform, &id);
        fixture.submit(&id, &name, target.clone()).await;
        sent.push(AcceptedDelivery { id, target, digest });
    }
    sent
}

async fn check(fixture: &TransferFixture, sent: &[AcceptedDelivery], run: KillRun) {
    let mut states: BTreeMap<String, BTreeMap<String, usize>> = BTreeMap::new();
    let mut failures = Vec::new();
    for delivery in sent {
        let file = fixture.wait_for_file(&delivery.id, DELIVERY_TIMEOUT).await;
        let copies = fixture
            .platforms
            .count_shown(&delivery.target, delivery.digest);
        let is_truthful = match file.file_state() {
            FileState::Delivered => copies == 1,
            FileState::Unknown => copies <= 1,
            FileState::Failed | FileState::Rejected => copies == 0,
            _ => false,
        };
        let platform = delivery.target.platform.as_str();
        // A repeated request is harmless on these platforms, so the file must arrive unless interruptions used up all
        // attempts of its work or of its request.
        let is_lost = IDEMPOTENT_PLATFORMS.contains(&platform)
            && file.file_state() != FileState::Delivered
            && file.attempts < MAX_ATTEMPTS
            && fixture.attempts(&delivery.id).await < MAX_ATTEMPTS;
        if !is_truthful || is_lost {
            failures.push(format!("{} shown {copies} times: {file:?}", delivery.id));
        }
        let counts = states.entry(platform.to_owned()).or_default();
        *counts
            .entry(file.file_state().name().to_owned())
            .or_default() += 1;
    }
    println!("{states:?}");
    assert!(
        failures.is_empty(),
        "{run:?} {states:?}\n{}",
        failures.join("\n")
    );
    let total: usize = states.values().flat_map(BTreeMap::values).sum();
    assert_eq!(total, sent.len());
    // In a short run few deliveries go to each platform, so those without idempotent requests are counted together.
    let delivered: usize = states
        .iter()
        .filter(|(platform, _)| !IDEMPOTENT_PLATFORMS.contains(&platform.as_str()))
        .filter_map(|(_, counts)| counts.get("delivered"))
        .sum();
    assert!(delivered > 0, "{run:?} {states:?}");
    if sent.len() > 500 {
        for (platform, counts) in &states {
            let total: usize = counts.values().sum();
            let delivered = counts.get("delivered").copied().unwrap_or_default();
            assert!(delivered * 2 > total, "{run:?} {platform}: {counts:?}");
        }
    }
}
