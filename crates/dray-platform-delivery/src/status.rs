//! Applies later status reports of platforms, and continues deliveries when a message of a user opens the window.

use dray_bus::Bus;
use dray_platform::{ErrorKind, StatusUpdate};
use dray_proto::v1;
use dray_service::ReplaceableValue;
use dray_types::{Clock, Sha256Digest};

use crate::accounts::PlatformAccount;
use crate::chat_positions::chat_of;
use crate::config::Config;
use crate::delivery_log::DeliveryLog;
use crate::error::DeliveryError;
use crate::index::IndexEntry;
use crate::machine::{DeliveryStep, StepConfirmation};
use crate::platform_cache::PlatformCache;
use crate::reconciler::{log_failure, mark_unpublished, publish_end};
use crate::record::{DeliveryRecord, FileState, WaitingReason};
use crate::report;

/// Corrects records after status reports of platforms.
#[derive(Clone, Debug)]
pub(crate) struct StatusUpdates {
    pub(crate) bus: Bus,
    pub(crate) clock: Clock,
    pub(crate) config: ReplaceableValue<Config>,
    pub(crate) log: DeliveryLog,
    pub(crate) platform_cache: PlatformCache,
}

impl StatusUpdates {
    /// Continues deliveries of the chat that wait for a message of the user.
    pub(crate) async fn window_opened(&self, account: &PlatformAccount, chat: &str) {
        let target = v1::ChatTarget {
            chat: chat.to_owned(),
            ..v1::ChatTarget::default()
        };
        let chat = chat_of(&account.id(), &target);
        for entry in self.log.index.unfinished() {
            let is_waiting = entry.waiting == Some(WaitingReason::WindowClosed);
            if is_waiting && entry.is_in(&chat, account.tenant.as_ref()) {
                log_failure(self.make_due(&entry).await);
            }
        }
    }

    async fn make_due(&self, entry: &IndexEntry) -> Result<(), DeliveryError> {
        let Some(mut stored) = self.log.records.read(&entry.key).await? else {
            return Ok(());
        };
        if stored.record.finished || stored.record.waiting != Some(WaitingReason::WindowClosed) {
            return Ok(());
        }
        stored.record.due_at_ms = self.clock.now_ms().max(1);
        stored.record.waiting = Some(WaitingReason::Queue);
        self.log
            .write(&entry.key, stored.record, stored.revision)
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
        // The cache is written before the record is read: a worker that stores its response meanwhile reads the cache
        // afterwards.
        self.platform_cache
            .keep_early_failure(&id, &update.message_id, &update.code)
            .await;
        let Some(origin) = self.platform_cache.origin(&id, &update.message_id).await else {
            return Ok(());
        };
        let Some(mut stored) = self.log.records.read(&origin.record).await? else {
            return Ok(());
        };
        let message = (update.message_id.as_str(), update.code.as_str());
        forget_refused_media(&self.platform_cache, account, &stored.record, message).await;
        if !apply_correction(&mut stored.record, &update.message_id, &update.code) {
            return Ok(());
        }
        let (is_cancelled, is_finished) = (stored.record.cancelled, stored.record.finished);
        let may_reach_chat = may_reach_chat(&update.code);
        if is_window_closed(&update.code) && !is_cancelled {
            self.wait_for_user(account, &mut stored.record).await;
        } else if is_finished && may_reach_chat && !is_cancelled {
            self.reopen(&mut stored.record);
        } else if is_finished {
            // A repeat of the report changes nothing, so without this mark a crash would lose the correction.
            mark_unpublished(&mut stored.record, self.clock.now_ms());
        }
        let written = self
            .log
            .write(&origin.record, stored.record, stored.revision)
            .await?;
        publish_end(&self.bus, &self.log, &origin.record, written).await
    }

    /// Reopens a finished delivery whose chat still takes messages: it sends refused media in another way, and the
    /// notice about files that failed.
    fn reopen(&self, record: &mut DeliveryRecord) {
        let now_ms = self.clock.now_ms();
        (record.due_at_ms, record.waiting) = (now_ms.max(1), Some(WaitingReason::Queue));
        record.finished = false;
        record.rounds += 1;
        let delivery_timeout = self.config.get().delivery_timeout.as_millis();
        record.deadline_ms = now_ms.saturating_add(delivery_timeout);
    }

    /// Reopens a finished delivery, so that it continues when the user writes again. It continues immediately if the
    /// user has written since its end.
    async fn wait_for_user(&self, account: &PlatformAccount, record: &mut DeliveryRecord) {
        let target = record.target.clone().unwrap_or_default();
        let written_ms = self
            .platform_cache
            .last_message_ms(&account.id(), &target.chat)
            .await;
        let is_open =
            record.finished && written_ms.is_some_and(|written_ms| written_ms > record.ended_at_ms);
        let now_ms = self.clock.now_ms();
        (record.due_at_ms, record.waiting) = if is_open {
            (now_ms.max(1), Some(WaitingReason::Queue))
        } else {
            (u64::MAX, Some(WaitingReason::WindowClosed))
        };
        record.finished = false;
        record.rounds += 1;
        let window_timeout = self.config.get().window_timeout.as_millis();
        record.deadline_ms = now_ms.saturating_add(window_timeout);
    }
}

