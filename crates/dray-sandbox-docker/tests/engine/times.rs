//! Tests of files that were not changed: their times, which a shell reports, prove it.

use std::fs::{File, FileTimes};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use dray_sandbox::{Backend as _, Error, ErrorKind, Follow, Integrity, Metadata, Transport};
use dray_testkit::docker::ContainerOptions;
use dray_testkit::eventually;
use dray_transfer_engine::policy::Policy;
use dray_transfer_engine::{
    BytesSource, Collision, Engine, EngineOptions, GetOptions, PutOptions, Sink, VecSink,
};
use dray_types::Sha256Digest;
use tokio_util::sync::CancellationToken;

use super::fixture::{ContainerFixture, kind, path};

const FILE_BYTES: usize = 8 << 20;

fn content(seed: u8) -> Vec<u8> {
    (0..=250_u8)
        .map(|byte| byte ^ seed)
        .cycle()
        .take(FILE_BYTES)
        .collect()
}

fn engine(fixture: &ContainerFixture) -> Engine {
    let options = EngineOptions {
        digest_always_up_to: 1 << 20,
        ..EngineOptions::default()
    };
    Engine::new(Arc::clone(&fixture.sandbox), options)
}

/// Waits until a write to the file would show in its times.
async fn wait_until_settled(fixture: &ContainerFixture, at: &str) {
    eventually("a file that was left alone", async || {
        let state = fixture.sandbox.state(&path(at)).await.unwrap();
        state.is_settled().then_some(())
    })
    .await;
}

/// Changes a file on this host when its first bytes arrive.
struct MeddlingSink<F> {
    sink: VecSink,
    meddle: Option<F>,
}

#[async_trait]
impl<F: FnOnce() + Send + Sync> Sink for MeddlingSink<F> {
    async fn begin(&mut self, file: &Metadata) -> Result<(), Error> {
        self.sink.begin(file).await
    }

    async fn write(&mut self, chunk: Bytes) -> Result<(), Error> {
        if let Some(meddle) = self.meddle.take() {
            meddle();
        }
        self.sink.write(chunk).await
    }

    async fn finish(&mut self, sha256: Sha256Digest, size: u64) -> Result<(), Error> {
        self.sink.finish(sha256, size).await
    }

    async fn abort(&mut self) {
        self.sink.abort().await;
    }
}

async fn get(engine: &Engine, at: &str, sink: &mut dyn Sink) -> (Option<Integrity>, u32) {
    let policy = Policy::beneath([path(at).parent()]);
    let options = GetOptions {
        policy: &policy,
        max_bytes: 100 << 20,
    };
    let cancel = CancellationToken::new();
    let result = engine.get(&path(at), &options, sink, &(), &cancel).await;
    let receipt = result.unwrap().receipt;
    (receipt.integrity, receipt.attempts)
}

/// A container with a directory of this host, and a file in it that was not written for a while.
async fn container_with_shared_file(
    bytes: &[u8],
) -> (ContainerFixture, tempfile::TempDir, PathBuf) {
    let directory = tempfile::tempdir().unwrap();
    let fixture = ContainerFixture::of(ContainerOptions {
        volumes: vec![format!("{}:/shared", directory.path().display())],
        ..ContainerOptions::default()
    })
    .await;
    let file = directory.path().join("file");
    std::fs::write(&file, bytes).unwrap();
    wait_until_settled(&fixture, "/shared/file").await;
    (fixture, directory, file)
}

