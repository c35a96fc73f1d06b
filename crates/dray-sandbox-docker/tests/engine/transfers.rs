//! Tests of the transfer engine with a container, and of its receipts.

use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use async_trait::async_trait;
use dray_sandbox::{Backend as _, Body, Error, ErrorKind, Integrity, Transport};
use dray_sandbox_docker::{Config, DockerBackend};
use dray_testkit::docker::ContainerOptions;
use dray_transfer_engine::policy::Policy;
use dray_transfer_engine::receipt::Receipt;
use dray_transfer_engine::{
    BytesSource, Collision, Engine, EngineOptions, GetOptions, GetResult, Progress, PutOptions,
    PutResult, Source, TransferFailure, VecSink,
};
use dray_types::{Clock, Period, Sha256Digest};
use tokio_util::sync::CancellationToken;

use super::fixture::{ContainerFixture, address, endpoint, path};

pub(crate) async fn put(
    engine: &Engine,
    directory: &str,
    bytes: &[u8],
) -> Result<PutResult, TransferFailure> {
    let policy = Policy::beneath([path(directory)]);
    let options = PutOptions {
        policy: &policy,
        collision: Collision::Rename,
        mode: 0o644,
        operation: "test",
        epoch: 1,
    };
    let source = BytesSource::new(bytes.to_vec());
    let cancel = CancellationToken::new();
    engine
        .put(
            &path(directory),
            b"report.bin",
            &source,
            &options,
            &(),
            &cancel,
        )
        .await
}

pub(crate) async fn get(
    engine: &Engine,
    at: &str,
) -> Result<(GetResult, Vec<u8>), TransferFailure> {
    let policy = Policy::beneath([path(at).parent()]);
    let options = GetOptions {
        policy: &policy,
        max_bytes: 100 << 20,
    };
    let cancel = CancellationToken::new();
    let mut sink = VecSink::default();
    let result = engine
        .get(&path(at), &options, &mut sink, &(), &cancel)
        .await?;
    Ok((result, sink.into_bytes().unwrap()))
}

/// A source that changes the container before its bytes are read.
struct SwappingSource<'a> {
    bytes: BytesSource,
    swap: std::sync::Mutex<Option<Box<dyn FnOnce() + Send + 'a>>>,
}

#[async_trait]
impl Source for SwappingSource<'_> {
    fn size(&self) -> u64 {
        self.bytes.size()
    }

    async fn sha256(&self) -> Result<Sha256Digest, Error> {
        Ok(self.bytes.sha256())
    }

    async fn open(&self, offset: u64) -> Result<Body, Error> {
        let swap = self.swap.lock().unwrap().take();
        if let Some(swap) = swap {
            swap();
        }
        self.bytes.open(offset).await
    }
}

pub(crate) fn engine(fixture: &ContainerFixture) -> Engine {
    Engine::new(Arc::clone(&fixture.sandbox), EngineOptions::default())
}

/// Puts two files of one name and gets the first of them; returns the receipts of the first put and of the get.
pub(crate) async fn round_trip(fixture: &ContainerFixture, directory: &str) -> (Receipt, Receipt) {
    let engine = engine(fixture);
    let bytes: Vec<u8> = (0..=255).cycle().take(1_500_007).collect();
    let first = put(&engine, directory, &bytes).await.unwrap();
    assert_eq!(first.path, path(format!("{directory}/report.bin")));
    let other = put(&engine, directory, b"other").await.unwrap();
    assert_eq!(other.path, path(format!("{directory}/report_2.bin")));
    assert!(first.left.is_empty() && other.left.is_empty());
    let (got, read) = get(&engine, &format!("{directory}/report.bin"))
        .await
        .unwrap();
    assert!(read == bytes);
    let sha256 = BytesSource::new(bytes).sha256();
    assert_eq!((got.sha256, first.sha256), (sha256, sha256));
    (first.receipt, got.receipt)
}

#[tokio::test]
async fn r_14_a_running_container_proves_what_was_moved() {
    let fixture = ContainerFixture::agent().await;
    let (put, got) = round_trip(&fixture, "/workspace").await;
    assert_eq!(put.transport, Some(Transport::ExecRaw));
    assert_eq!(put.integrity, Some(Integrity::Sha256Beside));
    assert_eq!((put.atomic, put.attempts), (Some(true), 1));
    assert_eq!(got.transport, Some(Transport::ExecRaw));
    // Once the file has been unchanged for two seconds, one digest is enough.
    assert!(got.integrity >= Some(Integrity::Sha256Beside));
    let output = fixture
        .container
        .sh("cd /workspace; ls -A; stat -c '%u %a' report.bin");
    assert_eq!(output, b"report.bin\nreport_2.bin\n1000 644\n");
}

