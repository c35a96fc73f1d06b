//! Tests of transfers of whole directories.

use std::time::Duration;

use dray_sandbox::metadata::{FileKind, Integrity, Transport};
use dray_sandbox_conformance::fake::{Call, Change, Fault};
use dray_sandbox_tree::{self as tree, Kind, Members as _, Reader, SkipReason};
use tokio::time::Instant;

use super::*;
use crate::policy::Finding;

fn fixture() -> EngineFixture {
    let fake = Fake::new();
    fake.directory("/work/out");
    fake.directory("/work/out/sub");
    fake.file("/work/out/a.csv", "1,2,3");
    fake.file("/work/out/sub/b.bin", pattern(9000));
    fake.file("/work/out/empty", "");
    EngineFixture::new(fake)
}

async fn get(
    fixture: &EngineFixture,
    directory: &str,
    format: TreeFormat,
) -> (Result<GotTree, TransferFailure>, RecordingSink) {
    let mut sink = RecordingSink::default();
    let options = GetTreeOptions {
        policy: &fixture.policy,
        limits: tree::Limits::default(),
        format,
    };
    let cancel = CancellationToken::new();
    let result = fixture
        .engine
        .get_tree(&path(directory), &options, &mut sink, &(), &cancel)
        .await;
    assert_eq!(fixture.fake.streams(), 0, "a stream stays open");
    assert_eq!(
        (result.is_ok(), result.is_err()),
        (sink.finished.is_some(), sink.aborted)
    );
    (result, sink)
}

/// The names and contents of the files in a tar.
async fn files(tar: Vec<u8>) -> Vec<(String, Vec<u8>)> {
    let mut reader = Reader::new(dray_sandbox::Body::from_bytes(tar), tree::Limits::default());
    let mut files = Vec::new();
    while let Some(member) = reader.next().await.unwrap() {
        let mut content = Vec::new();
        while let Some(chunk) = reader.next_chunk().await.unwrap() {
            content.extend_from_slice(&chunk);
        }
        if member.kind == Kind::File {
            files.push((String::from_utf8(member.name).unwrap(), content));
        }
    }
    files.sort();
    files
}

fn expected_entries() -> Vec<(String, Vec<u8>)> {
    vec![
        ("a.csv".to_owned(), b"1,2,3".to_vec()),
        ("empty".to_owned(), Vec::new()),
        ("sub/b.bin".to_owned(), pattern(9000)),
    ]
}

#[tokio::test(start_paused = true)] // paused clock
async fn a_directory_is_exported_with_and_without_a_tar_of_the_sandbox() {
    for tars in [true, false] {
        let fixture = fixture();
        fixture.fake.tars(tars);
        let (report, sink) = get(&fixture, "/work/out", TreeFormat::Tar).await;
        let report = report.unwrap();
        assert_eq!(report.sha256, Sha256Digest::of(&sink.bytes));
        assert_eq!((report.files, report.size), (3, sink.bytes.len() as u64));
        // Neither digests nor times of the files are compared, so the receipt must not claim them.
        assert_eq!(report.receipt.integrity, Some(Integrity::Sizes));
        assert_eq!((report.skipped.count(), report.receipt.attempts), (0, 1));
        let transport = if tars {
            Transport::ExecRaw
        } else {
            Transport::Files
        };
        assert_eq!(report.receipt.transport, Some(transport));
        assert_eq!(files(sink.bytes).await, expected_entries());
    }
}

#[tokio::test(start_paused = true)] // paused clock
async fn a_directory_is_exported_as_a_zip() {
    let fixture = fixture();
    let (got, sink) = get(&fixture, "/work/out", TreeFormat::Zip).await;
    assert_eq!(got.unwrap().files, 3);
    assert_eq!(&sink.bytes[..4], b"PK\x03\x04");
}

