//! One fetch from command to file: policy, redirect chain, and for every hop resolve, judge, dial and request
//! (egress-security 3.1, 12).
//!
//! [`Fetcher::fetch`] takes a request and a [`ByteSink`] and does not use the bus, so the service, the command line and
//! the fuzz targets share it. It spawns no task, so dropping the future ends the fetch immediately, with its connection
//! and its partial file.

use std::io;
use std::net::IpAddr;
use std::panic::AssertUnwindSafe;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use dray_guard::{
    AdminPolicy, CanonicalUrl, Chain, Code, EffectivePolicy, Host, HostGrant, Judge,
    PreparedPolicy, RefusedUrl, RuleSet, ShownHost, ShownUrl,
};
use dray_types::{Clock, ErrorChain, whole_millis};
use futures_util::FutureExt as _;
use tokio::time::Instant;

use crate::budget::TimeBudget;
use crate::credential::CredentialStore;
use crate::error::{FetchError, FetchPhase};
use crate::limits::{FetchAdmission, QuotaTable};
use crate::record::{FetchEnd, FetchRecord, RequestedOrigin};
use crate::sink::ByteSink;
use crate::tls::TlsClient;
use crate::wire::WireBudget;

pub(crate) mod approval;
mod attempt;
mod breaker;
mod cached;
mod connection;
mod explain;
mod hop;
mod pin;
mod redirect;
mod retry;
mod robots;
mod rules;
mod settings;
mod terms;

use approval::AskScope;
use retry::{PartialBody, RetryState};
use robots::RobotsCache;
use rules::{quota_failure, refill_time};

pub use approval::{
    HeldAnswer, HostAnswer, HostApprovals, HostQuestion, InvalidQuestionId, QuestionId,
};
pub use cached::{CacheLookup, CachedFile, CachedResponse, ResponseCache};
pub use connection::OpenConnection;
pub use explain::PolicyExplanation;
pub use settings::FetchSettings;
pub use terms::{FetchFailure, FetchJob, FetchLimits, FetchedFile, MethodOverrides, NetworkAccess};

/// Longest time that removing a partial file may take after a failure.
const DISCARD_TIMEOUT: Duration = Duration::from_secs(5);

/// Reads the addresses that the interfaces of this machine have now.
type InterfaceAddresses = dyn Fn() -> io::Result<Vec<IpAddr>> + Send + Sync;

/// Runs fetches. It owns what they share: policy, judge, network, TLS and slots. One per process.
pub struct Fetcher {
    settings: RwLock<Arc<FetchSettings>>,
    policy: PreparedPolicy,
    rules: RwLock<Option<Arc<RuleSet>>>,
    quotas: QuotaTable,
    approvals: Option<Arc<dyn HostApprovals>>,
    cache: Option<Arc<dyn ResponseCache>>,
    judge: RwLock<Arc<Judge>>,
    network: NetworkAccess,
    tls: TlsClient,
    limits: FetchAdmission,
    interfaces: Option<Box<InterfaceAddresses>>,
    robots: RobotsCache,
}

impl std::fmt::Debug for Fetcher {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Fetcher")
            .field("settings", &self.settings())
            .field("policy", &self.policy)
            .finish_non_exhaustive()
    }
}

/// State of one fetch over all its attempts and hops.
struct FetchContext<'a> {
    request: &'a FetchJob,
    settings: Arc<FetchSettings>,
    limit: u64,
    budget: TimeBudget,
    wire: WireBudget,
    turn: u64,
    /// Whether a server required HTTP/1.1; further attempts then offer no other version.
    http11_only: Arc<AtomicBool>,
    /// Grants the slots of the fetch; connections of the proxy have slots of their own.
    admission: &'a FetchAdmission,
}

