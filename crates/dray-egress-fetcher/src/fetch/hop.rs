//! One hop of a fetch: resolves the name, checks the addresses, connects, does the TLS handshake, sends the request,
//! and decides by the response head.

use std::io;
use std::sync::atomic::Ordering;
use std::time::Duration;

use dray_guard::{CanonicalUrl, Chain, Code, PinnedAddr, PinnedAddresses};
use http::StatusCode;
use http::response::Parts;
use tokio::time::Instant;

use super::cached::{CachedResponse, HopSource, condition_fields};
use super::rules::{check_media_type, rule_limit};
use super::{FetchContext, Fetcher};
use crate::dial::{DialWinner, Io, race_addresses};
use crate::error::{FetchError, FetchPhase};
use crate::freshness::{ReuseTerms, is_confirmed};
use crate::head::{BodyPlan, HeadDecision, judge_head, judge_remainder, retry_after};
use crate::hop::{HopError, HopRequest, WireBody, send_http2_request, send_request};
use crate::limits::{AddressSlot, FetchSlot, QueueFull, SlotRequest};
use crate::record::FetchRecord;
use crate::resume::BodyResumption;
use crate::wire::MeteredIo;

/// The result of a hop after its response head.
pub(super) enum HopOutcome {
    /// A redirect was accepted; its target is now the current URL of the chain.
    Redirected,
    /// The stored response is used: it is fresh, or its server confirmed it.
    Stored,
    /// The server confirmed content that is not stored. The same URL must be requested without conditions.
    NotStored,
    /// A body follows; none of it was read yet.
    Body(Box<HopResponse>),
}

/// A response whose body was not read yet, and the slots that the hop uses.
pub(super) struct HopResponse {
    pub(super) plan: BodyPlan,
    pub(super) wire: WireBody,
    /// The slots are held until the body is received.
    pub(super) slots: (FetchSlot, AddressSlot),
    /// Most bytes of the body.
    pub(super) limit: u64,
    /// The terms for storing the file for other fetches; `None` if it must not be stored.
    pub(super) terms: Option<ReuseTerms>,
}

/// The head of a response, and the time from the request to it.
pub(super) struct TimedHead {
    pub(super) parts: Parts,
    pub(super) delay: Duration,
}

/// The parts of a request that do not follow from its URL.
#[derive(Clone, Copy)]
pub(super) struct RequestExtra<'a> {
    /// The rest of a body that broke off.
    resume: Option<&'a BodyResumption>,
    /// A stored response that its server may confirm.
    cached: Option<&'a CachedResponse>,
    /// Whether it is a request for a robots.txt, which gets no credential.
    is_robots: bool,
}

impl RequestExtra<'_> {
    /// A request for a robots.txt.
    pub(super) const ROBOTS: Self = Self {
        resume: None,
        cached: None,
        is_robots: true,
    };
}

/// A connection that is ready for the request, and the slot of its address.
struct HopConnection {
    io: Box<dyn Io>,
    /// Whether the server chose HTTP/2.
    is_http2: bool,
    address: AddressSlot,
}

/// The slots of an admitted hop, and the addresses to which it may connect.
pub(super) struct HopAdmission {
    pub(super) slot: FetchSlot,
    pub(super) address: AddressSlot,
    pub(super) pinned: PinnedAddresses,
}

pub(super) fn overloaded_error(full: QueueFull) -> FetchError {
    FetchError::new(Code::Overloaded, FetchPhase::Policy).because(full)
}

