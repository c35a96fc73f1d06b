//! Providers that ask to wait.

use std::sync::Arc;

use dray_sandbox_conformance::fake::{Call, Fake, Fault as FakeFault};
use dray_service::Request;
use dray_types::{FaultCode, RetryAdvice};

use super::ending::service_with;
use super::*;

#[tokio::test]
async fn a_delay_that_is_longer_than_the_call_is_reported() {
    let fixture = TransferFixture::new().await;
    let fake = Fake::new();
    fake.file("/work/a", "abc");
    let delay = Duration::from_mins(5);
    fake.script(Call::Read, [FakeFault::Later(delay)]);
    let service = service_with(&fixture, fake.clone());
    let body = v1::GetSandboxFileRequest {
        sandbox: Some(address("fake:box")),
        path: b"/work/a".to_vec(),
        ..v1::GetSandboxFileRequest::default()
    };
    let get = Arc::clone(&service).get(Request::new(fixture.meta("acme"), body));
    let replied = tokio::time::timeout(Duration::from_mins(1), Box::pin(get)).await;
    let fault = replied
        .expect("the call waits for the provider")
        .unwrap_err();
    assert_eq!(fault.code, FaultCode::RateLimited);
    assert_eq!(fault.retry, RetryAdvice::After(delay));
    assert_eq!(fake.count(Call::Read), 1);
    fixture.end().await;
}