#[tokio::test]
async fn r_6_memory_is_reached_by_commands() {
    let fixture = ContainerFixture::of(ContainerOptions {
        user: "agent".into(),
        tmpfs: vec![("/memory".into(), "mode=1777".into())],
        ..ContainerOptions::default()
    })
    .await;
    let (put, got) = round_trip(&fixture, "/memory").await;
    assert_eq!(put.transport, Some(Transport::ExecRaw));
    assert_eq!(put.atomic, Some(true));
    assert_eq!(got.transport, Some(Transport::ExecRaw));
    assert_eq!(fixture.cat("/memory/report_2.bin"), b"other");
}

#[tokio::test]
async fn r_9_receipts_say_that_a_container_cannot_run_commands() {
    let stopped = ContainerFixture::agent().await;
    stopped.container.stop();
    let paused = ContainerFixture::agent().await;
    paused.container.pause();
    let shell_less = ContainerFixture::of(ContainerOptions {
        shell_less: true,
        ..ContainerOptions::default()
    })
    .await;
    for fixture in [&stopped, &paused, &shell_less] {
        let (put, got) = round_trip(fixture, "/workspace").await;
        assert_eq!(put.transport, Some(Transport::Archive));
        assert_eq!(put.atomic, Some(false));
        assert_eq!(got.transport, Some(Transport::Archive));
        assert_eq!(got.integrity, Some(Integrity::SizeMtime));
    }
}

#[tokio::test]
async fn r_13_a_full_volume_is_left_as_it_was() {
    let host = dray_testkit::docker::DockerEngine::shared();
    let volume = host.small_volume(1 << 20);
    let fixture = ContainerFixture::on(
        host,
        ContainerOptions {
            volumes: vec![format!("{}:/small", volume.name())],
            ..ContainerOptions::default()
        },
    )
    .await;
    let failed = put(&engine(&fixture), "/small", &vec![7; 4 << 20]).await;
    let failed = failed.unwrap_err();
    assert_eq!(failed.error.kind(), ErrorKind::NoSpace);
    assert!(failed.left.is_empty());
    assert_eq!(fixture.container.sh("ls -A /small"), b"");
}

#[tokio::test]
async fn a_file_that_the_user_may_not_read_is_not_read_with_the_rights_of_the_engine() {
    let fixture = ContainerFixture::agent().await;
    fixture
        .container
        .sh("cd /workspace; echo secret > closed; chmod 600 closed");
    let failed = get(&engine(&fixture), "/workspace/closed")
        .await
        .unwrap_err();
    assert_eq!(failed.error.kind(), ErrorKind::PermissionDenied);
}

/// Cancels a transfer after this many bytes.
struct CancelAfter {
    bytes: u64,
    cancel: CancellationToken,
}

impl Progress for CancelAfter {
    fn moved(&self, done: u64, _of: u64) {
        if done >= self.bytes {
            self.cancel.cancel();
        }
    }
}

#[tokio::test]
async fn r_13_a_cancelled_put_leaves_no_file() {
    let fixture = ContainerFixture::agent().await;
    let engine = engine(&fixture);
    let policy = Policy::beneath([path("/workspace")]);
    let options = PutOptions {
        policy: &policy,
        collision: Collision::Rename,
        mode: 0o644,
        operation: "test",
        epoch: 1,
    };
    let source = BytesSource::new(vec![7; 64 << 20]);
    let cancel = CancellationToken::new();
    let stop = CancelAfter {
        bytes: 8 << 20,
        cancel: cancel.clone(),
    };
    let failed = engine
        .put(
            &path("/workspace"),
            b"file",
            &source,
            &options,
            &stop,
            &cancel,
        )
        .await
        .unwrap_err();
    assert!(failed.cancelled && failed.left.is_empty(), "{failed:?}");
    let found = fixture.container.sh("find /workspace -type f");
    assert_eq!(String::from_utf8(found).unwrap(), "");
}

#[tokio::test]
async fn a_put_into_a_directory_that_becomes_a_link_writes_nothing_as_root() {
    let fixture = ContainerFixture::agent().await;
    fixture
        .container
        .sh("mkdir /workspace/up; chown agent /workspace/up");
    let engine = engine(&fixture);
    let bytes: Vec<u8> = vec![7; 3 << 20];
    let source = SwappingSource {
        bytes: BytesSource::new(bytes),
        swap: std::sync::Mutex::new(Some(Box::new(|| {
            let swap = "cd /workspace && mv up old && ln -s /etc up";
            fixture.container.sh(swap);
        }))),
    };
    let policy = Policy::beneath([path("/workspace")]);
    let options = PutOptions {
        policy: &policy,
        collision: Collision::Rename,
        mode: 0o644,
        operation: "test",
        epoch: 1,
    };
    let cancel = CancellationToken::new();
    let put = engine
        .put(
            &path("/workspace/up"),
            b"evil",
            &source,
            &options,
            &(),
            &cancel,
        )
        .await;
    assert!(put.is_err(), "{put:?}");
    let found = fixture.container.sh("find /etc /workspace -name '*evil*'");
    assert_eq!(String::from_utf8(found).unwrap(), "");
}

