//! Applies the rules about files from the web before a delivery is planned: where each file comes from, and whether it
//! may be sent to the chat.

use std::time::Duration;

use dray_platform::{DeliveryTarget, ErrorKind};
use dray_store::RequestError;
use dray_types::{Deadline, Fault, FaultCode, Sha256Digest};

use super::run::DeliveryRun;
use super::target_of;
use crate::accounts::PlatformAccount;
use crate::error::DeliveryError;
use crate::record::FileRecord;
use crate::web_files::{self, FileOrigin, FileRecipient, WebFileRule, WebFileVerdict};

/// Longest time for reading the origins of one file.
const ORIGIN_TIMEOUT: Duration = Duration::from_secs(15);
/// Most hosts of a file in receipts and audit events.
const MAX_SHOWN_HOSTS: usize = 8;

impl DeliveryRun<'_> {
    /// Fails every file that the rules keep from this chat. Without rules about the chat, no origin is read.
    ///
    /// # Errors
    /// The store could not be queried, so the work is tried again: a file of unknown origin is not sent.
    pub(super) async fn judge_web_files(
        &mut self,
        account: &PlatformAccount,
    ) -> Result<(), DeliveryError> {
        let config = self.context.config.get();
        let rules = &config.web_files;
        let target = DeliveryTarget {
            // A request may leave out the only account of a platform, but a rule may name it.
            account: account.name.clone(),
            ..target_of(&self.record().target.clone().unwrap_or_default())
        };
        let tenant = self.meta.tenant.clone();
        let recipient = FileRecipient {
            tenant: &tenant,
            target: &target,
        };
        if !web_files::any_rule_about(rules, recipient) {
            return Ok(());
        }
        for index in 0..self.record().files.len() {
            let Some(file) = self.record().files.get(index) else {
                continue;
            };
            if file.state.is_final() {
                continue;
            }
            let verdict = self.web_verdict(rules, file, recipient).await?;
            let Some(file) = self.record_mut().files.get_mut(index) else {
                continue;
            };
            if !verdict.refused_by.is_empty() {
                file.give_up(ErrorKind::Forbidden, "");
                file.error_message = format!(
                    "Policy keeps files from the web out of this chat (rule `{}`).",
                    verdict.refused_by
                );
            }
            if verdict != WebFileVerdict::NONE {
                tracing::info!(
                    sha256 = dray_types::hex::hex_digits(&file.sha256), hosts = ?verdict.hosts,
                    refused_by = verdict.refused_by, reported_by = verdict.reported_by,
                    "a rule about files from the web applied"
                );
            }
            file.web = verdict;
        }
        Ok(())
    }

    async fn web_verdict(
        &self,
        rules: &[WebFileRule],
        file: &FileRecord,
        recipient: FileRecipient<'_>,
    ) -> Result<WebFileVerdict, DeliveryError> {
        let mut verdict = WebFileVerdict::NONE;
        // The bytes of a preview stay in the sandbox and may change until people open it.
        if file.preview.is_some() {
            web_files::judge_origin(rules, recipient, FileOrigin::Unseen, &mut verdict);
            return Ok(verdict);
        }
        // A file without a digest has no usable claim either, and fails for that reason.
        let Ok(sha256) = Sha256Digest::try_from(file.sha256.as_slice()) else {
            return Ok(verdict);
        };
        let deadline = Deadline::after(self.context.clock.now_ms(), ORIGIN_TIMEOUT);
        let store = &self.context.store;
        let origins = store.origins(recipient.tenant, sha256, Some(deadline));
        let origins = origins.await.map_err(|error| unknown_origin(&error))?;
        for fetch in &origins.fetches {
            let origin = FileOrigin::Web(&fetch.hosts);
            web_files::judge_origin(rules, recipient, origin, &mut verdict);
            for host in &fetch.hosts {
                // All hosts were judged; only their number in the record is limited.
                let is_shown = verdict.hosts.len() < MAX_SHOWN_HOSTS;
                if is_shown && !verdict.hosts.contains(host) {
                    verdict.hosts.push(host.clone());
                }
            }
        }
        if origins.is_cut {
            web_files::judge_origin(rules, recipient, FileOrigin::Unseen, &mut verdict);
        } else if origins.fetches.is_empty() && file.transfer.is_some() {
            web_files::judge_origin(rules, recipient, FileOrigin::Sandbox, &mut verdict);
        }
        Ok(verdict)
    }
}

/// Every failure of the store is retryable, even a missing bucket or a missing permission: an operator can repair both,
/// and until then the file must not be sent.
fn unknown_origin(error: &RequestError) -> DeliveryError {
    tracing::warn!(
        error = error as &dyn std::error::Error,
        "the origin of a file cannot be read"
    );
    let fault = Fault::new(
        FaultCode::Unavailable,
        "The store cannot say where a file came from right now.",
    );
    DeliveryError::ServiceFault {
        description: "the origin of a file",
        fault: Box::new(
            fault
                .detail("origin_unknown")
                .retry_after(Duration::from_secs(2)),
        ),
    }
}
