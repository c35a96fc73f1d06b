//! The MCP server of `dray up`: bound before the services start, serving once they do, and ended with them.

use std::time::Duration;

use dray_bus::Meta;
use dray_mcp::{HttpEndpoint, LocalRoot, McpServer, OfferedChat, ServiceClient, TicketAccess};
use dray_proto::v1;
use dray_service::RunningHost;
use dray_types::{Deadline, Fault, TenantId};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::cli::{McpArgs, UpMcpArgs};
use crate::commands::mcp::{self, OptionNames};
use crate::outcome::{CommandFailure, print_note};

/// How long open responses may take to end after the signal.
const STOP_TIMEOUT: Duration = Duration::from_secs(3);

/// The options as the user writes them here.
const OPTION_NAMES: OptionNames = OptionNames {
    address: "--mcp",
    root: "--mcp-root",
    token_file: "--mcp-token-file",
    auth_file: "--mcp-auth-file",
};

/// A bound server that does not serve requests yet.
pub(crate) struct BoundMcp {
    args: McpArgs,
    root: Option<LocalRoot>,
    chats: Vec<OfferedChat>,
    /// Binds the sandbox and the chat that the options name.
    binding: Option<v1::BindSessionRequest>,
    endpoint: HttpEndpoint,
    tenant: TenantId,
}

impl BoundMcp {
    /// Checks the options and binds the address; `None` without `--mcp`.
    pub(crate) async fn bind(
        options: &UpMcpArgs,
        tenant: TenantId,
    ) -> Result<Option<Self>, CommandFailure> {
        let Some(args) = options.to_server_args() else {
            return Ok(None);
        };
        let root = mcp::local_root(&args, OPTION_NAMES)?;
        let chats = mcp::offered_chats(&args)?;
        let binding = mcp::binding_request(&args)?;
        let endpoint = mcp::bind_endpoint(&args, &tenant, OPTION_NAMES).await?;
        Ok(endpoint.map(|endpoint| Self {
            args,
            root,
            chats,
            binding,
            endpoint,
            tenant,
        }))
    }

    /// The URL for clients.
    pub(crate) fn url(&self) -> String {
        self.endpoint.url()
    }

    /// Begins to serve over the services of this host, and over its ticket endpoint where it has one.
    pub(crate) fn start(self, running: &RunningHost, tickets: Option<TicketAccess>) -> ServingMcp {
        let context = running.context();
        let client = ServiceClient {
            bus: context.bus.clone(),
            store: context.store.clone(),
            clock: context.clock.clone(),
            tenant: self.tenant,
            session: self.args.session.clone(),
        };
        let limits = mcp::file_limits(running.config());
        let options = mcp::server_options(&self.args, self.chats, limits, tickets);
        let server = McpServer::new(client.clone(), self.root, options);
        // This token is cancelled with the other listeners, before the services stop: new calls must not arrive
        // meanwhile.
        let stop = context.listeners.stop.child_token();
        let mut tasks = JoinSet::new();
        let serving = self.endpoint.serve(server, stop.clone());
        let binding = self.binding;
        let stopping = stop.clone();
        tasks.spawn(async move {
            if let Some(request) = binding {
                bind_until_stopped(&client, &request, &stopping).await;
            }
            serving.await;
        });
        ServingMcp { stop, tasks }
    }
}

/// Binds the session unless the process stops first. Reports why it could not be bound.
async fn bind_until_stopped(
    client: &ServiceClient,
    request: &v1::BindSessionRequest,
    stopping: &CancellationToken,
) {
    let bound = tokio::select! {
        biased;
        // A dropped call is cancelled, so the services do not wait for it when they stop.
        () = stopping.cancelled() => return,
        bound = bind_session(client, request) => bound,
    };
    if let Err(fault) = bound {
        // The other services of this process run on, so a sandbox that is unavailable does not end them.
        print_note(&format!(
            "the session `{}` of MCP tools is not bound: {} {}",
            request.session, fault.message, fault.advice
        ));
    }
}

/// Binds the sandbox and the chat of the session, before the first request is served.
async fn bind_session(
    client: &ServiceClient,
    request: &v1::BindSessionRequest,
) -> Result<(), Fault> {
    let deadline = Deadline::after(client.clock.now_ms(), mcp::BIND_TIMEOUT);
    let meta = Meta::new(client.tenant.clone(), deadline).with_session(client.session.clone());
    client.bus.call(&meta, request).await?;
    Ok(())
}

/// The MCP endpoints that `dray up` runs beside its services.
pub(crate) struct ServingMcp {
    stop: CancellationToken,
    tasks: JoinSet<()>,
}

impl ServingMcp {
    /// Ends it and waits until its connections are closed.
    pub(crate) async fn close(mut self) {
        self.stop.cancel();
        let ended = async { while self.tasks.join_next().await.is_some() {} };
        if tokio::time::timeout(STOP_TIMEOUT, ended).await.is_err() {
            print_note("connections of MCP clients were cut");
        }
    }
}
