//! The real resolver: A and AAAA asked by ourselves, CNAME targets judged before they are asked for.
//!
//! Uses the server pool of hickory and not its resolver: the pool sends one question and returns the answer, without
//! search list, hosts file, cache, special names or CNAME following (D-1, D-7, section 22).

use std::collections::HashSet;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use dray_guard::judge::MOST_CNAMES;
use dray_guard::{Answer, CanonicalName, Judge};
use futures_util::StreamExt as _;
use futures_util::future::BoxFuture;
use hickory_resolver::config::{NameServerConfig, ResolveHosts, ResolverOpts};
use hickory_resolver::net::runtime::TokioRuntimeProvider;
use hickory_resolver::net::xfer::DnsHandle as _;
use hickory_resolver::net::{DnsError as ServerError, NetError, NoRecords};
use hickory_resolver::proto::op::{DnsRequestOptions, DnsResponse, Query, ResponseCode};
use hickory_resolver::proto::rr::{Name, RData, RecordType};
use hickory_resolver::{NameServerPool, PoolContext, TlsConfig};

use super::{DnsError, Resolver};

/// Largest UDP answer that is asked for (D-10).
const PAYLOAD: u16 = 1232;

type Pool = NameServerPool<TokioRuntimeProvider>;

/// Resolves over UDP and TCP with the servers that it was given, and no others.
pub struct Hickory {
    /// One pool for each server, so that the time of a dead one is not that of all.
    servers: Vec<Pool>,
    /// The server that answered last.
    preferred: AtomicUsize,
    times: Times,
}

/// How the time of the DNS phase is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Times {
    /// For one question to one server, repetitions included.
    question: Duration,
    /// For one family with its CNAME steps; below the DNS phase, so that one slow family cannot hide the other (D-3).
    family: Duration,
}

impl Times {
    /// A question to all servers has four fifths of the phase, shared between them; one server at most half of it.
    fn new(phase: Duration, servers: u32) -> Option<Self> {
        let share = (phase * 4 / 5).checked_div(servers)?;
        Some(Self {
            question: share.min(phase / 2),
            family: phase * 5 / 6,
        })
    }
}

impl std::fmt::Debug for Hickory {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Hickory").finish_non_exhaustive()
    }
}

impl Hickory {
    /// A resolver that asks these servers, at least one, and gives up shortly before `phase` is over.
    pub fn new(servers: &[SocketAddr], phase: Duration) -> Result<Self, DnsError> {
        let count = u32::try_from(servers.len()).unwrap_or(u32::MAX);
        let Some(times) = Times::new(phase, count) else {
            return Err(DnsError::Failure("no DNS server is configured".to_owned()));
        };
        Ok(Self {
            servers: servers
                .iter()
                .map(|server| pool(*server, times.question))
                .collect::<Result<_, _>>()?,
            preferred: AtomicUsize::new(0),
            times,
        })
    }

    /// One family of addresses, following aliases as long as the judge lets it.
    async fn family(
        &self,
        name: &Name,
        kind: RecordType,
        judge: &Judge,
    ) -> Result<Family, DnsError> {
        let mut family = Family::default();
        let mut owner = name.clone();
        loop {
            let Some(response) = self.ask(&owner, kind).await? else {
                return Ok(family);
            };
            let moved = family.follow(&response, &mut owner, judge);
            if family.stopped {
                return Ok(family);
            }
            family.addresses = addresses(&response, &owner);
            let ended = response.response_code == ResponseCode::NXDomain;
            if !moved || ended || !family.addresses.is_empty() {
                family.missing |= ended && family.addresses.is_empty();
                return Ok(family);
            }
        }
    }

    /// One question to one server after the other, the one that answered last first. `None` when there is no such
    /// record, `DnsError::NotFound` when there is no such name.
    async fn ask(&self, name: &Name, kind: RecordType) -> Result<Option<DnsResponse>, DnsError> {
        let first = self.preferred.load(Ordering::Relaxed);
        let servers = self.servers.iter().enumerate();
        let mut failure = None;
        for (index, server) in servers.clone().skip(first).chain(servers.take(first)) {
            match self.ask_one(server, name, kind).await {
                Err(error @ (DnsError::Timeout | DnsError::Failure(_))) => {
                    failure.get_or_insert(error);
                }
                answered => {
                    self.preferred.store(index, Ordering::Relaxed);
                    return answered;
                }
            }
        }
        Err(failure.unwrap_or(DnsError::Timeout))
    }

    async fn ask_one(
        &self,
        server: &Pool,
        name: &Name,
        kind: RecordType,
    ) -> Result<Option<DnsResponse>, DnsError> {
        let query = Query::query(name.clone(), kind);
        let mut request = DnsRequestOptions::default();
        request.use_edns = true;
        request.edns_payload_len = PAYLOAD;
        let answered = tokio::time::timeout(
            self.times.question,
            server.lookup(query.clone(), request).next(),
        )
        .await;
        match answered {
            Err(_) => Err(DnsError::Timeout),
            Ok(None) => Err(DnsError::Failure("no answer".to_owned())),
            Ok(Some(Ok(response))) if response.queries.as_slice() == [query] => Ok(Some(response)),
            Ok(Some(Ok(_))) => Err(DnsError::Failure(
                "an answer to another question".to_owned(),
            )),
            Ok(Some(Err(error))) => failed(&error),
        }
    }
}

