//! Tests of whole transfers with their receipts, as the service makes them (sandbox-transfer 1.6, R-8, R-10, R-13,
//!

use std::fs::{File, FileTimes};
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::sync::Mutex;
use std::time::Duration;

use dray_sandbox::{Integrity, Transport};
use dray_testkit::eventually;
use dray_testkit::sshd::{SftpOffer, SshdOptions};
use dray_transfer_engine::{
    BytesSource, Collision, EngineOptions, GetOptions, Progress, PutOptions, VecSink,
};
use dray_transfer_engine::{Engine, Policy};
use tokio_util::sync::CancellationToken;

use crate::SshFixture;

const FILE_BYTES: usize = 24 << 20;

fn bytes() -> Vec<u8> {
    (0..=250).cycle().take(FILE_BYTES).collect()
}

async fn engine(host: &SshFixture) -> Engine {
    engine_with(host, EngineOptions::default()).await
}

async fn engine_with(host: &SshFixture, options: EngineOptions) -> Engine {
    let options = EngineOptions {
        backoff: Duration::from_millis(10),
        ..options
    };
    Engine::new(host.open().await, options)
}

/// Overwrites a file in place and sets its time back.
fn rewrite(file: &Path, bytes: &[u8]) {
    let before = std::fs::metadata(file).unwrap().modified().unwrap();
    let open = File::options().write(true).open(file).unwrap();
    open.write_all_at(bytes, 0).unwrap();
    open.set_times(FileTimes::new().set_modified(before))
        .unwrap();
}

fn put_options(policy: &Policy) -> PutOptions<'_> {
    PutOptions {
        policy,
        collision: Collision::Rename,
        mode: 0o644,
        operation: "test",
        epoch: 1,
    }
}

/// Runs a function once, after this many bytes.
struct OnceAfter<F>(Mutex<Option<F>>, u64);

impl<F: FnOnce() + Send> OnceAfter<F> {
    fn at(bytes: u64, act: F) -> Self {
        Self(Mutex::new(Some(act)), bytes)
    }
}

impl<F: FnOnce() + Send> Progress for OnceAfter<F> {
    fn moved(&self, done: u64, _of: u64) {
        if done >= self.1
            && let Some(act) = self.0.lock().unwrap().take()
        {
            act();
        }
    }
}

/// Number of entries in the session directory.
fn entry_count(host: &SshFixture) -> usize {
    std::fs::read_dir(host.session()).unwrap().count()
}

#[tokio::test]
async fn r_14_a_receipt_has_the_transport_the_proof_and_the_attempts() {
    for (options, transport) in [
        (SshdOptions::default(), Transport::Sftp),
        (SshdOptions::default().without_shell(), Transport::Sftp),
        (
            SshdOptions::default().sftp(SftpOffer::None),
            Transport::ExecRaw,
        ),
    ] {
        let host = SshFixture::start(&options);
        let engine = engine(&host).await;
        let policy = Policy::beneath([host.root()]);
        let (bytes, cancel) = (bytes(), CancellationToken::new());
        let source = BytesSource::new(bytes.clone());
        let put = engine
            .put(
                &host.root(),
                b"file",
                &source,
                &put_options(&policy),
                &(),
                &cancel,
            )
            .await
            .unwrap();
        assert_eq!(put.path, host.path("file"));
        assert_eq!(put.receipt.transport, Some(transport));
        assert_eq!(put.receipt.atomic, Some(true));
        assert!(
            put.receipt.integrity >= Some(Integrity::Sha256After),
            "{:?}",
            put.receipt
        );
        assert_eq!(entry_count(&host), 1, "no temp file is left");
        let mut sink = VecSink::default();
        let get = GetOptions {
            policy: &policy,
            max_bytes: FILE_BYTES as u64,
        };
        let result = engine
            .get(&put.path, &get, &mut sink, &(), &cancel)
            .await
            .unwrap();
        assert_eq!(result.receipt.transport, Some(transport));
        // Once the file has been unchanged for two seconds, one digest is enough.
        assert!(result.receipt.integrity >= Some(Integrity::Sha256Beside));
        assert_eq!(result.receipt.attempts, 1);
        assert!(sink.into_bytes().unwrap() == bytes);
    }
}

