//! Tests of files that were not written for a while: their times are evidence, as long as they are reliable.

use dray_sandbox::metadata::{Integrity, Transport};
use dray_sandbox_conformance::fake::{Call, Change, Digests, Fault};
use proptest::collection::vec;
use proptest::prelude::*;

use super::get::other;
use super::*;

/// A fixture with a settled `/work/a` of 5000 bytes, in which small files are digested and others need not be.
fn settled_fixture(transport: Transport) -> EngineFixture {
    let fake = Fake::new();
    fake.file("/work/a", pattern(5000));
    fake.transports(&[transport]);
    fake.settle();
    let options = EngineOptions {
        digest_always_up_to: 4000,
        ..EngineOptions::default()
    };
    EngineFixture::with(fake, options)
}

#[tokio::test(start_paused = true)] // paused clock
async fn an_unchanged_file_is_not_read_twice() {
    for transport in [Transport::Archive, Transport::Sftp, Transport::ExecRaw] {
        let fixture = settled_fixture(transport);
        let (got, _) = fixture.got("/work/a").await;
        assert_eq!(got.receipt.integrity, Some(Integrity::SizeMtime));
        assert_eq!(fixture.fake.count(Call::Fingerprint), 0);
        assert_eq!(fixture.fake.count(Call::State), 2);
    }
}

/// A fixture with a settled `/work/a` of 5000 bytes, in which every file is digested, and those above 4000 bytes only
/// once.
fn watched_fixture() -> EngineFixture {
    let fake = Fake::new();
    fake.file("/work/a", pattern(5000));
    fake.settle();
    let options = EngineOptions {
        digest_twice_up_to: 4000,
        ..EngineOptions::default()
    };
    EngineFixture::with(fake, options)
}

#[tokio::test(start_paused = true)] // paused clock
async fn an_unchanged_large_file_is_digested_once_during_the_copy() {
    let fixture = watched_fixture();
    let (got, _) = fixture.got("/work/a").await;
    assert_eq!(got.receipt.integrity, Some(Integrity::Sha256Beside));
    assert_eq!(fixture.fake.count(Call::Fingerprint), 1);
    assert_eq!(fixture.fake.count(Call::State), 2);
    assert_eq!(fixture.fake.count(Call::Stat), 1);
    // A smaller file, and one that was written just now, are digested before and after.
    fixture.fake.file("/work/small", pattern(4000));
    for file in ["/work/small", "/work/new"] {
        fixture.fake.file("/work/new", other(5000));
        let before = fixture.fake.count(Call::Fingerprint);
        let (got, _) = fixture.got(file).await;
        assert_eq!(got.receipt.integrity, Some(Integrity::Sha256));
        assert_eq!(fixture.fake.count(Call::Fingerprint), before + 2);
    }
}

#[tokio::test(start_paused = true)] // paused clock
async fn r_8_damage_in_transit_is_found_by_the_digest_beside_the_copy() {
    let fixture = watched_fixture();
    fixture.fake.script(Call::Read, [Fault::Flip(4500)]);
    let (got, sink) = fixture.got("/work/a").await;
    assert_eq!(got.receipt.integrity, Some(Integrity::Sha256Beside));
    assert_eq!((got.receipt.attempts, sink.begun), (2, 2));
    let wrong = [Fault::WrongDigest, Fault::WrongDigest];
    fixture.fake.script(Call::Fingerprint, wrong);
    assert_eq!(fixture.refused("/work/a").await.0, ErrorKind::Corrupted);
}

#[tokio::test(start_paused = true)] // paused clock
async fn r_8_a_file_touched_beside_its_digest_is_read_again() {
    let fixture = watched_fixture();
    let meanwhile = Fault::Meanwhile(2048, Change::Rewrite(other(5000)));
    fixture.fake.script(Call::Read, [meanwhile]);
    let (got, sink) = fixture.got("/work/a").await;
    // Now the file was written too recently for its times to be evidence.
    assert_eq!(got.receipt.integrity, Some(Integrity::Sha256));
    assert_eq!((got.receipt.attempts, sink.begun), (2, 2));
}