#[tokio::test]
async fn r_14_the_receipt_states_that_a_file_did_not_change() {
    let bytes = content(0);
    let (fixture, _directory, _file) = container_with_shared_file(&bytes).await;
    let mut sink = VecSink::default();
    let result = get(&engine(&fixture), "/shared/file", &mut sink).await;
    assert_eq!(result, (Some(Integrity::SizeMtime), 1));
    assert!(sink.into_bytes().unwrap() == bytes);
    let policy = Policy::beneath([path("/workspace")]);
    let options = PutOptions {
        policy: &policy,
        collision: Collision::Rename,
        mode: 0o644,
        operation: "test",
        epoch: 1,
    };
    let put = engine(&fixture)
        .put(
            &path("/workspace"),
            b"file",
            &BytesSource::new(bytes.clone()),
            &options,
            &(),
            &CancellationToken::new(),
        )
        .await
        .unwrap();
    assert_eq!(put.receipt.integrity, Some(Integrity::SizeMtime));
    assert_eq!(put.receipt.transport, Some(Transport::ExecRaw));
    assert_eq!(put.receipt.atomic, Some(true));
    assert!(fixture.cat("/workspace/file") == bytes);
}

#[tokio::test]
async fn files_with_recent_times_are_digested() {
    let fixture = ContainerFixture::agent().await;
    fixture.container.sh(&format!(
        "head -c {FILE_BYTES} /dev/urandom >/workspace/new; touch -d '2100-01-01 00:00:00' /workspace/new"
    ));
    let mut sink = VecSink::default();
    let result = get(&engine(&fixture), "/workspace/new", &mut sink).await;
    assert_eq!(result, (Some(Integrity::Sha256), 1));
}

/// Overwrites a file in place and sets its time back.
fn rewrite(file: &Path, bytes: &[u8]) {
    let before = std::fs::metadata(file).unwrap().modified().unwrap();
    let open = File::options().write(true).open(file).unwrap();
    open.write_all_at(bytes, 0).unwrap();
    open.set_times(FileTimes::new().set_modified(before))
        .unwrap();
}

#[tokio::test]
async fn r_8_a_rewrite_that_sets_the_time_back_does_not_pass() {
    let (fixture, _directory, file) = container_with_shared_file(&content(0)).await;
    let other = content(0xff);
    let mut sink = MeddlingSink {
        sink: VecSink::default(),
        meddle: Some(|| rewrite(&file, &other)),
    };
    // The file may have settled again by then, so the kind of proof depends on the time.
    let (integrity, attempts) = get(&engine(&fixture), "/shared/file", &mut sink).await;
    assert_eq!((integrity.is_some(), attempts), (true, 2));
    assert!(sink.sink.into_bytes().unwrap() == other);
}

#[tokio::test]
async fn r_8_another_file_in_its_place_does_not_pass() {
    let (fixture, directory, file) = container_with_shared_file(&content(0)).await;
    let other = content(0xff);
    let beside = directory.path().join("beside");
    std::fs::write(&beside, &other).unwrap();
    let mut sink = MeddlingSink {
        sink: VecSink::default(),
        meddle: Some(|| std::fs::rename(&beside, &file).unwrap()),
    };
    let (integrity, attempts) = get(&engine(&fixture), "/shared/file", &mut sink).await;
    assert_eq!(attempts, 2);
    assert!(integrity.is_some());
    assert!(sink.sink.into_bytes().unwrap() == other);
}

#[tokio::test]
async fn requests_continue_after_the_shell_or_the_container_ended() {
    let fixture = ContainerFixture::agent().await;
    let sandbox = &fixture.sandbox;
    // Only a command sees the entries of `/dev`.
    let device = path("/dev/null");
    sandbox.stat(&device, Follow::No).await.unwrap();
    fixture.container.sh(
        "for p in /proc/[0-9]*; do grep -q DRAY_TRANSFER \"$p/environ\" 2>/dev/null && kill -9 \"${p#/proc/}\"; done; :",
    );
    sandbox.stat(&device, Follow::No).await.unwrap();
    fixture.container.pause();
    let paused = sandbox.stat(&device, Follow::No).await;
    assert_eq!(kind(paused), ErrorKind::SandboxPaused);
    fixture.container.unpause();
    sandbox.stat(&device, Follow::No).await.unwrap();
    fixture.container.stop();
    let stopped = sandbox.stat(&device, Follow::No).await;
    assert_eq!(kind(stopped), ErrorKind::SandboxStopped);
    fixture.container.start();
    sandbox.stat(&device, Follow::No).await.unwrap();
}

