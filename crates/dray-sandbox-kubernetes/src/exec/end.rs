//! How a command ends, by itself or because its caller is gone.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use dray_sandbox::{Error, ErrorKind};
use tokio::runtime::Handle;
use tokio::time::sleep;

use super::PodExec;
use super::streams::Streams;

/// How often an abandoned command is looked for: it may not have been started yet.
const MAX_LOOKS: usize = 3;
/// Between two looks.
const POLL_INTERVAL: Duration = Duration::from_millis(100);

/// Kills every process that carries the mark, until a look finds none, and says whether it found any. `read` leaves out
/// the NULs between variables, so nothing but a shell is needed.
const KILL_SCRIPT: &str = r#"
marked() {
  while IFS= read -r line || [ -n "$line" ]; do
    case $line in *"$1"*) return 0 ;; esac
  done
  return 1
}
any=0 left=20
while [ "$left" != 0 ]; do
  found=0 left=$((left - 1))
  for process in /proc/[0-9]*; do
    if marked "$1" <"$process/environ"; then kill -9 "${process#/proc/}" && found=1 any=1; fi
  done
  [ "$found" = 1 ] || break
done 2>/dev/null
printf %s "$any"
"#;

/// A command that may run.
#[derive(Debug)]
pub(super) struct End {
    exec: PodExec,
    mark: String,
    /// Whether it has ended, or is being ended.
    over: AtomicBool,
    status: Mutex<Option<i32>>,
    runtime: Handle,
}

impl End {
    pub(super) fn new(exec: PodExec, mark: String) -> Arc<Self> {
        Arc::new(Self {
            exec,
            mark,
            over: AtomicBool::new(false),
            status: Mutex::new(None),
            runtime: Handle::current(),
        })
    }

    /// It does not run any more, or never did.
    pub(super) fn is_over(&self) {
        self.over.store(true, Ordering::SeqCst);
    }

    /// It ended with this status.
    pub(super) fn ended(&self, status: i32) {
        *self.status.lock().unwrap_or_else(PoisonError::into_inner) = Some(status);
        self.is_over();
    }

    fn status(&self) -> Option<i32> {
        *self.status.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Has it killed unless it has ended.
    fn kill(self: &Arc<Self>) {
        if self.over.swap(true, Ordering::SeqCst) {
            return;
        }
        self.exec.pending.begin();
        let end = Arc::clone(self);
        let killing = async move {
            if let Err(error) = end.kill_all().await {
                // A container that stopped or went away has no commands either.
                tracing::debug!(%error, "a command could not be ended");
            }
            end.exec.pending.end();
        };
        let tasks = self.exec.place.cluster.tasks();
        drop(tasks.spawn_on(killing, &self.runtime));
    }

    async fn kill_all(&self) -> Result<(), Error> {
        for look in 0..MAX_LOOKS {
            if look > 0 {
                sleep(POLL_INTERVAL).await;
            }
            if self.kill_once().await? {
                break;
            }
        }
        Ok(())
    }

    async fn kill_once(&self) -> Result<bool, Error> {
        let command = ["sh", "-c", KILL_SCRIPT, "sh", &self.mark].map(str::to_owned);
        let connection = self.exec.connect(&command, false).await?;
        // This one is not ended in its turn.
        let end = Self::new(self.exec.clone(), String::new());
        end.is_over();
        let mut streams = Streams::new(connection, None, end);
        let mut said = Vec::new();
        while let Some(piece) = streams.next().await? {
            said.extend_from_slice(&piece);
        }
        Ok(said == b"1")
    }
}

/// Dropping one before the command has ended kills it.
#[derive(Debug)]
pub(super) struct Ending(Arc<End>);

impl Ending {
    pub(super) fn new(end: &Arc<End>) -> Self {
        Self(Arc::clone(end))
    }

    /// How it ended; its output was read.
    pub(super) fn status(&self) -> Result<i32, Error> {
        let none = || Error::new(ErrorKind::Protocol, "a command without a status");
        self.0.status().ok_or_else(none)
    }
}

impl Drop for Ending {
    fn drop(&mut self) {
        self.0.kill();
    }
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Output};

    use super::*;

    fn look(shell: &[&str], mark: &str) -> Output {
        let (program, arguments) = shell.split_first().unwrap();
        let mut command = Command::new(program);
        command
            .args(arguments)
            .args(["-c", KILL_SCRIPT, "sh", mark]);
        command.output().unwrap()
    }

    #[test]
    fn every_shell_finds_what_carries_the_mark_and_nothing_else() {
        for shell in [&["dash"][..], &["bash"], &["busybox", "sh"]] {
            let mark = format!("{:032x}", rand::random::<u128>());
            let mut marked = Command::new("sleep")
                .arg("600")
                .env("BEFORE", "two\nlines")
                .env("DRAY_TRANSFER", &mark)
                .spawn()
                .unwrap();
            let mut other = Command::new("sleep").arg("600").spawn().unwrap();
            assert_eq!(look(shell, &mark).stdout, b"1", "{shell:?}");
            assert!(!marked.wait().unwrap().success());
            assert!(other.try_wait().unwrap().is_none(), "{shell:?}");
            other.kill().unwrap();
            other.wait().unwrap();
            assert_eq!(look(shell, &mark).stdout, b"0", "{shell:?}");
        }
    }
}
