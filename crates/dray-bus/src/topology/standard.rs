//! The streams and consumers of messaging-reliability 3.1 and 3.3. Which service uses which follows from what it
//! declares: see [`crate::Permissions`].

use std::time::Duration;

use dray_types::TenantId;

use super::{
    ADVISORY_STREAM, AUDIT_STREAM, CONVERSION_STREAM, ConsumerSpec, DEAD_LETTER_STREAM,
    DELIVERY_STREAM, EVENT_STREAM, FullStreamPolicy, LEDGER_STREAM, PLATFORM_STREAM,
    SESSION_STREAM, SWEEPER_ADVISORY, SWEEPER_WORK, StreamRetention, StreamSpec, Topology,
    UPLOAD_STREAM, WORK_STREAM,
};

const MINUTE_SECONDS: u64 = 60;
const HOUR_SECONDS: u64 = 60 * MINUTE_SECONDS;
const DAY_SECONDS: u64 = 24 * HOUR_SECONDS;
const KIB_BYTES: u32 = 1024;

/// What is said of a stream in the table: name, subjects, discard, age and window in seconds, message size,
/// share of the store in percent.
struct StreamRow(
    &'static str,
    &'static [&'static str],
    FullStreamPolicy,
    u64,
    u64,
    u32,
    u64,
);

/// All shares together stay below 70 % of the store.
///
/// The ledger takes messages of 256 KiB, not 64: an entry holds the event that is to be published, and an event
/// may carry 64 KiB of content (docs/decisions/bus-ledger-entry-size.md).
const STREAM_ROWS: [StreamRow; 11] = [
    StreamRow(
        WORK_STREAM,
        &["dray.work.>"],
        FullStreamPolicy::New,
        6 * HOUR_SECONDS,
        30 * MINUTE_SECONDS,
        256 * KIB_BYTES,
        18,
    ),
    StreamRow(
        EVENT_STREAM,
        &["dray.event.>"],
        FullStreamPolicy::Old,
        72 * HOUR_SECONDS,
        30 * MINUTE_SECONDS,
        256 * KIB_BYTES,
        15,
    ),
    StreamRow(
        DEAD_LETTER_STREAM,
        &["dray.dead.>"],
        FullStreamPolicy::New,
        14 * DAY_SECONDS,
        24 * HOUR_SECONDS,
        512 * KIB_BYTES,
        8,
    ),
    StreamRow(
        AUDIT_STREAM,
        &["dray.audit.>"],
        FullStreamPolicy::Old,
        30 * DAY_SECONDS,
        30 * MINUTE_SECONDS,
        64 * KIB_BYTES,
        8,
    ),
    StreamRow(
        ADVISORY_STREAM,
        &[
            "$JS.EVENT.ADVISORY.CONSUMER.MAX_DELIVERIES.>",
            "$JS.EVENT.ADVISORY.CONSUMER.MSG_TERMINATED.>",
        ],
        FullStreamPolicy::Old,
        14 * DAY_SECONDS,
        2 * MINUTE_SECONDS,
        64 * KIB_BYTES,
        2,
    ),
    StreamRow(
        LEDGER_STREAM,
        &["$KV.dray_ledger.>"],
        FullStreamPolicy::New,
        72 * HOUR_SECONDS,
        2 * MINUTE_SECONDS,
        256 * KIB_BYTES,
        8,
    ),
    StreamRow(
        SESSION_STREAM,
        &["$KV.dray_sessions.>"],
        FullStreamPolicy::New,
        90 * DAY_SECONDS,
        2 * MINUTE_SECONDS,
        64 * KIB_BYTES,
        2,
    ),
    StreamRow(
        UPLOAD_STREAM,
        &["$KV.dray_uploads.>"],
        FullStreamPolicy::New,
        14 * DAY_SECONDS,
        2 * MINUTE_SECONDS,
        256 * KIB_BYTES,
        2,
    ),
    StreamRow(
        DELIVERY_STREAM,
        &["$KV.dray_deliveries.>"],
        FullStreamPolicy::New,
        14 * DAY_SECONDS,
        2 * MINUTE_SECONDS,
        256 * KIB_BYTES,
        4,
    ),
    StreamRow(
        PLATFORM_STREAM,
        &["$KV.dray_platform.>"],
        FullStreamPolicy::New,
        30 * DAY_SECONDS,
        2 * MINUTE_SECONDS,
        64 * KIB_BYTES,
        1,
    ),
    StreamRow(
        CONVERSION_STREAM,
        &["$KV.dray_conversions.>"],
        FullStreamPolicy::Old,
        DAY_SECONDS,
        2 * MINUTE_SECONDS,
        4 * KIB_BYTES,
        1,
    ),
];

