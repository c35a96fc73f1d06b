//! Tests of writing files into sandboxes.

use dray_sandbox::metadata::{FileKind, Integrity, Transport};
use dray_sandbox_conformance::fake::{Call, Change, Digests, Fault};
use futures_util::future::join;

use super::*;

pub(super) const LOST_CONNECTION: ErrorKind = ErrorKind::Unavailable;

pub(super) fn fixture() -> EngineFixture {
    EngineFixture::new(Fake::new())
}

#[tokio::test(start_paused = true)] // paused clock
async fn r_13_a_file_is_written_to_a_temporary_name_checked_and_renamed() {
    let fixture = fixture();
    let content = pattern(5000);
    let put = fixture.put("report.csv", content.clone()).await.unwrap();
    assert_eq!(put.path, path("/work/report.csv"));
    assert_eq!((put.renamed, put.existed, put.size), (false, false, 5000));
    assert_eq!(fixture.fake.content("/work/report.csv").unwrap(), content);
    assert_eq!(fixture.fake.mode("/work/report.csv"), Some(0o644));
    assert_eq!(fixture.work(), ["report.csv"]);
    let receipt = put.receipt;
    assert_eq!(receipt.integrity, Some(Integrity::Sha256After));
    assert_eq!(
        (receipt.atomic, receipt.attempts, receipt.bytes),
        (Some(true), 1, 5000)
    );
    fixture.put("empty", "").await.unwrap();
    assert_eq!(fixture.fake.content("/work/empty").unwrap(), "");
}

#[tokio::test(start_paused = true)] // paused clock
async fn r_8_corruption_during_a_write_is_noticed() {
    let fixture = fixture();
    fixture.fake.script(Call::Write, [Fault::Flip(4000)]);
    let put = fixture.put("a", pattern(5000)).await.unwrap();
    assert_eq!(put.receipt.attempts, 2);
    fixture
        .fake
        .script(Call::Write, [Fault::Flip(1), Fault::Flip(2)]);
    let failed = fixture.put("b", pattern(5000)).await.unwrap_err();
    assert_eq!(
        (failed.error.kind(), failed.receipt.attempts),
        (ErrorKind::Corrupted, 2)
    );
    assert_eq!(fixture.work(), ["a"]);
    fixture
        .fake
        .transports(&[Transport::Archive, Transport::ExecRaw]);
    fixture
        .fake
        .script(Call::Write, [Fault::Fail(ErrorKind::ToolMissing)]);
    let put = fixture.put("b", pattern(5000)).await.unwrap();
    assert_eq!(put.receipt.transport, Some(Transport::ExecRaw));
    assert_eq!(put.receipt.skipped.len(), 1);
}

#[tokio::test(start_paused = true)] // paused clock
async fn a_broken_write_starts_again_or_continues() {
    let fixture = fixture();
    fixture.fake.script(
        Call::Write,
        [Fault::Break(3000, LOST_CONNECTION), Fault::Stall(100)],
    );
    let put = fixture.put("a", pattern(5000)).await.unwrap();
    assert_eq!((put.receipt.attempts, put.receipt.resumed), (3, false));
    fixture.fake.resuming(Transport::Files);
    let content: Vec<u8> = pattern(200_000);
    fixture.fake.script(
        Call::Write,
        [
            Fault::Break(70_000, LOST_CONNECTION),
            Fault::Lost(LOST_CONNECTION),
        ],
    );
    let put = fixture.put("b", content.clone()).await.unwrap();
    assert_eq!((put.receipt.attempts, put.receipt.resumed), (3, true));
    assert_eq!(fixture.fake.content("/work/b").unwrap(), content);
    assert_eq!(
        fixture.fake.count(Call::Write),
        3 + 2,
        "the third attempt has no bytes to write"
    );
    assert_eq!(fixture.work(), ["a", "b"]);
}

#[tokio::test(start_paused = true)] // paused clock
async fn r_13_a_failed_put_leaves_no_file_behind() {
    let fixture = fixture();
    fixture.fake.capacity(3000);
    let failed = fixture.put("a", pattern(5000)).await.unwrap_err();
    assert_eq!(
        (failed.error.kind(), failed.receipt.attempts),
        (ErrorKind::NoSpace, 1)
    );
    for kind in [ErrorKind::PermissionDenied, ErrorKind::ReadOnly] {
        fixture.fake.script(Call::Write, [Fault::Break(10, kind)]);
        assert_eq!(
            fixture
                .put("a", pattern(2000))
                .await
                .unwrap_err()
                .error
                .kind(),
            kind
        );
    }
    assert_eq!(fixture.work(), Vec::<String>::new());
}

