//! Counts the views of previews, and publishes the audit event of a first view before the preview is shown.

use std::time::Duration;

use dray_bus::Meta;
use dray_proto::NamedCode as _;
use dray_proto::v1::{self, PreviewAction};
use dray_types::{Deadline, OperationId};

use crate::error::PreviewError;
use crate::records::{add_unreported, id_of, open_preview, remove_ended};
use crate::service::{FoundPreview, PreviewService};
use crate::token::PreviewKey;
use crate::visitor::PreviewVisitor;

/// Views within this time count once: reloads, and the parts of one page.
const VIEW_INTERVAL_MS: u64 = 10_000;
/// Longest time for the audit event of a first view.
const OPENED_TIMEOUT: Duration = Duration::from_secs(5);

/// A preview after a view, with the events that are not stored yet.
type CountedPreview = (v1::Preview, Vec<PreviewAction>);

impl PreviewService {
    /// Counts a view, and records the first one of a person and of a scanner. If the audit event of a first view cannot
    /// be stored, the preview is not shown, now and later, until the event is stored.
    pub(crate) async fn record_view(
        &self,
        found: &FoundPreview,
        visitor: PreviewVisitor,
    ) -> Result<(), PreviewError> {
        let now_ms = self.inner.system.clock.now_ms();
        if is_counted(&found.preview, visitor, now_ms) && !found.has_unreported {
            return Ok(());
        }
        let action = match visitor {
            PreviewVisitor::Person => PreviewAction::Opened,
            PreviewVisitor::Scanner => PreviewAction::Scanned,
        };
        let mut is_first = false;
        let count = |records: &mut v1::PreviewRecords| -> Result<CountedPreview, PreviewError> {
            remove_ended(records, now_ms);
            let mut own = records.records.iter_mut();
            let own = own.find(|record| {
                let open = open_preview(record, now_ms);
                open.is_some_and(|open| open.preview_id == found.preview.preview_id)
            });
            let record = own.ok_or(PreviewError::Unknown)?;
            let preview = record.preview.as_mut().ok_or(PreviewError::Unknown)?;
            is_first = count_view(preview, visitor, now_ms);
            let preview = preview.clone();
            if is_first {
                add_unreported(record, action);
            }
            Ok((preview, record.unreported().collect()))
        };
        // Of two concurrent views, one counts as the first.
        let (preview, unreported) = self.inner.records.change(found.key, count).await?;
        if is_first {
            self.inner.system.metrics.changed(action.name());
        }
        for due in unreported {
            self.report_view(found, due, &preview).await?;
        }
        Ok(())
    }

    /// Publishes the event of a first view.
    async fn report_view(
        &self,
        found: &FoundPreview,
        action: PreviewAction,
        preview: &v1::Preview,
    ) -> Result<(), PreviewError> {
        let now_ms = self.inner.system.clock.now_ms();
        // Concurrent views publish the same event under the same operation, and one of them is stored.
        let operation = format!("preview-{}-{}", preview.preview_id, action.name());
        let mut meta = Meta::new(
            found.tenant.clone(),
            Deadline::after(now_ms, OPENED_TIMEOUT),
        );
        if let Ok(operation) = OperationId::new(operation) {
            meta = meta.with_operation(operation);
        }
        let auditor = &self.inner.auditor;
        auditor.record_once(&meta, action, preview).await?;
        self.clear_unreported(found.key, &preview.preview_id, action)
            .await;
        Ok(())
    }

    /// Records that an event is stored. If this fails, a later request publishes the event again.
    pub(crate) async fn clear_unreported(
        &self,
        key: PreviewKey,
        preview_id: &str,
        action: PreviewAction,
    ) {
        let now_ms = self.inner.system.clock.now_ms();
        let clear = |records: &mut v1::PreviewRecords| {
            for record in &mut records.records {
                if id_of(record) == preview_id {
                    record.unreported.retain(|due| *due != i32::from(action));
                }
            }
            remove_ended(records, now_ms);
            Ok(())
        };
        if let Err(error) = self.inner.records.change(key, clear).await {
            tracing::warn!(%error, preview = preview_id, "could not record that an event of a preview is stored");
        }
    }
}

/// Whether a view within [`VIEW_INTERVAL_MS`] before this one was counted.
fn is_counted(preview: &v1::Preview, visitor: PreviewVisitor, now_ms: u64) -> bool {
    let last_ms = match visitor {
        PreviewVisitor::Person => preview.last_opened_at_ms,
        PreviewVisitor::Scanner => preview.last_scanned_at_ms,
    };
    last_ms > 0 && now_ms.saturating_sub(last_ms) < VIEW_INTERVAL_MS
}

/// Counts a view. Returns whether it is the first one of this kind of visitor.
fn count_view(preview: &mut v1::Preview, visitor: PreviewVisitor, now_ms: u64) -> bool {
    if is_counted(preview, visitor, now_ms) {
        return false;
    }
    let (first_ms, last_ms, count) = match visitor {
        PreviewVisitor::Person => (
            &mut preview.opened_at_ms,
            &mut preview.last_opened_at_ms,
            &mut preview.opened_count,
        ),
        PreviewVisitor::Scanner => (
            &mut preview.scanned_at_ms,
            &mut preview.last_scanned_at_ms,
            &mut preview.scanned_count,
        ),
    };
    *count = count.saturating_add(1);
    *last_ms = now_ms;
    // 0 means never: no view happens at the Unix epoch.
    let is_first = *first_ms == 0;
    if is_first {
        *first_ms = now_ms;
    }
    is_first
}
