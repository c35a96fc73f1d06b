//! The streams and consumers of messaging-reliability 3.1 and 3.3. The queues of work come from [`dray_proto::queue`];
//! the streams of a service follow from its declaration, [`crate::Permissions`].

use std::time::Duration;

use dray_proto::queue::{WorkQueue, work_queues};
use dray_types::TenantId;

use super::{
    ADVISORY_STREAM, AUDIT_STREAM, CLIENT_STATE_STREAM, CONVERSION_STREAM, ConsumerSpec,
    DEAD_LETTER_STREAM, DELIVERY_STREAM, EGRESS_CACHE_STREAM, EGRESS_POLICY_STREAM,
    EGRESS_QUESTION_STREAM, EVENT_STREAM, FullStreamPolicy, LEDGER_STREAM, PLATFORM_STREAM,
    SESSION_STREAM, SWEEPER_ADVISORY, SWEEPER_WORK, StreamRetention, StreamSpec, TICKET_STREAM,
    Topology, UPLOAD_STREAM, WORK_STREAM,
};

const MINUTE_SECONDS: u64 = 60;
const HOUR_SECONDS: u64 = 60 * MINUTE_SECONDS;
const DAY_SECONDS: u64 = 24 * HOUR_SECONDS;
const KIB_BYTES: u32 = 1024;

/// One stream as it is in the table.
struct StreamRow {
    name: &'static str,
    subjects: &'static [&'static str],
    when_full: FullStreamPolicy,
    max_age_seconds: u64,
    duplicate_window_seconds: u64,
    /// Largest message, headers included.
    max_message_bytes: u32,
    /// Share of the whole store, in thousandths.
    store_permille: u64,
}

