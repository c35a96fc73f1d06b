//! Reads and provisions streams and durables.

use async_nats::jetstream::consumer::{AckPolicy, Consumer, DeliverPolicy, ReplayPolicy, pull};
use async_nats::jetstream::context::GetStreamErrorKind;
use async_nats::jetstream::stream::{
    Config, ConsumerError, ConsumerErrorKind, DiscardPolicy, RetentionPolicy, StorageType,
};
use async_nats::jetstream::{ErrorCode, context::GetStreamError};

use super::{NatsBackend, unix_millis};
use crate::error::TransportError;
use crate::topology::{
    ConsumerSpec, ConsumerState, FullStreamPolicy, StreamRetention, StreamSpec, StreamState,
};

impl NatsBackend {
    pub(crate) async fn stream(&self, name: &str) -> Result<Option<StreamState>, TransportError> {
        let subject = format!("$JS.API.STREAM.INFO.{name}");
        let found = self.context.get_stream(name);
        let found = tokio::select! {
            found = found => found,
            // A refused request is not an error to the client: it would time out, and its violation
            // arrives as an event.
            () = self.health.refusal_of(&subject) => return Err(TransportError::Denied(subject)),
        };
        match found {
            Ok(handle) => {
                let info = handle.cached_info();
                Ok(Some(StreamState {
                    spec: stream_spec(&info.config),
                    messages: info.state.messages,
                    bytes: info.state.bytes,
                    first_sequence: info.state.first_sequence,
                    last_sequence: info.state.last_sequence,
                }))
            }
            Err(error) => absent_or(error),
        }
    }

    pub(super) async fn find_consumer(
        &self,
        stream: &str,
        durable: &str,
    ) -> Result<Option<Consumer<pull::Config>>, TransportError> {
        let subject = format!("$JS.API.CONSUMER.INFO.{stream}.{durable}");
        let found = self.context.get_consumer_from_stream(durable, stream);
        let found: Result<Consumer<pull::Config>, _> = tokio::select! {
            found = found => found,
            () = self.health.refusal_of(&subject) => return Err(TransportError::Denied(subject)),
        };
        match found {
            Ok(consumer) => Ok(Some(consumer)),
            Err(error) => absent_consumer_or(error),
        }
    }

    pub(crate) async fn consumer(
        &self,
        stream: &str,
        durable: &str,
    ) -> Result<Option<ConsumerState>, TransportError> {
        let found = self.find_consumer(stream, durable).await?;
        Ok(found.map(|consumer| {
            let info = consumer.cached_info();
            ConsumerState {
                spec: consumer_spec(stream, durable, &info.config),
                pending: info.num_pending,
                ack_pending: info.num_ack_pending as u64,
                ack_floor: info.ack_floor.stream_sequence,
                last_delivery_ms: info.delivered.last_active.map(unix_millis),
            }
        }))
    }

    pub(crate) async fn provision_stream(&self, spec: &StreamSpec) -> Result<(), TransportError> {
        let requested = stream_config(spec);
        // Creating a stream that exists with another configuration is an error, unlike creating a consumer (F-6).
        if self.stream(&spec.name).await?.is_some() {
            self.context
                .update_stream(requested)
                .await
                .map_err(TransportError::other)?;
        } else {
            self.context
                .create_stream(requested)
                .await
                .map_err(TransportError::other)?;
        }
        Ok(())
    }

    /// Creates the consumer, or updates it if it exists (F-6).
    pub(crate) async fn provision_consumer(
        &self,
        spec: &ConsumerSpec,
    ) -> Result<(), TransportError> {
        self.context
            .create_consumer_on_stream(consumer_config(spec), &spec.stream)
            .await
            .map(|_| ())
            .map_err(TransportError::other)
    }
}

fn absent_or<T>(error: GetStreamError) -> Result<Option<T>, TransportError> {
    match error.kind() {
        GetStreamErrorKind::JetStream(cause)
            if cause.error_code() == ErrorCode::STREAM_NOT_FOUND =>
        {
            Ok(None)
        }
        GetStreamErrorKind::JetStream(cause) => Err(TransportError::other(cause)),
        GetStreamErrorKind::EmptyName
        | GetStreamErrorKind::Request
        | GetStreamErrorKind::InvalidStreamName => Err(TransportError::other(error)),
    }
}

fn absent_consumer_or<T>(error: ConsumerError) -> Result<Option<T>, TransportError> {
    match error.kind() {
        ConsumerErrorKind::JetStream(cause)
            if matches!(
                cause.error_code(),
                // Without its stream a consumer is absent too; verification names the missing stream by itself.
                ErrorCode::CONSUMER_NOT_FOUND | ErrorCode::STREAM_NOT_FOUND
            ) =>
        {
            Ok(None)
        }
        ConsumerErrorKind::JetStream(cause) => Err(TransportError::other(cause)),
        ConsumerErrorKind::TimedOut => Err(TransportError::TimedOut),
        _ => Err(TransportError::other(error)),
    }
}

fn to_unsigned(count: i64) -> u64 {
    u64::try_from(count).unwrap_or(0)
}

fn to_signed(count: u64) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

