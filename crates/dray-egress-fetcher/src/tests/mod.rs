//! Tests of the whole pipeline in an in-memory network with paused time. Tests that use a socket say so.

mod asked;
#[cfg(feature = "service")]
mod audit;
#[cfg(feature = "service")]
mod audited;
mod body;
#[cfg(feature = "service")]
mod broken;
#[cfg(feature = "service")]
mod cached;
mod connection;
mod deadline;
mod endings;
#[cfg(feature = "service")]
mod explained;
pub(crate) mod fake_network;
mod http2;
mod http2_servers;
mod load;
mod messages;
#[cfg(feature = "service")]
mod nginx;
#[cfg(feature = "service")]
mod origins;
mod policy;
mod policy_audit;
mod redirect;
mod resolution;
mod retry;
mod robots;
mod ruled;
#[cfg(feature = "service")]
mod service;
#[cfg(feature = "service")]
mod start;
#[cfg(feature = "service")]
pub(crate) mod test_service;
