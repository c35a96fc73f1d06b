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
use crate::machine::{
    self, DeliveryStep, MAX_VISIBLE_ATTEMPTS, ReadyStep, ResumeAction, SendingStep, StepPlan,
};
use crate::record::{FileState, WaitingReason};

/// Tries to ask a platform the outcome of a request.
const MAX_RECONCILE_ATTEMPTS: u32 = 3;

impl DeliveryRun<'_> {
    /// Brings a step one transition further.
    pub(super) async fn step(
        &mut self,
        open: &mut OpenDelivery,
        at: usize,
    ) -> Result<StepFlow, DeliveryError> {
        match self.step_at(at) {
            Some(DeliveryStep::Ready(step)) => self.attempt(open, at, step).await,
            Some(DeliveryStep::Sending(step)) => self.resolve(open, at, step).await,
            Some(DeliveryStep::Done(_) | DeliveryStep::Unknown(_) | DeliveryStep::Failed(_))
            | None => Ok(StepFlow::Next),
        }
    }

    /// A response was lost, in this process or in an earlier one.
    async fn resolve(
        &mut self,
        open: &mut OpenDelivery,
        at: usize,
        mut step: SendingStep,
    ) -> Result<StepFlow, DeliveryError> {
        let uncounted = step.clone();
        // Counted first: the decision depends on how many responses were lost.
        step.count_lost();
        self.put(at, step.clone());
        let now_ms = self.context.clock.now_ms();
        match machine::decide_resume(&step, open.account.platform.ambiguity(), now_ms) {
            ResumeAction::Send => self.repeat(open, at, step).await,
            ResumeAction::GiveUp => self.end_as_unknown(open, at, step).await,
            ResumeAction::Reconcile => match self.reconcile(open, &step).await? {
                ReconcileResult::Sent(confirmed) => self.confirmed(open, at, step, confirmed).await,
                ReconcileResult::NotSent => self.not_found(open, at, step, uncounted).await,
                ReconcileResult::Unknown => self.end_as_unknown(open, at, step).await,
            },
        }
    }

    /// The platform does not show the message of a step.
    async fn not_found(
        &mut self,
        open: &OpenDelivery,
        at: usize,
        step: SendingStep,
        uncounted: SendingStep,
    ) -> Result<StepFlow, DeliveryError> {
        let is_own_request = self.own_request.as_ref() == Some(&step.fingerprint);
        let now_ms = self.context.clock.now_ms();
        match decide_not_found(&step, is_own_request, now_ms) {
            NotFoundAction::SendAgain => {
                self.put(at, step.not_visible());
                self.save().await?;
                Ok(StepFlow::Again)
            }
            // Another worker had this step. Its request may be stalled in the platform, which then shows it later.
            NotFoundAction::AskAt(due_ms) if due_ms < self.limit().unix_ms() => {
                self.put(at, uncounted);
                Ok(StepFlow::Park(due_ms, WaitingReason::Queue))
            }
            NotFoundAction::AskAt(_) | NotFoundAction::LeaveUnknown => {
                self.end_as_unknown(open, at, step).await
            }
        }
    }

    async fn reconcile(
        &self,
        open: &OpenDelivery,
        step: &SendingStep,
    ) -> Result<ReconcileResult, DeliveryError> {
        // Without the file the platform's message cannot be recognised.
        let Some(shown) = self.with_links(open, step, None).await else {
            return Ok(ReconcileResult::Unknown);
        };
        let key = key_of(step);
        for question in 1..=MAX_RECONCILE_ATTEMPTS {
            let request = Request {
                delivery: &open.delivery,
                step: &shown.step,
                prepared: &step.prepared,
                key: &key,
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
                        "a lost answer is not cleared up yet"
                    );
                    let delay = error
                        .retry_after()
                        .filter(|delay| *delay <= MAX_INLINE_WAIT);
                    if !self
                        .pause(delay.unwrap_or_else(|| self.context.pace.backoff(question)))
                        .await?
                    {
                        break;
                    }
                }
            }
        }
        Ok(ReconcileResult::Unknown)
    }

    /// Whether it is visible stays unknown.
    async fn end_as_unknown(
        &mut self,
        open: &OpenDelivery,
        at: usize,
        step: SendingStep,
    ) -> Result<StepFlow, DeliveryError> {
        for index in &step.files {
            if let Some(file) = self.file_mut(*index) {
                file.mark_unknown(&step.platform_code);
                file.attempts = step.attempts;
            }
        }
        let route = step.route;
        self.put(at, step.leave_unknown());
        self.save().await?;
        self.context
            .metrics
            .step(open.account.platform.name(), route, "unknown");
        Ok(StepFlow::Next)
    }

    /// Makes the visible request of a step of which nothing can be visible yet.
    async fn attempt(
        &mut self,
        open: &mut OpenDelivery,
        at: usize,
        step: ReadyStep,
    ) -> Result<StepFlow, DeliveryError> {
        if step.attempts >= MAX_VISIBLE_ATTEMPTS {
            let kind = step.error_kind.unwrap_or(ErrorKind::Transient);
            let error =
                PlatformError::new(kind, "tried often enough").code(step.platform_code.clone());
            return self.give_up(open, at, step, &error).await;
        }
        // Saves the upload of a file that is refused for its size.
        if let Some(error) = self.known_too_large(open, &step) {
            return self.another_way(open, at, step, &error).await;
        }
        if let Some(flow) = self.wait_for_pace(open).await? {
            return Ok(flow);
        }
        self.use_file_ids(open, &step).await;
        let preview = match self.preview_link(&step, false).await? {
            Ok(preview) => preview,
            Err(error) => return self.give_up(open, at, step, &error).await,
        };
        let Some(shown) = self.with_links(open, &step, preview).await else {
            let error = PlatformError::new(ErrorKind::Source, "a file of the step is gone");
            return self.give_up(open, at, step, &error).await;
        };
        // After the waits for the rate limit: a delivery that waits must not hold an upload slot.
        let _permit = self.upload_permit(open).await?;
        let step = match self.prepare(open, at, step, &shown.step).await? {
            Ok(step) => step,
            Err(flow) => return Ok(flow),
        };
        let sending = step.begin(self.context.clock.now_ms());
        self.send(open, at, sending, &shown, SendMode::First).await
    }

    /// Makes the same request under the same key once more, where the platform makes one message of both.
    async fn repeat(
        &mut self,
        open: &mut OpenDelivery,
        at: usize,
        step: SendingStep,
    ) -> Result<StepFlow, DeliveryError> {
        if let Some(flow) = self.wait_for_pace(open).await? {
            return Ok(flow);
        }
        self.use_file_ids(open, &step).await;
        let Ok(preview) = self.preview_link(&step, true).await? else {
            return self.end_as_unknown(open, at, step).await;
        };
        let Some(shown) = self.with_links(open, &step, preview).await else {
            return self.end_as_unknown(open, at, step).await;
        };
        let _permit = self.upload_permit(open).await?;
        self.send(open, at, step.begin_again(), &shown, SendMode::Repeated)
            .await
    }

    /// The right to one upload of the account, held until it is dropped.
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

    /// Waits until the chat may get something; a long wait parks the delivery.
    async fn wait_for_pace(
        &mut self,
        open: &OpenDelivery,
    ) -> Result<Option<StepFlow>, DeliveryError> {
        let id = open.account.id();
        // Two limits: what the platform asked for after a refusal, and the rate that it publishes.
        let held = self
            .context
            .pace
            .limiter
            .held(&id, &open.delivery.target.chat);
        if held > MAX_INLINE_WAIT {
            return Ok(Some(self.later(held, WaitingReason::RateLimited)));
        }
        let rates = open.account.platform.rates(&open.delivery.target);
        let own = self
            .context
            .pace
            .limiter
            .reserve(&id, &open.delivery.target.chat, rates);
        let wait = held.max(own);
        if wait > MAX_INLINE_WAIT {
            return Ok(Some(self.later(wait, WaitingReason::RateLimited)));
        }
        self.pause(wait).await?;
        Ok(None)
    }

    /// Makes the invisible uploads, once: what comes of it is written before anything visible happens. The flow is what
    /// follows a refusal.
    async fn prepare(
        &mut self,
        open: &mut OpenDelivery,
        at: usize,
        mut step: ReadyStep,
        shown: &SendStep,
    ) -> Result<Result<ReadyStep, StepFlow>, DeliveryError> {
        // An earlier attempt has uploaded it already.
        if !step.prepared.is_empty() || matches!(step.route, Route::Link | Route::Notice) {
            return Ok(Ok(step));
        }
        let key = key_of(&step);
        let counter = UploadCounter::default();
        let request = Request {
            delivery: &open.delivery,
            step: shown,
            prepared: "",
            key: &key,
        };
        let prepared = {
            let work = open.account.platform.prepare(request, &counter);
            self.watched(UploadStage::of(open, &step), &counter, work)
                .await?
        };
        match prepared {
            Ok(prepared) if prepared.is_empty() => Ok(Ok(step)),
            Ok(prepared) => {
                step.set_prepared(prepared);
                self.put(at, step.clone());
                self.save().await?;
                Ok(Ok(step))
            }
            Err(error) => {
                step.count_attempt();
                self.refused(open, at, step, &error).await.map(Err)
            }
        }
    }

    async fn send(
        &mut self,
        open: &mut OpenDelivery,
        at: usize,
        mut step: SendingStep,
        shown: &SentStep,
        mode: SendMode,
    ) -> Result<StepFlow, DeliveryError> {
        let begun_ms = self.context.clock.now_ms();
        self.put(at, step.clone());
        for index in &step.files {
            if let Some(file) = self.file_mut(*index) {
                file.state = FileState::Sending;
                file.attempts = step.attempts;
                // The earliest link is the one that may be visible.
                if file.url_expires_at_ms == 0 {
                    file.url_expires_at_ms = shown.expires_at_ms;
                }
            }
        }
        // Nothing leaves before this is written.
        self.save().await?;
        if !may_begin_request(begun_ms, self.context.clock.now_ms()) {
            return self.begin_later(at, step, mode).await;
        }
        self.own_request = Some(step.fingerprint.clone());
        let key = key_of(&step);
        let counter = UploadCounter::default();
        let request = Request {
            delivery: &open.delivery,
            step: &shown.step,
            prepared: &step.prepared,
            key: &key,
        };
        let begun = tokio::time::Instant::now();
        let sent = {
            let work = open.account.platform.send(request, &counter);
            self.watched(UploadStage::of(open, &step), &counter, work)
                .await?
        };
        let platform = open.account.platform.name();
        self.context
            .metrics
            .sent(platform, step.route, counter.bytes(), begun.elapsed());
        let error = match sent {
            Ok(confirmed) => return self.confirmed(open, at, step, confirmed).await,
            Err(error) => error,
        };
        tracing::warn!(
            error = &error as &dyn std::error::Error,
            platform,
            code = error.platform_code(),
            "a visible request failed"
        );
        self.context.metrics.failed(platform, error.kind());
        step.note_error(error.kind(), error.platform_code());
        self.put(at, step.clone());
        self.not_confirmed(open, at, step, &error, mode).await
    }

    /// The process stood still between the record and the request, so that another worker may have the step. Nothing of
    /// this attempt is visible; the write shows whether the step is still this worker's.
    async fn begin_later(
        &mut self,
        at: usize,
        step: SendingStep,
        mode: SendMode,
    ) -> Result<StepFlow, DeliveryError> {
        match mode {
            SendMode::First => self.put(at, step.not_visible()),
            // An earlier request may be visible.
            SendMode::Repeated => self.put(at, step),
        }
        self.save().await?;
        Ok(StepFlow::Again)
    }

    /// A visible request failed: what follows depends on whether it, or an earlier one, may be visible.
    async fn not_confirmed(
        &mut self,
        open: &mut OpenDelivery,
        at: usize,
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
                self.refused(open, at, step.not_visible(), error).await
            }
            FailureAction::LeaveUnknown => self.end_as_unknown(open, at, step).await,
            FailureAction::Resolve => {
                self.save().await?;
                let delay = error
                    .retry_after()
                    .unwrap_or_else(|| self.context.pace.backoff(step.attempts));
                // An open step is not parked: the time in which the platform can be asked about it runs out.
                if delay > MAX_INLINE_WAIT || !self.pause(delay).await? {
                    return self.end_as_unknown(open, at, step).await;
                }
                Ok(StepFlow::Again)
            }
        }
    }

    /// The step as it is shown: a link is made now, as late as possible. The link of a preview was made by the caller;
    /// without it the text is that of a question about an earlier message.
    async fn with_links(
        &self,
        open: &OpenDelivery,
        step: &StepPlan,
        preview: Option<PreviewLink>,
    ) -> Option<SentStep> {
        let mut shown = SentStep {
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
                    |made| (made.url, made.expires_at_ms),
                );
                let text = link::preview_text(&file.name, file.size, &url, now_ms, ends_ms);
                shown.step.set_text(text);
                shown.expires_at_ms = ends_ms;
                return Some(shown);
            }
            // Made for each attempt, so that the link that is shown is fresh.
            let made = self.link(*index).await.ok()?;
            let url = made.url.expose();
            let text = link::link_text(&file.name, file.size, url, now_ms, made.expires_at_ms);
            shown.step.set_text(text);
            shown.expires_at_ms = made.expires_at_ms;
        }
        Some(shown)
    }
}

/// A step as it is shown.
pub(super) struct SentStep {
    step: SendStep,
    /// Unix milliseconds at which its link ends; 0 for none.
    expires_at_ms: u64,
}
