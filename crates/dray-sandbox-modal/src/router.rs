//! Calls to the router of the worker that runs a sandbox (sandbox-transfer 7.3).

use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use dray_sandbox::{Error, ErrorKind};
use dray_sandbox_exec::Supervisor;
use prost::Message;
use tokio::sync::Mutex;
use tokio::time::Instant;
use tokio_util::task::TaskTracker;
use tonic::metadata::{Ascii, MetadataValue};
use tonic::transport::Channel;
use tonic::{Code, Request, Status, Streaming};

use crate::control::{ControlClient, Task};
use crate::fault;
use crate::retry::RequestRetries;
use crate::rpc;
use crate::wire::{EmptyMessage, ExecRequest, ExecWaitResponse, StdinChunk, StdioChunk, StdioRead};

/// How long one request for the end of a command stays open.
const LONG_POLL: Duration = Duration::from_mins(1);

/// Connection and credential for a router, until the credential expires.
#[derive(Debug)]
pub(crate) struct RouterAccess {
    channel: Channel,
    url: String,
    bearer: MetadataValue<Ascii>,
    generation: u64,
}

impl RouterAccess {
    fn request<T>(&self, message: T, throttles: u32) -> Request<T> {
        let mut request = Request::new(message);
        let metadata = request.metadata_mut();
        metadata.insert("authorization", self.bearer.clone());
        metadata.insert("x-throttle-retry-attempt", throttles.into());
        request
    }
}

/// Client of the router of one task.
#[derive(Debug)]
pub(crate) struct Router {
    control: Arc<ControlClient>,
    task: Task,
    access: RwLock<Arc<RouterAccess>>,
    /// Held while the credential is renewed.
    renewal_lock: Mutex<()>,
    supervisor: Supervisor,
}

impl Router {
    /// Requests access to the router of a task.
    pub(crate) async fn open(control: Arc<ControlClient>, task: Task) -> Result<Self, Error> {
        let access = request_access(&control, &task, None)
            .await
            .map_err(|status| fault::failed("looking for the router", &status))?;
        Ok(Self {
            control,
            task,
            access: RwLock::new(Arc::new(access)),
            renewal_lock: Mutex::new(()),
            supervisor: Supervisor::new(TaskTracker::new()),
        })
    }

    pub(crate) fn task_id(&self) -> &str {
        &self.task.task_id
    }

    /// Kills commands whose caller has disconnected.
    pub(crate) fn supervisor(&self) -> &Supervisor {
        &self.supervisor
    }

    pub(crate) fn access(&self) -> Arc<RouterAccess> {
        Arc::clone(&self.access.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Replaces the credential, unless another task just did.
    pub(crate) async fn renew(&self, old: &RouterAccess) -> Result<(), Status> {
        // Many streams find the same credential expired; the first one renews it for all.
        let _guard = self.renewal_lock.lock().await;
        let current = self.access();
        if current.generation != old.generation {
            return Ok(());
        }
        let access = request_access(&self.control, &self.task, Some(&current)).await?;
        *self.access.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(access);
        Ok(())
    }

    /// Sends one request. Repeats it after failures that may pass, and once with a new credential.
    pub(crate) async fn ask<Q, A>(&self, path: &'static str, message: &Q) -> Result<A, Status>
    where
        Q: Message + Clone + 'static,
        A: Message + Default + 'static,
    {
        let timeout = self.control.settings().response;
        let mut retry = RequestRetries::default();
        let mut renewed = false;
        loop {
            let access = self.access();
            let request = access.request(message.clone(), retry.throttles());
            match rpc::unary(&access.channel, path, request, timeout).await {
                Err(status) if !renewed && status.code() == Code::Unauthenticated => {
                    renewed = true;
                    self.renew(&access).await?;
                }
                Err(status) if retry.wait_for_retry(&status).await => {}
                response => return response,
            }
        }
    }

    /// Waits for the end of a command, without a separate limit.
    pub(crate) async fn wait(&self, exec_id: &str) -> Result<ExecWaitResponse, Status> {
        let path = "/modal.task_command_router.TaskCommandRouter/TaskExecWait";
        let mut retry = RequestRetries::default();
        let mut renewed = false;
        loop {
            let access = self.access();
            let request = access.request(self.exec_request(exec_id), retry.throttles());
            let started = Instant::now();
            match rpc::unary(&access.channel, path, request, LONG_POLL).await {
                // The same code in a moment is a failure of the router or of a proxy.
                Err(status)
                    if status.code() == Code::DeadlineExceeded
                        && started.elapsed() >= LONG_POLL / 2 =>
                {
                    // A long poll that ended without a result is not a failure.
                    retry.progress();
                    // A long command may outlive several credentials, so each poll may renew one.
                    renewed = false;
                }
                Err(status) if !renewed && status.code() == Code::Unauthenticated => {
                    renewed = true;
                    self.renew(&access).await?;
                }
                Err(status) if retry.wait_for_retry(&status).await => {}
                response => return response,
            }
        }
    }

    pub(crate) fn exec_request(&self, exec_id: &str) -> ExecRequest {
        ExecRequest {
            task_id: self.task.task_id.clone(),
            exec_id: exec_id.to_owned(),
        }
    }

    /// Opens a stream of output. It is not repeated here: its reader knows the offset.
    pub(crate) async fn output(
        &self,
        access: &RouterAccess,
        message: StdioRead,
        throttles: u32,
    ) -> Result<Streaming<StdioChunk>, Status> {
        let path = "/modal.task_command_router.TaskCommandRouter/TaskExecStdioRead";
        let request = access.request(message, throttles);
        let opened = rpc::server_stream(&access.channel, path, request);
        match tokio::time::timeout(self.control.settings().response, opened).await {
            Ok(opened) => opened,
            Err(_) => Err(Status::deadline_exceeded("no response in time")),
        }
    }

    /// Writes a stream of input. It is not repeated here either.
    pub(crate) async fn input(
        access: &RouterAccess,
        chunks: impl futures_util::Stream<Item = StdinChunk> + Send + 'static,
        throttles: u32,
    ) -> Result<(), Status> {
        let path = "/modal.task_command_router.TaskCommandRouter/TaskExecStdinWriteStream";
        let request = access.request(chunks, throttles);
        let EmptyMessage {} = rpc::client_stream(&access.channel, path, request).await?;
        Ok(())
    }
}

async fn request_access(
    control: &ControlClient,
    task: &Task,
    current: Option<&RouterAccess>,
) -> Result<RouterAccess, Status> {
    let found = control.access(task).await?;
    let mut bearer: MetadataValue<Ascii> = format!("Bearer {}", found.jwt)
        .parse()
        .map_err(|_| Status::data_loss("not a credential"))?;
    // The token is left out of the debug output of requests.
    bearer.set_sensitive(true);
    let channel = match current {
        // The same worker keeps its connection, with the streams that run over it.
        Some(current) if current.url == found.url => current.channel.clone(),
        _ => rpc::endpoint(control.settings(), &found.url)
            .map_err(|error| {
                debug_assert_eq!(error.kind(), ErrorKind::Protocol);
                Status::data_loss("the URL of the router is not valid")
            })?
            .connect_lazy(),
    };
    Ok(RouterAccess {
        channel,
        url: found.url,
        bearer,
        generation: current.map_or(0, |current| current.generation + 1),
    })
}
