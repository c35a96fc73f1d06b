//! The state of one running delivery: its record and its files, which all steps use.

use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use dray_bus::Meta;
use dray_delivery_rules::failure::REPORT_MARGIN;
use dray_platform::{ChatLimits, FilesStep, OutgoingDelivery, Route, SendStep};
use dray_proto::v1;
use dray_types::{Deadline, Fault, Sha256Digest};
use tokio_util::sync::CancellationToken;

use super::{SendContext, WorkEnd};
use crate::accounts::PlatformAccount;
use crate::error::DeliveryError;
use crate::machine::{DeliveryStep, ReadyStep, StepData, StepPlan};
use crate::record::{DeliveryRecord, FileFailureKind, FileRecord, FileState, WaitingReason};
use crate::records::{RecordError, RevisionedRecord};

/// Length of an idempotency key, in characters (messaging-reliability 12).
const KEY_CHARACTERS: usize = 22;

/// A delivery that this worker runs.
pub(super) struct DeliveryRun<'a> {
    pub(super) context: &'a SendContext,
    pub(super) meta: Meta,
    pub(super) key: String,
    pub(super) stored: RevisionedRecord,
    pub(super) cancel: CancellationToken,
    /// Random id of this worker in the records that it writes.
    writer: u64,
    /// When this worker began its last visible request, or to run; Unix milliseconds.
    pub(super) request_begun_ms: u64,
    /// Progress events so far.
    pub(super) progress_events: u32,
    /// Progress reports about changes of the record that are not stored yet.
    pub(super) unpublished: Vec<v1::DeliveryProgressed>,
    /// Fingerprint of the step whose visible request this worker made last.
    pub(super) own_request: Option<Vec<u8>>,
}

/// A delivery with its account, its open files and the limits of its chat.
pub(super) struct OpenDelivery {
    pub(super) account: Arc<PlatformAccount>,
    pub(super) chat: String,
    pub(super) delivery: OutgoingDelivery,
    /// For each file of `delivery`, its index in the record.
    pub(super) live: Vec<usize>,
    pub(super) limits: ChatLimits,
}

/// The next action after a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StepFlow {
    /// Continue with the next step.
    Next,
    /// Handle the same step again.
    SameStep,
    /// Continue at this time in Unix milliseconds, in another message of the queue, for this reason.
    Park(u64, WaitingReason),
}

impl<'a> DeliveryRun<'a> {
    pub(super) fn new(
        context: &'a SendContext,
        meta: Meta,
        key: String,
        stored: RevisionedRecord,
        cancel: CancellationToken,
    ) -> Self {
        Self {
            context,
            meta,
            key,
            stored,
            cancel,
            writer: rand::random(),
            request_begun_ms: context.clock.now_ms(),
            progress_events: 0,
            unpublished: Vec::new(),
            own_request: None,
        }
    }

    pub(super) const fn record(&self) -> &DeliveryRecord {
        &self.stored.record
    }

    pub(super) const fn record_mut(&mut self) -> &mut DeliveryRecord {
        &mut self.stored.record
    }

    /// Stores the record, then publishes the reports about it. No other step may depend on a change before the change
    /// is stored.
    pub(super) async fn save(&mut self) -> Result<(), DeliveryError> {
        // After a lost response this shows whether the stored revision is our own write (`save_firmly`).
        self.stored.record.writer = self.writer;
        let record = self.stored.record.clone();
        self.stored = self
            .context
            .log
            .records
            .write(&self.key, record, self.stored.revision)
            .await?;
        self.publish_stored_reports().await;
        Ok(())
    }

    /// Like [`Self::save`], for the response of a platform, which cannot be fetched again: retries while the bus is
    /// unavailable, until the deadline of the work.
    pub(super) async fn save_firmly(&mut self) -> Result<(), DeliveryError> {
        let mut was_unreachable = false;
        loop {
            match self.save().await {
                Err(DeliveryError::Record(RecordError::Unreachable(error))) => {
                    tracing::warn!(
                        error = &error as &dyn std::error::Error,
                        "could not store the confirmation of a platform yet"
                    );
                    was_unreachable = true;
                    // There is no backoff: the wait is bounded by the deadline, and each attempt is one small write.
                    if !self.pause(self.context.send_delays.retry_unit).await? {
                        return Err(DeliveryError::Record(RecordError::Unreachable(error)));
                    }
                }
                // An earlier attempt may have been written although its response was lost.
                Err(DeliveryError::Record(RecordError::Moved)) if was_unreachable => {
                    let latest = self.context.log.records.read(&self.key).await?;
                    // The record contains the writer's random id, so an equal record is this worker's own.
                    let own_write = latest.filter(|latest| latest.record == self.stored.record);
                    self.stored = own_write.ok_or(RecordError::Moved)?;
                    self.publish_stored_reports().await;
                    return Ok(());
                }
                other => return other,
            }
        }
    }

