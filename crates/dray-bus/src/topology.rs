//! Streams and durable consumers: the required configuration as data, provisioning, and verification.
//!
//! Services only verify; `apply` belongs to the provisioning job and to the one-machine mode
//! (messaging-reliability 3.1 to 3.3).

mod contracts;
mod provision;
mod reference;
mod sizing;
mod standard;
mod verify;

use std::time::Duration;

pub use contracts::{SubjectContract, SubjectKind, subject_contracts};
pub use reference::reference_markdown;
pub use sizing::{StreamChange, StreamSizing, TopologyUpdate, TopologyUpdateError};
pub use standard::DEFAULT_STORE;
pub(crate) use standard::publisher_filter;
pub use verify::{TopologyMismatch, call_subjects};

use crate::error::TransportError;

/// Stream of work, kept for six hours and not only until it is acknowledged (3.1).
pub const WORK_STREAM: &str = "DRAY_WORK";
/// Stream of result and progress events.
pub const EVENT_STREAM: &str = "DRAY_EVENT";
/// Stream of messages that no attempt could handle, each with its cause.
pub const DEAD_LETTER_STREAM: &str = "DRAY_DEAD";
/// Stream of audit events.
pub const AUDIT_STREAM: &str = "DRAY_AUDIT";
/// Stream that keeps the server's advisories.
pub const ADVISORY_STREAM: &str = "DRAY_ADVISORY";
/// Stream behind the ledger bucket.
pub const LEDGER_STREAM: &str = "KV_dray_ledger";
/// Stream of the session bindings: the sandbox and the chat of each session.
pub const SESSION_STREAM: &str = "KV_dray_sessions";
/// Stream of the uploads of each session.
pub const UPLOAD_STREAM: &str = "KV_dray_uploads";
/// Stream of the outcome of each delivery.
pub const DELIVERY_STREAM: &str = "KV_dray_deliveries";
/// Stream of data about platforms: limits, file ids, positions in their feeds.
pub const PLATFORM_STREAM: &str = "KV_dray_platform";
/// Stream of tickets: single-use URLs, and records of the bytes that were received with them.
pub const TICKET_STREAM: &str = "KV_dray_tickets";
/// Stream of the questions about hosts and their answers (egress-fetcher).
pub const EGRESS_QUESTION_STREAM: &str = "KV_dray_egress_questions";
/// Stream of the policy files of egress that are kept on the bus.
pub const EGRESS_POLICY_STREAM: &str = "KV_dray_egress_policy";
/// Stream of the stored responses of fetches.
pub const EGRESS_CACHE_STREAM: &str = "KV_dray_egress_cache";
/// Stream of the records that name the stored conversions of documents.
pub const CONVERSION_STREAM: &str = "KV_dray_conversions";
/// Stream of the data that the orchestrator stores for its clients: files, responses and conversations of `OpenAI`'s
/// API.
pub const CLIENT_STATE_STREAM: &str = "KV_dray_client_state";
/// Durable with which the sweeper reads work.
pub const SWEEPER_WORK: &str = "sweeper-work";
/// Durable with which the sweeper reads advisories.
pub const SWEEPER_ADVISORY: &str = "sweeper-advisory";

/// The policy of a stream that has reached its limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FullStreamPolicy {
    /// Refuses new messages, which is how publishers learn that it is full (F-4).
    New,
    /// Drops the oldest messages and never refuses a new one.
    Old,
}

/// When a stream removes messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StreamRetention {
    /// Only by its limits, as in every stream here (3.1).
    Limits,
    /// Removes a message at the limits, and when no consumer is interested in it.
    Interest,
    /// Removes a message at the limits, and as soon as a consumer has acknowledged it; deduplication then forgets it
    /// too (F-11).
    WorkQueue,
}