impl FetchContext<'_> {
    /// The context of a request for a robots.txt: the same quotas and slots, a byte budget of its own, and at most
    /// `max_time` of the time that is left.
    fn for_robots(&self, max_bytes: u64, max_time: Duration) -> Self {
        Self {
            request: self.request,
            settings: Arc::clone(&self.settings),
            limit: max_bytes,
            budget: TimeBudget::starting_now(max_time.min(self.budget.left())),
            wire: self.wire.with_same_quota(max_bytes),
            turn: self.turn,
            http11_only: Arc::clone(&self.http11_only),
            admission: self.admission,
        }
    }
}

impl Fetcher {
    /// A fetcher with this policy, over this network.
    pub fn new(
        limits_of_fetch: FetchLimits,
        admin: AdminPolicy,
        judge: Judge,
        network: NetworkAccess,
        tls: TlsClient,
        limits: FetchAdmission,
    ) -> Self {
        Self {
            settings: RwLock::new(Arc::new(FetchSettings {
                limits: limits_of_fetch,
                credentials: CredentialStore::default(),
            })),
            policy: PreparedPolicy::new(admin),
            rules: RwLock::new(None),
            quotas: QuotaTable::new(Clock::system(), 1),
            approvals: None,
            cache: None,
            judge: RwLock::new(Arc::new(judge)),
            network,
            tls,
            limits,
            interfaces: None,
            robots: RobotsCache::default(),
        }
    }

    /// Reads the addresses of this machine again for every hop, so that a new address is blocked immediately (8.4).
    #[must_use]
    pub fn with_interfaces(
        mut self,
        interfaces: impl Fn() -> io::Result<Vec<IpAddr>> + Send + Sync + 'static,
    ) -> Self {
        self.interfaces = Some(Box::new(interfaces));
        self
    }

    /// The slots that all fetches of this fetcher share.
    pub fn limits(&self) -> &FetchAdmission {
        &self.limits
    }

    /// The operator's policy, which every request can only narrow (I-5).
    pub fn admin(&self) -> &AdminPolicy {
        self.policy.admin()
    }

