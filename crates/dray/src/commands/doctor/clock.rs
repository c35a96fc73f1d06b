//! Compares the clock of this machine with those of the NATS server and of the store.

use std::time::Duration;

use bytes::Bytes;
use dray_bus::Bus;
use dray_bus::error::TransportError;
use dray_bus::{KeyError, KeyValue};
use dray_service::host::ErrorChain;
use dray_store::StoreOptions;
use dray_types::Clock;

use super::finding::Finding;

/// The subject of the findings.
const CLOCK_SUBJECT: &str = "clock of the bus";
/// A bucket whose entries are found by exact keys alone and expire, so a further key affects no service.
const PROBE_BUCKET: &str = "dray_conversions";
/// Largest difference of the clocks with which services are ready (messaging-reliability 7.1).
const MAX_SKEW_MS: u64 = 2_000;

/// The subject of the finding about the store.
const STORE_CLOCK_SUBJECT: &str = "clock of the store";
/// Difference above which one of the clocks is evidently not synchronised, although requests are still accepted.
const STORE_SKEW_WARNING: Duration = Duration::from_mins(1);
/// Difference beyond which S3 refuses signed requests (`RequestTimeTooSkewed`).
const MAX_STORE_SKEW: Duration = Duration::from_mins(15);

/// The local time before and after a write, and the time that the server gave it.
#[derive(Clone, Copy, Debug)]
#[expect(clippy::struct_field_names, reason = "the unit is part of the name")]
struct ClockComparison {
    before_ms: u64,
    server_ms: u64,
    after_ms: u64,
}

impl ClockComparison {
    /// Milliseconds that the request does not explain: 0 if the server's time is between the local ones.
    fn skew_ms(self) -> u64 {
        let is_behind = self.before_ms.saturating_sub(self.server_ms);
        is_behind.max(self.server_ms.saturating_sub(self.after_ms))
    }
}

/// Writes a key, reads its time and deletes it.
pub(super) async fn compare_clocks(bus: &Bus, limit: Duration) -> Finding {
    let compared = tokio::time::timeout(limit, compare(&bus.key_value(PROBE_BUCKET))).await;
    match compared {
        Ok(Ok(comparison)) => judge(comparison),
        Ok(Err(KeyError::Transport(TransportError::Denied(_)))) => Finding::skipped(
            CLOCK_SUBJECT,
            "this identity may not write the key that shows it",
        ),
        Ok(Err(error)) => Finding::skipped(
            CLOCK_SUBJECT,
            format!("it was not compared: {}", ErrorChain(&error)),
        ),
        Err(_) => Finding::skipped(
            CLOCK_SUBJECT,
            format!(
                "it was not compared within {} s; this identity may not write, or the server is slow",
                limit.as_secs()
            ),
        ),
    }
}

async fn compare(keys: &KeyValue) -> Result<ClockComparison, KeyError> {
    let clock = Clock::system();
    let before_ms = clock.now_ms();
    let key = format!("doctor.{before_ms}-{}", std::process::id());
    let revision = keys.create(&key, Bytes::from_static(b"doctor")).await?;
    let after_ms = clock.now_ms();
    let entry = keys.get(&key).await;
    keys.delete(&key, revision).await?;
    let server_ms = entry?.ok_or(KeyError::Stale)?.time_ms;
    Ok(ClockComparison {
        before_ms,
        server_ms,
        after_ms,
    })
}

fn judge(comparison: ClockComparison) -> Finding {
    let skew_ms = comparison.skew_ms();
    if skew_ms > MAX_SKEW_MS {
        return Finding::problem(
            CLOCK_SUBJECT,
            format!(
                "The clocks of this machine and of the NATS server differ by {skew_ms} ms; services with more than \
                 {MAX_SKEW_MS} ms are not ready."
            ),
            "Synchronise both clocks with NTP, for example `timedatectl set-ntp true`.",
        );
    }
    Finding::good(CLOCK_SUBJECT, "it agrees with the clock of this machine")
}

/// Compares the clock of the store with that of this machine.
pub(super) async fn compare_store_clock(options: &StoreOptions, limit: Duration) -> Finding {
    let local_clock = Clock::system();
    let compared = dray_store::clock_skew(options, &local_clock);
    match tokio::time::timeout(limit, compared).await {
        Ok(Ok(Some(skew))) => judge_store(skew),
        Ok(Ok(None) | Err(_)) | Err(_) => Finding::skipped(
            STORE_CLOCK_SUBJECT,
            "it was not compared: no response of the store has the time",
        ),
    }
}

fn judge_store(skew: Duration) -> Finding {
    let text = format!(
        "The clocks of this machine and of the store differ by {} s; S3 refuses requests and links beyond {} s.",
        skew.as_secs(),
        MAX_STORE_SKEW.as_secs()
    );
    let advice = "Synchronise both clocks with NTP, for example `timedatectl set-ntp true`.";
    if skew > MAX_STORE_SKEW {
        Finding::problem(STORE_CLOCK_SUBJECT, text, advice)
    } else if skew > STORE_SKEW_WARNING {
        Finding::warning(STORE_CLOCK_SUBJECT, text, advice)
    } else {
        Finding::good(
            STORE_CLOCK_SUBJECT,
            "it agrees with the clock of this machine",
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::commands::doctor::finding::FindingLevel;

    #[test]
    fn clocks_that_differ_by_more_than_a_ready_service_allows_are_a_problem() {
        for (server_ms, level) in [
            (10_000, FindingLevel::Good),
            (10_500, FindingLevel::Good),
            (8_000, FindingLevel::Good),
            (7_999, FindingLevel::Problem),
            // The request took half a second, which the difference does not include.
            (12_500, FindingLevel::Good),
            (12_501, FindingLevel::Problem),
        ] {
            let finding = judge(ClockComparison {
                before_ms: 10_000,
                server_ms,
                after_ms: 10_500,
            });
            assert_eq!(finding.level, level, "{server_ms}: {finding:?}");
        }
    }

    #[test]
    fn a_clock_of_the_store_that_s3_refuses_is_a_problem_and_one_minute_a_warning() {
        for (seconds, level) in [
            (60, FindingLevel::Good),
            (61, FindingLevel::Warning),
            (900, FindingLevel::Warning),
            (901, FindingLevel::Problem),
        ] {
            let finding = judge_store(Duration::from_secs(seconds));
            assert_eq!(finding.level, level, "{seconds}: {finding:?}");
        }
    }

    #[tokio::test]
    async fn the_bus_of_this_process_has_the_clock_of_this_machine() {
        let meter = dray_service::telemetry::no_meter();
        let bus = Bus::in_process(Clock::system(), &meter);
        bus.apply_topology(&dray_bus::Topology::default())
            .await
            .unwrap();
        let finding = compare_clocks(&bus, Duration::from_secs(30)).await;
        assert_eq!(finding.level, FindingLevel::Good, "{finding:?}");
        let key = bus.key_value(PROBE_BUCKET).next("doctor", 0).await.unwrap();
        assert_eq!(key.unwrap().value, None, "the key is deleted");
    }
}
