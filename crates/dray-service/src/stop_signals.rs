//! The signals that request the end of a process: SIGINT, SIGTERM and SIGHUP.

use std::io;

use tokio::signal::unix::{Signal, SignalKind, signal};

/// Receivers of the signals with which people, terminals and service managers end a process.
///
/// SIGHUP comes when a terminal or an SSH session closes. Where the process was started to outlive its terminal
/// (`nohup`), SIGHUP stays ignored.
#[derive(Debug)]
pub struct StopSignals {
    interrupt: Signal,
    terminate: Signal,
    hangup: Option<Signal>,
}

impl StopSignals {
    /// Replaces the default action of the signals for the rest of the process.
    ///
    /// # Errors
    ///
    /// The errors of the operating system.
    pub fn listen() -> io::Result<Self> {
        Ok(Self {
            interrupt: signal(SignalKind::interrupt())?,
            terminate: signal(SignalKind::terminate())?,
            hangup: listen_to_hangup()?,
        })
    }

    /// Waits for the next signal and returns its exit code: 128 + its number, as shells have it.
    pub async fn next(&mut self) -> u8 {
        tokio::select! {
            _ = self.interrupt.recv() => 130,
            _ = self.terminate.recv() => 143,
            () = next_hangup(&mut self.hangup) => {
                // The shell and the kernel may each send one when a terminal closes. The second must not count as the
                // wish to end without an orderly stop.
                self.hangup = None;
                129
            }
        }
    }
}

/// The receiver of SIGHUP; `None` where the process has ignored it since its start, or where this is not known.
///
/// # Errors
///
/// The errors of the operating system.
pub fn listen_to_hangup() -> io::Result<Option<Signal>> {
    // A handler would replace the ignored action that `nohup` gave to the process. Handlers that this process has
    // installed itself are listed as caught, not as ignored.
    let ignored = std::fs::read_to_string("/proc/self/status")
        .ok()
        .and_then(|status| ignores_hangup(&status));
    match ignored {
        Some(false) => signal(SignalKind::hangup()).map(Some),
        Some(true) | None => Ok(None),
    }
}

/// Waits for SIGHUP. Without a receiver it never returns.
pub async fn next_hangup(hangup: &mut Option<Signal>) {
    match hangup {
        Some(hangup) => {
            hangup.recv().await;
        }
        None => std::future::pending().await,
    }
}

/// Whether SIGHUP (signal 1, the lowest bit) is in the mask `SigIgn` of `/proc/PID/status` (proc(5)).
fn ignores_hangup(status: &str) -> Option<bool> {
    let mask = status
        .lines()
        .find_map(|line| line.strip_prefix("SigIgn:"))?;
    let mask = u64::from_str_radix(mask.trim(), 16).ok()?;
    Some(mask & 1 == 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mask_of_ignored_signals_shows_whether_hangup_is_ignored() {
        let status =
            |mask: &str| format!("Name:\tdray\nSigBlk:\t01\nSigIgn:\t{mask}\nSigCgt:\t01\n");
        assert_eq!(ignores_hangup(&status("0000000000001001")), Some(true));
        assert_eq!(ignores_hangup(&status("0000000000001000")), Some(false));
        assert_eq!(ignores_hangup(&status("?")), None);
        assert_eq!(ignores_hangup("Name:\tdray\n"), None);
    }
}
