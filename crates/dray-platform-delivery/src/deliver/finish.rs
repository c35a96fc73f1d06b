//! The end of a delivery: reports for the user, the agent and the auditors.

use dray_content::notice::FileFailure;
use dray_proto::v1;

use super::plan::{NOTICE_ROUTE, TEXT_ROUTE};
use super::run::{DeliveryRun, OpenDelivery};
use super::{DeliveryService, WorkEnd};
use crate::error::DeliveryError;
use crate::machine::{self, StepPhase};
use crate::report::{self, state};

impl DeliveryRun<'_> {
    /// Adds the notice about what failed as one more step (platform-delivery 9); `false` when there is nothing to add.
    pub(super) async fn add_notice(&mut self, open: &OpenDelivery) -> Result<bool, DeliveryError> {
        let steps = &self.report().steps;
        let is_told = steps.iter().any(|step| step.route == NOTICE_ROUTE);
        if is_told || open.account.platform.name() == "cli" || is_notice_unreachable(self.report())
        {
            return Ok(false);
        }
        let fresh = self.untold().await;
        let text = report::failure_notice(&fresh);
        if text.is_empty() {
            return Ok(false);
        }
        self.report_mut().notice.clone_from(&text);
        let step = self.new_step(&[], NOTICE_ROUTE, Vec::new(), text, false);
        self.report_mut().steps.push(step);
        self.save().await?;
        Ok(true)
    }

    /// Failures that were not reported to the user in this turn.
    async fn untold(&self) -> Vec<FileFailure> {
        let failures = report::user_failures(self.report());
        let marks = failures.iter().map(report::failure_mark).collect();
        let turn = match self.report().turn.as_str() {
            "" => &self.report().delivery_id,
            turn => turn,
        };
        let session = &self.report().session;
        let fresh = self.desk.platform_cache.untold(session, turn, marks).await;
        failures
            .into_iter()
            .filter(|failure| fresh.contains(&report::failure_mark(failure)))
            .collect()
    }

    /// Ends the delivery: what has no end yet gets one, the record says so, and the audit knows.
    pub(super) async fn finish(
        &mut self,
        open: Option<&OpenDelivery>,
    ) -> Result<WorkEnd, DeliveryError> {
        let now_ms = self.desk.clock.now_ms();
        conclude_report(self.report_mut(), now_ms);
        let platform = open.map_or_else(
            || self.report().target.clone().unwrap_or_default().platform,
            |open| open.account.platform.name().to_owned(),
        );
        self.desk.audit(&self.meta, &platform, self.report()).await;
        self.save().await?;
        self.desk.index.note(&self.key, &self.held);
        self.desk.metrics.finished(&platform, self.report());
        Ok(WorkEnd::Finished(self.held.report.clone()))
    }
}

/// Whether a notice would fail as everything else did.
fn is_notice_unreachable(report: &v1::DeliveryReport) -> bool {
    report.steps.iter().any(|step| {
        machine::step_phase(step) == StepPhase::Failed
            && matches!(step.error_kind.as_str(), "auth" | "not_found" | "forbidden")
    })
}

/// Writes the end into a record. A file without an end has none because nothing of it was ever sent.
pub(crate) fn conclude_report(report: &mut v1::DeliveryReport, now_ms: u64) {
    for file in &mut report.files {
        if !report::is_final(&file.state) {
            state::STATE_FAILED.clone_into(&mut file.state);
            "transient".clone_into(&mut file.error_kind);
            "The file could not be delivered in time.".clone_into(&mut file.error_message);
        }
    }
    report.success = report
        .files
        .iter()
        .all(|file| report::is_shown(&file.state))
        && !(report.files.is_empty() && report.message.is_empty());
    report.finished = true;
    report.ended_at_ms = now_ms.max(1);
    report.due_at_ms = 0;
    report.waiting.clear();
    if report.notice.is_empty() {
        report.notice = report::failure_notice(&report::user_failures(report));
    }
    if let Some(words) = message_outcome(report) {
        if !report.notice.is_empty() {
            report.notice.push('\n');
        }
        report.notice.push_str(words);
    }
    report.result_json = report::result_json(report);
}

/// What became of the words that go with the files, when it was not what was asked.
fn message_outcome(report: &v1::DeliveryReport) -> Option<&'static str> {
    let mut words = report.steps.iter().filter(|step| step.route == TEXT_ROUTE);
    words.find_map(|step| match machine::step_phase(step) {
        StepPhase::Failed => Some("⚠️ The message that goes with the files could not be shown."),
        StepPhase::Unknown => Some("⚠️ The message that goes with the files may have been shown."),
        StepPhase::Ready | StepPhase::Sending | StepPhase::Done => None,
    })
}

impl DeliveryService {
    /// One line for each file (platform-delivery 14.7).
    pub(crate) async fn audit(
        &self,
        meta: &dray_bus::Meta,
        platform: &str,
        report: &v1::DeliveryReport,
    ) {
        for file in &report.files {
            let line = v1::DeliveryAudit {
                delivery_id: report.delivery_id.clone(),
                direction: "out".to_owned(),
                platform: platform.to_owned(),
                session: report.session.clone(),
                name: dray_content::name::shown_name(&file.name),
                size: file.size,
                sha256: file.sha256.clone(),
                route: file.route.clone(),
                state: file.state.clone(),
                error_kind: file.error_kind.clone(),
                platform_message_id: file.platform_message_id.clone(),
            };
            if let Err(error) = self.bus.publish_audit(meta, &line).await {
                tracing::error!(%error, "an audit line is lost");
            }
        }
    }
}
