//! Goes on with deliveries whose wait is over, ends those whose time is over, and corrects what a platform takes back.

mod abandoned;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use dray_bus::Meta;
use dray_platform::{ErrorKind, StatusUpdate};
use dray_proto::v1;
use dray_types::{Deadline, OperationId, SessionId, TraceContext};
use tokio_util::sync::CancellationToken;

use crate::accounts::PlatformAccount;
use crate::deliver::{DeliveryService, chat_of, waiting};
use crate::error::DeliveryError;
use crate::index::IndexEntry;
use crate::machine::{self, StepPhase};
use crate::records::{self, RecordError, RevisionedRecord};
use crate::report::{self, state};

/// Between two looks.
const RECONCILE_INTERVAL: Duration = Duration::from_secs(1);

/// How long after its end a delivery is left to the worker that has it.
const GRACE_MS: u64 = 60_000;

/// When work that was published for a delivery is published once more, if nothing came of it.
const AGAIN_MS: u64 = 60_000;

/// What was done for deliveries of late.
#[derive(Debug, Default)]
pub(crate) struct RecentPublishes {
    /// Rounds that were published, by revision, with the time.
    rounds: HashMap<String, (u64, u64)>,
    /// When the work of a delivery was looked at.
    looked: HashMap<String, u64>,
}

impl RecentPublishes {
    /// Nothing yet.
    pub(crate) fn new() -> Self {
        Self::default()
    }

    fn forget(&mut self, now_ms: u64) {
        self.rounds
            .retain(|_, (_, at)| now_ms.saturating_sub(*at) < AGAIN_MS);
        self.looked
            .retain(|_, at| now_ms.saturating_sub(*at) < abandoned::LOOK_MS);
    }

    /// Whether it is time to look at the work of a delivery again.
    fn may_look(&mut self, key: &str, now_ms: u64) -> bool {
        if self.looked.contains_key(key) {
            return false;
        }
        self.looked.insert(key.to_owned(), now_ms);
        true
    }
}

impl DeliveryService {
    /// Looks again and again until `stop`.
    pub async fn keep(self: Arc<Self>, stop: CancellationToken) {
        let mut published = RecentPublishes::new();
        loop {
            tokio::select! {
                () = stop.cancelled() => return,
                () = tokio::time::sleep(RECONCILE_INTERVAL) => {}
                () = self.wake_keeper.notified() => {}
            }
            if let Err(error) = self.index.refresh().await {
                tracing::warn!(
                    error = &error as &dyn std::error::Error,
                    "deliveries cannot be looked through"
                );
                continue;
            }
            self.sweep(&mut published).await;
        }
    }

    /// Looks once through what is not over.
    pub(crate) async fn sweep(&self, published: &mut RecentPublishes) {
        let now_ms = self.clock.now_ms();
        let mut started: HashMap<String, usize> = HashMap::new();
        let mut first_places: HashMap<String, u64> = HashMap::new();
        published.forget(now_ms);
        for line in self.index.unfinished() {
            if now_ms >= line.deadline_ms.saturating_add(GRACE_MS) {
                log_failure(self.expire(&line).await);
                continue;
            }
            if line.due_at_ms > now_ms {
                continue;
            }
            if published.may_look(&line.key, now_ms) {
                log_failure(self.look_at_work(&line).await);
            }
            if line.due_at_ms == 0 {
                continue;
            }
            let key = line.key.clone();
            if published
                .rounds
                .get(&key)
                .is_some_and(|(revision, _)| *revision == line.revision)
            {
                continue;
            }
            let chat = self.chat_of_line(&line);
            let begun = started.entry(chat.clone()).or_default();
            if *begun >= self.queue.room(&chat) {
                continue;
            }
            let first = match first_places.get(&chat) {
                Some(first) => *first,
                None => self.first_place(&chat).await,
            };
            first_places.insert(chat.clone(), first);
            // Work for it would find the same, and wait in a worker.
            if first < line.begun_at_ms {
                continue;
            }
            *begun += 1;
            match self.go_on(&line).await {
                Ok(()) => {
                    published.rounds.insert(key, (line.revision, now_ms));
                }
                Err(error) => log_failure(Err(error)),
            }
        }
    }

    /// The first open place of a chat; before all others while the bus is away.
    async fn first_place(&self, chat: &str) -> u64 {
        match self.chat_order.first(chat).await {
            Ok(first) => first.unwrap_or(u64::MAX),
            Err(error) => {
                log_failure(Err(RecordError::Unreachable(error).into()));
                0
            }
        }
    }