#[tokio::test(start_paused = true)] // paused clock
async fn without_a_digest_the_receipt_reports_the_proof_by_times() {
    for (digests, integrity) in [
        (Digests::Missing, Integrity::SizeMtime),
        (Digests::Cksum, Integrity::Weak),
    ] {
        let fixture = watched_fixture();
        fixture.fake.digests(digests);
        let (got, _) = fixture.got("/work/a").await;
        assert_eq!(got.receipt.integrity, Some(integrity));
    }
}

#[tokio::test(start_paused = true)] // paused clock
async fn r_8_a_digest_that_fails_beside_the_copy_is_computed_after_it() {
    for transport in [Transport::Files, Transport::ExecRaw, Transport::ExecBase64] {
        let fixture = watched_fixture();
        fixture.fake.transports(&[transport]);
        let failing = Fault::Fail(ErrorKind::Unavailable);
        fixture.fake.script(Call::Fingerprint, [failing.clone()]);
        let (got, _) = fixture.got("/work/a").await;
        assert_eq!(got.receipt.integrity, Some(Integrity::Sha256After));
        assert_eq!(fixture.fake.count(Call::Fingerprint), 2);
        // Damaged bytes are found by the digest after the copy.
        fixture.fake.script(Call::Fingerprint, [failing]);
        fixture.fake.script(Call::Read, [Fault::Flip(4500)]);
        let (got, sink) = fixture.got("/work/a").await;
        assert_eq!((got.receipt.attempts, sink.begun), (2, 2));
    }
}

#[tokio::test(start_paused = true)] // paused clock
async fn r_8_a_large_file_whose_digests_fail_is_not_accepted() {
    let fixture = watched_fixture();
    let failing = Fault::Fail(ErrorKind::Unavailable);
    fixture.fake.script(Call::Fingerprint, vec![failing; 10]);
    let (kind, receipt) = fixture.refused("/work/a").await;
    assert_eq!(
        (kind, receipt.integrity, receipt.attempts),
        (ErrorKind::Unavailable, None, 1)
    );
}

#[tokio::test(start_paused = true)] // paused clock
async fn r_8_text_without_a_digest_is_not_accepted() {
    // The size decides which evidence is collected before the copy.
    for size in [3000, 5000] {
        let fixture = watched_fixture();
        fixture.fake.file("/work/b", pattern(size));
        fixture.fake.settle();
        fixture.fake.transports(&[Transport::ExecBase64]);
        fixture.fake.digests(Digests::Missing);
        fixture.fake.script(Call::Read, [Fault::Flip(2500)]);
        let (kind, receipt) = fixture.refused("/work/b").await;
        assert_eq!((kind, receipt.integrity), (ErrorKind::ToolMissing, None));
        // A checksum is enough.
        fixture.fake.digests(Digests::Cksum);
        let (got, _) = fixture.got("/work/b").await;
        assert_eq!(got.receipt.integrity, Some(Integrity::Weak));
    }
}

#[tokio::test(start_paused = true)] // paused clock
async fn r_10_a_copy_that_continues_as_text_is_digested() {
    let fixture = settled_fixture(Transport::ExecRaw);
    let both = [Transport::ExecRaw, Transport::ExecBase64];
    fixture.fake.transports(&both);
    fixture.fake.resuming(Transport::ExecBase64);
    let faults = [
        Fault::Break(3000, ErrorKind::Unavailable),
        Fault::Flip(4000),
    ];
    fixture.fake.script(Call::Read, faults);
    let (got, _) = fixture.got("/work/a").await;
    assert_eq!(got.receipt.attempts, 3);
}

