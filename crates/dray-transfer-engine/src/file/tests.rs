//! Tests of files of this host as source and sink of a transfer.

use std::os::unix::fs::PermissionsExt as _;
use std::time::Duration;

use dray_sandbox::metadata::{FileKind, Metadata};
use dray_sandbox::{Follow, Sandbox as _, SandboxPath};
use dray_sandbox_conformance::fake::Fake;

use super::*;

async fn metadata() -> Metadata {
    let fake = Fake::new();
    fake.file("/work/a", "x");
    let path = SandboxPath::new("/work/a").unwrap();
    fake.stat(&path, Follow::Yes).await.unwrap()
}

fn names(directory: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(directory).unwrap();
    let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    names.collect()
}

#[tokio::test]
async fn a_file_appears_whole_with_the_digest_of_its_bytes() {
    let directory = tempfile::tempdir().unwrap();
    let target = directory.path().join("a");
    let file = metadata().await;
    let mut sink = FileSink::create(&target).unwrap();
    for attempt in 0..2_u8 {
        sink.begin(&file).await.unwrap();
        for chunk in 0..7_u8 {
            let chunk = vec![chunk ^ attempt; 300_000];
            sink.write(chunk.into()).await.unwrap();
        }
    }
    sink.flush().await.unwrap();
    let expected: Vec<u8> = (0..7_u8)
        .flat_map(|chunk| vec![chunk ^ 1; 300_000])
        .collect();
    assert_eq!(sink.sha256(), Some(Sha256Digest::of(&expected)));
    assert!(!target.exists());
    let sha256 = Sha256Digest::of(&expected);
    sink.finish(sha256, expected.len() as u64).await.unwrap();
    assert!(std::fs::read(&target).unwrap() == expected);
    let mode = std::fs::metadata(&target).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    assert_eq!(names(directory.path()), ["a"]);
}

#[tokio::test]
async fn the_execute_bit_of_a_file_is_kept_and_that_of_a_directory_is_not() {
    let directory = tempfile::tempdir().unwrap();
    let source = metadata().await;
    for (kind, expected) in [(FileKind::File, 0o700), (FileKind::Directory, 0o600)] {
        let target = directory.path().join(kind.as_str());
        let mut sink = FileSink::create(&target).unwrap();
        let source = Metadata {
            kind,
            mode: 0o755,
            ..source.clone()
        };
        sink.begin(&source).await.unwrap();
        sink.write(b"x".as_slice().into()).await.unwrap();
        sink.flush().await.unwrap();
        sink.finish(Sha256Digest::of(b"x"), 1).await.unwrap();
        let mode = std::fs::metadata(&target).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, expected, "{kind:?}");
    }
}

#[tokio::test]
async fn an_aborted_or_dropped_file_leaves_nothing() {
    let directory = tempfile::tempdir().unwrap();
    let file = metadata().await;
    for abort in [true, false] {
        let mut sink = FileSink::create(directory.path().join("a")).unwrap();
        sink.begin(&file).await.unwrap();
        sink.write(vec![1; 600_000].into()).await.unwrap();
        if abort {
            sink.abort().await;
        }
        drop(sink);
        assert!(names(directory.path()).is_empty());
    }
}

#[tokio::test]
async fn a_file_without_a_name_is_never_in_its_directory() {
    let directory = tempfile::tempdir().unwrap();
    let metadata = metadata().await;
    let (mut sink, file) = FileSink::unnamed_in(directory.path()).unwrap();
    for content in [&b"longer"[..], b"bytes"] {
        sink.begin(&metadata).await.unwrap();
        sink.write(Bytes::copy_from_slice(content)).await.unwrap();
        sink.flush().await.unwrap();
    }
    assert!(names(directory.path()).is_empty());
    sink.finish(Sha256Digest::of(b"bytes"), 5).await.unwrap();
    assert!(names(directory.path()).is_empty());
    let source = FileSource::new(file, 5);
    let body = source.open(0).await.unwrap();
    assert_eq!(body.read_all(10).await.unwrap(), b"bytes");
}

#[tokio::test]
async fn a_full_disk_of_this_host_is_reported_as_no_space() {
    let file = metadata().await;
    let mut sink = FileSink::create(std::env::temp_dir().join("unused")).unwrap();
    // Every write to this device fails as on a full disk (full(4)).
    let full = Arc::new(File::options().write(true).open("/dev/full").unwrap());
    sink.file = Some(Arc::clone(&full));
    let output = FileWriter {
        file: full,
        sha256: Sha256::new(),
    };
    sink.begin(&file).await.unwrap();
    sink.output = Some(WriterState::Idle(output));
    sink.write(vec![1; 10].into()).await.unwrap();
    let error = sink.flush().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::NoSpace);
}