    fn chat_of_line(&self, line: &IndexEntry) -> String {
        let tenant = line.key.split('.').next().unwrap_or_default();
        let account = self.accounts.iter().find(|account| {
            account.platform.name() == line.target.platform
                && (line.target.account.is_empty() || account.name == line.target.account)
                && account
                    .tenant
                    .as_ref()
                    .is_none_or(|own| own.token() == tenant)
        });
        let id = account.map(|account| account.id()).unwrap_or_default();
        chat_of(&id, &line.target)
    }

    /// Publishes the work that goes on with a delivery.
    async fn go_on(&self, line: &IndexEntry) -> Result<(), DeliveryError> {
        let Some(held) = self.records.read(&line.key).await? else {
            return Ok(());
        };
        if held.report.finished || held.report.due_at_ms == 0 {
            return Ok(());
        }
        let Some(meta) = round_meta(&held.report) else {
            return Ok(());
        };
        self.bus
            .publish_work(&meta, &round_work(&held.report))
            .await?;
        Ok(())
    }

    /// Ends a delivery that was not ended in time. What was on its way may have arrived.
    async fn expire(&self, line: &IndexEntry) -> Result<(), DeliveryError> {
        let Some(mut held) = self.records.read(&line.key).await? else {
            return Ok(());
        };
        let now_ms = self.clock.now_ms();
        let report = &mut held.report;
        if report.finished || now_ms < report.deadline_ms.saturating_add(GRACE_MS) {
            return Ok(());
        }
        give_up(report);
        self.end(line, held, "expired").await
    }

    /// Writes and publishes the end of a delivery that no worker ends.
    async fn end(
        &self,
        line: &IndexEntry,
        mut held: RevisionedRecord,
        part: &str,
    ) -> Result<(), DeliveryError> {
        crate::deliver::conclude_report(&mut held.report, self.clock.now_ms());
        let written = self
            .records
            .write(&line.key, held.report, held.revision)
            .await?;
        self.index.note(&line.key, &written);
        let report = written.report;
        self.release_place_of(&line.key, &report).await;
        let Some(meta) = round_meta(&report) else {
            return Ok(());
        };
        let platform = report.target.clone().unwrap_or_default().platform;
        self.audit(&meta, &platform, &report).await;
        self.metrics.finished(&platform, &report);
        let done = v1::DeliveryDone {
            report: Some(report::for_event(&report)),
        };
        self.bus.publish_event_part(&meta, part, &done).await?;
        Ok(())
    }

    /// A user wrote: what waited for that goes on.
    pub(crate) async fn window_opened(&self, account: &PlatformAccount, chat: &str) {
        for line in self.index.unfinished() {
            let is_meant = line.waiting == waiting::WINDOW_CLOSED
                && line.target.chat == chat
                && line.target.platform == account.platform.name()
                && (line.target.account.is_empty() || line.target.account == account.name);
            if is_meant {
                log_failure(self.make_due(&line).await);
            }
        }
    }

    async fn make_due(&self, line: &IndexEntry) -> Result<(), DeliveryError> {
        let Some(mut held) = self.records.read(&line.key).await? else {
            return Ok(());
        };
        if held.report.finished || held.report.waiting != waiting::WINDOW_CLOSED {
            return Ok(());
        }
        held.report.due_at_ms = self.clock.now_ms().max(1);
        waiting::QUEUE_REASON.clone_into(&mut held.report.waiting);
        let written = self
            .records
            .write(&line.key, held.report, held.revision)
            .await?;
        self.index.note(&line.key, &written);
        Ok(())
    }

    /// Later news on a message. Only bad ones change anything.
    pub(crate) async fn status(
        &self,
        account: &PlatformAccount,
        update: &StatusUpdate,
    ) -> Result<(), DeliveryError> {
        if update.status != "failed" {
            return Ok(());
        }
        let id = account.id();
        let Some(origin) = self.platform_cache.origin(&id, &update.message_id).await else {
            // The answer to our own request may still be on its way.
            self.platform_cache
                .keep_news(&id, &update.message_id, &update.code)
                .await;
            return Ok(());
        };
        let Some(mut held) = self.records.read(&origin.record).await? else {
            return Ok(());
        };
        if !apply_correction(&mut held.report, &update.message_id, &update.code) {
            return Ok(());
        }
        if is_window(&update.code) {
            self.wait_for_user(&mut held.report);
        }
        let written = self
            .records
            .write(&origin.record, held.report, held.revision)
            .await?;
        self.index.note(&origin.record, &written);
        if let Some(meta) = round_meta(&written.report) {
            let done = v1::DeliveryDone {
                report: Some(report::for_event(&written.report)),
            };
            let part = format!("corrected.{}", written.revision);
            self.bus.publish_event_part(&meta, &part, &done).await?;
        }
        Ok(())
    }

