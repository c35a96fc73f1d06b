//! The wait for the end of a delivery.

use std::time::Duration;

use dray_bus::{EventFilter, EventStream, Meta};
use dray_presentation::name;
use dray_presentation::size::human_size;
use dray_proto::{NamedCode as _, v1};
use dray_types::{Fault, FaultCode, whole_millis};
use indicatif::ProgressBar;
use prost::Message as _;

use crate::cli::GlobalOptions;
use crate::context::SystemConnection;
use crate::outcome::CommandFailure;

/// How long one request for the outcome waits at the service.
const OUTCOME_WAIT: Duration = Duration::from_secs(5);
/// Delay after a request for the outcome that no service answered.
const RETRY_DELAY: Duration = Duration::from_secs(1);

/// A delivery that a command has requested.
#[derive(Clone, Copy, Debug)]
pub(super) struct RequestedDelivery<'a> {
    pub(super) id: &'a str,
    /// Whether the command takes this id (`--delivery-id`), so that repeating it sends nothing twice.
    takes_id: bool,
}

impl<'a> RequestedDelivery<'a> {
    /// A delivery of `dray send` or `dray deliver`.
    pub(super) const fn sent(id: &'a str) -> Self {
        Self { id, takes_id: true }
    }

    /// A delivery of `dray resend`.
    pub(super) const fn resent(id: &'a str) -> Self {
        Self {
            id,
            takes_id: false,
        }
    }

    /// What a person does when the outcome is not known.
    fn advice(self) -> String {
        let id = self.id;
        if self.takes_id {
            format!("Look at `dray receipts {id}`, or repeat the command with --delivery-id {id}.")
        } else {
            format!(
                "Look at `dray receipts {id}` before you repeat the command, which sends again."
            )
        }
    }
}

/// The failure with the id of the delivery, which continues, or may have been accepted without a response. An
/// interruption has no text of its own, so it is printed here, with this sentence.
pub(super) fn name_delivery(
    global: &GlobalOptions,
    failure: CommandFailure,
    delivery: RequestedDelivery<'_>,
    interrupted: &str,
) -> CommandFailure {
    let advice = delivery.advice();
    match failure {
        CommandFailure::Fault(fault) if fault.is_retryable() => fault.advice(advice).into(),
        CommandFailure::Interrupted(signal) => {
            let fault = Fault::new(FaultCode::Unavailable, interrupted).detail("interrupted");
            CommandFailure::from(fault.advice(advice)).report(global.json);
            CommandFailure::Interrupted(signal)
        }
        other => other,
    }
}

/// The failure of the request for a delivery, which may have been accepted without a response.
pub(super) fn failed_request(
    global: &GlobalOptions,
    failure: CommandFailure,
    delivery: RequestedDelivery<'_>,
) -> CommandFailure {
    match failure {
        // The request reached no service.
        CommandFailure::Fault(fault) if fault.detail == "no_responder" => fault.into(),
        failure => {
            let sentence = "Interrupted; the delivery may have been accepted.";
            name_delivery(global, failure, delivery, sentence)
        }
    }
}

/// Polls until the delivery has ended, or until `time` is over.
pub(super) async fn poll_until_ended(
    system: &SystemConnection,
    delivery_id: &str,
    time: Duration,
) -> Result<v1::DeliveryReport, CommandFailure> {
    let end = system.deadline(time);
    let ask = async || {
        // Longer than the wait at the service, whose response would otherwise arrive too late.
        let meta: Meta = system.meta(OUTCOME_WAIT * 2);
        let request = v1::DeliveryOutcomeRequest {
            delivery_id: delivery_id.to_owned(),
            wait_ms: whole_millis(OUTCOME_WAIT),
        };
        system.call(&meta, &request).await
    };
    ask_until_ended(ask, || end.has_passed(system.clock.now_ms()), delivery_id).await
}

/// Asks for the outcome until the delivery has ended, or until `is_over` after a response or a temporary failure.
async fn ask_until_ended(
    ask: impl AsyncFn() -> Result<v1::DeliveryReport, CommandFailure>,
    is_over: impl Fn() -> bool,
    delivery_id: &str,
) -> Result<v1::DeliveryReport, CommandFailure> {
    loop {
        let report = ask().await;
        let is_over = is_over();
        match report {
            Ok(report) if report.finished => return Ok(report),
            // A service that restarts, or a bus that is away, does not end the delivery.
            Err(CommandFailure::Fault(fault)) if fault.is_retryable() && !is_over => {
                tokio::time::sleep(RETRY_DELAY).await;
            }
            Err(failure) => return Err(failure),
            Ok(_) => {}
        }
        if is_over {
            return Err(
                Fault::new(FaultCode::Timeout, "The delivery has not ended yet.")
                    .detail("still_running")
                    .advice(format!(
                        "It continues where services run; see `dray receipts {delivery_id}`."
                    ))
                    .into(),
            );
        }
    }
}