impl Fetcher {
    /// Runs the whole pipeline for the chain's current URL (I-3). With a part in `source`, accepts only the rest of
    /// that body.
    pub(super) async fn hop(
        &self,
        chain: &mut Chain,
        context: &FetchContext<'_>,
        source: HopSource<'_>,
        record: &mut FetchRecord,
    ) -> Result<HopOutcome, FetchError> {
        let (partial, cached) = (source.partial, source.cached);
        let url = chain.current().clone();
        let decision = chain.policy().decide(&url);
        let limit = rule_limit(context.limit, decision.as_ref());
        // The hops of the robots.txt request come first, so that the last hop of the record is always that of the
        // fetch.
        let robots = Box::pin(self.judge_robots(chain, decision.as_ref(), context, record)).await;
        record.enter(chain.hop(), Some(&url));
        record.note_decision(decision);
        robots?;
        if let Some(cached) = cached.filter(|cached| !cached.terms.fresh_for.is_zero()) {
            self.use_fresh(cached, chain, context, limit, record)
                .await?;
            return Ok(HopOutcome::Stored);
        }
        let resume = partial.and_then(|partial| partial.resume(&url, &record.counts));
        let extra = RequestExtra {
            resume: resume.as_ref(),
            cached,
            is_robots: false,
        };
        let (head, wire, slots) = self
            .request_head(chain, &url, context, extra, record)
            .await?;
        let parts = &head.parts;
        record.note_head(parts);
        if let (Some(cached), StatusCode::NOT_MODIFIED) = (cached, parts.status) {
            drop((wire, slots));
            self.note_response(&url, &context.request.tenant);
            if !is_confirmed(&parts.headers, &cached.terms) {
                return Ok(HopOutcome::NotStored);
            }
            self.use_renewed(source, &head, &url, context, limit, record)
                .await?;
            return Ok(HopOutcome::Stored);
        }
        let tenant = context.request.tenant.as_str();
        match self.judge_response(parts, (&url, tenant), limit, resume.as_ref())? {
            // The rest would come from another server than the first part.
            HeadDecision::Body(_) if partial.is_some() && resume.is_none() => {
                Err(FetchError::new(Code::Truncated, FetchPhase::Head))
            }
            HeadDecision::Body(plan) => {
                // A rest need not repeat the labels of the file.
                let labels = partial.map_or(&plan.labels, |partial| &partial.labels);
                check_media_type(record, &labels.media_type)?;
                let terms = self.storing_terms(&url, &head, context);
                Ok(HopOutcome::Body(Box::new(HopResponse {
                    plan,
                    wire,
                    slots,
                    limit,
                    terms,
                })))
            }
            HeadDecision::Redirect(locations) => {
                // The connection is closed first, because the body of a redirect is never read.
                drop((wire, slots));
                self.follow(chain, parts.status.as_u16(), &locations, context, record)
                    .await
            }
        }
    }

    /// Judges a response head; with `resume`, the head of a response with the rest of a body.
    fn judge_response(
        &self,
        parts: &Parts,
        (url, tenant): (&CanonicalUrl, &str),
        limit: u64,
        resume: Option<&BodyResumption>,
    ) -> Result<HeadDecision, FetchError> {
        let judged = match resume {
            Some(resume) => judge_remainder(parts, limit, resume),
            None => judge_head(parts, limit),
        };
        // If a body follows, the breaker is informed after the body was read.
        if !matches!(judged, Ok(HeadDecision::Body(_))) {
            self.note_response(url, tenant);
        }
        judged.map_err(|code| {
            let has_delay = matches!(code, Code::HttpStatus(429 | 503));
            let delay = retry_after(&parts.headers).filter(|_| has_delay);
            FetchError::new(code, FetchPhase::Head).with_retry_after(delay)
        })
    }