/// Stream, durable, filter, `ack_wait` in seconds, `max_ack_pending`, `max_batch`, `max_deliver`.
type ConsumerRow = (&'static str, &'static str, &'static str, u64, u64, u64, i64);

/// Seconds after which work is handed out again whose worker gives no sign of life. Workers give one every third of
/// it, so this bounds the recovery from a killed worker and not the time that work may take.
const ACK_WAIT: u64 = 6;
/// Deliveries after which the server gives a message up. Only a fuse: attempts are counted in the ledger, and work that
/// is parked is handed out about every 7 s until its deadline, at most an hour.
const MAX_DELIVER: i64 = 1_000;

/// How long a publisher may take to acknowledge an event; it gives no signs of life.
const PUBLISHER_ACK_WAIT: Duration = Duration::from_secs(30);

const CONSUMER_ROWS: [ConsumerRow; 14] = [
    (
        WORK_STREAM,
        "file-resolver",
        "dray.work.toolcall.>",
        ACK_WAIT,
        256,
        32,
        MAX_DELIVER,
    ),
    (
        WORK_STREAM,
        "sandbox-transfer",
        "dray.work.sandbox.>",
        ACK_WAIT,
        128,
        16,
        MAX_DELIVER,
    ),
    (
        WORK_STREAM,
        "platform-delivery",
        "dray.work.delivery.>",
        ACK_WAIT,
        64,
        8,
        MAX_DELIVER,
    ),
    platform_row(
        "platform-delivery-telegram",
        "dray.work.delivery-telegram.>",
    ),
    platform_row("platform-delivery-discord", "dray.work.delivery-discord.>"),
    platform_row("platform-delivery-slack", "dray.work.delivery-slack.>"),
    platform_row(
        "platform-delivery-whatsapp",
        "dray.work.delivery-whatsapp.>",
    ),
    platform_row("platform-delivery-matrix", "dray.work.delivery-matrix.>"),
    platform_row("platform-delivery-email", "dray.work.delivery-email.>"),
    platform_row("platform-delivery-webhook", "dray.work.delivery-webhook.>"),
    platform_row("platform-delivery-cli", "dray.work.delivery-cli.>"),
    (
        WORK_STREAM,
        "inbound",
        "dray.work.inbound.>",
        ACK_WAIT,
        64,
        8,
        MAX_DELIVER,
    ),
    (WORK_STREAM, SWEEPER_WORK, "dray.work.>", 60, 256, 64, -1),
    (ADVISORY_STREAM, SWEEPER_ADVISORY, "", 60, 256, 64, -1),
];

/// One platform's queue of deliveries.
const fn platform_row(durable: &'static str, filter: &'static str) -> ConsumerRow {
    (WORK_STREAM, durable, filter, ACK_WAIT, 64, 8, MAX_DELIVER)
}

/// Bytes of store for which streams are sized unless set otherwise.
pub const DEFAULT_STORE: u64 = 4 * 1024 * 1024 * 1024;

impl Topology {
    /// Everything, with `replicas` copies, sized for a store of `store_bytes`.
    pub fn new(replicas: usize, store_bytes: u64) -> Self {
        Self {
            streams: STREAM_ROWS
                .iter()
                .map(|row| row.spec(replicas, store_bytes))
                .collect(),
            consumers: CONSUMER_ROWS.iter().map(consumer_spec).collect(),
        }
    }

    /// The same with a durable consumer of events for each tenant whose publisher reads its outcomes from one. It gets
    /// what was published while the publisher was away, as long as the event stream keeps it.
    #[must_use]
    pub fn with_publishers(mut self, tenants: &[TenantId]) -> Self {
        self.consumers
            .extend(tenants.iter().map(|tenant| ConsumerSpec {
                stream: EVENT_STREAM.to_owned(),
                durable: format!("publisher-{}", tenant.token()),
                filter: format!("dray.event.toolcall.v1.*.{}", tenant.token()),
                ack_wait: PUBLISHER_ACK_WAIT,
                max_ack_pending: 512,
                max_batch: 64,
                max_deliver: -1,
                ack_explicit: true,
                backoff: Vec::new(),
            }));
        self
    }
}

impl Default for Topology {
    /// One copy, for one machine.
    fn default() -> Self {
        Self::new(1, DEFAULT_STORE)
    }
}

impl StreamRow {
    fn spec(&self, replicas: usize, store_bytes: u64) -> StreamSpec {
        let Self(name, subjects, discard, age, window, message, share) = *self;
        let is_bucket = name.starts_with("KV_");
        StreamSpec {
            name: name.to_owned(),
            subjects: subjects.iter().map(|&subject| subject.to_owned()).collect(),
            retention: StreamRetention::Limits,
            discard,
            max_age: Duration::from_secs(age),
            duplicate_window: Duration::from_secs(window),
            max_message_size: message,
            max_bytes: store_bytes / 100 * share,
            max_per_subject: u64::from(is_bucket),
            replicas,
            allow_direct: is_bucket,
            allow_rollup: false,
            deny_delete: true,
            deny_purge: true,
        }
    }
}

fn consumer_spec(line: &ConsumerRow) -> ConsumerSpec {
    let (stream, durable, filter, ack_wait, max_ack_pending, max_batch, max_deliver) = *line;
    ConsumerSpec {
        stream: stream.to_owned(),
        durable: durable.to_owned(),
        filter: filter.to_owned(),
        ack_wait: Duration::from_secs(ack_wait),
        max_ack_pending,
        max_batch,
        max_deliver,
        ack_explicit: true,
        backoff: Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_bounds_together_stay_below_seventy_percent_of_the_store() {
        let store = 1_000_000;
        let sum: u64 = Topology::new(3, store)
            .streams
            .iter()
            .map(|spec| spec.max_bytes)
            .sum();
        assert!(sum < store / 10 * 7, "{sum}");
    }

    #[test]
    fn no_stream_can_be_erased_by_a_publisher() {
        for spec in Topology::default().streams {
            assert!(
                !spec.allow_rollup && spec.deny_delete && spec.deny_purge,
                "{}",
                spec.name
            );
            assert!(spec.duplicate_window <= spec.max_age && spec.max_bytes > 0);
        }
    }

    #[test]
    fn a_publisher_reads_the_events_of_its_own_tenant_only() {
        let tenants = [
            TenantId::new("acme").unwrap(),
            TenantId::new("Acme").unwrap(),
        ];
        let plain = Topology::default();
        let with = Topology::default().with_publishers(&tenants);
        let (_, added) = with.consumers.split_at(plain.consumers.len());
        let [acme, mapped] = added else {
            panic!("{added:?}");
        };
        assert_eq!(
            (acme.durable.as_str(), acme.filter.as_str()),
            ("publisher-acme", "dray.event.toolcall.v1.*.acme")
        );
        assert!(mapped.filter.ends_with(&tenants[1].token()), "{mapped:?}");
        assert!(!mapped.filter.contains("Acme"), "{mapped:?}");
    }
}
