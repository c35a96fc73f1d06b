//! The resolver of the product: asks for A and AAAA itself, and has CNAME targets judged before it asks for them.
//!
//! Uses the UDP client and the messages of hickory and not its resolver: one question, one answer, without search list,
//! hosts file, cache, special names or CNAME following (D-1, D-7, section 22). Servers are asked concurrently when the
//! first one is slow (section 14), and one that does not respond at all comes last.

use std::collections::HashSet;
use std::net::IpAddr;
use std::pin::pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use dray_guard::judge::MAX_CNAMES;
use dray_guard::{CanonicalName, DnsAnswer, DnssecStatus, Judge};
use futures_util::future::BoxFuture;
use futures_util::stream::{FuturesUnordered, StreamExt as _};
use hickory_resolver::proto::op::{DnsResponse, ResponseCode};
use hickory_resolver::proto::rr::{Name, RData, RecordType};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep_until, timeout};

use super::health::PROBE_TIMEOUT;
use super::server::{AnsweredQuery, QueryFailure, ServerHandle, ask_one};
use super::timing::{QuestionObserver, QuestionTimer};
use super::{DnsError, NameServer, Resolver};

/// Time after which one more server is asked, concurrently with those that have not responded.
const HEDGE_DELAY: Duration = Duration::from_millis(400);
/// Like [`HEDGE_DELAY`], for a server whose responses can be forged on the path, beside one that is trusted: half of
/// the usual DNS phase, since a validation takes several round trips.
const UNTRUSTED_HEDGE_DELAY: Duration = Duration::from_millis(1500);
/// Time before the end of the DNS phase at which a family gives up, so that a family without a response cannot hide the
/// other one (D-3).
const MAX_MARGIN: Duration = Duration::from_millis(50);

/// Resolves with the servers that it was given, and no others: over UDP and TCP, TLS or HTTPS.
#[derive(Debug)]
pub struct HickoryResolver {
    servers: Vec<Arc<ServerHandle>>,
    /// Index of the server that is asked first: the last one that answered, if it may be the first.
    preferred: AtomicUsize,
    /// Probes under way, at most one for each server. They end with the resolver.
    probes: Mutex<JoinSet<()>>,
    /// Longest time for one family with its CNAME steps.
    family_timeout: Duration,
    /// `None` for a resolver whose times are not recorded.
    observer: Option<Arc<dyn QuestionObserver>>,
}

impl HickoryResolver {
    /// A resolver that asks these servers, at least one, and gives up shortly before `phase` is over.
    ///
    /// # Errors
    ///
    /// No server, or one that cannot be used as configured.
    pub fn new<S: Clone + Into<NameServer>>(
        servers: &[S],
        phase: Duration,
    ) -> Result<Self, DnsError> {
        Self::with_trust(servers, phase, None)
    }

    /// Like [`Self::new`], with further trust anchors (PEM text) for the certificates of encrypted servers.
    ///
    /// # Errors
    ///
    /// Those of [`Self::new`], and for a bundle without certificates.
    pub fn with_trust<S: Clone + Into<NameServer>>(
        servers: &[S],
        phase: Duration,
        bundle: Option<&str>,
    ) -> Result<Self, DnsError> {
        if servers.is_empty() {
            return Err(DnsError::Failure("no DNS server is configured".to_owned()));
        }
        let servers = servers
            .iter()
            .map(|server| ServerHandle::new(&server.clone().into(), bundle))
            .collect::<Result<Vec<_>, _>>()?;
        Ok(Self::over(servers, phase))
    }

    fn over(servers: Vec<ServerHandle>, phase: Duration) -> Self {
        let trusted = servers.iter().position(|server| server.is_trusted);
        Self {
            servers: servers.into_iter().map(Arc::new).collect(),
            preferred: AtomicUsize::new(trusted.unwrap_or_default()),
            probes: Mutex::default(),
            family_timeout: phase.saturating_sub(MAX_MARGIN.min(phase / 10)),
            observer: None,
        }
    }

    /// Reports to `observer` how long each server takes.
    #[must_use]
    pub fn with_observer(mut self, observer: Arc<dyn QuestionObserver>) -> Self {
        self.observer = Some(observer);
        self
    }

