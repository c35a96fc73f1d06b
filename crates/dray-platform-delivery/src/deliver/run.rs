//! One delivery in hand: its record, its files as the platform sees them, and what every step does with both.

use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use dray_bus::Meta;
use dray_platform::{ChatLimits, FilesStep, OutgoingDelivery, SendStep};
use dray_proto::v1;
use dray_types::{Deadline, Fault, Sha256Digest};
use tokio_util::sync::CancellationToken;

use super::plan::{LINK_ROUTE, NOTICE_ROUTE, TEXT_ROUTE};
use super::{DeliveryService, WorkEnd};
use crate::accounts::PlatformAccount;
use crate::error::DeliveryError;
use crate::records::{RecordError, RevisionedRecord};
use crate::report::{self, state};

/// What is kept of the deadline for telling how it went.
const REPORT_MARGIN: Duration = Duration::from_secs(5);

/// Characters of a key against duplicates (messaging-reliability 12).
const KEY_CHARACTERS: usize = 22;

/// A delivery in hand.
pub(super) struct DeliveryRun<'a> {
    pub(super) desk: &'a DeliveryService,
    pub(super) meta: Meta,
    pub(super) key: String,
    pub(super) held: RevisionedRecord,
    pub(super) cancel: CancellationToken,
    /// Identifies this worker in what it writes.
    writer: u64,
    /// Progress events so far.
    pub(super) told: u32,
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
    Park(u64, &'static str),
}

impl<'a> DeliveryRun<'a> {
    pub(super) fn new(
        desk: &'a DeliveryService,
        meta: Meta,
        key: String,
        held: RevisionedRecord,
        cancel: CancellationToken,
    ) -> Self {
        Self {
            desk,
            meta,
            key,
            held,
            cancel,
            writer: rand::random(),
            told: 0,
        }
    }

    pub(super) fn report(&self) -> &v1::DeliveryReport {
        &self.held.report
    }

    pub(super) fn report_mut(&mut self) -> &mut v1::DeliveryReport {
        &mut self.held.report
    }

    /// Writes the record as it stands. Only afterwards may anything follow from it.
    pub(super) async fn save(&mut self) -> Result<(), DeliveryError> {
        self.held.report.writer = self.writer;
        let report = self.held.report.clone();
        self.held = self
            .desk
            .records
            .write(&self.key, report, self.held.revision)
            .await?;
        Ok(())
    }

