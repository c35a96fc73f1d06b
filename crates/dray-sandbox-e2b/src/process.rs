//! Commands in the sandbox, as its user (sandbox-transfer 8.5).

use std::sync::Arc;

use async_trait::async_trait;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use dray_http::HttpResponse;
use dray_sandbox::{Body, Error, ErrorKind};
use dray_sandbox_exec::{Arguments, Channel, CommandExit, Exec, RunningCommand, StderrTail};
use dray_sandbox_hosted::{Provider as _, Refusal as _, unanswered};
use futures_util::stream;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::sync::oneshot;

use crate::connect::{Frame, Frames, envelope};
use crate::fault::Refusal;
use crate::link::DaemonClient;

/// Interval of the daemon's keepalive messages for a command without output, in seconds.
const KEEPALIVE_SECONDS: &str = "10";
/// Most bytes of one argument.
const MAX_ARGUMENT_BYTES: usize = 131_071;

/// Runs commands by the daemon. They have no stdin, because no command of this crate reads it.
#[derive(Clone, Debug)]
pub(crate) struct Processes {
    link: Arc<DaemonClient>,
}

impl Processes {
    pub(crate) fn new(link: Arc<DaemonClient>) -> Self {
        Self { link }
    }
}

/// One message of the daemon.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct ProcessMessage {
    event: ProcessEvent,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct ProcessEvent {
    start: Option<StartedEvent>,
    data: Option<DataEvent>,
    end: Option<EndEvent>,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct StartedEvent {
    pid: u32,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct DataEvent {
    stdout: String,
    stderr: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
struct EndEvent {
    exit_code: i32,
    status: String,
    error: String,
}

/// The end of a stream.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct StreamTrailer {
    error: Option<Refusal>,
}

#[async_trait]
impl Exec for Processes {
    fn channel(&self) -> Channel {
        Channel {
            arguments: Arguments::Vector,
            binary_output: true,
            binary_input: false,
            input: false,
            input_end: false,
            longest_arguments: MAX_ARGUMENT_BYTES,
            longest_output: None,
        }
    }

    async fn run(&self, argv: Vec<Vec<u8>>, _stdin: Option<Body>) -> Result<RunningCommand, Error> {
        let start = start_request(argv)?;
        let request = self
            .link
            .request("POST", "/process.Process/Start")
            .header("connect-protocol-version", "1")
            .header("keepalive-ping-interval", KEEPALIVE_SECONDS)
            .bytes(
                "application/connect+json",
                envelope(0, start.to_string().as_bytes()),
            );
        let response = self.link.send(request).await?;
        let (exit_sender, ended) = oneshot::channel();
        let mut output = ProcessOutput {
            response,
            frames: Frames::default(),
            stderr: StderrTail::default(),
            process: RunningProcess {
                link: Arc::clone(&self.link),
                pid: None,
            },
            exit_sender: Some(exit_sender),
        };
        let mut first = None;
        // The output is read up to the process id: a command that cannot be started fails here and not in the middle of
        // its output.
        while output.process.pid.is_none() && first.is_none() {
            match output.next().await {
                Ok(Some(chunk)) => first = Some(chunk),
                Ok(None) => break,
                Err(error) => return Err(self.link.explained(error).await),
            }
        }
        let rest = stream::try_unfold(output, |mut output| async move {
            loop {
                match output.next().await? {
                    None => return Ok(None),
                    // This is an event without output: a keepalive, stderr, or the end of the command.
                    Some(chunk) if chunk.is_empty() => {}
                    Some(chunk) => return Ok(Some((chunk, output))),
                }
            }
        });
        let first = stream::iter(first.filter(|chunk| !chunk.is_empty()).map(Ok));
        Ok(RunningCommand {
            stdout: Body::new(futures_util::StreamExt::chain(first, rest)),
            end: Box::pin(async {
                ended.await.map_err(|_| {
                    Error::new(
                        ErrorKind::Unavailable,
                        "the command ended without an exit status",
                    )
                })
            }),
        })
    }
}

/// The request that starts a command. Arguments are text on this wire, so others are refused.
fn start_request(argv: Vec<Vec<u8>>) -> Result<Value, Error> {
    let mut words = Vec::with_capacity(argv.len());
    for word in argv {
        words.push(String::from_utf8(word).map_err(|_| {
            Error::new(ErrorKind::InvalidName, "the wire carries UTF-8 names only")
        })?);
    }
    if words
        .iter()
        .map(String::len)
        .any(|length| length > MAX_ARGUMENT_BYTES)
    {
        return Err(Error::new(
            ErrorKind::ToolMissing,
            "the command is too long",
        ));
    }
    let mut words = words.into_iter();
    let Some(program) = words.next() else {
        return Err(Error::new(ErrorKind::Protocol, "an empty command"));
    };
    let arguments: Vec<String> = words.collect();
    Ok(json!({
        // In the C locale messages are English, which `kind_of_text` relies on.
        "process": { "cmd": program, "args": arguments, "envs": { "LC_ALL": "C" } },
        // Otherwise the daemon keeps a pipe open, and a command that reads it would wait forever.
        "stdin": false,
    }))
}

/// A running command. It is killed when its output is dropped before its end.
#[derive(Debug)]
struct RunningProcess {
    link: Arc<DaemonClient>,
    pid: Option<u32>,
}

impl Drop for RunningProcess {
    fn drop(&mut self) {
        // Without a runtime this process is ending, and the timeout of the sandbox ends the command.
        let (Some(pid), Ok(runtime)) = (self.pid.take(), tokio::runtime::Handle::try_current())
        else {
            return;
        };
        let link = Arc::clone(&self.link);
        let kill = async move {
            let message = json!({ "process": { "pid": pid }, "signal": "SIGNAL_SIGKILL" });
            let sent = link.call("process.Process/SendSignal", &message).await;
            if let Err(error) = sent
                // The command has ended in the meantime.
                && error.kind() != ErrorKind::NotFound
            {
                tracing::debug!(%error, "could not kill a command");
            }
        };
        self.link.background_tasks.spawn_on(kill, &runtime);
    }
}

/// The output stream of a command.
struct ProcessOutput {
    response: HttpResponse,
    frames: Frames,
    stderr: StderrTail,
    process: RunningProcess,
    /// Sends the exit status; `None` once it was sent.
    exit_sender: Option<oneshot::Sender<CommandExit>>,
}

impl ProcessOutput {
    /// The next bytes of stdout, which may be none; `None` at the end.
    async fn next(&mut self) -> Result<Option<Bytes>, Error> {
        loop {
            if let Some(frame) = self.frames.next()? {
                return match frame {
                    Frame::Message(message) => self.handle_message(&message),
                    Frame::End(trailer) => self.handle_trailer(&trailer),
                };
            }
            // Without an end-of-stream message the end of the body is a cut (Connect protocol).
            let Some(chunk) = self.response.chunk().await.map_err(unanswered)? else {
                let context = "the output ended in the middle";
                return Err(Error::new(ErrorKind::Unavailable, context));
            };
            self.frames.feed(&chunk);
        }
    }

    fn handle_message(&mut self, message: &[u8]) -> Result<Option<Bytes>, Error> {
        let event = parse_message::<ProcessMessage>(message)?.event;
        if let Some(started) = event.start {
            self.process.pid = Some(started.pid);
        }
        let mut stdout = Vec::new();
        if let Some(data) = event.data {
            stdout = decode_output(&data.stdout)?;
            self.stderr.push(&decode_output(&data.stderr)?);
        }
        if let Some(ended) = event.end {
            // The command has ended, so dropping the output must not kill another process with this id.
            self.process.pid = None;
            if let Some(exit_sender) = self.exit_sender.take() {
                // A caller that does not wait for it ignores the result.
                let _ = exit_sender.send(ended.into_exit(self.stderr.text()));
            }
        }
        Ok(Some(stdout.into()))
    }

    fn handle_trailer(&mut self, trailer: &[u8]) -> Result<Option<Bytes>, Error> {
        let trailer: StreamTrailer = parse_message(trailer)?;
        match trailer.error {
            Some(refusal) => Err(refusal.into_error(200)),
            // The trailer without an error closes the stream and not the command; its exit status is unknown.
            None if self.exit_sender.is_some() => {
                let context = "the stream ended before the command";
                Err(Error::new(ErrorKind::Unavailable, context))
            }
            None => Ok(None),
        }
    }
}

impl EndEvent {
    fn into_exit(self, mut stderr: String) -> CommandExit {
        if !self.error.is_empty() {
            stderr.push('\n');
            // The daemon's own error comes last: the tail of stderr is cut at its beginning.
            stderr.push_str(&self.error);
        }
        // A killed command has no exit code or -1, and names the signal as text. 137 is what a shell reports for
        // SIGKILL.
        let was_killed = self.exit_code < 0 || self.status.starts_with("signal:");
        let status = if was_killed { 137 } else { self.exit_code };
        CommandExit { status, stderr }
    }
}

fn parse_message<T: serde::de::DeserializeOwned>(message: &[u8]) -> Result<T, Error> {
    serde_json::from_slice(message)
        .map_err(|error| Error::new(ErrorKind::Protocol, "a message is malformed").caused_by(error))
}

fn decode_output(text: &str) -> Result<Vec<u8>, Error> {
    STANDARD.decode(text).map_err(|error| {
        Error::new(ErrorKind::Protocol, "the output is malformed").caused_by(error)
    })
}
