//! Compares the clock of this machine with that of the NATS server.

use std::time::Duration;

use bytes::Bytes;
use dray_bus::Bus;
use dray_bus::error::TransportError;
use dray_bus::{KeyError, KeyValue};
use dray_service::host::ErrorChain;
use dray_types::Clock;

use super::finding::Finding;

/// The subject of the findings.
const CLOCK_SUBJECT: &str = "clock of the bus";
/// A bucket whose entries are found by exact keys alone and expire, so a further key affects no service.
const PROBE_BUCKET: &str = "dray_conversions";
/// Largest difference of the clocks with which services are ready (messaging-reliability 7.1).
const MAX_SKEW_MS: u64 = 2_000;

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
            "Keep both clocks with NTP, for example `timedatectl set-ntp true`.",
        );
    }
    Finding::good(CLOCK_SUBJECT, "it agrees with the clock of this machine")
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
