//! The state of one running delivery: its record and its files, which all steps use.

use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use dray_bus::Meta;
use dray_platform::{ChatLimits, FilesStep, OutgoingDelivery, Route, SendStep};
use dray_types::{Deadline, Fault, Sha256Digest};
use tokio_util::sync::CancellationToken;

use super::{SendContext, WorkEnd};
use crate::accounts::PlatformAccount;
use crate::error::DeliveryError;
use crate::machine::{DeliveryStep, ReadyStep, StepData, StepPlan};
use crate::record::{DeliveryRecord, FileFailureKind, FileRecord, FileState, WaitingReason};
use crate::records::{RecordError, RevisionedRecord};

/// The part of the deadline that is kept for the report.
const REPORT_MARGIN: Duration = Duration::from_secs(5);

/// Characters of a key against duplicates (messaging-reliability 12).
const KEY_CHARACTERS: usize = 22;

/// A delivery in hand.
pub(super) struct DeliveryRun<'a> {
    pub(super) context: &'a SendContext,
    pub(super) meta: Meta,
    pub(super) key: String,
    pub(super) held: RevisionedRecord,
    pub(super) cancel: CancellationToken,
    /// Identifies this worker in what it writes.
    writer: u64,
    /// Progress events so far.
    pub(super) told: u32,
    /// Fingerprint of the step whose visible request this worker made last.
    pub(super) own_request: Option<Vec<u8>>,
}

/// A delivery with its account and its turn.
pub(super) struct OpenDelivery {
    pub(super) account: Arc<PlatformAccount>,
    pub(super) chat: String,
    pub(super) delivery: OutgoingDelivery,
    /// For each file of `delivery` its place in the record.
    pub(super) live: Vec<usize>,
    pub(super) limits: ChatLimits,
}

/// What follows a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StepFlow {
    /// The next step.
    Next,
    /// The same step again.
    Again,
    /// Later, by another piece of work.
    Park(u64, WaitingReason),
}

impl<'a> DeliveryRun<'a> {
    pub(super) fn new(
        context: &'a SendContext,
        meta: Meta,
        key: String,
        held: RevisionedRecord,
        cancel: CancellationToken,
    ) -> Self {
        Self {
            context,
            meta,
            key,
            held,
            cancel,
            writer: rand::random(),
            told: 0,
            own_request: None,
        }
    }

    pub(super) const fn record(&self) -> &DeliveryRecord {
        &self.held.record
    }

    pub(super) const fn record_mut(&mut self) -> &mut DeliveryRecord {
        &mut self.held.record
    }

    /// Writes the record as it is. Only afterwards may anything follow from it.
    pub(super) async fn save(&mut self) -> Result<(), DeliveryError> {
        // After a lost response this shows whether the stored revision is our own write (`save_firmly`).
        self.held.record.writer = self.writer;
        let record = self.held.record.clone();
        self.held = self
            .context
            .log
            .records
            .write(&self.key, record, self.held.revision)
            .await?;
        Ok(())
    }

    /// As [`Self::save`], for the response of a platform, which cannot be fetched again: retries while the bus is
    /// unavailable, until the deadline of the work.
    pub(super) async fn save_firmly(&mut self) -> Result<(), DeliveryError> {
        let mut was_away = false;
        loop {
            match self.save().await {
                Err(DeliveryError::Record(RecordError::Unreachable(error))) => {
                    tracing::warn!(
                        error = &error as &dyn std::error::Error,
                        "could not store the confirmation of a platform yet"
                    );
                    was_away = true;
                    // No backoff: the wait is bounded by the deadline, and each attempt is one small write.
                    if !self.pause(self.context.pace.retry_unit).await? {
                        return Err(DeliveryError::Record(RecordError::Unreachable(error)));
                    }
                }
                // An earlier attempt may have been written although its response was lost.
                Err(DeliveryError::Record(RecordError::Moved)) if was_away => {
                    let found = self.context.log.records.read(&self.key).await?;
                    // The record holds the writer's random id, so an equal record is ours and not that of another
                    // worker.
                    let ours = found.filter(|found| found.record == self.held.record);
                    self.held = ours.ok_or(RecordError::Moved)?;
                    return Ok(());
                }
                other => return other,
            }
        }
    }

