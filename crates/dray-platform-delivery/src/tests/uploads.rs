//! Uploads of browsers and services while the bus fails.

use dray_proto::v1;
use dray_testkit::nats::NatsServer;
use dray_types::{Fault, FaultCode};

use super::upgrade::world_on;

#[tokio::test]
async fn an_upload_is_not_called_unknown_while_the_bus_is_away() {
    let mut server = NatsServer::start();
    let world = world_on(&server).await;
    let request = v1::FinishUploadRequest {
        upload_id: "u1".to_owned(),
    };
    let uploads = &world.desk.inbound.uploads;
    let failed = uploads.finish_upload(&world.meta("f1"), &request).await;
    let fault = Fault::from(failed.unwrap_err());
    assert_eq!(fault.code, FaultCode::NotFound, "the bus knows no upload");

    server.stop();
    let failed = uploads.finish_upload(&world.meta("f2"), &request).await;
    let fault = Fault::from(failed.unwrap_err());
    assert_eq!(fault.code, FaultCode::Unavailable);
    assert!(fault.is_retryable());
}
