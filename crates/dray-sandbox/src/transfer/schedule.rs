//! When to try again, over what, and when to stop (sandbox-transfer 1.3).

use std::collections::BTreeMap;
use std::time::Duration;

use tokio::time::sleep;

use super::engine::Engine;
use crate::error::{Again, Error, ErrorKind};
use crate::metadata::Transport;
use crate::policy::{Refusal, Way};
use crate::receipt::{Receipt, Skipped};

/// Longest random pause.
const LONGEST_PAUSE: Duration = Duration::from_secs(30);
/// Longest wait that a provider can ask for.
const LONGEST_WAIT: Duration = Duration::from_mins(10);
/// Bytes that an interrupted copy must have gone on for, for the interruption not to count.
const MIN_PROGRESS_BYTES: u64 = 16 << 20;

/// What failed in a transfer, and where.
#[derive(Debug)]
pub(super) struct Trouble {
    pub(super) error: Error,
    pub(super) stage: Stage,
}

/// Where something failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    /// Asking the sandbox.
    Control,
    /// Moving bytes.
    Transport,
    /// On our side.
    Host,
}

impl Trouble {
    pub(super) const fn transport(error: Error) -> Self {
        Self {
            error,
            stage: Stage::Transport,
        }
    }

    pub(super) const fn host(error: Error) -> Self {
        Self {
            error,
            stage: Stage::Host,
        }
    }
}

impl From<Error> for Trouble {
    fn from(error: Error) -> Self {
        Self {
            error,
            stage: Stage::Control,
        }
    }
}

impl From<Refusal> for Trouble {
    fn from(refusal: Refusal) -> Self {
        Error::from(refusal).into()
    }
}

/// Counts the failures of one transfer.
#[derive(Debug)]
pub(super) struct Schedule<'a> {
    engine: &'a Engine,
    way: Way,
    /// Failures by limit: those that share a limit are counted together.
    failures: BTreeMap<ErrorKind, u32>,
    corrupted: BTreeMap<Transport, u32>,
    pauses: u32,
    /// Bytes through when the last interruption was counted.
    mark: u64,
    /// What the last transport was given up for.
    given_up_for: Option<Error>,
}

impl<'a> Schedule<'a> {
    pub(super) fn new(engine: &'a Engine, way: Way) -> Self {
        Self {
            engine,
            way,
            failures: BTreeMap::new(),
            corrupted: BTreeMap::new(),
            pauses: 0,
            mark: 0,
            given_up_for: None,
        }
    }

    /// The transport for the next attempt, of those that are usable (best first).
    pub(super) fn choose(
        &mut self,
        usable: Vec<Transport>,
        receipt: &mut Receipt,
    ) -> Result<Transport, Trouble> {
        let chosen = self.engine.choose(self.way, usable, &mut receipt.skipped);
        chosen.ok_or_else(|| {
            let none = || Error::new(ErrorKind::ToolMissing, "no transport reaches this path");
            Trouble::host(self.given_up_for.take().unwrap_or_else(none))
        })
    }

    /// A copy goes on where it broke off, with so many bytes through: what got well ahead may break again.
    pub(super) fn continued(&mut self, through: u64) {
        if through >= self.mark.saturating_add(MIN_PROGRESS_BYTES) {
            self.mark = through;
            self.failures.clear();
            self.pauses = 0;
        }
    }

    /// Waits until it is time to try again, or gives back the error when it is not worth it.
    pub(super) async fn after(
        &mut self,
        trouble: Trouble,
        receipt: &mut Receipt,
    ) -> Result<(), Error> {
        let Trouble { error, stage } = trouble;
        let kind = error.kind();
        let transport = receipt.transport.filter(|_| stage == Stage::Transport);
        match (kind, transport) {
            _ if stage == Stage::Host => return Err(error),
            (ErrorKind::ToolMissing | ErrorKind::Protocol, Some(transport)) => {
                self.give_up(transport, error, receipt);
                return Ok(());
            }
            (ErrorKind::Corrupted, Some(transport)) => {
                let count = self.corrupted.entry(transport).or_default();
                *count += 1;
                if *count >= limit(kind) {
                    self.give_up(transport, error, receipt);
                    return Ok(());
                }
            }
            _ => {
                let shared = match kind {
                    ErrorKind::ChangedDuringTransfer | ErrorKind::Corrupted => kind,
                    _ => ErrorKind::Unavailable,
                };
                let count = self.failures.entry(shared).or_default();
                *count += 1;
                if *count >= limit(kind) {
                    return Err(error);
                }
            }
        }
        self.pause(&error).await;
        Ok(())
    }

    fn give_up(&mut self, transport: Transport, error: Error, receipt: &mut Receipt) {
        let skipped = Skipped {
            transport,
            reason: error.kind(),
        };
        tracing::warn!(transport = transport.as_str(), %error, "transport given up");
        receipt.skipped.push(skipped);
        self.engine.give_up(self.way, skipped);
        self.given_up_for = Some(error);
    }

    /// Doubling, with full jitter; what the provider asks for is the least.
    async fn pause(&mut self, error: &Error) {
        let longest = self
            .engine
            .options
            .backoff
            .saturating_mul(1 << self.pauses.min(16))
            .min(LONGEST_PAUSE);
        self.pauses += 1;
        let pause = rand::random_range(Duration::ZERO..=longest);
        let asked = error.retry_after().unwrap_or_default().min(LONGEST_WAIT);
        tracing::debug!(%error, "trying again");
        sleep(pause.max(asked)).await;
    }
}

/// Attempts that may fail with this kind.
const fn limit(kind: ErrorKind) -> u32 {
    match kind.again() {
        Again::BackOff(limit) => limit,
        Again::Never | Again::OtherTransport | Again::Resolve => 1,
    }
}
