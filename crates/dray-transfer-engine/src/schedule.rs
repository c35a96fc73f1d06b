//! Rules for retries: when, over which transport, and when to stop (sandbox-transfer 1.3).

use std::collections::BTreeMap;
use std::time::Duration;

use dray_sandbox::error::{Error, ErrorKind, RetryMode};
use dray_sandbox::metadata::Transport;
use tokio::time::sleep;

use super::engine::Engine;
use crate::policy::{Refusal, TransferDirection};
use crate::receipt::{Receipt, SkippedTransport};

/// Largest back-off between two attempts.
const MAX_DELAY: Duration = Duration::from_secs(30);
/// Progress in bytes after which an interruption no longer counts.
const MIN_PROGRESS_BYTES: u64 = 16 << 20;

/// A failure in a transfer, with the stage at which it occurred.
#[derive(Debug)]
pub(super) struct TransferError {
    pub(super) error: Error,
    pub(super) stage: Stage,
}

/// The stage of a failure, which decides what caused it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stage {
    /// A request to the sandbox that is not a stream.
    Control,
    /// The stream of bytes over a transport.
    Transport,
    /// The sink, the source or policy on this host.
    Host,
}

impl TransferError {
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

impl From<Error> for TransferError {
    fn from(error: Error) -> Self {
        Self {
            error,
            stage: Stage::Control,
        }
    }
}

impl From<Refusal> for TransferError {
    fn from(refusal: Refusal) -> Self {
        Error::from(refusal).into()
    }
}

/// Failures of one transfer so far, and the rules for the next attempt.
#[derive(Debug)]
pub(super) struct Schedule<'a> {
    engine: &'a Engine,
    direction: TransferDirection,
    /// Failures by limit: kinds that share a limit are counted together.
    failures: BTreeMap<ErrorKind, u32>,
    corrupted: BTreeMap<Transport, u32>,
    pauses: u32,
    /// Bytes that had been moved when the count of interruptions was last reset.
    progress_mark: u64,
    /// The failure after which the last transport was no longer used.
    given_up_for: Option<Error>,
}

impl<'a> Schedule<'a> {
    pub(super) fn new(engine: &'a Engine, direction: TransferDirection) -> Self {
        Self {
            engine,
            direction,
            failures: BTreeMap::new(),
            corrupted: BTreeMap::new(),
            pauses: 0,
            progress_mark: 0,
            given_up_for: None,
        }
    }

    /// The transport for the next attempt, out of those that are usable (best first).
    pub(super) fn choose(
        &mut self,
        usable: Vec<Transport>,
        receipt: &mut Receipt,
    ) -> Result<Transport, TransferError> {
        let chosen = self
            .engine
            .choose(self.direction, usable, &mut receipt.skipped);
        chosen.ok_or_else(|| {
            let none = || Error::new(ErrorKind::ToolMissing, "no transport reaches this path");
            // The last failure of a transport has the cause; "no transport" would hide it.
            TransferError::host(self.given_up_for.take().unwrap_or_else(none))
        })
    }

    /// Records that a copy continues after `moved_bytes` bytes. After enough progress, earlier interruptions do not
    /// count.
    pub(super) fn record_progress(&mut self, moved_bytes: u64) {
        if moved_bytes >= self.progress_mark.saturating_add(MIN_PROGRESS_BYTES) {
            self.progress_mark = moved_bytes;
            self.failures.clear();
            self.pauses = 0;
        }
    }

    /// Waits until the next attempt is due, or returns the error when there is none.
    pub(super) async fn after(
        &mut self,
        failure: TransferError,
        receipt: &mut Receipt,
    ) -> Result<(), Error> {
        let TransferError { error, stage } = failure;
        let kind = error.kind();
        let transport = receipt.transport.filter(|_| stage == Stage::Transport);
        let max_delay = self.engine.options.max_provider_delay;
        if error.retry_after().is_some_and(|delay| delay > max_delay) {
            return Err(error);
        }
        match (kind, transport) {
            // Final: failures of sinks and sources, and errors that this schedule returned before.
            _ if stage == Stage::Host => return Err(error),
            // The next transport is tried without a pause, because it has not failed yet.
            (ErrorKind::ToolMissing | ErrorKind::Protocol, Some(transport)) => {
                self.give_up(transport, error, receipt);
                return Ok(());
            }
            (ErrorKind::Corrupted, Some(transport)) => {
                let count = self.corrupted.entry(transport).or_default();
                *count += 1;
                if *count >= max_failures(kind) {
                    self.give_up(transport, error, receipt);
                    return Ok(());
                }
            }
            _ => {
                // One budget for all temporary failures: a peer must not get five attempts for each kind.
                let shared = match kind {
                    ErrorKind::ChangedDuringTransfer | ErrorKind::Corrupted => kind,
                    _ => ErrorKind::Unavailable,
                };
                let count = self.failures.entry(shared).or_default();
                *count += 1;
                if *count >= max_failures(kind) {
                    return Err(error);
                }
            }
        }
        self.pause(&error).await;
        Ok(())
    }

    fn give_up(&mut self, transport: Transport, error: Error, receipt: &mut Receipt) {
        let skipped = SkippedTransport {
            transport,
            reason: error.kind(),
        };
        tracing::warn!(transport = transport.as_str(), %error, "transport given up");
        receipt.skipped.push(skipped);
        self.engine.give_up(self.direction, skipped);
        self.given_up_for = Some(error);
    }

    /// Waits. The back-off doubles, with full jitter; a delay that the provider requests is the minimum.
    async fn pause(&mut self, error: &Error) {
        let longest = self
            .engine
            .options
            .backoff
            // The shift must not overflow; the back-off reached its maximum long before.
            .saturating_mul(1 << self.pauses.min(16))
            .min(MAX_DELAY);
        self.pauses += 1;
        let pause = rand::random_range(Duration::ZERO..=longest);
        let requested = error.retry_after().unwrap_or_default();
        tracing::debug!(%error, "trying again");
        sleep(pause.max(requested)).await;
    }
}

/// Attempts that may fail with this kind before it is final.
const fn max_failures(kind: ErrorKind) -> u32 {
    match kind.retry_mode() {
        RetryMode::BackOff(limit) => limit,
        RetryMode::Never | RetryMode::OtherTransport | RetryMode::Resolve => 1,
    }
}
