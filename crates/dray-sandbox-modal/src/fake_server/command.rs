//! Commands that run for the fake server.

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use dray_sandbox::{Body, Error, ErrorKind};
use dray_sandbox_exec::{Exec as _, LocalExec, RunningCommand};
use tokio::sync::{mpsc, watch};
use tokio_stream::wrappers::UnboundedReceiverStream;
use tokio_util::sync::CancellationToken;
use tonic::Status;

use super::fault::InjectedFault;
use super::lock;
use super::tool::{self, ToolResult};
use crate::wire::{ExecStartRequest, ExitStatus};

/// Longest chunk of output, in bytes.
const MAX_CHUNK_BYTES: usize = 128 << 10;

/// The output of one descriptor so far.
#[derive(Debug, Default)]
struct CapturedOutput {
    bytes: Vec<u8>,
    ended: bool,
}

/// State of standard input.
#[derive(Debug)]
struct InputState {
    sender: Option<mpsc::UnboundedSender<Result<Bytes, Error>>>,
    written: u64,
}

/// One command. Its whole output is kept, because any part of it may be requested again.
#[derive(Debug)]
pub(super) struct FakeCommand {
    stdout: watch::Sender<CapturedOutput>,
    stderr: watch::Sender<CapturedOutput>,
    exit: watch::Sender<Option<ExitStatus>>,
    input: Mutex<InputState>,
    stream: AtomicU64,
}

impl FakeCommand {
    /// Starts a command. It is killed when its task ends.
    pub(super) fn start(
        root: &Path,
        start: ExecStartRequest,
        faults: &[InjectedFault],
        ended: CancellationToken,
    ) -> Arc<Self> {
        let (chunks, receiver) = mpsc::unbounded_channel();
        let command = Arc::new(Self {
            stdout: watch::Sender::default(),
            stderr: watch::Sender::default(),
            exit: watch::Sender::new(None),
            input: Mutex::new(InputState {
                sender: Some(chunks),
                written: 0,
            }),
            stream: AtomicU64::new(0),
        });
        let exec = LocalExec::new(Vec::<String>::new())
            .with_directory(root)
            .with_environment([("HOME", root)])
            .with_environment(start.env);
        let tool_result = file_tool_result(start.command_args, faults);
        let running = Arc::clone(&command);
        let work = async move {
            let input = Body::new(UnboundedReceiverStream::new(receiver));
            tokio::select! {
                () = running.go(&exec, tool_result, input) => {}
                () = ended.cancelled() => running.finish(137, b""),
            }
        };
        drop(tokio_util::task::TaskTracker::new().spawn(work));
        command
    }

    async fn go(&self, exec: &LocalExec, tool_result: ToolResult, input: Body) {
        let argv = match tool_result {
            ToolResult::Run(argv) => argv,
            ToolResult::Output(stdout) => {
                self.stdout.send_modify(|captured| captured.bytes = stdout);
                return self.finish(0, b"");
            }
            ToolResult::Failed(status, stderr) => return self.finish(status, stderr.as_bytes()),
        };
        match exec.run(argv, Some(input)).await {
            Ok(running) => self.capture(running).await,
            Err(error) if error.kind() == ErrorKind::ToolMissing => {
                self.finish(127, b"sh: not found\n");
            }
            Err(error) => self.finish(126, error.to_string().as_bytes()),
        }
    }

    async fn capture(&self, mut running: RunningCommand) {
        while let Some(Ok(chunk)) = running.stdout.next().await {
            self.stdout
                .send_modify(|captured| captured.bytes.extend_from_slice(&chunk));
        }
        self.stdout.send_modify(|captured| captured.ended = true);
        match running.end.await {
            Ok(exit) => self.finish(exit.status, exit.stderr.as_bytes()),
            Err(error) => self.finish(137, error.to_string().as_bytes()),
        }
    }

