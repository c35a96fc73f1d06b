//! A request was refused, and nothing of it is visible: wait, take another way, or give up (platform-delivery 7, 10).

use std::time::Duration;

use dray_delivery_rules::failure::{WaitAction, decide_wait};
use dray_platform::{ErrorKind, PlatformError, Route, SendStep};
use dray_presentation::caption::{self, CaptionUnit};
use dray_proto::v1::DeliveryStage;

use super::plan::{fail_file, largest_file};
use super::run::{DeliveryRun, OpenDelivery, StepFlow};
use crate::error::DeliveryError;
use crate::machine::{DeliveryStep, MAX_VISIBLE_ATTEMPTS, ReadyStep, StepPlan};
use crate::record::WaitingReason;

impl DeliveryRun<'_> {
    /// Decides what follows a refusal of a step that is ready again.
    pub(super) async fn refused(
        &mut self,
        open: &mut OpenDelivery,
        at: usize,
        mut step: ReadyStep,
        error: &PlatformError,
    ) -> Result<StepFlow, DeliveryError> {
        step.note_error(error.kind(), error.platform_code());
        self.put(at, step.clone());
        if let Some(chat) = error.moved_to()
            && step.attempts < MAX_VISIBLE_ATTEMPTS
        {
            // Telegram moves a group to another id when it becomes a supergroup.
            self.follow_chat(open, chat).await?;
            return Ok(StepFlow::Again);
        }
        match error.kind() {
            ErrorKind::RateLimited => self.rate_limited(open, at, step, error).await,
            ErrorKind::Transient | ErrorKind::Source => {
                if step.attempts >= MAX_VISIBLE_ATTEMPTS {
                    return self.one_by_one_or_never(open, at, step, error).await;
                }
                let delay = error
                    .retry_after()
                    .unwrap_or_else(|| self.context.pace.backoff(step.attempts));
                self.save().await?;
                self.wait_or_park(open, at, step, delay, error).await
            }
            ErrorKind::StaleFileId => self.forget_file_ids(open, at, step, error).await,
            ErrorKind::NoThread => self.without_thread(open, at, step, error).await,
            ErrorKind::WindowClosed => self.window_closed(open, at, step, error).await,
            ErrorKind::TooLarge => {
                self.learn_limit(open, &step, error).await;
                self.another_way(open, at, step, error).await
            }
            ErrorKind::UnsupportedKind | ErrorKind::BadFormat | ErrorKind::TooLong => {
                self.another_way(open, at, step, error).await
            }
            ErrorKind::Auth | ErrorKind::NotFound => {
                // It is the chat or the account, so that the others would fail the same way.
                for other in at + 1..self.record().steps.len() {
                    if let Some(DeliveryStep::Ready(step)) = self.step_at(other) {
                        self.fail_step(open, other, step, error);
                    }
                }
                self.give_up(open, at, step, error).await
            }
            ErrorKind::Empty | ErrorKind::Unknown => {
                self.one_by_one_or_never(open, at, step, error).await
            }
            ErrorKind::Forbidden => self.give_up(open, at, step, error).await,
        }
    }

    /// One bad file does not take its album with it.
    async fn one_by_one_or_never(
        &mut self,
        open: &OpenDelivery,
        at: usize,
        step: ReadyStep,
        error: &PlatformError,
    ) -> Result<StepFlow, DeliveryError> {
        // One file of an album may be what the platform refuses; alone the others arrive.
        if step.files.len() > 1 {
            return self.one_by_one(at, &step).await;
        }
        self.give_up(open, at, step, error).await
    }

    /// The platform's delay is obeyed exactly, and does not count as an attempt.
    async fn rate_limited(
        &mut self,
        open: &OpenDelivery,
        at: usize,
        mut step: ReadyStep,
        error: &PlatformError,
    ) -> Result<StepFlow, DeliveryError> {
        // A wait for a rate limit is not a failure of the file.
        step.uncount_attempt();
        self.put(at, step.clone());
        self.save().await?;
        let delay = error.retry_after().unwrap_or(Duration::from_secs(1));
        let chat = &open.delivery.target.chat;
        self.context
            .pace
            .limiter
            .hold(&open.account.id(), chat, delay);
        self.wait_or_park(open, at, step, delay + self.context.pace.jitter(), error)
            .await
    }

    async fn wait_or_park(
        &mut self,
        open: &OpenDelivery,
        at: usize,
        step: ReadyStep,
        delay: Duration,
        error: &PlatformError,
    ) -> Result<StepFlow, DeliveryError> {
        let left = self.limit().remaining(self.context.clock.now_ms());
        // The unit covers the jitter, so that a wait of just the limit is not parked for it.
        match decide_wait(delay, left, self.context.pace.retry_unit) {
            WaitAction::GiveUp => self.give_up(open, at, step, error).await,
            WaitAction::Park => {
                self.progress(DeliveryStage::Waiting, &step).await;
                Ok(self.later(delay, WaitingReason::RateLimited))
            }
            WaitAction::Wait => {
                self.pause(delay).await?;
                Ok(StepFlow::Again)
            }
        }
    }

    /// The platform no longer knows a file: it gets the bytes.
    async fn forget_file_ids(
        &mut self,
        open: &mut OpenDelivery,
        at: usize,
        step: ReadyStep,
        error: &PlatformError,
    ) -> Result<StepFlow, DeliveryError> {
        let id = open.account.id();
        for index in &step.files {
            let index = usize::try_from(*index).unwrap_or(usize::MAX);
            let position = open.live.iter().position(|live| *live == index);
            if let Some(file) = position.and_then(|position| open.delivery.files.get_mut(position))
            {
                file.file_id = None;
                self.context
                    .platform_cache
                    .forget_file_id(&self.meta.tenant, &id, file.sha256, step.route)
                    .await;
            }
        }
        if step.attempts >= MAX_VISIBLE_ATTEMPTS {
            return self.give_up(open, at, step, error).await;
        }
        self.save().await?;
        Ok(StepFlow::Again)
    }

    /// Once more without the message to answer, then without the thread; the record's target says so.
    async fn without_thread(
        &mut self,
        open: &mut OpenDelivery,
        at: usize,
        step: ReadyStep,
        error: &PlatformError,
    ) -> Result<StepFlow, DeliveryError> {
        let target = &mut open.delivery.target;
        if !target.reply_to.is_empty() {
            // First without the reply: the message may be deleted while the thread exists.
            target.reply_to.clear();
        } else if !target.thread.is_empty() {
            target.thread.clear();
        } else {
            return self.give_up(open, at, step, error).await;
        }
        let target = super::wire_target(target.clone());
        self.record_mut().target = Some(target);
        self.save().await?;
        Ok(StepFlow::Again)
    }

    /// The file is kept and follows when the user writes again.
    async fn window_closed(
        &mut self,
        open: &OpenDelivery,
        at: usize,
        mut step: ReadyStep,
        error: &PlatformError,
    ) -> Result<StepFlow, DeliveryError> {
        let delivery_timeout = self.context.config.window_timeout.as_millis();
        let end_ms = self.record().begun_at_ms.saturating_add(delivery_timeout);
        if self.context.clock.now_ms() >= end_ms {
            return self.give_up(open, at, step, error).await;
        }
        step.uncount_attempt();
        self.record_mut().deadline_ms = end_ms;
        self.progress(DeliveryStage::Waiting, &step).await;
        self.put(at, step);
        // Until the user writes: only that opens the window (WhatsApp's 24 hours).
        Ok(StepFlow::Park(u64::MAX, WaitingReason::WindowClosed))
    }

    /// What the refusal says about the chat's limit is believed for a day.
    async fn learn_limit(
        &mut self,
        open: &mut OpenDelivery,
        step: &StepPlan,
        error: &PlatformError,
    ) {
        // A refused text says nothing about files, also when it stands for one.
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
            // An album may be too large as a whole; a file alone is the file.
            None if step.files.len() == 1 => largest_file.saturating_sub(1),
            None => return,
        };
        // A route with a smaller limit of its own says nothing about the others.
        if open.limits.of(step.route) < open.limits.any {
            return;
        }
        let life = self.context.config.learned_lifetime.as_duration();
        self.context
            .platform_cache
            .learn_limit(&open.account.id(), &open.chat, allowed, life)
            .await;
        open.limits = open.limits.clone().at_most(allowed);
    }

    /// The refusal that a step of this chat is known to end in, so that nothing is uploaded for it.
    pub(super) fn known_too_large(
        &self,
        open: &OpenDelivery,
        step: &StepPlan,
    ) -> Option<PlatformError> {
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

    /// Another way for a step that is refused as it is: the platform's own, one file at a time, a link, or none.
    pub(super) async fn another_way(
        &mut self,
        open: &mut OpenDelivery,
        at: usize,
        step: ReadyStep,
        error: &PlatformError,
    ) -> Result<StepFlow, DeliveryError> {
        let is_ours = matches!(step.route, Route::Link | Route::Notice);
        if !is_ours
            && step.attempts < MAX_VISIBLE_ATTEMPTS
            && let Some(shown) = open.platform_step(&step)
            && let Some(other) = open
                .account
                .platform
                .fallback(&open.delivery, &shown, error)
            // The same step again would be refused again, forever.
            && other != shown
        {
            let next = self.step_from(open, &step, &other);
            return self.replace(at, vec![next]).await;
        }
        if step.files.len() > 1 {
            return self.one_by_one(at, &step).await;
        }
        if error.kind() == ErrorKind::TooLong
            && let Some(steps) = self.shorter(open, &step)
        {
            return self.replace(at, steps).await;
        }
        let by_link = matches!(
            error.kind(),
            ErrorKind::TooLarge | ErrorKind::UnsupportedKind
        );
        if by_link
            && !is_ours
            && let Some(index) = step.files.first().copied()
            && self.may_link(index).await
        {
            let mut steps = Vec::new();
            if !step.text.trim().is_empty() {
                let text = StepPlan::text(Route::Text, step.text.clone());
                steps.push(self.new_step(&steps, text));
            }
            steps.push(self.new_step(&steps, StepPlan::link(index)));
            return self.replace(at, steps).await;
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
        self.give_up(open, at, step, error).await
    }

    fn step_from(&self, open: &OpenDelivery, step: &ReadyStep, other: &SendStep) -> ReadyStep {
        self.new_step(&[], open.record_plan(other))
            .with_attempts(step.attempts)
    }

    /// One step for each file; the words stay with the first.
    async fn one_by_one(&mut self, at: usize, step: &ReadyStep) -> Result<StepFlow, DeliveryError> {
        let mut steps = Vec::new();
        for (position, index) in step.files.iter().enumerate() {
            // The caption goes with the first file and is shown once.
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
        self.replace(at, steps).await
    }

    /// The same with shorter words; nothing when they cannot be any shorter.
    fn shorter(&self, open: &OpenDelivery, step: &StepPlan) -> Option<Vec<ReadyStep>> {
        let mut steps = Vec::new();
        if !step.files.is_empty() {
            if step.text.trim().is_empty() || step.route == Route::Link {
                return None;
            }
            let text = StepPlan::text(Route::Text, step.text.clone());
            steps.push(self.new_step(&steps, text));
            let silent = StepPlan {
                text: String::new(),
                ..step.clone()
            };
            steps.push(self.new_step(&steps, silent));
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

    /// Puts these steps in the place of one of which nothing is visible.
    async fn replace(
        &mut self,
        at: usize,
        steps: Vec<ReadyStep>,
    ) -> Result<StepFlow, DeliveryError> {
        let all = &mut self.record_mut().steps;
        if at < all.len() {
            all.splice(at..=at, steps.into_iter().map(DeliveryStep::from));
        }
        self.save().await?;
        Ok(StepFlow::Again)
    }

    /// Nothing of it is visible, and nothing more is tried.
    pub(super) async fn give_up(
        &mut self,
        open: &OpenDelivery,
        at: usize,
        step: ReadyStep,
        error: &PlatformError,
    ) -> Result<StepFlow, DeliveryError> {
        self.fail_step(open, at, step, error);
        self.save().await?;
        Ok(StepFlow::Next)
    }

    fn fail_step(
        &mut self,
        open: &OpenDelivery,
        at: usize,
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
        self.put(at, step.fail());
    }
}
