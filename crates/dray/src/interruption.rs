//! SIGINT, SIGTERM and SIGHUP in commands that end by themselves: the command is dropped, what it staged is removed,
//! and the exit code names the signal.

use std::path::Path;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use dray_service::stop_signals::{self, StopSignals};
use dray_types::whole_millis;
use futures_util::FutureExt as _;
use tempfile::TempDir;
use tokio::signal::unix::{SignalKind, signal};

use crate::CommandFuture;
use crate::outcome::CommandFailure;

/// How long a command with a [`CleanupHold`] may take to end after a signal, beyond what its services may take to stop
/// in order.
const CLEANUP_MARGIN: Duration = Duration::from_secs(5);
/// Least time to clean up, for a command that has started no services yet.
const MIN_CLEANUP_TIMEOUT: Duration = Duration::from_secs(50);
/// How long tasks of a command that was dropped may take to end.
pub(crate) const TASK_TIMEOUT: Duration = Duration::from_secs(1);

/// How long the services of this command may take to stop in order, in milliseconds.
static SERVICE_STOP_MS: AtomicU64 = AtomicU64::new(0);
/// Number of existing [`CleanupHold`]s.
static HOLD_COUNT: AtomicUsize = AtomicUsize::new(0);
/// Directories that are removed when no task runs that could write into them.
static ABANDONED_DIRECTORIES: Mutex<Vec<TempDir>> = Mutex::new(Vec::new());

/// While it exists, a signal waits for the end of the command, which reacts to the signal itself.
#[derive(Debug)]
pub(crate) struct CleanupHold(());

impl CleanupHold {
    pub(crate) fn new() -> Self {
        HOLD_COUNT.fetch_add(1, Ordering::Relaxed);
        Self(())
    }
}

impl Drop for CleanupHold {
    fn drop(&mut self) {
        HOLD_COUNT.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Records the time that services of this command may take to stop: `shutdown.grace` and `shutdown.flush`. The longest
/// one counts.
pub(crate) fn set_stop_timeout(timeout: Duration) {
    let millis = whole_millis(timeout);
    SERVICE_STOP_MS.fetch_max(millis, Ordering::Relaxed);
}

/// How long a command with a [`CleanupHold`] may take to end after a signal.
fn cleanup_timeout() -> Duration {
    let stop = Duration::from_millis(SERVICE_STOP_MS.load(Ordering::Relaxed));
    MIN_CLEANUP_TIMEOUT.max(stop.saturating_add(CLEANUP_MARGIN))
}

/// A temporary directory of services that run during a command. When it is dropped before [`StagingDirectory::remove`],
/// tasks may still write into it; then it is removed at the end of the process.
#[derive(Debug)]
pub(crate) struct StagingDirectory(Option<TempDir>);

impl StagingDirectory {
    pub(crate) fn new() -> std::io::Result<Self> {
        tempfile::tempdir().map(|directory| Self(Some(directory)))
    }

    pub(crate) fn path(&self) -> &Path {
        self.0.as_ref().map_or(Path::new(""), TempDir::path)
    }

    /// Removes it with all of its content.
    pub(crate) fn remove(mut self) {
        drop(self.0.take());
    }
}

impl Drop for StagingDirectory {
    fn drop(&mut self) {
        if let Some(directory) = self.0.take() {
            let mut directories = ABANDONED_DIRECTORIES
                .lock()
                .unwrap_or_else(PoisonError::into_inner);
            directories.push(directory);
        }
    }
}

/// Removes the directories of commands that were dropped. Called when no task is running.
pub(crate) fn remove_directories() {
    let directories = std::mem::take(
        &mut *ABANDONED_DIRECTORIES
            .lock()
            .unwrap_or_else(PoisonError::into_inner),
    );
    drop(directories);
}

/// Listens to the signals with which people and systems end a command.
pub(crate) fn listen_to_signals() -> Result<StopSignals, CommandFailure> {
    StopSignals::listen().map_err(CommandFailure::local("cannot handle signals"))
}

/// Runs a command until a signal comes. A second signal does not wait for a [`CleanupHold`].
pub(crate) async fn run_command(
    mut command: CommandFuture<'_>,
    as_json: bool,
) -> Result<(), CommandFailure> {
    let mut signals = listen_to_signals()?;
    let status = tokio::select! {
        // The command is polled first, because parts of it react to the same signal.
        biased;
        ended = &mut command => {
            return match (ended, signals.next().now_or_never()) {
                (Err(failure), Some(status)) => {
                    failure.report(as_json);
                    Err(CommandFailure::Interrupted(status))
                }
                (ended, _) => ended,
            };
        }
        status = signals.next() => status,
    };
    if HOLD_COUNT.load(Ordering::Relaxed) > 0 {
        tokio::select! {
            biased;
            ended = &mut command => match ended {
                Ok(()) => return Ok(()),
                Err(failure) => failure.report(as_json),
            },
            _ = signals.next() => {}
            () = tokio::time::sleep(cleanup_timeout()) => {}
        }
    }
    Err(CommandFailure::Interrupted(status))
}

/// Runs a command that reacts to SIGINT itself until SIGTERM or SIGHUP comes, which drops it.
pub(crate) async fn run_until_terminated(command: CommandFuture<'_>) -> Result<(), CommandFailure> {
    // SIGINT keeps its default action until the command listens to it.
    let failed = || CommandFailure::local("cannot handle signals");
    let mut terminate = signal(SignalKind::terminate()).map_err(failed())?;
    let mut hangup = stop_signals::listen_to_hangup().map_err(failed())?;
    tokio::select! {
        biased;
        ended = command => ended,
        _ = terminate.recv() => Err(CommandFailure::Interrupted(143)),
        () = stop_signals::next_hangup(&mut hangup) => Err(CommandFailure::Interrupted(129)),
    }
}

/// Runs `work` until a signal comes, which drops it.
pub(crate) async fn until_interrupted<T>(
    work: impl Future<Output = Result<T, CommandFailure>>,
) -> Result<T, CommandFailure> {
    until_signal(&mut listen_to_signals()?, work).await
}

/// Like [`until_interrupted`], with signal handlers that were registered before the work, so that no signal is missed.
pub(crate) async fn until_signal<T>(
    signals: &mut StopSignals,
    work: impl Future<Output = Result<T, CommandFailure>>,
) -> Result<T, CommandFailure> {
    tokio::select! {
        biased;
        done = work => done,
        status = signals.next() => Err(CommandFailure::Interrupted(status)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_longer_grace_of_services_lengthens_the_time_for_cleaning_up() {
        assert_eq!(cleanup_timeout(), MIN_CLEANUP_TIMEOUT);
        set_stop_timeout(Duration::from_secs(45));
        assert_eq!(cleanup_timeout(), MIN_CLEANUP_TIMEOUT);
        set_stop_timeout(Duration::from_secs(125));
        assert_eq!(cleanup_timeout(), Duration::from_secs(130));
        // Services of one command that stop sooner do not shorten the time of others.
        set_stop_timeout(Duration::from_secs(1));
        assert_eq!(cleanup_timeout(), Duration::from_secs(130));
    }
}
