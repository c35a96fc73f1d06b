//! News on messages that were sent, and messages of users that open a window.

use std::sync::Arc;

use dray_bus::Bus;
use dray_platform::{ErrorKind, StatusUpdate};
use dray_proto::v1;
use dray_types::Clock;

use crate::accounts::PlatformAccount;
use crate::config::Config;
use crate::delivery_log::DeliveryLog;
use crate::error::DeliveryError;
use crate::index::IndexEntry;
use crate::machine::{DeliveryStep, StepConfirmation};
use crate::platform_cache::PlatformCache;
use crate::reconciler::{log_failure, round_meta};
use crate::record::{DeliveryRecord, FileState, WaitingReason};
use crate::report;

/// Corrects records by what platforms report after a send.
#[derive(Clone, Debug)]
pub(crate) struct StatusUpdates {
    pub(crate) bus: Bus,
    pub(crate) clock: Clock,
    pub(crate) config: Arc<Config>,
    pub(crate) log: DeliveryLog,
    pub(crate) platform_cache: PlatformCache,
}

impl StatusUpdates {
    /// A user wrote: what waited for that continues.
    pub(crate) async fn window_opened(&self, account: &PlatformAccount, chat: &str) {
        for line in self.log.index.unfinished() {
            let is_meant = line.waiting == Some(WaitingReason::WindowClosed)
                && line.target.chat == chat
                && line.target.platform == account.platform.name()
                && (line.target.account.is_empty() || line.target.account == account.name);
            if is_meant {
                log_failure(self.make_due(&line).await);
            }
        }
    }

    async fn make_due(&self, line: &IndexEntry) -> Result<(), DeliveryError> {
        let Some(mut held) = self.log.records.read(&line.key).await? else {
            return Ok(());
        };
        if held.record.finished || held.record.waiting != Some(WaitingReason::WindowClosed) {
            return Ok(());
        }
        held.record.due_at_ms = self.clock.now_ms().max(1);
        held.record.waiting = Some(WaitingReason::Queue);
        self.log
            .write(&line.key, held.record, held.revision)
            .await?;
        Ok(())
    }

    /// Handles a later status update of a message. Only failures change the record.
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
            // The response to our own request may still be on its way.
            self.platform_cache
                .keep_news(&id, &update.message_id, &update.code)
                .await;
            return Ok(());
        };
        let Some(mut held) = self.log.records.read(&origin.record).await? else {
            return Ok(());
        };
        if !apply_correction(&mut held.record, &update.message_id, &update.code) {
            return Ok(());
        }
        if is_window(&update.code) {
            self.wait_for_user(&mut held.record);
        }
        let written = self
            .log
            .write(&origin.record, held.record, held.revision)
            .await?;
        if let Some(meta) = round_meta(&written.record) {
            let done = v1::DeliveryDone {
                report: Some(report::for_event(&written.record)),
            };
            let part = format!("corrected.{}", written.revision);
            self.bus.publish_event_part(&meta, &part, &done).await?;
        }
        Ok(())
    }

    /// A delivery that ended continues when the user writes again.
    fn wait_for_user(&self, record: &mut DeliveryRecord) {
        record.finished = false;
        record.rounds += 1;
        record.due_at_ms = u64::MAX;
        record.waiting = Some(WaitingReason::WindowClosed);
        let delivery_timeout = self.config.window_timeout.as_millis();
        record.deadline_ms = self.clock.now_ms().saturating_add(delivery_timeout);
    }
}

/// The codes with which a platform says that only a message of the user opens the window (platform-delivery 7.5).
fn is_window(code: &str) -> bool {
    code == "131047"
}

/// Takes back what a platform confirmed and now denies. Returns whether anything changed.
pub(crate) fn apply_correction(record: &mut DeliveryRecord, message: &str, code: &str) -> bool {
    let kind = match code {
        code if is_window(code) => ErrorKind::WindowClosed,
        "131026" | "131030" | "131021" | "131049" => ErrorKind::Forbidden,
        "131051" | "131053" => ErrorKind::UnsupportedKind,
        _ => ErrorKind::Unknown,
    };
    let mut changed = false;
    let is_meant = |one: &StepConfirmation| one.provisional && one.message_id == message;
    for step in std::mem::take(&mut record.steps) {
        let done = match step {
            DeliveryStep::Done(done) if done.confirmed().iter().any(is_meant) => done,
            other => {
                record.steps.push(other);
                continue;
            }
        };
        changed = true;
        for index in &done.files {
            let Some(file) = record.file_mut(*index) else {
                continue;
            };
            file.give_up(kind, code);
            if kind == ErrorKind::WindowClosed {
                file.state = FileState::Queued;
            }
            file.platform_message_id.clear();
        }
        let mut denied = done.deny();
        denied.note_error(kind, code);
        record.steps.push(match kind {
            ErrorKind::WindowClosed => denied.into(),
            _ => denied.fail().into(),
        });
    }
    if changed {
        record.success = false;
        record.notice = report::failure_notice(&report::user_failures(record));
        record.result_json = report::result_json(record);
    }
    changed
}
