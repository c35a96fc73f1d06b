//! Checks of the running system: the bus, its streams, the store, and which services respond.

use std::time::{Duration, Instant};

use dray_bus::error::{CallError, ProbeError, TransportError};
use dray_bus::topology::{AUDIT_STREAM, FullStreamPolicy};
use dray_bus::{Bus, Meta, StreamUsage, Topology, TopologyInspection};
use dray_proto::{Call, v1};
use dray_service::config::LoadedConfig;
use dray_service::host::ErrorChain;
use dray_service::settings::{BusMode, BusSection, StoreMode, StoreSection};
use dray_store::Store;
use dray_types::{Clock, Deadline, TenantId};
use futures_util::FutureExt as _;

use super::finding::Finding;
use super::{accounts, clock, policy_bucket, policy_replicas, sweeper};
use crate::bus_failure::INBOX_ADVICE;
use crate::cli::DoctorArgs;
use crate::context::{bus_advice, config_section};
use crate::outcome::CommandFailure;

/// A session that does not exist: the calls below must not find it.
const UNUSED_SESSION: &str = "dray-doctor";

/// Advice for a server that is reached while JetStream does not respond.
const JETSTREAM_ADVICE: &str =
    "Start the server with JetStream (`nats-server -js`), and check its log and its disk.";

/// Checks the bus and what uses it. Findings about one subject are adjacent.
pub(super) async fn check_bus(
    loaded: &LoadedConfig,
    tenant: &TenantId,
    doctor: &DoctorArgs,
) -> Result<Vec<Finding>, CommandFailure> {
    let limit = Duration::from_secs(doctor.timeout);
    let section: BusSection = config_section(loaded, "bus")?;
    let egress: dray_egress_fetcher::Config = config_section(loaded, "egress-fetcher")?;
    if section.mode == BusMode::Embedded {
        return Ok(without_a_server(&egress, doctor));
    }
    let clock = Clock::system();
    let meter = dray_service::telemetry::no_meter();
    let connecting = Bus::connect(&section.nats, clock.clone(), &meter);
    let bus = match tokio::time::timeout(limit, connecting).await {
        Ok(Ok(bus)) => bus,
        Ok(Err(error)) => {
            let advice = bus_advice(&error);
            return Ok(vec![Finding::problem(
                "bus",
                ErrorChain(&error).to_string(),
                advice,
            )]);
        }
        Err(_) => {
            return Ok(vec![Finding::problem(
                "bus",
                format!(
                    "No NATS server accepted a connection within {} s.",
                    limit.as_secs()
                ),
                "Check `bus.nats.servers` (or --nats) and that the server runs.",
            )]);
        }
    };
    let connection = check_connection(&bus, limit).await;
    if [JETSTREAM_ADVICE, INBOX_ADVICE].contains(&connection.advice.as_str()) {
        // Without JetStream no stream exists and no service starts; their findings would hide the cause.
        let text = "they need the replies of JetStream";
        bus.drain().await;
        return Ok(vec![
            connection,
            Finding::skipped("streams and services", text),
        ]);
    }
    let mut findings = vec![connection];
    findings.push(check_streams(&bus, limit).await);
    let meta = Meta::new(tenant.clone(), Deadline::after(clock.now_ms(), limit));
    findings.extend(check_services(&bus, &meta).await);
    findings.push(sweeper::check_sweeper(&bus, limit).await);
    if egress.policy_bucket {
        findings.push(policy_bucket::check_policy_bucket(&bus, tenant, limit).await);
    } else if egress.policy_path.is_some() {
        findings.push(policy_replicas::check_replicas(&bus, tenant, limit).await);
    }
    // The clocks are compared last, because an identity without the permission marks the connection as refused.
    findings.push(clock::compare_clocks(&bus, limit).await);
    if doctor.accounts {
        findings.extend(accounts::check_accounts(&bus, tenant, limit).await);
    }
    bus.drain().await;
    Ok(findings)
}

/// The findings about a bus that each process has for itself.
fn without_a_server(egress: &dray_egress_fetcher::Config, doctor: &DoctorArgs) -> Vec<Finding> {
    let text = "in this process (`bus.mode`); name a server with --nats to check it";
    let mut findings = vec![Finding::skipped("bus", text)];
    if egress.policy_bucket {
        findings.push(policy_bucket::without_a_server());
    }
    if doctor.accounts {
        findings.push(accounts::without_a_system());
    }
    findings
}