    /// A resolver that asks these plain servers. The flag of each says whether it is trusted, since all servers of
    /// tests are on loopback.
    #[cfg(test)]
    pub(super) fn over_plain(servers: &[(std::net::SocketAddr, bool)], phase: Duration) -> Self {
        let servers = servers
            .iter()
            .map(|(address, is_trusted)| ServerHandle::plain(*address, *is_trusted));
        Self::over(servers.collect(), phase)
    }

    /// Whether a server may be asked first. A trusted server is asked before those whose answers can be forged on the
    /// path, since it may validate.
    fn may_be_first(&self, index: usize) -> bool {
        self.is_trusted(index) || !self.servers.iter().any(|server| server.is_trusted)
    }

    fn is_trusted(&self, index: usize) -> bool {
        self.servers
            .get(index)
            .is_some_and(|server| server.is_trusted)
    }

    /// Asks for one family of addresses, following aliases as long as the judge allows it.
    async fn family(
        &self,
        name: &Name,
        kind: RecordType,
        judge: &Judge,
    ) -> Result<FamilyResult, DnsError> {
        let mut family = FamilyResult::default();
        let mut owner = name.clone();
        loop {
            let AnsweredQuery { response, dnssec } = self.ask(&owner, kind).await?;
            family.dnssec = [family.dnssec, Some(dnssec)].into_iter().flatten().min();
            let has_new_owner = family.follow(&response, &mut owner, judge);
            if family.is_stopped {
                return Ok(family);
            }
            family.addresses = owned_addresses(&response, &owner);
            // The code of an answer with aliases is that of the last name (RFC 6604, section 3).
            let is_nxdomain = response.response_code == ResponseCode::NXDomain;
            if !has_new_owner || is_nxdomain || !family.addresses.is_empty() {
                family.is_missing |= is_nxdomain && family.addresses.is_empty();
                return Ok(family);
            }
        }
    }

    /// The indexes of the servers in the order in which they are asked, beginning with the preferred server. Trusted
    /// servers come before others, and silent servers after all that respond.
    pub(super) fn order(&self) -> Vec<usize> {
        // The value is only a hint for the order of the servers, so no other data depends on it.
        let first = self.preferred.load(Ordering::Relaxed);
        let mut order: Vec<_> = (first..self.servers.len()).chain(0..first).collect();
        // Each key is computed once, because a server may recover meanwhile.
        order.sort_by_cached_key(|index| {
            let server = self.servers.get(*index);
            server.map(|server| (server.health.is_silent(), !server.is_trusted))
        });
        order
    }

    /// Asks one question: first the preferred server, then the next one after [`HEDGE_DELAY`] or as soon as one has
    /// failed, and so on, concurrently. Those that are not trusted come last, after [`UNTRUSTED_HEDGE_DELAY`]; only
    /// silent servers come after them. The first valid response of any server counts. It has no deadline of its own;
    /// the caller sets one.
    async fn ask(&self, name: &Name, kind: RecordType) -> Result<AnsweredQuery, DnsError> {
        let order = self.order();
        // A silent server is asked late, so without a probe its recovery would remain unknown.
        for server in self
            .servers
            .iter()
            .filter(|server| server.health.is_silent())
        {
            self.begin_probe(server);
        }
        let in_turn = order
            .iter()
            .filter_map(|index| Some((*index, self.servers.get(*index)?)));
        let trusted_count = in_turn
            .clone()
            .take_while(|(_, server)| server.is_trusted && !server.health.is_silent())
            .count();
        let mut trust = TrustedServers {
            waiting: trusted_count,
            running: 0,
        };
        let mut waiting = in_turn.enumerate();
        let mut remaining = self.servers.len();
        let mut queries = FuturesUnordered::new();
        let mut failure = None;
        let mut next_at = Instant::now();
        loop {
            tokio::select! {
                biased;
                // The queries are polled first (`biased`): with an answer no further server needs to be asked.
                Some((turn, index, result)) = queries.next(), if !queries.is_empty() => match result {
                    Ok(answer) => {
                        if self.may_be_first(index) {
                            self.preferred.store(index, Ordering::Relaxed);
                        }
                        return Ok(answer);
                    }
                    // The next server might not validate, and would return the answer that this one proved wrong.
                    Err(QueryFailure::Bogus) => {
                        let bogus = "the answer does not pass DNSSEC validation";
                        return Err(DnsError::Failure(bogus.to_owned()));
                    }
                    Err(QueryFailure::OfServer(error)) => {
                        failure.get_or_insert(error);
                        // Trusted servers that respond have the first turns.
                        trust.note_failure(turn < trusted_count);
                        // After a failure the next server is asked without a wait.
                        if !trust.must_await_trusted() {
                            next_at = Instant::now();
                        }
                    }
                },
                () = sleep_until(next_at), if remaining > 0 => {
                    remaining -= 1;
                    queries.extend(waiting.next().map(async |(turn, (index, server))| {
                        (turn, index, self.ask_server(server, name, kind).await)
                    }));
                    next_at = Instant::now() + trust.begin_next();
                }
                else => return Err(failure.unwrap_or(DnsError::Timeout)),
            }
        }
    }

