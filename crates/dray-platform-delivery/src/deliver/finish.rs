//! The end of a delivery: reports for the user, the agent and the auditors.

use dray_bus::{Bus, Meta};
use dray_platform::{ErrorKind, Route};
use dray_presentation::notice::FileFailure;
use opentelemetry::{Array, StringValue, Value};
use tracing_opentelemetry::OpenTelemetrySpanExt as _;

use super::WorkEnd;
use super::run::{DeliveryRun, OpenDelivery};
use crate::error::DeliveryError;
use crate::machine::{DeliveryStep, FailedStep, StepPlan};
use crate::record::{self, DeliveryRecord, FileState};
use crate::report;

impl DeliveryRun<'_> {
    /// Adds the captions of files that failed as texts of their own, so that the text of the agent is not lost with the
    /// file. Returns `false` if there is none, or if the chat would refuse a text as well.
    pub(super) async fn add_lost_captions(
        &mut self,
        open: &OpenDelivery,
    ) -> Result<bool, DeliveryError> {
        if self.record().cancelled
            || open.account.platform.name() == "cli"
            || is_notice_unreachable(self.record())
        {
            return Ok(false);
        }
        let captions = take_lost_captions(&mut self.record_mut().steps);
        if captions.is_empty() {
            return Ok(false);
        }
        for caption in captions {
            let step = self.new_step(&[], StepPlan::text(Route::Text, caption));
            self.record_mut().steps.push(step.into());
        }
        self.save().await?;
        Ok(true)
    }

    /// Adds the notice about failed files as one more step (platform-delivery 9). Returns `false` if no notice is due.
    pub(super) async fn add_notice(&mut self, open: &OpenDelivery) -> Result<bool, DeliveryError> {
        let steps = &self.record().steps;
        let is_reported = steps.iter().any(|step| step.route == Route::Notice);
        // The command line prints the failures itself; a chat that refuses files refuses the notice as well.
        if is_reported
            || open.account.platform.name() == "cli"
            || is_notice_unreachable(self.record())
        {
            return Ok(false);
        }
        let new_failures = self.unreported().await;
        let text = report::failure_notice(&new_failures);
        if text.is_empty() {
            return Ok(false);
        }
        self.record_mut().notice.clone_from(&text);
        let step = self.new_step(&[], StepPlan::text(Route::Notice, text));
        self.record_mut().steps.push(step.into());
        self.save().await?;
        Ok(true)
    }

    /// Failures that were not reported to the user in this turn.
    async fn unreported(&self) -> Vec<FileFailure> {
        let failures = report::user_failures(self.record());
        let marks = failures.iter().map(report::failure_mark).collect();
        let turn = match self.record().turn.as_str() {
            // Without a turn each delivery reports its own failures.
            "" => &self.record().delivery_id,
            turn => turn,
        };
        let session = &self.record().session;
        let new_failures = self
            .context
            .platform_cache
            .unreported(session, turn, marks)
            .await;
        failures
            .into_iter()
            .filter(|failure| new_failures.contains(&report::failure_mark(failure)))
            .collect()
    }

    /// Ends the delivery: gives every file a final state, writes the audit events, and stores the record.
    pub(super) async fn finish(
        &mut self,
        open: Option<&OpenDelivery>,
    ) -> Result<WorkEnd, DeliveryError> {
        let now_ms = self.context.clock.now_ms();
        conclude(self.record_mut(), now_ms);
        let platform = open.map_or_else(
            || self.record().target.clone().unwrap_or_default().platform,
            |open| open.account.platform.name().to_owned(),
        );
        // The events are written before the record is final: a repetition may write the events twice, but none is lost.
        audit(&self.context.bus, &self.meta, &platform, self.record()).await;
        self.save().await?;
        self.context.log.index.note(&self.key, &self.stored);
        self.context.metrics.finished(&platform, self.record());
        trace_messages(&platform, self.record());
        Ok(WorkEnd::Finished(self.stored.record.clone()))
    }
}