    /// A delivery that ended goes on when the user writes again.
    fn wait_for_user(&self, report: &mut v1::DeliveryReport) {
        report.finished = false;
        report.rounds += 1;
        report.due_at_ms = u64::MAX;
        waiting::WINDOW_CLOSED.clone_into(&mut report.waiting);
        let patience = self.config.window_patience.as_millis();
        report.deadline_ms = self.clock.now_ms().saturating_add(patience);
    }
}

fn log_failure(result: Result<(), DeliveryError>) {
    match result {
        // Another replica was faster.
        Ok(()) | Err(DeliveryError::Record(RecordError::Moved)) => {}
        Err(error) => error.log("a waiting delivery is left for later"),
    }
}

/// The codes with which a platform says that only a message of the user opens the window (platform-delivery 7.5).
fn is_window(code: &str) -> bool {
    code == "131047"
}

/// Takes back what a platform confirmed and now denies. Returns whether anything changed.
pub(crate) fn apply_correction(report: &mut v1::DeliveryReport, message: &str, code: &str) -> bool {
    let kind = match code {
        code if is_window(code) => ErrorKind::WindowClosed,
        "131026" | "131030" | "131021" | "131049" => ErrorKind::Forbidden,
        "131051" | "131053" => ErrorKind::UnsupportedKind,
        _ => ErrorKind::Unknown,
    };
    let mut changed = false;
    for step in &mut report.steps {
        let is_meant = |one: &v1::StepConfirmation| one.provisional && one.message_id == message;
        if machine::step_phase(step) != StepPhase::Done || !step.confirmed.iter().any(is_meant) {
            continue;
        }
        changed = true;
        for index in &step.files {
            let place = usize::try_from(*index).unwrap_or(usize::MAX);
            let Some(file) = report.files.get_mut(place) else {
                continue;
            };
            if kind == ErrorKind::WindowClosed {
                state::STATE_QUEUED.clone_into(&mut file.state);
            } else {
                report::given_up(kind).clone_into(&mut file.state);
            }
            kind.as_str().clone_into(&mut file.error_kind);
            kind.sentence().clone_into(&mut file.error_message);
            code.clone_into(&mut file.platform_code);
            file.platform_message_id.clear();
        }
        step.confirmed.clear();
        step.attempts = 0;
        kind.as_str().clone_into(&mut step.error_kind);
        code.clone_into(&mut step.platform_code);
        if kind == ErrorKind::WindowClosed {
            machine::mark_ready(step);
        } else {
            machine::mark_failed(step);
        }
    }
    if changed {
        report.success = false;
        report.notice = report::failure_notice(&report::user_failures(report));
        report.result_json = report::result_json(report);
    }
    changed
}

/// Says of every file why it has no other end.
fn give_up(report: &mut v1::DeliveryReport) {
    let kind = match report.waiting.as_str() {
        waiting::WINDOW_CLOSED => ErrorKind::WindowClosed,
        waiting::RATE_LIMITED => ErrorKind::RateLimited,
        _ => ErrorKind::Transient,
    };
    for step in &mut report.steps {
        let phase = machine::step_phase(step);
        if phase.is_final() {
            continue;
        }
        if phase == StepPhase::Sending {
            machine::mark_unknown(step);
        } else {
            machine::mark_failed(step);
        }
        for index in &step.files {
            let place = usize::try_from(*index).unwrap_or(usize::MAX);
            let Some(file) = report.files.get_mut(place) else {
                continue;
            };
            if phase == StepPhase::Sending {
                crate::deliver::doubt_file(file, "ambiguous", &step.platform_code);
            } else if !report::is_final(&file.state) {
                report::given_up(kind).clone_into(&mut file.state);
                kind.as_str().clone_into(&mut file.error_kind);
                kind.sentence().clone_into(&mut file.error_message);
            }
        }
    }
}

/// The envelope of the work that goes on with a delivery.
pub(crate) fn round_meta(report: &v1::DeliveryReport) -> Option<Meta> {
    let delivery = OperationId::new(report.delivery_id.as_str()).ok()?;
    let deadline = Deadline::from_unix_ms(report.deadline_ms);
    let mut meta = Meta::new(DeliveryService::tenant_of(report), deadline)
        .with_operation(records::round_operation(&delivery, report.rounds));
    if let Ok(session) = SessionId::new(report.session.as_str()) {
        meta = meta.with_session(session);
    }
    if !report.traceparent.is_empty() {
        meta = meta.with_trace(TraceContext::new(&report.traceparent, ""));
    }
    Some(meta)
}

/// The work itself: everything else is in the record.
pub(crate) fn round_work(report: &v1::DeliveryReport) -> v1::DeliverFiles {
    v1::DeliverFiles {
        delivery_id: report.delivery_id.clone(),
        session: report.session.clone(),
        target: report.target.clone(),
        ..v1::DeliverFiles::default()
    }
}
