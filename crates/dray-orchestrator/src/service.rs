//! The service: it listens for chats and calls the others over the bus.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use dray_agent::layer;
use dray_agent::manifest::ManifestReader;
use dray_agent::skill;
use dray_bus::Permissions;
use dray_dial::chat::ChatClient;
use dray_dial::{DialClient, DialPort, InterpreterEndpoint};
use dray_http::{HttpClient, HttpTimeouts, TrustedAuthorities};
use dray_proto::v1;
use dray_service::{Request, Router, Service, ServiceContext, ServicePlan, StartError};
use dray_store::StoreAccess;
use dray_tool_mcp::{ProgramPool, SignInKeeper};
use dray_types::{Fault, FaultCode, TenantId, TraceContext};
use opentelemetry::metrics::Meter;
use tokio::net::TcpListener;

use crate::approvals::{ApprovalAudits, ApprovalStore};
use crate::budgets::UsageLedger;
use crate::client_files::ClientFiles;
use crate::client_uploads::ClientUploads;
use crate::config::Config;
use crate::http::{self, BackgroundTasks, ClientState, HttpSurface};
use crate::manifests::{ManifestDirectory, read_layers};
use crate::metrics::OrchestratorMetrics;
use crate::permissions::CallerGrants;
use crate::progress::ProgressStore;
use crate::records::CallerRecords;
use crate::responses::ResponseStore;
use crate::sign_ins::StoredSignIns;
use crate::turn::{
    AgentEngine, ManifestLoader, ModelEndpoint, PausedTurns, SetupPlans, SharedAdditions,
    SharedParts, ToolKinds, TurnRecords,
};
use crate::turn_events::TurnEvents;
use dray_tool_files::FileServices;

/// Delay before the first retry of a model call; it doubles with each attempt.
const FIRST_RETRY_DELAY: Duration = Duration::from_millis(500);

/// The running service.
#[derive(Debug)]
pub struct Orchestrator {
    address: SocketAddr,
    approvals: ApprovalStore,
    client_files: ClientFiles,
}

impl Service for Orchestrator {
    const NAME: &'static str = "orchestrator";
    type Config = Config;

    fn plan() -> ServicePlan {
        // Written out, so that it is compiled here.
        ServicePlan::of::<Self>()
    }

    async fn start(config: Config, cx: &ServiceContext) -> Result<Self, StartError> {
        // First, so that a port in use stops the start before anything else is opened.
        let listener = TcpListener::bind(config.listen).await.map_err(|error| {
            StartError::with_source(format!("cannot listen on {}", config.listen), error)
        })?;
        let address = listener.local_addr().map_err(|error| {
            StartError::with_source("cannot read the address of the listener", error)
        })?;
        let drain = config.drain.as_duration();
        let tenant = config.tenant();
        let approvals = approvals(&config, cx, &tenant);
        let client_files = client_files(&config, cx, &tenant);
        let surface = http_surface(config, address, cx)?;
        let sweeping = http::sweep_runs(Arc::clone(&surface));
        cx.listeners.tasks.spawn(sweeping);
        let stop = cx.listeners.stop.clone();
        let served = http::serve_until(surface.router(), listener, stop, drain);
        cx.listeners.spawn(served);
        cx.listen_addresses.open("chat", address);
        tracing::info!(%address, "listening for chats");
        Ok(Self {
            address,
            approvals,
            client_files,
        })
    }

    fn routes(router: Router<Self>) -> Router<Self> {
        router
            .answer(Self::decide_in_chat)
            .answer(Self::list_file_holders)
    }

