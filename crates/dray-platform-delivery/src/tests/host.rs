//! The service in a host, with its configuration, called over the bus.

use std::time::Duration;

use dray_bus::{Bus, Meta};
use dray_proto::v1;
use dray_service::{Host, Settings};
use dray_store::embedded::EmbeddedS3;
use dray_store::{ArtifactLabel, Store};
use dray_types::{Clock, Deadline, Fault, OperationId};

use super::fixture::{FakeSandbox, provisioned, tenant};
use crate::PlatformDelivery;

fn public_states(report: &v1::DeliveryReport) -> Vec<v1::FileState> {
    let files = report.files.iter();
    files.map(v1::DeliveredFile::file_state).collect()
}

struct HostedDelivery {
    bus: Bus,
    store: Store,
    clock: Clock,
    running: dray_service::RunningHost,
    _s3: EmbeddedS3,
}

impl HostedDelivery {
    async fn start(directory: &std::path::Path, keys: &[(&str, &str)]) -> Self {
        let clock = Clock::system();
        let bus = provisioned(&clock).await;
        let (s3, options) = EmbeddedS3::with_capacity(&directory.join("s3"), u64::MAX)
            .await
            .unwrap();
        let store = Store::open(&options, clock.clone()).await.unwrap();
        let mut settings = Settings::embedded(directory)
            .set("limits.free_disk_percent", "0")
            .bus(bus.clone())
            .store(store.clone());
        for (key, value) in keys {
            settings = settings.set(*key, *value);
        }
        let running = Host::new(settings)
            .with::<PlatformDelivery>()
            .start()
            .await
            .unwrap();
        running.ready().await;
        Self {
            bus,
            store,
            clock,
            running,
            _s3: s3,
        }
    }

    fn meta(&self, operation: &str) -> Meta {
        let deadline = Deadline::after(self.clock.now_ms(), Duration::from_secs(30));
        Meta::new(tenant(), deadline).with_operation(OperationId::new(operation).unwrap())
    }

    async fn outcome(&self, id: &str) -> Result<v1::DeliveryReport, Fault> {
        let ask = v1::DeliveryOutcomeRequest {
            delivery_id: id.to_owned(),
            wait_ms: 20_000,
        };
        Ok(self.bus.call(&self.meta("outcome"), &ask).await?)
    }
}

#[tokio::test]
async fn a_configured_service_copies_for_the_command_line() {
    let directory = tempfile::tempdir().unwrap();
    let target_directory = directory.path().join("here");
    std::fs::create_dir(&target_directory).unwrap();
    let hosted = HostedDelivery::start(
        directory.path(),
        &[
            ("platform-delivery.cli", "true"),
            ("platform-delivery.allow_targets", "true"),
        ],
    )
    .await;
    let _sandbox = FakeSandbox::start(&hosted.bus).await;
    let label = ArtifactLabel::new("text/plain", "a.txt");
    let claim = hosted
        .store
        .put(&tenant(), &OperationId::mint(), "hello".into(), label)
        .await
        .unwrap();
    let request = v1::SendFileRequested {
        claims: vec![claim.into()],
        target: Some(v1::ChatTarget {
            platform: "cli".to_owned(),
            chat: target_directory.to_string_lossy().into_owned(),
            ..v1::ChatTarget::default()
        }),
        ..v1::SendFileRequested::default()
    };
    let accepted = hosted.bus.call(&hosted.meta("d1"), &request).await.unwrap();
    assert_eq!(accepted.delivery_id, "d1");
    let report = hosted.outcome("d1").await.unwrap();
    assert!(report.finished && report.success, "{report:?}");
    assert_eq!(public_states(&report), [v1::FileState::Copied]);
    assert_eq!(
        std::fs::read(target_directory.join("a.txt")).unwrap(),
        b"hello"
    );
    let list = v1::ListReceiptsRequest::default();
    let receipts = hosted.bus.call(&hosted.meta("list"), &list).await.unwrap();
    assert_eq!(receipts.reports.len(), 1);
    hosted.running.stop().await;
}

#[tokio::test]
async fn a_refused_delivery_has_an_outcome_and_an_unknown_one_has_none() {
    let directory = tempfile::tempdir().unwrap();
    let hosted = HostedDelivery::start(directory.path(), &[]).await;
    let _sandbox = FakeSandbox::start(&hosted.bus).await;
    let request = v1::SendFileRequested {
        session: "nobody".to_owned(),
        paths: vec![b"/w/a".to_vec()],
        ..v1::SendFileRequested::default()
    };
    hosted.bus.call(&hosted.meta("d1"), &request).await.unwrap();
    let report = hosted.outcome("d1").await.unwrap();
    assert!(report.finished && !report.success);
    assert_eq!(public_states(&report), [v1::FileState::Rejected]);
    let ask = v1::DeliveryOutcomeRequest {
        delivery_id: "none".to_owned(),
        wait_ms: 0,
    };
    let nothing = hosted.bus.call(&hosted.meta("q"), &ask).await;
    assert!(nothing.is_err());
    let too_many = v1::SendFileRequested {
        session: "s".to_owned(),
        paths: vec![b"/w/a".to_vec(); 51],
        ..v1::SendFileRequested::default()
    };
    assert!(
        hosted
            .bus
            .call(&hosted.meta("d2"), &too_many)
            .await
            .is_err()
    );
    hosted.running.stop().await;
}