/// All shares together take at most 70 % of the store. They follow from what an operation costs and how long it is
/// kept: work leaves after hours, records of operations and deliveries after days and weeks (docs/scale.md).
///
/// The ledger accepts messages of 256 KiB, not 64: an entry contains the event that is to be published, and an event
/// may have 64 KiB of content (docs/decisions/bus-ledger-entry-size.md).
const STREAM_ROWS: [StreamRow; 16] = [
    StreamRow {
        name: WORK_STREAM,
        subjects: &["dray.work.>"],
        when_full: FullStreamPolicy::New,
        max_age_seconds: 6 * HOUR_SECONDS,
        duplicate_window_seconds: 30 * MINUTE_SECONDS,
        max_message_bytes: 256 * KIB_BYTES,
        store_permille: 90,
    },
    StreamRow {
        name: EVENT_STREAM,
        subjects: &["dray.event.>"],
        when_full: FullStreamPolicy::Old,
        max_age_seconds: 72 * HOUR_SECONDS,
        duplicate_window_seconds: 30 * MINUTE_SECONDS,
        max_message_bytes: 256 * KIB_BYTES,
        store_permille: 120,
    },
    StreamRow {
        name: DEAD_LETTER_STREAM,
        subjects: &["dray.dead.>"],
        when_full: FullStreamPolicy::New,
        max_age_seconds: 14 * DAY_SECONDS,
        duplicate_window_seconds: 24 * HOUR_SECONDS,
        max_message_bytes: 512 * KIB_BYTES,
        store_permille: 80,
    },
    StreamRow {
        name: AUDIT_STREAM,
        subjects: &["dray.audit.>"],
        when_full: FullStreamPolicy::Old,
        max_age_seconds: 30 * DAY_SECONDS,
        duplicate_window_seconds: 30 * MINUTE_SECONDS,
        max_message_bytes: 64 * KIB_BYTES,
        store_permille: 80,
    },
    StreamRow {
        name: ADVISORY_STREAM,
        subjects: &[
            "$JS.EVENT.ADVISORY.CONSUMER.MAX_DELIVERIES.>",
            "$JS.EVENT.ADVISORY.CONSUMER.MSG_TERMINATED.>",
        ],
        when_full: FullStreamPolicy::Old,
        max_age_seconds: 14 * DAY_SECONDS,
        duplicate_window_seconds: 2 * MINUTE_SECONDS,
        max_message_bytes: 64 * KIB_BYTES,
        store_permille: 10,
    },
    StreamRow {
        name: LEDGER_STREAM,
        subjects: &["$KV.dray_ledger.>"],
        when_full: FullStreamPolicy::New,
        max_age_seconds: 72 * HOUR_SECONDS,
        duplicate_window_seconds: 2 * MINUTE_SECONDS,
        max_message_bytes: 256 * KIB_BYTES,
        store_permille: 120,
    },
    StreamRow {
        name: SESSION_STREAM,
        subjects: &["$KV.dray_sessions.>"],
        when_full: FullStreamPolicy::New,
        max_age_seconds: 90 * DAY_SECONDS,
        duplicate_window_seconds: 2 * MINUTE_SECONDS,
        max_message_bytes: 64 * KIB_BYTES,
        store_permille: 20,
    },
    StreamRow {
        name: UPLOAD_STREAM,
        subjects: &["$KV.dray_uploads.>"],
        when_full: FullStreamPolicy::New,
        max_age_seconds: 14 * DAY_SECONDS,
        duplicate_window_seconds: 2 * MINUTE_SECONDS,
        max_message_bytes: 256 * KIB_BYTES,
        store_permille: 20,
    },
    StreamRow {
        name: DELIVERY_STREAM,
        subjects: &["$KV.dray_deliveries.>"],
        when_full: FullStreamPolicy::New,
        max_age_seconds: 14 * DAY_SECONDS,
        duplicate_window_seconds: 2 * MINUTE_SECONDS,
        max_message_bytes: 256 * KIB_BYTES,
        store_permille: 80,
    },
    StreamRow {
        name: PLATFORM_STREAM,
        subjects: &["$KV.dray_platform.>"],
        when_full: FullStreamPolicy::New,
        max_age_seconds: 30 * DAY_SECONDS,
        duplicate_window_seconds: 2 * MINUTE_SECONDS,
        max_message_bytes: 64 * KIB_BYTES,
        store_permille: 10,
    },
    StreamRow {
        name: TICKET_STREAM,
        subjects: &["$KV.dray_tickets.>"],
        when_full: FullStreamPolicy::New,
        max_age_seconds: 3 * DAY_SECONDS,
        duplicate_window_seconds: 2 * MINUTE_SECONDS,
        max_message_bytes: 256 * KIB_BYTES,
        store_permille: 10,
    },
    StreamRow {
        name: EGRESS_QUESTION_STREAM,
        subjects: &["$KV.dray_egress_questions.>"],
        // A full stream refuses new messages instead of removing old ones: a refused question is only asked again, but
        // a removed denial would be lost.
        when_full: FullStreamPolicy::New,
        max_age_seconds: 8 * DAY_SECONDS,
        duplicate_window_seconds: 2 * MINUTE_SECONDS,
        max_message_bytes: 64 * KIB_BYTES,
        store_permille: 10,
    },
    StreamRow {
        name: EGRESS_POLICY_STREAM,
        subjects: &["$KV.dray_egress_policy.>"],
        when_full: FullStreamPolicy::New,
        // A policy that expired would stop egress at the next start.
        max_age_seconds: 0,
        duplicate_window_seconds: 2 * MINUTE_SECONDS,
        max_message_bytes: 512 * KIB_BYTES,
        store_permille: 5,
    },
    StreamRow {
        name: EGRESS_CACHE_STREAM,
        subjects: &["$KV.dray_egress_cache.>"],
        // A missing record is only a cache miss.
        when_full: FullStreamPolicy::Old,
        max_age_seconds: 8 * DAY_SECONDS,
        duplicate_window_seconds: 2 * MINUTE_SECONDS,
        max_message_bytes: 8 * KIB_BYTES,
        store_permille: 5,
    },
    StreamRow {
        name: CONVERSION_STREAM,
        subjects: &["$KV.dray_conversions.>"],
        when_full: FullStreamPolicy::Old,
        max_age_seconds: DAY_SECONDS,
        duplicate_window_seconds: 2 * MINUTE_SECONDS,
        max_message_bytes: 4 * KIB_BYTES,
        store_permille: 10,
    },
    StreamRow {
        name: CLIENT_STATE_STREAM,
        subjects: &["$KV.dray_client_state.>"],
        // Without one of its records a conversation cannot be used, so no record is dropped early.
        when_full: FullStreamPolicy::New,
        max_age_seconds: 15 * DAY_SECONDS,
        duplicate_window_seconds: 2 * MINUTE_SECONDS,
        max_message_bytes: 256 * KIB_BYTES,
        store_permille: 30,
    },
];

/// Time after which work is redelivered if its worker sends no heartbeat. Workers send one every third of this time, so
/// it limits the recovery from a killed worker, not the duration of work.
const WORK_ACK_WAIT: Duration = Duration::from_secs(6);
/// Deliveries after which the server stops redelivering a message. It is only a safety limit: attempts are counted in
/// the ledger, and parked work is redelivered about every 7 s until its deadline, at most an hour later.
const MAX_WORK_DELIVERIES: i64 = 1_000;

/// How long a publisher may take to acknowledge an event; it sends no heartbeats.
const PUBLISHER_ACK_WAIT: Duration = Duration::from_secs(30);