#[tokio::test(start_paused = true)] // paused clock
async fn files_that_policy_refuses_are_left_out_and_reported() {
    for tars in [true, false] {
        let mut fixture = fixture();
        fixture.fake.tars(tars);
        fixture.fake.file("/work/out/.env", "KEY=1");
        fixture.fake.file(
            "/work/out/server.pem",
            format!(
                "{}\n-----BEGIN PRIVATE KEY-----\n",
                "Bag Attributes\n".repeat(40)
            ),
        );
        fixture
            .fake
            .file("/work/out/notes.txt", "AKIAABCDEFGHIJ234567");
        fixture
            .fake
            .file("/work/out/key.txt", "key:\n-----BEGIN PRIVATE KEY-----\n");
        fixture.fake.link("/work/out/link", "/etc/shadow");
        fixture.fake.special("/work/out/pipe", FileKind::Fifo);
        let (report, sink) = get(&fixture, "/work/out", TreeFormat::Tar).await;
        let report = report.unwrap();
        assert_eq!(
            (report.files, report.warning),
            (4, Some(Finding::Token("AWS")))
        );
        let reasons = |report: &GotTree| -> Vec<(String, SkipReason)> {
            let skipped = report.skipped.skipped().into_iter();
            let mut reasons: Vec<_> = skipped
                .map(|skipped| (skipped.name, skipped.reason))
                .collect();
            reasons.sort();
            reasons
        };
        assert!(reasons(&report).contains(&(".env".to_owned(), SkipReason::Denied)));
        assert!(reasons(&report).contains(&("server.pem".to_owned(), SkipReason::Denied)));
        assert!(reasons(&report).contains(&("key.txt".to_owned(), SkipReason::Denied)));
        let text = String::from_utf8_lossy(&sink.bytes).into_owned();
        assert!(!text.contains("KEY=1") && !text.contains("PRIVATE"));
        fixture.policy = fixture.policy.with_content(ContentAction::Block);
        let report = get(&fixture, "/work/out", TreeFormat::Tar).await.0.unwrap();
        assert!(reasons(&report).contains(&("notes.txt".to_owned(), SkipReason::Denied)));
    }
}

#[tokio::test(start_paused = true)] // paused clock
async fn only_permitted_directories_are_exported() {
    let fixture = fixture();
    fixture.fake.link("/work/home", "/home/agent");
    for (directory, expected) in [
        ("/home/agent", ErrorKind::OutsideRoot),
        ("/work/home", ErrorKind::OutsideRoot),
        ("/work/out/a.csv", ErrorKind::NotDirectory),
        ("/work/none", ErrorKind::NotFound),
    ] {
        let failed = get(&fixture, directory, TreeFormat::Zip)
            .await
            .0
            .unwrap_err();
        assert_eq!(failed.error.kind(), expected, "{directory}");
    }
}

#[tokio::test(start_paused = true)] // paused clock
async fn a_broken_tar_is_read_again_and_a_malformed_one_is_replaced_by_a_walk() {
    let fixture = fixture();
    fixture.fake.script(
        Call::ReadTree,
        [
            Fault::Break(3000, ErrorKind::Unavailable),
            Fault::Stall(3000),
            Fault::ShortEnd(3000),
        ],
    );
    let (got, sink) = get(&fixture, "/work/out", TreeFormat::Tar).await;
    assert_eq!((got.unwrap().receipt.attempts, sink.begun), (4, 4));
    assert_eq!(files(sink.bytes).await, expected_entries());
    fixture
        .fake
        .script(Call::ReadTree, [Fault::Break(3000, ErrorKind::Protocol)]);
    let reads = fixture.fake.count(Call::ReadTree);
    let (got, sink) = get(&fixture, "/work/out", TreeFormat::Tar).await;
    got.unwrap();
    assert_eq!(fixture.fake.count(Call::ReadTree), reads + 1);
    assert_eq!(files(sink.bytes).await, expected_entries());
}

#[tokio::test(start_paused = true)] // paused clock
async fn an_entry_that_may_not_be_read_does_not_cost_the_directory() {
    let denied = || Fault::Fail(ErrorKind::PermissionDenied);
    // A mount of a stopped container is listed by no command.
    for (tars, unlisted) in [
        (true, ErrorKind::PermissionDenied),
        (false, ErrorKind::SandboxStopped),
    ] {
        let fixture = fixture();
        let fake = &fixture.fake;
        fake.tars(tars);
        fake.directory("/work/out/locked");
        fake.script(Call::ReadTree, tars.then(denied));
        // First the whole directory is listed, and `a.csv` is the first file that is read.
        fake.script(Call::List, [Fault::None, Fault::Fail(unlisted)]);
        fake.script(Call::Read, [denied()]);
        let (got, sink) = get(&fixture, "/work/out", TreeFormat::Tar).await;
        let skipped = got.unwrap().skipped.skipped();
        let names: Vec<_> = skipped.iter().map(|entry| entry.name.as_str()).collect();
        assert_eq!(names, ["a.csv", "locked"]);
        assert_eq!(skipped[1].reason, SkipReason::Unreadable);
        assert_eq!(files(sink.bytes).await, expected_entries()[1..]);
    }
}

