//! The router of a worker, as part of the fake server.

use std::convert::Infallible;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use futures_util::stream::{self, BoxStream, StreamExt as _};
use tonic::metadata::MetadataMap;
use tonic::server::NamedService;
use tonic::{Request, Status, Streaming};

use super::command::{FakeCommand, input_closed};
use super::fault::{InjectedFault, take};
use super::serve::{GrpcCall, GrpcResponse, client_stream, method, server_stream, unary, unknown};
use super::{FakeState, header, lock};
use crate::wire::{
    EmptyMessage, ExecRequest, ExecStartRequest, ExecWaitResponse, STDOUT, StdinChunk, StdinStatus,
    StdinWrite, StdioChunk, StdioRead, StreamPayload,
};

/// The service of the command router.
#[derive(Clone, Debug)]
pub(super) struct RouterService(pub(super) Arc<FakeState>);

impl NamedService for RouterService {
    const NAME: &'static str = "modal.task_command_router.TaskCommandRouter";
}

impl tower::Service<GrpcCall> for RouterService {
    type Response = GrpcResponse;
    type Error = Infallible;
    type Future = BoxFuture<'static, Result<GrpcResponse, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, call: GrpcCall) -> Self::Future {
        let state = Arc::clone(&self.0);
        async move { Ok(answer(&state, call).await) }.boxed()
    }
}

async fn answer(state: &Arc<FakeState>, call: GrpcCall) -> GrpcResponse {
    let called = method(&call);
    let called = called.as_str();
    match called {
        "TaskExecStart" => {
            unary(call, async |request: Request<ExecStartRequest>| {
                state.bearer(called, request.metadata())?;
                state.start(request.into_inner())
            })
            .await
        }
        "TaskExecWait" => {
            unary(call, async |request: Request<ExecRequest>| {
                state.bearer(called, request.metadata())?;
                state.wait(request.get_ref()).await
            })
            .await
        }
        "TaskExecPoll" => {
            unary(call, async |request: Request<ExecRequest>| {
                state.bearer(called, request.metadata())?;
                let which = request.get_ref();
                let command = state.command(&which.task_id, &which.exec_id)?;
                let delay_fault = take(&mut lock(&state.faults), |fault| {
                    matches!(fault, InjectedFault::LateExit).then_some(())
                });
                Ok(ExecWaitResponse {
                    exit_status: command.exit().filter(|_| delay_fault.is_none()),
                })
            })
            .await
        }
        "TaskExecStdinStatus" => {
            unary(call, async |request: Request<ExecRequest>| {
                state.bearer(called, request.metadata())?;
                let which = request.get_ref();
                let command = state.command(&which.task_id, &which.exec_id)?;
                let (num_bytes_written, closed) = command.input_status();
                Ok(StdinStatus {
                    num_bytes_written,
                    closed,
                })
            })
            .await
        }
        "TaskExecStdinWrite" => {
            unary(call, async |request: Request<StdinWrite>| {
                state.bearer(called, request.metadata())?;
                let write = request.into_inner();
                let command = state.command(&write.task_id, &write.exec_id)?;
                command.write(None, write.offset, &write.data, write.eof)?;
                Ok(EmptyMessage {})
            })
            .await
        }
        _ => streams(state, call).await,
    }
}

async fn streams(state: &Arc<FakeState>, call: GrpcCall) -> GrpcResponse {
    let called = method(&call);
    let called = called.as_str();
    match called {
        "TaskExecStdinWriteStream" => {
            client_stream(call, async |request: Request<Streaming<StdinChunk>>| {
                state.bearer(called, request.metadata())?;
                state.feed(request.into_inner()).await
            })
            .await
        }
        "TaskExecStdioRead" => {
            server_stream(call, |request: Request<StdioRead>| {
                state.bearer(called, request.metadata())?;
                state.output(request.get_ref())
            })
            .await
        }
        _ => unknown(),
    }
}

impl FakeState {
    fn bearer(&self, called: &str, metadata: &MetadataMap) -> Result<(), Status> {
        self.admit(called)?;
        if header(metadata, "authorization") != format!("Bearer {}", self.jwt()) {
            return Err(Status::unauthenticated("unknown or expired token"));
        }
        if header(metadata, "x-throttle-retry-attempt").is_empty() {
            return Err(Status::invalid_argument("a header is missing"));
        }
        Ok(())
    }

    fn start(&self, start: ExecStartRequest) -> Result<EmptyMessage, Status> {
        let ended = self.task(&start.task_id)?;
        let weight: usize = start.command_args.iter().map(String::len).sum();
        if weight > 65_536 || start.command_args.is_empty() {
            return Err(Status::invalid_argument("too many arguments or none"));
        }
        let faults = lock(&self.faults).clone();
        let exec_id = start.exec_id.clone();
        // A repeated start with the same id finds the running command (idempotency).
        lock(&self.commands)
            .entry(exec_id)
            .or_insert_with(|| FakeCommand::start(&self.root, start, &faults, ended));
        Ok(EmptyMessage {})
    }