    /// Everything from its present state to its end, or to the next long wait.
    pub(super) async fn go(
        &mut self,
        account: Arc<PlatformAccount>,
        chat: String,
    ) -> Result<WorkEnd, DeliveryError> {
        if self.record().due_at_ms != 0 {
            let record = self.record_mut();
            // Before the first step: a reconciler that reads the old time would publish the same work again.
            record.due_at_ms = 0;
            record.waiting = None;
            self.save().await?;
            self.context.log.index.note(&self.key, &self.held);
        }
        let mut open = match self.open(account, chat).await? {
            Ok(open) => open,
            Err(StepFlow::Park(due_ms, why)) => return self.park(due_ms, why).await,
            Err(_) => return self.finish(None).await,
        };
        loop {
            // From the first step in every round: final steps return immediately, and a step may have added others.
            let mut at = 0;
            while at < self.record().steps.len() {
                match self.step(&mut open, at).await? {
                    StepFlow::Next => at += 1,
                    StepFlow::Again => {}
                    StepFlow::Park(due_ms, why) => return self.park(due_ms, why).await,
                }
            }
            if !self.add_notice(&open).await? {
                return self.finish(Some(&open)).await;
            }
        }
    }

    /// Puts it back: another piece of work continues when its time has come.
    pub(super) async fn park(
        &mut self,
        due_ms: u64,
        why: WaitingReason,
    ) -> Result<WorkEnd, DeliveryError> {
        let record = self.record_mut();
        // 0 means that nothing holds the delivery up.
        record.due_at_ms = due_ms.max(1);
        record.waiting = Some(why);
        record.rounds += 1;
        self.save().await?;
        self.context.log.index.note(&self.key, &self.held);
        self.context.metrics.parked(why);
        tracing::info!(why = why.name(), due_ms, "a delivery waits");
        Ok(WorkEnd::Waiting(self.held.record.clone()))
    }

    /// Nothing of it can be sent at all.
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

    /// Until when it may be tried.
    pub(super) fn limit(&self) -> Deadline {
        Deadline::from_unix_ms(self.record().deadline_ms)
            .min(self.meta.deadline)
            // The result must still be written and reported when the last attempt runs into its deadline.
            .earlier(REPORT_MARGIN)
    }

    /// Waits; `false` when that would take longer than there is time.
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

    /// A new step over files of the record, with a fingerprint that no other step of it has.
    pub(super) fn new_step(&self, others: &[ReadyStep], plan: StepPlan) -> ReadyStep {
        let known = |found: &Vec<u8>| {
            let kept = self.record().steps.iter();
            let mut all = kept
                .map(|step| &step.fingerprint)
                .chain(others.iter().map(|step: &ReadyStep| &step.fingerprint));
            all.any(|fingerprint| fingerprint == found)
        };
        // The same text or file may be sent twice on purpose; the count keeps their keys against duplicates apart.
        let mut count = 0_u32;
        let fingerprint = loop {
            let found = self.fingerprint(&plan, count);
            if !known(&found) {
                break found;
            }
            count += 1;
        };
        ReadyStep::new(plan, fingerprint)
    }

    /// SHA-256 of the operation and what the step shows.
    fn fingerprint(&self, plan: &StepPlan, count: u32) -> Vec<u8> {
        let mut bytes = Vec::new();
        let mut field = |part: &[u8]| {
            // With its length before it, a field cannot be mistaken for a part of its neighbour.
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

    /// Whether the record's file at this place is sent as a preview.
    pub(super) fn is_preview(&self, index: u32) -> bool {
        let index = usize::try_from(index).unwrap_or(usize::MAX);
        let file = self.record().files.get(index);
        file.is_some_and(|file| file.preview.is_some())
    }

    /// The record's file at this place.
    pub(super) fn file_mut(&mut self, index: u32) -> Option<&mut FileRecord> {
        self.held.record.file_mut(index)
    }

    /// The record's step at this place.
    pub(super) fn step_at(&self, at: usize) -> Option<DeliveryStep> {
        self.record().steps.get(at).cloned()
    }

    /// Puts a step into its place after a transition; nothing is written yet.
    pub(super) fn put(&mut self, at: usize, step: impl Into<DeliveryStep>) {
        if let Some(step_slot) = self.held.record.steps.get_mut(at) {
            *step_slot = step.into();
        }
    }
}

impl OpenDelivery {
    /// The step as the platform sees it; `None` when one of its files cannot be read. The record names the file that a
    /// link stands for; the platform does not get it.
    pub(super) fn platform_step(&self, step: &StepPlan) -> Option<SendStep> {
        match step.route {
            // The record names the file for the receipt; the platform sends a text with a URL.
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

    /// The record's place of a file of the delivery.
    pub(super) fn record_index(&self, file: usize) -> Option<u32> {
        u32::try_from(*self.live.get(file)?).ok()
    }
}

/// The key against duplicates of a step.
pub(super) fn key_of(step: &StepData) -> String {
    let mut key = URL_SAFE_NO_PAD.encode(&step.fingerprint);
    // 22 characters of base64 hold 128 bits, and platforms limit the length of such keys (Discord: 25 characters).
    key.truncate(KEY_CHARACTERS);
    key
}
