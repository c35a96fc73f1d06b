//! Commands as processes of this host, on the channels of a WebSocket.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt as _;
use std::os::unix::process::ExitStatusExt as _;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use bytes::{BufMut as _, Bytes, BytesMut};
use futures_util::stream::{SplitSink, SplitStream};
use futures_util::{SinkExt as _, StreamExt as _};
use hyper::upgrade::{OnUpgrade, Upgraded};
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWriteExt as _};
use tokio::process::{Child, ChildStdin};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::oneshot;
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::timeout;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;
use tokio_tungstenite::tungstenite::protocol::{CloseFrame, Role};

use super::{FakeContainer, InjectedFault};

type Socket = WebSocketStream<TokioIo<Upgraded>>;

/// Bytes of output in one message, as a node sends them.
const CHUNK_BYTES: usize = 32 << 10;

/// How long a client may take to close its side after the end of a stream.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(5);

/// A command that was requested.
#[derive(Debug)]
pub(super) struct FakeCommand {
    pub(super) container: FakeContainer,
    pub(super) argv: Vec<Vec<u8>>,
    pub(super) stdin: bool,
    /// Whether channels can be closed (v5).
    pub(super) half_close: bool,
    pub(super) fault: Option<InjectedFault>,
}

/// Runs a command on the upgraded connection.
pub(super) async fn run(command: FakeCommand, upgrade: OnUpgrade) {
    let Ok(upgraded) = upgrade.await else {
        return;
    };
    let io = TokioIo::new(upgraded);
    let socket = WebSocketStream::from_raw_socket(io, Role::Server, None).await;
    match &command.fault {
        Some(InjectedFault::Silence) => {
            // The connection is kept open and not read.
            std::future::pending::<()>().await;
            drop(socket);
        }
        Some(
            fault @ (InjectedFault::NotRun(_)
            | InjectedFault::Exit(_)
            | InjectedFault::Text
            | InjectedFault::Huge(_)),
        ) => {
            instead(fault.clone(), socket).await;
        }
        _ => live(command, socket).await,
    }
}

/// Applies a fault that replaces the command.
async fn instead(fault: InjectedFault, mut socket: Socket) {
    let message = match fault {
        InjectedFault::NotRun(message) => frame(3, failure(&message).to_string().as_bytes()),
        InjectedFault::Exit(code) => frame(3, end_status(code).to_string().as_bytes()),
        InjectedFault::Huge(length) => frame(1, &vec![b'x'; length]),
        _ => Message::text("1hello"),
    };
    let _ = socket.send(message).await;
    let _ = socket.send(close_frame()).await;
    while let Some(Ok(_)) = socket.next().await {}
}

async fn live(command: FakeCommand, mut socket: Socket) {
    let mut child = match spawn(&command) {
        Ok(child) => child,
        Err(error) => {
            let name = command
                .argv
                .first()
                .map(|name| String::from_utf8_lossy(name));
            let name = name.unwrap_or_default();
            let reason = match error.kind() {
                std::io::ErrorKind::NotFound => {
                    "executable file not found in $PATH: unknown".to_owned()
                }
                _ => format!("{error}: unknown"),
            };
            let text = format!(
                "OCI runtime exec failed: exec failed: unable to start container process: exec: \"{name}\": {reason}"
            );
            let status = failure(&text).to_string();
            let _ = socket.send(frame(3, status.as_bytes())).await;
            let _ = socket.send(close_frame()).await;
            return;
        }
    };
    let (sink, source) = socket.split();
    let mut tasks = JoinSet::new();
    let (feed, fed) = unbounded_channel();
    if let Some(stdin) = child.stdin.take() {
        tasks.spawn(write(stdin, fed));
    }
    let (leave, left) = oneshot::channel();
    let client = StreamClient {
        listening: tasks.spawn(listen(source, feed, command.half_close, leave)),
        left,
    };
    let (out, outs) = unbounded_channel();
    if let Some(stdout) = child.stdout.take() {
        tasks.spawn(pump(1, stdout, out.clone()));
    }
    if let Some(stderr) = child.stderr.take() {
        tasks.spawn(pump(2, stderr, out.clone()));
    }
    drop(out);
    deliver(child, outs, sink, client, command.fault).await;
}

fn spawn(command: &FakeCommand) -> std::io::Result<Child> {
    let container = &command.container;
    let mut words = container
        .prefix
        .iter()
        .map(|word| word.clone().into_bytes())
        .collect::<Vec<_>>();
    let root = container.root.as_os_str().as_encoded_bytes();
    words.extend(command.argv.iter().map(|word| match &container.target {
        Some(_) => seen_by_helper(word, root),
        None => word.clone(),
    }));
    let mut words = words.into_iter().map(OsString::from_vec);
    let mut process = tokio::process::Command::new(words.next().unwrap_or_default());
    process
        .args(words)
        .env_clear()
        .env("PATH", &container.search_path)
        .current_dir(&container.root)
        .process_group(0)
        .kill_on_drop(true)
        .stdin(if command.stdin {
            Stdio::piped()
        } else {
            Stdio::null()
        })
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    if container.search_path.is_empty() {
        return Err(std::io::ErrorKind::NotFound.into());
    }
    process.spawn()
}