#[tokio::test(start_paused = true)] // paused clock
async fn a_temporary_file_that_cannot_be_removed_is_reported() {
    let fixture = fixture();
    let removal_fails = vec![Fault::Fail(ErrorKind::PermissionDenied); 2];
    fixture
        .fake
        .script(Call::Write, [Fault::Break(10, ErrorKind::NoSpace)]);
    fixture.fake.script(Call::Remove, removal_fails);
    let failed = fixture.put("a", pattern(2000)).await.unwrap_err();
    assert_eq!(failed.left, [path("/work/.a.op1.1.part")]);
    assert!(failed.to_string().contains(".a.op1.1.part is left behind"));
    assert_eq!(fixture.work(), [".a.op1.1.part"]);
    // The next run of the same operation finds and removes the temporary file.
    fixture.put("a", pattern(2000)).await.unwrap();
    assert_eq!(fixture.work(), ["a"]);
}

#[tokio::test(start_paused = true)] // paused clock
async fn a_later_worker_removes_the_temporary_files_of_earlier_ones() {
    let mut fixture = fixture();
    fixture.fake.file("/work/.a.op1.2.part", "half");
    // A worker that was killed in its second attempt left this one.
    fixture.fake.file("/work/.a.op1.1.2.part", "half");
    fixture
        .fake
        .file("/work/.a.op9.2.part", "of another operation");
    fixture.epoch = 3;
    fixture.put("a", "whole").await.unwrap();
    assert_eq!(fixture.work(), [".a.op9.2.part", "a"]);
}

#[tokio::test(start_paused = true)] // paused clock
async fn without_digests_the_file_is_read_back() {
    let fixture = fixture();
    fixture.fake.digests(Digests::Missing);
    let put = fixture.put("a", pattern(5000)).await.unwrap();
    assert_eq!(put.receipt.integrity, Some(Integrity::Sha256After));
    assert!(fixture.put("a", pattern(5000)).await.unwrap().existed);
    fixture.fake.script(Call::Write, [Fault::Flip(3)]);
    assert_eq!(
        fixture
            .put("b", pattern(5000))
            .await
            .unwrap()
            .receipt
            .attempts,
        2
    );
    fixture.fake.digests(Digests::Cksum);
    fixture.fake.script(Call::Write, [Fault::Flip(3)]);
    let put = fixture.put("c", pattern(5000)).await.unwrap();
    assert_eq!(
        (put.receipt.integrity, put.receipt.attempts),
        (Some(Integrity::Weak), 2)
    );
}

#[tokio::test(start_paused = true)] // paused clock
async fn cancelling_stops_the_write_and_removes_its_file() {
    let fixture = fixture();
    fixture.fake.script(Call::Write, [Fault::Stall(1024)]);
    let (cancel, source) = (CancellationToken::new(), BytesSource::new(pattern(5000)));
    let stop = async {
        until(|| fixture.fake.count(Call::Write) == 1 && !fixture.work().is_empty()).await;
        cancel.cancel();
    };
    let (put, ()) = join(fixture.put_until("/work", b"a", &source, &cancel), stop).await;
    let failed = put.unwrap_err();
    assert!(failed.cancelled && failed.left.is_empty());
    assert_eq!(failed.to_string(), "cancelled");
    assert_eq!(fixture.work(), Vec::<String>::new());
}

#[tokio::test(start_paused = true)] // paused clock
async fn a_put_that_is_dropped_removes_its_temp_file() {
    let fixture = fixture();
    fixture.fake.script(Call::Write, [Fault::Stall(1024)]);
    let source = BytesSource::new(pattern(5000));
    {
        let mut put = Box::pin(fixture.put_from("/work", b"a", &source));
        let written = until(|| !fixture.work().is_empty());
        tokio::select! {
            biased;
            () = written => {}
            _ = &mut put => panic!("the write must stall"),
        }
    }
    until(|| fixture.work().is_empty()).await;
}

#[tokio::test(start_paused = true)] // paused clock
async fn temporary_files_of_a_killed_process_are_removed_by_a_later_put() {
    let mut fixture = fixture();
    fixture.epoch = 1_763_000_600_000;
    fixture.fake.file("/work/.a.op9.1763000000000.part", "half");
    fixture
        .fake
        .file("/work/.a.op9.1763000000000.2.part", "half");
    fixture.fake.file("/work/.video.part", "not ours");
    fixture.fake.advance(std::time::Duration::from_mins(11));
    fixture
        .fake
        .file("/work/.b.op8.1763000590000.part", "of a live one");
    fixture.put("c", "abc").await.unwrap();
    assert_eq!(
        fixture.work(),
        [".b.op8.1763000590000.part", ".video.part", "c"]
    );
    // Leftovers are removed once for each engine and directory.
    fixture.put("d", "abc").await.unwrap();
    assert_eq!(fixture.fake.count(Call::List), 1);
}

