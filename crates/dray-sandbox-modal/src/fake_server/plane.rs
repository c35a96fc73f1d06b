//! The control plane of the fake server.

use std::convert::Infallible;
use std::sync::Arc;
use std::task::{Context, Poll};

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use prost::Message;
use tonic::metadata::MetadataMap;
use tonic::server::NamedService;
use tonic::{Request, Status};

use super::fault::InjectedFault;
use super::serve::{GrpcCall, GrpcResponse, method, unary, unknown};
use super::{FakeState, TOKEN_ID, TOKEN_SECRET, header, lock};
use crate::wire::{
    AuthToken, EmptyMessage, GenericResult, GetTaskId, RouterAccess, SandboxAccess, TaskAccess,
    TaskId,
};

/// The value of `GENERIC_STATUS_TERMINATED` in the provider's descriptors.
const TERMINATED_STATUS: i32 = 3;
/// Headers without which the provider refuses a call.
const REQUIRED_METADATA: [&str; 3] = [
    "x-modal-client-version",
    "x-modal-client-type",
    "x-modal-timestamp",
];

/// `modal.client.SandboxWaitResponse`, with the field that the provider's own client reads.
#[derive(Clone, PartialEq, Message)]
struct WaitResponse {
    #[prost(message, optional, tag = "1")]
    result: Option<GenericResult>,
}

/// The service `modal.client.ModalClient`, as a tower service.
#[derive(Clone, Debug)]
pub(super) struct ControlPlane(pub(super) Arc<FakeState>);

impl NamedService for ControlPlane {
    const NAME: &'static str = "modal.client.ModalClient";
}

impl tower::Service<GrpcCall> for ControlPlane {
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

async fn answer(state: &FakeState, call: GrpcCall) -> GrpcResponse {
    let called = method(&call);
    let called = called.as_str();
    match called {
        // This crate calls neither this method nor `SandboxWait`; the provider's own client calls both.
        "ClientHello" => {
            unary(call, async |request: Request<EmptyMessage>| {
                state.known(called, request.metadata(), false)?;
                Ok(EmptyMessage {})
            })
            .await
        }
        "AuthTokenGet" => {
            unary(call, async |request: Request<EmptyMessage>| {
                state.known(called, request.metadata(), false)?;
                Ok(AuthToken {
                    token: state.auth_token(),
                })
            })
            .await
        }
        "SandboxWait" => {
            unary(call, async |request: Request<GetTaskId>| {
                state.known(called, request.metadata(), false)?;
                let found = state.find(&request.get_ref().sandbox_id)?;
                Ok(WaitResponse {
                    result: found.task_result,
                })
            })
            .await
        }
        "SandboxGetTaskId" | "SandboxGetTaskIdV2" => {
            unary(call, async |request: Request<GetTaskId>| {
                state.known(called, request.metadata(), called.ends_with("V2"))?;
                state.find(&request.get_ref().sandbox_id)
            })
            .await
        }
        "TaskGetCommandRouterAccess" => {
            unary(call, async |request: Request<TaskAccess>| {
                state.known(called, request.metadata(), false)?;
                state.router_access(&request.get_ref().task_id)
            })
            .await
        }
        "SandboxGetCommandRouterAccess" => {
            unary(call, async |request: Request<SandboxAccess>| {
                state.known(called, request.metadata(), true)?;
                state.router_access(&request.get_ref().task_id)
            })
            .await
        }
        _ => unknown(),
    }
}

impl FakeState {
    fn auth_token(&self) -> String {
        format!("auth-{}", self.jwt())
    }

    /// Checks headers and credentials, after a planned fault.
    fn known(&self, called: &str, metadata: &MetadataMap, second: bool) -> Result<(), Status> {
        self.admit(called)?;
        if REQUIRED_METADATA
            .iter()
            .any(|name| header(metadata, name).is_empty())
        {
            return Err(Status::invalid_argument("a header is missing"));
        }
        let id = header(metadata, "x-modal-token-id");
        let secret = header(metadata, "x-modal-token-secret");
        if (id, secret) != (TOKEN_ID, TOKEN_SECRET) {
            return Err(Status::unauthenticated("unknown token"));
        }
        if second && header(metadata, "x-modal-auth-token") != self.auth_token() {
            return Err(Status::unauthenticated("unknown or expired auth token"));
        }
        Ok(())
    }

    fn find(&self, sandbox_id: &str) -> Result<TaskId, Status> {
        let sandboxes = lock(&self.sandboxes);
        let task = sandboxes
            .get(sandbox_id)
            .ok_or_else(|| Status::not_found("sandbox not found"))?;
        let ended = task.ended.is_cancelled();
        Ok(TaskId {
            task_id: (!ended).then(|| task.task_id.clone()),
            task_result: ended.then_some(GenericResult {
                status: TERMINATED_STATUS,
            }),
        })
    }

    fn router_access(&self, task_id: &str) -> Result<RouterAccess, Status> {
        self.task(task_id)?;
        let faults = lock(&self.faults);
        let plain = faults
            .iter()
            .any(|fault| matches!(fault, InjectedFault::PlainRouter));
        Ok(RouterAccess {
            jwt: self.jwt(),
            url: if plain {
                self.url.replacen("https:", "http:", 1)
            } else {
                self.url.clone()
            },
        })
    }
}
