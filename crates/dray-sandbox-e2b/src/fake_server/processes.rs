//! Commands, which run as processes of this host in the directory of the sandbox.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use dray_http::fake_server::{
    ConnectionClosed, ReceivedRequest, Reply, SharedState, bytes_reply, cut_reply,
};
use dray_sandbox_exec::{Exec as _, LocalExec};
use serde_json::{Value, json};

use super::{FakeSandbox, FakeState};
use crate::connect::{Frame, Frames, envelope};

/// Most bytes of output in one message.
const MAX_CHUNK_BYTES: usize = 32 << 10;
/// The type of a stream of messages.
const STREAM_MEDIA_TYPE: &str = "application/connect+json";

/// `process.Process/Start`: runs a short command and responds with all of its output.
pub(super) async fn start(
    shared: &SharedState<FakeState>,
    machine: &FakeSandbox,
    request: ReceivedRequest,
) -> Result<Reply, ConnectionClosed> {
    let body = request.into_reader().all().await?;
    let mut frames = Frames::default();
    frames.feed(&body);
    let Ok(Some(Frame::Message(message))) = frames.next() else {
        return Err(ConnectionClosed);
    };
    let asked: Value = serde_json::from_slice(&message).map_err(|_| ConnectionClosed)?;
    let response = run(machine, &asked).await?;
    let cut = shared.lock().faults.take_output_cut();
    Ok(match cut {
        Some(kept) => cut_reply(STREAM_MEDIA_TYPE, &response, kept),
        None => bytes_reply(200, STREAM_MEDIA_TYPE, response),
    })
}

async fn run(machine: &FakeSandbox, asked: &Value) -> Result<Bytes, ConnectionClosed> {
    let process = asked.get("process").ok_or(ConnectionClosed)?;
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
    let directory = directory.map_or_else(|| machine.root.clone(), Into::into);
    let home = machine.root.clone().into_os_string();
    let none: [&str; 0] = [];
    let exec = LocalExec::new(none)
        .with_environment([("HOME", home)])
        .with_environment(environment)
        .with_directory(directory);
    let mut whole = Vec::new();
    let mut say = |event: &Value| {
        let message = json!({ "event": event }).to_string();
        whole.extend_from_slice(&envelope(0, message.as_bytes()));
    };
    let Ok(mut running) = exec.run(argv, None).await else {
        let message = "error starting process: executable file not found in $PATH";
        let error = json!({ "error": { "code": "invalid_argument", "message": message } });
        return Ok(envelope(2, error.to_string().as_bytes()));
    };
    say(&json!({ "start": { "pid": 4_000_000_u32 } }));
    while let Some(piece) = running.stdout.next().await {
        for piece in piece.map_err(|_| ConnectionClosed)?.chunks(MAX_CHUNK_BYTES) {
            say(&json!({ "data": { "stdout": STANDARD.encode(piece) } }));
        }
        // The daemon sends these between the output; a client must pass over them.
        say(&json!({ "keepalive": {} }));
    }
    let exit = running.end.await.map_err(|_| ConnectionClosed)?;
    if !exit.stderr.is_empty() {
        say(&json!({ "data": { "stderr": STANDARD.encode(&exit.stderr) } }));
    }
    let status = format!("exit status {}", exit.status);
    say(&json!({ "end": { "exitCode": exit.status, "exited": true, "status": status } }));
    whole.extend_from_slice(&envelope(2, b"{}"));
    Ok(whole.into())
}
