//! The service: takes a call, fetches, audits, replies.

use std::sync::Arc;
use std::time::Duration;

use dray_bus::{Meta, Permissions};
use dray_guard::AppPolicy;
use dray_proto::v1;
use dray_service::{Request, Router, Service, ServiceContext, ServicePlan, StartError};
use dray_store::StoreAccess;
use dray_types::{Deadline, Fault};
use opentelemetry::metrics::Meter;

use crate::audit::{AuditQueue, AuditedFetch, Auditor, PUBLISH_TIMEOUT, PolicyStatus};
use crate::config::{
    CacheSettings, ClientTlsSettings, CompiledConfig, Config, CredentialConfig,
    InterceptionSettings, ProxySettings,
};
use crate::credential::CredentialStore;
use crate::dial::TcpDialer;
use crate::fetch::{self, Fetcher, NetworkAccess};
use crate::interfaces::InterfaceWatch;
use crate::limits::FetchAdmission;
use crate::metrics::{EgressMetrics, ProxyMetrics};
use crate::proxy::authority::InterceptionAuthority;
use crate::proxy::client_tls::{ClientTls, ClientTlsWatcher};
use crate::proxy::{ForwardProxy, RunningProxy};
use crate::questions::{QUESTION_BUCKET, QuestionStore};
use crate::reload::{SettingsReload, reload_metrics};
use crate::resolve::NoResolver;
use crate::response_cache::{CACHE_BUCKET, CacheStore};
use crate::staging::{StagedFile, StagingArea};

mod explain;
mod network;
mod own_addresses;
mod policy;
mod purge;
mod questions;
mod wire;

pub(crate) use explain::step_name;
use network::{network_access, tls_client};
use own_addresses::OwnAddresses;
use policy::watch_policy;
use wire::{check_certificate_name, explain_job, fetch_job, fetch_reply};

/// The only service that connects to hosts which an agent, a user or an app chose.
#[derive(Debug)]
pub struct EgressFetcher {
    fetcher: Arc<Fetcher>,
    auditor: Auditor,
    cx: ServiceContext,
    staging: StagingArea,
    audit_required: bool,
    questions: QuestionStore,
    cache: Option<Arc<CacheStore>>,
    audit_queues: Vec<AuditQueue>,
    proxy: Option<RunningProxy>,
    policy_setting: &'static str,
    policy_status: PolicyStatus,
}

impl Service for EgressFetcher {
    const NAME: &'static str = "egress-fetcher";
    type Config = Config;

    fn plan() -> ServicePlan {
        // The default, repeated so that the handlers are compiled in this crate.
        ServicePlan::of::<Self>()
    }

    async fn start(config: Config, cx: &ServiceContext) -> Result<Self, StartError> {
        let compiled = compile_config(&config)?;
        if !config.enabled {
            // A fetcher that is switched off uses no resolver.
            let network = NetworkAccess {
                resolver: Arc::new(NoResolver),
                dialer: Arc::new(TcpDialer),
            };
            return Self::assemble(&config, compiled, cx, network, Vec::new()).await;
        }
        let metrics = EgressMetrics::new(&cx.meter);
        let (network, addresses) = network_access(&config, &compiled, &metrics).await?;
        Self::assemble(&config, compiled, cx, network, addresses).await
    }

    fn routes(router: Router<Self>) -> Router<Self> {
        // A fetch queues by itself: one that waits for a slow host must not keep others out.
        router
            .answer_self_admitted(Self::fetch)
            .answer_self_admitted(Self::explain)
            .answer(Self::purge)
            .answer(Self::list_questions)
            .answer(Self::answer_question)
            .answer_in_every_replica(Self::show_policy)
    }

    fn permissions(permissions: Permissions) -> Permissions {
        permissions
            .about("Fetches addresses that others chose. It publishes what it did and calls no other service.")
            .publishes_audit::<v1::EgressAudit>()
            .publishes_audit::<v1::EgressQuestionAudit>()
            .publishes_audit::<v1::EgressPolicyAudit>()
            .lists_keys(QUESTION_BUCKET)
            .uses_keys(CACHE_BUCKET)
    }

    fn store_access() -> StoreAccess {
        StoreAccess::probe().reads().fetches()
    }

    fn instruments(meter: &Meter) {
        EgressMetrics::new(meter);
        ProxyMetrics::new(meter);
        reload_metrics(meter);
        ProxyMetrics::observe(
            meter,
            &FetchAdmission::new(crate::limits::AdmissionLimits::default()),
        );
        EgressMetrics::observe(
            meter,
            &FetchAdmission::new(crate::limits::AdmissionLimits::default()),
        );
    }

