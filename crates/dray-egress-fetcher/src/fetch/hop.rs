//! One hop: resolve, judge, connect, shake hands, ask, and say what the head leads to.

use std::sync::Arc;

use dray_guard::{CanonicalUrl, Chain, Code, Host, Judge, NextHop, Pinned, Refusal};

use super::{Fetcher, refuse, target};
use crate::budget::Budget;
use crate::dial::{Io, Won, race};
use crate::error::{Failure, Phase};
use crate::head::{Judged, Plan, judge};
use crate::hop::{Ask, Wire, send};
use crate::limits::{HopPermit, Permit};
use crate::record::{Record, Tried};
use crate::wire::{MeteredIo, WireBudget};

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
    pub(super) places: (HopPermit, Permit),
}

/// A connection, ready for the request.
struct Connected {
    io: Box<dyn Io>,
    place: Permit,
}

impl Fetcher {
    /// Takes the chain's current URL through the whole pipeline (I-3).
    pub(super) async fn hop(
        &self,
        chain: &mut Chain,
        limit: u64,
        budget: &Budget,
        wire: &WireBudget,
        record: &mut Record,
    ) -> Result<Outcome, Failure> {
        let url = chain.current().clone();
        record.enter(chain.hop(), Some(&url));
        let asked = self.ask(chain, &url, budget, wire, record).await;
        let (parts, wire, places) = asked.inspect_err(|failure| self.blame(&url, failure))?;
        record.hop().status = Some(parts.status.as_u16());
        let judged = judge(&parts, limit);
        // A body that follows has yet to show whether the target works.
        if !matches!(judged, Ok(Judged::Body(_))) {
            self.limits.breaker().succeeded(&target(&url));
        }
        match judged.map_err(|code| Failure::new(code, Phase::Head))? {
            Judged::Body(plan) => Ok(Outcome::Body(Box::new(Answered { plan, wire, places }))),
            Judged::Redirect(locations) => {
                // The connection goes first: the body of a redirect is never read.
                drop((wire, places));
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
        budget: &Budget,
        wire: &WireBudget,
        record: &mut Record,
    ) -> Result<(http::response::Parts, Wire, (HopPermit, Permit)), Failure> {
        let overloaded = Failure::new(Code::Overloaded, Phase::Policy);
        if self.limits.breaker().is_open(&target(url)) {
            return Err(overloaded.because("the breaker of this target is open"));
        }
        let hop = budget
            .whole(self.limits.hop(&url.host().to_string()))
            .await?
            .map_err(|full| overloaded.because(full))?;
        let judge = self.current_judge()?;
        let pinned = self.pin(chain, url, &judge, budget, record).await?;
        chain.note(&pinned);
        let won = self.connect(&pinned, budget, record).await?;
        let connected = self.secure(won, url, budget, wire, record).await?;
        let host = url.host_header();
        let ask = Ask {
            host: &host,
            path_and_query: url.path_and_query(),
            user_agent: &self.settings.user_agent,
        };
        record.at(Phase::Head);
        let sent = budget
            .within(Phase::Head, self.settings.head, send(connected.io, ask))
            .await;
        record.at(Phase::Policy);
        let (parts, wire) =
            sent?.map_err(|error| Failure::new(error.code(), Phase::Head).because(error))?;
        Ok((parts, wire, (hop, connected.place)))
    }

    /// Resolves and judges: the only way to an address that may be dialled.
    async fn pin(
        &self,
        chain: &Chain,
        url: &CanonicalUrl,
        judge: &Arc<Judge>,
        budget: &Budget,
        record: &mut Record,
    ) -> Result<Pinned, Failure> {
        let judged = match url.host() {
            Host::Ip(ip) => judge.judge_literal(*ip, url.port(), chain.context()),
            Host::Name(name) => {
                record.at(Phase::Dns);
                let asked = budget
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
        budget: &Budget,
        record: &mut Record,
    ) -> Result<Won, Failure> {
        let Some(first) = pinned.addresses().first() else {
            return Err(Failure::new(Code::ConnectFailed, Phase::Dns));
        };
        let place = budget
            .whole(self.limits.address(first.socket_addr().ip()))
            .await?;
        // The address of the winner replaces it; without one this is what was tried first.
        record.hop().chosen = Some(first.socket_addr());
        record.at(Phase::Connect);
        let racing = race(
            self.network.dialer.as_ref(),
            pinned.addresses(),
            place,
            &self.limits,
        );
        let raced = budget
            .within(Phase::Connect, self.settings.connect, racing)
            .await;
        record.at(Phase::Policy);
        raced?.map_err(|error| Failure::new(Code::ConnectFailed, Phase::Connect).because(error))
    }

    /// T-2, then TLS where the URL says so: nothing is written before the peer was checked.
    async fn secure(
        &self,
        won: Won,
        url: &CanonicalUrl,
        budget: &Budget,
        wire: &WireBudget,
        record: &mut Record,
    ) -> Result<Connected, Failure> {
        let Won {
            stream,
            address,
            permit: place,
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
        let io: Box<dyn Io> = Box::new(MeteredIo::new(stream.io, wire.clone()));
        if !url.https() {
            return Ok(Connected {
                io,
                place,
            });
        }
        record.at(Phase::Tls);
        let shaking = self.tls.handshake(io, url.host());
        let shaken = budget.within(Phase::Tls, self.settings.tls, shaking).await;
        record.at(Phase::Policy);
        let (io, session) =
            shaken?.map_err(|error| Failure::new(error.code(), Phase::Tls).because(error))?;
        record.hop().tls = Some(session);
        Ok(Connected { io, place })
    }
}
