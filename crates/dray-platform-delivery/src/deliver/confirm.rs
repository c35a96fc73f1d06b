//! The platform's word: what it confirms is delivered, what it does not confirm is not, and what it knows by now
//! need not be uploaded again.

use dray_platform::{ConfirmedFile, ErrorKind, Route};
use dray_proto::v1::DeliveryStage;
use dray_types::Sha256Digest;

use super::run::{DeliveryRun, OpenDelivery, StepFlow};
use crate::error::DeliveryError;
use crate::machine::{DeliveryStep, SendingStep, StepConfirmation, StepPlan};
use crate::platform_cache::MessageOrigin;
use crate::record::FileState;

impl DeliveryRun<'_> {
    /// The platform's word. What it does not confirm was not delivered.
    pub(super) async fn confirmed(
        &mut self,
        open: &OpenDelivery,
        at: usize,
        step: SendingStep,
        confirmed: Vec<ConfirmedFile>,
    ) -> Result<StepFlow, DeliveryError> {
        let mut kept = Vec::new();
        for one in confirmed {
            let file = match one.file {
                Some(place) => open.record_index(place),
                None if step.route == Route::Link => step.files.first().copied(),
                None => None,
            };
            if let Some(index) = file {
                self.show_file(open, &step, index, &one);
            }
            if one.provisional {
                self.expect_news(open, &one.message_id).await;
            }
            kept.push(StepConfirmation {
                file,
                message_id: one.message_id,
                file_id: one.file_id,
                size: one.size.unwrap_or_default(),
                route: Some(one.route),
                provisional: one.provisional,
            });
        }
        for index in &step.files {
            let is_told = kept.iter().any(|one| one.file == Some(*index));
            if !is_told && let Some(file) = self.file_mut(*index) {
                file.state = FileState::Failed;
                file.error_kind = Some(ErrorKind::Unknown.into());
                "The platform showed the message without this file."
                    .clone_into(&mut file.error_message);
                file.url_expires_at_ms = 0;
            }
        }
        self.remember_file_ids(open, &step, &kept).await;
        let plan = step.plan.clone();
        self.put(at, step.confirm(kept));
        self.save_firmly().await?;
        self.correct_early_news(open, at).await?;
        self.context
            .metrics
            .step(open.account.platform.name(), plan.route, "done");
        self.progress(DeliveryStage::Sent, &plan).await;
        Ok(StepFlow::Next)
    }

    fn show_file(&mut self, open: &OpenDelivery, step: &StepPlan, index: u32, one: &ConfirmedFile) {
        let shown = match (step.route, open.account.platform.name()) {
            (Route::Link, _) if self.is_preview(index) => FileState::DeliveredAsPreview,
            (Route::Link, _) => FileState::DeliveredAsLink,
            (_, "cli") => FileState::Copied,
            _ => FileState::Delivered,
        };
        let route = match step.route {
            Route::Link => Route::Link,
            _ => one.route,
        };
        let (message_id, file_id) = (one.message_id.clone(), one.file_id.clone());
        let lossy = step.lossy;
        if let Some(file) = self.file_mut(index) {
            file.state = shown;
            file.route = Some(route);
            file.platform_message_id = message_id;
            file.platform_file_id = file_id;
            file.lossy = lossy;
            file.error_kind = None;
            file.error_message.clear();
            file.platform_code.clear();
        }
    }

    /// The platform may correct itself later: keeps where the message belongs.
    async fn expect_news(&self, open: &OpenDelivery, message: &str) {
        let origin = MessageOrigin {
            record: self.key.clone(),
            tenant: self.record().tenant.clone(),
            delivery: self.record().delivery_id.clone(),
        };
        let memory = &self.context.platform_cache;
        memory
            .learn_origin(&open.account.id(), message, &origin)
            .await;
    }

    /// Bad news may have been faster than the response.
    async fn correct_early_news(
        &mut self,
        open: &OpenDelivery,
        at: usize,
    ) -> Result<(), DeliveryError> {
        let mut changed = false;
        let Some(DeliveryStep::Done(step)) = self.step_at(at) else {
            return Ok(());
        };
        for one in step.confirmed() {
            if !one.provisional {
                continue;
            }
            let news = self
                .context
                .platform_cache
                .early_failure(&open.account.id(), &one.message_id)
                .await;
            if let Some(code) = news {
                changed |=
                    crate::status::apply_correction(self.record_mut(), &one.message_id, &code);
            }
        }
        if changed {
            self.save().await?;
        }
        Ok(())
    }

    /// What the platform knows already need not be uploaded again.
    pub(super) async fn use_file_ids(&self, open: &mut OpenDelivery, step: &StepPlan) {
        let id = open.account.id();
        for index in &step.files {
            let index = usize::try_from(*index).unwrap_or(usize::MAX);
            let Some(place) = open.live.iter().position(|live| *live == index) else {
                continue;
            };
            if let Some(file) = open.delivery.files.get_mut(place) {
                let memory = &self.context.platform_cache;
                file.file_id = memory
                    .file_id(&self.meta.tenant, &id, file.sha256, step.route)
                    .await;
            }
        }
    }

    async fn remember_file_ids(
        &self,
        open: &OpenDelivery,
        step: &StepPlan,
        kept: &[StepConfirmation],
    ) {
        if step.route.is_text() || open.account.platform.name() == "cli" {
            return;
        }
        let id = open.account.id();
        for one in kept.iter().filter(|one| !one.file_id.is_empty()) {
            let index = one.file.and_then(|index| usize::try_from(index).ok());
            let file = index.and_then(|index| self.record().files.get(index));
            let digest = file.and_then(|file| Sha256Digest::try_from(file.sha256.as_slice()).ok());
            // Another route than planned means another kind, and ids cannot change kind.
            let route = one.route.unwrap_or(step.route);
            if let Some(digest) = digest {
                self.context
                    .platform_cache
                    .learn_file_id(&self.meta.tenant, &id, digest, route, &one.file_id)
                    .await;
            }
        }
    }
}