    async fn stop(&self) {
        if let Some(proxy) = &self.proxy {
            proxy.stop().await;
        }
        for queue in &self.audit_queues {
            // A disk or server that does not respond must not delay the end of the process.
            queue.finish(PUBLISH_TIMEOUT).await;
        }
    }
}

impl EgressFetcher {
    /// Starts with `network` in place of the real network, for tests and the demo. No setting does this (I-9).
    pub async fn start_with(
        config: Config,
        cx: ServiceContext,
        network: NetworkAccess,
    ) -> Result<Self, StartError> {
        let compiled = compile_config(&config)?;
        Self::assemble(&config, compiled, &cx, network, Vec::new()).await
    }

    /// The plan of a fetcher over another network: [`Self::start_with`], compiled in this crate and not by the caller.
    pub fn plan_with(network: NetworkAccess) -> ServicePlan {
        ServicePlan::with_start::<Self, _, _>(|config, cx| Self::start_with(config, cx, network))
    }

    async fn assemble(
        config: &Config,
        compiled: CompiledConfig,
        cx: &ServiceContext,
        network: NetworkAccess,
        servers: Vec<std::net::IpAddr>,
    ) -> Result<Self, StartError> {
        // The configuration is logged before anything can fail, so that the log of a failed start has the
        // configuration.
        log_effective_config(config, &compiled);
        let tls = tls_client(config).await?;
        let limits = FetchAdmission::new(compiled.sizes);
        let metrics = start_metrics(&compiled, &limits, cx);
        let audit_queues = open_audit_queues(&compiled, &metrics)?;
        let auditor = auditor_of(config, cx, &metrics, audit_queues.clone());
        let questions = QuestionStore::new(
            &cx.bus,
            cx.clock.clone(),
            compiled.questions,
            metrics.clone(),
        );
        let (protected_hosts, peers) = (compiled.protected_hosts, cx.peers.clone());
        let mut own_addresses = OwnAddresses::new(compiled.judge, servers, protected_hosts, peers);
        // The own addresses are read before the first fetch: an address that is not known cannot be blocked.
        let judge = own_addresses.build_judge().await?;
        let interfaces = InterfaceWatch::start();
        let fetcher = Fetcher::new(
            compiled.settings,
            compiled.admin,
            judge,
            network,
            tls,
            limits,
        )
        .with_credentials(credentials_of(config))
        .with_approvals(Arc::new(questions.clone()))
        .with_quotas(cx.clock.clone(), config.policy_replicas)
        .with_interfaces(move || interfaces.addresses());
        let cache = cache_of(compiled.cache, cx);
        let fetcher = Arc::new(fetcher.with_cache(cache.clone().map(|cache| cache as _)));
        cx.tasks
            .spawn(own_addresses.watch(Arc::clone(&fetcher), cx.stop.clone()));
        let policy_status = watch_policy(config, &fetcher, metrics, &auditor, cx).await?;
        let proxy = match compiled.proxy {
            Some(settings) => {
                Some(start_proxy(settings, &fetcher, &auditor, cx, config.audit_required).await?)
            }
            None => None,
        };
        let shared_proxy = proxy.as_ref().map(|running| Arc::clone(running.proxy()));
        let reload = SettingsReload::follow(config, Arc::clone(&fetcher), shared_proxy, cx);
        cx.tasks.spawn(reload.run(cx.stop.clone()));
        Ok(Self {
            fetcher,
            auditor,
            proxy,
            cx: cx.clone(),
            staging: StagingArea::new(&cx.store, &cx.clock, config.origin_required),
            audit_required: config.audit_required,
            questions,
            cache,
            audit_queues,
            policy_setting: policy::setting_name(config),
            policy_status,
        })
    }

    /// The fetcher itself, for callers that have no bus.
    pub fn fetcher(&self) -> &Arc<Fetcher> {
        &self.fetcher
    }

    /// Answers `dray.egress.v1.fetch`: check, fetch, audit, reply.
    pub async fn fetch(
        self: Arc<Self>,
        request: Request<v1::FetchRequest>,
    ) -> Result<v1::FetchReply, Fault> {
        let until = request.work_until();
        let Request { meta, body } = request;
        let mut sink = self.sink(&meta, body.sink(), until);
        let command = fetch_job(&meta, body, until, self.cx.clock.now_ms());
        // The attempt begins before `enter`, because commands that `enter` refuses are audited too (section 18).
        let mut attempt = self.auditor.begin(meta.clone());
        let Ok(_guard) = self.fetcher.limits().enter() else {
            let denied = self.fetcher.refuse(&command, &mut attempt.record);
            // The event is published without waiting, so that no refused commands accumulate here.
            attempt.finish(Duration::ZERO, self.audit_required).await;
            return Err(with_trace(denied.fault, &meta));
        };
        // The future is boxed: a fetch is a large future, and the attempt must outlive it when both are dropped.
        let result = Box::pin(self.fetcher.fetch(&command, &mut sink, &mut attempt.record)).await;
        let audited = self.audit(attempt, until).await;
        match result {
            Ok(_) if !audited && self.audit_required => Err(unaudited_fault(&command)),
            Ok(fetched) => fetch_reply(fetched, sink),
            Err(denied) => Err(denied.fault),
        }
        .map_err(|fault| with_trace(fault, &meta))
    }

