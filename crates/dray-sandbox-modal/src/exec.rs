//! Commands in a sandbox.
//!
//! This side chooses the id of a command, so that a repeated start does not start it again. The protocol cannot end a
//! command; `dray_sandbox_exec::Supervisor` does.

mod end;
mod input;
mod output;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_trait::async_trait;
use dray_sandbox::{Body, Error, ErrorKind};
use dray_sandbox_exec::{
    Channel, CommandExit, Exec, KillGuard, MARK_VARIABLE, RunningCommand, StderrTail,
    SupervisedCommand,
};
use futures_util::stream;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tonic::Code;
use uuid::Uuid;

use crate::fault;
use crate::router::Router;
use crate::wire::{EmptyMessage, ExecStartRequest, PIPE_OUTPUT, STDERR, STDOUT};
use end::RouterCommand;
use output::CommandOutput;

/// Most bytes of all arguments of a command: `ARG_MAX_BYTES` of the provider's Python client (`modal/sandbox.py`). It
/// leaves room for the provider's additions below the limit of 131 072 bytes of its hosts.
const MAX_ARGUMENT_BYTES: usize = 65_536;
/// Longest wait for the end of standard error after the end of its command: another process may hold it open.
const STDERR_LINGER: Duration = Duration::from_secs(2);

/// Runs commands through the router.
#[derive(Clone, Debug)]
pub(crate) struct ModalExec {
    router: Arc<Router>,
}

impl ModalExec {
    pub(crate) fn new(router: Arc<Router>) -> Self {
        Self { router }
    }

    async fn start(&self, exec_id: &str, argv: Vec<String>) -> Result<(), Error> {
        let start = start_request(&self.router, exec_id, argv);
        let path = "/modal.task_command_router.TaskCommandRouter/TaskExecStart";
        match self.router.ask::<_, EmptyMessage>(path, &start).await {
            // An earlier attempt succeeded, and its response was lost.
            Err(status) if status.code() == Code::AlreadyExists => Ok(()),
            Err(status) => Err(fault::failed("starting a command", &status)),
            Ok(EmptyMessage {}) => Ok(()),
        }
    }
}

/// The request that starts a command.
fn start_request(router: &Router, exec_id: &str, argv: Vec<String>) -> ExecStartRequest {
    ExecStartRequest {
        task_id: router.task_id().to_owned(),
        exec_id: exec_id.to_owned(),
        command_args: argv,
        stdout_config: PIPE_OUTPUT,
        stderr_config: PIPE_OUTPUT,
        env: BTreeMap::from([(MARK_VARIABLE.to_owned(), exec_id.to_owned())]),
    }
}

/// Converts arguments to text, because the protocol carries UTF-8 only.
fn text_arguments(argv: Vec<Vec<u8>>) -> Result<Vec<String>, Error> {
    let total_bytes: usize = argv.iter().map(|word| word.len() + 1).sum();
    if total_bytes > MAX_ARGUMENT_BYTES {
        let long = "the command is too long for the wire";
        return Err(Error::new(ErrorKind::ToolMissing, long));
    }
    argv.into_iter()
        .map(|word| {
            String::from_utf8(word).map_err(|_| {
                Error::new(ErrorKind::InvalidName, "the wire carries UTF-8 names only")
            })
        })
        .collect()
}

/// The error that ended the input early. The first caller takes the error itself; later ones get a general error.
#[derive(Debug, Default)]
struct InputFailure {
    recorded: CancellationToken,
    error: Mutex<Option<Error>>,
}

impl InputFailure {
    fn record_error(&self, error: Error) {
        *self.error.lock().unwrap_or_else(PoisonError::into_inner) = Some(error);
        self.recorded.cancel();
    }

    fn take(&self) -> Option<Error> {
        let mut stored = self.error.lock().unwrap_or_else(PoisonError::into_inner);
        stored.take().or_else(|| {
            let error = || Error::new(ErrorKind::Unavailable, "the input broke");
            self.recorded.is_cancelled().then(error)
        })
    }
}

#[async_trait]
impl Exec for ModalExec {
    fn channel(&self) -> Channel {
        Channel {
            longest_arguments: MAX_ARGUMENT_BYTES,
            ..Channel::PIPE_CAPABILITIES
        }
    }