    /// The current judge, without reading the interfaces.
    pub fn judge(&self) -> Arc<Judge> {
        // A panic cannot leave an `Arc` half replaced.
        Arc::clone(&self.judge.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Replaces the judge; hops that were judged keep their result.
    pub fn set_judge(&self, judge: Judge) {
        *self.judge.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(judge);
    }

    /// The judge of this hop, with the addresses that this machine has now.
    fn current_judge(&self) -> Result<Arc<Judge>, FetchError> {
        let Some(interfaces) = &self.interfaces else {
            return Ok(self.judge());
        };
        let own = interfaces()
            .map_err(|error| FetchError::new(Code::Internal, FetchPhase::Policy).because(error))?;
        let judge = self.judge();
        if own == judge.config().own_addresses {
            return Ok(judge);
        }
        // The judge is kept for later hops too, so it is built again only when an address changed. It is built from the
        // stored one under the lock: another one, with more protected addresses, may have been set meanwhile.
        let mut stored = self.judge.write().unwrap_or_else(PoisonError::into_inner);
        *stored = Arc::new(stored.with_own_addresses(own));
        Ok(Arc::clone(&stored))
    }

    /// Fetches `request` into `sink`. On success the sink is finished, otherwise it is discarded. `record` is kept up
    /// to date throughout, even when the future is dropped before its end.
    ///
    /// # Errors
    ///
    /// Every refusal and failure, with the fault for the agent. A panic is one too: `internal`.
    pub async fn fetch<S: ByteSink>(
        &self,
        request: &FetchJob,
        sink: &mut S,
        record: &mut FetchRecord,
    ) -> Result<FetchedFile, FetchFailure> {
        let started = Instant::now();
        record.begin();
        // A response that makes the code panic must not stop the process (section 21). After a panic the sink is only
        // discarded.
        let fetching = AssertUnwindSafe(self.run(request, sink, record)).catch_unwind();
        let result = fetching
            .await
            .unwrap_or_else(|_| Err(FetchError::new(Code::Internal, FetchPhase::Body)));
        record.ended();
        match result {
            Ok(fetched) => {
                record.end = Some(FetchEnd::Stored);
                Ok(fetched)
            }
            Err(failure) => {
                // The sink is not awaited beyond the end of the fetch: a dropped sink cleans up by itself.
                let total = self.settings().limits.total(request);
                let end = (Instant::now() + DISCARD_TIMEOUT).min(started + total);
                if tokio::time::timeout_at(end, sink.discard()).await.is_err() {
                    tracing::info!("a partial file is removed in the background");
                }
                Err(record_failure(request, record, &failure))
            }
        }
    }

    /// Refuses `request` as `overloaded` without examining it.
    pub fn refuse(&self, request: &FetchJob, record: &mut FetchRecord) -> FetchFailure {
        record.begin();
        record.url = CanonicalUrl::parse(&request.url).ok();
        record.ended();
        record_failure(
            request,
            record,
            &FetchError::new(Code::Overloaded, FetchPhase::Policy),
        )
    }

    async fn run<S: ByteSink>(
        &self,
        request: &FetchJob,
        sink: &mut S,
        record: &mut FetchRecord,
    ) -> Result<FetchedFile, FetchError> {
        let (chain, mut context) = self
            .begin_approved(request, AskScope::FETCH, record)
            .await?;
        let quota = self.admit_quota(chain.policy(), record)?;
        context.wire = context.wire.with_quota(quota.clone());
        let fetched = self.attempts(&chain, &context, sink, record).await;
        fetched.map_err(|failure| quota_failure(failure, quota.as_ref(), record))
    }

    /// Judges everything that needs no network, step by step, and starts the clock of the request.
    fn begin<'a>(
        &'a self,
        request: &'a FetchJob,
        grant: Option<HostGrant>,
        record: &mut FetchRecord,
    ) -> Result<(Chain, FetchContext<'a>), FetchError> {
        let digest = self.policy.digest(&request.app_policy);
        record.policy_digest.clone_from(&digest);
        record.admin_enabled = self.admin().enabled;
        record.app_enabled = request.app_policy.enabled;
        let parsed = CanonicalUrl::parse(&request.url);
        record.url = parsed.as_ref().ok().cloned();
        if record.url.is_none() {
            record.tried = Some(RequestedOrigin::from_text(&request.url));
        }
        // This check comes before anything that could reach the network (section 14).
        if request.remaining.is_zero() {
            return Err(FetchError::new(Code::DeadlineExpired, FetchPhase::Policy));
        }
        let policy = self
            .policy
            .apply(&request.app_policy, &digest, &mut record.steps)
            // P-4: an invalid pattern of the app refuses every fetch; it is not skipped.
            .map_err(|code| FetchError::new(code, FetchPhase::Policy))?;
        let policy = Arc::new(policy.with_rules(self.caller_rules(request, grant, record)));
        let started = Chain::of_parsed(parsed, Arc::clone(&policy), &mut record.steps);
        let chain = started.map_err(|refused| {
            let tried = RequestedOrigin::from_text(&request.url);
            record_refusal(record, &policy, &refused, tried)
        })?;
        record.note_decision(policy.decide(chain.current()));
        let settings = self.settings();
        let limit = settings.limits.size(request);
        let total = settings.limits.total(request);
        let context = FetchContext {
            request,
            settings,
            limit,
            // An absolute end, which no redirect or retry moves.
            budget: TimeBudget::starting_now(total),
            wire: WireBudget::for_body(limit),
            turn: self.limits.next_turn(),
            http11_only: Arc::new(AtomicBool::new(false)),
            admission: &self.limits,
        };
        Ok((chain, context))
    }

    /// Makes attempts until one succeeds or fails permanently. Between two attempts the fetch holds no slot and no
    /// connection.
    async fn attempts<S: ByteSink>(
        &self,
        chain: &Chain,
        context: &FetchContext<'_>,
        sink: &mut S,
        record: &mut FetchRecord,
    ) -> Result<FetchedFile, FetchError> {
        let (mut retries, mut partial) = (RetryState::default(), None);
        loop {
            // Each attempt begins at the URL of the command and is judged from there.
            let mut chain = chain.clone();
            let attempt = self.attempt(&mut chain, context, &mut partial, sink, record);
            let failure = match attempt.await {
                Ok(fetched) => return Ok(fetched),
                Err(failure) => failure,
            };
            let remaining = context.budget.left();
            let can_resume = partial.as_ref().is_some_and(PartialBody::can_resume);
            let (url, tenant) = (chain.current(), &context.request.tenant);
            let is_refused = self.has_open_breaker(url, tenant);
            let Some(delay) = retries
                .next(&failure, can_resume, remaining)
                .filter(|_| !is_refused)
            else {
                // The failure counts once for all attempts: the threshold of the circuit breaker counts fetches.
                self.count_target_failure(url, tenant, &failure);
                return Err(failure);
            };
            record.retry(failure.code);
            tracing::info!(
                code = %failure.code, phase = %failure.phase, delay_ms = whole_millis(delay),
                "retrying the fetch"
            );
            context
                .budget
                .within_total(tokio::time::sleep(delay))
                .await?;
        }
    }
}

/// Records a URL or redirect target that was refused without DNS. `tried` describes a target that cannot be read.
fn record_refusal(
    record: &mut FetchRecord,
    policy: &EffectivePolicy,
    refused: &RefusedUrl,
    tried: RequestedOrigin,
) -> FetchError {
    let phase = match refused.code {
        Code::InvalidUrl
        | Code::UnsupportedScheme
        | Code::UrlCredentials
        | Code::AmbiguousHost
        | Code::RedirectInvalid => FetchPhase::Url,
        _ => FetchPhase::Policy,
    };
    record.enter(refused.hop, refused.target.as_ref());
    if let (Some(target), Code::PolicyDenied | Code::ApprovalRequired) =
        (&refused.target, refused.code)
    {
        record.note_decision(policy.decide(target));
    }
    if refused.target.is_none() {
        record.hop().tried = Some(tried);
    }
    FetchError::new(refused.code, phase)
}

/// Records the failure, logs it with its cause, and builds the fault for the agent, which omits the cause (I-8).
fn record_failure(
    request: &FetchJob,
    record: &mut FetchRecord,
    failure: &FetchError,
) -> FetchFailure {
    let FetchError { code, phase, .. } = *failure;
    record.end = Some(FetchEnd::Failed { code, phase });
    if let Some(hop) = record.hops.last_mut() {
        hop.code = Some(code);
    }
    let hop = record.last_hop();
    let cause = std::error::Error::source(failure).map(|cause| ErrorChain(cause).to_string());
    tracing::info!(%code, %phase, hop, cause, lookup_only = record.lookup_only, "fetch denied");
    let host = match record.url.as_ref().map(CanonicalUrl::host) {
        Some(Host::Name(name)) => name.as_str().to_owned(),
        // A message holds no address (section 17).
        Some(Host::Ip(_)) | None => String::new(),
    };
    let shown_url = ShownUrl::from_text(&request.url);
    let mut fault = code.fault(&shown_url, ShownHost::of_hop(hop, &host));
    if let (Some(delay), Code::QuotaExceeded) = (failure.retry_after, code) {
        // The time is in the message, because every agent reads the message.
        fault.message = format!("{} {}", fault.message, refill_time(delay));
    }
    if let (Some(id), Code::ApprovalRequired) = (record.question, code) {
        fault.message = format!("{} Question {id} waits for an answer.", fault.message);
    }
    FetchFailure {
        code,
        phase,
        hop,
        fault: match failure.retry_after {
            Some(delay) => fault.retry_after(delay),
            None => fault,
        },
    }
}