    /// Answers `dray.egress.v1.explain`: judges without fetching, and audits a lookup.
    pub async fn explain(
        self: Arc<Self>,
        request: Request<v1::ExplainRequest>,
    ) -> Result<v1::ExplainReply, Fault> {
        let until = request.work_until();
        let Request { meta, body } = request;
        let resolve_names = body.resolve_names;
        check_certificate_name(&body.client_certificate)
            .map_err(|fault| with_trace(fault, &meta))?;
        let command = explain_job(&meta, body, until, self.cx.clock.now_ms());
        let explanation = self.judge_url(&meta, &command, resolve_names, until).await;
        explanation
            .map(|explanation| self.explain_reply(&meta, explanation))
            .map_err(|fault| with_trace(fault, &meta))
    }

    fn sink(&self, meta: &Meta, sink: v1::Sink, until: Deadline) -> StagedFile {
        self.staging.file(meta, until, sink == v1::Sink::ClaimOnly)
    }

    /// Waits for the audit event, but not longer than the caller waits for the reply.
    async fn audit(&self, attempt: AuditedFetch, until: Deadline) -> bool {
        let remaining_time = until.remaining(self.cx.clock.now_ms());
        attempt
            .finish(PUBLISH_TIMEOUT.min(remaining_time), self.audit_required)
            .await
    }
}

/// The cache of responses; `None` when it is off.
fn cache_of(settings: Option<CacheSettings>, cx: &ServiceContext) -> Option<Arc<CacheStore>> {
    let store = CacheStore::new(&cx.bus, cx.clock.clone(), settings?);
    Some(Arc::new(store))
}

/// The metrics, with every counter at zero and the operator's policy.
fn start_metrics(
    compiled: &CompiledConfig,
    limits: &FetchAdmission,
    cx: &ServiceContext,
) -> EgressMetrics {
    let metrics = EgressMetrics::new(&cx.meter);
    metrics.start_at_zero();
    EgressMetrics::observe(&cx.meter, limits);
    metrics.policy(
        &dray_guard::policy::policy_digest(&compiled.admin, &AppPolicy::default()),
        compiled.admin.host_allowlist.is_some(),
        !compiled.admin.private_ranges.is_empty(),
    );
    metrics
}

/// The auditor of the service.
fn auditor_of(
    config: &Config,
    cx: &ServiceContext,
    metrics: &EgressMetrics,
    queues: Vec<AuditQueue>,
) -> Auditor {
    Auditor::new(
        cx.bus.clone(),
        cx.clock.clone(),
        metrics.clone(),
        cx.tasks.clone(),
        audit_key(config),
        config.private_cidrs.clone(),
        queues,
    )
}

/// Opens the destinations of audit events in addition to log and stream.
fn open_audit_queues(
    compiled: &CompiledConfig,
    metrics: &EgressMetrics,
) -> Result<Vec<AuditQueue>, StartError> {
    let mut queues = Vec::new();
    if let Some(settings) = &compiled.audit_file {
        let opened = AuditQueue::to_file(settings, metrics.clone()).map_err(|error| {
            StartError::with_source("egress-fetcher.audit_file.path cannot be written", error)
        })?;
        queues.push(opened);
    }
    if let Some(settings) = &compiled.audit_syslog {
        let opened = AuditQueue::to_syslog(settings, metrics.clone()).map_err(|error| {
            StartError::with_source("egress-fetcher.audit_syslog cannot be started", error)
        })?;
        queues.push(opened);
    }
    Ok(queues)
}

/// The credentials of the configuration, which was checked.
pub(crate) fn credentials_of(config: &Config) -> CredentialStore {
    let credentials = config.credentials.iter();
    CredentialStore::new(
        credentials
            .filter_map(CredentialConfig::credential)
            .collect(),
    )
}

/// Name of the proxy among the addresses on which services listen.
pub const PROXY_ADDRESS_NAME: &str = "egress-proxy";

