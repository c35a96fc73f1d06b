//! Tests of transfers that a later transfer continues.

use std::path::{Path, PathBuf};

use dray_sandbox::metadata::{Integrity, Transport};
use dray_sandbox_conformance::fake::{Call, Change, Fault};

use super::*;

const LOST_CONNECTION: ErrorKind = ErrorKind::Unavailable;

fn fixture() -> EngineFixture {
    let fake = Fake::new();
    fake.transports(&[Transport::Archive, Transport::Files]);
    fake.resuming(Transport::Files);
    fake.directory("/work");
    EngineFixture::new(fake)
}

/// Breaks the next copy after this many bytes, and makes its retries fail.
fn interrupt(fixture: &EngineFixture, call: Call, after: u64) {
    let faults = [Fault::Break(after, LOST_CONNECTION)]
        .into_iter()
        .chain(vec![Fault::Fail(LOST_CONNECTION); 9]);
    fixture.fake.script(call, faults);
}

/// Removes the faults of [`interrupt`].
fn reconnect(fixture: &EngineFixture, call: Call) {
    fixture.fake.clear_faults(call);
}

fn entries(directory: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(directory).unwrap();
    entries.map(|entry| entry.unwrap().path()).collect()
}

async fn interrupted_get(fixture: &EngineFixture, target: &Path) {
    fixture.fake.transports(&[Transport::Files]);
    interrupt(fixture, Call::Read, 3000);
    let mut sink = FileSink::resumable(target, "origin");
    let failed = fixture.get_into("/work/a", &mut sink).await.unwrap_err();
    assert!(failed.kept, "{failed}");
    reconnect(fixture, Call::Read);
    fixture
        .fake
        .transports(&[Transport::Archive, Transport::Files]);
}

#[tokio::test(start_paused = true)] // paused clock
async fn a_read_that_cannot_resume_continues_over_a_transport_that_can() {
    let fixture = fixture();
    fixture.fake.file("/work/a", pattern(5000));
    fixture
        .fake
        .script(Call::Read, [Fault::Break(3000, LOST_CONNECTION)]);
    let (got, sink) = fixture.got("/work/a").await;
    assert_eq!(sink.begun, 1, "the first 3000 bytes are read once");
    assert_eq!(got.receipt.transport, Some(Transport::Files));
    assert_eq!((got.receipt.resumed, got.receipt.attempts), (true, 2));
    assert_eq!(got.receipt.integrity, Some(Integrity::Sha256));
    // Another file in the same place is read from its start, over the best transport.
    let meanwhile = Fault::Before(Change::Replace(pattern(4000).into()));
    fixture
        .fake
        .script(Call::Read, [Fault::Break(3000, LOST_CONNECTION)]);
    fixture.fake.script(Call::Stat, [Fault::None, meanwhile]);
    let (got, sink) = fixture.got("/work/a").await;
    assert_eq!((sink.begun, got.size), (2, 4000));
    assert_eq!(got.receipt.transport, Some(Transport::Archive));
}

#[tokio::test(start_paused = true)] // paused clock
async fn a_later_get_reads_only_the_bytes_that_an_interrupted_get_did_not_read() {
    let fixture = fixture();
    fixture.fake.file("/work/a", pattern(5000));
    let directory = tempfile::tempdir().unwrap();
    let target = directory.path().join("a");
    interrupted_get(&fixture, &target).await;
    let mut sink = FileSink::resumable(&target, "origin");
    let result = fixture.get_into("/work/a", &mut sink).await.unwrap();
    assert!(result.receipt.resumed);
    assert_eq!(
        result.receipt.transport,
        Some(Transport::Files),
        "a transport that can begin at an offset is preferred"
    );
    assert!(result.receipt.integrity >= Some(Integrity::Sha256Beside));
    assert_eq!(sink.restarted(), None);
    assert_eq!(std::fs::read(&target).unwrap(), pattern(5000));
    assert_eq!(entries(directory.path()), [target]);
}

#[tokio::test(start_paused = true)] // paused clock
async fn a_damaged_partial_file_is_noticed_and_copied_again() {
    let fixture = fixture();
    fixture.fake.file("/work/a", pattern(5000));
    let directory = tempfile::tempdir().unwrap();
    let target = directory.path().join("a");
    interrupted_get(&fixture, &target).await;
    let partial = entries(directory.path()).remove(0);
    let mut content = std::fs::read(&partial).unwrap();
    assert_eq!(content.len(), 3000);
    content[100] ^= 1;
    std::fs::write(&partial, content).unwrap();
    let mut sink = FileSink::resumable(&target, "origin");
    let result = fixture.get_into("/work/a", &mut sink).await.unwrap();
    assert!(!result.receipt.resumed);
    assert!(sink.restarted().is_some());
    assert_eq!(std::fs::read(&target).unwrap(), pattern(5000));
}

