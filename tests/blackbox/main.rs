//! Tests the egress envelope from outside. The release binary runs in a network namespace, a scripted internet is on
//! the far side of a veth pair, and a packet counter watches every range that must never be reached (egress-security
//! 23.7, I-1, I-9).
//!
//! Linux and root only; see `docs/blackbox.md`. The suite observes what the binary prints, what it asks the name
//! server, which requests arrive, and which packets leave.

#[cfg(test)]
mod certificate;
#[cfg(test)]
mod counter;
#[cfg(test)]
mod expect;
#[cfg(test)]
mod explanation;
#[cfg(test)]
mod fetch;
#[cfg(test)]
mod internet;
#[cfg(test)]
mod machine;
#[cfg(test)]
mod namespace;
#[cfg(test)]
mod range;
#[cfg(test)]
mod scenario;
#[cfg(test)]
mod scenario_network;
#[cfg(test)]
mod veth;