#[tokio::test(start_paused = true)] // paused clock
async fn a_digest_beside_the_write_replaces_the_digest_after_it() {
    let fixture = watched_fixture();
    fixture.fake.digest_writes();
    let put = fixture.put("b", pattern(5000)).await.unwrap();
    assert_eq!(put.receipt.integrity, Some(Integrity::Sha256Beside));
    assert_eq!(fixture.fake.count(Call::Fingerprint), 0);
    // Bytes that were damaged on the way are found in both directions.
    fixture.fake.script(Call::Write, [Fault::Flip(3)]);
    let put = fixture.put("c", pattern(5000)).await.unwrap();
    assert_eq!(put.receipt.attempts, 2);
    assert_eq!(fixture.fake.content("/work/c"), Some(pattern(5000).into()));
}

#[tokio::test(start_paused = true)] // paused clock
async fn small_files_get_digests_and_so_do_others_on_request() {
    let fixture = settled_fixture(Transport::Archive);
    fixture.fake.file("/work/small", pattern(4000));
    fixture.fake.settle();
    let (got, _) = fixture.got("/work/small").await;
    assert_eq!(got.receipt.integrity, Some(Integrity::Sha256));
    let always = EngineFixture::new(fixture.fake.clone());
    let (got, _) = always.got("/work/a").await;
    assert_eq!(got.receipt.integrity, Some(Integrity::Sha256));
    assert_eq!(fixture.fake.count(Call::State), 0);
}

#[tokio::test(start_paused = true)] // paused clock
async fn a_file_written_just_now_gets_digests() {
    let fixture = settled_fixture(Transport::Archive);
    fixture.fake.file("/work/a", other(5000));
    let (got, _) = fixture.got("/work/a").await;
    assert_eq!(got.receipt.integrity, Some(Integrity::Sha256));
}

#[tokio::test(start_paused = true)] // paused clock
async fn digests_are_taken_where_times_are_not_reported_or_text_is_decoded() {
    for transport in [Transport::Files, Transport::ExecBase64] {
        let fixture = settled_fixture(transport);
        let (got, _) = fixture.got("/work/a").await;
        assert_eq!(got.receipt.integrity, Some(Integrity::Sha256));
        assert_eq!(fixture.fake.count(Call::State), 0);
    }
    let fixture = settled_fixture(Transport::Archive);
    let missing = Fault::Fail(ErrorKind::ToolMissing);
    fixture.fake.script(Call::State, [missing]);
    let (got, _) = fixture.got("/work/a").await;
    assert_eq!(got.receipt.integrity, Some(Integrity::Sha256));
}

#[tokio::test(start_paused = true)] // paused clock
async fn r_8_a_file_touched_meanwhile_is_read_again_and_digested() {
    for change in [
        Change::Rewrite(other(5000)),
        Change::Rewrite(other(9000)),
        Change::Replace(other(5000)),
        // The same bytes are written again: the times do not show it.
        Change::Rewrite(pattern(5000).into()),
    ] {
        let fixture = settled_fixture(Transport::Archive);
        let meanwhile = Fault::Meanwhile(2048, change);
        fixture.fake.script(Call::Read, [meanwhile]);
        let (got, sink) = fixture.got("/work/a").await;
        assert_eq!(got.receipt.integrity, Some(Integrity::Sha256));
        assert_eq!((got.receipt.attempts, sink.begun), (2, 2));
    }
}

#[tokio::test(start_paused = true)] // paused clock
async fn r_8_a_file_that_is_removed_during_the_copy_is_not_found() {
    let fixture = settled_fixture(Transport::Archive);
    let remove = Fault::Meanwhile(5000, Change::Remove);
    fixture.fake.script(Call::Read, [remove]);
    assert_eq!(fixture.refused("/work/a").await.0, ErrorKind::NotFound);
}