/// Whether a platform's code means that only a message of the user opens the window (platform-delivery 7.5).
pub(crate) fn is_window_closed(code: &str) -> bool {
    code == "131047"
}

/// Whether a platform's code means that it could not use the media of a message (`WhatsApp`, platform-delivery 7.5), or
/// that a mail was too large (RFC 3463). The files may arrive by another route.
pub(crate) fn is_media_refused(code: &str) -> bool {
    matches!(code, "131052" | "131053") || kind_of_bounce(code) == Some(ErrorKind::TooLarge)
}

/// Whether a notice is worth sending after a report with this code. A mail to an address whose last mail bounced would
/// bounce as well, unless that mail was too large.
fn may_reach_chat(code: &str) -> bool {
    match kind_of_bounce(code) {
        Some(kind) => kind == ErrorKind::TooLarge,
        None => kind_of_report(code) != ErrorKind::Forbidden,
    }
}

/// The sentence for a mail that was refused or bounced because the recipient's mailbox is full (RFC 3463, X.2.2).
pub(crate) fn full_mailbox_sentence(code: &str) -> Option<&'static str> {
    matches!(code, "4.2.2" | "5.2.2").then_some("The recipient's mailbox is full.")
}

/// The kind of the failure of a bounced mail (RFC 3463); `None` for codes of other platforms. The class of the code
/// does not matter: servers report a temporary cause as a failure after their last attempt.
fn kind_of_bounce(code: &str) -> Option<ErrorKind> {
    let status = code
        .strip_prefix("5.")
        .or_else(|| code.strip_prefix("4."))?;
    Some(match status.split_once('.') {
        // The address of the sender, not of the recipient.
        Some(("1", "7" | "8")) => ErrorKind::BadFormat,
        Some(("1" | "4", _) | ("2", "1")) => ErrorKind::NotFound,
        Some(("2", "3") | ("3", "4")) => ErrorKind::TooLarge,
        Some(("7", _)) => ErrorKind::Forbidden,
        _ => ErrorKind::Unknown,
    })
}

/// The kind of a failure that a platform reported after it had accepted a message.
fn kind_of_report(code: &str) -> ErrorKind {
    match code {
        code if is_window_closed(code) => ErrorKind::WindowClosed,
        "131026" | "131030" | "131021" | "131049" => ErrorKind::Forbidden,
        "131051" | "131052" | "131053" => ErrorKind::UnsupportedKind,
        code => kind_of_bounce(code).unwrap_or(ErrorKind::Unknown),
    }
}

/// Forgets the platform's ids of the files of a message whose media the platform could not use, so that the next
/// delivery uploads their bytes. The record must still have the confirmation of the message.
pub(crate) async fn forget_refused_media(
    platform_cache: &PlatformCache,
    account: &PlatformAccount,
    record: &DeliveryRecord,
    (message, code): (&str, &str),
) {
    if !is_media_refused(code) {
        return;
    }
    let tenant = record.tenant_id();
    for step in &record.steps {
        let DeliveryStep::Done(done) = step else {
            continue;
        };
        let affected = done.confirmed().iter();
        for confirmation in affected.filter(|confirmation| confirmation.message_id == message) {
            let index = confirmation
                .file
                .and_then(|index| usize::try_from(index).ok());
            let Some(file) = index.and_then(|index| record.files.get(index)) else {
                continue;
            };
            let route = confirmation.route.unwrap_or(done.route);
            let scope = account.file_id_scope(route, &file.name);
            if let Ok(digest) = Sha256Digest::try_from(file.sha256.as_slice()) {
                platform_cache
                    .forget_file_id(&tenant, &scope, digest, route)
                    .await;
            }
        }
    }
}

/// Revokes the confirmation of a message that the platform now reports as failed. Its step is ready again if the window
/// is closed or the media was refused, unless the delivery was cancelled. Returns whether the record changed.
pub(crate) fn apply_correction(record: &mut DeliveryRecord, message: &str, code: &str) -> bool {
    let kind = kind_of_report(code);
    let may_continue = (is_window_closed(code) || is_media_refused(code)) && !record.cancelled;
    let mut changed = false;
    let is_affected = |confirmation: &StepConfirmation| {
        confirmation.provisional && confirmation.message_id == message
    };
    for step in std::mem::take(&mut record.steps) {
        let done = match step {
            DeliveryStep::Done(done) if done.confirmed().iter().any(is_affected) => done,
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
            if let Some(sentence) = full_mailbox_sentence(code) {
                sentence.clone_into(&mut file.error_message);
            }
            if may_continue {
                file.state = FileState::Queued;
            }
            file.platform_message_id.clear();
        }
        let mut denied = done.deny();
        denied.note_error(kind, code);
        record.steps.push(if may_continue {
            denied.into()
        } else {
            denied.fail().into()
        });
    }
    if changed {
        record.success = false;
        record.notice = report::failure_notice(&report::user_failures(record));
        record.result_json = report::result_json(record);
    }
    changed
}
