//! Commands, which run as processes of this host in the directory of the sandbox.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::{Bytes, BytesMut};
use dray_http::fake_server::{
    ConnectionClosed, ReceivedRequest, Reply, SharedState, bytes_reply, cut_reply, stream_reply,
};
use dray_sandbox_exec::{Exec as _, LocalExec, RunningCommand};
use futures_util::{Stream, TryStreamExt as _, stream};
use serde_json::{Value, json};

use super::{FakeSandbox, FakeState};
use crate::connect::{Frame, Frames, envelope};

/// Most bytes of output in one message.
const MAX_CHUNK_BYTES: usize = 32 << 10;
/// The type of a stream of messages.
const STREAM_MEDIA_TYPE: &str = "application/connect+json";

/// `process.Process/Start`: runs a command and sends its output while it runs.
pub(super) async fn start(
    shared: &SharedState<FakeState>,
    sandbox: &FakeSandbox,
    request: ReceivedRequest,
) -> Result<Reply, ConnectionClosed> {
    let body = request.into_reader().all().await?;
    let mut frames = Frames::default();
    frames.feed(&body);
    let Ok(Some(Frame::Message(message))) = frames.next() else {
        return Err(ConnectionClosed);
    };
    let start_request: Value = serde_json::from_slice(&message).map_err(|_| ConnectionClosed)?;
    let Some(running) = run(sandbox, &start_request).await? else {
        let message = "error starting process: executable file not found in $PATH";
        let error = json!({ "error": { "code": "invalid_argument", "message": message } });
        let response = envelope(2, error.to_string().as_bytes());
        return Ok(bytes_reply(200, STREAM_MEDIA_TYPE, response));
    };
    let cut = shared.lock().faults.take_output_cut();
    Ok(match cut {
        Some(kept) => {
            let output_bytes: BytesMut = events(running).try_collect().await?;
            cut_reply(STREAM_MEDIA_TYPE, &output_bytes.freeze(), kept)
        }
        None => stream_reply(STREAM_MEDIA_TYPE, events(running)),
    })
}

/// Starts the command; `None` when its program does not exist.
async fn run(
    sandbox: &FakeSandbox,
    start_request: &Value,
) -> Result<Option<RunningCommand>, ConnectionClosed> {
    let process = start_request.get("process").ok_or(ConnectionClosed)?;
    let word = |value: &Value| value.as_str().unwrap_or_default().as_bytes().to_vec();
    let mut argv = vec![process.get("cmd").map(word).ok_or(ConnectionClosed)?];
    if let Some(arguments) = process.get("args").and_then(Value::as_array) {
        argv.extend(arguments.iter().map(word));
    }
    let environment = process.get("envs").and_then(Value::as_object);
    let environment = environment.into_iter().flatten().map(|(name, value)| {
        let value = value.as_str().unwrap_or_default();
        (name.clone(), value.to_owned())
    });
    let directory = process.get("cwd").and_then(Value::as_str);
    let directory = directory.map_or_else(|| sandbox.root.clone(), Into::into);
    let home = sandbox.root.clone().into_os_string();
    let no_prefix: [&str; 0] = [];
    let exec = LocalExec::new(no_prefix)
        .with_environment([("HOME", home)])
        .with_environment(environment)
        .with_directory(directory);
    Ok(exec.run(argv, None).await.ok())
}

/// The next message about a command.
enum ProcessStep {
    Begin(RunningCommand),
    Output(RunningCommand),
    Over,
}

/// The messages of a command: its process id, its output, and its end.
fn events(running: RunningCommand) -> impl Stream<Item = Result<Bytes, ConnectionClosed>> {
    stream::try_unfold(ProcessStep::Begin(running), |step| async move {
        let mut running = match step {
            ProcessStep::Begin(running) => {
                let begun = message(&json!({ "start": { "pid": 4_000_000_u32 } }));
                return Ok(Some((begun, ProcessStep::Output(running))));
            }
            ProcessStep::Output(running) => running,
            ProcessStep::Over => return Ok(None),
        };
        let mut messages = BytesMut::new();
        if let Some(output) = running.stdout.next().await {
            for chunk in output
                .map_err(|_| ConnectionClosed)?
                .chunks(MAX_CHUNK_BYTES)
            {
                let event = json!({ "data": { "stdout": STANDARD.encode(chunk) } });
                messages.extend_from_slice(&message(&event));
            }
            // The daemon sends these between the output; a client must ignore them.
            messages.extend_from_slice(&message(&json!({ "keepalive": {} })));
            return Ok(Some((messages.freeze(), ProcessStep::Output(running))));
        }
        let exit = running.end.await.map_err(|_| ConnectionClosed)?;
        if !exit.stderr.is_empty() {
            let stderr = STANDARD.encode(&exit.stderr);
            let event = json!({ "data": { "stderr": stderr } });
            messages.extend_from_slice(&message(&event));
        }
        let status = format!("exit status {}", exit.status);
        let end = json!({ "end": { "exitCode": exit.status, "exited": true, "status": status } });
        messages.extend_from_slice(&message(&end));
        messages.extend_from_slice(&envelope(2, b"{}"));
        Ok(Some((messages.freeze(), ProcessStep::Over)))
    })
}

fn message(event: &Value) -> Bytes {
    envelope(0, json!({ "event": event }).to_string().as_bytes())
}
