//! Judges the addresses of one hop (sections 7 and 8) and is the only source of a connectable address.
//!
//! A [`PinnedAddr`] cannot be made anywhere else, so a dialer that takes one connects only to a judged address (I-1,
//! I-2). No setting opens loopback, link-local or metadata addresses (I-9): tests inject a dialer that maps a judged
//! public address to their own listener.

use std::net::{IpAddr, SocketAddr};

use ipnet::IpNet;

use crate::addrclass::{self, Class};
use crate::canon::{CanonicalName, names};
use crate::pattern::HostPatterns;
use crate::reason::Code;

mod nat64;
mod networks;
mod pinned;
mod private;
mod rules;

pub use nat64::{Nat64Error, Nat64Prefix, parse_nat64_prefixes};
pub use networks::{NetworksError, parse_blocked_networks};
pub use pinned::{ClassifiedAddress, Network, PinnedAddr, PinnedAddresses, RefusedHop};
pub use private::{PrivateRangeError, PrivateRanges};

/// Most CNAME records in an answer (D-8).
pub const MAX_CNAMES: usize = 8;
/// Most addresses in an answer; no file server needs more.
pub const MAX_ADDRESSES: usize = 256;
/// Most addresses that are kept for connecting (D-5).
pub const MAX_PINNED: usize = 8;

/// The environment of the judge. The default is empty, so it opens nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct JudgeConfig {
    /// Networks that the operator blocks in addition (8.4). They override every other setting.
    pub extra_blocked: Vec<IpNet>,
    /// Hosts that the operator blocks in addition (section 6), applied to CNAME targets here.
    pub extra_blocked_hosts: HostPatterns,
    /// Addresses of the interfaces of this machine (8.4).
    pub own_addresses: Vec<IpAddr>,
    /// Addresses to which the product itself connects: Kubernetes API, NATS, object store, DNS servers (8.4).
    pub protected: Vec<IpNet>,
    /// Private ranges that the operator opened (8.6).
    pub private_ranges: PrivateRanges,
    /// NAT64 prefixes that are in use here (D-9).
    pub nat64_prefixes: Vec<Nat64Prefix>,
    /// Do not connect over IPv6. IPv6 addresses in a DNS response are judged nevertheless (D-3).
    pub ipv4_only: bool,
    /// Try IPv6 before IPv4 (D-5).
    pub ipv6_first: bool,
}

/// The response of DNS for a name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DnsAnswer {
    /// The name that was queried, without root dot.
    pub name: CanonicalName,
    /// Targets of the CNAME records, in order, as text with or without root dot.
    pub cnames: Vec<String>,
    /// All addresses of both families.
    pub addresses: Vec<IpAddr>,
    /// The DNSSEC status of the answer. It is only recorded: no decision depends on it.
    pub dnssec: DnssecStatus,
}

/// Whether a validating resolver authenticated an answer (RFC 4035, section 3.2.3). The order is that of certainty, so
/// the status of several answers together is the least one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum DnssecStatus {
    /// The statement of the resolver could be forged on its channel, or no resolver was asked.
    #[default]
    NotKnown,
    /// The resolver did not authenticate the answer: the zone is not signed, or the resolver does not validate.
    NotAuthenticated,
    /// The resolver authenticated all records of the answer.
    Authenticated,
}

impl DnssecStatus {
    /// The name in audit events.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::NotKnown => "not_known",
            Self::NotAuthenticated => "not_authenticated",
            Self::Authenticated => "authenticated",
        }
    }
}

/// The data of the chain about a hop.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HopContext {
    /// Network of the hop that redirected here; `None` for the first hop.
    pub previous: Option<Network>,
    /// Whether the operator's allowlist is set and names the host.
    pub admin_listed: bool,
}

/// Every name that [`Class::Blocked`] can have, for metrics. A name may occur more than once.
pub fn blocked_classes() -> impl Iterator<Item = &'static str> {
    let v4 = addrclass::IPV4_BLOCKS.iter().map(|block| block.name);
    let v6 = addrclass::IPV6_BLOCKS.iter().map(|block| block.name);
    v4.chain(v6).chain(rules::CLASS_NAMES)
}

/// Decides which addresses may be connected to, for one configuration of this machine.
#[derive(Clone, Debug)]
pub struct Judge {
    config: JudgeConfig,
}

impl Judge {
    /// Creates a judge. Its configuration never changes.
    pub fn new(config: JudgeConfig) -> Self {
        Self { config }
    }

    /// The same judge with the addresses that the interfaces have now.
    #[must_use]
    pub fn with_own_addresses(&self, own_addresses: Vec<IpAddr>) -> Self {
        let config = JudgeConfig {
            own_addresses,
            ..self.config.clone()
        };
        Self { config }
    }

    /// The configuration that every judgement here follows.
    pub const fn config(&self) -> &JudgeConfig {
        &self.config
    }

    /// Refuses a CNAME target that is never fetched (section 6, D-8). The code is `ssrf_blocked`, because the agent
    /// named another host. A resolver that follows chains itself asks before each step.
    pub fn check_cname(&self, target: &str) -> Result<(), Code> {
        if names::is_blocked_cname(target, &self.config.extra_blocked_hosts) {
            return Err(Code::SsrfBlocked);
        }
        Ok(())
    }