    fn finish(&self, status: i32, stderr: &[u8]) {
        lock(&self.input).sender = None;
        self.stdout.send_modify(|captured| captured.ended = true);
        self.stderr.send_modify(|captured| {
            captured.bytes = stderr.to_vec();
            captured.ended = true;
        });
        let status = match status {
            signal @ 129..=159 => ExitStatus::Signal(signal - 128),
            code => ExitStatus::Code(code),
        };
        self.exit.send_replace(Some(status));
    }

    pub(super) fn runs(&self) -> bool {
        self.exit().is_none()
    }

    pub(super) fn exit(&self) -> Option<ExitStatus> {
        *self.exit.borrow()
    }

    pub(super) async fn ended(&self) -> Option<ExitStatus> {
        let mut exit = self.exit.subscribe();
        let ended = exit.wait_for(Option::is_some).await;
        ended.map_or(None, |exit| *exit)
    }

    /// Waits for output from an offset on; empty at its end.
    pub(super) async fn output(&self, stdout: bool, offset: u64) -> Bytes {
        let captured = if stdout { &self.stdout } else { &self.stderr };
        let offset = usize::try_from(offset).unwrap_or(usize::MAX);
        let mut captured = captured.subscribe();
        let has_output =
            captured.wait_for(|captured| captured.bytes.len() > offset || captured.ended);
        has_output.await.map_or_else(
            |_| Bytes::new(),
            |captured| {
                let rest = captured.bytes.get(offset..).unwrap_or_default();
                Bytes::copy_from_slice(rest.get(..MAX_CHUNK_BYTES).unwrap_or(rest))
            },
        )
    }

    /// Number of bytes of input so far, and whether it has ended. Ends the stream that carries the input.
    pub(super) fn input_status(&self) -> (u64, bool) {
        self.stream.fetch_add(1, Ordering::SeqCst);
        let input = lock(&self.input);
        (input.written, input.sender.is_none())
    }

    /// Starts a new stream of input, which ends the one before.
    pub(super) fn new_stream(&self) -> u64 {
        self.stream.fetch_add(1, Ordering::SeqCst) + 1
    }

    /// Takes input at an offset; bytes that were received before are skipped.
    pub(super) fn write(
        &self,
        stream: Option<u64>,
        offset: u64,
        data: &Bytes,
        end: bool,
    ) -> Result<(), Status> {
        if stream.is_some_and(|stream| stream != self.stream.load(Ordering::SeqCst)) {
            return Err(Status::aborted("another stream took over"));
        }
        let mut input = lock(&self.input);
        let Some(chunks) = input.sender.as_ref() else {
            return Err(input_closed());
        };
        let Some(known) = input.written.checked_sub(offset) else {
            return Err(Status::out_of_range("a gap in standard input"));
        };
        let known = usize::try_from(known).unwrap_or(usize::MAX);
        let fresh = data.slice(known.min(data.len())..);
        let length = fresh.len() as u64;
        if !fresh.is_empty() {
            // A command that has ended takes no more input.
            let _ = chunks.send(Ok(fresh));
        }
        input.written += length;
        if end {
            input.sender = None;
        }
        Ok(())
    }
}

/// The refusal of input by a command that takes no more.
pub(super) fn input_closed() -> Status {
    Status::failed_precondition("standard input is closed")
}

/// The result of a call of the file tool, as far as it is known before it runs.
fn file_tool_result(argv: Vec<String>, faults: &[InjectedFault]) -> ToolResult {
    let has = |fault: fn(&InjectedFault) -> bool| faults.iter().any(fault);
    let missing = || ToolResult::Failed(127, "not found\n".to_owned());
    match argv.as_slice() {
        [program, argument] if program == tool::PROGRAM_PATH => {
            if has(|fault| matches!(fault, InjectedFault::NoTool)) {
                return missing();
            }
            tool::run_tool(argument)
        }
        [program, ..]
            if program == "sh" && has(|fault| matches!(fault, InjectedFault::NoShell)) =>
        {
            missing()
        }
        _ => ToolResult::Run(argv.into_iter().map(String::into_bytes).collect()),
    }
}