    async fn run(&self, argv: Vec<Vec<u8>>, stdin: Option<Body>) -> Result<RunningCommand, Error> {
        let argv = text_arguments(argv)?;
        self.router.supervisor().settle().await;
        let exec_id = Uuid::new_v4().to_string();
        // From here on, dropping the guard kills the command.
        let control = RouterCommand {
            router: Arc::clone(&self.router),
            exec_id: exec_id.clone(),
        };
        let command = self.router.supervisor().watch(&exec_id, control);
        let output_guard = command.guard();
        let guard = command.guard();
        let started = self.start(&exec_id, argv).await;
        started.inspect_err(|_| command.set_start_failed())?;
        let input_failure = Arc::new(InputFailure::default());
        let mut input_task = JoinSet::new();
        let input = input::CommandInput::new(Arc::clone(&self.router), exec_id.clone(), stdin);
        let recorded = Arc::clone(&input_failure);
        input_task.spawn(async move {
            if let Err(error) = input.feed().await {
                recorded.record_error(error);
            }
        });
        let stdout = CommandOutput::new(Arc::clone(&self.router), exec_id.clone(), STDOUT);
        let stderr = CommandOutput::new(Arc::clone(&self.router), exec_id.clone(), STDERR);
        let ending = CommandEnd {
            router: Arc::clone(&self.router),
            exec_id,
            command,
            guard,
        };
        Ok(RunningCommand {
            stdout: body(stdout, output_guard, Arc::clone(&input_failure)),
            end: Box::pin(await_exit(ending, stderr, input_task, input_failure)),
        })
    }
}

/// Standard output, until it ends or the input fails.
fn body(stdout: CommandOutput, output_guard: KillGuard, input_failure: Arc<InputFailure>) -> Body {
    let state = Some((stdout, output_guard, input_failure));
    Body::new(stream::unfold(state, async |state| {
        let (mut stdout, mut output_guard, input_failure) = state?;
        let chunk = tokio::select! {
            biased;
            () = input_failure.recorded.cancelled() => Err(input_error(&input_failure)),
            chunk = stdout.next() => chunk,
        };
        match chunk {
            Ok(Some(chunk)) => Some((Ok(chunk), Some((stdout, output_guard, input_failure)))),
            Ok(None) => {
                output_guard.disarm();
                None
            }
            Err(error) => Some((Err(error), None)),
        }
    }))
}

fn input_error(input_failure: &InputFailure) -> Error {
    input_failure
        .take()
        .unwrap_or_else(|| Error::new(ErrorKind::Unavailable, "the input broke"))
}

/// The end of a command. Dropping it before it resolves kills the command.
struct CommandEnd {
    router: Arc<Router>,
    exec_id: String,
    command: Arc<SupervisedCommand>,
    guard: KillGuard,
}

/// Waits for the end of a command.
async fn await_exit(
    mut ending: CommandEnd,
    mut stderr: CommandOutput,
    mut input_task: JoinSet<()>,
    input_failure: Arc<InputFailure>,
) -> Result<CommandExit, Error> {
    let tail = StderrTail::default();
    let status = {
        let waiting = end::wait(&ending.router, &ending.exec_id, &ending.command);
        tokio::pin!(waiting);
        let collecting = collect_stderr(&mut stderr, &tail);
        tokio::pin!(collecting);
        let mut stderr_result = None;
        let status = loop {
            tokio::select! {
                () = input_failure.recorded.cancelled() => return Err(input_error(&input_failure)),
                collected = &mut collecting, if stderr_result.is_none() => stderr_result = Some(collected),
                status = &mut waiting => break status?,
            }
        };
        match stderr_result {
            Some(collected) => collected?,
            // The stream is not awaited any longer, because another process may hold it open.
            None => {
                if let Ok(collected) = tokio::time::timeout(STDERR_LINGER, collecting).await {
                    collected?;
                }
            }
        }
        status
    };
    input_task.abort_all();
    ending.guard.disarm();
    if let Some(error) = input_failure.take() {
        return Err(error);
    }
    Ok(CommandExit {
        status,
        stderr: tail.text(),
    })
}

/// Reads standard error to its end and keeps its tail.
async fn collect_stderr(stderr: &mut CommandOutput, tail: &StderrTail) -> Result<(), Error> {
    while let Some(chunk) = stderr.next().await? {
        tail.push(&chunk);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_are_not_text_are_refused_and_never_re_encoded() {
        let refused = text_arguments(vec![b"cat".to_vec(), b"/w/\xff".to_vec()]);
        assert_eq!(refused.unwrap_err().kind(), ErrorKind::InvalidName);
        let fine = text_arguments(vec![b"cat".to_vec(), "/w/\u{e4}\n".into()]);
        assert_eq!(fine.unwrap(), ["cat", "/w/\u{e4}\n"]);
    }

    #[test]
    fn arguments_beyond_the_limit_are_never_sent() {
        assert!(text_arguments(vec![vec![b'x'; MAX_ARGUMENT_BYTES - 1]]).is_ok());
        let refused = text_arguments(vec![vec![b'x'; MAX_ARGUMENT_BYTES]]);
        assert_eq!(refused.unwrap_err().kind(), ErrorKind::ToolMissing);
    }
}
