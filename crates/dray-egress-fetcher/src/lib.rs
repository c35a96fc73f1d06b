//! Fetches one HTTP resource whose address comes from an untrusted source, and connects to nothing else.
//!
//! The only crate that connects to hosts which an agent, a user or an app named. `dray-guard` decides what may be
//! fetched; this crate does the I/O. The modules in the order in which a fetch uses them:
//!
//! | module | what it does |
//! |---|---|
//! | [`service`] | takes the command from the bus, replies, audits |
//! | [`fetch`] | one fetch from command to file: the redirect chain over the modules below |
//! | [`limits`] | how much runs concurrently, and which targets are refused for a while |
//! | [`resolve`] | asks DNS |
//! | [`dial`] | connects to a judged address, and to nothing else |
//! | [`tls`] | verifies the host of the URL |
//! | [`credential`] | adds a secret of the operator to requests for its host |
//! | [`hop`] | one request, one response |
//! | [`head`] | judges the response head |
//! | [`wire`] | counts what the peer sends, below TLS and HTTP |
//! | [`resume`] | continues a body that broke off |
//! | [`body`] | counts, decodes ([`coding`]) and hands on |
//! | [`sink`], [`staging`] | where the bytes go |
//! | [`freshness`], [`response_cache`] | which responses are stored, and how long they are used |
//! | [`record`], [`audit`], [`metrics`] | what a fetch did, and how it is reported |
//! | [`policy_files`], [`policy_bucket`] | reads the operator's policy files, even when they change |
//! | [`questions`] | hosts about which a rule asks a person, and the answers |
//! | [`label`] | what a server says about its file: type, name, date |
//! | [`budget`] | the time of a fetch and of its phases |
//! | [`config`], `reload` | the settings, and their changes while the service runs |
//! | [`proxy`] | the forward proxy: connections of sandboxes through the same steps |
//!
//! Rule ids in comments and test names are those of the egress security specification (docs/requirements.md). Tests and
//! the demo inject resolver and dialer in code ([`fetch::NetworkAccess`]); loopback cannot be reached otherwise.
//!
//! Feature `service` (on by default) is the service around the pipeline; without it, [`fetch`] and its modules
//! remain.
//!
//! [`Fetcher`] runs one fetch: a [`fetch::FetchJob`] in, a [`fetch::FetchedFile`] or a [`fetch::FetchFailure`] out. It
//! sends no credentials of callers and no cookies (I-6), caches nothing unless the operator wants it, opens no archives
//! (B-6), and does not judge the content of a file.
//!
//! ```
//! use dray_egress_fetcher::coding::{BodyDecoder, ContentCoding, DecodeError};
//! use dray_egress_fetcher::resolve::parse_servers;
//!
//! let servers = parse_servers(["192.0.2.53", "[2001:db8::53]:5353"]).unwrap();
//! assert_eq!(servers[0].address().port(), 53);
//!
//! // A body that is not what its coding says is an error, never a shorter file.
//! let mut decoder = BodyDecoder::new(ContentCoding::Gzip);
//! assert_eq!(decoder.step(b"<html>", &mut [0; 64]), Err(DecodeError::Corrupt));
//! ```

#[cfg(feature = "service")]
pub mod audit;
pub mod body;
pub mod budget;
pub mod coding;
#[cfg(feature = "service")]
pub mod config;
pub mod credential;
pub mod dial;
pub mod error;
pub mod fetch;
pub mod freshness;
pub mod head;
pub mod hop;
#[cfg(feature = "service")]
pub mod interfaces;
pub mod label;
pub mod limits;
#[cfg(feature = "service")]
pub mod metrics;
#[cfg(feature = "service")]
pub mod policy_bucket;
#[cfg(feature = "service")]
pub mod policy_files;
pub mod proxy;
#[cfg(feature = "service")]
pub mod questions;
pub mod record;
#[cfg(feature = "service")]
mod reload;
#[cfg(feature = "service")]
pub mod resolve;
#[cfg(feature = "service")]
pub mod response_cache;
pub mod resume;
#[cfg(feature = "service")]
pub mod service;
pub mod sink;
#[cfg(feature = "service")]
pub mod staging;
pub mod tls;
mod validator;
pub mod wire;

#[cfg(feature = "service")]
pub use config::Config;
pub use fetch::{Fetcher, NetworkAccess};
#[cfg(feature = "service")]
pub use service::EgressFetcher;

#[cfg(test)]
mod tests;
