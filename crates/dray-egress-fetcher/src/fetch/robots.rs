//! Requests the robots.txt of a host before a file is fetched from it (RFC 9309), where the operator wants that.
//!
//! The request has the same steps as every other: the name is resolved and its addresses are judged, every redirect is
//! judged, and bytes count against the quotas. The deadline of the fetch holds, and a shorter one of its own. The file
//! is cached in memory for one tenant, so that no tenant learns what another one fetched.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use dray_guard::robots::{MAX_ROBOTS_BYTES, RobotsFile, RobotsMode, whole_lines};
use dray_guard::ruleset::ObservedPart;
use dray_guard::{
    CallerRules, CanonicalUrl, Chain, Code, EffectivePolicy, RequestView, RuleDecision, RuleName,
};
use http::StatusCode;
use tokio::time::Instant;

use super::breaker::is_upstream_failure;
use super::hop::{RequestExtra, TimedHead};
use super::{FetchContext, Fetcher, record_refusal};
use crate::body::{BodyCounts, BodyLimits, BodyTransfer};
use crate::error::{FetchError, FetchPhase};
use crate::head::{BodyPlan, HeadDecision, judge_head};
use crate::hop::WireBody;
use crate::record::{FetchRecord, HopRecord, RequestedOrigin, RobotsOutcome, RobotsRecord};
use crate::sink::HashingSink;

mod flight;

use flight::{FlightLeader, FlightRole, FlightTable};

/// How long a file, or its absence, is cached (RFC 9309, section 2.4).
const MAX_AGE: Duration = Duration::from_hours(24);
/// How long a failure to read a file is cached.
const UNREACHABLE_AGE: Duration = Duration::from_mins(1);
/// Redirects that are followed to the file; with more, the file counts as absent (RFC 9309, section 2.3.1.2). If the
/// operator's limit is lower and exceeded, the file counts as unreachable.
const MAX_REDIRECTS: u32 = 5;
/// Most bytes that are received of a file: the bytes that are parsed, and the rest of the last chunk.
const MAX_RECEIVED_BYTES: u64 = MAX_ROBOTS_BYTES as u64 + 64 * 1024;
/// Longest time for one file, redirects included: a slow server must not use up the time of the fetch.
const MAX_REQUEST_TIME: Duration = Duration::from_secs(10);
/// Longest time for which a fetch waits for requests of others: two of them, since the first one may prove nothing.
const MAX_FOLLOW_TIME: Duration = Duration::from_secs(20);
/// Most hosts whose files are stored, over all tenants.
const MAX_HOSTS: usize = 1024;
/// Most work of one decision: bytes of the rules times bytes of the path. The largest file with a path of 500 bytes is
/// within it.
const MAX_DECISION_WORK: usize = 1 << 30;
/// Most bytes of all stored files together.
const MAX_STORED_BYTES: usize = 16 * 1024 * 1024;

/// The robots.txt of a host, or why there is none.
#[derive(Debug)]
enum RobotsSource {
    /// The rules for this product.
    File(RobotsFile),
    /// The server has no file, so everything is allowed (RFC 9309, section 2.3.1.3).
    Absent,
    /// The file could not be read, so nothing is allowed (RFC 9309, section 2.3.1.4).
    Unreachable,
}

impl RobotsSource {
    /// The line that refuses a URL, if one does; and the line that decided. Line 0 stands for a file that could not be
    /// read.
    fn decide(&self, url: &CanonicalUrl) -> (Option<u32>, u32) {
        match self {
            // Server and agent make the work together, and neither may keep others waiting (RFC 9309, section 3).
            Self::File(file) if !is_decidable(file.size(), url) => (Some(0), 0),
            Self::File(file) => {
                let decision = file.decide(url.path_and_query());
                (decision.refused_by, decision.line.unwrap_or_default())
            }
            Self::Absent => (None, 0),
            Self::Unreachable => (Some(0), 0),
        }
    }

    /// Bytes that the parsed file occupies.
    fn size(&self) -> usize {
        match self {
            Self::File(file) => file.size(),
            Self::Absent | Self::Unreachable => 0,
        }
    }
}

/// The files of hosts, for each tenant.
#[derive(Debug, Default)]
pub(super) struct RobotsCache {
    entries: Mutex<HashMap<RobotsKey, RobotsEntry>>,
    flights: FlightTable,
}

/// Tenant, scheme, host and port.
type RobotsKey = (String, bool, String, u16);
/// App and file. The request of another app may wait for a slot of that app.
type FlightKey = (String, RobotsKey);

