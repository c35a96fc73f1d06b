//! A request was refused, and nothing of it is visible: wait, take another way, or give up (platform-delivery 7, 10).

use std::time::Duration;

use dray_content::caption::{self, CaptionUnit};
use dray_platform::{ErrorKind, PlatformError, SendStep};
use dray_proto::v1;

use super::plan::{LINK_ROUTE, MAX_INLINE_WAIT, NOTICE_ROUTE, TEXT_ROUTE, fail_file, largest_file};
use super::run::{DeliveryRun, OpenDelivery, StepFlow};
use super::waiting;
use crate::error::DeliveryError;
use crate::machine::{self, MAX_VISIBLE_ATTEMPTS, StepPhase};
use crate::report;

impl DeliveryRun<'_> {
    /// Decides what follows a refusal of a step that is ready again.
    pub(super) async fn refused(
        &mut self,
        open: &mut OpenDelivery,
        at: usize,
        error: &PlatformError,
    ) -> Result<StepFlow, DeliveryError> {
        self.change(at, |step| {
            error.kind().as_str().clone_into(&mut step.error_kind);
            error.platform_code().clone_into(&mut step.platform_code);
        });
        let step = self.step_at(at);
        if let Some(chat) = error.moved_to()
            && step.attempts < MAX_VISIBLE_ATTEMPTS
        {
            self.follow_chat(open, chat).await?;
            return Ok(StepFlow::Again);
        }
        match error.kind() {
            ErrorKind::RateLimited => self.rate_limited(open, at, error).await,
            ErrorKind::Transient | ErrorKind::Source => {
                if step.attempts >= MAX_VISIBLE_ATTEMPTS {
                    return self.one_by_one_or_never(open, at, &step, error).await;
                }
                let delay = error
                    .retry_after()
                    .unwrap_or_else(|| self.desk.backoff(step.attempts));
                self.save().await?;
                self.wait_or_park(open, at, delay, error).await
            }
            ErrorKind::StaleFileId => self.forget_file_ids(open, at, &step, error).await,
            ErrorKind::NoThread => self.without_thread(open, at, error).await,
            ErrorKind::WindowClosed => self.window_closed(open, at, error).await,
            ErrorKind::TooLarge => {
                self.learn_limit(open, &step, error).await;
                self.another_way(open, at, error).await
            }
            ErrorKind::UnsupportedKind | ErrorKind::BadFormat | ErrorKind::TooLong => {
                self.another_way(open, at, error).await
            }
            ErrorKind::Auth | ErrorKind::NotFound => {
                // It is the chat or the account, so that the others would fail the same way.
                for other in at + 1..self.report().steps.len() {
                    if machine::step_phase(&self.step_at(other)) == StepPhase::Ready {
                        self.fail_step(open, other, error);
                    }
                }
                self.give_up(open, at, error).await
            }
            ErrorKind::Empty | ErrorKind::Unknown => {
                self.one_by_one_or_never(open, at, &step, error).await
            }
            ErrorKind::Forbidden => self.give_up(open, at, error).await,
        }
    }

    /// One bad file does not take its album with it.
    async fn one_by_one_or_never(
        &mut self,
        open: &OpenDelivery,
        at: usize,
        step: &v1::DeliveryStep,
        error: &PlatformError,
    ) -> Result<StepFlow, DeliveryError> {
        if step.files.len() > 1 {
            return self.one_by_one(at, step).await;
        }
        self.give_up(open, at, error).await
    }

    /// The platform's delay is obeyed exactly, and does not count as an attempt.
    async fn rate_limited(
        &mut self,
        open: &OpenDelivery,
        at: usize,
        error: &PlatformError,
    ) -> Result<StepFlow, DeliveryError> {
        self.change(at, |step| step.attempts = step.attempts.saturating_sub(1));
        self.save().await?;
        let asked = error.retry_after().unwrap_or(Duration::from_secs(1));
        let chat = &open.delivery.target.chat;
        self.desk.rate_limiter.hold(&open.account.id(), chat, asked);
        self.wait_or_park(open, at, asked + self.desk.jitter(), error)
            .await
    }

    async fn wait_or_park(
        &mut self,
        open: &OpenDelivery,
        at: usize,
        delay: Duration,
        error: &PlatformError,
    ) -> Result<StepFlow, DeliveryError> {
        let left = self.limit().remaining(self.desk.clock.now_ms());
        if delay >= left {
            return self.give_up(open, at, error).await;
        }
        if delay > MAX_INLINE_WAIT + self.desk.second {
            self.progress("waiting", &self.step_at(at), 0).await;
            return Ok(self.later(delay, waiting::RATE_LIMITED));
        }
        self.pause(delay).await?;
        Ok(StepFlow::Again)
    }

    /// The platform no longer knows a file: it gets the bytes.
    async fn forget_file_ids(
        &mut self,
        open: &mut OpenDelivery,
        at: usize,
        step: &v1::DeliveryStep,
        error: &PlatformError,
    ) -> Result<StepFlow, DeliveryError> {
        let id = open.account.id();
        for index in &step.files {
            let index = usize::try_from(*index).unwrap_or(usize::MAX);
            let place = open.live.iter().position(|live| *live == index);
            if let Some(file) = place.and_then(|place| open.delivery.files.get_mut(place)) {
                file.file_id = None;
                self.desk
                    .platform_cache
                    .forget_file_id(&self.meta.tenant, &id, file.sha256, &step.route)
                    .await;
            }
        }
        if step.attempts >= MAX_VISIBLE_ATTEMPTS {
            return self.give_up(open, at, error).await;
        }
        self.save().await?;
        Ok(StepFlow::Again)
    }

    /// Once more without the message to answer, then without the thread; the record's target says so.
    async fn without_thread(
        &mut self,
        open: &mut OpenDelivery,
        at: usize,
        error: &PlatformError,
    ) -> Result<StepFlow, DeliveryError> {
        let target = &mut open.delivery.target;
        if !target.reply_to.is_empty() {
            target.reply_to.clear();
        } else if !target.thread.is_empty() {
            target.thread.clear();
        } else {
            return self.give_up(open, at, error).await;
        }
        let target = super::wire_target(target.clone());
        self.report_mut().target = Some(target);
        self.save().await?;
        Ok(StepFlow::Again)
    }

    /// The file is kept and follows when the user writes again.
    async fn window_closed(
        &mut self,
        open: &OpenDelivery,
        at: usize,
        error: &PlatformError,
    ) -> Result<StepFlow, DeliveryError> {
        let patience = self.desk.config.window_patience.as_millis();
        let end_ms = self.report().begun_at_ms.saturating_add(patience);
        if self.desk.clock.now_ms() >= end_ms {
            return self.give_up(open, at, error).await;
        }
        self.change(at, |step| step.attempts = step.attempts.saturating_sub(1));
        self.report_mut().deadline_ms = end_ms;
        self.progress("waiting", &self.step_at(at), 0).await;
        Ok(StepFlow::Park(u64::MAX, waiting::WINDOW_CLOSED))
    }

    /// What the refusal says about the chat's limit is believed for a day.
    async fn learn_limit(
        &mut self,
        open: &mut OpenDelivery,
        step: &v1::DeliveryStep,
        error: &PlatformError,
    ) {
        // A refused text says nothing about files, also when it stands for one.
        if matches!(step.route.as_str(), LINK_ROUTE | TEXT_ROUTE | NOTICE_ROUTE) {
            return;
        }
        let sizes = step.files.iter().filter_map(|index| {
            let index = usize::try_from(*index).ok()?;
            self.report().files.get(index).map(|file| file.size)
        });
        let largest_file = sizes.max().unwrap_or_default();
        let allowed = match error.numbers() {
            Some((_, allowed)) => allowed,
            // An album may be too large as a whole; a file alone is the file.
            None if step.files.len() == 1 => largest_file.saturating_sub(1),
            None => return,
        };
        // A route with a smaller limit of its own says nothing about the others.
        if open.limits.of(&step.route) < open.limits.any {
            return;
        }
        let life = self.desk.config.learned_lifetime.as_duration();
        self.desk
            .platform_cache
            .learn_limit(&open.account.id(), &open.chat, allowed, life)
            .await;
        open.limits = open.limits.clone().at_most(allowed);
    }

    /// What this chat is known not to take is not uploaded.
    pub(super) async fn known_too_large(
        &mut self,
        open: &mut OpenDelivery,
        at: usize,
        step: &v1::DeliveryStep,
    ) -> Result<Option<StepFlow>, DeliveryError> {
        if matches!(step.route.as_str(), LINK_ROUTE | TEXT_ROUTE | NOTICE_ROUTE) {
            return Ok(None);
        }
        let limit = open.limits.of(&step.route);
        let over = step.files.iter().find_map(|index| {
            let index = usize::try_from(*index).ok()?;
            let file = self.report().files.get(index)?;
            (file.size > limit).then_some(file.size)
        });
        let Some(size) = over else {
            return Ok(None);
        };
        let error = PlatformError::new(ErrorKind::TooLarge, "known to be too large")
            .with_numbers(size, largest_file(&open.limits));
        self.another_way(open, at, &error).await.map(Some)
    }

    /// Another way for a step that is refused as it is: the platform's own, one file at a time, a link, or none.
    async fn another_way(
        &mut self,
        open: &mut OpenDelivery,
        at: usize,
        error: &PlatformError,
    ) -> Result<StepFlow, DeliveryError> {
        let step = self.step_at(at);
        let is_ours = matches!(step.route.as_str(), LINK_ROUTE | NOTICE_ROUTE);
        if !is_ours
            && step.attempts < MAX_VISIBLE_ATTEMPTS
            && let Some(shown) = open.platform_step(&step)
            && let Some(other) = open
                .account
                .platform
                .fallback(&open.delivery, &shown, error)
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
                steps.push(self.new_step(&steps, TEXT_ROUTE, Vec::new(), step.text.clone(), false));
            }
            steps.push(self.new_step(&steps, LINK_ROUTE, vec![index], String::new(), false));
            return self.replace(at, steps).await;
        }
        let error = match error.numbers() {
            None if error.kind() == ErrorKind::TooLarge => {
                let index = step
                    .files
                    .first()
                    .and_then(|index| usize::try_from(*index).ok());
                let file = index.and_then(|index| self.report().files.get(index));
                let size = file.map_or(0, |file| file.size);
                let allowed = largest_file(&open.limits).min(size.saturating_sub(1));
                &PlatformError::new(ErrorKind::TooLarge, "refused as too large")
                    .with_numbers(size, allowed)
                    .code(error.platform_code())
            }
            _ => error,
        };
        self.give_up(open, at, error).await
    }

    fn step_from(
        &self,
        open: &OpenDelivery,
        step: &v1::DeliveryStep,
        other: &SendStep,
    ) -> v1::DeliveryStep {
        let files = other
            .files()
            .iter()
            .filter_map(|place| open.record_index(*place))
            .collect();
        v1::DeliveryStep {
            attempts: step.attempts,
            ..self.new_step(
                &[],
                other.route(),
                files,
                other.text().to_owned(),
                other.is_lossy(),
            )
        }
    }

    /// One step for each file; the words stay with the first.
    async fn one_by_one(
        &mut self,
        at: usize,
        step: &v1::DeliveryStep,
    ) -> Result<StepFlow, DeliveryError> {
        let mut steps = Vec::new();
        for (place, index) in step.files.iter().enumerate() {
            let text = if place == 0 {
                step.text.clone()
            } else {
                String::new()
            };
            steps.push(self.new_step(&steps, &step.route, vec![*index], text, step.lossy));
        }
        self.replace(at, steps).await
    }

    /// The same with shorter words; nothing when they cannot be any shorter.
    fn shorter(
        &self,
        open: &OpenDelivery,
        step: &v1::DeliveryStep,
    ) -> Option<Vec<v1::DeliveryStep>> {
        let mut steps = Vec::new();
        if !step.files.is_empty() {
            if step.text.trim().is_empty() || step.route == LINK_ROUTE {
                return None;
            }
            steps.push(self.new_step(&steps, TEXT_ROUTE, Vec::new(), step.text.clone(), false));
            let files = step.files.clone();
            steps.push(self.new_step(&steps, &step.route, files, String::new(), step.lossy));
            return Some(steps);
        }
        let half = step.text.chars().count().div_ceil(2).min(open.limits.text);
        let pieces = caption::split_text(&step.text, half, CaptionUnit::Chars);
        if pieces.len() < 2 || half < 4 {
            return None;
        }
        for piece in pieces {
            steps.push(self.new_step(&steps, &step.route, Vec::new(), piece, false));
        }
        Some(steps)
    }

    /// Puts these steps in the place of one of which nothing is visible.
    async fn replace(
        &mut self,
        at: usize,
        steps: Vec<v1::DeliveryStep>,
    ) -> Result<StepFlow, DeliveryError> {
        let all = &mut self.report_mut().steps;
        if at < all.len() {
            all.splice(at..=at, steps);
        }
        self.save().await?;
        Ok(StepFlow::Again)
    }

    /// Nothing of it is visible, and nothing more is tried.
    pub(super) async fn give_up(
        &mut self,
        open: &OpenDelivery,
        at: usize,
        error: &PlatformError,
    ) -> Result<StepFlow, DeliveryError> {
        self.fail_step(open, at, error);
        self.save().await?;
        Ok(StepFlow::Next)
    }

    fn fail_step(&mut self, open: &OpenDelivery, at: usize, error: &PlatformError) {
        self.change(at, |step| {
            machine::mark_failed(step);
            error.kind().as_str().clone_into(&mut step.error_kind);
            error.platform_code().clone_into(&mut step.platform_code);
        });
        let step = self.step_at(at);
        for index in &step.files {
            if let Some(file) = self.file_mut(*index)
                && !report::is_final(&file.state)
            {
                fail_file(file, error.kind(), error);
                file.attempts = step.attempts;
                file.url_expires_at_ms = 0;
            }
        }
        self.desk
            .metrics
            .step(open.account.platform.name(), &step, "failed");
    }
}