    /// Runs all steps of the hop up to its response head.
    pub(super) async fn request_head(
        &self,
        chain: &mut Chain,
        url: &CanonicalUrl,
        context: &FetchContext<'_>,
        extra: RequestExtra<'_>,
        record: &mut FetchRecord,
    ) -> Result<(TimedHead, WireBody, (FetchSlot, AddressSlot)), FetchError> {
        // The circuit breaker is checked before a slot is taken: requests to a dead host must not delay others (section
        // 15).
        self.check_breaker(url, &context.request.tenant)?;
        let HopAdmission {
            slot,
            address,
            pinned,
        } = self.admit(chain, url, context, record).await?;
        // The check of the next redirect depends on the addresses of this hop (8.6).
        chain.record_network(&pinned);
        let winner = self.connect(&pinned, address, context, record).await?;
        let connected = self.secure(winner, url, context, record).await?;
        self.note_connection(url);
        let host = url.host_header();
        // Only the URL of the caller gets a credential: the target of a redirect gets none, even at the same host.
        let tenant = &context.request.caller.tenant;
        let credential = (chain.hop() == 0 && !extra.is_robots)
            .then(|| context.settings.credentials.find(tenant, url))
            .flatten();
        let mut path_and_query = url.path_and_query().into();
        if let Some(credential) = &credential {
            record.note_credential(&credential.name);
            path_and_query = credential.path_and_query(url);
        }
        let hop_request = HopRequest {
            host: &host,
            path_and_query: &path_and_query,
            user_agent: &context.settings.limits.user_agent,
            credential: credential
                .as_ref()
                .and_then(|credential| credential.header()),
            conditions: extra.cached.map(condition_fields).unwrap_or_default(),
            resume: extra.resume,
        };
        record.at(FetchPhase::Head);
        let requested = Instant::now();
        let sending = async {
            if connected.is_http2 {
                send_http2_request(connected.io, hop_request).await
            } else {
                send_request(connected.io, hop_request).await
            }
        };
        let sent = context
            .budget
            .within(FetchPhase::Head, context.settings.limits.head, sending)
            .await;
        record.at(FetchPhase::Policy);
        let (mut parts, wire) = sent?.map_err(|error| {
            if matches!(error, HopError::Http11Required(_)) {
                // The next attempt of the same task reads it.
                context.http11_only.store(true, Ordering::Relaxed);
            }
            FetchError::new(error.code(), FetchPhase::Head).because(error)
        })?;
        let delay = requested.elapsed();
        if let Some(credential) = &credential {
            // This comes before a redirect is followed: its target must not get the value with the query.
            credential
                .remove_from_response(&mut parts.headers)
                .map_err(|code| FetchError::new(code, FetchPhase::Head))?;
        }
        Ok((TimedHead { parts, delay }, wire, (slot, connected.address)))
    }

    /// The slot that a hop to `url` needs.
    pub(super) fn slot_request(
        url: &CanonicalUrl,
        context: &FetchContext<'_>,
        continues: bool,
    ) -> SlotRequest {
        SlotRequest {
            tenant: context.request.tenant.clone(),
            app: context.request.app.clone(),
            host: url.host().to_string(),
            turn: context.turn,
            continues,
        }
    }

    /// Waits for a slot, resolves the name and checks the addresses. While a hop waits for its slot or for its address,
    /// it holds no slot.
    pub(super) async fn admit(
        &self,
        chain: &Chain,
        url: &CanonicalUrl,
        context: &FetchContext<'_>,
        record: &mut FetchRecord,
    ) -> Result<HopAdmission, FetchError> {
        let mut request = Self::slot_request(url, context, record.continues());
        let slot = context
            .budget
            .within_total(context.admission.slot(request.clone()))
            .await?;
        let slot = slot.map_err(overloaded_error)?;
        let judge = self.current_judge()?;
        let pinned = self.pin(chain, url, &judge, context, record).await?;
        // All addresses belong to an address family that is switched off.
        let Some(first) = pinned.addresses().first() else {
            return Err(FetchError::new(Code::ConnectFailed, FetchPhase::Dns));
        };
        let ip = first.socket_addr().ip();
        let tenant = &context.request.tenant;
        if let Some(address) = context.admission.try_address(ip, tenant) {
            return Ok(HopAdmission {
                slot,
                address,
                pinned,
            });
        }
        drop(slot);
        // The hop was already admitted, so a full queue must not refuse it now.
        request.continues = true;
        let granted = context.admission.slot_with_address(request, ip);
        let (slot, address) = context
            .budget
            .within_total(granted)
            .await?
            .map_err(overloaded_error)?;
        // An address may have become one of this machine while the hop waited.
        let judge = self.current_judge()?;
        let is_allowed =
            |pinned: &PinnedAddr| judge.class(pinned.socket_addr().ip()) == pinned.class();
        if !pinned.addresses().iter().all(is_allowed) {
            return Err(FetchError::new(Code::SsrfBlocked, FetchPhase::Dns));
        }
        Ok(HopAdmission {
            slot,
            address,
            pinned,
        })
    }