    /// The same for what must not be lost because it cannot be had again: the platform's word. Goes on while the bus is
    /// away, as long as the work may take.
    pub(super) async fn save_firmly(&mut self) -> Result<(), DeliveryError> {
        let mut was_away = false;
        loop {
            match self.save().await {
                Err(DeliveryError::Record(RecordError::Unreachable(error))) => {
                    tracing::warn!(
                        error = &error as &dyn std::error::Error,
                        "what a platform confirmed is not written yet"
                    );
                    was_away = true;
                    if !self.pause(self.desk.second).await? {
                        return Err(DeliveryError::Record(RecordError::Unreachable(error)));
                    }
                }
                // An earlier try may have been written without our hearing of it.
                Err(DeliveryError::Record(RecordError::Moved)) if was_away => {
                    let found = self.desk.records.read(&self.key).await?;
                    let ours = found.filter(|found| found.report == self.held.report);
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
        if self.report().due_at_ms != 0 {
            let report = self.report_mut();
            report.due_at_ms = 0;
            report.waiting.clear();
            self.save().await?;
            self.desk.index.note(&self.key, &self.held);
        }
        let mut open = match self.open(account, chat).await? {
            Ok(open) => open,
            Err(StepFlow::Park(due_ms, why)) => return self.park(due_ms, why).await,
            Err(_) => return self.finish(None).await,
        };
        loop {
            let mut at = 0;
            while at < self.report().steps.len() {
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

    /// Puts it back: another piece of work goes on when its time has come.
    pub(super) async fn park(
        &mut self,
        due_ms: u64,
        why: &'static str,
    ) -> Result<WorkEnd, DeliveryError> {
        let report = self.report_mut();
        report.due_at_ms = due_ms.max(1);
        why.clone_into(&mut report.waiting);
        report.rounds += 1;
        self.save().await?;
        self.desk.index.note(&self.key, &self.held);
        self.desk.metrics.parked(why);
        tracing::info!(why, due_ms, "a delivery waits");
        Ok(WorkEnd::Waiting(self.held.report.clone()))
    }

    /// Nothing of it can be sent at all.
    pub(super) async fn refuse_all(
        &mut self,
        kind: &str,
        fault: &Fault,
    ) -> Result<WorkEnd, DeliveryError> {
        for file in &mut self.report_mut().files {
            if !report::is_final(&file.state) {
                state::STATE_REJECTED.clone_into(&mut file.state);
                kind.clone_into(&mut file.error_kind);
                file.error_message.clone_from(&fault.message);
            }
        }
        self.finish(None).await
    }

    /// Until when it may be tried.
    pub(super) fn limit(&self) -> Deadline {
        Deadline::from_unix_ms(self.report().deadline_ms)
            .min(self.meta.deadline)
            .earlier(REPORT_MARGIN)
    }

    /// Waits; `false` when that would take longer than there is time.
    pub(super) async fn pause(&self, delay: Duration) -> Result<bool, DeliveryError> {
        if delay.is_zero() {
            return Ok(true);
        }
        if delay >= self.limit().remaining(self.desk.clock.now_ms()) {
            return Ok(false);
        }
        tokio::select! {
            () = tokio::time::sleep(delay) => Ok(true),
            () = self.cancel.cancelled() => Err(DeliveryError::Interrupted),
        }
    }

    /// A new step over files of the record, with a fingerprint that no other step of it has.
    pub(super) fn new_step(
        &self,
        others: &[v1::DeliveryStep],
        route: &str,
        files: Vec<u32>,
        text: String,
        lossy: bool,
    ) -> v1::DeliveryStep {
        let mut count = 0_u32;
        let fingerprint = loop {
            let found = self.fingerprint(route, &files, &text, count);
            let known = self.report().steps.iter().chain(others);
            if !known.into_iter().any(|step| step.fingerprint == found) {
                break found;
            }
            count += 1;
        };
        v1::DeliveryStep {
            route: route.to_owned(),
            files,
            text,
            lossy,
            state: "ready".to_owned(),
            fingerprint,
            ..v1::DeliveryStep::default()
        }
    }

    /// SHA-256 of the operation and what the step shows.
    fn fingerprint(&self, route: &str, files: &[u32], text: &str, count: u32) -> Vec<u8> {
        let mut bytes = Vec::new();
        let mut field = |part: &[u8]| {
            bytes.extend_from_slice(&(part.len() as u64).to_be_bytes());
            bytes.extend_from_slice(part);
        };
        field(self.report().delivery_id.as_bytes());
        field(route.as_bytes());
        field(text.as_bytes());
        field(&count.to_be_bytes());
        for index in files {
            field(&index.to_be_bytes());
            let file = usize::try_from(*index)
                .ok()
                .and_then(|index| self.report().files.get(index));
            field(file.map_or(&[], |file| file.sha256.as_slice()));
        }
        Sha256Digest::of(&bytes).as_bytes().to_vec()
    }

    /// The record's file at this place.
    pub(super) fn file_mut(&mut self, index: u32) -> Option<&mut v1::DeliveredFile> {
        let index = usize::try_from(index).ok()?;
        self.held.report.files.get_mut(index)
    }

    /// The record's step at this place.
    pub(super) fn step_at(&self, at: usize) -> v1::DeliveryStep {
        self.report().steps.get(at).cloned().unwrap_or_default()
    }

    /// Changes the record's step at this place; nothing is written yet.
    pub(super) fn change(&mut self, at: usize, change: impl FnOnce(&mut v1::DeliveryStep)) {
        if let Some(step) = self.held.report.steps.get_mut(at) {
            change(step);
        }
    }
}

impl OpenDelivery {
    /// The step as the platform sees it; `None` when one of its files cannot be read. The record names the file that a
    /// link stands for; the platform does not get it.
    pub(super) fn platform_step(&self, step: &v1::DeliveryStep) -> Option<SendStep> {
        match step.route.as_str() {
            LINK_ROUTE => return Some(SendStep::Link(step.text.clone())),
            TEXT_ROUTE | NOTICE_ROUTE => return Some(SendStep::Text(step.text.clone())),
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
            route: step.route.clone(),
            files: files?,
            text: step.text.clone(),
            lossy: step.lossy,
        }))
    }

    /// The record's place of a file of the delivery.
    pub(super) fn record_index(&self, file: usize) -> Option<u32> {
        u32::try_from(*self.live.get(file)?).ok()
    }
}

/// The key against duplicates of a step.
pub(super) fn key_of(step: &v1::DeliveryStep) -> String {
    let mut key = URL_SAFE_NO_PAD.encode(&step.fingerprint);
    key.truncate(KEY_CHARACTERS);
    key
}