/// One stream's configuration: the fields that the services depend on.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "the server's own switches, compared one by one"
)]
pub struct StreamSpec {
    /// Name on the server.
    pub name: String,
    /// Subjects it captures; subjects of streams must not overlap and must not include a call (F-17).
    pub subjects: Vec<String>,
    /// The rule by which messages are removed.
    pub retention: StreamRetention,
    /// The policy at its limit.
    pub discard: FullStreamPolicy,
    /// Age at which messages are dropped; zero for no limit.
    pub max_age: Duration,
    /// How long a message id is remembered.
    pub duplicate_window: Duration,
    /// Largest message, headers included, in bytes.
    pub max_message_size: u32,
    /// Most bytes of all messages together.
    pub max_bytes: u64,
    /// Most messages on one subject; 0 for no bound.
    pub max_per_subject: u64,
    /// Copies on different servers.
    pub replicas: usize,
    /// Whether single messages can be read without the leader (key-value).
    pub allow_direct: bool,
    /// Whether publishers may erase with a rollup header; always false (F-16).
    pub allow_rollup: bool,
    /// Whether deleting single messages is refused.
    pub deny_delete: bool,
    /// Whether purging is refused.
    pub deny_purge: bool,
}

/// One durable pull consumer's configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConsumerSpec {
    /// Name of the stream it reads.
    pub stream: String,
    /// Durable name, shared by all replicas of a service.
    pub durable: String,
    /// Subject filter; empty for all subjects of the stream.
    pub filter: String,
    /// Time after which an unacknowledged message is handed out again.
    pub ack_wait: Duration,
    /// Most messages handed out and not acknowledged.
    pub max_ack_pending: u64,
    /// Most messages per pull.
    pub max_batch: u64,
    /// Most deliveries of one message; -1 for no bound.
    pub max_deliver: i64,
    /// Whether each message is acknowledged individually; always true.
    pub ack_explicit: bool,
    /// Steps that would replace `ack_wait` (F-7); always empty.
    pub backoff: Vec<Duration>,
    /// Other settings that are not at their defaults, such as `headers_only`; always empty.
    pub other_settings: Vec<&'static str>,
}

/// Present state of a stream.
#[derive(Clone, Debug)]
pub struct StreamState {
    /// The stream's configuration as read back.
    pub spec: StreamSpec,
    /// Messages that the stream contains.
    pub messages: u64,
    /// Total bytes of its messages.
    pub bytes: u64,
    /// Sequence of the oldest message.
    pub first_sequence: u64,
    /// Sequence of the newest message.
    pub last_sequence: u64,
}

/// Present state of a consumer.
#[derive(Clone, Debug)]
pub struct ConsumerState {
    /// The consumer's configuration as read back.
    pub spec: ConsumerSpec,
    /// Messages not handed out yet.
    pub pending: u64,
    /// Messages handed out and not acknowledged.
    pub ack_pending: u64,
    /// Every message up to this stream sequence is acknowledged.
    pub ack_floor: u64,
    /// Unix milliseconds of the last delivery, redeliveries included; `None` when there was none since the start of the
    /// server.
    pub last_delivery_ms: Option<u64>,
}

/// How full a stream is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StreamUsage {
    /// Name of the stream.
    pub stream: String,
    /// Total bytes of its messages.
    pub bytes: u64,
    /// Its limit; never 0.
    pub max_bytes: u64,
    /// What it does when it is full.
    pub when_full: FullStreamPolicy,
}

/// What a comparison of the topology found.
#[derive(Clone, Debug)]
pub struct TopologyInspection {
    /// Differences from the required configuration.
    pub mismatches: Vec<TopologyMismatch>,
    /// The streams that have a limit.
    pub usage: Vec<StreamUsage>,
}

/// A set of streams and consumers.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Topology {
    /// Streams, in the order in which they are provisioned.
    pub streams: Vec<StreamSpec>,
    /// Durable consumers, provisioned after the streams.
    pub consumers: Vec<ConsumerSpec>,
}

/// The reason why the topology could not be read or created.
#[derive(Debug, thiserror::Error)]
#[error("could not read or change `{object}`")]
pub struct TopologyError {
    /// The stream or consumer.
    pub object: String,
    /// The cause.
    #[source]
    pub source: TransportError,
}

impl StreamUsage {
    /// The used part of the limit; 1 for a full stream.
    #[expect(
        clippy::cast_precision_loss,
        reason = "a share needs no exact number of bytes"
    )]
    pub fn ratio(&self) -> f64 {
        self.bytes as f64 / self.max_bytes as f64
    }
}

impl ConsumerSpec {
    /// `<stream>/<durable>`, as errors and mismatches name it.
    pub(crate) fn object(&self) -> String {
        format!("{}/{}", self.stream, self.durable)
    }
}
