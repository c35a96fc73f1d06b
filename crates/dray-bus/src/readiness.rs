//! The checks of the bus that decide about readiness (messaging-reliability 16).

use crate::bus_core::Bus;
use crate::error::ProbeError;
use crate::topology::LEDGER_STREAM;

/// Smallest `max_payload` of a server that is usable (E-3).
const MIN_PAYLOAD: usize = 256 * 1024;
/// Largest difference between the local clock and the server's (7.1).
const MAX_SKEW_MS: i64 = 2_000;

/// The reason why this instance is not ready, if any.
pub(crate) async fn probe_connection(bus: &Bus) -> Result<(), ProbeError> {
    let inner = &bus.inner;
    // A violation lasts until the restart: identity and permissions do not match, and waiting repairs neither (16).
    if let Some(violation) = inner.health.violation() {
        return Err(violation);
    }
    let limit = inner.backend.max_payload();
    if limit < MIN_PAYLOAD {
        return Err(ProbeError::PayloadLimit { limit });
    }
    let milliseconds = inner.health.skew_ms();
    if milliseconds.abs() > MAX_SKEW_MS {
        return Err(ProbeError::ClockSkew { milliseconds });
    }
    inner
        .backend
        .stream(LEDGER_STREAM)
        .await
        .map_err(ProbeError::Transport)?
        .map(|_| ())
        .ok_or_else(|| ProbeError::NotProvisioned(LEDGER_STREAM.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_bus_without_streams_is_not_one_that_does_not_respond() {
        let clock = dray_types::Clock::system();
        let bus = Bus::in_process(clock, &crate::conformance::noop_meter());
        let error = bus.round_trip().await.unwrap_err();
        assert!(matches!(error, ProbeError::NotProvisioned(_)), "{error:?}");
        assert!(!error.to_string().contains("does not respond"), "{error}");
    }

    #[tokio::test]
    async fn a_clock_that_is_off_by_more_than_two_seconds_makes_the_service_unready() {
        let clock = dray_types::Clock::system();
        let bus = Bus::in_process(clock, &crate::conformance::noop_meter());
        bus.apply_topology(&crate::conformance::small_topology(|_| {}))
            .await
            .unwrap();
        for (server_ms, local_ms, ready) in [
            (10_000, 12_000, true),
            (10_000, 12_001, false),
            (12_001, 10_000, false),
            (10_000, 10_000, true),
        ] {
            bus.inner.health.record_skew(server_ms, local_ms);
            assert_eq!(
                bus.round_trip().await.is_ok(),
                ready,
                "{server_ms} {local_ms}"
            );
        }
    }
}
