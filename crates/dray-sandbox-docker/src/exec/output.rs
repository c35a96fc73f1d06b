//! The streams of a command: one connection carries all three.

use bollard::container::LogOutput;
use bytes::Bytes;
use dray_sandbox::{Body, Error, ErrorKind};
use dray_sandbox_exec::{KillGuard, StderrTail};
use futures_util::future::BoxFuture;
use futures_util::{FutureExt as _, StreamExt as _, stream};
use tokio::io::AsyncWriteExt as _;

use super::end::SupervisedEnd;
use super::{Input, Output};
use crate::fault;

/// Beginning of the text on standard output by which the engine reports that a program could not be started.
const EXEC_FAILED: &[u8] = b"OCI runtime exec failed: ";
/// Ends of the text on standard error by which Podman reports the same.
const PODMAN_EXEC_FAILED: [&str; 2] = [
    ": OCI runtime attempted to invoke a command that was not found",
    ": OCI permission denied",
];

/// Context of the error when the output of a command breaks off.
const READING_OUTPUT: &str = "reading the output of a command";

/// Everything that goes in and out of a running command.
pub(super) struct CommandStreams {
    output: Output,
    /// Feeds standard input; fails when its source does.
    feeding: Option<BoxFuture<'static, Result<(), Error>>>,
    /// Whether the program was given input, which it may leave unread.
    has_input: bool,
    stderr: StderrTail,
    end: SupervisedEnd,
    /// Whether no output has arrived yet.
    is_silent: bool,
    /// Output that is held until it is known whether it is the program's own or a message of the engine.
    held: Option<Bytes>,
}

impl CommandStreams {
    pub(super) fn new(
        output: Output,
        input: Input,
        stdin: Option<Body>,
        end: SupervisedEnd,
    ) -> Self {
        let feeding = stdin.map(|body| feed(input, body).boxed());
        Self {
            output,
            has_input: feeding.is_some(),
            feeding,
            stderr: StderrTail::default(),
            end,
            is_silent: true,
            held: None,
        }
    }

    pub(super) fn stderr(&self) -> StderrTail {
        self.stderr.clone()
    }

    /// Standard output. Reading it moves the other two streams as well.
    pub(super) fn into_body(self, guard: KillGuard) -> Body {
        let state = Some((self, guard));
        Body::new(stream::unfold(state, async |state| {
            let (mut streams, mut guard) = state?;
            match streams.next().await {
                Ok(Some(chunk)) => Some((Ok(chunk), Some((streams, guard)))),
                Ok(None) => {
                    guard.disarm();
                    None
                }
                Err(error) => Some((Err(error), None)),
            }
        }))
    }

    async fn next(&mut self) -> Result<Option<Bytes>, Error> {
        loop {
            let Some(frame) = self.frame().await? else {
                return self.ended().await;
            };
            match frame {
                LogOutput::StdOut { message } if message.is_empty() => {}
                LogOutput::StdOut { message } => {
                    if self.is_silent && message.starts_with(EXEC_FAILED) {
                        self.is_silent = false;
                        self.held = Some(message);
                        continue;
                    }
                    self.is_silent = false;
                    let Some(held) = self.held.take() else {
                        return Ok(Some(message));
                    };
                    return Ok(Some([held, message].concat().into()));
                }
                LogOutput::StdErr { message } => self.stderr.push(&message),
                LogOutput::StdIn { .. } => {}
                LogOutput::Console { .. } => {
                    let torn = "the output stream of a command is cut or malformed";
                    return Err(Error::new(ErrorKind::Unavailable, torn));
                }
            }
        }
    }

    /// The next frame, while standard input is fed.
    async fn frame(&mut self) -> Result<Option<LogOutput>, Error> {
        loop {
            let Some(feeding) = &mut self.feeding else {
                let frame = self.output.next().await;
                return self.received(frame);
            };
            tokio::select! {
                fed = feeding => {
                    self.feeding = None;
                    fed?;
                }
                frame = self.output.next() => return self.received(frame),
            }
        }
    }

