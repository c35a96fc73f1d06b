//! Handles confirmations of platforms: a file counts as delivered only if the platform confirmed it, and a file
//! that the platform has already is not uploaded again.

use dray_platform::{ConfirmedFile, ErrorKind, Route};
use dray_proto::v1::DeliveryStage;
use dray_types::Sha256Digest;

use super::run::{DeliveryRun, OpenDelivery, StepFlow};
use crate::error::DeliveryError;
use crate::machine::{DeliveryStep, SendingStep, StepConfirmation, StepPlan};
use crate::platform_cache::MessageOrigin;
use crate::record::{FileState, WaitingReason};
use crate::status;

impl DeliveryRun<'_> {
    /// Records the confirmations of a step. A file without a confirmation was not delivered.
    pub(super) async fn record_confirmation(
        &mut self,
        open: &OpenDelivery,
        step_index: usize,
        step: SendingStep,
        confirmed: Vec<ConfirmedFile>,
    ) -> Result<StepFlow, DeliveryError> {
        let (account, chat) = (open.account.id(), &open.delivery.target.chat);
        let limiter = &self.context.send_delays.limiter;
        limiter.record_accepted(&account, chat);
        let mut confirmations = Vec::new();
        for confirmation in confirmed {
            let file = match confirmation.file {
                Some(position) => open.record_index(position),
                None if step.route == Route::Link => step.files.first().copied(),
                None => None,
            };
            if let Some(index) = file {
                self.show_file(open, &step, index, &confirmation);
            }
            if confirmation.provisional {
                self.remember_origin(open, &confirmation.message_id).await;
            }
            confirmations.push(StepConfirmation {
                file,
                message_id: confirmation.message_id,
                file_id: confirmation.file_id,
                size: confirmation.size.unwrap_or_default(),
                route: Some(confirmation.route),
                provisional: confirmation.provisional,
            });
        }
        for index in &step.files {
            let is_confirmed = confirmations
                .iter()
                .any(|confirmation| confirmation.file == Some(*index));
            if !is_confirmed && let Some(file) = self.file_mut(*index) {
                file.state = FileState::Failed;
                file.error_kind = Some(ErrorKind::Unknown.into());
                "The platform showed the message without this file."
                    .clone_into(&mut file.error_message);
                file.url_expires_at_ms = 0;
            }
        }
        self.remember_file_ids(open, &step, &confirmations).await;
        let plan = step.plan.clone();
        self.put(step_index, step.confirm(confirmations));
        self.save_firmly().await?;
        let flow = self.apply_early_failures(open, step_index).await?;
        self.context
            .metrics
            .step(open.account.platform.name(), plan.route, "done");
        if flow == StepFlow::Next {
            self.progress(DeliveryStage::Sent, &plan).await;
        }
        Ok(flow)
    }

    fn show_file(
        &mut self,
        open: &OpenDelivery,
        step: &StepPlan,
        index: u32,
        confirmation: &ConfirmedFile,
    ) {
        let state = match (step.route, open.account.platform.name()) {
            (Route::Link, _) if self.is_preview(index) => FileState::DeliveredAsPreview,
            (Route::Link, _) => FileState::DeliveredAsLink,
            (_, "cli") => FileState::Copied,
            _ => FileState::Delivered,
        };
        let route = match step.route {
            Route::Link => Route::Link,
            _ => confirmation.route,
        };
        let (message_id, file_id) = (
            confirmation.message_id.clone(),
            confirmation.file_id.clone(),
        );
        let lossy = step.lossy;
        if let Some(file) = self.file_mut(index) {
            file.state = state;
            file.route = Some(route);
            file.platform_message_id = message_id;
            file.platform_file_id = file_id;
            file.lossy = lossy;
            file.error_kind = None;
            file.error_message.clear();
            file.platform_code.clear();
        }
    }

    /// Stores to which delivery a message belongs, because the platform may report a later failure of it.
    async fn remember_origin(&self, open: &OpenDelivery, message: &str) {
        let origin = MessageOrigin {
            record: self.key.clone(),
            tenant: self.record().tenant.clone(),
            delivery: self.record().delivery_id.clone(),
        };
        let platform_cache = &self.context.platform_cache;
        platform_cache
            .learn_origin(&open.account.id(), message, &origin)
            .await;
    }

    /// Applies failures that the platform reported before this worker, or an earlier one, stored the confirmation. The
    /// delivery waits if only a message of the user lets it continue.
    pub(super) async fn apply_early_failures(
        &mut self,
        open: &OpenDelivery,
        step_index: usize,
    ) -> Result<StepFlow, DeliveryError> {
        let Some(DeliveryStep::Done(step)) = self.step_at(step_index) else {
            return Ok(StepFlow::Next);
        };
        let mut changed = false;
        for confirmation in step.confirmed() {
            if !confirmation.provisional {
                continue;
            }
            let message = &confirmation.message_id;
            let failure_code = self
                .context
                .platform_cache
                .early_failure(&open.account.id(), message)
                .await;
            let Some(code) = failure_code else {
                continue;
            };
            status::forget_refused_media(
                &self.context.platform_cache,
                &open.account,
                self.record(),
                (message.as_str(), code.as_str()),
            )
            .await;
            if !status::apply_correction(self.record_mut(), message, &code) {
                continue;
            }
            changed = true;
            // The notice is written again at the end of the delivery, with the failures of later steps.
            self.record_mut().notice.clear();
            if status::is_window_closed(&code) {
                let window_timeout = self.context.config.get().window_timeout.as_millis();
                let now_ms = self.context.clock.now_ms();
                self.record_mut().deadline_ms = now_ms.saturating_add(window_timeout);
                return Ok(StepFlow::Park(u64::MAX, WaitingReason::WindowClosed));
            }
            if status::is_media_refused(&code) {
                self.save().await?;
                return Ok(StepFlow::SameStep);
            }
        }
        if changed {
            self.save().await?;
        }
        Ok(StepFlow::Next)
    }

    /// Adds known file ids, so that files which the platform has already are not uploaded again.
    pub(super) async fn use_file_ids(&self, open: &mut OpenDelivery, step: &StepPlan) {
        for index in &step.files {
            let index = usize::try_from(*index).unwrap_or(usize::MAX);
            let Some(position) = open.live.iter().position(|live| *live == index) else {
                continue;
            };
            if let Some(file) = open.delivery.files.get_mut(position) {
                let platform_cache = &self.context.platform_cache;
                let scope = open.account.file_id_scope(step.route, &file.name);
                file.file_id = platform_cache
                    .file_id(&self.meta.tenant, &scope, file.sha256, step.route)
                    .await;
            }
        }
    }

    async fn remember_file_ids(
        &self,
        open: &OpenDelivery,
        step: &StepPlan,
        confirmations: &[StepConfirmation],
    ) {
        if step.route.is_text() || open.account.platform.name() == "cli" {
            return;
        }
        for confirmation in confirmations
            .iter()
            .filter(|confirmation| !confirmation.file_id.is_empty())
        {
            let index = confirmation
                .file
                .and_then(|index| usize::try_from(index).ok());
            let Some(file) = index.and_then(|index| self.record().files.get(index)) else {
                continue;
            };
            // A file id is valid for one kind only, so it is stored under the route that was finally used.
            let route = confirmation.route.unwrap_or(step.route);
            let scope = open.account.file_id_scope(route, &file.name);
            if let Ok(digest) = Sha256Digest::try_from(file.sha256.as_slice()) {
                let file_id = &confirmation.file_id;
                self.context
                    .platform_cache
                    .learn_file_id(&self.meta.tenant, &scope, digest, route, file_id)
                    .await;
            }
        }
    }
}
