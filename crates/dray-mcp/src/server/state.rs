//! The options of a server, and its services, which may become available after its first request.

use std::sync::Arc;
use std::time::Duration;

use rmcp::model::Tool;
use rmcp::service::RequestContext;
use rmcp::{ErrorData, RoleServer};
use tokio::sync::SetOnce;

use super::access::CallerAccess;
use crate::auth::{Caller, Scope, ScopeSet};
use crate::content::ContentAccess;
use crate::host_questions::may_ask;
use crate::input::InputGate;
use crate::local::LocalRoot;
use crate::options::{FileLimits, ServerOptions, ToolName};
use crate::subscriptions::{SessionSubscriptions, WatchLimiter};
use crate::transfer_tasks::TransferTasks;
use crate::{ServiceClient, catalog, failure};

/// The server. Cloning is cheap; all clones share the bus and the store.
#[derive(Clone, Debug)]
pub struct McpServer {
    pub(super) state: Arc<ServerState>,
    /// The subscriptions of one session of 2025-11-25, over HTTP or stdio.
    pub(super) subscriptions: Arc<SessionSubscriptions>,
}

#[derive(Debug)]
pub(super) struct ServerState {
    /// Set once the services are reached; requests that need them wait for it.
    access: SetOnce<ContentAccess>,
    pub(super) options: ServerOptions,
    pub(super) tools: Vec<Tool>,
    pub(super) gate: InputGate,
    pub(super) watches: WatchLimiter,
    pub(super) transfers: TransferTasks,
}

/// Provides the services to a server that was created with [`McpServer::starting`].
#[derive(Debug)]
pub struct ServerStarter {
    state: Arc<ServerState>,
    root: Option<LocalRoot>,
}

impl ServerStarter {
    /// Continues the requests that wait for the services. `limits` replace those in the options, because they are known
    /// only after the services have read their configuration.
    pub fn ready(self, client: ServiceClient, limits: FileLimits) {
        let access = ContentAccess {
            client,
            root: self.root,
            limits,
            tickets: self.state.options.tickets.clone(),
        };
        // Cannot fail, because there is only one starter and this consumes it.
        let _ = self.state.access.set(access);
    }
}

impl McpServer {
    /// A server for one tenant and one session. Without a `root`, tools use no files of this machine.
    pub fn new(client: ServiceClient, root: Option<LocalRoot>, options: ServerOptions) -> Self {
        let limits = options.limits;
        let (server, starter) = Self::starting(root, options);
        starter.ready(client, limits);
        server
    }

    /// Like [`Self::new`], before the services are available: the server lists its tools, and requests that need a
    /// service wait until [`ServerStarter::ready`]. If the services do not become available, end the process; otherwise
    /// those requests would wait forever.
    pub fn starting(root: Option<LocalRoot>, options: ServerOptions) -> (Self, ServerStarter) {
        let tools = options
            .offered()
            .map(|tool| catalog::definition(tool, options.permissions))
            .collect();
        let state = Arc::new(ServerState {
            access: SetOnce::new(),
            options,
            tools,
            gate: InputGate::default(),
            watches: WatchLimiter::default(),
            transfers: TransferTasks::default(),
        });
        let starter = ServerStarter {
            state: Arc::clone(&state),
            root,
        };
        let server = Self {
            state,
            subscriptions: Arc::default(),
        };
        (server, starter)
    }

    /// The same server for another session of the protocol.
    pub(crate) fn for_session(&self) -> Self {
        Self {
            state: self.state.clone(),
            subscriptions: Arc::default(),
        }
    }

    /// The services, once they are reached.
    pub(crate) async fn client(&self) -> &ServiceClient {
        &self.state.access.wait().await.client
    }

    /// The permissions of a request's caller: over HTTP with tokens those of its token, otherwise those with which the
    /// server was started.
    pub(super) async fn caller_access(&self, context: &RequestContext<RoleServer>) -> CallerAccess {
        let parts = context.extensions.get::<http::request::Parts>();
        let caller = parts.and_then(|parts| parts.extensions.get::<Arc<Caller>>());
        self.access_of(caller.map(Arc::as_ref)).await
    }

    /// The permissions of the caller that a token names; without one, those with which the server was started.
    async fn access_of(&self, caller: Option<&Caller>) -> CallerAccess {
        let own = self.state.access.wait().await;
        let Some(caller) = caller else {
            return CallerAccess {
                access: own.clone(),
                scopes: ScopeSet::all(),
                subject: "operator".to_owned(),
                expires_at_ms: None,
            };
        };
        // The directory belongs to the operator's tenant: another one must not see it.
        let is_own_tenant = caller.tenant == own.client.tenant;
        CallerAccess {
            access: ContentAccess {
                client: ServiceClient {
                    tenant: caller.tenant.clone(),
                    session: caller.session.clone(),
                    ..own.client.clone()
                },
                root: own.root.clone().filter(|_| is_own_tenant),
                limits: own.limits,
                // The tickets are bound to the tenant and the session above when one is made.
                tickets: own.tickets.clone(),
            },
            scopes: caller.scopes,
            subject: caller.subject.clone(),
            expires_at_ms: caller.expires_at_ms,
        }
    }

    /// For how long an answer of the person at the client about a host is valid. `None` if this call must not ask: the
    /// operator has to allow it, the caller needs the scope, and the client has to support questions.
    pub(super) fn approval_lifetime(
        &self,
        tool: ToolName,
        caller: &CallerAccess,
        context: &RequestContext<RoleServer>,
    ) -> Option<Duration> {
        let valid_for = self.state.options.approve_hosts?;
        let may_answer = caller
            .require([Scope::Approve].into_iter().collect())
            .is_ok();
        let can_ask = context
            .client_capabilities()
            .is_some_and(|capabilities| capabilities.elicitation.is_some());
        (may_ask(tool) && may_answer && can_ask).then_some(valid_for)
    }

    /// The services for a caller that may read; `None` for another one.
    pub(crate) async fn readable_by(&self, caller: Option<&Caller>) -> Option<ContentAccess> {
        let caller = self.access_of(caller).await;
        let allowed = caller.require([Scope::Read].into_iter().collect());
        allowed.is_ok().then_some(caller.access)
    }

    /// The limit on watched resources.
    pub(crate) fn watches(&self) -> &WatchLimiter {
        &self.state.watches
    }

    /// Like [`Self::caller_access`], for a request that only reads.
    pub(super) async fn reading_access(
        &self,
        context: &RequestContext<RoleServer>,
    ) -> Result<ContentAccess, ErrorData> {
        let caller = self.caller_access(context).await;
        let required = [Scope::Read].into_iter().collect();
        let allowed = caller.require(required);
        allowed.map_err(|fault| failure::protocol_error(&fault))?;
        Ok(caller.access)
    }

    /// The tool with this name, where it is offered.
    pub(super) fn offered(&self, name: &str) -> Result<ToolName, ErrorData> {
        let tool = name.parse::<ToolName>().ok();
        tool.filter(|tool| self.state.options.offers(*tool))
            .ok_or_else(|| {
                let shown = dray_presentation::name::shown_text(name, 100);
                ErrorData::invalid_params(format!("The tool `{shown}` does not exist here."), None)
            })
    }
}