#[tokio::test(start_paused = true)] // paused clock
async fn without_a_transport_that_can_begin_at_an_offset_a_get_starts_from_zero() {
    let fixture = fixture();
    fixture.fake.file("/work/a", pattern(5000));
    let directory = tempfile::tempdir().unwrap();
    let target = directory.path().join("a");
    interrupted_get(&fixture, &target).await;
    fixture.fake.transports(&[Transport::Archive]);
    let mut sink = FileSink::resumable(&target, "origin");
    let result = fixture.get_into("/work/a", &mut sink).await.unwrap();
    assert!(!result.receipt.resumed);
    assert!(sink.restarted().is_some());
    assert_eq!(std::fs::read(&target).unwrap(), pattern(5000));
}

#[tokio::test(start_paused = true)] // paused clock
async fn a_file_that_the_policy_refuses_after_an_interruption_is_not_kept() {
    let mut fixture = fixture();
    fixture.policy = fixture.policy.with_content(ContentAction::Block);
    fixture.fake.file("/work/a", pattern(5000));
    let directory = tempfile::tempdir().unwrap();
    let target = directory.path().join("a");
    interrupted_get(&fixture, &target).await;
    let key = "-----BEGIN PRIVATE KEY-----\nMIIEvQIBADANBgkqhkiG9w0BAQEFAASCBKcwggSjAgEAAoIBAQ==\n";
    fixture.fake.file("/work/a", key.repeat(60));
    let mut sink = FileSink::resumable(&target, "origin");
    let failed = fixture.get_into("/work/a", &mut sink).await.unwrap_err();
    assert_eq!(failed.error.kind(), ErrorKind::DeniedPath);
    assert!(!failed.kept);
    assert!(entries(directory.path()).is_empty());
}

async fn put_resumable(
    fixture: &EngineFixture,
    content: &[u8],
) -> Result<PutResult, TransferFailure> {
    let options = PutOptions {
        policy: &fixture.policy,
        collision: Collision::Rename,
        mode: 0o644,
        operation: "content1",
        epoch: 1,
    };
    let (source, cancel) = (BytesSource::new(content.to_vec()), CancellationToken::new());
    let directory = path("/work");
    fixture
        .engine
        .put_resumable(&directory, b"a", &source, &options, &(), &cancel)
        .await
}

async fn interrupted_put(fixture: &EngineFixture, content: &[u8]) {
    fixture.fake.transports(&[Transport::Files]);
    interrupt(fixture, Call::Write, 70_000);
    let failed = put_resumable(fixture, content).await.unwrap_err();
    assert!(failed.kept, "{failed}");
    assert_eq!(fixture.work().len(), 1, "the temp file stays");
    reconnect(fixture, Call::Write);
}

#[tokio::test(start_paused = true)] // paused clock
async fn a_later_put_writes_only_the_bytes_that_an_interrupted_put_did_not_write() {
    let fixture = fixture();
    let content = pattern(200_000);
    interrupted_put(&fixture, &content).await;
    let put = put_resumable(&fixture, &content).await.unwrap();
    assert!(put.receipt.resumed);
    assert!(put.receipt.integrity >= Some(Integrity::Sha256After));
    assert_eq!(fixture.fake.content("/work/a").unwrap(), content);
    assert_eq!(fixture.work(), ["a"]);
}

#[tokio::test(start_paused = true)] // paused clock
async fn a_temp_file_with_other_bytes_is_noticed_and_written_again() {
    let fixture = fixture();
    let content = pattern(200_000);
    interrupted_put(&fixture, &content).await;
    let temp = format!("/work/{}", fixture.work()[0]);
    let length = fixture.fake.content(&temp).unwrap().len();
    assert!(length > 0);
    fixture.fake.file(&temp, vec![b'?'; length]);
    let put = put_resumable(&fixture, &content).await.unwrap();
    assert!(!put.receipt.resumed);
    assert_eq!(fixture.fake.content("/work/a").unwrap(), content);
    assert_eq!(fixture.work(), ["a"]);
}

#[tokio::test(start_paused = true)] // paused clock
async fn a_refused_put_keeps_no_bytes() {
    let fixture = fixture();
    fixture.fake.transports(&[Transport::Files]);
    let faults = [
        Fault::Break(70_000, LOST_CONNECTION),
        Fault::Fail(ErrorKind::PermissionDenied),
    ];
    fixture.fake.script(Call::Write, faults);
    let failed = put_resumable(&fixture, &pattern(200_000))
        .await
        .unwrap_err();
    assert!(!failed.kept);
    assert!(fixture.work().is_empty());
}