    /// Runs the delivery from its stored state to its end, or to the next long wait.
    pub(super) async fn run_steps(
        &mut self,
        account: Arc<PlatformAccount>,
        chat: String,
    ) -> Result<WorkEnd, DeliveryError> {
        if self.record().due_at_ms != 0 {
            let record = self.record_mut();
            // The time is removed before the first step: a reconciler that reads the old time would publish the same
            // work again.
            record.due_at_ms = 0;
            record.waiting = None;
            self.save().await?;
            self.context.log.index.note(&self.key, &self.stored);
        }
        let mut open = match self.open(account, chat).await? {
            Ok(open) => open,
            Err(StepFlow::Park(due_ms, reason)) => return self.park(due_ms, reason).await,
            Err(_) => return self.finish(None).await,
        };
        loop {
            // Every round begins with the first step: final steps return immediately, and a step may have been
            // replaced.
            let mut step_index = 0;
            while step_index < self.record().steps.len() {
                match self.step(&mut open, step_index).await? {
                    StepFlow::Next => step_index += 1,
                    StepFlow::SameStep => {}
                    StepFlow::Park(due_ms, reason) => return self.park(due_ms, reason).await,
                }
            }
            // The notice comes last, after the text of the agent.
            if !self.add_lost_captions(&open).await? && !self.add_notice(&open).await? {
                return self.finish(Some(&open)).await;
            }
        }
    }

    /// Parks the delivery: at `due_ms` the reconciler publishes a message that continues it.
    pub(super) async fn park(
        &mut self,
        due_ms: u64,
        reason: WaitingReason,
    ) -> Result<WorkEnd, DeliveryError> {
        let record = self.record_mut();
        // 0 means that the delivery does not wait.
        record.due_at_ms = due_ms.max(1);
        record.waiting = Some(reason);
        record.rounds += 1;
        self.save().await?;
        self.context.log.index.note(&self.key, &self.stored);
        self.context.metrics.parked(reason);
        tracing::info!(reason = reason.name(), due_ms, "a delivery waits");
        Ok(WorkEnd::Waiting(self.stored.record.clone()))
    }

    /// Continues a delivery that waits until the user writes, if the user wrote after its last request. The message may
    /// have come before the record said that the delivery waits.
    pub(super) async fn continue_if_user_wrote(
        &mut self,
        account: &PlatformAccount,
        ended: Result<WorkEnd, DeliveryError>,
    ) -> Result<WorkEnd, DeliveryError> {
        let target = match &ended {
            Ok(WorkEnd::Waiting(record)) if record.waiting == Some(WaitingReason::WindowClosed) => {
                record.target.clone().unwrap_or_default()
            }
            _ => return ended,
        };
        let written_ms = self
            .context
            .platform_cache
            .last_message_ms(&account.id(), &target.chat)
            .await;
        if written_ms.is_none_or(|written_ms| written_ms < self.request_begun_ms) {
            return ended;
        }
        let now_ms = self.context.clock.now_ms();
        let record = self.record_mut();
        record.due_at_ms = now_ms.max(1);
        record.waiting = Some(WaitingReason::Queue);
        match self.save().await {
            Ok(()) => {}
            // The message itself continued it.
            Err(DeliveryError::Record(RecordError::Moved)) => return ended,
            Err(error) => return Err(error),
        }
        self.context.log.index.note(&self.key, &self.stored);
        Ok(WorkEnd::Waiting(self.stored.record.clone()))
    }

    /// Rejects all files without a final state, and finishes the delivery.
    pub(super) async fn refuse_all(
        &mut self,
        kind: FileFailureKind,
        fault: &Fault,
    ) -> Result<WorkEnd, DeliveryError> {
        for file in &mut self.record_mut().files {
            if !file.state.is_final() {
                file.state = FileState::Rejected;
                file.error_kind = Some(kind);
                file.error_message.clone_from(&fault.message);
            }
        }
        self.finish(None).await
    }

    /// Deadline of all attempts.
    pub(super) fn limit(&self) -> Deadline {
        Deadline::from_unix_ms(self.record().deadline_ms)
            .min(self.meta.deadline)
            // The result must still be written and reported when the last attempt runs into its deadline.
            .earlier(REPORT_MARGIN)
    }

    /// Waits, and returns `true`; returns `false` immediately if the delay would reach the deadline.
    pub(super) async fn pause(&self, delay: Duration) -> Result<bool, DeliveryError> {
        if delay.is_zero() {
            return Ok(true);
        }
        // A wait up to the deadline would leave no time for the attempt after it.
        if delay >= self.limit().remaining(self.context.clock.now_ms()) {
            return Ok(false);
        }
        tokio::select! {
            () = tokio::time::sleep(delay) => Ok(true),
            () = self.cancel.cancelled() => Err(DeliveryError::Interrupted),
        }
    }