#[tokio::test(start_paused = true)] // paused clock
async fn r_2_a_file_that_is_replaced_before_its_state_is_read_gets_digests() {
    let fixture = settled_fixture(Transport::Archive);
    let swap = Fault::Before(Change::Replace(other(6000)));
    fixture.fake.script(Call::State, [swap]);
    let (got, _) = fixture.got("/work/a").await;
    assert_eq!(got.receipt.integrity, Some(Integrity::Sha256));
}

#[tokio::test(start_paused = true)] // paused clock
async fn a_file_that_the_user_of_the_sandbox_may_not_read_is_not_read() {
    let fixture = settled_fixture(Transport::Archive);
    let denied = Fault::Fail(ErrorKind::PermissionDenied);
    fixture.fake.script(Call::State, [denied]);
    let (kind, receipt) = fixture.refused("/work/a").await;
    assert_eq!((kind, receipt.attempts), (ErrorKind::PermissionDenied, 0));
}

#[tokio::test(start_paused = true)] // paused clock
async fn a_state_that_cannot_be_read_after_the_copy_is_read_again_without_a_copy() {
    let fixture = settled_fixture(Transport::Archive);
    let lost = Fault::Lost(ErrorKind::Unavailable);
    fixture.fake.script(Call::State, [Fault::None, lost]);
    let (got, sink) = fixture.got("/work/a").await;
    assert_eq!(got.receipt.integrity, Some(Integrity::SizeMtime));
    assert_eq!((got.receipt.attempts, sink.begun), (1, 1));
    assert_eq!(fixture.fake.count(Call::State), 3);
}

#[tokio::test(start_paused = true)] // paused clock
async fn a_sandbox_without_a_check_after_the_copy_proves_no_transfer() {
    let fixture = settled_fixture(Transport::Archive);
    let missing = Fault::Fail(ErrorKind::ToolMissing);
    fixture.fake.script(Call::State, [Fault::None, missing]);
    let (kind, receipt) = fixture.refused("/work/a").await;
    assert_eq!((kind, receipt.integrity), (ErrorKind::ToolMissing, None));
}

#[tokio::test(start_paused = true)] // paused clock
async fn r_10_a_continued_copy_is_compared_with_the_state_before_its_first_byte() {
    let fixture = settled_fixture(Transport::Sftp);
    fixture.fake.resuming(Transport::Sftp);
    let fault = Fault::Break(3000, ErrorKind::Unavailable);
    fixture.fake.script(Call::Read, [fault]);
    let (got, sink) = fixture.got("/work/a").await;
    assert!(got.receipt.resumed);
    assert_eq!((got.receipt.attempts, sink.begun), (2, 1));
    assert_eq!(got.receipt.integrity, Some(Integrity::SizeMtime));
    assert_eq!(fixture.fake.count(Call::State), 2);
}

#[tokio::test(start_paused = true)] // paused clock
async fn a_large_written_file_of_the_right_size_gets_no_digest() {
    let fixture = settled_fixture(Transport::Archive);
    let put = fixture.put("b", pattern(5000)).await.unwrap();
    assert_eq!(put.receipt.integrity, Some(Integrity::SizeMtime));
    assert_eq!(put.receipt.atomic, Some(true));
    assert_eq!(fixture.fake.count(Call::Fingerprint), 0);
    let small = fixture.put("c", pattern(4000)).await.unwrap();
    assert_eq!(small.receipt.integrity, Some(Integrity::Sha256After));
}

#[tokio::test(start_paused = true)] // paused clock
async fn r_8_a_written_file_of_another_size_is_digested_and_not_published() {
    let fixture = settled_fixture(Transport::Archive);
    fixture.fake.script(Call::State, [Fault::Size(4999)]);
    let put = fixture.put("b", pattern(5000)).await.unwrap();
    // The digest shows that the file is complete.
    assert_eq!(put.receipt.integrity, Some(Integrity::Sha256After));
    fixture
        .fake
        .script(Call::State, [Fault::Size(1), Fault::Size(1)]);
    let wrong = [Fault::WrongDigest, Fault::WrongDigest];
    fixture.fake.script(Call::Fingerprint, wrong);
    let failed = fixture.put("c", pattern(5001)).await.unwrap_err();
    assert_eq!(failed.error.kind(), ErrorKind::Corrupted);
    assert_eq!(fixture.work(), ["a", "b"]);
}