#[tokio::test(start_paused = true)] // paused clock
async fn a_missing_directory_is_created_where_policy_permits_it() {
    let fixture = fixture();
    fixture.fake.link("/work/out", "/home/agent");
    fixture.fake.file("/work/file", "x");
    let source = BytesSource::new("abc");
    let put = fixture
        .put_from("/work/up/loads", b"a", &source)
        .await
        .unwrap();
    assert_eq!(put.path, path("/work/up/loads/a"));
    for (directory, expected) in [
        ("/work/out", ErrorKind::OutsideRoot),
        ("/work/out/new", ErrorKind::OutsideRoot),
        ("/work/../tmp", ErrorKind::OutsideRoot),
        ("/work/.ssh", ErrorKind::DeniedPath),
        ("/work/file", ErrorKind::NotDirectory),
        ("/work/file/x", ErrorKind::NotDirectory),
    ] {
        let failed = fixture
            .put_from(directory, b"a", &source)
            .await
            .unwrap_err();
        assert_eq!(failed.error.kind(), expected, "{directory}");
    }
    assert_eq!(fixture.fake.count(Call::MakeDirectory), 1);
    assert!(
        fixture
            .fake
            .paths()
            .iter()
            .all(|path| !path.starts_with("/home/agent/"))
    );
}

/// A source whose content differs from its announced size or digest.
struct LyingSource {
    size: u64,
    sha256: Sha256Digest,
    content: Vec<Result<Bytes, ErrorKind>>,
}

#[async_trait]
impl Source for LyingSource {
    fn size(&self) -> u64 {
        self.size
    }

    async fn sha256(&self) -> Result<Sha256Digest, Error> {
        Ok(self.sha256)
    }

    async fn open(&self, _offset: u64) -> Result<dray_sandbox::Body, Error> {
        let chunks = self.content.clone().into_iter();
        let chunks = chunks.map(|chunk| chunk.map_err(|kind| Error::new(kind, "the store failed")));
        Ok(dray_sandbox::Body::new(futures_util::stream::iter(chunks)))
    }
}

#[tokio::test(start_paused = true)] // paused clock
async fn a_source_with_wrong_content_fails_without_a_second_attempt() {
    let fixture = fixture();
    let abc = Bytes::from_static(b"abc");
    for (size, sha256, content, expected) in [
        (3, "abd", vec![Ok(abc.clone())], ErrorKind::Corrupted),
        (4, "abc", vec![Ok(abc.clone())], ErrorKind::Truncated),
        (2, "ab", vec![Ok(abc.clone())], ErrorKind::Corrupted),
        (
            4,
            "abcd",
            vec![Ok(abc), Err(ErrorKind::Unavailable)],
            ErrorKind::Unavailable,
        ),
    ] {
        let writes = fixture.fake.count(Call::Write);
        let source = LyingSource {
            size,
            sha256: Sha256Digest::of(sha256.as_bytes()),
            content,
        };
        let failed = fixture.put_from("/work", b"a", &source).await.unwrap_err();
        assert_eq!(failed.error.kind(), expected);
        assert_eq!(failed.receipt.skipped, []);
        assert_eq!(
            fixture.fake.count(Call::Write),
            writes + 1,
            "the write was repeated"
        );
        assert_eq!(fixture.work(), Vec::<String>::new());
    }
}

#[tokio::test(start_paused = true)] // paused clock
async fn a_sandbox_that_died_is_reported_without_leftover_files() {
    let fixture = fixture();
    fixture
        .fake
        .script(Call::Fingerprint, [Fault::Before(Change::EndSandbox)]);
    let failed = fixture.put("a", "abc").await.unwrap_err();
    assert_eq!(failed.error.kind(), ErrorKind::SandboxGone);
    assert!(failed.left.is_empty());
}

#[tokio::test(start_paused = true)] // paused clock
async fn too_little_space_is_noticed_before_the_write() {
    let fixture = fixture();
    fixture.fake.capacity(1 << 20);
    let failed = fixture.put("a", vec![0; 33 << 20]).await.unwrap_err();
    assert_eq!(failed.error.kind(), ErrorKind::NoSpace);
    assert_eq!(fixture.fake.count(Call::Write), 0);
}

