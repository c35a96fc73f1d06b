//! A program of the operator: a message a line on its input and output (MCP, stdio).

use std::process::Stdio as Pipe;
use std::sync::{Mutex, PoisonError};

use rmcp::model::{ClientJsonRpcMessage, ServerJsonRpcMessage};
use rustix::process::{Pid, Signal, kill_process_group};
use tokio::io::{AsyncBufRead, AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::process::{Child, ChildStdin};
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use super::{CLOSE_TIMEOUT, parse_json, parse_messages};
use crate::error::{CloseReason, WireError};
use crate::options::ProgramCommand;

/// Most bytes of one line of the program's standard error that are logged.
const MAX_LOG_LINE_BYTES: usize = 8 << 10;

/// A running program.
#[derive(Debug)]
pub(super) struct StdioTransport {
    input: tokio::sync::Mutex<Option<ChildStdin>>,
    group: Mutex<Option<ProcessGroup>>,
}

/// A process group; killed when it is dropped. The leader is not waited for before, so its number stays its own.
#[derive(Debug)]
struct ProcessGroup {
    leader: Child,
}

impl Drop for ProcessGroup {
    fn drop(&mut self) {
        let id = self.leader.id().and_then(|id| i32::try_from(id).ok());
        if let Some(group) = id.and_then(Pid::from_raw)
            && let Err(error) = kill_process_group(group, Signal::KILL)
        {
            tracing::debug!(%error, "an MCP server was gone before it was ended");
        }
    }
}

/// Starts the program with the environment of its configuration alone.
pub(super) fn open_program(
    name: &str,
    command: &ProgramCommand,
    limit: usize,
    out: mpsc::Sender<ServerJsonRpcMessage>,
    grave: &CloseReason,
    reading: &mut JoinSet<()>,
) -> Result<StdioTransport, WireError> {
    let mut starting = tokio::process::Command::new(&command.command);
    starting
        .args(&command.args)
        .env_clear()
        .envs(
            command
                .env
                .iter()
                .map(|(name, value)| (name, value.expose())),
        )
        .stdin(Pipe::piped())
        .stdout(Pipe::piped())
        .stderr(Pipe::piped())
        .process_group(0)
        .kill_on_drop(true);
    if let Some(folder) = &command.cwd {
        starting.current_dir(folder);
    }
    let mut leader = starting
        .spawn()
        .map_err(|error| WireError::NotSent(error.into()))?;
    let pipes = (
        leader.stdin.take(),
        leader.stdout.take(),
        leader.stderr.take(),
    );
    let group = ProcessGroup { leader };
    let (Some(input), Some(output), Some(log)) = pipes else {
        return Err(WireError::Malformed("it has no pipes"));
    };
    let stone = grave.clone();
    reading.spawn(async move {
        let end = read_output(BufReader::new(output), limit, &out).await;
        stone.bury(end);
    });
    reading.spawn(relay_stderr(name.to_owned(), BufReader::new(log)));
    Ok(StdioTransport {
        input: tokio::sync::Mutex::new(Some(input)),
        group: Mutex::new(Some(group)),
    })
}

/// The next line without its end; `None` at the end.
async fn read_line(
    from: &mut (impl AsyncBufRead + Unpin),
    limit: usize,
) -> Result<Option<Vec<u8>>, WireError> {
    let mut line = Vec::new();
    loop {
        let piece = from
            .fill_buf()
            .await
            .map_err(|error| WireError::Broken(Some(error.into())))?;
        if piece.is_empty() {
            return Ok(None);
        }
        let end = piece.iter().position(|byte| *byte == b'\n');
        let taken = end.unwrap_or(piece.len());
        if line.len() + taken > limit {
            return Err(WireError::TooLong(limit));
        }
        line.extend(piece.iter().take(taken));
        from.consume(end.map_or(taken, |end| end + 1));
        if end.is_some() {
            return Ok(Some(line));
        }
    }
}

async fn read_output(
    mut output: impl AsyncBufRead + Unpin,
    limit: usize,
    out: &mpsc::Sender<ServerJsonRpcMessage>,
) -> WireError {
    loop {
        let line = match read_line(&mut output, limit).await {
            Ok(Some(line)) => line,
            Ok(None) => return WireError::Broken(None),
            Err(error) => return error,
        };
        let Ok(found) = parse_json(&line).and_then(parse_messages) else {
            // Programs print greetings too.
            tracing::debug!(bytes = line.len(), "an MCP server wrote no message");
            continue;
        };
        for message in found {
            if out.send(message).await.is_err() {
                return WireError::Broken(None);
            }
        }
    }
}

/// Passes what the program writes to its standard error on to the service's log, line by line. A line that is too long
/// is cut.
async fn relay_stderr(program: String, mut log: impl AsyncBufRead + Unpin) {
    let mut line = Vec::new();
    let mut is_cut = false;
    loop {
        let chunk = match log.fill_buf().await {
            Ok(chunk) if !chunk.is_empty() => chunk,
            _ => break,
        };
        let end = chunk.iter().position(|byte| *byte == b'\n');
        let taken = end.unwrap_or(chunk.len());
        let room = MAX_LOG_LINE_BYTES.saturating_sub(line.len());
        is_cut |= taken > room;
        line.extend(chunk.iter().take(taken.min(room)));
        log.consume(end.map_or(taken, |end| end + 1));
        if end.is_some() {
            log_line(&program, &line, is_cut);
            line.clear();
            is_cut = false;
        }
    }
    if !line.is_empty() {
        log_line(&program, &line, is_cut);
    }
}

fn log_line(program: &str, line: &[u8], is_cut: bool) {
    let line = String::from_utf8_lossy(line);
    let line = line.trim_end();
    tracing::info!(
        program,
        line,
        is_cut,
        "an MCP program wrote to its standard error"
    );
}

impl StdioTransport {
    /// Writes a message.
    pub(super) async fn send(&self, message: &ClientJsonRpcMessage) -> Result<(), WireError> {
        let mut line =
            serde_json::to_vec(message).map_err(|error| WireError::NotSent(error.into()))?;
        line.push(b'\n');
        let mut input = self.input.lock().await;
        let Some(pipe) = input.as_mut() else {
            return Err(WireError::NotSent("the program was ended".into()));
        };
        let written = async {
            pipe.write_all(&line).await?;
            pipe.flush().await
        };
        // Without its end a line is not a message, so the program did not get it.
        written
            .await
            .map_err(|error| WireError::NotSent(error.into()))
    }

    /// Closes the input, gives the program a moment to end by itself, and ends its group.
    pub(super) async fn close(&self, incoming: &mut mpsc::Receiver<ServerJsonRpcMessage>) {
        drop(self.input.lock().await.take());
        let ends = async { while incoming.recv().await.is_some() {} };
        if tokio::time::timeout(CLOSE_TIMEOUT, ends).await.is_err() {
            tracing::debug!("an MCP server did not end by itself");
        }
        let group = self
            .group
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        drop(group);
    }
}
