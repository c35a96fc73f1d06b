//! Tests of the client of this crate with an independent store (moto), and of the embedded endpoint with an independent
//! client (boto3).

#![expect(clippy::unwrap_used, reason = "all of it is a test")]

use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use bytes::Bytes;
use dray_store::embedded::EmbeddedS3;
use dray_store::{ArtifactLabel, ExpectedUpload, PART_BYTES, Store, StoreOptions};
use dray_testkit::python::interpreter;
use dray_types::{ByteSize, Claim, Clock, Deadline, OperationId, Secret, Sha256Digest, TenantId};

fn script(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/compatibility")
        .join(name)
}

/// A store in another process, until it is dropped.
struct MotoServer {
    process: Child,
    options: StoreOptions,
}

impl MotoServer {
    fn start() -> Self {
        let mut process = Command::new(interpreter("moto"))
            .arg(script("moto_server.py"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(process.stdout.take().unwrap())
            .read_line(&mut line)
            .unwrap();
        let options = StoreOptions {
            endpoint: format!("http://127.0.0.1:{}", line.trim()),
            access_key: Secret::new("test"),
            secret_key: Secret::new("test"),
            create_bucket: true,
            ..StoreOptions::default()
        };
        Self { process, options }
    }
}

impl Drop for MotoServer {
    fn drop(&mut self) {
        // The server ends when its input ends; it is killed if it does not.
        drop(self.process.stdin.take());
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

async fn read(store: &Store, claim: &Claim) -> Bytes {
    let deadline = Deadline::after(Clock::system().now_ms(), Duration::from_secs(30));
    let reader = store
        .read(&claim.artifact.tenant, claim, deadline)
        .await
        .unwrap();
    reader.read_all(ByteSize::mib(64)).await.unwrap()
}

#[tokio::test]
async fn another_object_store_passes_the_same_cases() {
    let moto = MotoServer::start();
    let clock = Clock::system();
    let store = Store::open(&moto.options, clock.clone()).await.unwrap();
    store.probe().await.unwrap();
    let tenant = TenantId::new("acme").unwrap();
    let pattern: Vec<u8> = (0..2 * PART_BYTES + 100)
        .map(|index| (index % 251).to_le_bytes()[0])
        .collect();
    let pattern = Bytes::from(pattern);
    for size in [0, 1000, PART_BYTES, PART_BYTES + 1, 2 * PART_BYTES + 100] {
        let bytes = pattern.slice(..size);
        for _ in 0..2 {
            let mut writer = store.writer(&tenant, &OperationId::mint(), 1);
            writer.write(bytes.clone()).await.unwrap();
            let claim = writer.finish(ArtifactLabel::default()).await.unwrap();
            assert_eq!(claim.artifact.sha256, Sha256Digest::of(&bytes));
            assert!(read(&store, &claim).await == bytes, "{size}");
        }
        let stored_size = store.find(&tenant, Sha256Digest::of(&bytes)).await.unwrap();
        assert_eq!(stored_size, Some(size as u64));
    }

    let ticket = store
        .presign_put(
            &tenant,
            &OperationId::mint(),
            1,
            ExpectedUpload {
                size: 5,
                media_type: "text/plain".to_owned(),
                sha256: None,
            },
            Duration::from_mins(10),
        )
        .await
        .unwrap();
    assert!(ticket.url.expose().contains("X-Amz-Signature="));
    let deadline = Deadline::after(clock.now_ms(), Duration::from_secs(30));
    let unconfirmed = store
        .confirm_upload(&ticket, ArtifactLabel::default(), deadline)
        .await;
    assert!(matches!(
        unconfirmed,
        Err(dray_store::ConfirmError::NotUploaded)
    ));

    let mut abandoned = store.writer(&tenant, &OperationId::mint(), 1);
    abandoned.write(pattern.clone()).await.unwrap();
    abandoned.abort().await;
    let later = Clock::manual(clock.now_ms() + Duration::from_hours(16 * 24).as_secs() * 1000);
    let store = Store::open(&moto.options, later).await.unwrap();
    let report = store.sweep().await.unwrap();
    assert_eq!((report.finished, report.staged, report.uploads), (5, 0, 0));
}

#[tokio::test]
async fn another_client_can_use_the_embedded_store() {
    let directory = tempfile::tempdir().unwrap();
    let (endpoint, options) = EmbeddedS3::start(directory.path()).await.unwrap();
    let mut client = Command::new(interpreter("boto3"));
    client.arg(script("boto_client.py")).args([
        &options.endpoint,
        options.access_key.expose(),
        options.secret_key.expose(),
        &options.bucket,
    ]);
    let output = tokio::task::spawn_blocking(move || client.output())
        .await
        .unwrap()
        .unwrap();
    let errors = String::from_utf8_lossy(&output.stderr);
    assert_eq!(String::from_utf8_lossy(&output.stdout), "ok\n", "{errors}");
    endpoint.stop().await;
}
