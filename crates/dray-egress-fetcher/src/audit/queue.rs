//! Events on their way to a place beside log and stream: a file, or a syslog server.
//!
//! A separate thread writes, so that a slow or full place delays no decision. What a caller or client learns waits
//! until its event is in the file, for a bounded time: a process that is killed loses what the queue holds. Lines that
//! cannot be written to the file stay in the queue and are written later; only those that no longer fit into the queue
//! are dropped, counted and logged. A syslog server gets each event once. Log and stream have every event as well. All
//! waiting lines are written together, so that many connections wait for one write (group commit).

use std::io;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use dray_proto::v1;
use dray_types::Sha256Digest;
use tokio::sync::oneshot;
use tokio::sync::oneshot::error::TryRecvError;
use tokio::time::timeout;

use super::event_result::EventResult;
use super::ocsf::ocsf_json;
use crate::config::AuditFormat;
use crate::metrics::{AuditDestination, EgressMetrics};

/// Most events that wait.
const MAX_QUEUED_EVENTS: usize = 4096;
/// Most bytes of them.
const MAX_QUEUED_BYTES: usize = 8 * 1024 * 1024;
/// Most tasks that are taken from the queue together.
const MAX_BATCH_TASKS: usize = 256;
/// Time between two attempts to write events that a place did not take.
const RETRY_INTERVAL: Duration = Duration::from_millis(200);
/// Wait for a flush after which the place counts as stalled: the longest wait of a caller.
const STALL_TIMEOUT: Duration = super::PUBLISH_TIMEOUT;

/// Writes events to a place.
pub(super) trait EventWriter: Send + 'static {
    /// Returns the bytes to write for an event; `text` is its JSON.
    fn frame(event: &v1::EgressAudit, text: &str) -> Vec<u8>;

    /// Writes a whole frame or nothing.
    fn write_frame(&mut self, frame: &[u8]) -> io::Result<()>;

    /// Whether frames that could not be written wait for another attempt.
    const KEEPS_UNWRITTEN: bool;

    /// Writes frames in their order, each wholly or not at all.
    ///
    /// # Errors
    ///
    /// The frames that could not be written.
    fn write_frames(&mut self, frames: &[Vec<u8>]) -> Result<(), UnwrittenFrames> {
        let mut unwritten: Option<UnwrittenFrames> = None;
        for (index, frame) in frames.iter().enumerate() {
            if let Err(error) = self.write_frame(frame) {
                let indexes = Vec::new();
                let unwritten = unwritten.get_or_insert(UnwrittenFrames { indexes, error });
                unwritten.indexes.push(index);
            }
        }
        unwritten.map_or(Ok(()), Err)
    }
}

/// Frames that could not be written.
#[derive(Debug)]
pub(super) struct UnwrittenFrames {
    /// Their places among the frames, in order.
    pub(super) indexes: Vec<usize>,
    /// The first failure.
    pub(super) error: io::Error,
}

/// A task for the writing thread.
pub(super) enum QueueTask {
    Write(Vec<u8>),
    /// Gets a message when everything before it is written, or counted as dropped.
    Flush(oneshot::Sender<()>),
}

/// The result of adding an event to a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum QueueOutcome {
    /// The event waits to be written.
    Queued,
    /// Sampling leaves it out.
    LeftOut,
    /// The queue is full. The event is counted.
    Dropped,
}

impl QueueOutcome {
    /// Whether the event is in the place, or does not belong there, after a flush with this result.
    pub(super) const fn is_in_file(self, is_flushed: bool) -> bool {
        match self {
            Self::Queued => is_flushed,
            Self::LeftOut => true,
            Self::Dropped => false,
        }
    }
}

/// The events on their way to one place. Clones share them; the thread ends with the last one.
#[derive(Clone, Debug)]
pub struct AuditQueue {
    pub(super) place: AuditDestination,
    pub(super) format: AuditFormat,
    pub(super) sample_percent: u32,
    pub(super) frame: fn(&v1::EgressAudit, &str) -> Vec<u8>,
    pub(super) tasks: SyncSender<QueueTask>,
    pub(super) queued_bytes: Arc<AtomicUsize>,
    pub(super) metrics: EgressMetrics,
    /// A flush for which a wait of [`STALL_TIMEOUT`] timed out.
    late_flush: Arc<Mutex<Option<oneshot::Receiver<()>>>>,
    /// Whether the last event was dropped: of several in a row only the first is logged.
    is_dropping: Arc<AtomicBool>,
}

/// Rules by which events are chosen and written.
#[derive(Clone, Copy, Debug)]
pub(super) struct QueueTerms {
    pub(super) place: AuditDestination,
    pub(super) format: AuditFormat,
    /// Percent of operations without a refusal or failure.
    pub(super) sample_percent: u32,
}

