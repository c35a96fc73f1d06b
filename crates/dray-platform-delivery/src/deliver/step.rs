//! One visible request: intent first, then the request, then the platform's word (messaging-reliability 12).

use dray_platform::{
    Confirmed, Error as PlatformError, ErrorKind, Moment, Reconciled, Send as Request, Step,
};
use dray_proto::v1;
use dray_types::Sha256Digest;

use super::plan::{INLINE, LINK, NOTICE, TEXT, doubt_file};
use super::progress::{Counter, Stage};
use super::run::{Flow, Open, Run, key_of};
use super::waiting;
use crate::error::Error;
use crate::link;
use crate::machine::{self, LOST, Phase, Resume, TRIES};
use crate::memory::Origin;
use crate::report::state;

/// Tries to ask a platform what became of a request.
const QUESTIONS: u32 = 3;

impl Run<'_> {
    /// Brings a step one transition further.
    pub(super) async fn step(&mut self, open: &mut Open, at: usize) -> Result<Flow, Error> {
        match machine::phase(&self.step_at(at)) {
            Phase::Done | Phase::Unknown | Phase::Failed => Ok(Flow::Next),
            Phase::Ready => self.attempt(open, at, true).await,
            Phase::Sending => self.resolve(open, at).await,
        }
    }

    /// An answer was lost, in this process or in an earlier one.
    async fn resolve(&mut self, open: &mut Open, at: usize) -> Result<Flow, Error> {
        self.change(at, |step| step.lost += 1);
        let step = self.step_at(at);
        let now_ms = self.desk.clock.now_ms();
        match machine::resume(&step, open.account.platform.ambiguity(), now_ms) {
            Resume::Send => self.attempt(open, at, false).await,
            Resume::GiveUp => self.doubt(open, at).await,
            Resume::Reconcile => match self.reconcile(open, &step).await? {
                Reconciled::Sent(confirmed) => self.confirmed(open, at, confirmed).await,
                Reconciled::NotSent if step.lost < LOST && step.attempts < TRIES => {
                    self.change(at, machine::back);
                    self.save().await?;
                    Ok(Flow::Again)
                }
                Reconciled::NotSent | Reconciled::Unknown => self.doubt(open, at).await,
            },
        }
    }

    async fn reconcile(&self, open: &Open, step: &v1::DeliveryStep) -> Result<Reconciled, Error> {
        let Some(shown) = self.shown(open, step).await else {
            return Ok(Reconciled::Unknown);
        };
        let key = key_of(step);
        for question in 1..=QUESTIONS {
            let request = Request {
                delivery: &open.delivery,
                step: &shown.step,
                prepared: &step.prepared,
                key: &key,
            };
            let asked = tokio::select! {
                asked = open.account.platform.reconcile(request) => asked,
                () = self.cancel.cancelled() => return Err(Error::Interrupted),
            };
            match asked {
                Ok(reconciled) => return Ok(reconciled),
                Err(error) => {
                    tracing::warn!(
                        error = &error as &dyn std::error::Error,
                        "a lost answer is not cleared up yet"
                    );
                    let delay = error.retry_after().filter(|delay| *delay <= INLINE);
                    if !self
                        .pause(delay.unwrap_or_else(|| self.desk.backoff(question)))
                        .await?
                    {
                        break;
                    }
                }
            }
        }
        Ok(Reconciled::Unknown)
    }

    /// Nobody will know whether it is visible.
    async fn doubt(&mut self, open: &Open, at: usize) -> Result<Flow, Error> {
        self.change(at, machine::unknown);
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
        Ok(Flow::Next)
    }

    /// Makes the visible request. `clean` tells that nothing of it can be visible yet.
    async fn attempt(&mut self, open: &mut Open, at: usize, clean: bool) -> Result<Flow, Error> {
        let step = self.step_at(at);
        if clean && step.attempts >= TRIES {
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
            () = self.cancel.cancelled() => return Err(Error::Interrupted),
        };
        if clean && let Some(flow) = self.prepare(open, at, &shown.step).await? {
            return Ok(flow);
        }
        let flow = self.send(open, at, &shown, clean).await;
        drop(permit);
        flow
    }

    /// Waits until the chat may get something; a long wait parks the delivery.
    async fn wait_for_pace(&mut self, open: &Open) -> Result<Option<Flow>, Error> {
        let id = open.account.id();
        let held = self.desk.pace.held(&id, &open.delivery.target.chat);
        if held > INLINE {
            return Ok(Some(self.later(held, waiting::RATE_LIMITED)));
        }
        let rates = open.account.platform.rates(&open.delivery.target);
        let own = self
            .desk
            .pace
            .reserve(&id, &open.delivery.target.chat, rates);
        let wait = held.max(own);
        if wait > INLINE {
            return Ok(Some(self.later(wait, waiting::RATE_LIMITED)));
        }
        self.pause(wait).await?;
        Ok(None)
    }

    /// Uploads what nobody sees yet, once: what comes of it is written before anything visible happens.
    async fn prepare(
        &mut self,
        open: &mut Open,
        at: usize,
        shown: &Step,
    ) -> Result<Option<Flow>, Error> {
        let step = self.step_at(at);
        if !step.prepared.is_empty() || matches!(step.route.as_str(), LINK | NOTICE) {
            return Ok(None);
        }
        let key = key_of(&step);
        let counter = Counter::default();
        let request = Request {
            delivery: &open.delivery,
            step: shown,
            prepared: "",
            key: &key,
        };
        let prepared = {
            let work = open.account.platform.prepare(request, &counter);
            self.watched(Stage::of(open, &step), &counter, work).await?
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
        open: &mut Open,
        at: usize,
        shown: &Shown,
        clean: bool,
    ) -> Result<Flow, Error> {
        let now_ms = self.desk.clock.now_ms();
        self.change(at, |step| machine::begin(step, now_ms));
        let step = self.step_at(at);
        for index in &step.files {
            if let Some(file) = self.file_mut(*index) {
                state::SENDING.clone_into(&mut file.state);
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
        let counter = Counter::default();
        let request = Request {
            delivery: &open.delivery,
            step: &shown.step,
            prepared: &step.prepared,
            key: &key,
        };
        let begun = tokio::time::Instant::now();
        let sent = {
            let work = open.account.platform.send(request, &counter);
            self.watched(Stage::of(open, &step), &counter, work).await?
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
        open: &mut Open,
        at: usize,
        error: &PlatformError,
        clean: bool,
    ) -> Result<Flow, Error> {
        match error.moment() {
            Moment::NotSent if clean => {
                self.change(at, machine::back);
                for index in self.step_at(at).files {
                    if let Some(file) = self.file_mut(index) {
                        state::QUEUED.clone_into(&mut file.state);
                    }
                }
                self.refused(open, at, error).await
            }
            // Refused now, and an earlier try may still be visible.
            Moment::NotSent if !may_pass(error.kind()) => self.doubt(open, at).await,
            Moment::NotSent | Moment::Ambiguous | Moment::Partial => {
                self.save().await?;
                let delay = error
                    .retry_after()
                    .unwrap_or_else(|| self.desk.backoff(self.step_at(at).attempts));
                if delay > INLINE || !self.pause(delay).await? {
                    return self.doubt(open, at).await;
                }
                Ok(Flow::Again)
            }
        }
    }

    /// The platform's word. What it does not confirm was not delivered.
    pub(super) async fn confirmed(
        &mut self,
        open: &Open,
        at: usize,
        confirmed: Vec<Confirmed>,
    ) -> Result<Flow, Error> {
        let step = self.step_at(at);
        let mut kept = Vec::new();
        for one in confirmed {
            let file = match one.file {
                Some(place) => open.record_index(place),
                None if step.route == LINK => step.files.first().copied(),
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
                state::FAILED.clone_into(&mut file.state);
                ErrorKind::Unknown.as_str().clone_into(&mut file.error_kind);
                "The platform showed the message without this file."
                    .clone_into(&mut file.error_message);
                file.url_expires_at_ms = 0;
            }
        }
        self.remember_file_ids(open, &step, &kept).await;
        self.change(at, |step| machine::done(step, kept));
        self.save().await?;
        self.correct_early_news(open, at).await?;
        self.desk
            .metrics
            .step(open.account.platform.name(), &step, "done");
        self.progress("sent", &step, 0).await;
        Ok(Flow::Next)
    }

    fn show_file(&mut self, open: &Open, step: &v1::DeliveryStep, index: u32, one: &Confirmed) {
        let shown = match (step.route.as_str(), open.account.platform.name()) {
            (LINK, _) => state::LINKED,
            (_, "cli") => state::COPIED,
            _ => state::DELIVERED,
        };
        let route = match (step.route.as_str(), one.route.as_str()) {
            (LINK, _) | (_, "") => step.route.clone(),
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
    async fn expect_news(&self, open: &Open, message: &str) {
        let origin = Origin {
            record: self.key.clone(),
            tenant: self.report().tenant.clone(),
            delivery: self.report().delivery_id.clone(),
        };
        let memory = &self.desk.memory;
        memory
            .learn_origin(&open.account.id(), message, &origin)
            .await;
    }

    /// Bad news may have been faster than the answer.
    async fn correct_early_news(&mut self, open: &Open, at: usize) -> Result<(), Error> {
        let mut changed = false;
        for one in self.step_at(at).confirmed {
            if !one.provisional {
                continue;
            }
            let news = self
                .desk
                .memory
                .news(&open.account.id(), &one.message_id)
                .await;
            if let Some(code) = news {
                changed |= crate::keeper::correct(self.report_mut(), &one.message_id, &code);
            }
        }
        if changed {
            self.save().await?;
        }
        Ok(())
    }

    /// What the platform knows already need not be uploaded again.
    async fn use_file_ids(&self, open: &mut Open, step: &v1::DeliveryStep) {
        let id = open.account.id();
        for index in &step.files {
            let index = usize::try_from(*index).unwrap_or(usize::MAX);
            let Some(place) = open.live.iter().position(|live| *live == index) else {
                continue;
            };
            if let Some(file) = open.delivery.files.get_mut(place) {
                let memory = &self.desk.memory;
                file.file_id = memory
                    .file_id(&self.meta.tenant, &id, file.sha256, &step.route)
                    .await;
            }
        }
    }

    async fn remember_file_ids(
        &self,
        open: &Open,
        step: &v1::DeliveryStep,
        kept: &[v1::StepConfirmation],
    ) {
        if matches!(step.route.as_str(), LINK | TEXT | NOTICE)
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
                    .memory
                    .learn_file_id(&self.meta.tenant, &id, digest, route, &one.file_id)
                    .await;
            }
        }
    }

    /// The step as it is shown: a link is made now, as late as possible.
    async fn shown(&self, open: &Open, step: &v1::DeliveryStep) -> Option<Shown> {
        let mut shown = Shown {
            step: open.platform_step(step)?,
            expires_at_ms: 0,
        };
        match (step.route.as_str(), step.files.first()) {
            (LINK, Some(index)) => {
                let made = self.link(*index).await.ok()?;
                let place = usize::try_from(*index).ok()?;
                let file = self.report().files.get(place)?;
                let now_ms = self.desk.clock.now_ms();
                let url = made.url.expose();
                shown.step.text =
                    link::text(&file.name, file.size, url, now_ms, made.expires_at_ms);
                shown.expires_at_ms = made.expires_at_ms;
            }
            (NOTICE, _) => TEXT.clone_into(&mut shown.step.route),
            _ => {}
        }
        Some(shown)
    }
}

/// A step as it is shown.
pub(super) struct Shown {
    step: Step,
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
    ErrorKind::ALL
        .into_iter()
        .find(|kind| kind.as_str() == text)
        .unwrap_or(ErrorKind::Transient)
}