#[tokio::test(start_paused = true)] // paused clock
async fn r_10_a_file_whose_write_was_continued_is_digested() {
    let fixture = settled_fixture(Transport::Sftp);
    fixture.fake.resuming(Transport::Sftp);
    let fault = Fault::Break(3000, ErrorKind::Unavailable);
    fixture.fake.script(Call::Write, [fault]);
    let put = fixture.put("b", pattern(5000)).await.unwrap();
    assert!(put.receipt.resumed);
    assert_eq!(put.receipt.integrity, Some(Integrity::Sha256After));
}

#[tokio::test(start_paused = true)] // paused clock
async fn the_very_same_file_is_recognised_by_its_digest() {
    let fixture = settled_fixture(Transport::Archive);
    let put = fixture.put("a", pattern(5000)).await.unwrap();
    assert!(put.existed);
    let renamed = fixture.put("a", other(5000)).await.unwrap();
    assert!(renamed.renamed && !renamed.existed);
}

/// Every fault of a read that a sound transport and a correct clock leave possible.
fn read_fault() -> impl Strategy<Value = Fault> {
    let kind = prop::sample::select(vec![
        ErrorKind::Unavailable,
        ErrorKind::Truncated,
        ErrorKind::Timeout,
        ErrorKind::ToolMissing,
        ErrorKind::NotFound,
        ErrorKind::ChangedDuringTransfer,
    ]);
    let content = (0_usize..6000, any::<u8>()).prop_map(|(length, byte)| vec![byte; length]);
    let change = prop_oneof![
        content
            .clone()
            .prop_map(|content| Change::Rewrite(content.into())),
        content.prop_map(|content| Change::Replace(content.into())),
        Just(Change::Remove),
    ];
    prop_oneof![
        4 => Just(Fault::None),
        1 => kind.clone().prop_map(Fault::Fail),
        1 => kind.clone().prop_map(Fault::Lost),
        2 => (0_u64..6000, kind).prop_map(|(at, kind)| Fault::Break(at, kind)),
        2 => (0_u64..6000).prop_map(Fault::ShortEnd),
        4 => (0_u64..6000, change.clone()).prop_map(|(at, change)| Fault::Meanwhile(at, change)),
        2 => change.prop_map(Fault::Before),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(300) })]

    #[test]
    fn r_8_a_read_that_is_checked_by_times_alone_returns_a_content_that_the_file_had(
        sftp in any::<bool>(),
        resumes in any::<bool>(),
        reads in vec(read_fault(), 0..6),
        stats in vec(read_fault(), 0..4),
        states in vec(read_fault(), 0..4),
    ) {
        let scripts = [(Call::Read, reads), (Call::Stat, stats), (Call::State, states)];
        let mut honest = vec![pattern(5000)];
        for fault in scripts.iter().flat_map(|(_, faults)| faults) {
            if let Fault::Meanwhile(_, change) | Fault::Before(change) = fault
                && let Change::Rewrite(content) | Change::Replace(content) = change
            {
                honest.push(content.to_vec());
            }
        }
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .start_paused(true) // paused clock
            .build()
            .unwrap();
        let (got, sink) = runtime.block_on(async {
            let transport = if sftp { Transport::Sftp } else { Transport::Archive };
            let fixture = settled_fixture(transport);
            if resumes {
                fixture.fake.resuming(transport);
            }
            for (call, faults) in scripts {
                fixture.fake.script(call, faults);
            }
            fixture.get("/work/a").await
        });
        if got.is_ok() {
            prop_assert!(honest.contains(&sink.bytes), "bytes that the file never held");
        }
    }
}