/// Replaces the path of the first process's root by that of the target's directory, because containers of the fake have
/// no separate `/proc`.
fn seen_by_helper(word: &[u8], root: &[u8]) -> Vec<u8> {
    let from = crate::rooted::PROCESS_ROOT.as_bytes();
    let mut seen = Vec::with_capacity(word.len());
    let mut rest = word;
    while let Some((first, after)) = rest.split_first() {
        if let Some(after) = rest.strip_prefix(from) {
            seen.extend_from_slice(root);
            rest = after;
        } else {
            seen.push(*first);
            rest = after;
        }
    }
    seen
}

/// The receiving side of a stream.
struct StreamClient {
    listening: AbortHandle,
    left: oneshot::Receiver<()>,
}

/// Takes messages of the client. When the client has disconnected, the command continues with an open stdin.
async fn listen(
    mut source: SplitStream<Socket>,
    feed: UnboundedSender<Bytes>,
    half_close: bool,
    leave: oneshot::Sender<()>,
) {
    let mut feed = Some(feed);
    while let Some(Ok(message)) = source.next().await {
        // Some clients send text.
        let (Message::Binary(_) | Message::Text(_)) = message else {
            continue;
        };
        let data = message.into_data();
        match (data.first(), data.get(1)) {
            (Some(0), Some(_)) => {
                if let Some(feed) = &feed {
                    let _ = feed.send(data.slice(1..));
                }
            }
            (Some(255), Some(0)) if half_close => feed = None,
            _ => {}
        }
    }
    let _ = leave.send(());
    std::future::pending::<()>().await;
    drop(feed);
}

async fn write(mut stdin: ChildStdin, mut fed: UnboundedReceiver<Bytes>) {
    while let Some(chunk) = fed.recv().await {
        if stdin.write_all(&chunk).await.is_err() {
            return;
        }
    }
}

async fn pump(channel: u8, mut from: impl AsyncRead + Unpin, to: UnboundedSender<(u8, Bytes)>) {
    let mut buffer = BytesMut::new();
    loop {
        buffer.reserve(CHUNK_BYTES);
        match from.read_buf(&mut buffer).await {
            Ok(read) if read > 0 => {
                if to.send((channel, buffer.split().freeze())).is_err() {
                    return;
                }
            }
            _ => return,
        }
    }
}

/// Sends output and status.
async fn deliver(
    mut child: Child,
    mut outs: UnboundedReceiver<(u8, Bytes)>,
    mut sink: SplitSink<Socket, Message>,
    client: StreamClient,
    fault: Option<InjectedFault>,
) {
    let limit = match fault {
        Some(InjectedFault::Cut(limit) | InjectedFault::Short(limit)) => limit,
        _ => usize::MAX,
    };
    if fault == Some(InjectedFault::Early) {
        let _ = sink
            .send(frame(3, end_status(0).to_string().as_bytes()))
            .await;
    }
    let mut sent = 0;
    let mut sink = Some(sink);
    while let Some((channel, mut chunk)) = outs.recv().await {
        if channel == 1 {
            chunk.truncate(limit - sent);
            sent += chunk.len();
        }
        for part in chunk.chunks(CHUNK_BYTES) {
            if let Some(open) = &mut sink
                && open.send(frame(channel, part)).await.is_err()
            {
                sink = None;
            }
        }
        if sent == limit && matches!(fault, Some(InjectedFault::Cut(_))) {
            // Both halves of the connection are closed; the command continues.
            sink = None;
            client.listening.abort();
        }
    }
    let code = child.wait().await.map_or(1, code);
    let Some(mut sink) = sink else {
        return;
    };
    let code = if matches!(fault, Some(InjectedFault::Short(_))) {
        0
    } else {
        code
    };
    let status = frame(3, end_status(code).to_string().as_bytes());
    if fault != Some(InjectedFault::NoStatus) && fault != Some(InjectedFault::Early) {
        let _ = sink.send(status.clone()).await;
    }
    if fault == Some(InjectedFault::Twice) {
        let _ = sink.send(status).await;
    }
    if fault == Some(InjectedFault::Linger) {
        std::future::pending::<()>().await;
    }
    let _ = sink.send(close_frame()).await;
    // Bytes of the client are still read until it closes its side, so that the end of the stream is not lost.
    let _ = timeout(CLOSE_TIMEOUT, client.left).await;
}

fn code(status: ExitStatus) -> i32 {
    match (status.code(), status.signal()) {
        (Some(code), _) => code,
        (None, signal) => 128 + signal.unwrap_or_default(),
    }
}

/// The status of a command that was run.
fn end_status(code: i32) -> Value {
    if code == 0 {
        return json!({"metadata": {}, "status": "Success"});
    }
    json!({
        "metadata": {}, "status": "Failure",
        "message": format!("command terminated with non-zero exit code: exit code {code}"),
        "reason": "NonZeroExitCode",
        "details": {"causes": [{"reason": "ExitCode", "message": code.to_string()}]},
    })
}

/// The status of a command that was not run.
fn failure(message: &str) -> Value {
    json!({
        "metadata": {}, "status": "Failure", "reason": "InternalError", "code": 500,
        "message": format!("Internal error occurred: error executing command in container: {message}"),
        "details": {"causes": [{"message": message}]},
    })
}

/// The close frame that a server sends at the regular end of a stream.
fn close_frame() -> Message {
    Message::Close(Some(CloseFrame {
        code: CloseCode::Normal,
        reason: "".into(),
    }))
}

fn frame(channel: u8, data: &[u8]) -> Message {
    let mut frame = BytesMut::with_capacity(data.len() + 1);
    frame.put_u8(channel);
    frame.put_slice(data);
    Message::Binary(frame.freeze())
}