#[tokio::test(start_paused = true)] // paused clock
async fn a_directory_in_which_a_file_keeps_changing_is_walked() {
    let fixture = fixture();
    let changed = Fault::Break(3000, ErrorKind::ChangedDuringTransfer);
    fixture
        .fake
        .script(Call::ReadTree, std::iter::repeat_n(changed, 9));
    let (got, sink) = get(&fixture, "/work/out", TreeFormat::Tar).await;
    assert_eq!(got.unwrap().receipt.transport, Some(Transport::Files));
    assert_eq!(files(sink.bytes).await, expected_entries());
}

#[tokio::test(start_paused = true)] // paused clock
async fn a_tree_above_the_total_limit_is_refused() {
    let fixture = fixture();
    let options = GetTreeOptions {
        policy: &fixture.policy,
        limits: tree::Limits {
            total: 8000,
            ..tree::Limits::default()
        },
        format: TreeFormat::Zip,
    };
    let (mut sink, cancel) = (RecordingSink::default(), CancellationToken::new());
    let result = fixture
        .engine
        .get_tree(&path("/work/out"), &options, &mut sink, &(), &cancel)
        .await;
    assert_eq!(result.unwrap_err().error.kind(), ErrorKind::TooLarge);
    assert!(sink.aborted);
}

async fn put(
    fixture: &EngineFixture,
    directory: &str,
    tar: Vec<u8>,
) -> Result<PutTree, TransferFailure> {
    let options = PutTreeOptions {
        policy: &fixture.policy,
        limits: tree::Limits::default(),
        operation: "op1",
        epoch: 1,
    };
    let (source, cancel) = (BytesSource::new(tar), CancellationToken::new());
    let put = fixture
        .engine
        .put_tree(&path(directory), &source, &options, &(), &cancel)
        .await;
    assert_eq!(fixture.fake.streams(), 0, "a stream stays open");
    put
}

/// A tar of `/work/out`, and a fixture with an empty `/work/in`.
async fn tar_fixture() -> (Vec<u8>, EngineFixture) {
    let fixture = fixture();
    let (_, sink) = get(&fixture, "/work/out", TreeFormat::Tar).await;
    let fake = Fake::new();
    fake.directory("/work/in");
    (sink.bytes, EngineFixture::new(fake))
}

#[tokio::test(start_paused = true)] // paused clock
async fn a_tar_is_unpacked_by_the_sandbox_or_file_by_file() {
    for tars in [true, false] {
        let (tar, fixture) = tar_fixture().await;
        fixture.fake.tars(tars);
        let put = put(&fixture, "/work/in", tar.clone()).await.unwrap();
        assert_eq!((put.files, put.path), (3, path("/work/in")));
        for (name, content) in expected_entries() {
            assert_eq!(
                fixture.fake.content(&format!("/work/in/{name}")).unwrap(),
                content
            );
        }
        let receipt = put.receipt;
        assert_eq!(
            (receipt.bytes, receipt.atomic),
            (tar.len() as u64, Some(false))
        );
        let (integrity, transport) = if tars {
            (Integrity::SizeMtime, Transport::ExecRaw)
        } else {
            (Integrity::Sha256After, Transport::Files)
        };
        assert_eq!(receipt.integrity, Some(integrity));
        assert_eq!(receipt.transport, Some(transport));
    }
}

#[tokio::test(start_paused = true)] // paused clock
async fn a_malformed_tar_leaves_the_transport_of_the_walk_in_the_receipt() {
    let fixture = fixture();
    fixture
        .fake
        .script(Call::ReadTree, [Fault::Break(3000, ErrorKind::Protocol)]);
    let (got, _) = get(&fixture, "/work/out", TreeFormat::Tar).await;
    assert_eq!(got.unwrap().receipt.transport, Some(Transport::Files));
}

