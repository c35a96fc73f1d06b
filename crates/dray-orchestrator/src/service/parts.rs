//! Builds the parts of the service from its settings: at the start, and again when the settings change.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use dray_agent::layer;
use dray_agent::manifest::ManifestReader;
use dray_agent::skill;
use dray_dial::chat::ChatClient;
use dray_dial::{DialClient, DialPort, InterpreterEndpoint};
use dray_http::{HttpClient, HttpTimeouts, TrustedAuthorities};
use dray_service::{ServiceContext, StartError};
use dray_tool_files::FileServices;
use dray_tool_mcp::{McpOptions, ProgramPool, SignInKeeper};
use dray_types::{TenantId, TraceContext};

use crate::approvals::{ApprovalAudits, ApprovalStore};
use crate::budgets::UsageLedger;
use crate::client_files::ClientFiles;
use crate::client_uploads::ClientUploads;
use crate::config::Config;
use crate::http::{BackgroundTasks, ClientState, HttpSurface, SurfaceParts};
use crate::manifests::{ManifestDirectory, read_layers};
use crate::metrics::OrchestratorMetrics;
use crate::permissions::CallerGrants;
use crate::progress::ProgressStore;
use crate::records::CallerRecords;
use crate::responses::ResponseStore;
use crate::sign_ins::StoredSignIns;
use crate::turn::{
    AgentEngine, KnownQuirks, ManifestLoader, ModelEndpoint, PausedTurns, SetupPlans,
    SharedAdditions, SharedParts, ToolKinds, TurnRecords,
};
use crate::turn_events::TurnEvents;

/// Delay before the first retry of a model call; it doubles with each attempt.
const FIRST_RETRY_DELAY: Duration = Duration::from_millis(500);

/// What stays when settings change: connections, and the state that clients use between requests.
#[derive(Debug)]
pub(super) struct LastingParts {
    pub(super) cx: ServiceContext,
    state: ClientState,
    metrics: OrchestratorMetrics,
    turn_events: TurnEvents,
}

impl LastingParts {
    /// The parts for a service with the settings of the start, which listens on `address`.
    pub(super) fn new(config: &Config, address: SocketAddr, cx: &ServiceContext) -> Self {
        let (tenant, metrics) = (config.tenant(), OrchestratorMetrics::new(&cx.meter));
        let source = (&tenant, &cx.clock);
        Self {
            cx: cx.clone(),
            state: client_state(config, address, cx, &tenant),
            turn_events: TurnEvents::start(&cx.bus, source, &metrics, &cx.tasks, &cx.stop),
            metrics,
        }
    }

    /// The surface of the start.
    pub(super) fn surface(&self, parts: SurfaceParts) -> HttpSurface {
        let listeners = &self.cx.listeners;
        let background = BackgroundTasks {
            tasks: listeners.tasks.clone(),
            stop: listeners.stop.clone(),
            metrics: self.metrics.clone(),
        };
        HttpSurface::new(parts, self.state.clone(), background, self.cx.clock.clone())
    }

    /// Builds everything that follows from the settings. Connections and running programs of `earlier` stay where their
    /// settings are the same.
    ///
    /// # Errors
    ///
    /// Settings, or files that they name, that cannot be used.
    pub(super) fn build(
        &self,
        config: Config,
        earlier: Option<&SharedParts>,
    ) -> Result<(SurfaceParts, Arc<SharedParts>), StartError> {
        let (options, cx) = (config.surface(), &self.cx);
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
        let additions = SharedAdditions {
            layers: Arc::clone(&layers),
            skills: skills.into(),
            plans: SetupPlans::default(),
        };
        let parts = SharedParts {
            turn_events: self.turn_events.clone(),
            records: turn_records(&config, cx, &services.tenant, &self.state),
            additions,
            prices: Arc::new(config.budgets.prices.clone()),
            model: model_endpoint(&config, core.as_ref())?,
            known_quirks: KnownQuirks::default(),
            kinds: self.tool_kinds(&config, core.as_ref(), earlier)?,
            loader: ManifestLoader {
                reader,
                manifests: Arc::clone(&manifests),
                grants,
                core: core.clone(),
                default_manifest: config.default_manifest.clone(),
            },
            core,
            services,
            metrics: self.metrics.clone(),
            config,
        };
        let parts = Arc::new(parts);
        let engine = AgentEngine {
            parts: Arc::clone(&parts),
        };
        let surface = SurfaceParts {
            agent: Arc::new(engine),
            manifests,
            layers,
            options,
        };
        Ok((surface, parts))
    }

