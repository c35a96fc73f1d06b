//! The long runs of the system tests, for `cargo xtask soak`; `cargo xtask soak -- deliveries` runs those of deliveries
//! alone. `--rounds` sets how often each service is killed. `--seed` repeats the choices of a run that failed; each run
//! prints its seed. `-- proxy` kills the forward proxy while tunnels are open. `-- clients` publishes 2,050 tool calls
//! with the Python and the TypeScript client. `-- lighthouse` runs Lighthouse on the pages of the console, with their
//! performance. `-- skeletons` builds what `cargo xtask new` writes. `-- tickets` uploads the largest file of a ticket,
//! or `DRAY_SOAK_TICKET_BYTES` bytes, through a proxy that cuts connections. The disk needs space for the file twice:
//! in segments and as the artifact.

#[cfg(test)]
#[path = "egress/kills.rs"]
mod egress_kills;
#[cfg(test)]
#[expect(dead_code, reason = "the walk through the pages uses more of it")]
#[path = "console/fixture.rs"]
mod fixture;
#[cfg(test)]
#[path = "egress/http2_client.rs"]
mod http2_client;
#[cfg(test)]
#[path = "tickets/interrupted_uploads.rs"]
mod interrupted_uploads;
#[cfg(test)]
#[path = "transfer/kills.rs"]
mod kills;
#[cfg(test)]
#[path = "console/lighthouse.rs"]
mod lighthouse;
#[cfg(test)]
#[path = "processes/machine.rs"]
#[expect(dead_code, reason = "single faults use more of the machine")]
mod machine;
#[cfg(test)]
#[path = "transfer/platforms.rs"]
mod platforms;
#[cfg(test)]
#[path = "clients/publishers.rs"]
mod publishers;
#[cfg(test)]
mod skeletons;
#[cfg(test)]
#[expect(dead_code, reason = "other scenarios use more of it")]
mod support;
#[cfg(test)]
#[path = "egress/target.rs"]
mod target;
#[cfg(test)]
#[expect(dead_code, reason = "single faults use more of the fixture")]
#[path = "transfer/transfer_fixture.rs"]
mod transfer_fixture;
#[cfg(test)]
#[path = "egress/tunnel_client.rs"]
mod tunnel_client;

/// How often each service is killed by default.
#[cfg(test)]
const DEFAULT_ROUNDS: u64 = 200;

/// The services that run while clients publish.
#[cfg(test)]
const ALL_SERVICES: &[&str] = &[
    "file-resolver",
    "egress-fetcher",
    "sandbox-transfer",
    "platform-delivery",
    "sweeper",
];

/// Number of tool calls that each client publishes.
#[cfg(test)]
const CLIENT_CALLS: usize = 1_025;
/// Number of random kills of replicas meanwhile.
#[cfg(test)]
const CLIENT_KILLS: usize = 40;

/// Most memory of one transfer above that of the idle process, in bytes, the embedded store included.
#[cfg(test)]
const MAX_TRANSFER_MEMORY: u64 = 8 << 20;

/// Most bytes of one ticket.
#[cfg(test)]
const MAX_TICKET_BYTES: u64 = 10 << 30;

#[tokio::test(flavor = "multi_thread")]
async fn states_of_deliveries_are_true_while_each_service_is_killed_hundreds_of_times() {
    let rounds = number("DRAY_SOAK_ROUNDS").unwrap_or(DEFAULT_ROUNDS);
    kills::kill_services(kills::KillRun {
        rounds: usize::try_from(rounds).unwrap(),
        seed: number("DRAY_SOAK_SEED").unwrap_or_else(rand::random),
        expires_leases: false,
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn no_tunnel_is_open_without_an_audit_line_while_the_proxy_is_killed_hundreds_of_times() {
    kill_proxy(egress_kills::ClientProtocol::Http1).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn no_stream_is_open_without_an_audit_line_while_the_proxy_is_killed_hundreds_of_times() {
    kill_proxy(egress_kills::ClientProtocol::Http2).await;
}

#[cfg(test)]
async fn kill_proxy(protocol: egress_kills::ClientProtocol) {
    let rounds = number("DRAY_SOAK_ROUNDS").unwrap_or(DEFAULT_ROUNDS);
    let run = egress_kills::ProxyKillRun {
        protocol,
        kills: usize::try_from(rounds).unwrap(),
        seed: number("DRAY_SOAK_SEED").unwrap_or_else(rand::random),
    };
    Box::pin(egress_kills::kill_proxy(run)).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn clients_lose_no_tool_call_of_two_thousand_while_replicas_are_killed() {
    publishers::publish_under_kills(publishers::PublisherRun {
        services: ALL_SERVICES,
        kills: CLIENT_KILLS,
        calls: CLIENT_CALLS / (CLIENT_KILLS + 1),
        seed: number("DRAY_SOAK_SEED").unwrap_or_else(rand::random),
        expires_leases: false,
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn lighthouse_scores_every_page_of_the_console_at_least_95() {
    let categories = ["performance", "accessibility", "best-practices", "seo"];
    lighthouse::judge_pages(usize::MAX, &categories).await;
}

#[test]
fn tickets_transfer_gigabytes_through_a_proxy_that_cuts_connections() {
    let upload = interrupted_uploads::CutUpload {
        size: number("DRAY_SOAK_TICKET_BYTES").unwrap_or(MAX_TICKET_BYTES),
        cut_bytes: 100_000_000,
        cut_time: std::time::Duration::from_secs(30),
    };
    interrupted_uploads::upload_through_cuts(&upload, MAX_TRANSFER_MEMORY);
}

/// A number that the runner passed.
#[cfg(test)]
fn number(name: &str) -> Option<u64> {
    #[expect(
        clippy::disallowed_methods,
        reason = "the runner passes the length of a run in this variable"
    )]
    let value = std::env::var(name).ok()?;
    Some(value.parse().expect("a number"))
}