    async fn wait(&self, which: &ExecRequest) -> Result<ExecWaitResponse, Status> {
        let command = self.command(&which.task_id, &which.exec_id)?;
        let ended = self.task(&which.task_id)?;
        tokio::select! {
            exit_status = command.ended() => Ok(ExecWaitResponse { exit_status }),
            () = ended.cancelled() => Err(Status::not_found("task not running")),
        }
    }

    async fn feed(&self, mut chunks: Streaming<StdinChunk>) -> Result<EmptyMessage, Status> {
        let first = chunks.message().await?.and_then(|chunk| chunk.payload);
        let Some(StreamPayload::Start(start)) = first else {
            return Err(Status::invalid_argument("a stream without a start"));
        };
        let command = self.command(&start.task_id, &start.exec_id)?;
        // A newer stream takes over; the older one may still hold chunks of the same bytes.
        let stream = command.new_stream();
        let mut offset = start.offset;
        while let Some(chunk) = chunks.message().await? {
            match chunk.payload {
                Some(StreamPayload::Data(data)) => {
                    let after = offset + data.len() as u64;
                    let cut = take(&mut lock(&self.faults), |fault| match fault {
                        InjectedFault::CutInput(at) if *at <= after => Some(*at),
                        _ => None,
                    });
                    if let Some(at) = cut {
                        let fits = usize::try_from(at.saturating_sub(offset)).unwrap_or(0);
                        let head = data.slice(..fits.min(data.len()));
                        command.write(Some(stream), offset, &head, false)?;
                        return Err(Status::unavailable("cut by a test"));
                    }
                    command.write(Some(stream), offset, &data, false)?;
                    offset = after;
                }
                Some(StreamPayload::End(EmptyMessage {})) => {
                    command.write(Some(stream), offset, &Bytes::new(), true)?;
                    let refusal = take(&mut lock(&self.faults), |fault| match fault {
                        InjectedFault::LoseInputAnswer => {
                            Some(Status::unavailable("lost by a test"))
                        }
                        InjectedFault::ClosedInput => Some(input_closed()),
                        _ => None,
                    });
                    return refusal.map_or(Ok(EmptyMessage {}), Err);
                }
                _ => return Err(Status::invalid_argument("a second start")),
            }
        }
        // A stream that ends without a mark has not ended the input.
        Ok(EmptyMessage {})
    }

    fn output(
        self: &Arc<Self>,
        read: &StdioRead,
    ) -> Result<BoxStream<'static, Result<StdioChunk, Status>>, Status> {
        let command = self.command(&read.task_id, &read.exec_id)?;
        let ended = self.task(&read.task_id)?;
        let reading = OutputRead {
            state: Arc::clone(self),
            command,
            offset: read.offset,
            stdout: read.file_descriptor == STDOUT,
        };
        let chunks = stream::try_unfold(reading, move |reading| {
            let ended = ended.clone();
            async move {
                tokio::select! {
                    chunk = reading.next() => chunk,
                    () = ended.cancelled() => Err(Status::not_found("task not running")),
                }
            }
        });
        Ok(chunks.boxed())
    }
}

/// One stream of output of a command.
struct OutputRead {
    state: Arc<FakeState>,
    command: Arc<FakeCommand>,
    offset: u64,
    stdout: bool,
}

impl OutputRead {
    async fn next(mut self) -> Result<Option<(StdioChunk, Self)>, Status> {
        let data = self.command.output(self.stdout, self.offset).await;
        if data.is_empty() {
            return Ok(None);
        }
        let after = self.offset + data.len() as u64;
        let mut data = data;
        if self.stdout {
            let offset = self.offset;
            let cut = take(&mut lock(&self.state.faults), |fault| match fault {
                InjectedFault::CutOutput(at) if *at == offset => Some(None),
                InjectedFault::ShortOutput(at) if *at == offset => Some(Some(())),
                _ => None,
            });
            match cut {
                Some(None) => return Err(Status::unavailable("cut by a test")),
                Some(Some(())) => return Ok(None),
                None => {}
            }
            // Ends exactly at the fault, so that the next round applies it.
            let next = lock(&self.state.faults)
                .iter()
                .filter_map(|fault| match fault {
                    InjectedFault::CutOutput(at) | InjectedFault::ShortOutput(at)
                        if *at > offset && *at < after =>
                    {
                        usize::try_from(at - offset).ok()
                    }
                    _ => None,
                })
                .min();
            if let Some(fits) = next {
                data.truncate(fits);
            }
        }
        self.offset += data.len() as u64;
        Ok(Some((StdioChunk { data }, self)))
    }
}
