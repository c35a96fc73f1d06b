//! One hop: resolve, judge, connect, shake hands, ask, and say what the head leads to.

use std::io;
use std::sync::Arc;

use dray_guard::{CanonicalUrl, Chain, Code, Host, Judge, NextHop, Pinned, PinnedAddr, Refusal};

use super::{FetchContext, Fetcher, PartialBody, refuse, target};
use crate::dial::{Io, Won, race};
use crate::error::{Failure, Phase};
use crate::head::{Judged, Plan, judge, judge_rest, retry_after};
use crate::hop::{Ask, Wire, send};
use crate::limits::{AddressSlot, QueueFull, Slot, SlotRequest};
use crate::record::{Record, Tried};
use crate::resume::Resume;
use crate::wire::MeteredIo;

/// What a hop leads to.
pub(super) enum Outcome {
    /// The chain moved on.
    Redirected,
    /// A body follows.
    Body(Box<Answered>),
}

/// A response whose body follows.
pub(super) struct Answered {
    pub(super) plan: Plan,
    pub(super) wire: Wire,
    /// Held until the body is received.
    pub(super) slots: (Slot, AddressSlot),
}

/// A connection, ready for the request.
struct Connected {
    io: Box<dyn Io>,
    address: AddressSlot,
}

/// A hop that has its turn, and the addresses it may connect to.
struct HopAdmission {
    slot: Slot,
    address: AddressSlot,
    pinned: Pinned,
}

fn overloaded(full: QueueFull) -> Failure {
    Failure::new(Code::Overloaded, Phase::Policy).because(full)
}

impl Fetcher {
    /// Takes the chain's current URL through the whole pipeline (I-3). With `partial` only the rest of that body is
    /// accepted.
    pub(super) async fn hop(
        &self,
        chain: &mut Chain,
        context: &FetchContext<'_>,
        partial: Option<&PartialBody>,
        record: &mut Record,
    ) -> Result<Outcome, Failure> {
        let url = chain.current().clone();
        record.enter(chain.hop(), Some(&url));
        let resume = partial.and_then(|partial| partial.resume(&url, &record.counts));
        let asked = self.ask(chain, &url, context, resume.as_ref(), record);
        let (parts, wire, slots) = asked.await?;
        record.hop().status = Some(parts.status.as_u16());
        let judged = match &resume {
            Some(resume) => judge_rest(&parts, context.limit, resume),
            None => judge(&parts, context.limit),
        };
        // A body that follows has yet to show whether the target works.
        if !matches!(judged, Ok(Judged::Body(_))) {
            self.limits.breaker().succeeded(&target(&url));
        }
        let judged = judged.map_err(|code| {
            let wants_time = matches!(code, Code::HttpStatus(429 | 503));
            let delay = retry_after(&parts.headers).filter(|_| wants_time);
            Failure::new(code, Phase::Head).with_retry_after(delay)
        })?;
        match judged {
            // Another server than the one that sent the first part.
            Judged::Body(_) if partial.is_some() && resume.is_none() => {
                Err(Failure::new(Code::Truncated, Phase::Head))
            }
            Judged::Body(plan) => Ok(Outcome::Body(Box::new(Answered { plan, wire, slots }))),
            Judged::Redirect(locations) => {
                // The connection goes first: the body of a redirect is never read.
                drop((wire, slots));
                let locations: Vec<&[u8]> = locations.iter().map(Vec::as_slice).collect();
                let next = chain
                    .on_redirect(parts.status.as_u16(), &locations)
                    .map_err(|refused| {
                        refuse(record, &refused, Tried::redirect(&url, &locations))
                    })?;
                record.redirect_count = chain.followed();
                match next {
                    NextHop::Follow => Ok(Outcome::Redirected),
                    NextHop::Answer => Err(Failure::new(Code::Internal, Phase::Head)),
                }
            }
        }
    }

    /// Up to the response head.
    async fn ask(
        &self,
        chain: &mut Chain,
        url: &CanonicalUrl,
        context: &FetchContext<'_>,
        resume: Option<&Resume>,
        record: &mut Record,
    ) -> Result<(http::response::Parts, Wire, (Slot, AddressSlot)), Failure> {
        if self.limits.breaker().is_open(&target(url)) {
            let overloaded = Failure::new(Code::Overloaded, Phase::Policy);
            return Err(overloaded.because("the breaker of this target is open"));
        }
        let HopAdmission {
            slot,
            address,
            pinned,
        } = self.admit(chain, url, context, record).await?;
        chain.note(&pinned);
        let won = self.connect(&pinned, address, context, record).await?;
        let connected = self.secure(won, url, context, record).await?;
        let host = url.host_header();
        let ask = Ask {
            host: &host,
            path_and_query: url.path_and_query(),
            user_agent: &self.settings.user_agent,
            resume,
        };
        record.at(Phase::Head);
        let sent = context
            .budget
            .within(Phase::Head, self.settings.head, send(connected.io, ask))
            .await;
        record.at(Phase::Policy);
        let (parts, wire) =
            sent?.map_err(|error| Failure::new(error.code(), Phase::Head).because(error))?;
        Ok((parts, wire, (slot, connected.address)))
    }

