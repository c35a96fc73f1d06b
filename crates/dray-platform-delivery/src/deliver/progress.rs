//! Progress reports of a running delivery, and the number of uploaded bytes.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use dray_platform::{PlatformError, Route, UploadProgress};
use dray_proto::v1::{self, DeliveryErrorKind, DeliveryStage};

use super::run::{DeliveryRun, OpenDelivery};
use crate::error::DeliveryError;
use crate::machine::StepPlan;
use crate::record::FileFailureKind;

/// Interval between two progress reports of one upload (platform-delivery 9: uploads of more than 3 s show progress).
const PROGRESS_INTERVAL: Duration = Duration::from_secs(3);

/// Counts the bytes of one upload.
#[derive(Debug, Default)]
pub(super) struct UploadCounter {
    bytes: AtomicU64,
}

impl UploadCounter {
    pub(super) fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Relaxed)
    }
}

impl UploadProgress for UploadCounter {
    fn sent(&self, bytes: u64) {
        self.bytes.fetch_add(bytes, Ordering::Relaxed);
    }
}

/// Name and size of an upload, for progress reports.
pub(super) struct UploadStage {
    name: String,
    total: u64,
}

impl UploadStage {
    pub(super) fn of(open: &OpenDelivery, step: &StepPlan) -> Self {
        let files: Vec<_> = step
            .files
            .iter()
            .filter_map(|index| {
                let index = usize::try_from(*index).ok()?;
                let position = open.live.iter().position(|live| *live == index)?;
                open.delivery.files.get(position)
            })
            .collect();
        Self {
            name: match files.as_slice() {
                [only] => only.name.clone(),
                _ => String::new(),
            },
            total: match step.route {
                Route::Link => 0,
                _ => files.iter().map(|file| file.size).sum(),
            },
        }
    }
}

impl DeliveryRun<'_> {
    /// Runs a request to the platform and reports its progress every 3 s. Ends early only when the worker is stopped.
    pub(super) async fn with_progress_reports<T>(
        &mut self,
        stage: UploadStage,
        counter: &UploadCounter,
        work: impl Future<Output = T>,
    ) -> Result<T, DeliveryError> {
        let cancel = self.cancel.clone();
        let reporting = async {
            let mut tick = tokio::time::interval(PROGRESS_INTERVAL);
            loop {
                tick.tick().await;
                let report = self.progress_report(
                    DeliveryStage::Sending,
                    &stage.name,
                    counter.bytes(),
                    stage.total,
                );
                self.publish(report).await;
            }
        };
        tokio::select! {
            biased;
            done = work => Ok(done),
            () = cancel.cancelled() => Err(DeliveryError::Interrupted),
            () = reporting => Err(DeliveryError::Interrupted),
        }
    }

    /// Reports a step whose stage is stored.
    pub(super) async fn progress(&mut self, stage: DeliveryStage, step: &StepPlan) {
        let report = self.step_report(stage, step);
        self.publish(report).await;
    }

    /// Reports that a step waits, once the record says so.
    pub(super) fn report_wait_when_stored(&mut self, step: &StepPlan) {
        let report = self.step_report(DeliveryStage::Waiting, step);
        self.unpublished.push(report);
    }

    /// Reports why a request to the platform failed, once the record has this attempt.
    pub(super) fn report_failure_when_stored(
        &mut self,
        step: &StepPlan,
        attempt: u32,
        error: &PlatformError,
    ) {
        let report = v1::DeliveryProgressed {
            error_code: DeliveryErrorKind::from(FileFailureKind::Platform(error.kind())).into(),
            platform_code: error.platform_code().to_owned(),
            attempt,
            ..self.step_report(DeliveryStage::AttemptFailed, step)
        };
        self.unpublished.push(report);
    }

    /// Publishes the reports that waited for the record.
    pub(super) async fn publish_stored_reports(&mut self) {
        for report in std::mem::take(&mut self.unpublished) {
            self.publish(report).await;
        }
    }

    /// A report that names the file of the step, if it has only one.
    fn step_report(&mut self, stage: DeliveryStage, step: &StepPlan) -> v1::DeliveryProgressed {
        let name = match step.files.as_slice() {
            [index] => self.file_mut(*index).map(|file| file.name.clone()),
            _ => None,
        };
        self.progress_report(stage, &name.unwrap_or_default(), 0, 0)
    }

    fn progress_report(
        &self,
        stage: DeliveryStage,
        name: &str,
        bytes: u64,
        total: u64,
    ) -> v1::DeliveryProgressed {
        let mut report = v1::DeliveryProgressed {
            delivery_id: self.record().delivery_id.clone(),
            session: self.record().session.clone(),
            name: name.to_owned(),
            bytes,
            total,
            ..v1::DeliveryProgressed::default()
        };
        report.set_delivery_stage(stage);
        report
    }

    /// Publishes a progress report. A failure is only logged, because no other part depends on these reports.
    async fn publish(&mut self, report: v1::DeliveryProgressed) {
        self.progress_events += 1;
        let part = format!(
            "{}.{}.{:x}",
            report.stage_name(),
            self.progress_events,
            rand::random::<u32>()
        );
        if let Err(error) = self
            .context
            .bus
            .publish_event_part(&self.meta, &part, &report)
            .await
        {
            tracing::debug!(%error, "report of a delivery was not published");
        }
    }
}
