//! The channels of a command on one WebSocket (sandbox-transfer 6.1).

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::{BufMut as _, Bytes, BytesMut};
use dray_sandbox::{Body, Error, ErrorKind};
use dray_sandbox_exec::{StderrTail, SupervisedCommand};
use futures_util::future::BoxFuture;
use futures_util::stream::{SplitSink, SplitStream};
use futures_util::{FutureExt as _, SinkExt as _, StreamExt as _};
use tokio::time::{Instant, MissedTickBehavior, interval_at, timeout_at};
use tokio_tungstenite::tungstenite::{Error as WireError, Message};

use crate::cluster::{AcceptedStream, Socket};
use crate::fault::{self, StatusBody};

const STDIN_CHANNEL: u8 = 0;
const STDOUT_CHANNEL: u8 = 1;
const STDERR_CHANNEL: u8 = 2;
const STATUS_CHANNEL: u8 = 3;
/// Signals that the channel whose number follows has ended (v5).
const CLOSE_CHANNEL: u8 = 255;

/// Bytes of stdin in one message, as `kubectl` sends them.
const CHUNK_BYTES: usize = 32 << 10;
/// Longest pause between two pings.
const PING_INTERVAL: Duration = Duration::from_secs(5);
/// How long output is still accepted after the status, if the server does not close the stream.
const OUTPUT_LINGER: Duration = Duration::from_secs(5);
/// Most bytes of a status.
const MAX_STATUS_BYTES: usize = 64 << 10;

/// An accepted stream, and how long it may be silent.
#[derive(Debug)]
pub(super) struct StreamConnection {
    pub(super) accepted: AcceptedStream,
    pub(super) idle: Duration,
}

/// The streams of a command. Dropping them closes the connection.
pub(super) struct CommandStreams {
    reader: SplitStream<Socket>,
    /// Ends only when the source of stdin fails.
    writer: BoxFuture<'static, Error>,
    stderr: StderrTail,
    idle: Duration,
    /// When bytes arrived last.
    last_activity: Instant,
    /// Bytes that arrived on the status channel.
    status_bytes: Vec<u8>,
    status: Option<StatusBody>,
    command: Arc<SupervisedCommand>,
}

impl fmt::Debug for CommandStreams {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Streams").finish_non_exhaustive()
    }
}

impl CommandStreams {
    pub(super) fn new(
        connection: StreamConnection,
        stdin: Option<Body>,
        command: Arc<SupervisedCommand>,
    ) -> Self {
        let AcceptedStream { socket, half_close } = connection.accepted;
        let (sink, reader) = socket.split();
        Self {
            reader,
            writer: write_stdin(
                sink,
                stdin,
                half_close,
                PING_INTERVAL.min(connection.idle / 3),
            )
            .boxed(),
            stderr: StderrTail::default(),
            idle: connection.idle,
            last_activity: Instant::now(),
            status_bytes: Vec::new(),
            status: None,
            command,
        }
    }

    pub(super) fn stderr(&self) -> StderrTail {
        self.stderr.clone()
    }

    /// The next chunk of output; `None` when the command has ended and has a status.
    ///
    /// # Errors
    ///
    /// A stream that breaks or ends without a status, and a command that was not run.
    pub(super) async fn next(&mut self) -> Result<Option<Bytes>, Error> {
        // No byte can arrive before the command is requested, so the time counts from here.
        self.last_activity = Instant::now();
        loop {
            let ended = self.status.is_some();
            // After the status, a server that only answers pings has nothing more to send.
            let wait_until = if ended {
                self.last_activity + OUTPUT_LINGER
            } else {
                Instant::now() + self.idle
            };
            let received = tokio::select! {
                error = &mut self.writer => return Err(error),
                received = timeout_at(wait_until, self.reader.next()) => received,
            };
            let message = match received {
                Err(_) if !ended => {
                    let context = "the server has been silent for too long";
                    return Err(Error::new(ErrorKind::Timeout, context));
                }
                Err(_)
                | Ok(None | Some(Ok(Message::Close(_)) | Err(WireError::ConnectionClosed))) => {
                    return self.finish();
                }
                Ok(Some(Err(_))) if ended => return self.finish(),
                Ok(Some(Err(error))) => return Err(stream_error(error)),
                Ok(Some(Ok(message))) => message,
            };
            if let Some(output) = self.accept_message(message)? {
                return Ok(Some(output));
            }
        }
    }

    fn accept_message(&mut self, message: Message) -> Result<Option<Bytes>, Error> {
        let mut data = match message {
            Message::Binary(data) => data,
            Message::Ping(_) | Message::Pong(_) | Message::Close(_) => return Ok(None),
            Message::Text(_) | Message::Frame(_) => {
                let context = "the server sent text on a stream of bytes";
                return Err(Error::new(ErrorKind::Protocol, context));
            }
        };
        let Some(channel) = data.first().copied() else {
            return Ok(None);
        };
        let data = data.split_off(1);
        self.last_activity = Instant::now();
        match channel {
            STDOUT_CHANNEL if !data.is_empty() => return Ok(Some(data)),
            STDERR_CHANNEL => self.stderr.push(&data),
            STATUS_CHANNEL => self.collect_status(&data)?,
            _ => {}
        }
        Ok(None)
    }

