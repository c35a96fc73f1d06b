//! the conformance suite of all backends, over both versions of the protocol.

use dray_sandbox_conformance::run_all;

use super::fixture::PodFixture;

/// A user that owns nothing.
const NOBODY_UID: u32 = 65_534;

async fn fixture() -> PodFixture {
    if is_root() {
        PodFixture::of_user(NOBODY_UID).await
    } else {
        PodFixture::new().await
    }
}

/// Whether the tests may run commands as another user.
fn is_root() -> bool {
    use std::os::unix::fs::MetadataExt as _;
    std::fs::metadata("/proc/self").unwrap().uid() == 0
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn r_17_files_over_v5_pass_the_suite() {
    let fixture = fixture().await;
    let report = run_all(&fixture).await.unwrap();
    assert_eq!(report.skipped, [] as [&str; 0]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn r_17_files_over_v4_pass_the_suite() {
    let fixture = fixture().await;
    fixture.server.speak(&["v4.channel.k8s.io"]);
    let report = run_all(&fixture).await.unwrap();
    assert_eq!(report.skipped, [] as [&str; 0]);
}