#[tokio::test(start_paused = true)] // paused clock
async fn a_tar_without_files_has_no_proof() {
    for tars in [true, false] {
        let fake = Fake::new();
        fake.directory("/work/out");
        fake.directory("/work/out/sub");
        fake.directory("/work/in");
        fake.tars(tars);
        let fixture = EngineFixture::new(fake);
        let (_, sink) = get(&fixture, "/work/out", TreeFormat::Tar).await;
        let put = put(&fixture, "/work/in", sink.bytes).await.unwrap();
        assert!(fixture.work().contains(&"in/sub".to_owned()));
        assert_eq!((put.files, put.receipt.integrity), (0, None));
        let transport = tars.then_some(Transport::ExecRaw);
        assert_eq!(put.receipt.transport, transport);
    }
}

#[tokio::test(start_paused = true)] // paused clock
async fn r_8_a_tar_that_is_reported_unpacked_too_early_is_sent_again() {
    let (tar, fixture) = tar_fixture().await;
    fixture
        .fake
        // The directory, the missing `sub`, and then the first file.
        .script(Call::Stat, vec![Fault::None, Fault::None, Fault::Size(4)]);
    let put_once = put(&fixture, "/work/in", tar.clone()).await.unwrap();
    assert_eq!(put_once.receipt.attempts, 2);
    fixture
        .fake
        .script(Call::WriteTree, [Fault::Lost(ErrorKind::Unavailable)]);
    assert_eq!(
        put(&fixture, "/work/in", tar)
            .await
            .unwrap()
            .receipt
            .attempts,
        2
    );
}

#[tokio::test(start_paused = true)] // paused clock
async fn a_truncated_tar_fails_without_a_second_attempt() {
    for tars in [true, false] {
        let (mut tar, fixture) = tar_fixture().await;
        fixture.fake.tars(tars);
        tar.truncate(3000);
        let failed = put(&fixture, "/work/in", tar).await.unwrap_err();
        assert_eq!(failed.error.kind(), ErrorKind::Truncated);
        assert_eq!(fixture.fake.count(Call::WriteTree), 0);
    }
}

#[tokio::test(start_paused = true)] // paused clock
async fn a_tar_is_unpacked_only_into_permitted_directories() {
    let (tar, fixture) = tar_fixture().await;
    fixture.fake.link("/work/home", "/home/agent");
    for (directory, expected) in [
        ("/work/home", ErrorKind::OutsideRoot),
        ("/tmp", ErrorKind::OutsideRoot),
        ("/work/none", ErrorKind::NotFound),
    ] {
        let failed = put(&fixture, directory, tar.clone()).await.unwrap_err();
        assert_eq!(failed.error.kind(), expected, "{directory}");
    }
}

#[tokio::test(start_paused = true)] // paused clock
async fn only_the_file_above_the_total_limit_is_left_out() {
    let fixture = fixture();
    // The zeros of a sparse file use no space on a disk, but their full size in a tar.
    fixture.fake.file("/work/out/sparse.img", vec![0; 4 << 20]);
    let options = GetTreeOptions {
        policy: &fixture.policy,
        limits: tree::Limits {
            total: 2 << 20,
            file: 1 << 20,
            ..tree::Limits::default()
        },
        format: TreeFormat::Tar,
    };
    let (mut sink, cancel) = (RecordingSink::default(), CancellationToken::new());
    let result = fixture
        .engine
        .get_tree(&path("/work/out"), &options, &mut sink, &(), &cancel)
        .await
        .unwrap();
    assert_eq!(result.files, 3);
    let reasons: Vec<_> = result
        .skipped
        .skipped()
        .into_iter()
        .map(|left| (left.name, left.reason))
        .collect();
    assert_eq!(reasons, [("sparse.img".to_owned(), SkipReason::TooLarge)]);
}