#[derive(Debug)]
struct RobotsEntry {
    source: Arc<RobotsSource>,
    expires: Instant,
}

impl RobotsCache {
    fn find(&self, key: &RobotsKey) -> Option<Arc<RobotsSource>> {
        let entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        let entry = entries.get(key)?;
        (entry.expires > Instant::now()).then(|| Arc::clone(&entry.source))
    }

    fn keep(&self, key: RobotsKey, source: &Arc<RobotsSource>) {
        let now = Instant::now();
        let age = match **source {
            RobotsSource::Unreachable => UNREACHABLE_AGE,
            RobotsSource::File(_) | RobotsSource::Absent => MAX_AGE,
        };
        let entry = RobotsEntry {
            source: Arc::clone(source),
            expires: now + age,
        };
        let mut entries = self.entries.lock().unwrap_or_else(PoisonError::into_inner);
        entries.insert(key, entry);
        let stored_bytes = |entries: &HashMap<_, RobotsEntry>| {
            let sizes = entries.values().map(|entry| entry.source.size());
            sizes.sum::<usize>()
        };
        if entries.len() <= MAX_HOSTS && stored_bytes(&entries) <= MAX_STORED_BYTES {
            return;
        }
        entries.retain(|_, entry| entry.expires > now);
        // Each iteration removes an entry, so the loop ends.
        while entries.len() > MAX_HOSTS || stored_bytes(&entries) > MAX_STORED_BYTES {
            let oldest = entries.iter().min_by_key(|(_, entry)| entry.expires);
            let Some(oldest) = oldest.map(|(key, _)| key.clone()) else {
                return;
            };
            entries.remove(&oldest);
        }
    }
}

impl Fetcher {
    /// Checks whether the robots.txt of the host lets this product request the chain's current URL, where the operator
    /// wants that check. `decision` is that of the policy files about the URL.
    ///
    /// # Errors
    ///
    /// `robots_denied`, and failures of this service itself.
    pub(super) async fn judge_robots(
        &self,
        chain: &Chain,
        decision: Option<&RuleDecision>,
        context: &FetchContext<'_>,
        record: &mut FetchRecord,
    ) -> Result<(), FetchError> {
        record.robots = None;
        let rule_mode = decision.and_then(RuleDecision::robots);
        let mode = rule_mode.unwrap_or(context.settings.limits.robots);
        if mode == RobotsMode::Ignore {
            return Ok(());
        }
        let url = chain.current();
        let source = match self.robots_source(chain, context, record).await {
            // In this mode the robots.txt must not make a fetch fail, for example by a wait for a slot.
            Err(failure) if mode == RobotsMode::Report && !context.budget.left().is_zero() => {
                note_unreadable(&failure);
                Arc::new(RobotsSource::Unreachable)
            }
            result => result?,
        };
        let (refused_by, line) = source.decide(url);
        let outcome = match (refused_by, mode) {
            (None, _) => RobotsOutcome::Allowed,
            (Some(_), RobotsMode::Obey) => RobotsOutcome::Denied,
            (Some(_), RobotsMode::Report | RobotsMode::Ignore) => RobotsOutcome::Reported,
        };
        record.robots = Some(RobotsRecord { outcome, line });
        match (outcome, refused_by) {
            (RobotsOutcome::Denied, Some(line)) => Err(FetchError::new(
                Code::RobotsDenied(line),
                FetchPhase::Policy,
            )),
            (RobotsOutcome::Reported, Some(line)) => {
                let place = match line {
                    0 => "could not be read".to_owned(),
                    line => format!("line {line}"),
                };
                let name = "robots.txt".to_owned();
                let reported = Arc::new(RuleName { name, place });
                record.robots_reported.get_or_insert(reported);
                Ok(())
            }
            _ => Ok(()),
        }
    }

