//! Tests of files that are read from sandboxes.

use std::time::Duration;

use dray_sandbox::metadata::{Integrity, Transport};
use dray_sandbox_conformance::fake::{Call, Change, Digests, Fault};
use tokio::time::Instant;

use super::*;
use crate::receipt::SkippedTransport;

const CHANGED_FILE: ErrorKind = ErrorKind::ChangedDuringTransfer;

/// A fixture with `/work/a` of 5000 bytes.
pub(super) fn fixture() -> EngineFixture {
    let fake = Fake::new();
    fake.file("/work/a", pattern(5000));
    EngineFixture::new(fake)
}

pub(super) fn other(length: usize) -> Bytes {
    pattern(length)
        .iter()
        .rev()
        .copied()
        .collect::<Vec<u8>>()
        .into()
}

#[tokio::test(start_paused = true)] // paused clock
async fn r_14_a_file_arrives_whole_with_three_equal_digests() {
    let fixture = fixture();
    let (got, sink) = fixture.got("/work/a").await;
    assert_eq!((got.size, sink.begun), (5000, 1));
    let receipt = got.receipt;
    assert_eq!(receipt.integrity, Some(Integrity::Sha256));
    assert_eq!(receipt.transport, Some(Transport::Files));
    assert_eq!(
        (receipt.attempts, receipt.bytes, receipt.resumed),
        (1, 5000, false)
    );
    assert_eq!(receipt.atomic, None);
    fixture.fake.file("/work/empty", "");
    assert_eq!(fixture.got("/work/empty").await.0.size, 0);
}

#[tokio::test(start_paused = true)] // paused clock
async fn a_file_that_changes_while_it_is_read_is_read_again() {
    for content in [other(3000), other(9000), other(5000), Bytes::new()] {
        let fixture = fixture();
        let change = Fault::Meanwhile(2048, Change::Rewrite(content.clone()));
        fixture.fake.script(Call::Read, [change]);
        let (got, sink) = fixture.got("/work/a").await;
        assert_eq!(sink.bytes, content);
        assert_eq!((got.receipt.attempts, sink.begun), (2, 2));
    }
}

#[tokio::test(start_paused = true)] // paused clock
async fn a_file_that_always_changes_is_given_up_after_three_attempts() {
    let fixture = fixture();
    let changes =
        (0..9).map(|byte| Fault::Meanwhile(1024, Change::Rewrite(vec![byte; 5000].into())));
    fixture.fake.script(Call::Read, changes);
    let (kind, receipt) = fixture.refused("/work/a").await;
    assert_eq!((kind, receipt.attempts), (CHANGED_FILE, 3));
    assert_eq!((receipt.sha256, receipt.integrity), (None, None));
}

#[tokio::test(start_paused = true)] // paused clock
async fn a_file_that_is_replaced_or_removed_meanwhile_is_noticed() {
    let fixture = fixture();
    fixture.fake.script(
        Call::Read,
        [Fault::Meanwhile(1024, Change::Replace(other(5000)))],
    );
    assert_eq!(fixture.got("/work/a").await.0.receipt.attempts, 2);
    fixture
        .fake
        .script(Call::Read, [Fault::Meanwhile(1024, Change::Remove)]);
    assert_eq!(fixture.refused("/work/a").await.0, ErrorKind::NotFound);
}

#[tokio::test(start_paused = true)] // paused clock
async fn r_5_wrong_sizes_are_noticed_in_both_directions() {
    let fixture = fixture();
    for size in [10, 9999] {
        fixture.fake.script(Call::Stat, [Fault::Size(size)]);
        assert_eq!(fixture.got("/work/a").await.0.receipt.attempts, 2, "{size}");
    }
    fixture
        .fake
        .script(Call::Read, [Fault::ShortEnd(3000), Fault::Endless(1)]);
    assert_eq!(fixture.got("/work/a").await.0.receipt.attempts, 3);
    fixture
        .fake
        .script(Call::Read, vec![Fault::Endless(1 << 40); 3]);
    let (kind, receipt) = fixture.refused("/work/a").await;
    assert_eq!((kind, receipt.attempts), (CHANGED_FILE, 3));
    assert!(receipt.bytes <= 5000);
}