    fn tool_kinds(
        &self,
        config: &Config,
        core: Option<&DialClient>,
        earlier: Option<&SharedParts>,
    ) -> Result<ToolKinds, StartError> {
        let (cx, sign_ins) = (&self.cx, &self.state.sign_ins);
        let limits = HttpTimeouts {
            connect: config.connect_timeout.as_duration(),
            ..HttpTimeouts::default()
        };
        let client = HttpClient::new(limits, None).map_err(|error| {
            StartError::with_source("the client of tools cannot be made", error)
        })?;
        let rest = dray_tool_rest::RestOptions {
            forward_headers: config.forward_headers.clone(),
            clock: cx.clock.clone(),
            trace: Some(current_trace),
            ..dray_tool_rest::RestOptions::default()
        };
        let mut mcp = McpOptions::new(client.clone());
        mcp.forward_headers.clone_from(&config.forward_headers);
        mcp.clock = cx.clock.clone();
        mcp.trace = Some(current_trace);
        mcp.stdio = config.mcp_commands();
        mcp.oauth.workload_tokens = config.workload_tokens();
        self.keep_sessions(config, &mut mcp, earlier);
        mcp.login_timeout = config.interactive_login_timeout.as_duration();
        let dial = core.map(|core| Arc::new(core.clone()) as Arc<dyn DialPort>);
        mcp.dial.clone_from(&dial);
        let keeper = sign_ins.clone();
        mcp.oauth.keeper = keeper.map(|sign_ins| sign_ins as Arc<dyn SignInKeeper>);
        Ok(ToolKinds {
            client,
            rest,
            mcp,
            dial,
            sign_ins: sign_ins.clone(),
            interpreter_session: config.py_interpreter.default_session_id.clone(),
        })
    }

    /// Keeps running programs and sign-ins of `earlier`, unless they began with other settings.
    fn keep_sessions(&self, config: &Config, mcp: &mut McpOptions, earlier: Option<&SharedParts>) {
        if let Some(earlier) = earlier {
            mcp.legacy_servers = earlier.kinds.mcp.legacy_servers.clone();
            if earlier.config.mcp_workload_tokens == config.mcp_workload_tokens {
                mcp.oauth.sign_ins = earlier.kinds.mcp.oauth.sign_ins.clone();
            }
        }
        let is_same = |earlier: &&SharedParts| {
            earlier.config.mcp_servers == config.mcp_servers
                && earlier.config.mcp_programs == config.mcp_programs
        };
        if let Some(earlier) = earlier.filter(is_same) {
            mcp.programs = earlier.kinds.mcp.programs.clone();
            return;
        }
        // Turns under way keep the earlier pool, whose task ends after the last of them.
        let programs = &config.mcp_programs;
        mcp.programs = ProgramPool::new(programs.idle_timeout.as_duration(), programs.max_running);
        let cx = &self.cx;
        cx.tasks.spawn(mcp.programs.clone().run(cx.stop.clone()));
    }
}

pub(super) fn client_files(config: &Config, cx: &ServiceContext, tenant: &TenantId) -> ClientFiles {
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

pub(super) fn caller_records(cx: &ServiceContext, tenant: &TenantId) -> CallerRecords {
    CallerRecords::new(&cx.bus, cx.store.clone(), tenant.clone(), cx.clock.clone())
}

pub(super) fn approvals(config: &Config, cx: &ServiceContext, tenant: &TenantId) -> ApprovalStore {
    let records = caller_records(cx, tenant);
    let audits = ApprovalAudits::new(cx.bus.clone(), tenant.clone(), cx.clock.clone());
    let timeout = config.approval_timeout.as_duration();
    let times = (timeout, config.response_lease);
    ApprovalStore::new(records, audits, times, cx.tasks.clone())
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