#[tokio::test]
async fn a_source_knows_its_digest_after_it_was_sent_and_before() {
    let content: Vec<u8> = (0..251_u8).cycle().take(700_000).collect();
    let source = |length| {
        let file = tempfile::tempfile().unwrap();
        (&file).write_all(&content).unwrap();
        FileSource::new(file, length)
    };
    let sent = source(700_000);
    let body = sent.open(0).await.unwrap();
    assert!(body.read_all(1 << 20).await.unwrap() == content);
    assert_eq!(sent.known_digest(), Some(Sha256Digest::of(&content)));
    let rest = sent.open(650_000).await.unwrap();
    assert!(rest.read_all(1 << 20).await.unwrap() == content[650_000..]);
    let unsent = source(700_000);
    assert_eq!(unsent.known_digest(), None);
    assert_eq!(unsent.sha256().await.unwrap(), Sha256Digest::of(&content));
    let short = source(700_001).open(0).await.unwrap();
    let error = short.read_all(1 << 20).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Truncated);
    let empty = FileSource::new(tempfile::tempfile().unwrap(), 0);
    assert_eq!(empty.sha256().await.unwrap(), Sha256Digest::of(b""));
}

#[tokio::test]
async fn a_source_that_changes_between_two_attempts_is_refused() {
    let file = tempfile::tempfile().unwrap();
    (&file).write_all(b"abc").unwrap();
    let writer = file.try_clone().unwrap();
    let source = FileSource::new(file, 3);
    source.open(0).await.unwrap().read_all(10).await.unwrap();
    writer.write_all_at(b"xyz", 0).unwrap();
    let repeated = source.open(0).await.unwrap();
    let error = repeated.read_all(10).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ChangedDuringTransfer);
}

/// Content of a file of 600 KiB, and the length of the first 200 KiB, which an earlier transfer copied.
fn halves() -> (Vec<u8>, usize) {
    let content = (0..251_u8).cycle().take(600 << 10).collect();
    (content, 200 << 10)
}

async fn write_interrupted_file(target: &Path, origin: &str, file: &Metadata, content: &[u8]) {
    let mut sink = FileSink::resumable(target, origin);
    assert!(sink.resume(file).await.unwrap().is_none());
    sink.begin(file).await.unwrap();
    sink.write(content.to_vec().into()).await.unwrap();
    assert!(sink.interrupt().await);
}

#[tokio::test]
async fn a_resumable_file_continues_after_the_bytes_of_an_interrupted_transfer() {
    let directory = tempfile::tempdir().unwrap();
    let target = directory.path().join("a");
    let (content, half) = halves();
    let file = Metadata {
        size: content.len() as u64,
        ..metadata().await
    };
    write_interrupted_file(&target, "docker:web /a", &file, &content[..half]).await;
    assert!(!target.exists());
    let mut sink = FileSink::resumable(&target, "docker:web /a");
    let kept = sink.resume(&file).await.unwrap().unwrap();
    assert!(kept.read_all(1 << 20).await.unwrap() == content[..half]);
    assert_eq!(sink.sha256(), Some(Sha256Digest::of(&content[..half])));
    let rest = content[half..].to_vec();
    sink.write(rest.into()).await.unwrap();
    let sha256 = Sha256Digest::of(&content);
    sink.finish(sha256, file.size).await.unwrap();
    assert_eq!(sink.restarted(), None);
    assert!(std::fs::read(&target).unwrap() == content);
    assert_eq!(names(directory.path()), ["a"]);
}

#[tokio::test]
async fn an_interrupted_transfer_releases_its_partial_file_before_its_sink_is_dropped() {
    let directory = tempfile::tempdir().unwrap();
    let target = directory.path().join("a");
    let file = Metadata {
        size: 10,
        ..metadata().await
    };
    let mut first = FileSink::resumable(&target, "docker:web /a");
    first.begin(&file).await.unwrap();
    first.write(b"01234".to_vec().into()).await.unwrap();
    assert!(first.interrupt().await);
    let mut second = FileSink::resumable(&target, "docker:web /a");
    assert!(second.resume(&file).await.unwrap().is_some());
}