/// Removes the captions of failed files from their steps, so that each is sent once. The caption of a step whose
/// outcome is unknown stays: it may be visible.
fn take_lost_captions(steps: &mut [DeliveryStep]) -> Vec<String> {
    let mut captions = Vec::new();
    for slot in steps {
        let DeliveryStep::Failed(step) = &*slot else {
            continue;
        };
        // The text of a link is the link.
        if step.files.is_empty() || step.route == Route::Link || step.text.trim().is_empty() {
            continue;
        }
        let mut data = (**step).clone();
        captions.push(std::mem::take(&mut data.plan.text));
        *slot = FailedStep::restored(data).into();
    }
    captions
}

/// Adds the platform and the ids of its messages to the span of the work, so that the trace of a turn leads to the
/// visible messages.
fn trace_messages(platform: &str, record: &DeliveryRecord) {
    let mut ids: Vec<StringValue> = Vec::new();
    for file in &record.files {
        let id = StringValue::from(file.platform_message_id.clone());
        // Several files may share one message.
        if !id.as_str().is_empty() && !ids.contains(&id) {
            ids.push(id);
        }
    }
    let span = tracing::Span::current();
    span.set_attribute("dray.platform", platform.to_owned());
    if !ids.is_empty() {
        span.set_attribute(
            "dray.platform_message_ids",
            Value::Array(Array::String(ids)),
        );
    }
}

/// Whether a notice would fail like the files, because the account or the chat refuses every message.
fn is_notice_unreachable(record: &DeliveryRecord) -> bool {
    record.steps.iter().any(|step| {
        matches!(step, DeliveryStep::Failed(_))
            && matches!(
                step.error_kind,
                Some(ErrorKind::Auth | ErrorKind::NotFound | ErrorKind::Forbidden)
            )
    })
}

/// Marks a record as finished. A file without a final state was never sent, so it fails.
pub(crate) fn conclude(record: &mut DeliveryRecord, now_ms: u64) {
    for file in &mut record.files {
        if !file.state.is_final() {
            file.state = FileState::Failed;
            file.error_kind = Some(ErrorKind::Transient.into());
            "The file could not be delivered in time.".clone_into(&mut file.error_message);
        }
    }
    record.success = record.files.iter().all(|file| file.state.is_shown())
        // Without files, the delivery is its text. One without both counts as failed.
        && (!record.files.is_empty() || is_text_shown(record));
    record.finished = true;
    record.ended_at_ms = now_ms.max(1);
    record.due_at_ms = 0;
    record.waiting = None;
    if record.notice.is_empty() {
        record.notice = report::failure_notice(&report::user_failures(record));
    }
    if let Some(sentence) = message_outcome(record) {
        if !record.notice.is_empty() {
            record.notice.push('\n');
        }
        record.notice.push_str(sentence);
    }
    record.result_json = report::result_json(record);
}

/// Whether the platform confirmed every message with the text of a delivery; false if there is none.
fn is_text_shown(record: &DeliveryRecord) -> bool {
    let texts = || record.steps.iter().filter(|step| step.route == Route::Text);
    texts().next().is_some() && texts().all(|step| matches!(step, DeliveryStep::Done(_)))
}

/// A sentence about the text of a delivery, if the text was not certainly shown.
fn message_outcome(record: &DeliveryRecord) -> Option<&'static str> {
    let mut texts = record.steps.iter().filter(|step| step.route == Route::Text);
    texts.find_map(|step| match step {
        DeliveryStep::Failed(_) => {
            Some("⚠️ The message that goes with the files could not be shown.")
        }
        DeliveryStep::Unknown(_) => {
            Some("⚠️ The message that goes with the files may have been shown.")
        }
        DeliveryStep::Ready(_) | DeliveryStep::Sending(_) | DeliveryStep::Done(_) => None,
    })
}

/// Publishes one audit event for each file (platform-delivery 14.7).
pub(crate) async fn audit(bus: &Bus, meta: &Meta, platform: &str, record: &DeliveryRecord) {
    for file in &record.files {
        let line = record::audit_line(record, file, platform);
        if let Err(error) = bus.publish_audit(meta, &line).await {
            tracing::error!(%error, "an audit line is lost");
        }
    }
}
