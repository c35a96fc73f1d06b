//! Pulls work and starts it, fairly among tenants (docs/decisions/bus-fair-work.md).
//!
//! While slots are free, the loop pulls only messages that can start. When all slots have been in use for a while, it
//! looks ahead: it pulls further messages and starts those of tenants without running work. It holds a few messages of
//! each tenant, and returns the others to the server with a delay.

use std::collections::HashMap;
use std::marker::PhantomData;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use dray_proto::Work;
use dray_types::Deadline;
use tokio::task::{Id, JoinError, JoinSet};
use tokio::time::{Instant, Interval};
use tokio_util::sync::CancellationToken;

use super::WorkerContext;
use super::delivery::WorkHandler;
use super::process;
use super::return_delay::ReturnDelays;
use super::shares::TenantShares;
use super::supervise::{extend_ack_deadline, interval_every};
use crate::backend::{AckAction, PulledMessage, Puller};
use crate::backoff::Backoff;
use crate::error::TransportError;
use crate::headers;
use crate::topology::WORK_STREAM;

/// How often the backlog of the durable is measured.
const MEASURE_INTERVAL: Duration = Duration::from_secs(15);
/// Longest wait of one pull.
const PULL_WAIT: Duration = Duration::from_secs(5);
/// How long a backlog must last before the loop looks ahead. Returned messages are delivered twice, which is too
/// expensive for a backlog of short work.
const LOOK_AHEAD_DELAY: Duration = Duration::from_millis(500);

/// One loop: its running deliveries, and the messages that wait in it.
pub(super) struct WorkLoop<W, H> {
    context: Arc<WorkerContext<H>>,
    jobs: JoinSet<()>,
    /// The tenant of each running delivery. The key is the task's id, which is also known after a panic of the task.
    tenants: HashMap<Id, String>,
    shares: TenantShares<PulledMessage>,
    delays: ReturnDelays,
    /// Prevents the redelivery of held messages.
    heartbeat: Interval,
    /// When the backlog began: from then on more work may be waiting than can start.
    busy_since: Option<Instant>,
    /// Once this token is cancelled, no message is started.
    stop: CancellationToken,
    work: PhantomData<fn() -> W>,
}

impl<W: Work, H: WorkHandler<W>> WorkLoop<W, H> {
    pub(super) fn new(context: &Arc<WorkerContext<H>>, stop: CancellationToken) -> Self {
        Self {
            jobs: JoinSet::new(),
            tenants: HashMap::new(),
            shares: TenantShares::new(context.settings.concurrency),
            delays: ReturnDelays::default(),
            heartbeat: interval_every(context.ack_wait / 3),
            busy_since: None,
            stop,
            work: PhantomData,
            context: Arc::clone(context),
        }
    }

    /// Pulls until `stop`, and returns the deliveries that still run.
    pub(super) async fn run(mut self, mut puller: Puller) -> JoinSet<()> {
        let mut backoff = new_backoff();
        let mut measured: Option<Instant> = None;
        while !self.stop.is_cancelled() {
            if measured.is_none_or(|time| time.elapsed() >= MEASURE_INTERVAL) {
                measured = Some(Instant::now());
                measure_backlog(&self.context).await;
            }
            // Readiness alone does not stop pulls, and a pull could take work whose end this identity may not write
            // (16).
            if self.context.bus.inner.health.is_refused() {
                let durable = self.context.durable.as_str();
                tracing::error!(
                    durable,
                    "the server refused this identity, so no work is pulled"
                );
                self.hand_back_held().await;
                self.wait(PULL_WAIT).await;
                continue;
            }
            let count = match self.next_pull(puller.max_batch()) {
                Ok(count) => count,
                Err(delay) => {
                    self.wait(delay).await;
                    continue;
                }
            };
            match self.fetch(&mut puller, count).await {
                Ok(pulled) => {
                    backoff = new_backoff();
                    self.distribute(pulled, count).await;
                }
                Err(error) => {
                    tracing::warn!(
                        durable = %self.context.durable,
                        error = &error as &dyn std::error::Error,
                        "pulling failed; it is retried"
                    );
                    self.wait(backoff.next_delay()).await;
                    let backend = &self.context.bus.inner.backend;
                    if let Ok(rebuilt) = backend.puller(WORK_STREAM, &self.context.durable).await {
                        // A consumer that was deleted and recreated, or a lost subscription, needs a new puller.
                        puller = rebuilt;
                    }
                }
            }
        }
        self.hand_back_held().await;
        self.jobs
    }

    /// How many messages to pull now, or how long to wait before the next pull.
    fn next_pull(&mut self, max_batch: usize) -> Result<usize, Duration> {
        let startable = self.shares.startable().min(max_batch);
        if startable == 0 {
            self.busy_since.get_or_insert_with(Instant::now);
        }
        let busy = self.busy_since.map(|since| since.elapsed());
        match busy {
            Some(busy) if busy >= LOOK_AHEAD_DELAY => Ok(max_batch),
            // Messages that could start are requested during a backlog, too.
            _ if startable > 0 => Ok(startable),
            busy => Err(LOOK_AHEAD_DELAY.saturating_sub(busy.unwrap_or_default())),
        }
    }

