//! Uploads of browsers and services when the bus fails.

use dray_platform::DuplicateProtection;
use dray_proto::v1;
use dray_testkit::nats::NatsServer;
use dray_types::{Clock, Fault, FaultCode, Sha256Digest};

use super::fixture::DeliveryFixture;
use super::inbound::put;
use super::upgrade::fixture_on;

#[tokio::test]
async fn an_upload_without_a_session_stays_in_the_store() {
    // The store checks signatures by the machine's clock.
    let clock = Clock::system();
    let fixture = DeliveryFixture::at(clock, DuplicateProtection::Unknown, |_| ()).await;
    let uploads = &fixture.replica.inbound.uploads;
    let content = b"12345";
    // Bytes that are already stored have the digest that the upload announces.
    let stored = fixture.claim("a.txt", content).await;
    let request = v1::PrepareUploadRequest {
        name: "a.txt".to_owned(),
        size: content.len() as u64,
        sha256: Sha256Digest::of(content).as_bytes().to_vec(),
        ..v1::PrepareUploadRequest::default()
    };
    let prepared = uploads
        .prepare_upload(&fixture.meta("p1"), &request)
        .await
        .unwrap();
    let url = prepared.url.unwrap();
    let headers: serde_json::Map<_, _> = prepared
        .headers
        .into_iter()
        .map(|header| (header.name, header.value.into()))
        .collect();
    put(
        &serde_json::json!({"url": url.url, "headers": headers}),
        content,
    )
    .await;
    let request = v1::FinishUploadRequest {
        upload_id: prepared.upload_id,
    };
    for operation in ["f1", "f2"] {
        let finished = uploads
            .finish_upload(&fixture.meta(operation), &request)
            .await
            .unwrap();
        assert_eq!(finished.operation_id, "", "nothing places it");
        let artifact = finished.claim.unwrap().artifact.unwrap();
        assert_eq!(artifact.sha256, stored.artifact.sha256.as_bytes());
    }
    assert!(fixture.published("sandbox").await.is_empty());
}

#[tokio::test]
async fn an_upload_is_not_reported_as_unknown_while_the_bus_is_down() {
    let mut server = NatsServer::start();
    let fixture = fixture_on(&server).await;
    let request = v1::FinishUploadRequest {
        upload_id: "u1".to_owned(),
    };
    let uploads = &fixture.replica.inbound.uploads;
    let failed = uploads.finish_upload(&fixture.meta("f1"), &request).await;
    let fault = Fault::from(failed.unwrap_err());
    assert_eq!(fault.code, FaultCode::NotFound, "the bus knows no upload");

    server.stop();
    let failed = uploads.finish_upload(&fixture.meta("f2"), &request).await;
    let fault = Fault::from(failed.unwrap_err());
    assert_eq!(fault.code, FaultCode::Unavailable);
    assert!(fault.is_retryable());
}