async fn check_connection(bus: &Bus, limit: Duration) -> Finding {
    let start = Instant::now();
    let probe = tokio::time::timeout(limit, bus.round_trip()).await;
    if let Some(inbox) = bus.refused_inbox().now_or_never() {
        let text =
            format!("no reply can come: the server refuses the inbox `{inbox}` to this user");
        return Finding::problem("bus", text, INBOX_ADVICE);
    }
    match probe {
        Ok(Ok(())) => Finding::good(
            "bus",
            format!(
                "JetStream responds after {} ms",
                start.elapsed().as_millis()
            ),
        ),
        Ok(Err(error)) => judge_probe(&error),
        Err(_) => Finding::problem(
            "bus",
            "The server is connected and JetStream does not respond.",
            JETSTREAM_ADVICE,
        ),
    }
}

fn judge_probe(error: &ProbeError) -> Finding {
    let text = ErrorChain(error).to_string();
    match error {
        // Only services and operators read about streams, so this is not reported as a problem of the bus.
        ProbeError::Denied { .. } | ProbeError::Transport(TransportError::Denied(_)) => {
            Finding::good("bus", "connected; this identity may not read streams")
        }
        ProbeError::NotProvisioned(_) => Finding::problem(
            "bus",
            text,
            "Run `dray topology apply` with an identity that may manage streams.",
        ),
        ProbeError::PayloadLimit { .. } => Finding::problem(
            "bus",
            text,
            "Set `max_payload` of the server to 1MB or more.",
        ),
        ProbeError::ClockSkew { .. } => Finding::problem(
            "bus",
            text,
            "Synchronise the clocks of this machine and of the server with NTP.",
        ),
        ProbeError::Transport(_) => Finding::problem("bus", text, JETSTREAM_ADVICE),
    }
}

async fn check_streams(bus: &Bus, limit: Duration) -> Finding {
    let inspected = tokio::time::timeout(limit, bus.inspect_topology(&Topology::default())).await;
    let advice = "Run `dray topology apply` with an identity that may manage streams. It keeps copies and sizes.";
    match inspected {
        Ok(Ok(inspection)) => judge_streams(&inspection, advice),
        Ok(Err(error)) if is_denied(&error) => {
            Finding::skipped("streams", "this identity may not read them; `operator` may")
        }
        Ok(Err(error)) => Finding::problem("streams", ErrorChain(&error).to_string(), advice),
        Err(_) => Finding::problem(
            "streams",
            format!(
                "The server did not describe them within {} s.",
                limit.as_secs()
            ),
            advice,
        ),
    }
}

/// Part of its limit from which a stream is a warning.
const NEARLY_FULL_RATIO: f64 = 0.8;
/// Part of its limit from which a stream is a problem: it refuses messages of some size, or will soon.
const FULL_RATIO: f64 = 0.95;

fn judge_streams(inspection: &TopologyInspection, advice: &str) -> Finding {
    let fullest = inspection
        .usage
        .iter()
        .filter(|usage| usage.when_full == FullStreamPolicy::New)
        .max_by(|one, other| one.ratio().total_cmp(&other.ratio()));
    if let Some(usage) = fullest.filter(|usage| usage.ratio() >= NEARLY_FULL_RATIO) {
        let StreamUsage {
            stream,
            bytes,
            max_bytes,
            ..
        } = usage;
        let text = format!(
            "{stream} has {bytes} bytes of {max_bytes}, and refuses messages when it is full"
        );
        let advice =
            "Give the streams more space: `dray topology apply --store-size SIZE` (docs/scale.md).";
        return if usage.ratio() >= FULL_RATIO {
            Finding::problem("streams", text, advice)
        } else {
            Finding::warning("streams", text, advice)
        };
    }
    if inspection.mismatches.is_empty() {
        let drops_audit_events =
            |usage: &&StreamUsage| usage.stream == AUDIT_STREAM && usage.ratio() >= FULL_RATIO;
        if let Some(usage) = inspection.usage.iter().find(drops_audit_events) {
            return Finding::warning(
                "streams",
                format!(
                    "{AUDIT_STREAM} has {} bytes of {}, and drops its oldest events when it is full",
                    usage.bytes, usage.max_bytes
                ),
                "Give the streams more space: `dray topology apply --store-size SIZE` (docs/runbooks.md#drayauditdropped).",
            );
        }
        return Finding::good(
            "streams",
            "all streams and consumers have the required configuration",
        );
    }
    let shown: Vec<String> = inspection
        .mismatches
        .iter()
        .map(ToString::to_string)
        .collect();
    Finding::warning("streams", shown.join("; "), advice)
}