    /// Waits for messages. Held messages use the slots of deliveries that end meanwhile.
    async fn fetch(
        &mut self,
        puller: &mut Puller,
        count: usize,
    ) -> Result<Vec<PulledMessage>, TransportError> {
        let stop = self.stop.clone();
        // The fetch is not dropped before it completes: messages in transit would be redelivered only after `ack_wait`.
        let mut fetch = pin!(puller.fetch(count, PULL_WAIT, &stop));
        loop {
            tokio::select! {
                fetched = &mut fetch => return fetched,
                Some(ended) = self.jobs.join_next_with_id() => self.job_ended(&ended),
                _ = self.heartbeat.tick() => self.extend_held().await,
            }
        }
    }

    /// Waits for a slot to become free, at most `limit`.
    async fn wait(&mut self, limit: Duration) {
        let mut limit = pin!(tokio::time::sleep(limit));
        loop {
            tokio::select! {
                () = self.stop.cancelled() => return,
                () = &mut limit => return,
                Some(ended) = self.jobs.join_next_with_id() => {
                    self.job_ended(&ended);
                    return;
                }
                _ = self.heartbeat.tick() => self.extend_held().await,
            }
        }
    }

    /// Starts, holds or returns pulled messages.
    async fn distribute(&mut self, pulled: Vec<PulledMessage>, requested: usize) {
        let is_end = pulled.len() < requested;
        for pulled in pulled {
            if self.stop.is_cancelled() {
                hand_back(&pulled, Duration::ZERO).await;
                continue;
            }
            let tenant = subject_tenant(&pulled).to_owned();
            if let Some(returned) = self.shares.hold(&tenant, pulled) {
                let delay = self.return_delay(&returned);
                hand_back(&returned, delay).await;
            }
            self.start_held();
        }
        if is_end && self.shares.startable() > 0 {
            self.busy_since = None;
        } else {
            self.busy_since.get_or_insert_with(Instant::now);
        }
    }

    fn start_held(&mut self) {
        if self.stop.is_cancelled() {
            return;
        }
        while let Some((tenant, pulled)) = self.shares.start_next() {
            let context = Arc::clone(&self.context);
            let job = self.jobs.spawn(async move {
                process::process_delivery::<W, H>(&context, pulled).await;
            });
            self.tenants.insert(job.id(), tenant);
        }
    }

    fn job_ended(&mut self, ended: &Result<(Id, ()), JoinError>) {
        let id = match ended {
            Ok((id, ())) => *id,
            Err(error) => error.id(),
        };
        if let Some(tenant) = self.tenants.remove(&id) {
            self.shares.finish(&tenant);
        }
        self.delays.work_ended(Instant::now());
        self.start_held();
    }

    fn return_delay(&mut self, pulled: &PulledMessage) -> Duration {
        let deadline = pulled.message.headers.get(headers::DEADLINE_HEADER);
        let deadline = deadline.and_then(|value| value.parse().ok());
        let remaining = deadline.map_or(Duration::MAX, |unix_ms| {
            Deadline::from_unix_ms(unix_ms).remaining(self.context.bus.now_ms())
        });
        self.delays
            .next_delay(pulled.delivered, remaining, Instant::now())
    }

    async fn extend_held(&self) {
        for held in self.shares.held() {
            extend_ack_deadline(held, self.context.ack_wait / 3).await;
        }
    }

    async fn hand_back_held(&mut self) {
        for held in self.shares.take_held() {
            hand_back(&held, Duration::ZERO).await;
        }
    }
}

/// Measures the backlog of the durable. A failure shows in the pulls.
async fn measure_backlog<H>(context: &WorkerContext<H>) {
    let found = context
        .bus
        .inner
        .backend
        .consumer(WORK_STREAM, &context.durable);
    if let Ok(Ok(Some(state))) = tokio::time::timeout(PULL_WAIT, found).await {
        context
            .bus
            .inner
            .metrics
            .backlog(&context.durable, state.pending, state.ack_pending);
    }
}

fn new_backoff() -> Backoff {
    Backoff::new(Duration::from_millis(200), Duration::from_secs(10))
}

/// The last token of the subject, because the server has checked the publisher's right to it. Messages with an unusable
/// subject count as one tenant until they are refused.
fn subject_tenant(pulled: &PulledMessage) -> &str {
    let subject = pulled.message.subject.as_str();
    subject.rsplit_once('.').map_or("", |(_, tenant)| tenant)
}

/// Returns a delivered message that was not started (messaging-reliability 15 step 2).
async fn hand_back(pulled: &PulledMessage, delay: Duration) {
    if let Err(error) = pulled.acker.send(AckAction::Redeliver(delay)).await {
        tracing::debug!(
            error = &error as &dyn std::error::Error,
            "a message was not returned to the server"
        );
    }
}
