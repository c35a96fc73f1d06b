//! One visible request: record the intent, send, record the platform's confirmation (messaging-reliability 12).

use dray_delivery_rules::failure::{
    FailureAction, MAX_INLINE_WAIT, NotFoundAction, SendMode, decide_failure, decide_not_found,
    may_begin_request,
};
use dray_platform::{
    ErrorKind, PlatformError, ReconcileResult, Route, SendRequest as Request, SendStep,
};
use tokio::sync::OwnedSemaphorePermit;

use super::preview::PreviewLink;
use super::progress::{UploadCounter, UploadStage};
use super::run::{DeliveryRun, OpenDelivery, StepFlow, key_of};
use crate::error::DeliveryError;
use crate::link;
use crate::machine::{self, DeliveryStep, ReadyStep, ResumeAction, SendingStep, StepPlan};
use crate::record::{FileState, WaitingReason};

/// Most requests for the outcome of one visible request.
const MAX_RECONCILE_ATTEMPTS: u32 = 3;

impl DeliveryRun<'_> {
    /// Brings a step one transition further.
    pub(super) async fn step(
        &mut self,
        open: &mut OpenDelivery,
        step_index: usize,
    ) -> Result<StepFlow, DeliveryError> {
        match self.step_at(step_index) {
            Some(DeliveryStep::Ready(step)) => self.attempt(open, step_index, step).await,
            Some(DeliveryStep::Sending(step)) => self.resolve(open, step_index, step).await,
            // An earlier worker may have ended before it read the reports of the platform.
            Some(DeliveryStep::Done(_)) => self.apply_early_failures(open, step_index).await,
            Some(DeliveryStep::Unknown(_) | DeliveryStep::Failed(_)) | None => Ok(StepFlow::Next),
        }
    }

    /// Determines the outcome of a request whose response was lost, in this process or in an earlier one.
    async fn resolve(
        &mut self,
        open: &mut OpenDelivery,
        step_index: usize,
        mut step: SendingStep,
    ) -> Result<StepFlow, DeliveryError> {
        let uncounted = step.clone();
        // The lost response is counted first, because the decision depends on the number of lost responses.
        step.count_lost();
        self.put(step_index, step.clone());
        let now_ms = self.context.clock.now_ms();
        match machine::decide_resume(&step, open.account.platform.ambiguity(), now_ms) {
            ResumeAction::Send => self.repeat(open, step_index, step).await,
            ResumeAction::GiveUp => self.end_as_unknown(open, step_index, step).await,
            ResumeAction::Reconcile => match self.reconcile(open, &step).await? {
                ReconcileResult::Sent(confirmed) => {
                    self.record_confirmation(open, step_index, step, confirmed)
                        .await
                }
                ReconcileResult::NotSent => {
                    self.handle_not_found(open, step_index, step, uncounted)
                        .await
                }
                ReconcileResult::Unknown => self.end_as_unknown(open, step_index, step).await,
            },
        }
    }

    /// Decides what follows if the platform does not show the message of a step.
    async fn handle_not_found(
        &mut self,
        open: &OpenDelivery,
        step_index: usize,
        step: SendingStep,
        uncounted: SendingStep,
    ) -> Result<StepFlow, DeliveryError> {
        let is_own_request = self.own_request.as_ref() == Some(&step.fingerprint);
        let now_ms = self.context.clock.now_ms();
        match decide_not_found(&step, is_own_request, now_ms) {
            NotFoundAction::SendAgain => {
                self.put(step_index, step.not_visible());
                self.save().await?;
                Ok(StepFlow::SameStep)
            }
            // Another worker sent this step. Its request may still be delayed inside the platform, and be shown later.
            NotFoundAction::AskAt(due_ms) if due_ms < self.limit().unix_ms() => {
                self.put(step_index, uncounted);
                Ok(StepFlow::Park(due_ms, WaitingReason::Queue))
            }
            NotFoundAction::AskAt(_) | NotFoundAction::LeaveUnknown => {
                self.end_as_unknown(open, step_index, step).await
            }
        }
    }

    async fn reconcile(
        &self,
        open: &OpenDelivery,
        step: &SendingStep,
    ) -> Result<ReconcileResult, DeliveryError> {
        // Without its files, the message cannot be recognised.
        let Some(sent_step) = self.with_links(open, step, None).await else {
            self.check_store(&step.files).await?;
            return Ok(ReconcileResult::Unknown);
        };
        let key = key_of(step);
        for attempt in 1..=MAX_RECONCILE_ATTEMPTS {
            let request = Request {
                delivery: &open.delivery,
                step: &sent_step.step,
                prepared: &step.prepared,
                key: &key,
                repeated: true,
            };
            let lookup = tokio::select! {
                lookup = open.account.platform.reconcile(request) => lookup,
                () = self.cancel.cancelled() => return Err(DeliveryError::Interrupted),
            };
            match lookup {
                Ok(reconciled) => return Ok(reconciled),
                Err(error) => {
                    tracing::warn!(
                        error = &error as &dyn std::error::Error,
                        "could not determine the outcome of a request whose response was lost"
                    );
                    let delay = error
                        .retry_after()
                        .filter(|delay| *delay <= MAX_INLINE_WAIT);
                    if !self
                        .pause(delay.unwrap_or_else(|| self.context.send_delays.backoff(attempt)))
                        .await?
                    {
                        break;
                    }
                }
            }
        }
        Ok(ReconcileResult::Unknown)
    }

    /// Ends a step without knowing whether its message is visible.
    async fn end_as_unknown(
        &mut self,
        open: &OpenDelivery,
        step_index: usize,
        step: SendingStep,
    ) -> Result<StepFlow, DeliveryError> {
        for index in &step.files {
            if let Some(file) = self.file_mut(*index) {
                file.mark_unknown(&step.platform_code);
                file.attempts = step.attempts;
            }
        }
        let route = step.route;
        self.put(step_index, step.leave_unknown());
        self.save().await?;
        self.context
            .metrics
            .step(open.account.platform.name(), route, "unknown");
        Ok(StepFlow::Next)
    }

    /// Makes the visible request of a step that cannot be visible yet.
    async fn attempt(
        &mut self,
        open: &mut OpenDelivery,
        step_index: usize,
        step: ReadyStep,
    ) -> Result<StepFlow, DeliveryError> {
        if !step.has_attempts_left() {
            let kind = step.error_kind.unwrap_or(ErrorKind::Transient);
            let error =
                PlatformError::new(kind, "tried often enough").code(step.platform_code.clone());
            return self.give_up(open, step_index, step, &error).await;
        }
        // Saves the upload of a file that is refused for its size, or was refused after the message was accepted.
        if let Some(error) = self.known_refusal(open, &step) {
            return self.use_another_route(open, step_index, step, &error).await;
        }
        if let Some(flow) = self.wait_until_allowed(open).await? {
            return Ok(flow);
        }
        self.use_file_ids(open, &step).await;
        let preview = match self.preview_link(&step, false).await? {
            Ok(preview) => preview,
            Err(error) => return self.give_up(open, step_index, step, &error).await,
        };
        let Some(sent_step) = self.with_links(open, &step, preview).await else {
            self.check_store(&step.files).await?;
            let error = PlatformError::new(ErrorKind::Source, "a file of the step is gone");
            return self.give_up(open, step_index, step, &error).await;
        };
        // The permit is taken after the waits for the rate limit, because a delivery that waits must not use an upload
        // slot.
        let _permit = self.upload_permit(open).await?;
        let step = match self
            .prepare(open, step_index, step, &sent_step.step)
            .await?
        {
            Ok(step) => step,
            Err(flow) => return Ok(flow),
        };
        let sending = step.begin(self.context.clock.now_ms());
        self.send(open, step_index, sending, &sent_step, SendMode::First)
            .await
    }

    /// Makes the same request with the same key again, on platforms that show one message for both.
    async fn repeat(
        &mut self,
        open: &mut OpenDelivery,
        step_index: usize,
        step: SendingStep,
    ) -> Result<StepFlow, DeliveryError> {
        if let Some(flow) = self.wait_until_allowed(open).await? {
            return Ok(flow);
        }
        self.use_file_ids(open, &step).await;
        let Ok(preview) = self.preview_link(&step, true).await? else {
            return self.end_as_unknown(open, step_index, step).await;
        };
        let Some(sent_step) = self.with_links(open, &step, preview).await else {
            self.check_store(&step.files).await?;
            return self.end_as_unknown(open, step_index, step).await;
        };
        let _permit = self.upload_permit(open).await?;
        self.send(
            open,
            step_index,
            step.begin_again(),
            &sent_step,
            SendMode::Repeated,
        )
        .await
    }

    /// A permit for one upload of the account, returned when it is dropped.
    async fn upload_permit(
        &self,
        open: &OpenDelivery,
    ) -> Result<Option<OwnedSemaphorePermit>, DeliveryError> {
        let permit = open.account.uploads.clone().acquire_owned();
        tokio::select! {
            // The semaphore is never closed.
            permit = permit => Ok(permit.ok()),
            () = self.cancel.cancelled() => Err(DeliveryError::Interrupted),
        }
    }

    /// Waits until the rate limits allow a send; a long wait parks the delivery.
    async fn wait_until_allowed(
        &mut self,
        open: &OpenDelivery,
    ) -> Result<Option<StepFlow>, DeliveryError> {
        let id = open.account.id();
        // Two limits apply: the delay of an earlier refusal, and the rate that the platform publishes.
        let hold_delay = self
            .context
            .send_delays
            .limiter
            .held(&id, &open.delivery.target.chat);
        if hold_delay > MAX_INLINE_WAIT {
            return Ok(Some(
                self.park_after(hold_delay, WaitingReason::RateLimited),
            ));
        }
        let rates = open.account.platform.rate_limits(&open.delivery.target);
        let rate_delay =
            self.context
                .send_delays
                .limiter
                .reserve(&id, &open.delivery.target.chat, rates);
        let wait = hold_delay.max(rate_delay);
        if wait > MAX_INLINE_WAIT {
            return Ok(Some(self.park_after(wait, WaitingReason::RateLimited)));
        }
        self.pause(wait).await?;
        Ok(None)
    }

    /// Makes the invisible uploads once, and stores their result before anything becomes visible. The inner error says
    /// what follows a refusal.
    async fn prepare(
        &mut self,
        open: &mut OpenDelivery,
        step_index: usize,
        mut step: ReadyStep,
        sent_step: &SendStep,
    ) -> Result<Result<ReadyStep, StepFlow>, DeliveryError> {
        // An earlier attempt has uploaded the files already, or the step has none.
        if !step.prepared.is_empty() || matches!(step.route, Route::Link | Route::Notice) {
            return Ok(Ok(step));
        }
        let key = key_of(&step);
        let counter = UploadCounter::default();
        let request = Request {
            delivery: &open.delivery,
            step: sent_step,
            prepared: "",
            key: &key,
            repeated: false,
        };
        let prepared = {
            let work = open.account.platform.prepare(request, &counter);
            self.with_progress_reports(UploadStage::of(open, &step), &counter, work)
                .await?
        };
        match prepared {
            Ok(prepared) if prepared.is_empty() => Ok(Ok(step)),
            Ok(prepared) => {
                step.set_prepared(prepared);
                self.put(step_index, step.clone());
                self.save().await?;
                Ok(Ok(step))
            }
            Err(error) => {
                step.count_attempt();
                self.report_failure_when_stored(&step, step.attempts, &error);
                self.handle_refusal(open, step_index, step, &error)
                    .await
                    .map(Err)
            }
        }
    }

    async fn send(
        &mut self,
        open: &mut OpenDelivery,
        step_index: usize,
        mut step: SendingStep,
        sent_step: &SentStep,
        mode: SendMode,
    ) -> Result<StepFlow, DeliveryError> {
        let begun_ms = self.context.clock.now_ms();
        self.request_begun_ms = begun_ms;
        self.put(step_index, step.clone());
        for index in &step.files {
            if let Some(file) = self.file_mut(*index) {
                file.state = FileState::Sending;
                file.attempts = step.attempts;
                // The first link keeps its expiry in the record, because its message may be visible.
                if file.url_expires_at_ms == 0 {
                    file.url_expires_at_ms = sent_step.expires_at_ms;
                }
            }
        }
        // The record is stored before the request is made: after a crash, the record says that a message may be
        // visible.
        self.save().await?;
        if !may_begin_request(begun_ms, self.context.clock.now_ms()) {
            return self.put_back(step_index, step, mode).await;
        }
        self.own_request = Some(step.fingerprint.clone());
        let key = key_of(&step);
        let counter = UploadCounter::default();
        let request = Request {
            delivery: &open.delivery,
            step: &sent_step.step,
            prepared: &step.prepared,
            key: &key,
            repeated: mode == SendMode::Repeated,
        };
        let request_start = tokio::time::Instant::now();
        let sent = {
            let work = open.account.platform.send(request, &counter);
            self.with_progress_reports(UploadStage::of(open, &step), &counter, work)
                .await?
        };
        let elapsed = request_start.elapsed();
        let platform = open.account.platform.name();
        let metrics = &self.context.metrics;
        metrics.sent(platform, step.route, counter.bytes(), elapsed);
        let error = match sent {
            Ok(confirmed) => {
                return self
                    .record_confirmation(open, step_index, step, confirmed)
                    .await;
            }
            Err(error) => error,
        };
        tracing::warn!(
            error = &error as &dyn std::error::Error,
            platform,
            code = error.platform_code(),
            "a visible request failed"
        );
        self.context.metrics.failed(platform, error.kind());
        self.report_failure_when_stored(&step, step.attempts, &error);
        step.note_error(error.kind(), error.platform_code());
        self.put(step_index, step.clone());
        self.handle_failure(open, step_index, step, &error, mode)
            .await
    }

    /// Puts back a step that another worker may have taken: the process was suspended between storing the intent and
    /// the request. This attempt made nothing visible; storing the record fails if another worker has the step.
    async fn put_back(
        &mut self,
        step_index: usize,
        step: SendingStep,
        mode: SendMode,
    ) -> Result<StepFlow, DeliveryError> {
        match mode {
            SendMode::First => self.put(step_index, step.not_visible()),
            // The message of an earlier request may be visible.
            SendMode::Repeated => self.put(step_index, step),
        }
        self.save().await?;
        Ok(StepFlow::SameStep)
    }

    /// A visible request failed: what follows depends on whether it, or an earlier one, may be visible.
    async fn handle_failure(
        &mut self,
        open: &mut OpenDelivery,
        step_index: usize,
        step: SendingStep,
        error: &PlatformError,
        mode: SendMode,
    ) -> Result<StepFlow, DeliveryError> {
        match decide_failure(error.send_outcome(), mode, error.kind()) {
            FailureAction::Refused => {
                for index in &step.files {
                    if let Some(file) = self.file_mut(*index) {
                        file.state = FileState::Queued;
                    }
                }
                self.handle_refusal(open, step_index, step.not_visible(), error)
                    .await
            }
            FailureAction::LeaveUnknown => self.end_as_unknown(open, step_index, step).await,
            FailureAction::Resolve => {
                self.save().await?;
                let delay = error
                    .retry_after()
                    .unwrap_or_else(|| self.context.send_delays.backoff(step.attempts));
                // A step with an unknown outcome is not parked, because the platform can report its outcome only for a
                // limited time.
                if delay > MAX_INLINE_WAIT || !self.pause(delay).await? {
                    return self.end_as_unknown(open, step_index, step).await;
                }
                Ok(StepFlow::SameStep)
            }
        }
    }

    /// The step with its final text: a link is made here, as late as possible. A preview has a link of the caller;
    /// without that link, the step is only used to find an earlier message.
    async fn with_links(
        &self,
        open: &OpenDelivery,
        step: &StepPlan,
        preview: Option<PreviewLink>,
    ) -> Option<SentStep> {
        let mut sent_step = SentStep {
            step: open.platform_step(step)?,
            expires_at_ms: 0,
        };
        if let (Route::Link, Some(index)) = (step.route, step.files.first()) {
            let position = usize::try_from(*index).ok()?;
            let file = self.record().files.get(position)?;
            let now_ms = self.context.clock.now_ms();
            if let Some(receipt) = &file.preview {
                let (url, ends_ms) = preview.map_or_else(
                    || (String::new(), receipt.expires_at_ms),
                    |new_link| (new_link.url, new_link.expires_at_ms),
                );
                let text = link::preview_text(&file.name, file.size, &url, now_ms, ends_ms);
                sent_step.step.set_text(text);
                sent_step.expires_at_ms = ends_ms;
                return Some(sent_step);
            }
            // The link is made for each attempt, so that the link in the message has its whole lifetime.
            let new_link = self.link(*index).await.ok()?;
            let url = new_link.url.expose();
            let text = link::link_text(&file.name, file.size, url, now_ms, new_link.expires_at_ms);
            sent_step.step.set_text(text);
            sent_step.expires_at_ms = new_link.expires_at_ms;
        }
        Some(sent_step)
    }
}

/// A step with the final text of its link.
pub(super) struct SentStep {
    step: SendStep,
    /// Unix milliseconds at which the link expires; 0 without a link.
    expires_at_ms: u64,
}