/// Shows the progress of a delivery until it is dropped.
pub(super) async fn follow_progress(
    system: &SystemConnection,
    delivery_id: &str,
    bar: &ProgressBar,
) {
    let filter = EventFilter::of::<v1::DeliveryProgressed>();
    // On a running system this identity may make calls but create no consumers, so only the end is shown there.
    let is_own = system.config().is_some();
    if is_own && let Ok(mut events) = system.bus.events(filter).await {
        while let Some(news) = next_progress(&mut events).await {
            if news.delivery_id == delivery_id {
                bar.set_message(progress_text(&news));
            }
        }
    }
    // Without events no progress is shown; the end is still reported.
    std::future::pending::<()>().await;
}

async fn next_progress(events: &mut EventStream) -> Option<v1::DeliveryProgressed> {
    loop {
        let event = events.next().await.ok()?;
        // Other messages on the subject are skipped.
        if let Ok(news) = v1::DeliveryProgressed::decode(event.payload.clone()) {
            return Some(news);
        }
    }
}

fn progress_text(news: &v1::DeliveryProgressed) -> String {
    let name = name::shown_text(&news.name, 60);
    if news.attempt > 0 {
        // Most platforms have a code for each failure, which says more than its kind.
        let code = match name::shown_text(&news.platform_code, 40) {
            code if code.is_empty() => code,
            code => format!(", {code}"),
        };
        let kind = news.error_code().name();
        return format!("attempt {} of {name} failed: {kind}{code}", news.attempt);
    }
    if news.total > 0 {
        format!(
            "{} {name} {} of {}",
            news.stage_name(),
            human_size(news.bytes),
            human_size(news.total)
        )
    } else {
        format!("{} {name}", news.stage_name())
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use dray_types::RetryAdvice;

    use super::*;

    fn away() -> Fault {
        Fault::new(FaultCode::Timeout, "The operation did not finish in time.")
            .detail("no_answer")
            .retry_after(Duration::from_secs(1))
    }

    #[tokio::test(start_paused = true)]
    async fn the_wait_outlasts_a_service_that_restarts() {
        let asked = Cell::new(0);
        let ask = async || {
            asked.set(asked.get() + 1);
            if asked.get() < 5 {
                return Err(away().into());
            }
            Ok(v1::DeliveryReport {
                finished: true,
                ..v1::DeliveryReport::default()
            })
        };
        let report = ask_until_ended(ask, || false, "d1").await.unwrap();
        assert!(report.finished);
        assert_eq!(asked.get(), 5);
    }

    #[tokio::test(start_paused = true)]
    async fn the_wait_ends_at_its_timeout_and_at_a_lasting_failure() {
        let over = ask_until_ended(async || Err(away().into()), || true, "d1").await;
        let Err(CommandFailure::Fault(fault)) = over else {
            panic!("{over:?}")
        };
        assert_eq!(fault.detail, "no_answer");
        let denied = || Fault::new(FaultCode::Denied, "No.");
        let ended = ask_until_ended(async || Err(denied().into()), || false, "d1").await;
        let Err(CommandFailure::Fault(fault)) = ended else {
            panic!("{ended:?}")
        };
        assert_eq!(fault.retry, RetryAdvice::Never);
    }

    #[test]
    fn a_failure_after_the_request_names_the_delivery() {
        let global = GlobalOptions::default();
        // `dray resend` has no option for the id of its delivery.
        for (delivery, takes_id) in [
            (RequestedDelivery::sent("d1"), true),
            (RequestedDelivery::resent("d1"), false),
        ] {
            let named = name_delivery(&global, away().into(), delivery, "");
            let CommandFailure::Fault(fault) = named else {
                panic!("{named:?}")
            };
            assert!(fault.advice.contains("`dray receipts d1`"), "{fault:?}");
            let names_option = fault.advice.contains("--delivery-id d1");
            assert_eq!(names_option, takes_id, "{fault:?}");
        }
    }
}