    /// Judges a whole DNS response (D-4, D-5, D-8). `port` is the port of the URL.
    ///
    /// # Errors
    /// `ssrf_blocked` when anything in the answer is blocked. `dns_failure` for a CNAME chain that is too long, or
    /// for more than [`MAX_ADDRESSES`] addresses. `dns_not_found` without an address. `connect_failed` when no
    /// address is of a family that is used here.
    pub fn judge_answer(
        &self,
        answer: &DnsAnswer,
        port: u16,
        hop: HopContext,
    ) -> Result<PinnedAddresses, RefusedHop> {
        // All addresses are judged before any limit cuts the list (D-4), even for a refusal: the audit event has them.
        let judged = self.classes(&answer.addresses);
        let chain = if answer.cnames.len() > MAX_CNAMES {
            Err(Code::DnsFailure)
        } else {
            answer
                .cnames
                .iter()
                .try_for_each(|target| self.check_cname(target))
        };
        // A blocked address among too many is still reported as blocked.
        let is_blocked = judged
            .iter()
            .any(|classified| classified.class.is_blocked());
        match chain {
            Ok(()) if judged.len() > MAX_ADDRESSES && !is_blocked => Err(RefusedHop {
                code: Code::DnsFailure,
                judged,
            }),
            Ok(()) => self.decide(judged, port, hop),
            Err(code) => Err(RefusedHop { code, judged }),
        }
    }

    /// Judges the literal address of a URL.
    ///
    /// # Errors
    /// `ssrf_blocked`; `connect_failed` for an IPv6 address when that family is not used here.
    pub fn judge_literal(
        &self,
        address: IpAddr,
        port: u16,
        hop: HopContext,
    ) -> Result<PinnedAddresses, RefusedHop> {
        self.decide(self.classes(&[address]), port, hop)
    }

    /// Checks the two ends of an established connection (T-2). The peer must be the pinned address, must still be
    /// allowed, and must not be this machine.
    ///
    /// # Errors
    /// `internal` for another peer, which deserves an alarm; `ssrf_blocked` when the address was blocked meanwhile or
    /// is an address of this machine.
    pub fn reclassify(
        &self,
        peer: SocketAddr,
        local: SocketAddr,
        pinned: &PinnedAddr,
    ) -> Result<(), Code> {
        let expected = pinned.socket_addr();
        // One form on both sides, in case the socket reports a mapped address (8.3).
        if peer.ip().to_canonical() != expected.ip() || peer.port() != expected.port() {
            return Err(Code::Internal);
        }
        // A connection to an address of this machine comes from the same address. This detects interfaces that came up
        // after they were last read.
        let is_own = peer.ip().to_canonical() == local.ip().to_canonical();
        // The same class, not just an allowed one: opened and public follow different rules.
        if !is_own && self.class(peer.ip()) == pinned.class() {
            Ok(())
        } else {
            Err(Code::SsrfBlocked)
        }
    }

    fn classes(&self, addresses: &[IpAddr]) -> Vec<ClassifiedAddress> {
        addresses
            .iter()
            .map(|address| ClassifiedAddress {
                address: address.to_canonical(),
                class: self.class(*address),
            })
            .collect()
    }

    /// Applies D-4 and 8.6: all public or all opened, and from a public hop into an opened range only by the
    /// operator's allowlist.
    fn decide(
        &self,
        judged: Vec<ClassifiedAddress>,
        port: u16,
        hop: HopContext,
    ) -> Result<PinnedAddresses, RefusedHop> {
        let refuse = |code, judged| Err(RefusedHop { code, judged });
        let count = |network: Network| {
            judged
                .iter()
                .filter(|classified| Network::of(classified.class) == Some(network))
                .count()
        };
        let network = match judged.len() {
            0 => return refuse(Code::DnsNotFound, judged),
            total if count(Network::Public) == total => Network::Public,
            total if count(Network::Opened) == total => Network::Opened,
            // A mixture is refused, too: in a DNS rebinding attack, a response pairs a public address with an internal
            // one.
            _ => return refuse(Code::SsrfBlocked, judged),
        };
        // Otherwise any web page could direct the fetcher to internal addresses (8.6).
        let comes_from_outside = hop.previous == Some(Network::Public);
        if network == Network::Opened && comes_from_outside && !hop.admin_listed {
            return refuse(Code::SsrfBlocked, judged);
        }
        let pinned = PinnedAddresses::new(network, judged, port, &self.config);
        if pinned.addresses().is_empty() {
            // The name exists and its addresses were judged, so this is neither a DNS fault nor a refusal.
            return refuse(Code::ConnectFailed, pinned.into_judged());
        }
        Ok(pinned)
    }

    /// The class of an address here: the operator's additions, NAT64, opened ranges, then the tables.
    pub fn class(&self, address: IpAddr) -> Class {
        rules::classify_native(&self.config, address.to_canonical())
    }
}

#[cfg(test)]
mod tests;
