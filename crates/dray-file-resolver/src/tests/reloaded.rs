//! Changes of the section while the service runs.

use super::events::{call, find_rejected, find_resolved};
use super::fixture::ResolverFixture;

const FILE_ARGUMENTS: &str = r#"{"a":"file:text::files/b/a"}"#;
const TWO_REFERENCES: &str = r#"{"a":["file:url::files/b/a","file:url::files/b/a"]}"#;
const RELOADS_METRIC: &str = "dray_resolver_config_reloads_total{";
const STALE_METRIC: &str = "dray_resolver_config_stale";

async fn reloaded_fixture() -> ResolverFixture {
    let fixture = ResolverFixture::with(&[("file-resolver.reload_interval", "1s")]).await;
    fixture.core.put("b/a", "text", "text/plain");
    fixture
}

#[tokio::test]
async fn work_uses_the_credentials_that_its_tenant_has_when_it_begins() {
    let fixture = reloaded_fixture().await;
    let work = call(FILE_ARGUMENTS);
    let before = fixture.meta();
    fixture.bus.publish_work(&before, &work).await.unwrap();
    let event = find_rejected(&fixture, &before).await;
    assert_eq!(event.fault.unwrap().detail, "dial_unauthorized");
    fixture.configure("[file-resolver.tenants.acme]\napi_key = 'key'\n");
    fixture.wait_for_metric(RELOADS_METRIC, 1).await;
    let after = fixture.meta();
    fixture.bus.publish_work(&after, &work).await.unwrap();
    find_resolved(&fixture, &after).await;
}

#[tokio::test]
async fn limits_change_and_a_wrong_section_changes_nothing() {
    let fixture = reloaded_fixture().await;
    fixture.resolve(TWO_REFERENCES).await;
    fixture.configure("[file-resolver]\nmax_references = 1\ndownload_entries = 7\n");
    fixture.wait_for_metric(RELOADS_METRIC, 1).await;
    let fault = fixture.fault(TWO_REFERENCES).await;
    assert_eq!(fault.detail, "too_many_references");
    fixture.configure("[file-resolver]\nmax_references = 0\n");
    fixture.wait_for_metric(STALE_METRIC, 1).await;
    let fault = fixture.fault(TWO_REFERENCES).await;
    assert_eq!(fault.detail, "too_many_references");
    fixture.configure("");
    fixture.wait_for_metric(STALE_METRIC, 0).await;
    fixture.resolve(TWO_REFERENCES).await;
}

#[tokio::test]
async fn documents_are_read_with_changed_settings() {
    let fixture = reloaded_fixture().await;
    let request = dray_proto::v1::ReadFilesRequest::default();
    let call = async || fixture.bus.call(&fixture.meta(), &request).await;
    let detail = |result: Result<_, dray_bus::CallError>| {
        result
            .map(|_: dray_proto::v1::ReadFilesReply| ())
            .map_err(|error| dray_types::Fault::from(error).detail)
            .unwrap_err()
    };
    let before = detail(call().await);
    fixture.configure("[file-resolver.reading]\nenabled = false\n");
    fixture.wait_for_metric(RELOADS_METRIC, 1).await;
    let after = detail(call().await);
    assert_ne!(after, before);
    assert_eq!(after, "reading_disabled");
}