    /// The cached file of the host of the chain's current URL, or a new one.
    async fn robots_source(
        &self,
        chain: &Chain,
        context: &FetchContext<'_>,
        record: &mut FetchRecord,
    ) -> Result<Arc<RobotsSource>, FetchError> {
        let url = chain.current();
        let tenant = context.request.caller.tenant.clone();
        let key = (tenant, url.https(), url.host().to_string(), url.port());
        if let Some(source) = self.robots.find(&key) {
            return Ok(source);
        }
        // The guard is held until the file is cached.
        let _leader = self.lead_robots(&key, context).await?;
        // Another request may have ended with a file meanwhile.
        if let Some(source) = self.robots.find(&key) {
            return Ok(source);
        }
        let robots_context = context.for_robots(MAX_RECEIVED_BYTES, MAX_REQUEST_TIME);
        let mut requested = self.request_robots(chain, &robots_context, record).await;
        note_failure(&requested, record);
        // A connection that ended without a response proves nothing about the file, which is requested once more.
        if let Err(failure) = &requested
            && failure.code == Code::ConnectionClosed
        {
            requested = self.request_robots(chain, &robots_context, record).await;
            note_failure(&requested, record);
        }
        // A refused redirect is not cached: the policy of one app refuses a redirect that the policy of another app of
        // the tenant may allow. The limit of redirects is the operator's and the same for all apps.
        let is_refused = matches!(
            &requested,
            Err(failure) if failure.phase == FetchPhase::Policy && failure.code != Code::RedirectLimit
        );
        let source = match requested {
            Ok(source) => source,
            // The server did not fail: the fetch itself ended, or this service cannot fetch anything now.
            Err(failure) if context.budget.left().is_zero() || !is_of_server(&failure) => {
                return Err(failure);
            }
            Err(failure) if has_waited_for_slot(&failure, record) => return Err(no_slot()),
            Err(failure) => {
                note_unreadable(&failure);
                RobotsSource::Unreachable
            }
        };
        let source = Arc::new(source);
        if !is_refused {
            self.robots.keep(key, &source);
        }
        Ok(source)
    }

    /// Waits until this fetch may request the file, or until the file is cached. When a request ends without a file,
    /// one of the fetches that waited for it makes the next one.
    async fn lead_robots(
        &self,
        key: &RobotsKey,
        context: &FetchContext<'_>,
    ) -> Result<Option<FlightLeader<'_>>, FetchError> {
        let flight = (context.request.app.clone(), key.clone());
        let follow_end = Instant::now() + MAX_FOLLOW_TIME;
        loop {
            let mut ended = match self.robots.flights.join(&flight) {
                FlightRole::Lead(leader) => return Ok(Some(leader)),
                FlightRole::Follow(ended) => ended,
            };
            let waiting = ended.changed();
            let waited = context
                .budget
                .until(FetchPhase::Policy, follow_end, waiting);
            match waited.await {
                // The other request has ended, which closes the channel.
                Ok(_) => {}
                Err(failure) if failure.phase == FetchPhase::Policy => return Err(no_slot()),
                Err(failure) => return Err(failure),
            }
            if self.robots.find(key).is_some() {
                return Ok(None);
            }
        }
    }

    /// Requests the file, redirects included.
    async fn request_robots(
        &self,
        chain: &Chain,
        context: &FetchContext<'_>,
        record: &mut FetchRecord,
    ) -> Result<RobotsSource, FetchError> {
        let refused = |code| FetchError::new(code, FetchPhase::Policy);
        let rules = Arc::clone(chain.policy());
        let mut chain = chain.for_robots().map_err(refused)?;
        let start = chain.current().clone();
        loop {
            let url = chain.current().clone();
            record.enter(chain.hop(), Some(&url));
            record.hop().is_robots = true;
            let requesting =
                self.request_head(&mut chain, &url, context, RequestExtra::ROBOTS, record);
            let (TimedHead { parts, .. }, wire, slots) = requesting.await?;
            record.note_head(&parts);
            // The declared length is not limited: of a file that is too long, the part up to the limit is read.
            match judge_head(&parts, u64::MAX) {
                Ok(HeadDecision::Body(plan)) => {
                    let text = self.receive_robots(wire, &plan, context, record).await?;
                    drop(slots);
                    let token = context.settings.limits.robots_token();
                    return Ok(RobotsSource::File(RobotsFile::parse(&text, token)));
                }
                Ok(HeadDecision::Redirect(locations)) => {
                    drop((wire, slots));
                    if chain.followed() >= MAX_REDIRECTS {
                        return Ok(RobotsSource::Absent);
                    }
                    let status = parts.status.as_u16();
                    follow_robots(
                        &mut chain,
                        &rules,
                        &start,
                        (status, locations.as_slice()),
                        record,
                    )?;
                }
                Err(Code::HttpStatus(status)) if is_absent(status) => {
                    return Ok(RobotsSource::Absent);
                }
                Err(code) => return Err(FetchError::new(code, FetchPhase::Head)),
            }
        }
    }

    /// Receives the file. One that is too long is cut after its last whole line within the limit.
    async fn receive_robots(
        &self,
        wire: WireBody,
        plan: &BodyPlan,
        context: &FetchContext<'_>,
        record: &mut FetchRecord,
    ) -> Result<Vec<u8>, FetchError> {
        let bounds = BodyLimits {
            limit: MAX_RECEIVED_BYTES,
            idle: context.settings.limits.idle,
            floor: context.settings.limits.floor,
            grace: context.settings.limits.grace,
        };
        let mut sink = HashingSink::new(Vec::new());
        let mut counts = BodyCounts::default();
        let mut transfer = BodyTransfer::new(plan, &bounds);
        let received = transfer
            .receive(wire, plan, &context.budget, &mut sink, &mut counts)
            .await
            .and_then(|()| transfer.finish(&counts).map(drop));
        // The bytes of a file that broke off count too.
        record.robots_bytes += counts.wire;
        let mut text = sink.into_inner();
        match received {
            Ok(()) => Ok(text),
            Err(failure) if failure.code == Code::TooLarge => {
                text.truncate(whole_lines(&text).len());
                Ok(text)
            }
            Err(failure) => Err(failure),
        }
    }
}