#[tokio::test]
async fn r_10_a_cut_transfer_continues_where_it_broke_off() {
    let host = SshFixture::start(&SshdOptions::default());
    let engine = engine(&host).await;
    let policy = Policy::beneath([host.root()]);
    let (bytes, cancel) = (bytes(), CancellationToken::new());
    let path = host.make("file", &bytes);
    let mut sink = VecSink::default();
    let get = GetOptions {
        policy: &policy,
        max_bytes: FILE_BYTES as u64,
    };
    let cut = OnceAfter::at(FILE_BYTES as u64 / 4, || host.server.cut());
    let result = engine
        .get(&path, &get, &mut sink, &cut, &cancel)
        .await
        .unwrap();
    assert!(
        result.receipt.resumed && result.receipt.attempts == 2,
        "{:?}",
        result.receipt
    );
    assert!(sink.into_bytes().unwrap() == bytes);
    let cut = OnceAfter::at(FILE_BYTES as u64 / 4, || host.server.cut());
    let source = BytesSource::new(bytes.clone());
    let put = engine
        .put(
            &host.root(),
            b"back",
            &source,
            &put_options(&policy),
            &cut,
            &cancel,
        )
        .await
        .unwrap();
    assert!(put.receipt.attempts >= 2, "{:?}", put.receipt);
    assert!(std::fs::read(host.session().join("back")).unwrap() == bytes);
    assert_eq!(entry_count(&host), 2, "no temp file is left");
}

#[tokio::test]
async fn r_13_a_cancelled_put_leaves_no_file() {
    for options in [
        SshdOptions::default(),
        SshdOptions::default().sftp(SftpOffer::None),
    ] {
        let host = SshFixture::start(&options);
        let engine = engine(&host).await;
        let policy = Policy::beneath([host.root()]);
        let cancel = CancellationToken::new();
        let stop = OnceAfter::at(FILE_BYTES as u64 / 4, || cancel.cancel());
        let source = BytesSource::new(bytes());
        let failed = engine
            .put(
                &host.root(),
                b"file",
                &source,
                &put_options(&policy),
                &stop,
                &cancel,
            )
            .await
            .unwrap_err();
        assert!(failed.cancelled && failed.left.is_empty(), "{failed:?}");
        assert_eq!(entry_count(&host), 0);
    }
}

#[tokio::test]
async fn r_8_times_prove_an_unchanged_file_and_reveal_a_rewrite_that_sets_them_back() {
    for options in [
        SshdOptions::default(),
        SshdOptions::default().sftp(SftpOffer::None),
    ] {
        let host = SshFixture::start(&options);
        let options = EngineOptions {
            digest_always_up_to: 1 << 20,
            ..EngineOptions::default()
        };
        let engine = engine_with(&host, options).await;
        let policy = Policy::beneath([host.root()]);
        let (bytes, cancel) = (bytes(), CancellationToken::new());
        let path = host.make("file", &bytes);
        eventually("a file that was left alone", async || {
            let state = engine.sandbox().state(&path).await.unwrap();
            state.is_settled().then_some(())
        })
        .await;
        let get = GetOptions {
            policy: &policy,
            max_bytes: FILE_BYTES as u64,
        };
        let mut sink = VecSink::default();
        let result = engine.get(&path, &get, &mut sink, &(), &cancel).await;
        let receipt = result.unwrap().receipt;
        assert_eq!(receipt.integrity, Some(Integrity::SizeMtime));
        assert!(sink.into_bytes().unwrap() == bytes);

        let other: Vec<u8> = bytes.iter().map(|byte| byte ^ 0xff).collect();
        let file = host.session().join("file");
        let rewrite_during_read = OnceAfter::at(1, || rewrite(&file, &other));
        let mut sink = VecSink::default();
        let result = engine
            .get(&path, &get, &mut sink, &rewrite_during_read, &cancel)
            .await;
        // The file may have settled again by now, so the kind of proof depends on the time.
        assert_eq!(result.unwrap().receipt.attempts, 2);
        assert!(sink.into_bytes().unwrap() == other);

        let source = BytesSource::new(bytes.clone());
        let options = put_options(&policy);
        let put = engine
            .put(&host.root(), b"new", &source, &options, &(), &cancel)
            .await
            .unwrap();
        assert_eq!(put.receipt.integrity, Some(Integrity::SizeMtime));
        assert_eq!(put.receipt.atomic, Some(true));
        assert!(std::fs::read(host.session().join("new")).unwrap() == bytes);
    }
}