#[tokio::test(start_paused = true)] // paused clock
async fn a_tar_goes_through_no_link_that_leads_out_of_the_roots() {
    for tars in [true, false] {
        let (tar, fixture) = tar_fixture().await;
        fixture.fake.tars(tars);
        fixture.fake.link("/work/in/sub", "/home/agent");
        let put = put(&fixture, "/work/in", tar).await.unwrap();
        let skipped: Vec<_> = put
            .skipped
            .skipped()
            .into_iter()
            .map(|skipped| (skipped.name, skipped.reason))
            .collect();
        let denied = |name: &str| (name.to_owned(), SkipReason::Denied);
        assert_eq!(skipped, [denied("sub"), denied("sub/b.bin")]);
        assert_eq!(put.files, 2);
        assert_eq!(fixture.fake.content("/work/in/a.csv").unwrap(), "1,2,3");
        assert_eq!(fixture.fake.content("/home/agent/b.bin"), None);
        assert_eq!(fixture.fake.content("/work/in/sub/b.bin"), None);
    }
}

#[tokio::test(start_paused = true)] // paused clock
async fn a_tar_goes_through_a_link_that_stays_in_the_roots() {
    let (tar, fixture) = tar_fixture().await;
    fixture.fake.directory("/work/other");
    fixture.fake.link("/work/in/sub", "/work/other");
    let put = put(&fixture, "/work/in", tar).await.unwrap();
    assert_eq!((put.files, put.skipped.count()), (3, 0));
    assert_eq!(
        fixture.fake.content("/work/other/b.bin").unwrap(),
        pattern(9000)
    );
}

#[tokio::test(start_paused = true)] // paused clock
async fn a_link_that_appears_while_a_tar_is_unpacked_is_reported() {
    let (tar, fixture) = tar_fixture().await;
    fixture.fake.directory("/work/other");
    fixture.fake.file("/work/other/a.csv", "1,2,3");
    let became_link = Fault::Before(Change::Link(path("/work/other")));
    fixture.fake.script(Call::WriteTree, [became_link]);
    let failed = put(&fixture, "/work/in", tar).await.unwrap_err();
    assert_eq!(failed.error.kind(), ErrorKind::ChangedDuringTransfer);
}

#[tokio::test(start_paused = true)] // paused clock
async fn a_failed_look_at_an_unpacked_file_is_repeated_and_reported_as_itself() {
    let (tar, fixture) = tar_fixture().await;
    let fails_at_first_file = |kind| [Fault::None, Fault::None, Fault::Fail(kind)];
    fixture
        .fake
        .script(Call::Stat, fails_at_first_file(ErrorKind::Unavailable));
    let put_once = put(&fixture, "/work/in", tar.clone()).await.unwrap();
    assert_eq!(put_once.files, 3);
    assert_eq!(fixture.fake.count(Call::WriteTree), 1);
    fixture
        .fake
        .script(Call::Stat, fails_at_first_file(ErrorKind::SandboxGone));
    let failed = put(&fixture, "/work/in", tar).await.unwrap_err();
    assert_eq!(failed.error.kind(), ErrorKind::SandboxGone);
}

#[tokio::test(start_paused = true)] // paused clock
async fn a_small_directory_leaves_a_sandbox_that_ends_soon() {
    let fixture = fixture();
    fixture.fake.life(Duration::from_secs(90));
    let (got, sink) = get(&fixture, "/work/out", TreeFormat::Tar).await;
    got.unwrap();
    assert_eq!(files(sink.bytes).await, expected_entries());
}

#[tokio::test(start_paused = true)] // paused clock
async fn a_walk_waits_for_each_response_for_a_limited_time() {
    for call in [Call::Stat, Call::Read] {
        let fixture = fixture();
        fixture.fake.tars(false);
        // The first `stat` is that of the directory.
        let hangs = std::iter::repeat_n(Fault::Hang, 20);
        let hangs = hangs.flat_map(|hang| [Fault::None, hang]);
        fixture.fake.script(call, hangs);
        let started = Instant::now();
        let failed = get(&fixture, "/work/out", TreeFormat::Tar).await.0;
        assert_eq!(failed.unwrap_err().error.kind(), ErrorKind::Timeout);
        // Five attempts of a minute; the clock is paused.
        assert!(started.elapsed() < Duration::from_mins(6));
    }
}