fn stream_config(spec: &StreamSpec) -> Config {
    Config {
        name: spec.name.clone(),
        subjects: spec.subjects.clone(),
        retention: match spec.retention {
            StreamRetention::Limits => RetentionPolicy::Limits,
            StreamRetention::Interest => RetentionPolicy::Interest,
            StreamRetention::WorkQueue => RetentionPolicy::WorkQueue,
        },
        discard: match spec.discard {
            FullStreamPolicy::New => DiscardPolicy::New,
            FullStreamPolicy::Old => DiscardPolicy::Old,
        },
        // The setting is written out although it is the default: acknowledged messages survive the end of the server
        // process (F-2).
        storage: StorageType::File,
        max_age: spec.max_age,
        duplicate_window: spec.duplicate_window,
        max_message_size: i32::try_from(spec.max_message_size).unwrap_or(i32::MAX),
        max_bytes: to_signed(spec.max_bytes),
        max_messages_per_subject: to_signed(spec.max_per_subject),
        num_replicas: spec.replicas,
        allow_direct: spec.allow_direct,
        allow_rollup: spec.allow_rollup,
        deny_delete: spec.deny_delete,
        deny_purge: spec.deny_purge,
        // Every field that a 2.9 server does not support stays unset; it would be ignored without an error (F-5).
        ..Config::default()
    }
}

fn stream_spec(config: &Config) -> StreamSpec {
    StreamSpec {
        name: config.name.clone(),
        subjects: config.subjects.clone(),
        retention: match config.retention {
            RetentionPolicy::Limits => StreamRetention::Limits,
            RetentionPolicy::Interest => StreamRetention::Interest,
            RetentionPolicy::WorkQueue => StreamRetention::WorkQueue,
        },
        discard: match config.discard {
            DiscardPolicy::New => FullStreamPolicy::New,
            DiscardPolicy::Old => FullStreamPolicy::Old,
        },
        max_age: config.max_age,
        duplicate_window: config.duplicate_window,
        max_message_size: u32::try_from(config.max_message_size).unwrap_or(0),
        max_bytes: to_unsigned(config.max_bytes),
        max_per_subject: to_unsigned(config.max_messages_per_subject),
        replicas: config.num_replicas,
        allow_direct: config.allow_direct,
        allow_rollup: config.allow_rollup,
        deny_delete: config.deny_delete,
        deny_purge: config.deny_purge,
    }
}

fn consumer_config(spec: &ConsumerSpec) -> pull::Config {
    pull::Config {
        durable_name: Some(spec.durable.clone()),
        ack_policy: if spec.ack_explicit {
            AckPolicy::Explicit
        } else {
            // Only tests of the verification create such a consumer. All consumers of services acknowledge explicitly.
            AckPolicy::All
        },
        ack_wait: spec.ack_wait,
        filter_subject: spec.filter.clone(),
        max_ack_pending: to_signed(spec.max_ack_pending),
        max_batch: to_signed(spec.max_batch),
        max_deliver: spec.max_deliver,
        backoff: spec.backoff.clone(),
        ..pull::Config::default()
    }
}

fn consumer_spec(
    stream: &str,
    durable: &str,
    config: &async_nats::jetstream::consumer::Config,
) -> ConsumerSpec {
    ConsumerSpec {
        stream: stream.to_owned(),
        durable: durable.to_owned(),
        filter: config.filter_subject.clone(),
        ack_wait: config.ack_wait,
        max_ack_pending: to_unsigned(config.max_ack_pending),
        max_batch: to_unsigned(config.max_batch),
        max_deliver: config.max_deliver,
        ack_explicit: config.ack_policy == AckPolicy::Explicit,
        backoff: config.backoff.clone(),
        other_settings: other_settings(durable, config),
    }
}

/// The settings that this crate never sets and that change which messages a consumer delivers, to whom or how often.
fn other_settings(
    durable: &str,
    config: &async_nats::jetstream::consumer::Config,
) -> Vec<&'static str> {
    // A server writes this number when none is requested.
    const DEFAULT_MAX_WAITING: i64 = 512;
    let is_default = [
        (
            "durable_name",
            config.durable_name.as_deref() == Some(durable),
        ),
        ("deliver_subject", config.deliver_subject.is_none()),
        ("deliver_group", config.deliver_group.is_none()),
        (
            "deliver_policy",
            config.deliver_policy == DeliverPolicy::All,
        ),
        (
            "replay_policy",
            config.replay_policy == ReplayPolicy::Instant,
        ),
        ("rate_limit_bps", config.rate_limit == 0),
        ("headers_only", !config.headers_only),
        ("flow_control", !config.flow_control),
        ("idle_heartbeat", config.idle_heartbeat.is_zero()),
        ("inactive_threshold", config.inactive_threshold.is_zero()),
        (
            "max_waiting",
            [0, DEFAULT_MAX_WAITING].contains(&config.max_waiting),
        ),
        ("max_bytes", config.max_bytes == 0),
        ("max_expires", config.max_expires.is_zero()),
        ("mem_storage", !config.memory_storage),
    ];
    let others = is_default.into_iter().filter(|(_, is_default)| !is_default);
    others.map(|(name, _)| name).collect()
}