/// Whether rules of `rule_bytes` can be compared with the path of `url` within the bound.
fn is_decidable(rule_bytes: usize, url: &CanonicalUrl) -> bool {
    rule_bytes.saturating_mul(url.path_and_query().len()) <= MAX_DECISION_WORK
}

/// Follows a redirect of the file, or records the target that is refused.
fn follow_robots(
    chain: &mut Chain,
    rules: &EffectivePolicy,
    start: &CanonicalUrl,
    (status, locations): (u16, &[Vec<u8>]),
    record: &mut FetchRecord,
) -> Result<(), FetchError> {
    let locations: Vec<&[u8]> = locations.iter().map(Vec::as_slice).collect();
    let tried = RequestedOrigin::redirect(chain.current(), &locations);
    if let Err(refusal) = chain.on_redirect(status, &locations) {
        let failure = record_refusal(record, chain.policy(), &refusal, tried);
        record.hop().is_robots = true;
        return Err(failure);
    }
    let target = chain.current();
    if let Some(Err(code)) = rules
        .rules()
        .map(|rules| judge_target(rules, start, target))
    {
        record.enter(chain.hop(), Some(target));
        record.hop().is_robots = true;
        return Err(FetchError::new(code, FetchPhase::Policy));
    }
    Ok(())
}

/// What the rules say about the target of a redirect of the file. At the host and port that they allowed for the fetch,
/// nothing more: their paths do not apply to the robots.txt. At another port of that host, the path counts only where
/// a rule allows it.
fn judge_target(
    rules: &CallerRules,
    start: &CanonicalUrl,
    target: &CanonicalUrl,
) -> Result<(), Code> {
    if start.host() != target.host() {
        return rules.decide(target).verdict();
    }
    if start.port() == target.port() {
        return Ok(());
    }
    let view = RequestView {
        path: ObservedPart::Deferred,
        ..RequestView::fetch(target)
    };
    rules.rules.decide(&rules.caller, &view).verdict()
}

/// Notes at the last hop why the file could not be read.
fn note_failure(requested: &Result<RobotsSource, FetchError>, record: &mut FetchRecord) {
    if let Err(failure) = requested {
        record.hop().code = Some(failure.code);
    }
}

fn note_unreadable(failure: &FetchError) {
    tracing::info!(code = %failure.code, phase = %failure.phase, "a robots.txt could not be read");
}

/// Whether the server or the network to it caused a failure, and not this service or the operator's proxy.
fn is_of_server(failure: &FetchError) -> bool {
    failure.code.is_about_url() && !is_upstream_failure(failure)
}

/// Whether the time of the request ended before its first connection was tried. DNS has a shorter limit of its own, so
/// the time was spent in the queue of this service.
fn has_waited_for_slot(failure: &FetchError, record: &FetchRecord) -> bool {
    let is_first = |hop: &HopRecord| hop.index == 0 && hop.chosen.is_none();
    (failure.code, failure.phase) == (Code::Timeout, FetchPhase::Total)
        && record.hops.last().is_some_and(is_first)
}

fn no_slot() -> FetchError {
    FetchError::new(Code::Overloaded, FetchPhase::Policy)
        .because("the request for a robots.txt got no slot in time")
}

/// Whether a status means that there is no file (RFC 9309, section 2.3.1.3).
fn is_absent(status: u16) -> bool {
    StatusCode::from_u16(status).is_ok_and(|status| status.is_client_error())
}
