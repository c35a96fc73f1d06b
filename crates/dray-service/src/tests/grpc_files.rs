//! What operators see of the files of the gRPC endpoint.

use dray_testkit::eventually;

use super::grpc_auth::{ACME_TOKEN, SecuredFiles};
use super::service::TestHost;

const STALE_METRIC: &str = "dray_grpc_files_stale";
const EXPIRY_METRIC: &str = "dray_certificate_expiry_timestamp_seconds";

async fn wait_for_metric(fixture: &TestHost, name: &str, expected: f64) {
    eventually(name, async || {
        let value = fixture.counter(name, "")?;
        ((value - expected).abs() < f64::EPSILON).then_some(())
    })
    .await;
}

#[tokio::test]
async fn files_that_cannot_be_used_are_shown_until_they_are_corrected() {
    let files = SecuredFiles::new();
    let fixture = files.start(&[]).await;
    wait_for_metric(&fixture, STALE_METRIC, 0.0).await;
    files.replace("identities.toml", "garbage");
    wait_for_metric(&fixture, STALE_METRIC, 1.0).await;
    files.write_identities(ACME_TOKEN, "[\"*\"]");
    wait_for_metric(&fixture, STALE_METRIC, 0.0).await;
}

#[tokio::test]
async fn the_end_of_the_certificate_in_force_is_shown() {
    let files = SecuredFiles::new();
    let fixture = files.start(&[]).await;
    wait_for_metric(&fixture, STALE_METRIC, 0.0).await;
    let expiry = fixture.counter(EXPIRY_METRIC, "use=\"grpc\"").unwrap();
    assert!(expiry > 2e9, "{expiry}");
    // It is served: only clients refuse it.
    files.write_server(&files.authority.issue(&["localhost"], true).unwrap());
    wait_for_metric(&fixture, EXPIRY_METRIC, 978_307_200.0).await;
    wait_for_metric(&fixture, STALE_METRIC, 0.0).await;
}