#[tokio::test(start_paused = true)] // paused clock
async fn a_stalled_stream_is_given_up_after_the_idle_window_and_read_again() {
    let fixture = fixture();
    fixture.fake.script(Call::Read, [Fault::Stall(1024)]);
    let started = Instant::now();
    let (got, _) = fixture.got("/work/a").await;
    assert_eq!(got.receipt.attempts, 2);
    // Exact up to the random pause of at most a second, because the clock is paused.
    let waited = started.elapsed();
    assert!((30..=31).contains(&waited.as_secs()), "{waited:?}");
}

#[tokio::test(start_paused = true)] // paused clock
async fn a_sandbox_that_never_responds_ends_in_a_timeout() {
    let fixture = fixture();
    fixture.fake.script(Call::Read, vec![Fault::Hang; 9]);
    let (kind, receipt) = fixture.refused("/work/a").await;
    assert_eq!((kind, receipt.attempts), (ErrorKind::Timeout, 5));
    fixture.fake.script(Call::Stat, vec![Fault::Hang; 9]);
    let (kind, receipt) = fixture.refused("/work/a").await;
    assert_eq!((kind, receipt.attempts), (ErrorKind::Timeout, 0));
}

#[tokio::test(start_paused = true)] // paused clock
async fn a_sandbox_that_ends_during_a_read_is_gone_and_is_not_read_again() {
    let fixture = fixture();
    fixture
        .fake
        .script(Call::Read, [Fault::Meanwhile(2048, Change::EndSandbox)]);
    let (kind, receipt) = fixture.refused("/work/a").await;
    assert_eq!((kind, receipt.attempts), (ErrorKind::SandboxGone, 1));
}

#[tokio::test(start_paused = true)] // paused clock
async fn r_10_a_broken_stream_continues_where_it_broke() {
    let fixture = fixture();
    fixture.fake.resuming(Transport::Files);
    let breaks = [700, 3000, 4999].map(|at| Fault::Break(at, ErrorKind::Unavailable));
    fixture.fake.script(Call::Read, breaks);
    let (got, sink) = fixture.got("/work/a").await;
    assert_eq!((got.receipt.attempts, sink.begun), (4, 1));
    assert!(got.receipt.resumed);
    assert_eq!(got.receipt.integrity, Some(Integrity::Sha256));
    assert_eq!(fixture.fake.count(Call::Fingerprint), 2);
}

#[tokio::test(start_paused = true)] // paused clock
async fn r_10_a_stream_that_broke_after_its_last_byte_is_not_read_again() {
    let fixture = fixture();
    fixture.fake.resuming(Transport::Files);
    fixture
        .fake
        .script(Call::Read, [Fault::Lost(ErrorKind::Unavailable)]);
    fixture.got("/work/a").await;
    assert_eq!(fixture.fake.count(Call::Read), 1);
}

#[tokio::test(start_paused = true)] // paused clock
async fn r_10_a_file_that_changed_since_the_break_starts_again() {
    let fixture = fixture();
    fixture.fake.resuming(Transport::Files);
    fixture
        .fake
        .script(Call::Read, [Fault::Break(3000, ErrorKind::Truncated)]);
    fixture.fake.script(
        Call::Stat,
        [Fault::None, Fault::Before(Change::Rewrite(other(5000)))],
    );
    let (got, sink) = fixture.got("/work/a").await;
    assert_eq!((sink.begun, got.receipt.resumed), (2, false));
}

#[tokio::test(start_paused = true)] // paused clock
async fn without_offsets_a_broken_stream_starts_again() {
    let fixture = fixture();
    fixture
        .fake
        .script(Call::Read, [Fault::Break(3000, ErrorKind::Unavailable)]);
    let (got, sink) = fixture.got("/work/a").await;
    assert_eq!((sink.begun, got.receipt.resumed), (2, false));
}

#[tokio::test(start_paused = true)] // paused clock
async fn damage_is_noticed_and_a_transport_that_damages_twice_is_no_longer_used() {
    let fixture = fixture();
    fixture
        .fake
        .transports(&[Transport::Archive, Transport::ExecRaw]);
    fixture.fake.script(Call::Read, [Fault::Flip(4000)]);
    let (got, _) = fixture.got("/work/a").await;
    assert_eq!(
        (got.receipt.attempts, got.receipt.transport),
        (2, Some(Transport::Archive))
    );
    fixture
        .fake
        .script(Call::Read, [Fault::Flip(1), Fault::Flip(2)]);
    let skipped = vec![SkippedTransport {
        transport: Transport::Archive,
        reason: ErrorKind::Corrupted,
    }];
    let (got, _) = fixture.got("/work/a").await;
    assert_eq!(got.receipt.transport, Some(Transport::ExecRaw));
    assert_eq!((got.receipt.attempts, &got.receipt.skipped), (3, &skipped));
    // This incarnation of the sandbox no longer uses the transport, and the receipt contains the reason.
    let (got, _) = fixture.got("/work/a").await;
    assert_eq!((got.receipt.attempts, got.receipt.skipped), (1, skipped));
}