impl AuditQueue {
    /// Starts the thread, which owns the writer.
    ///
    /// # Errors
    ///
    /// When no thread can be started.
    pub(super) fn start<W: EventWriter>(
        writer: W,
        terms: QueueTerms,
        metrics: EgressMetrics,
    ) -> io::Result<Self> {
        let (tasks, received) = sync_channel(MAX_QUEUED_EVENTS);
        let queue = Self::with_writer::<W>(terms, tasks, metrics);
        let worker = QueueWorker {
            writer,
            place: terms.place,
            queued_bytes: Arc::clone(&queue.queued_bytes),
            metrics: queue.metrics.clone(),
        };
        thread::Builder::new()
            .name(format!("audit-{}", terms.place.as_str()))
            .spawn(move || worker.run(&received))?;
        Ok(queue)
    }

    /// A queue whose tasks go into `tasks`.
    pub(super) fn with_writer<W: EventWriter>(
        terms: QueueTerms,
        tasks: SyncSender<QueueTask>,
        metrics: EgressMetrics,
    ) -> Self {
        Self {
            place: terms.place,
            format: terms.format,
            sample_percent: terms.sample_percent,
            frame: W::frame,
            tasks,
            queued_bytes: Arc::default(),
            metrics,
            late_flush: Arc::default(),
            is_dropping: Arc::default(),
        }
    }

    /// Whether the place is the file, which takes an event without a wait for another machine.
    pub(super) const fn is_file(&self) -> bool {
        matches!(self.place, AuditDestination::File)
    }

    /// Hands the event, of which `text` is the JSON, to the thread, without a wait. Refusals and failures are never left
    /// out by sampling.
    pub(super) fn record(&self, event: &v1::EgressAudit, text: &str) -> QueueOutcome {
        let is_success = EventResult::of(event) == EventResult::Success;
        if is_success && !is_sampled(&event.operation_id, self.sample_percent) {
            return QueueOutcome::LeftOut;
        }
        let frame = match self.format {
            AuditFormat::Json => (self.frame)(event, text),
            AuditFormat::Ocsf => (self.frame)(event, &ocsf_json(event).to_string()),
        };
        let size = frame.len();
        // The event is counted before the check, so that two threads cannot both take the last place.
        let queued = self.queued_bytes.fetch_add(size, Ordering::Relaxed);
        let is_taken = queued + size <= MAX_QUEUED_BYTES
            && self.tasks.try_send(QueueTask::Write(frame)).is_ok();
        let was_dropping = self.is_dropping.swap(!is_taken, Ordering::Relaxed);
        if is_taken {
            return QueueOutcome::Queued;
        }
        self.queued_bytes.fetch_sub(size, Ordering::Relaxed);
        self.metrics.audit_dropped(self.place, "queue_full");
        if !was_dropping {
            let place = self.place.as_str();
            tracing::error!(place, "audit events are dropped: their queue is full");
        }
        QueueOutcome::Dropped
    }

    /// Gets a message when everything that was recorded before is written. Gets an error when that does not happen:
    /// immediately if the queue is full, or when the thread ends before.
    pub fn flush(&self) -> oneshot::Receiver<()> {
        let (done, waiting) = oneshot::channel();
        // If the message is not accepted, the other end is dropped here.
        let _ = self.tasks.try_send(QueueTask::Flush(done));
        waiting
    }

    /// Waits at most `limit` until all events are written, before the process ends. Logs if they are not.
    pub async fn finish(&self, limit: Duration) {
        if let Ok(Ok(())) = timeout(limit, self.flush()).await {
            return;
        }
        let (place, bytes) = (
            self.place.as_str(),
            self.queued_bytes.load(Ordering::Relaxed),
        );
        tracing::error!(
            place,
            bytes,
            "the process ends before all audit events are written"
        );
    }

    /// Waits at most `limit` until everything that was recorded before is written, and returns whether it is. After a
    /// wait of [`STALL_TIMEOUT`] that timed out it does not wait again until the thread has reached that flush: one
    /// stalled disk must not delay every connection. A shorter wait shows no stalled disk.
    pub(super) async fn flushed(&self, limit: Duration) -> bool {
        if self.is_stalled() {
            return false;
        }
        let mut waiting = self.flush();
        if let Ok(flushed) = timeout(limit, &mut waiting).await {
            return flushed.is_ok();
        }
        if limit >= STALL_TIMEOUT {
            let mut late = self
                .late_flush
                .lock()
                .unwrap_or_else(PoisonError::into_inner);
            *late = Some(waiting);
        }
        false
    }

    fn is_stalled(&self) -> bool {
        let mut late = self
            .late_flush
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        late.as_mut()
            .is_some_and(|waiting| matches!(waiting.try_recv(), Err(TryRecvError::Empty)))
    }
}

/// Whether an event of this operation is among `percent` of all. The same operation always gives the same result, so
/// either both events of a connection are written or none.
fn is_sampled(operation: &str, percent: u32) -> bool {
    let digest = Sha256Digest::of(operation.as_bytes());
    let mut number = 0_u32;
    for byte in digest.as_bytes().iter().take(4) {
        number = (number << 8) | u32::from(*byte);
    }
    number % 100 < percent
}

