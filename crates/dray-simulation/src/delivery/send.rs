//! One visible request: rate limits, the record, the platform, and what follows its response.

use std::rc::Rc;
use std::time::Duration;

use dray_delivery_rules::failure::{
    FailureAction, MAX_INLINE_WAIT, SendMode, WaitAction, decide_failure, decide_wait,
    may_begin_request,
};
use dray_delivery_rules::machine::{ReadyStep, SendingStep};
use dray_delivery_rules::refusal::{FIRST_RETRY_DELAY, RefusalAction, decide_refusal};
use dray_platform::DuplicateProtection;
use dray_types::whole_millis;

use super::{DeliveryError, DeliveryRun, StepFlow};
use crate::handler::HandlerContext;
use crate::operation::OperationProblem;
use crate::options::BrokenRule;
use crate::platform_model::{CHAT_RATES, PlatformFailure, PlatformModel, draw_fate};
use crate::simulation::{NO_REPLICA, Simulation};
use crate::statistics::RequestKind;

impl DeliveryRun<'_> {
    pub(super) async fn attempt(&mut self, step: ReadyStep) -> Result<StepFlow, DeliveryError> {
        if !step.has_attempts_left() {
            return self.give_up(step).await;
        }
        if let Some(flow) = self.wait_for_rate_limit().await {
            return Ok(flow);
        }
        let sending = step.begin(self.context.now_ms());
        self.send(sending, SendMode::First).await
    }

    pub(super) async fn give_up(&mut self, step: ReadyStep) -> Result<StepFlow, DeliveryError> {
        self.record.step = step.fail().into();
        self.save().await?;
        Ok(StepFlow::Next)
    }

    /// Waits until the rate limits allow a message to the chat; a long wait parks the delivery.
    pub(super) async fn wait_for_rate_limit(&self) -> Option<StepFlow> {
        let (account, chat) = (self.model.name, self.chat.to_string());
        let now = Duration::from_micros(self.simulation().now());
        let now_ms = self.context.now_ms();
        let wait = self
            .simulation()
            .with_replica(self.context.replica, |state| {
                let held_for = state.buckets.held(account, &chat, now_ms);
                if held_for > MAX_INLINE_WAIT {
                    return held_for;
                }
                let own = state
                    .buckets
                    .reserve(account, &chat, CHAT_RATES, now, now_ms);
                held_for.max(own)
            })
            .unwrap_or_default();
        if wait > MAX_INLINE_WAIT {
            return Some(StepFlow::Park(now_ms + whole_millis(wait)));
        }
        self.pause(wait).await;
        None
    }

    pub(super) async fn send(
        &mut self,
        mut step: SendingStep,
        mode: SendMode,
    ) -> Result<StepFlow, DeliveryError> {
        let started_ms = self.context.now_ms();
        self.record.step = step.clone().into();
        // The request must not be sent before this is written.
        if !self.is_broken(BrokenRule::SendBeforeRecord) {
            self.save().await?;
        }
        if !may_begin_request(started_ms, self.context.now_ms()) {
            self.context.note("was paused, and does not send", 0);
            if mode == SendMode::First {
                self.record.step = step.not_visible().into();
            }
            self.save().await?;
            return Ok(StepFlow::SameStep);
        }
        self.is_own_request = true;
        self.context
            .note("sends, attempt", u64::from(step.attempts));
        self.simulation().count(RequestKind::StoreRead, 1);
        let failure = request_platform(self.context, self.model).await;
        if self.is_broken(BrokenRule::SendBeforeRecord) {
            self.save().await?;
        }
        let Some(failure) = failure else {
            if self.is_broken(BrokenRule::AlwaysUnknown) {
                return self.leave_unknown(step).await;
            }
            return self.confirmed(step).await;
        };
        self.context.note("the request failed", failure.kind as u64);
        if self.is_broken(BrokenRule::BelieveLostResponse)
            && failure.outcome == dray_platform::SendOutcome::Ambiguous
        {
            return self.confirmed(step).await;
        }
        step.note_error(failure.kind, "");
        self.record.step = step.clone().into();
        match decide_failure(failure.outcome, mode, failure.kind) {
            FailureAction::Refused => self.refused(step.not_visible(), &failure).await,
            FailureAction::LeaveUnknown => self.leave_unknown(step).await,
            FailureAction::Resolve => {
                self.save().await?;
                let delay = failure
                    .retry_after
                    .unwrap_or_else(|| self.backoff(step.attempts));
                if delay > MAX_INLINE_WAIT || !self.pause(delay).await {
                    return self.leave_unknown(step).await;
                }
                Ok(StepFlow::SameStep)
            }
        }
    }

    pub(super) async fn confirmed(&mut self, step: SendingStep) -> Result<StepFlow, DeliveryError> {
        self.record.step = step.confirm(Vec::new()).into();
        self.save_firmly().await?;
        self.context.note("confirmed", 0);
        Ok(StepFlow::Next)
    }

    pub(super) async fn refused(
        &mut self,
        mut step: ReadyStep,
        failure: &PlatformFailure,
    ) -> Result<StepFlow, DeliveryError> {
        step.note_error(failure.kind, "");
        let delay = match decide_refusal(failure.kind, step.attempts, failure.retry_after) {
            RefusalAction::WaitForRateLimit(requested) => {
                step.revert_attempt();
                let (now_ms, chat) = (self.context.now_ms(), self.chat.to_string());
                self.simulation()
                    .with_replica(self.context.replica, |state| {
                        state
                            .buckets
                            .hold(self.model.name, &chat, requested, now_ms);
                    });
                requested + self.backoff(1) / 4
            }
            RefusalAction::RetryLater(requested) => {
                requested.unwrap_or_else(|| self.backoff(step.attempts))
            }
            // The message here has no file, reply or thread, and platforms refuse it for no other reason.
            RefusalAction::ForgetFileIds
            | RefusalAction::LeaveThread
            | RefusalAction::ParkUntilUserWrites
            | RefusalAction::UseAnotherRoute
            | RefusalAction::SplitAlbum
            | RefusalAction::FailChat
            | RefusalAction::GiveUp => return self.give_up(step).await,
        };
        self.record.step = step.clone().into();
        self.save().await?;
        let remaining_time = self.limit().remaining(self.context.now_ms());
        match decide_wait(delay, remaining_time, FIRST_RETRY_DELAY) {
            WaitAction::GiveUp => self.give_up(step).await,
            WaitAction::Park => Ok(StepFlow::Park(self.context.now_ms() + whole_millis(delay))),
            WaitAction::Wait => {
                self.pause(delay).await;
                Ok(StepFlow::SameStep)
            }
        }
    }
}