    fn permissions(permissions: Permissions) -> Permissions {
        permissions
            .about("Talks to models and tools, and calls the other services for files.")
            .calls::<v1::FetchRequest>()
            .calls::<v1::ResolveRequest>()
            .calls::<v1::ReadAttachmentRequest>()
            .calls::<v1::ReadFilesRequest>()
            .calls::<v1::BuildContextRequest>()
            .calls::<v1::SubstituteIdsRequest>()
            .calls::<v1::FetchUserFileRequest>()
            .calls::<v1::ShowSessionRequest>()
            .calls::<v1::BindSessionRequest>()
            .calls::<v1::ProbeSandboxRequest>()
            .calls::<v1::StatSandboxRequest>()
            .calls::<v1::ListSandboxRequest>()
            .calls::<v1::GetSandboxFileRequest>()
            .calls::<v1::GetSandboxTreeRequest>()
            .calls::<v1::PutSandboxFileRequest>()
            .calls::<v1::SettleUploadsRequest>()
            .calls::<v1::SendFileRequested>()
            .calls::<v1::DeliveryOutcomeRequest>()
            .calls::<v1::IssueTicketRequest>()
            .calls::<v1::AskInChatRequest>()
            .publishes_work::<v1::PlaceUpload>()
            .publishes_event::<v1::TurnBegun>()
            .publishes_event::<v1::TurnEnded>()
            .publishes_audit::<v1::ApprovalAudit>()
            .lists_keys(crate::records::RECORD_BUCKET)
    }

    fn store_access() -> StoreAccess {
        StoreAccess::probe().reads().writes()
    }

    fn instruments(meter: &Meter) {
        OrchestratorMetrics::new(meter);
    }
}

impl Orchestrator {
    /// The address on which the service listens for chats.
    pub const fn address(&self) -> SocketAddr {
        self.address
    }

    /// Records what a person of a chat decided about a call of an agent of the caller's tenant. Orchestrators of all tenants
    /// on a bus share the subject and the bucket of records, so any of them may get the request. The caller vouches for
    /// tenant, person and chat; the permissions of the bus let `platform-delivery` alone call.
    ///
    /// # Errors
    ///
    /// `InvalidArgument` for a request without a choice, `Unavailable` while the bus fails. After an error nothing is
    /// recorded.
    pub async fn decide_in_chat(
        self: Arc<Self>,
        request: Request<v1::DecideInChatRequest>,
    ) -> Result<v1::DecideInChatReply, Fault> {
        // Not the tenant of this process: the bus may hand it a request about agents of another orchestrator.
        let approvals = self.approvals.for_tenant(request.meta.tenant.clone());
        let decided = approvals.decide_in_chat(&request.body).await;
        decided.map_err(|failure| {
            let code = match failure.status {
                400..=499 => FaultCode::InvalidArgument,
                _ => FaultCode::Unavailable,
            };
            Fault::new(code, failure.message)
        })
    }

    /// Lists the files with these contents that clients of the caller's tenant keep. Records of all tenants are in one
    /// bucket, so the reply does not depend on the tenant whose agents this process serves.
    ///
    /// # Errors
    ///
    /// `InvalidArgument` for a request without a usable digest, `Unavailable` while the bus fails.
    pub async fn list_file_holders(
        self: Arc<Self>,
        request: Request<v1::ListFileHoldersRequest>,
    ) -> Result<v1::ListFileHoldersReply, Fault> {
        let files = self.client_files.for_tenant(request.meta.tenant.clone());
        files.list_holders(&request.body).await
    }
}

fn client_files(config: &Config, cx: &ServiceContext, tenant: &TenantId) -> ClientFiles {
    ClientFiles::new(caller_records(cx, tenant), config.client_state_lifetime)
}

/// The turns that wait for answers of their clients.
fn paused_turns(config: &Config, cx: &ServiceContext, tenant: &TenantId) -> PausedTurns {
    let lifetime = config.client_tool_timeout.as_duration();
    PausedTurns::new(cx.store.clone(), tenant.clone(), cx.clock.clone(), lifetime)
}

fn turn_records(
    config: &Config,
    cx: &ServiceContext,
    tenant: &TenantId,
    state: &ClientState,
) -> TurnRecords {
    TurnRecords {
        paused: paused_turns(config, cx, tenant),
        approvals: approvals(config, cx, tenant),
        progress: state.progress.clone(),
        usage: UsageLedger::new(caller_records(cx, tenant)),
        client_files: state.files.clone(),
    }
}