#[tokio::test(start_paused = true)] // paused clock
async fn without_another_transport_damage_is_final() {
    let fixture = fixture();
    fixture.fake.script(Call::Read, vec![Fault::Flip(0); 9]);
    let (kind, receipt) = fixture.refused("/work/a").await;
    assert_eq!((kind, receipt.attempts), (ErrorKind::Corrupted, 2));
    fixture.fake.script(Call::Read, Vec::new());
    let repeated = fixture.refused("/work/a").await;
    assert_eq!(
        repeated.1.attempts, 2,
        "the only transport gets another chance"
    );
}

#[tokio::test(start_paused = true)] // paused clock
async fn a_transport_without_its_tool_or_with_a_broken_protocol_is_replaced_immediately() {
    for reason in [ErrorKind::ToolMissing, ErrorKind::Protocol] {
        let fixture = fixture();
        fixture
            .fake
            .transports(&[Transport::Sftp, Transport::ExecBase64]);
        fixture.fake.script(Call::Read, [Fault::Fail(reason)]);
        let started = Instant::now();
        let (got, _) = fixture.got("/work/a").await;
        assert_eq!(
            got.receipt.skipped.first().map(|skipped| skipped.reason),
            Some(reason)
        );
        assert_eq!(
            started.elapsed(),
            Duration::ZERO,
            "no pause between transports"
        );
        fixture
            .fake
            .script(Call::Read, [Fault::Fail(reason), Fault::Fail(reason)]);
        assert_eq!(fixture.refused("/work/a").await.0, reason);
    }
}

#[tokio::test(start_paused = true)] // paused clock
async fn without_digests_a_change_of_size_or_time_is_a_change_of_the_file() {
    let fixture = fixture();
    fixture.fake.digests(Digests::Missing);
    let (got, _) = fixture.got("/work/a").await;
    assert_eq!(got.receipt.integrity, Some(Integrity::SizeMtime));
    fixture.fake.script(
        Call::Read,
        [Fault::Meanwhile(4096, Change::Rewrite(other(5000)))],
    );
    assert_eq!(fixture.got("/work/a").await.0.receipt.attempts, 2);
    fixture.fake.digests(Digests::Sha256);
    fixture.fake.script(
        Call::Fingerprint,
        vec![Fault::Fail(ErrorKind::SandboxStopped); 2],
    );
    let (got, _) = fixture.got("/work/a").await;
    assert_eq!(got.receipt.integrity, Some(Integrity::SizeMtime));
}

#[tokio::test(start_paused = true)] // paused clock
async fn a_weak_digest_is_reported_as_weak() {
    let fixture = fixture();
    fixture.fake.digests(Digests::Cksum);
    fixture.fake.script(Call::Read, [Fault::Flip(77)]);
    let (got, _) = fixture.got("/work/a").await;
    assert_eq!(
        (got.receipt.integrity, got.receipt.attempts),
        (Some(Integrity::Weak), 2)
    );
}

#[tokio::test(start_paused = true)] // paused clock
async fn large_files_are_digested_only_afterwards_and_the_receipt_says_so() {
    let fake = Fake::new();
    fake.file("/work/a", pattern(5000));
    let options = EngineOptions {
        digest_before_up_to: 4999,
        ..EngineOptions::default()
    };
    let fixture = EngineFixture::with(fake, options);
    let (got, _) = fixture.got("/work/a").await;
    assert_eq!(got.receipt.integrity, Some(Integrity::Sha256After));
    assert_eq!(fixture.fake.count(Call::Fingerprint), 1);
    fixture.fake.script(Call::Read, [Fault::Flip(9)]);
    assert_eq!(fixture.got("/work/a").await.0.receipt.attempts, 2);
}

