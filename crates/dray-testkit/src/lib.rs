//! Test support: small servers and programs with injected faults. This crate is not part of the product.
//!
//! - Servers with scripts: [`http::FakeHttpServer`], [`dns::FakeDnsServer`], [`dial::DialCore`] for DIAL's files API,
//!   [`rehearsal::RehearsalServer`] for a model. Each records its requests.
//! - Manifests of agents: [`agent::agent_manifest`], [`agent::write_manifests`].
//! - A collector of OpenTelemetry: [`otlp::SpanCollector`].
//! - A proxy with faults: [`s3::FaultyS3`].
//! - Real programs with their own data and ports: [`nats::NatsServer`], [`sshd::Sshd`], [`docker::DockerEngine`].
//! - [`tls::Authority`] signs certificates, [`python`] and [`kubectl`] run clients of vendors, [`eventually`] waits for a condition.
//!
//! No server of this crate is complete, or safe to use beyond loopback. A fixture that cannot be created makes the test
//! fail.
//!
//! ```
//! use dray_testkit::http::{FakeHttpServer, ResponseScript, ScriptedResponder};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> std::io::Result<()> {
//! let server = FakeHttpServer::start(ScriptedResponder::always(ResponseScript::status(503))).await?;
//! let url = format!("http://{}/report", server.address());
//! // The code under test requests `url` here.
//! assert!(url.starts_with("http://127.0.0.1:") && server.received_requests().is_empty());
//! # Ok(())
//! # }
//! ```

pub mod agent;
pub mod dial;
pub mod dns;
pub mod docker;
pub mod egress;
pub mod files;
pub mod http;
pub mod kubectl;
mod listen;
pub mod nats;
pub mod node;
pub mod otlp;
pub mod port;
pub mod python;
pub mod rehearsal;
pub mod s3;
pub mod sshd;
pub mod tls;
mod wait;

pub use wait::{eventually, eventually_within};