    /// A new step over files of the record, with a fingerprint that no other step has.
    pub(super) fn new_step(&self, others: &[ReadyStep], plan: StepPlan) -> ReadyStep {
        let is_used = |candidate: &Vec<u8>| {
            let existing = self.record().steps.iter();
            let mut all = existing
                .map(|step| &step.fingerprint)
                .chain(others.iter().map(|step: &ReadyStep| &step.fingerprint));
            all.any(|fingerprint| fingerprint == candidate)
        };
        // The same text or file may be sent twice on purpose; the count makes their idempotency keys differ.
        let mut count = 0_u32;
        let fingerprint = loop {
            let candidate = self.fingerprint(&plan, count);
            if !is_used(&candidate) {
                break candidate;
            }
            count += 1;
        };
        ReadyStep::new(plan, fingerprint)
    }

    /// SHA-256 of the delivery id, the content of the step, and `count`.
    fn fingerprint(&self, plan: &StepPlan, count: u32) -> Vec<u8> {
        let mut bytes = Vec::new();
        let mut field = |part: &[u8]| {
            // The length before each field keeps different sequences of fields from having equal bytes.
            bytes.extend_from_slice(&(part.len() as u64).to_be_bytes());
            bytes.extend_from_slice(part);
        };
        field(self.record().delivery_id.as_bytes());
        field(plan.route.as_str().as_bytes());
        field(plan.text.as_bytes());
        field(&count.to_be_bytes());
        for index in &plan.files {
            field(&index.to_be_bytes());
            let file = usize::try_from(*index)
                .ok()
                .and_then(|index| self.record().files.get(index));
            field(file.map_or(&[], |file| file.sha256.as_slice()));
        }
        Sha256Digest::of(&bytes).as_bytes().to_vec()
    }

    /// Whether the file at this index of the record is sent as a preview.
    pub(super) fn is_preview(&self, index: u32) -> bool {
        let index = usize::try_from(index).unwrap_or(usize::MAX);
        let file = self.record().files.get(index);
        file.is_some_and(|file| file.preview.is_some())
    }

    /// The file at this index of the record.
    pub(super) fn file_mut(&mut self, index: u32) -> Option<&mut FileRecord> {
        self.stored.record.file_mut(index)
    }

    /// A copy of the step at this index of the record.
    pub(super) fn step_at(&self, step_index: usize) -> Option<DeliveryStep> {
        self.record().steps.get(step_index).cloned()
    }

    /// Replaces a step after a transition, without storing the record.
    pub(super) fn put(&mut self, step_index: usize, step: impl Into<DeliveryStep>) {
        if let Some(step_slot) = self.stored.record.steps.get_mut(step_index) {
            *step_slot = step.into();
        }
    }
}

impl OpenDelivery {
    /// The step as the platform gets it; `None` if one of its files cannot be read. The record names the file of a
    /// link; the platform gets only the text.
    pub(super) fn platform_step(&self, step: &StepPlan) -> Option<SendStep> {
        match step.route {
            // The record names the file only for the receipt.
            Route::Link => return Some(SendStep::Link(step.text.clone())),
            Route::Text | Route::Notice => return Some(SendStep::Text(step.text.clone())),
            _ => {}
        }
        let files: Option<Vec<usize>> = step
            .files
            .iter()
            .map(|index| {
                let index = usize::try_from(*index).ok()?;
                self.live.iter().position(|live| *live == index)
            })
            .collect();
        Some(SendStep::Files(FilesStep {
            route: step.route,
            files: files?,
            text: step.text.clone(),
            lossy: step.lossy,
        }))
    }

    /// A step of the platform over the files of the record.
    pub(super) fn record_plan(&self, step: &SendStep) -> StepPlan {
        let files = step.files().iter();
        StepPlan {
            route: step.route(),
            files: files.filter_map(|file| self.record_index(*file)).collect(),
            text: step.text().to_owned(),
            lossy: step.is_lossy(),
        }
    }

    /// The index in the record of a file of `delivery`.
    pub(super) fn record_index(&self, file: usize) -> Option<u32> {
        u32::try_from(*self.live.get(file)?).ok()
    }
}

/// The idempotency key of a step.
pub(super) fn key_of(step: &StepData) -> String {
    let mut key = URL_SAFE_NO_PAD.encode(&step.fingerprint);
    // 22 characters of base64 hold 128 bits, and platforms limit the length of such keys (Discord: 25 characters).
    key.truncate(KEY_CHARACTERS);
    key
}