#[tokio::test]
async fn a_container_whose_shell_hangs_is_read_through_the_archive_calls() {
    let fixture = ContainerFixture::of(ContainerOptions::default()).await;
    fixture
        .container
        .sh("head -c 2000000 /dev/urandom >/workspace/file");
    let expected = fixture.cat("/workspace/file");
    fixture.container.sh(
        "printf '#!/bin/busybox ash\nexec /bin/busybox sleep 1000\n' >/tmp/sh && chmod 755 /tmp/sh && mv -f /tmp/sh /bin/sh",
    );
    let config = Config {
        endpoint: endpoint(&fixture.engine),
        shell_timeout: Period::millis(500),
        ..Config::default()
    };
    let backend = DockerBackend::new(&config, Clock::system()).unwrap();
    let address = address(fixture.container.name());
    let handle = backend.resolve(&address).await.unwrap();
    let sandbox = backend.open(&handle).await.unwrap();
    let engine = Engine::new(sandbox, EngineOptions::default());
    let (got, read) = get(&engine, "/workspace/file").await.unwrap();
    assert!(read == expected);
    assert_eq!(got.receipt.integrity, Some(Integrity::SizeMtime));
    assert_eq!(got.receipt.transport, Some(Transport::Archive));
}

/// Commands that the engine started in a container between two times.
fn commands(fixture: &ContainerFixture, since: Duration, until: Duration) -> usize {
    let seconds = |time: Duration| format!("{}.{:09}", time.as_secs(), time.subsec_nanos());
    let output = std::process::Command::new("docker")
        .args(["--host", &endpoint(&fixture.engine), "events"])
        .args(["--since", &seconds(since), "--until", &seconds(until)])
        .args(["--filter", &format!("container={}", fixture.container.id())])
        .args(["--filter", "event=exec_create", "--format", "{{.ID}}"])
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).unwrap().lines().count()
}

#[expect(
    clippy::disallowed_methods,
    reason = "the engine dates its events to the nanosecond by this clock, and `Clock` has milliseconds"
)]
fn now() -> Duration {
    SystemTime::now().duration_since(UNIX_EPOCH).unwrap()
}

#[tokio::test]
async fn a_get_runs_one_command_for_any_size() {
    let fixture = ContainerFixture::agent().await;
    // The shell of a dropped engine is ended by another command.
    let mut engines = Vec::new();
    for size in [1_024, 4 << 20] {
        fixture.container.sh(&format!(
            "head -c {size} /dev/urandom >/workspace/file; touch -d '2001-01-01' /workspace/file"
        ));
        let sandbox = fixture
            .backend
            .open(fixture.sandbox.handle())
            .await
            .unwrap();
        let engine = Engine::new(sandbox, EngineOptions::default());
        let begin = now();
        let (got, read) = get(&engine, "/workspace/file").await.unwrap();
        let end = now();
        assert!(read == fixture.cat("/workspace/file"));
        assert_eq!(got.receipt.transport, Some(Transport::ExecRaw));
        assert!(got.receipt.integrity >= Some(Integrity::Sha256Beside));
        assert_eq!(commands(&fixture, begin, end), 1, "{size}");
        engines.push(engine);
    }
}

#[tokio::test]
async fn a_file_of_a_container_that_stopped_since_it_was_opened_is_still_read() {
    let fixture = ContainerFixture::agent().await;
    fixture
        .container
        .sh("head -c 2000000 /dev/urandom >/workspace/file");
    let expected = fixture.cat("/workspace/file");
    let sandbox = fixture
        .backend
        .open(fixture.sandbox.handle())
        .await
        .unwrap();
    let engine = Engine::new(sandbox, EngineOptions::default());
    let (got, read) = get(&engine, "/workspace/file").await.unwrap();
    assert_eq!(got.receipt.transport, Some(Transport::ExecRaw));
    assert!(read == expected);
    fixture.container.stop();
    let (got, read) = get(&engine, "/workspace/file").await.unwrap();
    assert_eq!(got.receipt.transport, Some(Transport::Archive));
    assert_eq!(got.receipt.integrity, Some(Integrity::SizeMtime));
    assert!(read == expected);
}