    /// Asks one server one question, and finds out whether a server that is slow responds at all.
    async fn ask_server(
        &self,
        server: &Arc<ServerHandle>,
        name: &Name,
        kind: RecordType,
    ) -> Result<AnsweredQuery, QueryFailure> {
        let mut timer = QuestionTimer::begin(self.observer.as_ref(), &server.label);
        let mut asking = pin!(ask_one(server, name, kind));
        let result = if let Ok(result) = timeout(HEDGE_DELAY, asking.as_mut()).await {
            result
        } else {
            self.begin_probe(server);
            asking.await
        };
        server.log_change(server.health.note_response());
        if let Some(timer) = &mut timer {
            timer.note(result.is_ok());
        }
        result
    }

    /// Sends a probe, unless one is under way or was sent a short time ago.
    fn begin_probe(&self, server: &Arc<ServerHandle>) {
        if !server.health.begin_probe() {
            return;
        }
        let mut probes = self.probes.lock().unwrap_or_else(PoisonError::into_inner);
        while probes.try_join_next().is_some() {}
        let server = Arc::clone(server);
        // The probe runs in a separate task: another server may answer the question before the silent server responds.
        probes.spawn(async move {
            // The servers of the root are in the cache of every resolver (RFC 8109), and no caller can slow them down.
            let root = Name::root();
            let probe = ask_one(&server, &root, RecordType::NS);
            // An error is a response of the server too, or a failure without a wait.
            let has_responded = timeout(PROBE_TIMEOUT, probe).await.is_ok();
            server.log_change(server.health.end_probe(has_responded));
        });
    }
}

/// How many trusted servers that are not silent wait for their turn, and how many have not responded to a question yet.
#[derive(Debug)]
struct TrustedServers {
    waiting: usize,
    running: usize,
}

impl TrustedServers {
    /// Whether all trusted servers were asked and one may still answer: an untrusted server must not come before that
    /// answer.
    const fn must_await_trusted(&self) -> bool {
        self.waiting == 0 && self.running > 0
    }

    /// Counts the next server as asked. Returns the time after which one more is asked.
    const fn begin_next(&mut self) -> Duration {
        if self.waiting == 0 {
            return HEDGE_DELAY;
        }
        self.waiting -= 1;
        self.running += 1;
        if self.waiting == 0 {
            UNTRUSTED_HEDGE_DELAY
        } else {
            HEDGE_DELAY
        }
    }

    const fn note_failure(&mut self, was_trusted: bool) {
        if was_trusted {
            self.running = self.running.saturating_sub(1);
        }
    }
}

/// Addresses and aliases in the responses for one family.
#[derive(Debug, Default)]
struct FamilyResult {
    cnames: Vec<String>,
    addresses: Vec<IpAddr>,
    /// The least status of the responses that were used; `None` before the first one.
    dnssec: Option<DnssecStatus>,
    /// Whether the last name of the chain does not exist at all.
    is_missing: bool,
    /// Whether the chain stopped at an alias that the judge refuses, or at one alias too many.
    is_stopped: bool,
}

