//! Links to previews in place of files. Each attempt that may become visible gets its own preview.

use std::time::Duration;

use dray_bus::{CallError, Meta};
use dray_platform::{ErrorKind, PlatformError, Route};
use dray_proto::v1::{self, sandbox_ref};
use dray_types::{Deadline, Fault, OperationId};

use super::run::DeliveryRun;
use crate::error::DeliveryError;
use crate::gather::kind_of;
use crate::link::{self, LinkPolicy};
use crate::machine::{StepPlan, has_attempts_left};

/// Longest time for a preview to be made or revoked.
const PREVIEW_TIMEOUT: Duration = Duration::from_secs(30);

/// A new link, which only the message contains; no record stores it.
pub(super) struct PreviewLink {
    pub(super) url: String,
    pub(super) expires_at_ms: u64,
}

impl DeliveryRun<'_> {
    /// Makes the preview of a step that sends one; `None` for every other step. The id is in the record before the link
    /// is sent. With `is_open`, an earlier message may be visible, so its link stays valid; otherwise it is revoked.
    pub(super) async fn preview_link(
        &mut self,
        step: &StepPlan,
        is_open: bool,
    ) -> Result<Result<Option<PreviewLink>, PlatformError>, DeliveryError> {
        let (Route::Link, Some(index)) = (step.route, step.files.first().copied()) else {
            return Ok(Ok(None));
        };
        let position = usize::try_from(index).unwrap_or(usize::MAX);
        let file = self.record().files.get(position);
        let Some((path, receipt)) =
            file.and_then(|file| Some((&file.path, file.preview.as_ref()?)))
        else {
            return Ok(Ok(None));
        };
        let (path, earlier) = (path.clone(), receipt.preview_ids.last().cloned());
        if let Some(earlier) = earlier.filter(|_| !is_open) {
            self.revoke_preview(&earlier).await;
        }
        let lifetime = self.context.config.get().preview_lifetime.as_duration();
        let request = v1::CreatePreviewRequest {
            sandbox: Some(self.sandbox()),
            path,
            lifetime_seconds: u32::try_from(lifetime.as_secs()).unwrap_or(u32::MAX),
            // The agent sends only that file, not the directory around it.
            only_file: true,
            delivery_id: self.record().delivery_id.clone(),
        };
        // A restart of sandbox-transfer must not fail the delivery.
        let mut attempts = 0;
        let created = loop {
            attempts += 1;
            let meta = self.preview_meta();
            let reply = tokio::select! {
                reply = self.context.bus.call_once(&meta, &request) => reply,
                () = self.cancel.cancelled() => return Err(DeliveryError::Interrupted),
            };
            match reply {
                Ok(created) => break created,
                Err(error) => {
                    let failure = preview_failure(error);
                    let is_transient = failure.kind() == ErrorKind::Transient;
                    let is_retried = is_transient && has_attempts_left(attempts);
                    if !is_retried
                        || !self
                            .pause(self.context.send_delays.backoff(attempts))
                            .await?
                    {
                        return Ok(Err(failure));
                    }
                }
            }
        };
        self.store_preview(index, created).await
    }

    /// Stores the preview in the record, unless readers of the chat could not open its link.
    async fn store_preview(
        &mut self,
        index: u32,
        created: v1::CreatedPreview,
    ) -> Result<Result<Option<PreviewLink>, PlatformError>, DeliveryError> {
        let preview = created.preview.unwrap_or_default();
        let is_local = self.context.config.get().preview_links == LinkPolicy::Auto
            && !link::leads_outside(&created.url);
        if is_local {
            self.revoke_preview(&preview.preview_id).await;
            let reason = "previews are served for this machine alone";
            return Ok(Err(PlatformError::new(ErrorKind::Source, reason)));
        }
        if let Some(receipt) = self.file_mut(index).and_then(|file| file.preview.as_mut()) {
            receipt.preview_ids.push(preview.preview_id);
            receipt.expires_at_ms = preview.expires_at_ms;
        }
        // The record is saved before the link is sent, so that a worker that continues after a crash knows what to
        // revoke.
        self.save().await?;
        Ok(Ok(Some(PreviewLink {
            url: created.url,
            expires_at_ms: preview.expires_at_ms,
        })))
    }

    /// Revokes a preview whose link no reader got. A preview that cannot be revoked expires.
    async fn revoke_preview(&self, preview_id: &str) {
        let request = v1::RevokePreviewRequest {
            sandbox: Some(self.sandbox()),
            preview_id: preview_id.to_owned(),
        };
        let revoked = self.context.bus.call(&self.preview_meta(), &request).await;
        if let Err(error) = revoked {
            tracing::warn!(
                error = &error as &dyn std::error::Error,
                preview = preview_id,
                "the preview of a message that was not sent stays open"
            );
        }
    }

    fn sandbox(&self) -> v1::SandboxRef {
        v1::SandboxRef {
            sandbox: Some(sandbox_ref::Sandbox::Session(self.record().session.clone())),
        }
    }

    fn preview_meta(&self) -> Meta {
        let now_ms = self.context.clock.now_ms();
        let deadline = Deadline::after(now_ms, PREVIEW_TIMEOUT).min(self.limit());
        // A new operation id, because each call must make another preview.
        self.meta
            .clone()
            .with_operation(OperationId::mint())
            .with_deadline(deadline)
    }
}

fn preview_failure(error: CallError) -> PlatformError {
    tracing::warn!(
        error = &error as &dyn std::error::Error,
        "could not make a preview for a delivery"
    );
    let fault = Fault::from(error);
    PlatformError::new(kind_of(&fault), fault.message).code(fault.detail)
}