/// Builds the HTTP surface with the engine and the stores that it uses.
fn http_surface(
    config: Config,
    address: SocketAddr,
    cx: &ServiceContext,
) -> Result<Arc<HttpSurface>, StartError> {
    let options = config.surface();
    let reader = Arc::new(ManifestReader::new(config.manifest_settings()));
    // The operator's layers come after the built-in one, so their entries win (quickapps 8.1).
    let layers = read_layers(layer::built_in(), &config.layers)
        .map_err(|error| StartError::with_source("a layer cannot be read", error))?;
    let layers = Arc::new(layers);
    let manifests = ManifestDirectory::open(config.manifests.clone(), Arc::clone(&reader))
        .map_err(|error| StartError::with_source("the manifests cannot be read", error))?;
    let manifests = Arc::new(manifests);
    let (skills, skipped) = skill::of_layers(&layers);
    for reason in skipped {
        tracing::warn!("{reason}");
    }
    let core = dial_client(&config)?;
    let grants = CallerGrants::new(&config)
        .map_err(|error| StartError::new(format!("permissions are not usable: {error}")))?;
    let services = file_services(&config, core.as_ref(), cx);
    let state = client_state(&config, address, cx, &services.tenant);
    let records = turn_records(&config, cx, &services.tenant, &state);
    let additions = SharedAdditions {
        layers: Arc::clone(&layers),
        skills: skills.into(),
        plans: SetupPlans::default(),
    };
    let metrics = OrchestratorMetrics::new(&cx.meter);
    let parts = Arc::new(SharedParts {
        turn_events: turn_events(&services.tenant, &metrics, cx),
        records,
        additions,
        prices: Arc::new(config.budgets.prices.clone()),
        model: model_endpoint(&config, core.as_ref())?,
        kinds: tool_kinds(&config, core.as_ref(), &state, cx)?,
        loader: ManifestLoader {
            reader,
            manifests: Arc::clone(&manifests),
            grants,
            core: core.clone(),
            default_manifest: config.default_manifest.clone(),
        },
        core,
        services,
        metrics: metrics.clone(),
        config,
    });
    let engine = AgentEngine { parts };
    let background = BackgroundTasks {
        tasks: cx.listeners.tasks.clone(),
        stop: cx.listeners.stop.clone(),
        metrics,
    };
    let surface = HttpSurface::new(
        Arc::new(engine),
        state,
        background,
        manifests,
        layers,
        options,
        cx.clock.clone(),
    );
    Ok(Arc::new(surface))
}

fn file_services(config: &Config, core: Option<&DialClient>, cx: &ServiceContext) -> FileServices {
    let services = FileServices::new(
        cx.bus.clone(),
        cx.store.clone(),
        cx.clock.clone(),
        config.tenant(),
        config.files.clone(),
    );
    match core {
        Some(core) => services.with_dial(Arc::new(core.clone())),
        // Without DIAL files are kept only in the artifact store.
        None => services,
    }
}

/// The stores of state that clients use between their requests.
fn client_state(
    config: &Config,
    address: SocketAddr,
    cx: &ServiceContext,
    tenant: &TenantId,
) -> ClientState {
    let records = caller_records(cx, tenant);
    let base_url = config.browser_url(address);
    let sign_ins = base_url.map(|url| Arc::new(StoredSignIns::new(records.clone(), &url)));
    let files = ClientFiles::new(records.clone(), config.client_state_lifetime);
    ClientState {
        sign_ins,
        uploads: ClientUploads::new(files.clone()),
        files,
        progress: ProgressStore::new(records.clone()),
        responses: ResponseStore::new(records, config.client_state_lifetime, config.response_lease),
    }
}

fn caller_records(cx: &ServiceContext, tenant: &TenantId) -> CallerRecords {
    CallerRecords::new(&cx.bus, cx.store.clone(), tenant.clone(), cx.clock.clone())
}

fn approvals(config: &Config, cx: &ServiceContext, tenant: &TenantId) -> ApprovalStore {
    let records = caller_records(cx, tenant);
    let audits = ApprovalAudits::new(cx.bus.clone(), tenant.clone(), cx.clock.clone());
    let timeout = config.approval_timeout.as_duration();
    let times = (timeout, config.response_lease);
    ApprovalStore::new(records, audits, times, cx.tasks.clone())
}