fn pool(server: SocketAddr, patience: Duration) -> Result<Pool, DnsError> {
    let tls = TlsConfig::new().map_err(|error| DnsError::Failure(error.to_string()))?;
    let mut options = ResolverOpts::default();
    options.use_hosts_file = ResolveHosts::Never;
    options.cache_size = 0;
    options.timeout = patience;
    options.attempts = 1;
    options.num_concurrent_reqs = 1;
    options.edns_payload_len = PAYLOAD;
    options.preserve_intermediates = true;
    let mut config = NameServerConfig::udp_and_tcp(server.ip());
    for connection in &mut config.connections {
        connection.port = server.port();
    }
    let context = Arc::new(PoolContext::new(options, tls));
    Ok(NameServerPool::from_config(
        [config],
        context,
        TokioRuntimeProvider::default(),
    ))
}

fn failed(error: &NetError) -> Result<Option<DnsResponse>, DnsError> {
    match error {
        NetError::Dns(ServerError::NoRecordsFound(NoRecords { response_code, .. })) => {
            match *response_code {
                ResponseCode::NXDomain => Err(DnsError::NotFound),
                ResponseCode::NoError => Ok(None),
                code => Err(DnsError::Failure(code.to_string())),
            }
        }
        NetError::Timeout => Err(DnsError::Timeout),
        other => Err(DnsError::Failure(other.to_string())),
    }
}

/// What one family of addresses brought.
#[derive(Debug, Default)]
struct Family {
    cnames: Vec<String>,
    addresses: Vec<IpAddr>,
    /// The end of the chain does not exist at all.
    missing: bool,
    /// The chain was left at an alias that the judge refuses, or that is one too many.
    stopped: bool,
}

impl Family {
    /// Walks the aliases that the answer holds, from `owner` on. Returns whether there is a new owner to ask for:
    /// never one that the judge refuses, and never beyond a chain that is too long anyway (D-8).
    fn follow(&mut self, response: &DnsResponse, owner: &mut Name, judge: &Judge) -> bool {
        let mut moved = false;
        while let Some(target) = alias(response, owner) {
            let text = target.to_ascii();
            let refused = judge.check_cname(&text).is_err();
            self.cnames.push(text);
            if refused || self.cnames.len() > MOST_CNAMES {
                self.stopped = true;
                return false;
            }
            *owner = target;
            moved = true;
        }
        moved
    }
}

fn alias(response: &DnsResponse, owner: &Name) -> Option<Name> {
    response
        .answers
        .iter()
        .find_map(|record| match &record.data {
            RData::CNAME(target) if record.name == *owner => Some(target.0.clone()),
            _ => None,
        })
}

/// The different addresses that belong to `owner`; those of other names were not asked for (D-10).
fn addresses(response: &DnsResponse, owner: &Name) -> Vec<IpAddr> {
    let mut seen = HashSet::new();
    response
        .answers
        .iter()
        .filter(|record| record.name == *owner)
        .filter_map(|record| record.data.ip_addr())
        .filter(|address| seen.insert(*address))
        .collect()
}

impl Resolver for Hickory {
    fn lookup<'a>(
        &'a self,
        name: &'a CanonicalName,
        judge: &'a Judge,
    ) -> BoxFuture<'a, Result<Answer, DnsError>> {
        Box::pin(async move {
            let fqdn = Name::from_ascii(name.fqdn())
                .map_err(|error| DnsError::Failure(error.to_string()))?;
            let family = async |kind| {
                let asked =
                    tokio::time::timeout(self.times.family, self.family(&fqdn, kind, judge)).await;
                asked.unwrap_or(Err(DnsError::Timeout))
            };
            let (v4, v6) = tokio::join!(family(RecordType::A), family(RecordType::AAAA));
            combine(name, v4, v6)
        })
    }
}

/// D-3: one family is enough; without any address the more certain failure is told.
fn combine(
    name: &CanonicalName,
    v4: Result<Family, DnsError>,
    v6: Result<Family, DnsError>,
) -> Result<Answer, DnsError> {
    let mut answer = Answer {
        name: name.clone(),
        cnames: Vec::new(),
        addresses: Vec::new(),
    };
    let (mut missing, mut stopped, mut failures) = (false, false, Vec::new());
    let mut longest = 0;
    let mut families = [v4, v6];
    // The chain that the judge must refuse comes first.
    families.sort_by_key(|family| !family.as_ref().is_ok_and(|family| family.stopped));
    for family in families {
        match family {
            Ok(family) => {
                longest = longest.max(family.cnames.len());
                missing |= family.missing;
                stopped |= family.stopped;
                answer.addresses.extend(family.addresses);
                for target in family.cnames {
                    if !answer.cnames.contains(&target) {
                        answer.cnames.push(target);
                    }
                }
            }
            Err(DnsError::NotFound) => missing = true,
            Err(failure) => failures.push(failure),
        }
    }
    // D-8 counts the chain of one family, and every alias was checked when it was followed.
    if longest <= MOST_CNAMES {
        answer.cnames.truncate(MOST_CNAMES);
    }
    // The judge refuses a bad alias whatever is behind it, so it must see it.
    if !answer.addresses.is_empty() || stopped {
        return Ok(answer);
    }
    let failure = if missing {
        None
    } else {
        failures.into_iter().next()
    };
    Err(failure.unwrap_or(DnsError::NotFound))
}
