//! Handles a refused request without visible messages: wait, use another route, or give up (platform-delivery 7,
//! 10).

use std::time::Duration;

use dray_delivery_rules::failure::{WaitAction, decide_wait};
use dray_delivery_rules::refusal::{RefusalAction, decide_refusal};
use dray_platform::{ErrorKind, PlatformError, Route, SendStep};
use dray_presentation::caption::{self, CaptionUnit};

use super::plan::{fail_file, largest_file};
use super::run::{DeliveryRun, OpenDelivery, StepFlow};
use crate::error::DeliveryError;
use crate::machine::{DeliveryStep, ReadyStep, StepPlan};
use crate::record::WaitingReason;

impl DeliveryRun<'_> {
    /// Continues after a refusal of a step that is ready again, as [`decide_refusal`] says.
    ///
    /// # Errors
    /// The store is away, so that a file could not be sent; the work is parked.
    pub(super) async fn handle_refusal(
        &mut self,
        open: &mut OpenDelivery,
        step_index: usize,
        mut step: ReadyStep,
        error: &PlatformError,
    ) -> Result<StepFlow, DeliveryError> {
        step.note_error(error.kind(), error.platform_code());
        self.put(step_index, step.clone());
        if let Some(chat) = error.moved_to()
            && step.has_attempts_left()
        {
            // Telegram moves a group to another id when it becomes a supergroup.
            self.follow_chat(open, chat).await?;
            return Ok(StepFlow::SameStep);
        }
        if error.kind() == ErrorKind::Source
            && let Err(away) = self.check_store(&step.files).await
        {
            // The file did not fail: the attempt does not count, and the work is parked.
            step.revert_attempt();
            self.put(step_index, step);
            self.save().await?;
            return Err(away);
        }
        self.follow_refusal(open, step_index, step, error).await
    }

    async fn follow_refusal(
        &mut self,
        open: &mut OpenDelivery,
        step_index: usize,
        step: ReadyStep,
        error: &PlatformError,
    ) -> Result<StepFlow, DeliveryError> {
        match decide_refusal(error.kind(), step.attempts, error.retry_after()) {
            RefusalAction::WaitForRateLimit(_) => {
                self.wait_for_rate_limit(open, step_index, step, error)
                    .await
            }
            RefusalAction::RetryLater(requested) => {
                let backoff = || self.context.send_delays.backoff(step.attempts);
                let delay = requested.unwrap_or_else(backoff);
                self.save().await?;
                self.wait_or_park(open, step_index, step, delay, error)
                    .await
            }
            RefusalAction::ForgetFileIds => {
                self.forget_file_ids(open, step_index, step, error).await
            }
            RefusalAction::LeaveThread => {
                self.retry_without_thread(open, step_index, step, error)
                    .await
            }
            RefusalAction::ParkUntilUserWrites => {
                self.park_until_user_writes(open, step_index, step, error)
                    .await
            }
            RefusalAction::UseAnotherRoute => {
                if error.kind() == ErrorKind::TooLarge {
                    self.learn_limit(open, &step, error).await;
                }
                self.use_another_route(open, step_index, step, error).await
            }
            RefusalAction::SplitAlbum => self.split_or_give_up(open, step_index, step, error).await,
            RefusalAction::FailChat => {
                for other in step_index + 1..self.record().steps.len() {
                    if let Some(DeliveryStep::Ready(step)) = self.step_at(other) {
                        self.fail_step(open, other, step, error);
                    }
                }
                self.give_up(open, step_index, step, error).await
            }
            RefusalAction::GiveUp => self.give_up(open, step_index, step, error).await,
        }
    }

    /// Sends the files of a refused album one by one, and gives up a refused single file.
    async fn split_or_give_up(
        &mut self,
        open: &OpenDelivery,
        step_index: usize,
        step: ReadyStep,
        error: &PlatformError,
    ) -> Result<StepFlow, DeliveryError> {
        if step.files.len() > 1 {
            return self.split_by_file(step_index, &step).await;
        }
        self.give_up(open, step_index, step, error).await
    }

    /// Waits for the platform's delay, without counting an attempt.
    async fn wait_for_rate_limit(
        &mut self,
        open: &OpenDelivery,
        step_index: usize,
        mut step: ReadyStep,
        error: &PlatformError,
    ) -> Result<StepFlow, DeliveryError> {
        step.revert_attempt();
        self.put(step_index, step.clone());
        self.save().await?;
        let (account, chat) = (open.account.id(), &open.delivery.target.chat);
        let limiter = &self.context.send_delays.limiter;
        let delay = limiter.hold_refused(&account, chat, error);
        self.wait_or_park(
            open,
            step_index,
            step,
            delay + self.context.send_delays.jitter(),
            error,
        )
        .await
    }

    async fn wait_or_park(
        &mut self,
        open: &OpenDelivery,
        step_index: usize,
        step: ReadyStep,
        delay: Duration,
        error: &PlatformError,
    ) -> Result<StepFlow, DeliveryError> {
        let remaining = self.limit().remaining(self.context.clock.now_ms());
        // `retry_unit` covers the jitter, so that jitter alone does not park a wait of exactly the limit.
        match decide_wait(delay, remaining, self.context.send_delays.retry_unit) {
            WaitAction::GiveUp => self.give_up(open, step_index, step, error).await,
            WaitAction::Park => {
                self.report_wait_when_stored(&step);
                Ok(self.park_after(delay, WaitingReason::RateLimited))
            }
            WaitAction::Wait => {
                self.pause(delay).await?;
                Ok(StepFlow::SameStep)
            }
        }
    }

    /// Sends the bytes of files whose ids the platform no longer knows.
    async fn forget_file_ids(
        &mut self,
        open: &mut OpenDelivery,
        step_index: usize,
        mut step: ReadyStep,
        error: &PlatformError,
    ) -> Result<StepFlow, DeliveryError> {
        // The result of the invisible upload names the refused ids too, so the files are uploaded again.
        step.set_prepared(String::new());
        self.put(step_index, step.clone());
        for index in &step.files {
            let index = usize::try_from(*index).unwrap_or(usize::MAX);
            let position = open.live.iter().position(|live| *live == index);
            if let Some(file) = position.and_then(|position| open.delivery.files.get_mut(position))
            {
                file.file_id = None;
                let scope = open.account.file_id_scope(step.route, &file.name);
                self.context
                    .platform_cache
                    .forget_file_id(&self.meta.tenant, &scope, file.sha256, step.route)
                    .await;
            }
        }
        if !step.has_attempts_left() {
            return self.give_up(open, step_index, step, error).await;
        }
        self.save().await?;
        Ok(StepFlow::SameStep)
    }

    /// Retries without the reply, then without the thread, and stores the changed target in the record.
    async fn retry_without_thread(
        &mut self,
        open: &mut OpenDelivery,
        step_index: usize,
        step: ReadyStep,
        error: &PlatformError,
    ) -> Result<StepFlow, DeliveryError> {
        let target = &mut open.delivery.target;
        if !target.reply_to.is_empty() {
            // The first attempt is without the reply, because the message may be deleted while the thread exists.
            target.reply_to.clear();
        } else if !target.thread.is_empty() {
            target.thread.clear();
        } else {
            return self.give_up(open, step_index, step, error).await;
        }
        let target = super::wire_target(target.clone());
        self.record_mut().target = Some(target);
        self.save().await?;
        Ok(StepFlow::SameStep)
    }

    /// Parks the delivery until the user writes again.
    async fn park_until_user_writes(
        &mut self,
        open: &OpenDelivery,
        step_index: usize,
        mut step: ReadyStep,
        error: &PlatformError,
    ) -> Result<StepFlow, DeliveryError> {
        let window_timeout = self.context.config.get().window_timeout.as_millis();
        let end_ms = self.record().begun_at_ms.saturating_add(window_timeout);
        if self.context.clock.now_ms() >= end_ms {
            return self.give_up(open, step_index, step, error).await;
        }
        step.revert_attempt();
        self.record_mut().deadline_ms = end_ms;
        self.report_wait_when_stored(&step);
        self.put(step_index, step);
        // The delivery waits until the user writes: only that opens the window (WhatsApp's 24 hours).
        Ok(StepFlow::Park(u64::MAX, WaitingReason::WindowClosed))
    }

    /// Stores the size limit that a refusal implies, for `learned_lifetime`.
    async fn learn_limit(
        &mut self,
        open: &mut OpenDelivery,
        step: &StepPlan,
        error: &PlatformError,
    ) {
        // A refused text says nothing about files, even if it is the link to a file.
        if step.route.is_text() {
            return;
        }
        let sizes = step.files.iter().filter_map(|index| {
            let index = usize::try_from(*index).ok()?;
            self.record().files.get(index).map(|file| file.size)
        });
        let largest_file = sizes.max().unwrap_or_default();
        let allowed = match error.numbers() {
            Some((_, allowed)) => allowed,
            // An album may be too large only as a whole; for a single file, its size is the cause.
            None if step.files.len() == 1 => largest_file.saturating_sub(1),
            None => return,
        };
        // A route with its own smaller limit says nothing about the other routes.
        if open.limits.of(step.route) < open.limits.any {
            return;
        }
        let lifetime = self.context.config.get().learned_lifetime.as_duration();
        self.context
            .platform_cache
            .learn_limit(&open.account.id(), &open.chat, allowed, lifetime)
            .await;
        open.limits = open.limits.clone().at_most(allowed);
    }

    /// The refusal that a step would get, so that no file is uploaded for it: it is too large for the chat, or the
    /// platform reported after a success that it cannot use it.
    pub(super) fn known_refusal(
        &self,
        open: &OpenDelivery,
        step: &ReadyStep,
    ) -> Option<PlatformError> {
        if let Some(kind @ (ErrorKind::UnsupportedKind | ErrorKind::TooLarge)) = step.error_kind {
            let error = PlatformError::new(kind, "refused after a success");
            return Some(error.code(step.platform_code.clone()));
        }
        if step.route.is_text() {
            return None;
        }
        let limit = open.limits.of(step.route);
        let size = step.files.iter().find_map(|index| {
            let index = usize::try_from(*index).ok()?;
            let file = self.record().files.get(index)?;
            (file.size > limit).then_some(file.size)
        })?;
        let error = PlatformError::new(ErrorKind::TooLarge, "known to be too large");
        Some(error.with_numbers(size, largest_file(&open.limits)))
    }

    /// Replaces a refused step by another route of the platform, single files, shorter texts or a link; otherwise gives
    /// up.
    pub(super) async fn use_another_route(
        &mut self,
        open: &mut OpenDelivery,
        step_index: usize,
        step: ReadyStep,
        error: &PlatformError,
    ) -> Result<StepFlow, DeliveryError> {
        let is_link_or_notice = matches!(step.route, Route::Link | Route::Notice);
        if !is_link_or_notice
            && step.has_attempts_left()
            && let Some(sent_step) = open.platform_step(&step)
            && let Some(fallback_step) = open
                .account
                .platform
                .fallback(&open.delivery, &sent_step, error)
            // Sending an equal step again would never end.
            && fallback_step != sent_step
        {
            let next = self.step_from(open, &step, &fallback_step);
            return self.replace(step_index, vec![next]).await;
        }
        if step.files.len() > 1 {
            return self.split_by_file(step_index, &step).await;
        }
        if error.kind() == ErrorKind::TooLong
            && let Some(steps) = self.shorten_text(open, &step)
        {
            return self.replace(step_index, steps).await;
        }
        let may_become_link = matches!(
            error.kind(),
            ErrorKind::TooLarge | ErrorKind::UnsupportedKind
        );
        if may_become_link
            && !is_link_or_notice
            && let Some(index) = step.files.first().copied()
            && self.can_link(index).await?
        {
            let mut steps = Vec::new();
            if !step.text.trim().is_empty() {
                let text = StepPlan::text(Route::Text, step.text.clone());
                steps.push(self.new_step(&steps, text));
            }
            steps.push(self.new_step(&steps, StepPlan::link(index)));
            return self.replace(step_index, steps).await;
        }
        let error = match error.numbers() {
            None if error.kind() == ErrorKind::TooLarge => {
                let index = step
                    .files
                    .first()
                    .and_then(|index| usize::try_from(*index).ok());
                let file = index.and_then(|index| self.record().files.get(index));
                let size = file.map_or(0, |file| file.size);
                // The platform named no number; the user learns at least that the limit is below this size.
                let allowed = largest_file(&open.limits).min(size.saturating_sub(1));
                &PlatformError::new(ErrorKind::TooLarge, "refused as too large")
                    .with_numbers(size, allowed)
                    .code(error.platform_code())
            }
            _ => error,
        };
        self.give_up(open, step_index, step, error).await
    }

    fn step_from(
        &self,
        open: &OpenDelivery,
        step: &ReadyStep,
        platform_step: &SendStep,
    ) -> ReadyStep {
        self.new_step(&[], open.record_plan(platform_step))
            .with_attempts(step.attempts)
    }

    /// Replaces a step by one step for each file; the caption stays with the first.
    async fn split_by_file(
        &mut self,
        step_index: usize,
        step: &ReadyStep,
    ) -> Result<StepFlow, DeliveryError> {
        let mut steps = Vec::new();
        for (position, index) in step.files.iter().enumerate() {
            // The caption stays with the first file, so that it is shown once.
            let text = if position == 0 {
                step.text.clone()
            } else {
                String::new()
            };
            let plan = StepPlan {
                files: vec![*index],
                text,
                ..step.plan.clone()
            };
            steps.push(self.new_step(&steps, plan));
        }
        self.replace(step_index, steps).await
    }

    /// The same content with shorter texts; `None` if the text cannot be split further.
    fn shorten_text(&self, open: &OpenDelivery, step: &StepPlan) -> Option<Vec<ReadyStep>> {
        let mut steps = Vec::new();
        if !step.files.is_empty() {
            if step.text.trim().is_empty() || step.route == Route::Link {
                return None;
            }
            let text = StepPlan::text(Route::Text, step.text.clone());
            steps.push(self.new_step(&steps, text));
            let without_text = StepPlan {
                text: String::new(),
                ..step.clone()
            };
            steps.push(self.new_step(&steps, without_text));
            return Some(steps);
        }
        let half = step.text.chars().count().div_ceil(2).min(open.limits.text);
        let parts = caption::split_text(&step.text, half, CaptionUnit::Chars);
        if parts.len() < 2 || half < 4 {
            return None;
        }
        for part in parts {
            steps.push(self.new_step(&steps, StepPlan::text(step.route, part)));
        }
        Some(steps)
    }

    /// Replaces an invisible step by these steps.
    async fn replace(
        &mut self,
        step_index: usize,
        steps: Vec<ReadyStep>,
    ) -> Result<StepFlow, DeliveryError> {
        let all = &mut self.record_mut().steps;
        if step_index < all.len() {
            all.splice(
                step_index..=step_index,
                steps.into_iter().map(DeliveryStep::from),
            );
        }
        self.save().await?;
        Ok(StepFlow::SameStep)
    }

    /// Fails an invisible step, and continues with the next.
    pub(super) async fn give_up(
        &mut self,
        open: &OpenDelivery,
        step_index: usize,
        step: ReadyStep,
        error: &PlatformError,
    ) -> Result<StepFlow, DeliveryError> {
        self.fail_step(open, step_index, step, error);
        self.save().await?;
        Ok(StepFlow::Next)
    }

    fn fail_step(
        &mut self,
        open: &OpenDelivery,
        step_index: usize,
        mut step: ReadyStep,
        error: &PlatformError,
    ) {
        step.note_error(error.kind(), error.platform_code());
        for index in &step.files {
            if let Some(file) = self.file_mut(*index)
                && !file.state.is_final()
            {
                fail_file(file, error.kind(), error);
                file.attempts = step.attempts;
                file.url_expires_at_ms = 0;
            }
        }
        self.context
            .metrics
            .step(open.account.platform.name(), step.route, "failed");
        self.put(step_index, step.fail());
    }
}
