//! One audit event per fetch, refusals included (egress-security 18).
//!
//! The log line comes first and is complete, so that the log is the record when the stream cannot be reached. Neither
//! holds a query, fragment, user info, header value or body byte (S-5).

mod connection;
mod event;
mod event_result;
mod file;
mod line;
mod ocsf;
mod policy;
mod queue;
mod replay;
mod syslog;

use std::sync::Arc;
use std::time::Duration;

use dray_bus::{Bus, Meta};
use dray_guard::Code;
use dray_proto::{Audit, v1};
use dray_types::Clock;
use futures_util::FutureExt as _;
use tokio::task::JoinHandle;
use tokio_util::task::TaskTracker;

use crate::error::FetchPhase;
use crate::metrics::{EgressMetrics, InFlight};
use crate::record::{FetchEnd, FetchRecord};

pub use connection::{AuditedConnection, ProxyProtocol, TunnelAuditor};
pub use event_result::EventResult;
pub use policy::{PolicyReporter, PolicyStatus, ReadPolicy};
pub use queue::AuditQueue;
pub use replay::replay_event;

use queue::{PlacedEvent, QueueOutcome};

/// Longest wait for the acknowledgement of the stream.
pub const PUBLISH_TIMEOUT: Duration = Duration::from_secs(2);

/// Makes and publishes audit events. Shared by all fetches.
#[derive(Clone, Debug)]
pub struct Auditor {
    inner: Arc<AuditorInner>,
}

#[derive(Debug)]
struct AuditorInner {
    bus: Bus,
    clock: Clock,
    metrics: EgressMetrics,
    tasks: TaskTracker,
    key: [u8; 32],
    private_cidrs: Vec<String>,
    places: Vec<AuditQueue>,
}

impl Auditor {
    /// An auditor that publishes to `bus` and writes to `places`. `key` is the key of the hash that replaces path and
    /// query.
    pub fn new(
        bus: Bus,
        clock: Clock,
        metrics: EgressMetrics,
        tasks: TaskTracker,
        key: [u8; 32],
        private_cidrs: Vec<String>,
        places: Vec<AuditQueue>,
    ) -> Self {
        Self {
            inner: Arc::new(AuditorInner {
                bus,
                clock,
                metrics,
                tasks,
                key,
                private_cidrs,
                places,
            }),
        }
    }

    /// Begins the record of one fetch.
    pub fn begin(&self, meta: Meta) -> AuditedFetch {
        AuditedFetch {
            auditor: self.clone(),
            meta,
            record: FetchRecord::default(),
            recorded: false,
            _under_way: self.inner.metrics.begin(),
        }
    }

    /// Logs the event as one line and returns it, with the result for the file.
    fn write_event(&self, meta: &Meta, record: &FetchRecord) -> (v1::EgressAudit, QueueOutcome) {
        let inner = &self.inner;
        let event = event::audit_event(
            meta,
            record,
            inner.clock.now_ms(),
            &inner.key,
            &inner.private_cidrs,
        );
        let audit = line::event_text(&event);
        tracing::info!(target: "dray_egress_fetcher::audit", audit, "fetched");
        let outcome = self.record_in_destinations(&event, &audit);
        (event, outcome)
    }

    /// Passes the event, of which `text` is the JSON, to every destination in addition to log and stream. Returns the
    /// result for the file; [`QueueOutcome::LeftOut`] without a file.
    fn record_in_destinations(&self, event: &dyn PlacedEvent, text: &str) -> QueueOutcome {
        let mut of_file = QueueOutcome::LeftOut;
        for place in &self.inner.places {
            let outcome = place.record(event, text);
            if place.is_file() {
                of_file = outcome;
            }
        }
        of_file
    }

    /// Waits at most `limit` until the file has every event so far, and returns whether it has. A killed process loses
    /// the events in its queue, but not those that it has written to the file.
    async fn flush_file(&self, limit: Duration) -> bool {
        let mut has_all = true;
        for place in self.inner.places.iter().filter(|place| place.is_file()) {
            has_all &= place.flushed(limit).await;
        }
        has_all
    }

    /// Begins to publish. Where the stream does not acknowledge immediately, a task of the service continues, so that
    /// it outlives the caller. Any number of events wait for their acknowledgements at the same time.
    fn begin_publish(&self, meta: &Meta, event: v1::EgressAudit) -> PendingPublish {
        // Outside a runtime only the line remains.
        let Ok(runtime) = tokio::runtime::Handle::try_current() else {
            return PendingPublish::Known(false);
        };
        let mut publishing = Box::pin(self.clone().publish(
            meta.clone(),
            event.event_id.clone(),
            event,
        ));
        // Most of the work is before the first wait: no other thread needs to be woken for it.
        match publishing.as_mut().now_or_never() {
            Some(published) => PendingPublish::Known(published),
            None => PendingPublish::Running(self.inner.tasks.spawn_on(publishing, &runtime)),
        }
    }

