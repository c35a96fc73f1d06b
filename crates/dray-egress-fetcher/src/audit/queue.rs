//! Events on their way to a place beside log and stream: a file, or a syslog server.
//!
//! A thread of its own writes, so that a slow or full place delays no decision. A connection of the proxy alone waits until
//! its first line is in the file, for a bounded time, because no byte passes before it is recorded. What it cannot write in time, or at all, is
//! dropped and counted; log and stream have the event as well. Everything that waits is written together, so that many
//! connections wait for one write (group commit).

use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use dray_proto::v1;
use dray_types::Sha256Digest;
use tokio::sync::oneshot;
use tokio::sync::oneshot::error::TryRecvError;
use tokio::time::timeout;

use super::ocsf::ocsf_json;
use crate::config::AuditFormat;
use crate::metrics::{AuditDestination, EgressMetrics};

/// Most events that wait.
const MAX_QUEUED_EVENTS: usize = 4096;
/// Most bytes of them.
const MAX_QUEUED_BYTES: usize = 8 * 1024 * 1024;
/// Most tasks that are taken from the queue together.
const MAX_BATCH_TASKS: usize = 256;

/// Writes events to a place.
pub(super) trait EventWriter: Send + 'static {
    /// What is written of an event, of which `text` is the JSON.
    fn frame(event: &v1::EgressAudit, text: &str) -> Vec<u8>;

    /// Writes a whole frame or nothing.
    fn write_frame(&mut self, frame: &[u8]) -> io::Result<()>;

    /// Writes frames in their order, each wholly or not at all.
    ///
    /// # Errors
    ///
    /// Those that could not be written.
    fn write_frames(&mut self, frames: &[Vec<u8>]) -> Result<(), LostFrames> {
        let mut lost = LostFrames::default();
        for frame in frames {
            lost.note(self.write_frame(frame));
        }
        lost.into_result()
    }
}

/// Frames that could not be written.
#[derive(Debug, Default)]
pub(super) struct LostFrames {
    count: usize,
    /// The first failure.
    error: Option<io::Error>,
}

impl LostFrames {
    /// Counts a frame whose write failed.
    pub(super) fn note(&mut self, written: io::Result<()>) {
        if let Err(error) = written {
            self.count += 1;
            self.error.get_or_insert(error);
        }
    }

    /// These frames as an error, if there are any.
    pub(super) fn into_result(self) -> Result<(), Self> {
        if self.count == 0 { Ok(()) } else { Err(self) }
    }
}

/// What the thread is to do.
pub(super) enum QueueTask {
    Write(Vec<u8>),
    /// Everything before it is written or counted when the sender is dropped.
    Flush(oneshot::Sender<()>),
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
    /// A flush for which a wait timed out.
    late_flush: Arc<Mutex<Option<oneshot::Receiver<()>>>>,
}

/// How events are chosen and written.
#[derive(Clone, Copy, Debug)]
pub(super) struct QueueTerms {
    pub(super) place: AuditDestination,
    pub(super) format: AuditFormat,
    /// Percent of allowed requests.
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
        }
    }

    /// Whether the place is the file, which takes an event without a wait for another machine.
    pub(super) const fn is_file(&self) -> bool {
        matches!(self.place, AuditDestination::File)
    }

    /// Hands the event, of which `text` is the JSON, to the thread, without a wait. Refusals are never left out by
    /// sampling.
    pub(super) fn record(&self, event: &v1::EgressAudit, text: &str) {
        if event.verdict != "deny" && !is_sampled(&event.operation_id, self.sample_percent) {
            return;
        }
        let frame = match self.format {
            AuditFormat::Json => (self.frame)(event, text),
            AuditFormat::Ocsf => (self.frame)(event, &ocsf_json(event).to_string()),
        };
        let size = frame.len();
        // Counted before the check, so that two threads cannot both take the last place.
        let queued = self.queued_bytes.fetch_add(size, Ordering::Relaxed);
        let is_taken = queued + size <= MAX_QUEUED_BYTES
            && self.tasks.try_send(QueueTask::Write(frame)).is_ok();
        if !is_taken {
            self.queued_bytes.fetch_sub(size, Ordering::Relaxed);
            self.metrics.audit_dropped(self.place, "queue_full");
        }
    }

    /// Ends with an error when everything that was recorded before is written or counted, or immediately when the queue is
    /// full: nothing is ever sent.
    pub fn flush(&self) -> oneshot::Receiver<()> {
        let (done, waiting) = oneshot::channel();
        // Where it is not taken, the other end is dropped here.
        let _ = self.tasks.try_send(QueueTask::Flush(done));
        waiting
    }

    /// Waits at most `limit` until everything that was recorded before is written or counted. After a wait that timed out
    /// it does not wait again until the thread has come to that flush: one stalled disk must not delay every connection.
    pub(super) async fn flushed(&self, limit: Duration) {
        if self.is_stalled() {
            return;
        }
        let mut waiting = self.flush();
        if timeout(limit, &mut waiting).await.is_err() {
            let mut late = self
                .late_flush
                .lock()
                .unwrap_or_else(PoisonError::into_inner);
            *late = Some(waiting);
        }
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

/// Whether an event of this operation is among `percent` of all. The same operation always gives the same answer, so both
/// events of a connection are there or none.
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

impl<W: EventWriter> QueueWorker<W> {
    pub(super) fn run(mut self, tasks: &Receiver<QueueTask>) {
        // The first failure of several is logged; the metric counts all.
        let mut has_failed = false;
        while let Ok(first) = tasks.recv() {
            let (mut frames, mut flushes) = (Vec::new(), Vec::new());
            // What came while the last batch was written is the next batch.
            let waiting = tasks.try_iter().take(MAX_BATCH_TASKS - 1);
            for task in std::iter::once(first).chain(waiting) {
                match task {
                    QueueTask::Write(frame) => frames.push(frame),
                    QueueTask::Flush(done) => flushes.push(done),
                }
            }
            if !frames.is_empty() {
                has_failed = !self.write_batch(&frames, has_failed);
            }
            // Dropped only now, which ends the waits.
            drop(flushes);
        }
    }

    /// Writes the frames; whether all of them were written.
    fn write_batch(&mut self, frames: &[Vec<u8>], has_failed: bool) -> bool {
        let size = frames.iter().map(Vec::len).sum();
        self.queued_bytes.fetch_sub(size, Ordering::Relaxed);
        let Err(LostFrames { count, error }) = self.writer.write_frames(frames) else {
            return true;
        };
        for _ in 0..count {
            self.metrics.audit_dropped(self.place, "write_failed");
        }
        if let (Some(error), false) = (error, has_failed) {
            let place = self.place.as_str();
            tracing::error!(%error, place, "audit events cannot be written");
        }
        false
    }
}
