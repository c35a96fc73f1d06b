//! Settings of a run: its size, its faults, and the rule that it breaks on purpose.

use std::time::Duration;

/// Settings of a run. Equal settings give equal runs.
#[derive(Clone, Debug)]
pub struct SimulationOptions {
    /// Seed of all random choices.
    pub seed: u64,
    /// Operations that are published.
    pub operations: u64,
    /// Number of worker processes.
    pub replicas: u32,
    /// Operations published per second of virtual time.
    pub rate: f64,
    /// Share of deliveries among the operations, between 0 and 1; the others are tool calls.
    pub delivery_share: f64,
    /// Kinds and rates of faults.
    pub faults: FaultSettings,
    /// The rule that is switched off; `None` for the product as it is.
    pub broken_rule: Option<BrokenRule>,
}

impl Default for SimulationOptions {
    fn default() -> Self {
        Self {
            seed: 1,
            operations: 10_000_000,
            replicas: 1_000,
            rate: 5_000.0,
            delivery_share: 0.3,
            faults: FaultSettings::default(),
            broken_rule: None,
        }
    }
}

/// How often things fail. A mean time of zero means never.
#[derive(Clone, Debug)]
pub struct FaultSettings {
    /// Mean time between kills of one replica.
    pub kill_every: Duration,
    /// Mean time between partitions of one replica from the bus.
    pub partition_every: Duration,
    /// Mean time between pauses of one replica.
    pub pause_every: Duration,
    /// Mean time between restarts of the bus.
    pub outage_every: Duration,
    /// Largest difference between a replica's clock and the true time.
    pub clock_skew: Duration,
    /// Probability that a request to the bus, or its response, is lost or late.
    pub lost_request: f64,
    /// Probability that an operation is published once more.
    pub republished: f64,
    /// Probability of each fault of a platform for one visible request.
    pub platform_fault: f64,
    /// Probability that a handler fails or panics.
    pub failing_handler: f64,
}

impl Default for FaultSettings {
    fn default() -> Self {
        Self {
            kill_every: Duration::from_mins(5),
            partition_every: Duration::from_mins(5),
            pause_every: Duration::from_mins(5),
            outage_every: Duration::from_mins(5),
            clock_skew: Duration::from_secs(5),
            // Higher than on any real network, so that a million operations meet enough of them.
            lost_request: 0.000_5,
            republished: 0.05,
            platform_fault: 0.01,
            // About one run of a handler in fourteen, so that every kind of failure occurs in short runs too.
            failing_handler: 0.07,
        }
    }
}

impl FaultSettings {
    /// Settings without failures, to measure the load without failures.
    pub const fn none() -> Self {
        Self {
            kill_every: Duration::ZERO,
            partition_every: Duration::ZERO,
            pause_every: Duration::ZERO,
            outage_every: Duration::ZERO,
            clock_skew: Duration::ZERO,
            lost_request: 0.0,
            republished: 0.0,
            platform_fault: 0.0,
            failing_handler: 0.0,
        }
    }
}

/// A rule of the product that the simulation breaks, in its own code around the decisions, to show that it detects the
/// violation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BrokenRule {
    /// The bus stores a write without checking its revision.
    IgnoreRevision,
    /// A message is acknowledged when its work begins.
    AcknowledgeFirst,
    /// A visible request is sent again after a lost response, regardless of the protection of the platform.
    RepeatAmbiguousSend,
    /// The record says `sending` only after the request.
    SendBeforeRecord,
    /// A request without a response counts as confirmed.
    BelieveLostResponse,
    /// No response counts as a confirmation, so that every delivery whose request was answered ends as unknown.
    AlwaysUnknown,
}

impl BrokenRule {
    /// Every rule that can be switched off.
    pub const ALL: [Self; 6] = [
        Self::IgnoreRevision,
        Self::AcknowledgeFirst,
        Self::RepeatAmbiguousSend,
        Self::SendBeforeRecord,
        Self::BelieveLostResponse,
        Self::AlwaysUnknown,
    ];
}