#[tokio::test(start_paused = true)] // paused clock
async fn control_calls_are_retried_unless_the_error_is_final() {
    let fixture = fixture();
    fixture
        .fake
        .script(Call::Stat, vec![Fault::Fail(LOST_CONNECTION); 2]);
    fixture
        .fake
        .script(Call::Fingerprint, [Fault::Fail(LOST_CONNECTION)]);
    let put = fixture.put("a", "abc").await.unwrap();
    assert_eq!(put.receipt.attempts, 1);
    fixture
        .fake
        .script(Call::Stat, [Fault::Fail(ErrorKind::PermissionDenied)]);
    let failed = fixture.put("b", "abc").await.unwrap_err();
    assert_eq!(failed.error.kind(), ErrorKind::PermissionDenied);
    fixture
        .fake
        .script(Call::Stat, vec![Fault::Fail(LOST_CONNECTION); 9]);
    assert_eq!(
        fixture.put("b", "abc").await.unwrap_err().error.kind(),
        LOST_CONNECTION
    );
}

#[tokio::test(start_paused = true)] // paused clock
async fn modes_never_include_set_id_bits() {
    let fixture = fixture();
    let options = PutOptions {
        policy: &fixture.policy,
        collision: Collision::Rename,
        mode: 0o6755,
        operation: "op1",
        epoch: 1,
    };
    let (source, cancel) = (BytesSource::new("abc"), CancellationToken::new());
    let put = fixture
        .engine
        .put(&path("/work"), b"a", &source, &options, &(), &cancel)
        .await;
    put.unwrap();
    assert_eq!(fixture.fake.mode("/work/a"), Some(0o755));
}

#[tokio::test(start_paused = true)] // paused clock
async fn listing_and_removing_obey_policy() {
    let fixture = fixture();
    fixture.fake.file("/work/a", "1");
    fixture.fake.file("/work/.env", "KEY=1");
    fixture.fake.link("/work/out", "/home/agent");
    fixture.fake.file("/home/agent/x", "x");
    let options = ListOptions {
        policy: &fixture.policy,
        depth: 1,
        limit: 10,
    };
    let listing = fixture.engine.list(&path("/work"), &options).await.unwrap();
    let names: Vec<_> = listing
        .entries
        .iter()
        .map(|entry| entry.path.name())
        .collect();
    assert_eq!(names, [&b"a"[..], b"out"]);
    assert_eq!(listing.entries[1].kind, FileKind::Symlink);
    assert_eq!(listing.denied, 1);
    let list = |directory| {
        let (engine, directory) = (&fixture.engine, path(directory));
        async move { engine.list(&directory, &options).await.unwrap_err().kind() }
    };
    assert_eq!(list("/work/out").await, ErrorKind::OutsideRoot);
    assert_eq!(list("/work/a").await, ErrorKind::NotDirectory);
    let remove = |file| {
        let (engine, policy, file) = (&fixture.engine, &fixture.policy, path(file));
        async move {
            engine
                .remove(policy, &file, true)
                .await
                .map_err(|error| error.kind())
        }
    };
    assert_eq!(remove("/work/out/x").await, Err(ErrorKind::OutsideRoot));
    assert_eq!(remove("/work").await, Err(ErrorKind::OutsideRoot));
    let nested = Policy::beneath([path("/work"), path("/work/in/uploads")]);
    fixture.fake.directory("/work/in");
    fixture.fake.directory("/work/in/uploads");
    let parent = path("/work/in");
    let removed = fixture.engine.remove(&nested, &parent, true);
    assert_eq!(removed.await.unwrap_err().kind(), ErrorKind::OutsideRoot);
    assert_eq!(remove("/work/in").await, Ok(()));
    assert_eq!(remove("/work/out").await, Ok(()));
    assert_eq!(remove("/work/a").await, Ok(()));
    assert_eq!(fixture.fake.content("/home/agent/x").unwrap(), "x");
    assert_eq!(fixture.work(), [".env"]);
}

#[tokio::test(start_paused = true)] // paused clock
async fn an_overwrite_gives_a_file_with_the_same_content_its_mode() {
    let fixture = fixture();
    fixture.fake.file("/work/run.sh", "true");
    let put = async |collision, mode| {
        let options = PutOptions {
            policy: &fixture.policy,
            collision,
            mode,
            operation: "op1",
            epoch: 1,
        };
        let (source, cancel) = (BytesSource::new("true"), CancellationToken::new());
        let directory = path("/work");
        let put = fixture
            .engine
            .put(&directory, b"run.sh", &source, &options, &(), &cancel);
        put.await.unwrap().existed
    };
    // Nothing is replaced: the file stays as it is.
    assert!(put(Collision::Rename, 0o755).await);
    assert_eq!(fixture.fake.mode("/work/run.sh"), Some(0o644));
    assert!(!put(Collision::Overwrite, 0o755).await);
    assert_eq!(fixture.fake.mode("/work/run.sh"), Some(0o755));
    assert!(put(Collision::Overwrite, 0o755).await);
    assert_eq!(fixture.work(), ["run.sh"]);
}
