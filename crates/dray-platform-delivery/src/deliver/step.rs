//! One visible request: intent first, then the request, then the platform's word (messaging-reliability 12).

use dray_platform::{
    ErrorKind, PlatformError, ReconcileResult, SendOutcome, SendRequest as Request, SendStep,
};
use dray_proto::v1;

use super::plan::{LINK_ROUTE, MAX_INLINE_WAIT, NOTICE_ROUTE, doubt_file};
use super::progress::{UploadCounter, UploadStage};
use super::run::{DeliveryRun, OpenDelivery, StepFlow, key_of};
use super::waiting;
use crate::error::DeliveryError;
use crate::link;
use crate::machine::{self, MAX_LOST_RESPONSES, MAX_VISIBLE_ATTEMPTS, ResumeAction, StepPhase};
use crate::report::state;

/// Tries to ask a platform what became of a request.
const MAX_RECONCILE_ATTEMPTS: u32 = 3;

impl DeliveryRun<'_> {
    /// Brings a step one transition further.
    pub(super) async fn step(
        &mut self,
        open: &mut OpenDelivery,
        at: usize,
    ) -> Result<StepFlow, DeliveryError> {
        match machine::step_phase(&self.step_at(at)) {
            StepPhase::Done | StepPhase::Unknown | StepPhase::Failed => Ok(StepFlow::Next),
            StepPhase::Ready => self.attempt(open, at, true).await,
            StepPhase::Sending => self.resolve(open, at).await,
        }
    }

    /// An answer was lost, in this process or in an earlier one.
    async fn resolve(
        &mut self,
        open: &mut OpenDelivery,
        at: usize,
    ) -> Result<StepFlow, DeliveryError> {
        self.change(at, |step| step.lost += 1);
        let step = self.step_at(at);
        let now_ms = self.desk.clock.now_ms();
        match machine::decide_resume(&step, open.account.platform.ambiguity(), now_ms) {
            ResumeAction::Send => self.attempt(open, at, false).await,
            ResumeAction::GiveUp => self.doubt(open, at).await,
            ResumeAction::Reconcile => match self.reconcile(open, &step).await? {
                ReconcileResult::Sent(confirmed) => self.confirmed(open, at, confirmed).await,
                ReconcileResult::NotSent
                    if step.lost < MAX_LOST_RESPONSES && step.attempts < MAX_VISIBLE_ATTEMPTS =>
                {
                    self.change(at, machine::mark_ready);
                    self.save().await?;
                    Ok(StepFlow::Again)
                }
                ReconcileResult::NotSent | ReconcileResult::Unknown => self.doubt(open, at).await,
            },
        }
    }

    async fn reconcile(
        &self,
        open: &OpenDelivery,
        step: &v1::DeliveryStep,
    ) -> Result<ReconcileResult, DeliveryError> {
        let Some(shown) = self.shown(open, step).await else {
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
            let asked = tokio::select! {
                asked = open.account.platform.reconcile(request) => asked,
                () = self.cancel.cancelled() => return Err(DeliveryError::Interrupted),
            };
            match asked {
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
                        .pause(delay.unwrap_or_else(|| self.desk.backoff(question)))
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
    async fn doubt(&mut self, open: &OpenDelivery, at: usize) -> Result<StepFlow, DeliveryError> {
        self.change(at, machine::mark_unknown);
        let step = self.step_at(at);
        for index in &step.files {
            if let Some(file) = self.file_mut(*index) {
                doubt_file(file, "ambiguous", &step.platform_code);
                file.attempts = step.attempts;
            }
        }
        self.save().await?;
        self.desk
            .metrics
            .step(open.account.platform.name(), &step, "unknown");
        Ok(StepFlow::Next)
    }

    /// Makes the visible request. `clean` says that nothing of it can be visible yet.
    async fn attempt(
        &mut self,
        open: &mut OpenDelivery,
        at: usize,
        clean: bool,
    ) -> Result<StepFlow, DeliveryError> {
        let step = self.step_at(at);
        if clean && step.attempts >= MAX_VISIBLE_ATTEMPTS {
            let error = PlatformError::new(kind_of(&step.error_kind), "tried often enough")
                .code(step.platform_code.clone());
            return self.give_up(open, at, &error).await;
        }
        if clean && let Some(flow) = self.known_too_large(open, at, &step).await? {
            return Ok(flow);
        }
        if let Some(flow) = self.wait_for_pace(open).await? {
            return Ok(flow);
        }
        self.use_file_ids(open, &step).await;
        let Some(shown) = self.shown(open, &step).await else {
            let error = PlatformError::new(ErrorKind::Source, "a file of the step is gone");
            return if clean {
                self.give_up(open, at, &error).await
            } else {
                self.doubt(open, at).await
            };
        };
        // The semaphore is never closed.
        let permit = open.account.uploads.clone().acquire_owned();
        let permit = tokio::select! {
            permit = permit => permit,
            () = self.cancel.cancelled() => return Err(DeliveryError::Interrupted),
        };
        if clean && let Some(flow) = self.prepare(open, at, &shown.step).await? {
            return Ok(flow);
        }
        let flow = self.send(open, at, &shown, clean).await;
        drop(permit);
        flow
    }

    /// Waits until the chat may get something; a long wait parks the delivery.
    async fn wait_for_pace(
        &mut self,
        open: &OpenDelivery,
    ) -> Result<Option<StepFlow>, DeliveryError> {
        let id = open.account.id();
        let held = self.desk.rate_limiter.held(&id, &open.delivery.target.chat);
        if held > MAX_INLINE_WAIT {
            return Ok(Some(self.later(held, waiting::RATE_LIMITED)));
        }
        let rates = open.account.platform.rates(&open.delivery.target);
        let own = self
            .desk
            .rate_limiter
            .reserve(&id, &open.delivery.target.chat, rates);
        let wait = held.max(own);
        if wait > MAX_INLINE_WAIT {
            return Ok(Some(self.later(wait, waiting::RATE_LIMITED)));
        }
        self.pause(wait).await?;
        Ok(None)
    }

    /// Makes the invisible uploads, once: what comes of it is written before anything visible happens.
    async fn prepare(
        &mut self,
        open: &mut OpenDelivery,
        at: usize,
        shown: &SendStep,
    ) -> Result<Option<StepFlow>, DeliveryError> {
        let step = self.step_at(at);
        if !step.prepared.is_empty() || matches!(step.route.as_str(), LINK_ROUTE | NOTICE_ROUTE) {
            return Ok(None);
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
            Ok(prepared) if prepared.is_empty() => Ok(None),
            Ok(prepared) => {
                self.change(at, |step| step.prepared = prepared);
                self.save().await?;
                Ok(None)
            }
            Err(error) => {
                self.change(at, |step| step.attempts += 1);
                self.refused(open, at, &error).await.map(Some)
            }
        }
    }

    async fn send(
        &mut self,
        open: &mut OpenDelivery,
        at: usize,
        shown: &SentStep,
        clean: bool,
    ) -> Result<StepFlow, DeliveryError> {
        let now_ms = self.desk.clock.now_ms();
        self.change(at, |step| machine::begin_attempt(step, now_ms));
        let step = self.step_at(at);
        for index in &step.files {
            if let Some(file) = self.file_mut(*index) {
                state::STATE_SENDING.clone_into(&mut file.state);
                file.attempts = step.attempts;
                // The earliest link is the one that may be visible.
                if file.url_expires_at_ms == 0 {
                    file.url_expires_at_ms = shown.expires_at_ms;
                }
            }
        }
        // Nothing leaves before this is written.
        self.save().await?;
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
        self.desk
            .metrics
            .sent(platform, &step, counter.bytes(), begun.elapsed());
        let error = match sent {
            Ok(confirmed) => return self.confirmed(open, at, confirmed).await,
            Err(error) => error,
        };
        tracing::warn!(
            error = &error as &dyn std::error::Error,
            platform,
            code = error.platform_code(),
            "a visible request failed"
        );
        self.desk.metrics.failed(platform, error.kind());
        self.change(at, |step| {
            error.kind().as_str().clone_into(&mut step.error_kind);
            error.platform_code().clone_into(&mut step.platform_code);
        });
        self.not_confirmed(open, at, &error, clean).await
    }

    /// A visible request failed: what that means depends on the moment.
    async fn not_confirmed(
        &mut self,
        open: &mut OpenDelivery,
        at: usize,
        error: &PlatformError,
        clean: bool,
    ) -> Result<StepFlow, DeliveryError> {
        match error.moment() {
            SendOutcome::NotSent if clean => {
                self.change(at, machine::mark_ready);
                for index in self.step_at(at).files {
                    if let Some(file) = self.file_mut(index) {
                        state::STATE_QUEUED.clone_into(&mut file.state);
                    }
                }
                self.refused(open, at, error).await
            }
            // Refused now, and an earlier try may still be visible.
            SendOutcome::NotSent if !may_pass(error.kind()) => self.doubt(open, at).await,
            SendOutcome::NotSent | SendOutcome::Ambiguous | SendOutcome::Partial => {
                self.save().await?;
                let delay = error
                    .retry_after()
                    .unwrap_or_else(|| self.desk.backoff(self.step_at(at).attempts));
                if delay > MAX_INLINE_WAIT || !self.pause(delay).await? {
                    return self.doubt(open, at).await;
                }
                Ok(StepFlow::Again)
            }
        }
    }

    /// The step as it is shown: a link is made now, as late as possible.
    async fn shown(&self, open: &OpenDelivery, step: &v1::DeliveryStep) -> Option<SentStep> {
        let mut shown = SentStep {
            step: open.platform_step(step)?,
            expires_at_ms: 0,
        };
        match (step.route.as_str(), step.files.first()) {
            (LINK_ROUTE, Some(index)) => {
                let made = self.link(*index).await.ok()?;
                let place = usize::try_from(*index).ok()?;
                let file = self.report().files.get(place)?;
                let now_ms = self.desk.clock.now_ms();
                let url = made.url.expose();
                let text = link::link_text(&file.name, file.size, url, now_ms, made.expires_at_ms);
                shown.step.set_text(text);
                shown.expires_at_ms = made.expires_at_ms;
            }
            _ => {}
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

/// Whether the same request may do later.
pub(super) const fn may_pass(kind: ErrorKind) -> bool {
    matches!(
        kind,
        ErrorKind::RateLimited | ErrorKind::Transient | ErrorKind::Source
    )
}

/// A kind as records spell it.
fn kind_of(text: &str) -> ErrorKind {
    ErrorKind::ALL_KINDS
        .into_iter()
        .find(|kind| kind.as_str() == text)
        .unwrap_or(ErrorKind::Transient)
}
