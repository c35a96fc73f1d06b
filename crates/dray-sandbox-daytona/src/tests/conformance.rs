//! The suite of all backends (sandbox-transfer R-17).

use dray_sandbox_hosted::provider_suite::{LIVE_OUTPUT_CASES, run_conformance};

use super::DaytonaFixture;

#[tokio::test]
async fn r_17_a_sandbox_of_the_provider_passes_the_conformance_suite() {
    let report = run_conformance(DaytonaFixture::new().await).await.unwrap();
    // The first is skipped when the tests run as root, which may touch everything.
    let expected_skips = [&["access_without_permission_is_refused"], LIVE_OUTPUT_CASES].concat();
    assert!(
        report
            .skipped
            .iter()
            .all(|name| expected_skips.contains(name)),
        "{:?}",
        report.skipped
    );
}