    /// Waits for the turn of this hop, resolves and judges. A hop that waits, also for its address, holds nothing.
    async fn admit(
        &self,
        chain: &Chain,
        url: &CanonicalUrl,
        context: &FetchContext<'_>,
        record: &mut Record,
    ) -> Result<HopAdmission, Failure> {
        let mut request = SlotRequest {
            tenant: context.request.tenant.clone(),
            app: context.request.app.clone(),
            host: url.host().to_string(),
            turn: context.turn,
            continues: chain.hop() > 0 || record.retries > 0,
        };
        let slot = context
            .budget
            .whole(self.limits.slot(request.clone()))
            .await?;
        let slot = slot.map_err(overloaded)?;
        let judge = self.current_judge()?;
        let pinned = self.pin(chain, url, &judge, context, record).await?;
        let Some(first) = pinned.addresses().first() else {
            return Err(Failure::new(Code::ConnectFailed, Phase::Dns));
        };
        let ip = first.socket_addr().ip();
        if let Some(address) = self.limits.try_address(ip) {
            return Ok(HopAdmission {
                slot,
                address,
                pinned,
            });
        }
        drop(slot);
        request.continues = true;
        let granted = self.limits.slot_with_address(request, ip);
        let (slot, address) = context.budget.whole(granted).await?.map_err(overloaded)?;
        // An address may have become our own while it waited.
        let judge = self.current_judge()?;
        let is_allowed =
            |pinned: &PinnedAddr| judge.class(pinned.socket_addr().ip()) == pinned.class();
        if !pinned.addresses().iter().all(is_allowed) {
            return Err(Failure::new(Code::SsrfBlocked, Phase::Dns));
        }
        Ok(HopAdmission {
            slot,
            address,
            pinned,
        })
    }

    /// Resolves and judges: the only way to an address that may be dialled.
    async fn pin(
        &self,
        chain: &Chain,
        url: &CanonicalUrl,
        judge: &Arc<Judge>,
        context: &FetchContext<'_>,
        record: &mut Record,
    ) -> Result<Pinned, Failure> {
        let judged = match url.host() {
            Host::Ip(ip) => judge.judge_literal(*ip, url.port(), chain.context()),
            Host::Name(name) => {
                record.at(Phase::Dns);
                let asked = context
                    .budget
                    .within(
                        Phase::Dns,
                        self.settings.dns,
                        self.network.resolver.lookup(name, judge),
                    )
                    .await;
                record.at(Phase::Policy);
                let answer = asked
                    .inspect_err(|_| record.dns_errors.push("timeout"))?
                    .map_err(|error| {
                        record.dns_errors.push(error.kind());
                        Failure::new(error.code(), Phase::Dns).because(error)
                    })?;
                record.hop().cnames.clone_from(&answer.cnames);
                judge.judge_answer(&answer, url.port(), chain.context())
            }
        };
        match judged {
            Ok(pinned) => {
                record.hop().answers = pinned.judged().to_vec();
                Ok(pinned)
            }
            Err(Refusal { code, judged }) => {
                record.hop().answers = judged;
                Err(Failure::new(code, Phase::Dns))
            }
        }
    }

    /// T-1: one budget for all addresses. Waiting for a place of the first one does not count.
    async fn connect(
        &self,
        pinned: &Pinned,
        address: AddressSlot,
        context: &FetchContext<'_>,
        record: &mut Record,
    ) -> Result<Won, Failure> {
        // The address of the winner replaces it; without one this is what was tried first.
        record.hop().chosen = pinned.addresses().first().map(PinnedAddr::socket_addr);
        record.at(Phase::Connect);
        let racing = race(
            self.network.dialer.as_ref(),
            pinned.addresses(),
            address,
            &self.limits,
        );
        let raced = context
            .budget
            .within(Phase::Connect, self.settings.connect, racing)
            .await;
        record.at(Phase::Policy);
        raced?.map_err(|error| {
            let code = match error.kind() {
                io::ErrorKind::ResourceBusy => Code::Overloaded,
                _ => Code::ConnectFailed,
            };
            Failure::new(code, Phase::Connect).because(error)
        })
    }

    /// T-2, then TLS where the URL says so: nothing is written before the peer was checked.
    async fn secure(
        &self,
        won: Won,
        url: &CanonicalUrl,
        context: &FetchContext<'_>,
        record: &mut Record,
    ) -> Result<Connected, Failure> {
        let Won {
            stream,
            address,
            slot,
        } = won;
        let hop = record.hop();
        hop.chosen = Some(address.socket_addr());
        hop.peer = Some(stream.peer);
        hop.local_port = stream.local.port();
        // By what is known now: an address may have become our own meanwhile.
        let judge = self.current_judge()?;
        if let Err(code) = judge.reclassify(stream.peer, stream.local, &address) {
            if code == Code::Internal {
                record.pin_mismatches += 1;
                tracing::error!(
                    pinned = %address.socket_addr(), peer = %stream.peer,
                    "a connection went to another address than the pinned one"
                );
            }
            return Err(Failure::new(code, Phase::Connect));
        }
        let io: Box<dyn Io> = Box::new(MeteredIo::new(stream.io, context.wire.clone()));
        if !url.https() {
            return Ok(Connected { io, address: slot });
        }
        record.at(Phase::Tls);
        let shaking = self.tls.handshake(io, url.host());
        let shaken = context
            .budget
            .within(Phase::Tls, self.settings.tls, shaking)
            .await;
        record.at(Phase::Policy);
        let (io, session) =
            shaken?.map_err(|error| Failure::new(error.code(), Phase::Tls).because(error))?;
        record.hop().tls = Some(session);
        Ok(Connected { io, address: slot })
    }
}