#[tokio::test(start_paused = true)] // paused clock
async fn a_digest_that_could_not_be_requested_is_requested_again_without_a_new_copy() {
    let fixture = fixture();
    let lost = Fault::Fail(ErrorKind::Unavailable);
    fixture
        .fake
        .script(Call::Fingerprint, [Fault::None, lost.clone(), lost]);
    let (got, _) = fixture.got("/work/a").await;
    assert_eq!(
        (got.receipt.attempts, fixture.fake.count(Call::Fingerprint)),
        (1, 4)
    );
}

#[tokio::test(start_paused = true)] // paused clock
async fn a_lost_digest_before_the_copy_is_requested_again_or_missing_in_the_receipt() {
    for (digest_while_reading, integrity) in
        [(true, Integrity::Sha256After), (false, Integrity::Sha256)]
    {
        let fake = Fake::new();
        fake.file("/work/a", pattern(5000));
        let options = EngineOptions {
            digest_while_reading,
            ..EngineOptions::default()
        };
        let fixture = EngineFixture::with(fake, options);
        fixture
            .fake
            .script(Call::Fingerprint, [Fault::Fail(ErrorKind::Unavailable)]);
        let (got, _) = fixture.got("/work/a").await;
        assert_eq!(
            (got.receipt.attempts, got.receipt.integrity),
            (1, Some(integrity))
        );
    }
}

#[tokio::test(start_paused = true)] // paused clock
async fn wrong_digests_never_end_in_success() {
    let fixture = fixture();
    fixture
        .fake
        .script(Call::Fingerprint, vec![Fault::WrongDigest; 99]);
    let (kind, _) = fixture.refused("/work/a").await;
    assert_eq!(kind, ErrorKind::Corrupted);
}

/// A sink that takes no bytes until the sandbox has been read to its end.
struct LateSink {
    fake: Fake,
    bytes: Vec<u8>,
}

#[async_trait]
impl Sink for LateSink {
    async fn begin(&mut self, _file: &Metadata) -> Result<(), Error> {
        Ok(())
    }

    async fn write(&mut self, chunk: Bytes) -> Result<(), Error> {
        if self.bytes.is_empty() {
            until(|| self.fake.streams() == 0).await;
        }
        self.bytes.extend_from_slice(&chunk);
        Ok(())
    }

    async fn finish(&mut self, _sha256: Sha256Digest, _size: u64) -> Result<(), Error> {
        Ok(())
    }

    async fn abort(&mut self) {}
}

#[tokio::test]
async fn r_7_a_drained_transport_is_read_to_its_end_for_any_speed_of_the_sink() {
    let fake = Fake::new();
    let content = pattern(6 << 20);
    fake.file("/work/big", content.clone());
    fake.draining(Transport::Files);
    let fixture = EngineFixture::new(fake.clone());
    let mut sink = LateSink {
        fake,
        bytes: Vec::new(),
    };
    let result = fixture.get_into("/work/big", &mut sink).await.unwrap();
    assert!(sink.bytes == content);
    assert_eq!(result.receipt.integrity, Some(Integrity::Sha256));
}

/// A sink whose second write never returns, once.
struct StuckSink {
    recorder: RecordingSink,
    writes: u32,
}

#[async_trait]
impl Sink for StuckSink {
    async fn begin(&mut self, file: &Metadata) -> Result<(), Error> {
        self.recorder.begin(file).await
    }

    async fn write(&mut self, chunk: Bytes) -> Result<(), Error> {
        self.writes += 1;
        if self.writes == 2 {
            std::future::pending::<()>().await;
        }
        self.recorder.write(chunk).await
    }

    async fn finish(&mut self, sha256: Sha256Digest, size: u64) -> Result<(), Error> {
        self.recorder.finish(sha256, size).await
    }

    async fn abort(&mut self) {
        self.recorder.abort().await;
    }
}

#[tokio::test(start_paused = true)] // paused clock
async fn a_sink_that_was_stopped_within_a_write_gets_the_file_from_its_beginning() {
    let fixture = fixture();
    fixture.fake.resuming(Transport::Files);
    let mut sink = StuckSink {
        recorder: RecordingSink::default(),
        writes: 0,
    };
    let result = fixture.get_into("/work/a", &mut sink).await.unwrap();
    assert_eq!((sink.recorder.begun, result.receipt.resumed), (2, false));
    assert_eq!(
        Some(Bytes::from(sink.recorder.bytes)),
        fixture.fake.content("/work/a")
    );
}