    /// A frame, or the end of the output. When a program ends without reading its input, the connection is reset,
    /// because the engine closes it while bytes are left. All output arrives before the reset, so the reset counts as
    /// the end. Afterwards the engine is asked whether the program has ended, and the reports of scripts show that they
    /// are complete.
    fn received(
        &self,
        frame: Option<Result<LogOutput, bollard::errors::Error>>,
    ) -> Result<Option<LogOutput>, Error> {
        match frame.transpose() {
            Err(error) if self.has_input && is_reset(&error) => Ok(None),
            frame => frame.map_err(|error| fault::failed(READING_OUTPUT, error)),
        }
    }

    /// The output has ended. The held bytes are either output or the reason why there is no output.
    async fn ended(&mut self) -> Result<Option<Bytes>, Error> {
        let held = self.held.take();
        let message = match &held {
            Some(held) => String::from_utf8_lossy(held).into_owned(),
            None => self.stderr.text(),
        };
        if held.is_none() && !(self.is_silent && is_reason_of_podman(&message)) {
            return Ok(None);
        }
        match self.end.status().await? {
            126 | 127 => {
                let context = if is_program_missing(&message) {
                    super::NOT_STARTED
                } else {
                    super::START_FAILED
                };
                let error = Error::new(ErrorKind::ToolMissing, context);
                Err(error.caused_by(message.escape_debug().to_string()))
            }
            _ => Ok(held),
        }
    }
}

/// Whether Podman wrote this text to standard error because it could not start a program. Another line may say that the
/// streams of the program broke.
fn is_reason_of_podman(stderr: &str) -> bool {
    let is_reason = |line: &str| PODMAN_EXEC_FAILED.iter().any(|end| line.ends_with(end));
    stderr
        .lines()
        .any(|line| line.starts_with("Error: ") && is_reason(line))
}

/// Whether the engine's message means that the container has no such program. A working directory that was removed, or
/// a limit of processes, can be the work of a process in the container, and may pass. A missing control group means
/// that the container ends.
fn is_program_missing(message: &str) -> bool {
    let message = message.to_ascii_lowercase();
    let contains = |text: &&str| message.contains(*text);
    let missing = ["exec: \"", "not found", "no such file"];
    !["chdir", "cgroup"].iter().any(contains) && missing.iter().any(contains)
}

fn is_reset(error: &bollard::errors::Error) -> bool {
    let bollard::errors::Error::IOError { err } = error else {
        return false;
    };
    err.kind() == std::io::ErrorKind::ConnectionReset
}

/// Feeds standard input and ends it. It is not a failure when a command does not read all of it; its status shows that.
async fn feed(mut input: Input, mut body: Body) -> Result<(), Error> {
    while let Some(chunk) = body.next().await {
        if input.write_all(&chunk?).await.is_err() {
            return Ok(());
        }
    }
    drop(input.flush().await);
    drop(input.shutdown().await);
    // The connection is kept until no more bytes are sent in either direction.
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_program_that_is_missing_says_something_about_the_container() {
        for (reason, missing) in [
            (
                "exec: \"sh\": executable file not found in $PATH: unknown",
                true,
            ),
            (
                "executable file `sh` not found in $PATH: No such file or directory",
                true,
            ),
            ("exec: \"sh\": permission denied: unknown", true),
            (
                "chdir to cwd (\"/w\") set in config.json failed: no such file or directory: unknown",
                false,
            ),
            (
                "error adding pid 7 to cgroups: open /sys/fs/cgroup/c/cgroup.procs: no such file or directory",
                false,
            ),
            ("can't get final child's PID from pipe: EOF: unknown", false),
            (
                "fork/exec /proc/self/exe: resource temporarily unavailable",
                false,
            ),
        ] {
            let message = format!("OCI runtime exec failed: exec failed: {reason}");
            assert_eq!(is_program_missing(&message), missing, "{reason}");
        }
    }

    #[test]
    fn podman_reports_on_standard_error_that_a_program_is_missing() {
        let message = "Error: /usr/sbin/runc: exec failed: unable to start container process: exec: \"sh\": executable file not found in $PATH: OCI runtime attempted to invoke a command that was not found\nError: read unixpacket: connection reset by peer\n";
        assert!(is_reason_of_podman(message) && is_program_missing(message));
        assert!(!is_reason_of_podman("sh: 1: x: not found\n"));
    }
}