/// Makes one visible request. The platform carries it out even if its sender is killed meanwhile.
async fn request_platform(
    context: &HandlerContext,
    model: &'static PlatformModel,
) -> Option<PlatformFailure> {
    let simulation = &context.simulation;
    let fate = {
        let fault = simulation.options.faults.platform_fault;
        draw_fate(&mut *simulation.random.borrow_mut(), fault)
    };
    // A separate event, because the platform carries the request out even if its sender is killed.
    if let Some(after) = fate.shown_after {
        let hold = Rc::clone(&context.hold);
        let at = simulation.now() + after;
        simulation.call_at(
            at,
            Box::new(move |simulation| show(simulation, hold.id, model)),
        );
    }
    simulation.sleep(fate.response_after).await;
    fate.failure
}

/// The platform carries a request out: a new message, or the one that it has under the same key.
fn show(simulation: &Rc<Simulation>, id: u64, model: &PlatformModel) {
    let now = simulation.now();
    let visible = simulation.with_operation(id, |operation| {
        let age = Duration::from_micros(now.saturating_sub(operation.visible_at));
        let is_known = operation.visible > 0
            && match model.protection {
                DuplicateProtection::Resend(_) | DuplicateProtection::ResendAlways => {
                    age < model.dedup_window
                }
                DuplicateProtection::Reconcile | DuplicateProtection::Unknown => false,
            };
        if !is_known {
            operation.visible += 1;
            operation.visible_at = now;
        }
        operation.visible
    });
    let visible = visible.unwrap_or(0);
    simulation.note(id, NO_REPLICA, "visible messages", u64::from(visible));
    if visible > 1 {
        simulation.fail(id, OperationProblem::Duplicated);
    }
}