impl FamilyResult {
    /// Walks the aliases that the answer holds, from `owner` on. Returns whether there is a new owner to ask for:
    /// never one that the judge refuses, and never beyond a chain that is too long anyway (D-8).
    fn follow(&mut self, response: &DnsResponse, owner: &mut Name, judge: &Judge) -> bool {
        let mut has_new_owner = false;
        // A loop of aliases ends at the limit of the chain.
        while let Some(target) = cname_target(response, owner) {
            let text = target.to_ascii();
            let refused = judge.check_cname(&text).is_err();
            // A refused target stays in the list: the judge refuses the whole answer because of it, and the audit event
            // shows it.
            self.cnames.push(text);
            if refused || self.cnames.len() > MAX_CNAMES {
                self.is_stopped = true;
                return false;
            }
            *owner = target;
            has_new_owner = true;
        }
        has_new_owner
    }
}

fn cname_target(response: &DnsResponse, owner: &Name) -> Option<Name> {
    response
        .answers
        .iter()
        .find_map(|record| match &record.data {
            RData::CNAME(target) if record.name == *owner => Some(target.0.clone()),
            _ => None,
        })
}

/// Returns the addresses of `owner`, each once; addresses of other names were not requested (D-10).
fn owned_addresses(response: &DnsResponse, owner: &Name) -> Vec<IpAddr> {
    let mut seen = HashSet::new();
    response
        .answers
        .iter()
        .filter(|record| record.name == *owner)
        .filter_map(|record| record.data.ip_addr())
        .filter(|address| seen.insert(*address))
        .collect()
}

impl Resolver for HickoryResolver {
    fn lookup<'a>(
        &'a self,
        name: &'a CanonicalName,
        judge: &'a Judge,
    ) -> BoxFuture<'a, Result<DnsAnswer, DnsError>> {
        Box::pin(async move {
            // `from_ascii` takes names with an underscore (section 22); the root dot rules out search lists (D-1).
            let fqdn = Name::from_ascii(name.fqdn())
                .map_err(|error| DnsError::Failure(error.to_string()))?;
            let family = async |kind| {
                let response =
                    tokio::time::timeout(self.family_timeout, self.family(&fqdn, kind, judge))
                        .await;
                response.unwrap_or(Err(DnsError::Timeout))
            };
            let (v4, v6) = tokio::join!(family(RecordType::A), family(RecordType::AAAA));
            combine_families(name, v4, v6)
        })
    }
}

/// Applies D-3: one family is enough; without any address the more certain failure is reported.
fn combine_families(
    name: &CanonicalName,
    v4: Result<FamilyResult, DnsError>,
    v6: Result<FamilyResult, DnsError>,
) -> Result<DnsAnswer, DnsError> {
    let mut answer = DnsAnswer {
        name: name.clone(),
        cnames: Vec::new(),
        addresses: Vec::new(),
        dnssec: DnssecStatus::NotKnown,
    };
    let mut status = None;
    let (mut is_missing, mut is_stopped, mut failures) = (false, false, Vec::new());
    let mut longest_chain = 0;
    let mut families = [v4, v6];
    // The chain that the judge must refuse comes first.
    families.sort_by_key(|family| !family.as_ref().is_ok_and(|family| family.is_stopped));
    for family in families {
        match family {
            Ok(family) => {
                longest_chain = longest_chain.max(family.cnames.len());
                is_missing |= family.is_missing;
                is_stopped |= family.is_stopped;
                answer.addresses.extend(family.addresses);
                // A denial counts too: otherwise a forged denial of AAAA would not lower the status of the answer.
                status = [status, family.dnssec].into_iter().flatten().min();
                for target in family.cnames {
                    if !answer.cnames.contains(&target) {
                        answer.cnames.push(target);
                    }
                }
            }
            Err(DnsError::NotFound) => is_missing = true,
            Err(failure) => failures.push(failure),
        }
    }
    answer.dnssec = status.unwrap_or_default();
    // D-8 counts the chain of one family, and every alias was checked when it was followed.
    if longest_chain <= MAX_CNAMES {
        answer.cnames.truncate(MAX_CNAMES);
    }
    // The judge refuses a bad alias regardless of its target, so it must see it.
    if !answer.addresses.is_empty() || is_stopped {
        return Ok(answer);
    }
    // NXDOMAIN holds for all types of a name, so it outweighs a failure of the other family.
    let failure = if is_missing {
        None
    } else {
        failures.into_iter().next()
    };
    Err(failure.unwrap_or(DnsError::NotFound))
}
