//! `Resolve` while a dependency fails: the right fault, no data left behind, and other calls continue.

use std::path::PathBuf;

use dray_testkit::dial::InjectedFault;
use dray_types::FaultCode;

use super::fixture::{ResolverFixture, noise};

const LARGE_ARGUMENTS: &str = r#"{"f":"file:base64::files/b/large"}"#;
const SMALL_ARGUMENTS: &str = r#"{"f":"file:text::files/b/small"}"#;

fn with_files(fixture: ResolverFixture) -> ResolverFixture {
    fixture.core.put("b/large", noise(6 << 20), "image/x");
    fixture.core.put("b/small", "text", "text/plain");
    fixture
}

#[tokio::test]
async fn a_full_store_fails_only_the_calls_that_need_it() {
    let fixture = with_files(ResolverFixture::with_capacity(3 << 20).await);
    let fault = fixture.fault(LARGE_ARGUMENTS).await;
    assert_eq!(
        (fault.code, fault.detail.as_str()),
        (FaultCode::Unavailable, "store_full")
    );
    assert!(fault.is_retryable());
    assert_eq!(fixture.resolve(SMALL_ARGUMENTS).await.0, r#"{"f":"text"}"#);
    assert_eq!(fixture.stored().await, Vec::<PathBuf>::new());
}

#[tokio::test]
async fn an_unavailable_store_fails_only_the_calls_that_need_it() {
    let mut fixture = with_files(ResolverFixture::new().await);
    fixture.stop_store().await;
    let fault = fixture.fault(LARGE_ARGUMENTS).await;
    assert_eq!(
        (fault.code, fault.detail.as_str()),
        (FaultCode::Unavailable, "store_unreachable")
    );
    assert!(fault.is_retryable());
    assert_eq!(fixture.resolve(SMALL_ARGUMENTS).await.0, r#"{"f":"text"}"#);
}

#[tokio::test]
async fn a_stalled_file_times_out_while_other_calls_continue() {
    let fixture = ResolverFixture::with(&[("file-resolver.dial_read_timeout", "3s")]).await;
    let fixture = with_files(fixture);
    fixture
        .core
        .inject_file_fault("b/large", InjectedFault::Stalled);
    let (fault, (text, _)) = tokio::join!(
        fixture.fault(LARGE_ARGUMENTS),
        fixture.resolve(SMALL_ARGUMENTS)
    );
    assert_eq!(
        (fault.code, fault.detail.as_str()),
        (FaultCode::Timeout, "dial_timeout")
    );
    assert_eq!(text, r#"{"f":"text"}"#);
    assert_eq!(fixture.stored().await, Vec::<PathBuf>::new());
}

#[tokio::test]
async fn a_transfer_that_breaks_off_leaves_nothing_behind() {
    let fixture = with_files(ResolverFixture::new().await);
    fixture.core.put("b/large", noise(14 << 20), "image/x");
    let request = dray_proto::v1::ResolveRequest {
        options: Some(dray_proto::v1::ResolveOptions {
            size_limit_bytes: 14 << 20,
            ..Default::default()
        }),
        ..super::fixture::request(LARGE_ARGUMENTS)
    };
    fixture
        .core
        .inject_file_fault("b/large", InjectedFault::Truncated);
    let fault = fixture.ask(request).await.unwrap_err();
    assert_eq!(
        (fault.code, fault.detail.as_str()),
        (FaultCode::Unavailable, "dial_interrupted")
    );
    assert_eq!(fixture.stored().await, Vec::<PathBuf>::new());
}
