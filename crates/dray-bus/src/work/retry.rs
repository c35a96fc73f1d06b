//! The decision after a failed attempt of work: another attempt, parking until a dependency is back, or an end
//! (messaging-reliability 8). Pure decisions; the ledger and the acknowledgement are written elsewhere.

use std::time::Duration;

use dray_types::{Fault, FaultCode, RetryAdvice};
use rand::Rng;

use crate::backoff::{park_delay, work_delay};

/// Longest delay that a failure may request.
const MAX_DELAY: Duration = Duration::from_mins(10);
/// Time before the deadline that is too short for another delivery.
const MIN_REMAINING: Duration = Duration::from_millis(500);

/// Fault details that mean that no work was done: a part of the system was unavailable, or the work waits for another
/// replica or for a binding. A failure of an external system (for example a web server that does not respond) is not
/// among them: it counts as an attempt.
const DEPENDENCY_UNAVAILABLE_DETAILS: [&str; 12] = [
    "no_responder",
    "circuit_open",
    "bus_unavailable",
    "stopping",
    "store_unreachable",
    "store_unavailable",
    "store_timeout",
    "store_full",
    "dial_unreachable",
    // The store could not say where a file came from.
    "origin_unknown",
    // This replica has not read the account yet, or cannot read what a newer version wrote.
    "left_to_other_replica",
    // The chat of a message has no session yet.
    "binding_pending",
];

/// A failed attempt, and the remaining time and attempts.
#[derive(Clone, Copy, Debug)]
pub struct FailedAttempt<'a> {
    /// The reason why the attempt failed.
    pub fault: &'a Fault,
    /// Real attempts so far, this one included.
    pub attempts: u32,
    /// Real attempts after which the work is given up.
    pub max_attempts: u32,
    /// How often the server handed the message out.
    pub delivered: u64,
    /// Time until the deadline.
    pub remaining: Duration,
}

/// The next step after a failed attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NextStep {
    /// Return the message to the server for a delay.
    Release {
        /// How long the server keeps the message.
        delay: Duration,
        /// Whether the attempt counts.
        counted: bool,
    },
    /// The attempts are used up.
    DeadLetter,
    /// The work failed permanently, or no time is left for another attempt.
    Fail,
}

impl FailedAttempt<'_> {
    /// Decides about the failure. Back-off has jitter from `random`, so equal failures get different delays.
    pub fn next_step(&self, random: &mut impl Rng) -> NextStep {
        let RetryAdvice::After(advised) = self.fault.retry else {
            return NextStep::Fail;
        };
        // The advice may come from a web server's `Retry-After` (8: capped at 10 minutes).
        let advised = advised.min(MAX_DELAY);
        // This comes before the count of attempts: parked work ends by its deadline and is never a dead letter.
        if parks_work(self.fault) {
            return self.park(advised, random);
        }
        let delay = advised
            .max(work_delay(self.attempts, random))
            .min(MAX_DELAY);
        if self.attempts >= self.max_attempts {
            NextStep::DeadLetter
        } else if delay < self.remaining {
            NextStep::Release {
                delay,
                counted: true,
            }
        } else {
            NextStep::Fail
        }
    }

    /// Waits for the dependency as long as the deadline allows. Near the deadline the delays shrink, so that a
    /// dependency that recovers in the last seconds is still used.
    fn park(&self, advised: Duration, random: &mut impl Rng) -> NextStep {
        if self.remaining < MIN_REMAINING || advised >= self.remaining {
            return NextStep::Fail;
        }
        // The ledger does not count parked deliveries, but the server counts them all.
        let parked = self.delivered.saturating_sub(u64::from(self.attempts));
        let delay = advised.max(park_delay(parked, random).min(self.remaining / 2));
        NextStep::Release {
            delay,
            counted: false,
        }
    }
}

/// Whether work that fails with this fault is parked: the attempt only found out that a dependency is unavailable or
/// over its capacity, so it does not count.
pub fn parks_work(fault: &Fault) -> bool {
    fault.code == FaultCode::RateLimited
        || DEPENDENCY_UNAVAILABLE_DETAILS.contains(&fault.detail.as_str())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fault(detail: &str) -> Fault {
        Fault::new(FaultCode::Unavailable, "later")
            .detail(detail)
            .retry_after(Duration::from_secs(1))
    }

    fn attempt(fault: &Fault, attempts: u32, remaining: u64) -> FailedAttempt<'_> {
        FailedAttempt {
            fault,
            attempts,
            max_attempts: 5,
            delivered: u64::from(attempts),
            remaining: Duration::from_secs(remaining),
        }
    }

    #[test]
    fn an_unavailable_dependency_uses_up_no_attempt() {
        for detail in DEPENDENCY_UNAVAILABLE_DETAILS {
            let fault = fault(detail);
            for delivered in 1..500 {
                let attempt = FailedAttempt {
                    delivered,
                    ..attempt(&fault, 5, 240)
                };
                let NextStep::Release { delay, counted } = attempt.next_step(&mut rand::rng())
                else {
                    panic!("{detail} ended the work at delivery {delivered}");
                };
                assert!(!counted && delay <= Duration::from_secs(10), "{delay:?}");
            }
        }
    }

    #[test]
    fn work_over_capacity_uses_up_no_attempt() {
        let fault = Fault {
            code: FaultCode::RateLimited,
            ..fault("overloaded")
        };
        let step = attempt(&fault, 5, 240).next_step(&mut rand::rng());
        assert!(
            matches!(step, NextStep::Release { counted: false, .. }),
            "{step:?}"
        );
    }

    #[test]
    fn parked_work_fails_at_its_deadline_without_a_dead_letter() {
        let fault = fault("no_responder");
        let mut remaining = Duration::from_mins(1);
        let mut deliveries = 0;
        loop {
            deliveries += 1;
            let attempt = FailedAttempt {
                delivered: deliveries,
                remaining,
                ..attempt(&fault, 1, 0)
            };
            match attempt.next_step(&mut rand::rng()) {
                NextStep::Release { delay, .. } => remaining = remaining.saturating_sub(delay),
                step => break assert_eq!(step, NextStep::Fail),
            }
        }
        assert!(remaining <= Duration::from_secs(1), "{remaining:?} unused");
    }

    #[test]
    fn temporary_failures_are_dead_lettered_after_their_attempts() {
        let fault = fault("connect_failed");
        let step = attempt(&fault, 4, 240).next_step(&mut rand::rng());
        assert!(
            matches!(step, NextStep::Release { counted: true, .. }),
            "{step:?}"
        );
        assert_eq!(
            attempt(&fault, 5, 240).next_step(&mut rand::rng()),
            NextStep::DeadLetter
        );
    }

    #[test]
    fn a_permanent_failure_or_one_without_time_left_ends_the_work() {
        let permanent = Fault {
            retry: RetryAdvice::Never,
            ..fault("no_responder")
        };
        assert_eq!(
            attempt(&permanent, 1, 240).next_step(&mut rand::rng()),
            NextStep::Fail
        );
        let temporary = fault("connect_failed");
        assert_eq!(
            attempt(&temporary, 1, 1).next_step(&mut rand::rng()),
            NextStep::Fail
        );
        let busy = Fault {
            code: FaultCode::RateLimited,
            retry: RetryAdvice::After(Duration::from_secs(30)),
            ..fault("")
        };
        assert_eq!(
            attempt(&busy, 1, 20).next_step(&mut rand::rng()),
            NextStep::Fail
        );
    }
}