    /// Connects to the first address that accepts, with one timeout for all addresses (T-1). The wait for the slot of
    /// the first address is not part of it.
    pub(super) async fn connect(
        &self,
        pinned: &PinnedAddresses,
        address: AddressSlot,
        context: &FetchContext<'_>,
        record: &mut FetchRecord,
    ) -> Result<DialWinner, FetchError> {
        // The address is recorded in case no address accepts; otherwise the address of the connection replaces it.
        record.hop().chosen = pinned.addresses().first().map(PinnedAddr::socket_addr);
        record.at(FetchPhase::Connect);
        let race = race_addresses(
            self.network.dialer.as_ref(),
            pinned.addresses(),
            address,
            context.admission,
        );
        let outcome = context
            .budget
            .within(FetchPhase::Connect, context.settings.limits.connect, race)
            .await;
        record.at(FetchPhase::Policy);
        outcome?.map_err(|error| {
            let code = match error.kind() {
                io::ErrorKind::ResourceBusy => Code::Overloaded,
                _ => Code::ConnectFailed,
            };
            FetchError::new(code, FetchPhase::Connect).because(error)
        })
    }

    /// Checks the two ends of a connection (T-2) and records them.
    pub(super) fn check_peer(
        &self,
        winner: &DialWinner,
        record: &mut FetchRecord,
    ) -> Result<(), FetchError> {
        let DialWinner {
            stream, address, ..
        } = winner;
        let hop = record.hop();
        hop.chosen = Some(address.socket_addr());
        hop.peer = Some(stream.peer);
        hop.upstream_proxy = stream.upstream_proxy;
        hop.local_port = stream.local.port();
        // Uses the current state, because an address may have become one of this machine since it was checked.
        let judge = self.current_judge()?;
        judge
            .reclassify(stream.peer, stream.local, address)
            .map_err(|code| {
                if code == Code::Internal {
                    record.pin_mismatches += 1;
                    tracing::error!(
                        pinned = %address.socket_addr(), peer = %stream.peer,
                        "the peer of a connection has another address than the pinned one"
                    );
                }
                FetchError::new(code, FetchPhase::Connect)
            })
    }

    /// Checks the peer (T-2), then does the TLS handshake if the URL is `https`. No byte is sent before the check.
    async fn secure(
        &self,
        winner: DialWinner,
        url: &CanonicalUrl,
        context: &FetchContext<'_>,
        record: &mut FetchRecord,
    ) -> Result<HopConnection, FetchError> {
        self.check_peer(&winner, record)?;
        let DialWinner { stream, slot, .. } = winner;
        // The meter is below TLS, so that the bytes of handshake and records count too (I-7).
        let io: Box<dyn Io> = Box::new(MeteredIo::new(stream.io, context.wire.clone()));
        if !url.https() {
            return Ok(HopConnection {
                io,
                is_http2: false,
                address: slot,
            });
        }
        record.at(FetchPhase::Tls);
        let http11_only = context.http11_only.load(Ordering::Relaxed);
        let handshake = async {
            if http11_only {
                self.tls.handshake(io, url.host()).await
            } else {
                self.tls.handshake_for_fetch(io, url.host()).await
            }
        };
        let outcome = context
            .budget
            .within(FetchPhase::Tls, context.settings.limits.tls, handshake)
            .await;
        record.at(FetchPhase::Policy);
        let (io, session) = outcome?
            .map_err(|error| FetchError::new(error.code(), FetchPhase::Tls).because(error))?;
        let is_http2 = session.is_http2;
        record.hop().tls = Some(session);
        Ok(HopConnection {
            io,
            is_http2,
            address: slot,
        })
    }
}
