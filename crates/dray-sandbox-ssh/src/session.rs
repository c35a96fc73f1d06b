//! One channel of a shared connection: an `ssh` process that passes its pipes to the master.

use std::process::Stdio;
use std::time::Duration;

use dray_sandbox::{Error, ErrorKind};
use tokio::io::AsyncReadExt as _;
use tokio::process::{Child, ChildStderr, ChildStdin, ChildStdout, Command};
use tokio::task::JoinSet;
use tokio::time::timeout;

/// Most of the last bytes of stderr that are kept.
const STDERR_TAIL_BYTES: usize = 4096;
/// Time limit for the client to exit after its channel has ended.
const END_TIMEOUT: Duration = Duration::from_secs(10);
/// Capacity of the pipes, so that the master continues while this process hashes or writes. Linux limits the total for
/// each user.
const PIPE_BYTES: usize = 256 * 1024;

/// A running client. Dropping it closes the channel.
#[derive(Debug)]
pub(crate) struct Session {
    child: Child,
    /// The task that reads stderr.
    stderr_task: JoinSet<String>,
}

impl Session {
    /// Starts `ssh`, with a pipe to its input when `input`, and always one from its output.
    pub(crate) fn start(
        mut command: Command,
        input: bool,
    ) -> Result<(Self, Option<ChildStdin>, ChildStdout), Error> {
        if input {
            command.stdin(Stdio::piped());
        }
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().map_err(|error| {
            Error::new(ErrorKind::Unavailable, "ssh cannot be started").caused_by(error)
        })?;
        let stdin = child.stdin.take();
        let (Some(stdout), Some(stderr)) = (child.stdout.take(), child.stderr.take()) else {
            return Err(Error::new(ErrorKind::Unavailable, "ssh has no pipes"));
        };
        // Smaller pipes work as well; the system may not grant larger ones.
        let _ = rustix::pipe::fcntl_setpipe_size(&stdout, PIPE_BYTES);
        if let Some(stdin) = &stdin {
            let _ = rustix::pipe::fcntl_setpipe_size(stdin, PIPE_BYTES);
        }
        // Read from the beginning: a client that fills the pipe of stderr would block in the middle of a transfer. A
        // `JoinSet`, because dropping it ends the task.
        let mut stderr_task = JoinSet::new();
        stderr_task.spawn(read_tail(stderr));
        Ok((Self { child, stderr_task }, stdin, stdout))
    }

    /// Whether the client still runs, and with it the channel.
    pub(crate) fn is_alive(&mut self) -> bool {
        matches!(self.child.try_wait(), Ok(None))
    }

    /// Waits for the end: exit status, where there is one, and the last of stderr.
    pub(crate) async fn end(mut self) -> Result<(Option<i32>, String), Error> {
        // The output has ended, so only the client's own cleanup is left.
        let status = timeout(END_TIMEOUT, self.child.wait())
            .await
            .map_err(|_| Error::new(ErrorKind::Timeout, "ssh does not end"))?
            .map_err(|error| {
                Error::new(ErrorKind::Unavailable, "ssh cannot be awaited").caused_by(error)
            })?;
        // A process that outlives the command may hold stderr open.
        let text = match timeout(END_TIMEOUT, self.stderr_task.join_next()).await {
            Ok(Some(Ok(text))) => text,
            _ => String::new(),
        };
        Ok((status.code(), text))
    }
}

/// Reads to the end and keeps the last of it.
async fn read_tail(mut stderr: ChildStderr) -> String {
    let mut kept = Vec::new();
    let mut chunk = [0; STDERR_TAIL_BYTES];
    while let Ok(count @ 1..) = stderr.read(&mut chunk).await {
        kept.extend_from_slice(chunk.get(..count).unwrap_or_default());
        let surplus = kept.len().saturating_sub(STDERR_TAIL_BYTES);
        kept.drain(..surplus);
    }
    String::from_utf8_lossy(&kept).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shell(script: &str) -> Command {
        let mut command = Command::new("sh");
        command.args(["-c", script]).kill_on_drop(true);
        command
    }

    #[tokio::test]
    async fn a_flood_on_stderr_blocks_nothing_and_its_end_is_kept() {
        let script = "head -c 300000 /dev/zero | tr '\\0' x >&2; echo the end >&2; exit 7";
        let (session, _, mut stdout) = Session::start(shell(script), false).unwrap();
        assert_eq!(stdout.read(&mut [0; 1]).await.unwrap(), 0);
        let (status, text) = session.end().await.unwrap();
        assert_eq!(status, Some(7));
        assert!(text.len() <= STDERR_TAIL_BYTES && text.ends_with("xthe end\n"));
    }

    #[tokio::test]
    async fn it_reports_whether_it_still_runs() {
        let (mut session, stdin, mut stdout) = Session::start(shell("read line"), true).unwrap();
        assert!(session.is_alive());
        drop(stdin);
        assert_eq!(stdout.read(&mut [0; 1]).await.unwrap(), 0);
        dray_testkit::eventually("the end of the shell", async || {
            (!session.is_alive()).then_some(())
        })
        .await;
    }
}