    /// Publishes only in a task, for a fetch that is dropped: nothing may be polled while a runtime stops.
    fn spawn_publish(&self, meta: &Meta, event: v1::EgressAudit) -> PendingPublish {
        let Ok(runtime) = tokio::runtime::Handle::try_current() else {
            return PendingPublish::Known(false);
        };
        let publishing = self
            .clone()
            .publish(meta.clone(), event.event_id.clone(), event);
        PendingPublish::Running(self.inner.tasks.spawn_on(publishing, &runtime))
    }

    /// Publishes within [`PUBLISH_TIMEOUT`]; counts a failure. Returns whether the stream has the event.
    async fn publish<A: Audit>(self, meta: Meta, event_id: String, event: A) -> bool {
        let published =
            tokio::time::timeout(PUBLISH_TIMEOUT, self.inner.bus.publish_audit(&meta, &event))
                .await;
        let problem = match published {
            Ok(Ok(_)) => return true,
            Ok(Err(error)) => error.to_string(),
            Err(_) => "not acknowledged in time".to_owned(),
        };
        self.inner.metrics.audit_failed();
        tracing::warn!(event_id, problem, "the audit event was not published");
        false
    }
}

/// An event on its way to the stream. Dropping it ends the wait, but not the publishing.
#[derive(Debug)]
enum PendingPublish {
    /// Whether the stream has it.
    Known(bool),
    Running(JoinHandle<bool>),
}

impl PendingPublish {
    /// Waits at most `limit`, and returns whether the stream is known to have the event.
    async fn wait(self, limit: Duration) -> bool {
        match self {
            Self::Known(published) => published,
            Self::Running(publishing) => tokio::time::timeout(limit, publishing)
                .await
                .is_ok_and(|published| published.unwrap_or(false)),
        }
    }
}

/// One fetch under audit. One that is dropped without [`AuditedFetch::finish`] is recorded as cancelled.
#[derive(Debug)]
pub struct AuditedFetch {
    auditor: Auditor,
    meta: Meta,
    /// The facts, kept up to date by the fetch.
    pub record: FetchRecord,
    recorded: bool,
    _under_way: InFlight,
}

impl AuditedFetch {
    /// Writes the line, publishes the event, and waits at most `timeout` for stream and file. Publishing and writing
    /// continue after the timeout. Returns whether the event is known to be published, and in the file if it belongs
    /// there.
    ///
    /// With `required`, a stored file whose event may not be recorded counts as a file that could not be stored. A
    /// further line and event say so.
    pub async fn finish(mut self, timeout: Duration, required: bool) -> bool {
        // The line comes first: it is the record when the stream cannot be reached.
        let (publishing, of_file) = self.record_once();
        // With a timeout of zero, a flush would only add a task to the queue.
        let flushing = async { !timeout.is_zero() && self.auditor.flush_file(timeout).await };
        let (is_published, is_flushed) = tokio::join!(publishing.wait(timeout), flushing);
        let is_recorded = is_published && of_file.is_in_file(is_flushed);
        if required && !is_recorded && self.record.end == Some(FetchEnd::Stored) {
            self.record.end = Some(FetchEnd::Failed {
                code: Code::SinkFailed,
                phase: FetchPhase::Sink,
            });
            // The outcome is not awaited, because the reply is late already.
            drop(self.record_once());
        }
        is_recorded
    }

    /// Writes the line. A task of the service publishes the event, so that it outlives the caller.
    fn record_once(&mut self) -> (PendingPublish, QueueOutcome) {
        // The flag is set first, so that `drop` does not record the fetch a second time.
        self.recorded = true;
        let phase = self.record.ended().unwrap_or(FetchPhase::Policy);
        self.record.end.get_or_insert(FetchEnd::Cancelled { phase });
        let (event, of_file) = self.auditor.write_event(&self.meta, &self.record);
        (self.auditor.spawn_publish(&self.meta, event), of_file)
    }
}

impl Drop for AuditedFetch {
    fn drop(&mut self) {
        if !self.recorded {
            drop(self.record_once());
        }
        // The fetch is counted only here, so that a cancelled fetch is counted, too, and no fetch is counted twice.
        self.auditor.inner.metrics.ended(&self.record);
    }
}
