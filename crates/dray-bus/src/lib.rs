//! One handle for all communication between services: [`Bus`].
//!
//! - *Calls* ([`Bus::call`], [`Bus::respond_to`]): a caller waits; retried inside the deadline.
//! - *Work* ([`Bus::publish_work`], [`Bus::work`]): must not be lost: delivered at least once, with effects that count
//!   once, with a [`Ledger`], bounded attempts and [`DeadLetters`].
//! - *Events* and *audit events* ([`Bus::publish_event`], [`Bus::publish_audit`], [`Bus::events`]): facts about the
//!   past.
//! - [`KeyValue`] with compare-and-set.
//!
//! Two backends behind the handle, NATS with JetStream and one inside the process, behave the same: one conformance
//! suite runs on both. The specification is messaging-reliability; docs/messaging.md is the page for operators.
//!
//! What it does not do: it runs no business logic, limits no concurrency of responders and sets up no telemetry (that
//! is `dray-service`). It keeps no outbox either: a publisher that must not lose an operation has to store it.
//!
//! ```
//! use dray_bus::{Bus, Topology};
//! use opentelemetry::metrics::MeterProvider as _;
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let meter = opentelemetry::metrics::noop::NoopMeterProvider::new().meter("example");
//! let bus = Bus::in_process(dray_types::Clock::system(), &meter);
//! assert!(bus.apply_topology(&Topology::default()).await?.is_empty());
//!
//! let keys = bus.key_value("dray_sessions");
//! let revision = keys.create("acme.chat-1", "sandbox-7".into()).await?;
//! keys.update("acme.chat-1", "sandbox-8".into(), revision).await?;
//! assert!(keys.delete("acme.chat-1", revision).await.is_err(), "the key has another revision now");
//! # Ok(())
//! # }
//! ```

mod backend;
mod backoff;
mod bus;
mod bus_core;
mod call;
mod cloud_event;
#[cfg(test)]
mod conformance;
pub mod dead;
pub mod error;
pub mod events;
pub mod headers;
mod health;
mod ids;
pub mod key_value;
pub mod ledger;
mod meta;
mod metrics;
#[cfg(test)]
mod model;
mod options;
pub mod permissions;
mod publish;
mod readiness;
mod responder;
pub mod rules;
mod subject;
mod sweeper;
#[cfg(feature = "test-bus")]
pub mod test_bus;
pub mod topology;
pub mod trace;
pub mod work;

pub use backend::nats::NatsIdentity;
pub use bus::Bus;
pub use dead::DeadLetters;
pub use error::{
    CallError, ConnectError, ProbeError, PublishError, SubscribeError, TransportError, WorkError,
};
pub use events::{EventFilter, EventStream, ObservedEvent};
pub use headers::MessageHeaders;
pub use key_value::{KeyError, KeyListing, KeyValue, KeyValueChange, KeyWatch};
pub use ledger::{Ledger, LedgerError, LedgerKey};
pub use meta::{InvalidEnvelope, Meta};
pub use options::NatsOptions;
pub use permissions::Permissions;
pub use publish::PublishReceipt;
pub use responder::{CallerGone, IncomingRequest, RESPONDER_MARGIN, ReplyStream, Responder};
pub use sweeper::{SweepReport, WorkSweeper};
pub use topology::{
    StreamChange, StreamSizing, StreamUsage, Topology, TopologyError, TopologyInspection,
    TopologyMismatch, TopologyUpdate, TopologyUpdateError,
};
pub use work::{WorkCompleted, WorkDelivery, WorkFailure, WorkHandler, WorkSettings, parks_work};