/// How long the sweeper may take for pulled messages.
const SWEEPER_ACK_WAIT: Duration = Duration::from_mins(1);

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
            consumers: work_queues()
                .into_iter()
                .map(work_consumer)
                .chain([
                    sweeper_consumer(WORK_STREAM, SWEEPER_WORK, "dray.work.>"),
                    sweeper_consumer(ADVISORY_STREAM, SWEEPER_ADVISORY, ""),
                ])
                .collect(),
        }
    }

    /// Adds a durable consumer of events for each tenant, from which the tenant's publisher reads outcomes. The
    /// publisher also gets events from the time when it was unavailable, as long as the event stream keeps them.
    #[must_use]
    pub fn with_publishers(mut self, tenants: &[TenantId]) -> Self {
        self.consumers
            .extend(tenants.iter().map(|tenant| ConsumerSpec {
                stream: EVENT_STREAM.to_owned(),
                durable: format!("publisher-{}", tenant.token()),
                filter: publisher_filter(&tenant.token()),
                ack_wait: PUBLISHER_ACK_WAIT,
                max_ack_pending: 512,
                max_batch: 64,
                max_deliver: -1,
                ack_explicit: true,
                backoff: Vec::new(),
                other_settings: Vec::new(),
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
        let is_bucket = self.name.starts_with("KV_");
        StreamSpec {
            name: self.name.to_owned(),
            subjects: self
                .subjects
                .iter()
                .map(|&subject| subject.to_owned())
                .collect(),
            // The stream is not a work queue: an acknowledged message stays, so its id stays a duplicate after a
            // restart (F-11).
            retention: StreamRetention::Limits,
            discard: self.when_full,
            max_age: Duration::from_secs(self.max_age_seconds),
            duplicate_window: Duration::from_secs(self.duplicate_window_seconds),
            max_message_size: self.max_message_bytes,
            max_bytes: store_bytes / 1000 * self.store_permille,
            // A bucket keeps the last value of each key, one message per subject.
            max_per_subject: u64::from(is_bucket),
            replicas,
            // Services read keys with direct gets, which need no right beyond the key (18).
            allow_direct: is_bucket,
            // With rollup, any publisher of one subject could erase the complete stream (F-16).
            allow_rollup: false,
            deny_delete: true,
            deny_purge: true,
        }
    }
}

/// The events that a publisher of a tenant reads.
pub(crate) fn publisher_filter(tenant: &str) -> String {
    format!("dray.event.toolcall.v1.*.{tenant}")
}

/// The consumer that hands out one queue of work.
fn work_consumer(queue: WorkQueue) -> ConsumerSpec {
    ConsumerSpec {
        stream: WORK_STREAM.to_owned(),
        durable: queue.durable,
        filter: format!("dray.work.{}.>", queue.area),
        ack_wait: WORK_ACK_WAIT,
        max_ack_pending: queue.max_ack_pending,
        max_batch: queue.max_batch,
        max_deliver: MAX_WORK_DELIVERIES,
        ack_explicit: true,
        backoff: Vec::new(),
        other_settings: Vec::new(),
    }
}

/// A consumer of the sweeper. It redelivers without a limit, because no other service handles these messages.
fn sweeper_consumer(stream: &str, durable: &str, filter: &str) -> ConsumerSpec {
    ConsumerSpec {
        stream: stream.to_owned(),
        durable: durable.to_owned(),
        filter: filter.to_owned(),
        ack_wait: SWEEPER_ACK_WAIT,
        // Work that is not finished stays unacknowledged in this consumer, too. With less than the queues together,
        // waiting work of one of them would keep the sweeper from the rest.
        max_ack_pending: work_queues()
            .iter()
            .map(|queue| queue.max_ack_pending)
            .sum(),
        max_batch: 64,
        // The sweeper checks unfinished messages repeatedly, so its deliveries have no limit.
        max_deliver: -1,
        ack_explicit: true,
        backoff: Vec::new(),
        other_settings: Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_bounds_together_are_at_most_seventy_percent_of_the_store() {
        let store = 1_000_000;
        let sum: u64 = Topology::new(3, store)
            .streams
            .iter()
            .map(|spec| spec.max_bytes)
            .sum();
        assert!(sum <= store / 10 * 7, "{sum}");
    }

    #[test]
    fn records_of_operations_have_the_share_that_the_page_on_scale_says() {
        let streams = Topology::new(1, 1_000_000).streams;
        for (name, share) in [
            (WORK_STREAM, 90_000),
            (LEDGER_STREAM, 120_000),
            (DELIVERY_STREAM, 80_000),
            (CLIENT_STATE_STREAM, 30_000),
        ] {
            let spec = streams.iter().find(|spec| spec.name == name).unwrap();
            assert_eq!(spec.max_bytes, share, "{name}");
        }
    }

    #[test]
    fn no_stream_can_be_erased_by_a_publisher() {
        for spec in Topology::default().streams {
            assert!(
                !spec.allow_rollup && spec.deny_delete && spec.deny_purge,
                "{}",
                spec.name
            );
            let keeps_ids = spec.max_age.is_zero() || spec.duplicate_window <= spec.max_age;
            assert!(keeps_ids && spec.max_bytes > 0, "{}", spec.name);
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