#[tokio::test]
async fn a_partial_file_of_another_state_or_origin_is_not_continued() {
    let directory = tempfile::tempdir().unwrap();
    let target = directory.path().join("a");
    let file = Metadata {
        size: 10,
        ..metadata().await
    };
    write_interrupted_file(&target, "docker:web /a", &file, b"01234").await;
    let mut other = FileSink::resumable(&target, "docker:other /a");
    assert!(other.resume(&file).await.unwrap().is_none());
    assert_eq!(other.restarted(), None);
    other.abort().await;
    let changed = Metadata {
        mtime_ns: file.mtime_ns.map(|mtime| mtime + 1),
        ..file
    };
    let mut sink = FileSink::resumable(&target, "docker:web /a");
    assert!(sink.resume(&changed).await.unwrap().is_none());
    sink.begin(&changed).await.unwrap();
    assert!(sink.restarted().unwrap().contains("changed"));
    sink.abort().await;
    assert!(names(directory.path()).is_empty());
}

/// Runs `work` for a second, which must not complete it.
async fn assert_waits<T>(work: impl Future<Output = T>) {
    let ended = tokio::time::timeout(Duration::from_secs(1), work).await;
    assert!(ended.is_err(), "the partial file was not waited for");
}

#[tokio::test(start_paused = true)]
async fn a_transfer_waits_for_the_last_batch_of_one_that_was_dropped() {
    let directory = tempfile::tempdir().unwrap();
    let target = directory.path().join("a");
    let file = metadata().await;
    let mut dropped = FileSink::resumable(&target, "docker:web /a");
    dropped.begin(&file).await.unwrap();
    // A thread of its own, because the paused clock stands still while a thread of the runtime is busy.
    let writer = dropped.finish_batch().await.unwrap();
    drop(dropped);
    let (finish_batch, batch) = std::sync::mpsc::channel::<()>();
    let batch = std::thread::spawn(move || {
        let _ = batch.recv();
        drop(writer);
    });
    let mut next = FileSink::resumable(&target, "docker:web /a");
    let mut begun = next.begin(&file);
    assert_waits(&mut begun).await;
    finish_batch.send(()).unwrap();
    batch.join().unwrap();
    begun.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_transfer_that_waited_does_not_write_into_the_finished_file_of_the_other() {
    let directory = tempfile::tempdir().unwrap();
    let target = directory.path().join("a");
    let file = metadata().await;
    let mut first = FileSink::resumable(&target, "docker:web /a");
    first.begin(&file).await.unwrap();
    first.write(b"x".as_slice().into()).await.unwrap();
    // A transfer may open the file before the other one ends, and lock it afterwards.
    let path = directory.path().join(&names(directory.path())[0]);
    let opened_early = File::options().write(true).open(&path).unwrap();
    let mut second = FileSink::resumable(&target, "docker:web /a");
    let mut begun = second.begin(&file);
    assert_waits(&mut begun).await;
    first.finish(Sha256Digest::of(b"x"), 1).await.unwrap();
    drop(first);
    let refused = partial::lock_named(&opened_early, &path).unwrap_err();
    assert_eq!(refused.kind(), io::ErrorKind::ResourceBusy);
    begun.await.unwrap();
    assert_eq!(std::fs::read(&target).unwrap(), b"x");
    let refused = partial::lock_named(&opened_early, &path).unwrap_err();
    assert_eq!(refused.kind(), io::ErrorKind::ResourceBusy);
    second.write(b"y".as_slice().into()).await.unwrap();
    second.finish(Sha256Digest::of(b"y"), 1).await.unwrap();
    assert_eq!(std::fs::read(&target).unwrap(), b"y");
    assert_eq!(names(directory.path()), ["a"]);
}

#[tokio::test(start_paused = true)]
async fn two_transfers_never_write_the_same_partial_file() {
    let directory = tempfile::tempdir().unwrap();
    let target = directory.path().join("a");
    let file = metadata().await;
    let mut first = FileSink::resumable(&target, "docker:web /a");
    first.begin(&file).await.unwrap();
    let mut second = FileSink::resumable(&target, "docker:web /a");
    let error = second.begin(&file).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Exists);
}

#[tokio::test]
async fn an_exclusive_file_never_replaces_one_that_came_meanwhile() {
    let directory = tempfile::tempdir().unwrap();
    let target = directory.path().join("a");
    let file = metadata().await;
    for mut sink in [
        FileSink::create(&target).unwrap().exclusive(),
        FileSink::resumable(&target, "docker:web /a").exclusive(),
    ] {
        sink.begin(&file).await.unwrap();
        std::fs::write(&target, "theirs").unwrap();
        let error = sink.finish(Sha256Digest::of(b""), 0).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Exists);
        sink.abort().await;
        assert_eq!(std::fs::read(&target).unwrap(), b"theirs");
    }
}
