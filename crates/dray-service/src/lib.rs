//! The skeleton of every service of Drayage: configuration, telemetry, health, routing, start and stop.
//!
//! A service is a name, a configuration struct and handlers ([`Service`]). It has everything that is the same for all
//! services: configuration ([`config`]); logs, traces and metrics ([`telemetry`]); `/live`, `/ready` and `/metrics`
//! ([`health`]). [`Router`] serves one handler over the bus and over gRPC, with deadlines and concurrency limits, and
//! turns panics into faults. [`Host`] starts and stops everything in order.
//!
//! No static has state, so two complete systems can run in one process. The exception is the `tracing` subscriber,
//! which only [`main`] installs. The skeleton has no business rules, and talks to no server but the bus, the store and
//! the telemetry collector.
//!
//! ```no_run
//! use dray_service::{ServiceContext, Request, Router, Service, StartError, config};
//! # use dray_proto::v1::{FetchReply, FetchRequest};
//! # use dray_types::Fault;
//! # use std::sync::Arc;
//! #[derive(Clone, Default, serde::Serialize, serde::Deserialize, schemars::JsonSchema)]
//! #[serde(default)]
//! struct Config {
//!     /// Whether anything is fetched at all.
//!     enabled: bool,
//! }
//! impl config::Section for Config {}
//!
//! struct Fetcher;
//! impl Fetcher {
//!     async fn fetch(self: Arc<Self>, request: Request<FetchRequest>) -> Result<FetchReply, Fault> {
//!         # let _ = request;
//!         Ok(FetchReply::default())
//!     }
//! }
//! impl Service for Fetcher {
//!     const NAME: &'static str = "fetcher";
//!     type Config = Config;
//!     async fn start(_config: Config, _cx: &ServiceContext) -> Result<Self, StartError> {
//!         Ok(Self)
//!     }
//!     fn routes(router: Router<Self>) -> Router<Self> {
//!         router.answer(Self::fetch)
//!     }
//! }
//!
//! fn main() -> std::process::ExitCode {
//!     dray_service::main::<Fetcher>()
//! }
//! ```

mod certificate_expiry;
pub mod config;
mod context;
pub mod der;
mod edge;
mod grpc;
pub mod health;
pub mod host;
mod listener;
pub mod provision;
pub mod reload;
mod replaceable;
pub mod router;
mod service;
pub mod settings;
pub mod stop_signals;
mod sweeper;
pub mod telemetry;
#[cfg(test)]
mod tests;
pub mod web;

pub use context::{ListenAddresses, ListenerTasks, ServiceContext};
pub use edge::{ExitStatus, main, run_host, serve_until_signal, serve_with};
pub use grpc::{
    ReflectionError, SecurityFileError, certificate_expiry_seconds, check_grpc_files, fault_of,
    status_of,
};
pub use host::{Host, HostError, RunningHost, ServicePlan, container_memory_limit};
pub use listener::NoDelayListener;
pub use replaceable::ReplaceableValue;
pub use router::{ReplyChunks, Request, Router, release_permit_while};
pub use service::{Service, StartError};
pub use settings::Settings;
pub use sweeper::SweeperService;