/// The queues of the events about turns.
fn turn_events(
    tenant: &TenantId,
    metrics: &OrchestratorMetrics,
    cx: &ServiceContext,
) -> TurnEvents {
    let source = (tenant, &cx.clock);
    TurnEvents::start(&cx.bus, source, metrics, &cx.tasks, &cx.stop)
}

/// The trace of the span that runs.
fn current_trace() -> Option<TraceContext> {
    dray_bus::trace::context_of(&tracing::Span::current())
}

fn dial_client(config: &Config) -> Result<Option<DialClient>, StartError> {
    let Some(url) = &config.dial_url else {
        return Ok(None);
    };
    let mut options = dray_dial::DialOptions::new(url, &config.dial_api_version);
    options.authorities = TrustedAuthorities::public_and(config.dial_ca_file.as_deref());
    options.limits.connect = config.connect_timeout.as_duration();
    options.chat = config.chat_limits();
    options.metadata_age = config.metadata_expiry.as_duration();
    options.trace = Some(current_trace);
    options.interpreter = config
        .py_interpreter
        .url
        .clone()
        .map(|url| InterpreterEndpoint {
            url,
            key: (!config.py_interpreter.api_key.is_empty())
                .then(|| config.py_interpreter.api_key.clone()),
        });
    let core = DialClient::new(options);
    core.map(Some)
        .map_err(|error| StartError::with_source("dial_url is not usable", error))
}

/// Where models are: at the configured endpoint, else in DIAL.
fn model_endpoint(config: &Config, core: Option<&DialClient>) -> Result<ModelEndpoint, StartError> {
    match (&config.model_url, core) {
        (Some(url), _) => {
            let key = (!config.model_key.is_empty()).then(|| config.model_key.clone());
            ChatClient::open(url, key, config.chat_limits(), None, FIRST_RETRY_DELAY)
                .map(|client| ModelEndpoint::Available(Box::new(client.with_trace(current_trace))))
                .map_err(|error| StartError::with_source("model_url is not usable", error))
        }
        (None, Some(core)) => Ok(ModelEndpoint::Available(Box::new(core.chat()))),
        (None, None) => {
            tracing::warn!(
                "neither dial_url nor model_url is set: every chat fails without a model"
            );
            Ok(ModelEndpoint::Missing)
        }
    }
}

fn tool_kinds(
    config: &Config,
    core: Option<&DialClient>,
    state: &ClientState,
    cx: &ServiceContext,
) -> Result<ToolKinds, StartError> {
    let limits = HttpTimeouts {
        connect: config.connect_timeout.as_duration(),
        ..HttpTimeouts::default()
    };
    let client = HttpClient::new(limits, None)
        .map_err(|error| StartError::with_source("the client of tools cannot be made", error))?;
    let rest = dray_tool_rest::RestOptions {
        forward_headers: config.forward_headers.clone(),
        clock: cx.clock.clone(),
        trace: Some(current_trace),
        ..dray_tool_rest::RestOptions::default()
    };
    let mut mcp = dray_tool_mcp::McpOptions::new(client.clone());
    mcp.forward_headers.clone_from(&config.forward_headers);
    mcp.clock = cx.clock.clone();
    mcp.trace = Some(current_trace);
    mcp.stdio = config.mcp_commands();
    mcp.oauth.workload_tokens = config.workload_tokens();
    let programs = &config.mcp_programs;
    mcp.programs = ProgramPool::new(programs.idle_timeout.as_duration(), programs.max_running);
    cx.tasks.spawn(mcp.programs.clone().run(cx.stop.clone()));
    mcp.login_timeout = config.interactive_login_timeout.as_duration();
    let dial = core.map(|core| Arc::new(core.clone()) as Arc<dyn DialPort>);
    mcp.dial.clone_from(&dial);
    let sign_ins = state.sign_ins.clone();
    mcp.oauth.keeper = sign_ins.map(|sign_ins| sign_ins as Arc<dyn SignInKeeper>);
    Ok(ToolKinds {
        client,
        rest,
        mcp,
        dial,
        sign_ins: state.sign_ins.clone(),
        interpreter_session: config.py_interpreter.default_session_id.clone(),
    })
}

#[cfg(test)]
mod tests;
