//! The platform's word: what it confirms is delivered, what it does not confirm is not, and what it knows by now
//! need not be uploaded again.

use dray_platform::{ConfirmedFile, ErrorKind};
use dray_proto::v1;
use dray_types::Sha256Digest;

use super::plan::{LINK_ROUTE, NOTICE_ROUTE, TEXT_ROUTE};
use super::run::{DeliveryRun, OpenDelivery, StepFlow};
use crate::error::DeliveryError;
use crate::machine;
use crate::platform_cache::MessageOrigin;
use crate::report::state;

impl DeliveryRun<'_> {
    /// The platform's word. What it does not confirm was not delivered.
    pub(super) async fn confirmed(
        &mut self,
        open: &OpenDelivery,
        at: usize,
        confirmed: Vec<ConfirmedFile>,
    ) -> Result<StepFlow, DeliveryError> {
        let step = self.step_at(at);
        let mut kept = Vec::new();
        for one in confirmed {
            let file = match one.file {
                Some(place) => open.record_index(place),
                None if step.route == LINK_ROUTE => step.files.first().copied(),
                None => None,
            };
            if let Some(index) = file {
                self.show_file(open, &step, index, &one);
            }
            if one.provisional {
                self.expect_news(open, &one.message_id).await;
            }
            kept.push(v1::StepConfirmation {
                file,
                message_id: one.message_id,
                file_id: one.file_id,
                size: one.size.unwrap_or_default(),
                route: one.route,
                provisional: one.provisional,
            });
        }
        for index in &step.files {
            let is_told = kept.iter().any(|one| one.file == Some(*index));
            if !is_told && let Some(file) = self.file_mut(*index) {
                state::STATE_FAILED.clone_into(&mut file.state);
                ErrorKind::Unknown.as_str().clone_into(&mut file.error_kind);
                "The platform showed the message without this file."
                    .clone_into(&mut file.error_message);
                file.url_expires_at_ms = 0;
            }
        }
        self.remember_file_ids(open, &step, &kept).await;
        self.change(at, |step| machine::mark_done(step, kept));
        self.save_firmly().await?;
        self.correct_early_news(open, at).await?;
        self.desk
            .metrics
            .step(open.account.platform.name(), &step, "done");
        self.progress("sent", &step, 0).await;
        Ok(StepFlow::Next)
    }

    fn show_file(
        &mut self,
        open: &OpenDelivery,
        step: &v1::DeliveryStep,
        index: u32,
        one: &ConfirmedFile,
    ) {
        let shown = match (step.route.as_str(), open.account.platform.name()) {
            (LINK_ROUTE, _) => state::STATE_LINKED,
            (_, "cli") => state::STATE_COPIED,
            _ => state::STATE_DELIVERED,
        };
        let route = match (step.route.as_str(), one.route.as_str()) {
            (LINK_ROUTE, _) | (_, "") => step.route.clone(),
            (_, taken) => taken.to_owned(),
        };
        let (message_id, file_id) = (one.message_id.clone(), one.file_id.clone());
        let lossy = step.lossy;
        if let Some(file) = self.file_mut(index) {
            shown.clone_into(&mut file.state);
            file.route = route;
            file.platform_message_id = message_id;
            file.platform_file_id = file_id;
            file.lossy = lossy;
            file.error_kind.clear();
            file.error_message.clear();
            file.platform_code.clear();
        }
    }

    /// The platform may correct itself later: keeps where the message belongs.
    async fn expect_news(&self, open: &OpenDelivery, message: &str) {
        let origin = MessageOrigin {
            record: self.key.clone(),
            tenant: self.report().tenant.clone(),
            delivery: self.report().delivery_id.clone(),
        };
        let memory = &self.desk.platform_cache;
        memory
            .learn_origin(&open.account.id(), message, &origin)
            .await;
    }

    /// Bad news may have been faster than the answer.
    async fn correct_early_news(
        &mut self,
        open: &OpenDelivery,
        at: usize,
    ) -> Result<(), DeliveryError> {
        let mut changed = false;
        for one in self.step_at(at).confirmed {
            if !one.provisional {
                continue;
            }
            let news = self
                .desk
                .platform_cache
                .news(&open.account.id(), &one.message_id)
                .await;
            if let Some(code) = news {
                changed |=
                    crate::reconciler::apply_correction(self.report_mut(), &one.message_id, &code);
            }
        }
        if changed {
            self.save().await?;
        }
        Ok(())
    }

    /// What the platform knows already need not be uploaded again.
    pub(super) async fn use_file_ids(&self, open: &mut OpenDelivery, step: &v1::DeliveryStep) {
        let id = open.account.id();
        for index in &step.files {
            let index = usize::try_from(*index).unwrap_or(usize::MAX);
            let Some(place) = open.live.iter().position(|live| *live == index) else {
                continue;
            };
            if let Some(file) = open.delivery.files.get_mut(place) {
                let memory = &self.desk.platform_cache;
                file.file_id = memory
                    .file_id(&self.meta.tenant, &id, file.sha256, &step.route)
                    .await;
            }
        }
    }

    async fn remember_file_ids(
        &self,
        open: &OpenDelivery,
        step: &v1::DeliveryStep,
        kept: &[v1::StepConfirmation],
    ) {
        if matches!(step.route.as_str(), LINK_ROUTE | TEXT_ROUTE | NOTICE_ROUTE)
            || open.account.platform.name() == "cli"
        {
            return;
        }
        let id = open.account.id();
        for one in kept.iter().filter(|one| !one.file_id.is_empty()) {
            let index = one.file.and_then(|index| usize::try_from(index).ok());
            let file = index.and_then(|index| self.report().files.get(index));
            let digest = file.and_then(|file| Sha256Digest::try_from(file.sha256.as_slice()).ok());
            // Another route than planned means another kind, and ids cannot change kind.
            let route = if one.route.is_empty() {
                &step.route
            } else {
                &one.route
            };
            if let Some(digest) = digest {
                self.desk
                    .platform_cache
                    .learn_file_id(&self.meta.tenant, &id, digest, route, &one.file_id)
                    .await;
            }
        }
    }
}