#[tokio::test]
async fn no_shell_outlives_its_sandbox() {
    let fixture = ContainerFixture::agent().await;
    let shells = |fixture: &ContainerFixture| {
        let seen = fixture.container.exec("0", &["ps", "-o", "args"]).stdout;
        let seen = String::from_utf8_lossy(&seen).into_owned();
        seen.lines().filter(|line| line.trim() == "sh").count()
    };
    fixture
        .sandbox
        .stat(&path("/dev/null"), Follow::No)
        .await
        .unwrap();
    assert_eq!(shells(&fixture), 1);
    let ContainerFixture {
        sandbox,
        container,
        backend,
        engine,
    } = fixture;
    drop(sandbox);
    let handle = backend
        .resolve(&super::fixture::address(container.name()))
        .await
        .unwrap();
    let fixture = ContainerFixture {
        sandbox: backend.open(&handle).await.unwrap(),
        container,
        backend,
        engine,
    };
    eventually("the end of the shell", async || {
        (shells(&fixture) == 0).then_some(())
    })
    .await;
}

/// Copies a file out, and checks that its bytes and digest are those in the container.
async fn get_large(fixture: &ContainerFixture, at: &str) -> dray_transfer_engine::Receipt {
    let policy = Policy::beneath([path(at).parent()]);
    let options = GetOptions {
        policy: &policy,
        max_bytes: 100 << 20,
    };
    let engine = Engine::new(Arc::clone(&fixture.sandbox), EngineOptions::default());
    let (mut sink, cancel) = (VecSink::default(), CancellationToken::new());
    let at_path = path(at);
    let result = engine.get(&at_path, &options, &mut sink, &(), &cancel);
    let receipt = result.await.unwrap().receipt;
    let content = sink.into_bytes().unwrap();
    assert_eq!(receipt.sha256, Some(Sha256Digest::of(&content)));
    assert!(content == fixture.cat(at));
    receipt
}

#[tokio::test]
async fn large_files_come_as_an_archive_with_a_digest_beside_it() {
    let fixture = ContainerFixture::agent().await;
    let make = |name: &str, mib: u32| {
        let file = format!("/workspace/{name}");
        let command = format!("head -c {} /dev/urandom >{file}", mib << 20);
        fixture.container.sh(&command);
        file
    };
    let (large, small) = (make("large", 16), make("small", 15));
    for file in [&large, &small] {
        wait_until_settled(&fixture, file).await;
    }
    let receipt = get_large(&fixture, &large).await;
    assert_eq!(receipt.transport, Some(Transport::Archive));
    assert_eq!(receipt.integrity, Some(Integrity::Sha256Beside));
    let receipt = get_large(&fixture, &small).await;
    assert_eq!(receipt.transport, Some(Transport::ExecRaw));
    assert_eq!(receipt.integrity, Some(Integrity::Sha256Beside));
}

#[tokio::test]
async fn a_large_file_that_the_user_may_not_read_does_not_come_as_an_archive() {
    let fixture = ContainerFixture::agent().await;
    let make = "umask 077; head -c 16777216 /dev/zero >/workspace/closed";
    fixture.container.sh(make);
    let policy = Policy::beneath([path("/workspace")]);
    let options = GetOptions {
        policy: &policy,
        max_bytes: 100 << 20,
    };
    let engine = Engine::new(Arc::clone(&fixture.sandbox), EngineOptions::default());
    let (mut sink, cancel) = (VecSink::default(), CancellationToken::new());
    let closed = path("/workspace/closed");
    let result = engine.get(&closed, &options, &mut sink, &(), &cancel);
    assert_eq!(
        result.await.unwrap_err().error.kind(),
        ErrorKind::PermissionDenied
    );
    assert!(sink.into_bytes().is_none());
}