/// Whether the error has a missing permission as a cause, at any depth.
pub(super) fn is_denied(error: &(dyn std::error::Error + 'static)) -> bool {
    let mut next = Some(error);
    while let Some(error) = next {
        if matches!(
            error.downcast_ref::<TransportError>(),
            Some(TransportError::Denied(_))
        ) {
            return true;
        }
        next = error.source();
    }
    false
}

/// Sends each service a request that reads no data, makes no connection and writes nothing.
async fn check_services(bus: &Bus, meta: &Meta) -> Vec<Finding> {
    let explain = v1::ExplainRequest::sample();
    let session = v1::ShowSessionRequest {
        session: UNUSED_SESSION.to_owned(),
    };
    let receipts = v1::ListReceiptsRequest {
        session: UNUSED_SESSION.to_owned(),
        limit: 1,
        ..v1::ListReceiptsRequest::default()
    };
    let arguments = v1::ResolveRequest {
        arguments: Some(v1::Content {
            body: Some(v1::content::Body::Inline(b"{}".as_slice().into())),
        }),
        ..v1::ResolveRequest::default()
    };
    // It is refused because it names no content.
    let holders = v1::ListFileHoldersRequest::default();
    let (fetcher, transfer, delivery, resolver, orchestrator) = tokio::join!(
        check_service(bus, meta, "egress-fetcher", &explain),
        check_service(bus, meta, "sandbox-transfer", &session),
        check_service(bus, meta, "platform-delivery", &receipts),
        check_service(bus, meta, "file-resolver", &arguments),
        check_service(bus, meta, "orchestrator", &holders),
    );
    vec![fetcher, transfer, delivery, resolver, orchestrator]
}

async fn check_service<C: Call>(
    bus: &Bus,
    meta: &Meta,
    service: &'static str,
    request: &C,
) -> Finding {
    match bus.call_once(meta, request).await {
        // A service that responds, even with a fault, is available.
        Ok(_) | Err(CallError::Fault(_)) => Finding::good(service, "responds"),
        Err(CallError::Transport(TransportError::Denied(_))) => {
            Finding::skipped(service, "this identity may not call it")
        }
        Err(error @ CallError::NoResponder(_)) => Finding::problem(
            service,
            error.to_string(),
            format!("Start it: `dray up --only {service}`."),
        ),
        Err(error) => Finding::problem(
            service,
            error.to_string(),
            format!("Read its log, and run `dray healthcheck` beside it ({service})."),
        ),
    }
}

/// The store: opening it writes, reads and removes probe objects. Then its clock.
pub(super) async fn check_store(
    loaded: &LoadedConfig,
    limit: Duration,
) -> Result<Vec<Finding>, CommandFailure> {
    let section: StoreSection = config_section(loaded, "store")?;
    if section.mode == StoreMode::Embedded {
        let text = "embedded (`store.mode`), in the state directory";
        return Ok(vec![Finding::good("store", text)]);
    }
    let (opened, clock) = tokio::join!(
        tokio::time::timeout(limit, Store::open(&section.s3, Clock::system())),
        clock::compare_store_clock(&section.s3, limit),
    );
    let store = match opened {
        Ok(Ok(_)) => Finding::good(
            "store",
            "writes once, reads, verifies checksums and removes as needed",
        ),
        Ok(Err(error)) => Finding::problem(
            "store",
            ErrorChain(&error).to_string(),
            "Check `store.s3` (or --s3), the bucket, the credentials and the clock.",
        ),
        Err(_) => Finding::problem(
            "store",
            format!("The store did not respond within {} s.", limit.as_secs()),
            "Check `store.s3.endpoint` (or --s3) and that the server runs.",
        ),
    };
    Ok(vec![store, clock])
}

#[cfg(test)]
mod tests {
    use dray_bus::topology::EVENT_STREAM;

    use super::super::finding::FindingLevel;
    use super::*;

    #[test]
    fn a_stream_that_is_nearly_full_is_reported() {
        for (bytes, level) in [
            (0, FindingLevel::Good),
            (79, FindingLevel::Good),
            (80, FindingLevel::Warning),
            (95, FindingLevel::Problem),
        ] {
            let usage = |stream: &str, bytes| StreamUsage {
                stream: stream.to_owned(),
                bytes,
                max_bytes: 100,
                when_full: FullStreamPolicy::New,
            };
            let inspection = TopologyInspection {
                mismatches: Vec::new(),
                usage: vec![usage("DRAY_WORK", 1), usage("KV_dray_ledger", bytes)],
            };
            let finding = judge_streams(&inspection, "");
            assert_eq!(finding.level, level, "{bytes}: {finding:?}");
        }
    }
    #[test]
    fn a_stream_that_drops_audit_events_is_a_warning_and_one_of_results_is_not() {
        for (stream, level) in [
            (AUDIT_STREAM, FindingLevel::Warning),
            (EVENT_STREAM, FindingLevel::Good),
        ] {
            let usage = StreamUsage {
                stream: stream.to_owned(),
                bytes: 99,
                max_bytes: 100,
                when_full: FullStreamPolicy::Old,
            };
            let inspection = TopologyInspection {
                mismatches: Vec::new(),
                usage: vec![usage],
            };
            let finding = judge_streams(&inspection, "");
            assert_eq!(finding.level, level, "{stream}: {finding:?}");
        }
    }
}
