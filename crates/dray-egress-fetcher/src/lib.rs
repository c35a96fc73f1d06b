//! Fetches one resource from an address from an untrusted source, and nothing that it may not.
//!
//! The only crate that connects to hosts which an agent, a user or an app named. What may be fetched is decided by
//! `dray-guard`; here is everything that does I/O, in the order in which a fetch goes through it:
//!
//! | module | what it does |
//! |---|---|
//! | [`service`] | takes the command from the bus, replies, audits |
//! | [`fetch`] | one fetch from command to file: the redirect chain over the modules below |
//! | [`limits`] | how much concurrently, and which targets are refused for a while |
//! | [`resolve`] | asks DNS |
//! | [`dial`] | connects to a judged address, and to nothing else |
//! | [`tls`] | verifies the host of the URL |
//! | [`hop`] | one request, one response |
//! | [`head`] | judges the response head |
//! | [`wire`] | counts what the peer sends, below TLS and HTTP |
//! | [`resume`] | continues a body that broke off |
//! | [`body`] | counts, decodes ([`coding`]) and hands on |
//! | [`sink`], [`staging`] | where the bytes go |
//! | [`record`], [`audit`], [`metrics`] | what is known afterwards |
//!
//! Rule ids in comments and test names are those of the egress security specification. Tests and the demo inject
//! resolver and dialer in code ([`fetch::NetworkAccess`]); loopback cannot be reached otherwise.
//!
//! Feature `service` (on by default) is the service around the pipeline; without it [`fetch`] and what it needs remain.

#[cfg(feature = "service")]
pub mod audit;
pub mod body;
pub mod budget;
pub mod coding;
#[cfg(feature = "service")]
pub mod config;
pub mod dial;
pub mod error;
pub mod fetch;
pub mod head;
pub mod hop;
pub mod label;
pub mod limits;
#[cfg(feature = "service")]
pub mod metrics;
#[cfg(feature = "service")]
pub mod own;
pub mod record;
pub mod resolve;
pub mod resume;
#[cfg(feature = "service")]
pub mod service;
pub mod sink;
#[cfg(feature = "service")]
pub mod staging;
pub mod tls;
pub mod wire;

#[cfg(feature = "service")]
pub use config::Config;
pub use fetch::{Fetcher, NetworkAccess};
#[cfg(feature = "service")]
pub use service::EgressFetcher;

#[cfg(test)]
mod tests;
