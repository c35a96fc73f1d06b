//! Whether the sweeper runs. It serves no call, so its consumer of work shows it: the sweeper takes each message that waits
//! there about every half minute.

use std::time::Duration;

use dray_bus::Bus;
use dray_bus::topology::{ConsumerState, SWEEPER_WORK, WORK_STREAM};
use dray_service::host::ErrorChain;
use dray_types::Clock;

use super::finding::Finding;
use super::system::is_denied;

/// Time since the last delivery after which the sweeper counts as missing; several sweeps take place in it.
const MAX_DELIVERY_AGE: Duration = Duration::from_mins(5);

const SWEEPER_SUBJECT: &str = "sweeper";
const SWEEPER_ADVICE: &str = "Start it: `dray up --only sweeper`; if it runs, read its log.";

pub(super) async fn check_sweeper(bus: &Bus, limit: Duration) -> Finding {
    let reading = bus.consumer_state(WORK_STREAM, SWEEPER_WORK);
    match tokio::time::timeout(limit, reading).await {
        Ok(Ok(Some(state))) => judge_consumer(&state, Clock::system().now_ms()),
        Ok(Ok(None)) => Finding::problem(
            SWEEPER_SUBJECT,
            format!("The consumer `{SWEEPER_WORK}` does not exist."),
            "Run `dray topology apply` with an identity that may manage streams.",
        ),
        Ok(Err(error)) if is_denied(&error) => Finding::skipped(
            SWEEPER_SUBJECT,
            "this identity may not look at its consumer; `operator` may",
        ),
        Ok(Err(error)) => Finding::problem(
            SWEEPER_SUBJECT,
            ErrorChain(&error).to_string(),
            SWEEPER_ADVICE,
        ),
        Err(_) => Finding::problem(
            SWEEPER_SUBJECT,
            format!(
                "The server did not describe its consumer within {} s.",
                limit.as_secs()
            ),
            SWEEPER_ADVICE,
        ),
    }
}

fn judge_consumer(state: &ConsumerState, now_ms: u64) -> Finding {
    let waiting = state.pending + state.ack_pending;
    if waiting == 0 {
        return Finding::skipped(
            SWEEPER_SUBJECT,
            "no work waits for it, so nothing on the bus shows whether it runs",
        );
    }
    let Some(last_ms) = state.last_delivery_ms else {
        return Finding::warning(
            SWEEPER_SUBJECT,
            format!("{waiting} messages wait for it, and it has taken none since NATS started."),
            SWEEPER_ADVICE,
        );
    };
    let age = Duration::from_millis(now_ms.saturating_sub(last_ms));
    if age <= MAX_DELIVERY_AGE {
        return Finding::good(SWEEPER_SUBJECT, "takes the work that waits for it");
    }
    Finding::problem(
        SWEEPER_SUBJECT,
        format!(
            "{waiting} messages wait for it, and it took the last one {} minutes ago.",
            age.as_secs() / 60
        ),
        SWEEPER_ADVICE,
    )
}

#[cfg(test)]
mod tests {
    use dray_bus::Topology;

    use super::super::finding::FindingLevel;
    use super::*;

    const NOW_MS: u64 = 1_700_000_000_000;

    fn judge(pending: u64, ack_pending: u64, last_delivery_ms: Option<u64>) -> FindingLevel {
        let mut consumers = Topology::default().consumers.into_iter();
        let state = ConsumerState {
            spec: consumers
                .find(|consumer| consumer.durable == SWEEPER_WORK)
                .unwrap(),
            pending,
            ack_pending,
            ack_floor: 0,
            last_delivery_ms,
        };
        judge_consumer(&state, NOW_MS).level
    }

    #[test]
    fn a_sweeper_that_takes_no_waiting_work_is_a_problem() {
        let minutes_ago = |minutes: u64| Some(NOW_MS - minutes * 60_000);
        for (pending, ack_pending, last_delivery_ms, level) in [
            (0, 0, None, FindingLevel::Skipped),
            (0, 0, minutes_ago(60), FindingLevel::Skipped),
            (0, 3, minutes_ago(1), FindingLevel::Good),
            // The clock of the server is ahead.
            (3, 0, Some(NOW_MS + 1_000), FindingLevel::Good),
            (3, 0, None, FindingLevel::Warning),
            (3, 0, minutes_ago(6), FindingLevel::Problem),
            (0, 3, minutes_ago(6), FindingLevel::Problem),
        ] {
            let found = judge(pending, ack_pending, last_delivery_ms);
            assert_eq!(found, level, "{pending} {ack_pending} {last_delivery_ms:?}");
        }
    }
}
