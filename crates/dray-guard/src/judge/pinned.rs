//! The outcome of a judgement: addresses that may be connected to, or a refusal with its reasons.

use std::collections::HashSet;
use std::net::{IpAddr, SocketAddr};

use crate::addrclass::Class;
use crate::reason::Code;

use super::{JudgeConfig, MAX_PINNED};

/// One address of an answer with its class, for the audit event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClassifiedAddress {
    /// The address; IPv4-mapped ones are unwrapped (8.3).
    pub address: IpAddr,
    /// The class of the address on this machine, opened ranges included.
    pub class: Class,
}

/// The kind of network in which a hop is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Network {
    /// The public internet.
    Public,
    /// A private range that the operator opened.
    Opened,
}

impl Network {
    pub(super) const fn of(class: Class) -> Option<Self> {
        match class {
            Class::Public => Some(Self::Public),
            Class::Opened(_) => Some(Self::Opened),
            Class::Blocked(_) => None,
        }
    }
}

/// An address that was judged and may be connected to. Made by the judge only (I-1, I-2):
///
/// ```compile_fail,E0451
/// use dray_guard::{Class, PinnedAddr};
///
/// let forged = PinnedAddr {
///     socket: "127.0.0.1:80".parse().unwrap(),
///     class: Class::Public,
/// };
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PinnedAddr {
    socket: SocketAddr,
    class: Class,
}

impl PinnedAddr {
    /// The judged address and the port of the URL, to connect to.
    pub const fn socket_addr(&self) -> SocketAddr {
        self.socket
    }

    /// The address' class; never blocked.
    pub const fn class(&self) -> Class {
        self.class
    }
}

/// The pin of one hop (D-6): the only addresses that it may connect to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PinnedAddresses {
    addresses: Vec<PinnedAddr>,
    judged: Vec<ClassifiedAddress>,
    network: Network,
}

impl PinnedAddresses {
    /// Keeps at most eight different addresses, alternating between the families (D-5).
    pub(super) fn new(
        network: Network,
        judged: Vec<ClassifiedAddress>,
        port: u16,
        config: &JudgeConfig,
    ) -> Self {
        let mut seen = HashSet::new();
        let unique = judged
            .iter()
            // IPv6 is dropped after the judgement: a DNS response with a blocked IPv6 address is refused even with IPv6
            // off (D-3).
            .filter(|classified| classified.address.is_ipv4() || !config.ipv4_only)
            .filter(|classified| seen.insert(classified.address))
            .copied();
        let (v4, v6): (Vec<_>, Vec<_>) =
            unique.partition(|classified| classified.address.is_ipv4());
        let (preferred, other) = if config.ipv6_first {
            (v6, v4)
        } else {
            (v4, v6)
        };
        let addresses = interleave(preferred, other)
            .take(MAX_PINNED)
            .map(|classified| PinnedAddr {
                socket: SocketAddr::new(classified.address, port),
                class: classified.class,
            })
            .collect();
        Self {
            addresses,
            judged,
            network,
        }
    }

    /// The addresses in the order in which to try them; at least one.
    pub fn addresses(&self) -> &[PinnedAddr] {
        &self.addresses
    }

    /// Every address of the answer with its class.
    pub fn judged(&self) -> &[ClassifiedAddress] {
        &self.judged
    }

    /// The network of this hop; all its addresses are in the same one.
    pub const fn network(&self) -> Network {
        self.network
    }

    pub(super) fn into_judged(self) -> Vec<ClassifiedAddress> {
        self.judged
    }
}

/// A hop that is refused, with every address that was judged. The agent gets only the code (I-8).
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{code}")]
pub struct RefusedHop {
    /// The reason why it is refused; the only part that an agent gets (I-8).
    pub code: Code,
    /// Every address of the answer with its class.
    pub judged: Vec<ClassifiedAddress>,
}

fn interleave<T>(first: Vec<T>, second: Vec<T>) -> impl Iterator<Item = T> {
    let (mut first, mut second) = (first.into_iter(), second.into_iter());
    let mut is_first_due = true;
    std::iter::from_fn(move || {
        let next = if is_first_due {
            first.next().or_else(|| second.next())
        } else {
            second.next().or_else(|| first.next())
        };
        is_first_due = !is_first_due;
        next
    })
}