pub(super) struct QueueWorker<W> {
    pub(super) writer: W,
    pub(super) place: AuditDestination,
    pub(super) queued_bytes: Arc<AtomicUsize>,
    pub(super) metrics: EgressMetrics,
}

/// Events that are to be written, and the waits for them.
#[derive(Default)]
struct WriteBatch {
    frames: Vec<Vec<u8>>,
    flushes: Vec<oneshot::Sender<()>>,
    /// The number of frames that were counted as delayed. They are the first ones.
    delayed: usize,
}

impl WriteBatch {
    fn add(&mut self, task: QueueTask) {
        match task {
            QueueTask::Write(frame) => self.frames.push(frame),
            QueueTask::Flush(done) => self.flushes.push(done),
        }
    }

    /// Takes the tasks that wait, and waits for one if there is none. While frames are left from an attempt that
    /// failed, takes tasks for [`RETRY_INTERVAL`]. Returns whether more can come.
    fn collect(&mut self, tasks: &Receiver<QueueTask>) -> bool {
        if self.frames.is_empty() {
            let Ok(first) = tasks.recv() else {
                return false;
            };
            self.add(first);
            // Tasks that arrived while the last batch was written form the next batch.
            for task in tasks.try_iter().take(MAX_BATCH_TASKS - 1) {
                self.add(task);
            }
            return true;
        }
        let retry_at = Instant::now() + RETRY_INTERVAL;
        loop {
            let remaining = retry_at.saturating_duration_since(Instant::now());
            match tasks.recv_timeout(remaining) {
                // The bytes of new tasks still count, so the queue bounds them.
                Ok(task) => self.add(task),
                Err(RecvTimeoutError::Timeout) => return true,
                Err(RecvTimeoutError::Disconnected) => return false,
            }
            if remaining.is_zero() {
                return true;
            }
        }
    }
}

impl<W: EventWriter> QueueWorker<W> {
    pub(super) fn run(mut self, tasks: &Receiver<QueueTask>) {
        let mut batch = WriteBatch::default();
        // Of several failures in a row only the first is logged; the metrics count all.
        let mut has_failed = false;
        let mut has_more = true;
        while has_more {
            has_more = batch.collect(tasks);
            if !batch.frames.is_empty() {
                has_failed = self.write_batch(&mut batch, has_failed);
            }
            if batch.frames.is_empty() {
                for done in batch.flushes.drain(..) {
                    // The connection may have stopped waiting.
                    let _ = done.send(());
                }
            } else {
                batch.flushes.retain(|done| !done.is_closed());
            }
        }
        if !batch.frames.is_empty() {
            let (place, events) = (self.place.as_str(), batch.frames.len());
            self.drop_frames(&batch.frames);
            tracing::error!(
                place,
                events,
                "audit events are lost: the process ends before they are written"
            );
        }
    }

    /// Writes the frames. Those that are to be written later stay in the batch. Returns whether any failed.
    fn write_batch(&mut self, batch: &mut WriteBatch, has_failed: bool) -> bool {
        let frames = std::mem::take(&mut batch.frames);
        let delayed = std::mem::take(&mut batch.delayed);
        let place = self.place.as_str();
        let Err(UnwrittenFrames { indexes, error }) = self.writer.write_frames(&frames) else {
            self.release_bytes(&frames);
            if delayed > 0 {
                tracing::info!(place, events = delayed, "delayed audit events are written");
            }
            return false;
        };
        let mut written = Vec::with_capacity(frames.len());
        let mut unwritten = Vec::with_capacity(indexes.len());
        for (index, frame) in frames.into_iter().enumerate() {
            if indexes.binary_search(&index).is_ok() {
                unwritten.push(frame);
            } else {
                written.push(frame);
            }
        }
        self.release_bytes(&written);
        if !has_failed {
            tracing::error!(%error, place, "audit events cannot be written");
        }
        if W::KEEPS_UNWRITTEN {
            // The first ones that are left were counted at an earlier attempt.
            let counted = delayed.saturating_sub(written.len());
            self.metrics.audit_delayed(unwritten.len() - counted);
            (batch.delayed, batch.frames) = (unwritten.len(), unwritten);
        } else {
            self.drop_frames(&unwritten);
        }
        true
    }

    /// Counts frames that are not written at all.
    fn drop_frames(&self, frames: &[Vec<u8>]) {
        self.release_bytes(frames);
        for _ in frames {
            self.metrics.audit_dropped(self.place, "write_failed");
        }
    }

    fn release_bytes(&self, frames: &[Vec<u8>]) {
        let size = frames.iter().map(Vec::len).sum();
        self.queued_bytes.fetch_sub(size, Ordering::Relaxed);
    }
}