/// Binds the proxy and begins to accept.
async fn start_proxy(
    settings: ProxySettings,
    fetcher: &Arc<Fetcher>,
    auditor: &Auditor,
    cx: &ServiceContext,
    audit_required: bool,
) -> Result<RunningProxy, StartError> {
    let listen = settings.listen;
    let metrics = ProxyMetrics::new(&cx.meter);
    metrics.start_at_zero();
    let authority = match &settings.interception {
        Some(interception) => {
            Some(open_authority(interception, &metrics, cx.clock.now_ms() / 1000).await?)
        }
        None => None,
    };
    let client_tls = match &settings.tls {
        Some(tls) => Some(open_client_tls(tls, &metrics, cx).await?),
        None => None,
    };
    let proxy = ForwardProxy::new(
        settings,
        Arc::clone(fetcher),
        auditor.clone(),
        metrics,
        cx.clock.clone(),
        audit_required,
    )
    .with_authority(authority)
    .with_client_tls(client_tls);
    ProxyMetrics::observe(&cx.meter, proxy.admission());
    let running = RunningProxy::start(proxy).map_err(|error| {
        StartError::with_source(format!("the proxy could not listen on {listen}"), error)
    })?;
    tracing::info!(address = %running.address(), "the forward proxy listens");
    cx.listen_addresses
        .open(PROXY_ADDRESS_NAME, running.address());
    Ok(running)
}

/// Reads the files for TLS with clients of the proxy and begins to watch them.
async fn open_client_tls(
    settings: &ClientTlsSettings,
    metrics: &ProxyMetrics,
    cx: &ServiceContext,
) -> Result<ClientTls, StartError> {
    let watcher = ClientTlsWatcher::open(settings.clone(), metrics.clone()).await;
    let watcher = watcher.map_err(|error| {
        StartError::with_source("egress-fetcher.proxy.tls cannot be used", error)
    })?;
    let tls = watcher.tls().clone();
    cx.tasks.spawn(watcher.watch(cx.stop.clone()));
    Ok(tls)
}

/// Reads the authority for intercepted tunnels, and shows when it expires: clients refuse an expired one.
async fn open_authority(
    settings: &InterceptionSettings,
    metrics: &ProxyMetrics,
    now_s: u64,
) -> Result<Arc<InterceptionAuthority>, StartError> {
    let failed = |error: Box<dyn std::error::Error + Send + Sync>| {
        let field = "egress-fetcher.proxy.interception cannot be used";
        StartError::with_source(field, std::io::Error::other(error))
    };
    let certificates = tokio::fs::read_to_string(&settings.certificate).await;
    let certificates = certificates.map_err(|error| failed(error.into()))?;
    let authority = InterceptionAuthority::new(&certificates, settings.key.expose(), now_s)
        .map_err(|error| failed(error.into()))?;
    if let Some(expires_s) = authority.expires_s() {
        metrics.authority_expires(expires_s);
        if expires_s <= now_s {
            tracing::error!("the authority for intercepted tunnels has expired: clients refuse it");
        }
    }
    Ok(Arc::new(authority))
}

fn with_trace(fault: Fault, meta: &Meta) -> Fault {
    fault.trace_id(meta.trace.trace_id().unwrap_or_default())
}

pub(crate) fn compile_config(config: &Config) -> Result<CompiledConfig, StartError> {
    config.compile().map_err(|problems| {
        let problems: Vec<String> = problems
            .iter()
            .map(|problem| format!("`{}` {}", problem.field, problem.message))
            .collect();
        StartError::new(format!("config_invalid: {}", problems.join("; ")))
    })
}

/// Logs the effective configuration without secrets, and warns about settings that are legal but unusual.
fn log_effective_config(config: &Config, compiled: &CompiledConfig) {
    let effective = serde_json::to_string(config).unwrap_or_default();
    tracing::info!(config = effective, "egress configuration");
    for warning in compiled.admin.warnings() {
        tracing::warn!(warning, "egress configuration");
    }
    if config.enabled && compiled.admin.host_allowlist.is_none() {
        tracing::warn!(
            "egress configuration: no host allowlist is set, every public host may be fetched"
        );
    }
    for range in &config.private_cidrs {
        tracing::warn!(range, "egress configuration: a private range is open");
    }
}

fn audit_key(config: &Config) -> [u8; 32] {
    match &config.audit_key {
        Some(key) if !key.is_empty() => {
            // A text of any length becomes a key of 32 bytes.
            *dray_types::Sha256Digest::of(key.expose().as_bytes()).as_bytes()
        }
        _ => {
            // Two version 4 UUIDs have 244 random bits.
            let (one, two) = (uuid::Uuid::new_v4(), uuid::Uuid::new_v4());
            *dray_types::Sha256Digest::of(&[one.into_bytes(), two.into_bytes()].concat()).as_bytes()
        }
    }
}

/// Fault for a stored file without an audit record: where audit is required, the file counts as not stored.
fn unaudited_fault(command: &fetch::FetchJob) -> Fault {
    let shown_url = dray_guard::ShownUrl::from_text(&command.url);
    dray_guard::Code::SinkFailed.fault(&shown_url, dray_guard::ShownHost::RedirectTarget)
}