    fn collect_status(&mut self, data: &[u8]) -> Result<(), Error> {
        self.status_bytes.extend_from_slice(data);
        if self.status_bytes.len() > MAX_STATUS_BYTES {
            return Err(Error::new(ErrorKind::Protocol, "the status is too long"));
        }
        if let Ok(status) = serde_json::from_slice(&self.status_bytes) {
            self.status = Some(status);
            self.command.set_over();
        }
        Ok(())
    }

    /// Ends the streams, and records the exit status.
    fn finish(&mut self) -> Result<Option<Bytes>, Error> {
        let Some(status) = self.status.take() else {
            let context = "the stream of a command ended without its status";
            return Err(Error::new(ErrorKind::Unavailable, context));
        };
        self.command.set_ended(exit_status(&status)?);
        Ok(None)
    }
}

/// The exit status of a command that was run.
fn exit_status(status: &StatusBody) -> Result<i32, Error> {
    if status.outcome == "Success" {
        return Ok(0);
    }
    if status.reason != "NonZeroExitCode" {
        return Err(fault::not_run(status));
    }
    let mut causes = status.details.iter().flat_map(|details| &details.causes);
    let code = causes.find(|cause| cause.reason == "ExitCode");
    code.and_then(|cause| cause.message.parse().ok())
        .ok_or_else(|| Error::new(ErrorKind::Protocol, "the exit status is not a number"))
}

fn stream_error(error: WireError) -> Error {
    let kind = match error {
        WireError::Capacity(_) | WireError::Utf8(_) => ErrorKind::Protocol,
        _ => ErrorKind::Unavailable,
    };
    Error::new(kind, "the stream of a command broke").caused_by(error)
}

/// Feeds stdin, signals its end where that is possible, and keeps the connection open with pings.
async fn write_stdin(
    mut sink: SplitSink<Socket, Message>,
    stdin: Option<Body>,
    half_close: bool,
    ping_interval: Duration,
) -> Error {
    // Zero is not a valid interval.
    let ping_interval = ping_interval.max(Duration::from_millis(1));
    let mut ticks = interval_at(Instant::now() + ping_interval, ping_interval);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let has_stdin = stdin.is_some();
    let mut stdin = stdin;
    loop {
        let message = tokio::select! {
            chunk = next_stdin_chunk(&mut stdin) => match chunk {
                Some(Ok(chunk)) => {
                    for part in chunk.chunks(CHUNK_BYTES) {
                        if sink.feed(frame(STDIN_CHANNEL, part)).await.is_err() {
                            return wait_forever().await;
                        }
                    }
                    None
                }
                Some(Err(error)) => return error,
                None => {
                    stdin = None;
                    (has_stdin && half_close).then(|| frame(CLOSE_CHANNEL, &[STDIN_CHANNEL]))
                }
            },
            _ = ticks.tick() => Some(Message::Ping(Bytes::new())),
        };
        let sent = match message {
            Some(message) => sink.send(message).await,
            None => sink.flush().await,
        };
        if sent.is_err() {
            return wait_forever().await;
        }
    }
}

/// Never returns. Used after a failed write, because the reader may still receive from the connection.
async fn wait_forever() -> Error {
    std::future::pending().await
}

/// The next chunk of stdin. After the end of stdin, it never completes.
async fn next_stdin_chunk(stdin: &mut Option<Body>) -> Option<Result<Bytes, Error>> {
    match stdin {
        Some(body) => body.next().await,
        None => std::future::pending().await,
    }
}

fn frame(channel: u8, data: &[u8]) -> Message {
    let mut frame = BytesMut::with_capacity(data.len() + 1);
    frame.put_u8(channel);
    frame.put_slice(data);
    Message::Binary(frame.freeze())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(text: &str) -> Result<i32, ErrorKind> {
        exit_status(&serde_json::from_str(text).unwrap()).map_err(|error| error.kind())
    }

    #[test]
    fn a_status_is_an_exit_status_or_a_failure() {
        assert_eq!(status(r#"{"status": "Success"}"#), Ok(0));
        let failed = r#"{"status": "Failure", "reason": "NonZeroExitCode",
            "details": {"causes": [{"reason": "Other"}, {"reason": "ExitCode", "message": "137"}]}}"#;
        assert_eq!(status(failed), Ok(137));
        let without_cause = r#"{"status": "Failure", "reason": "NonZeroExitCode"}"#;
        assert_eq!(status(without_cause), Err(ErrorKind::Protocol));
        let missing = r#"{"status": "Failure", "reason": "InternalError",
            "message": "exec: \"sh\": executable file not found in $PATH: unknown"}"#;
        assert_eq!(status(missing), Err(ErrorKind::ToolMissing));
        assert_eq!(status("{}"), Err(ErrorKind::Unavailable));
    }
}
