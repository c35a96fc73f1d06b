//! Files of audit events in a directory of the test.

use dray_proto::v1;
use dray_service::telemetry::InstrumentCatalogue;
use serde_json::Value;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::sync_channel;
use std::thread;
use std::time::Duration;

use super::super::line::event_text;
use super::super::queue::{QueueOutcome, QueueTask, QueueWorker, UnwrittenFrames};
use super::*;
use crate::config::AuditFormat;

mod shared;
mod waits;

const TEST_TERMS: QueueTerms = QueueTerms {
    place: AuditDestination::File,
    format: AuditFormat::Json,
    sample_percent: 100,
};

struct FileFixture {
    directory: tempfile::TempDir,
    path: PathBuf,
    catalogue: InstrumentCatalogue,
}

impl FileFixture {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        Self {
            path: directory.path().join("audit.jsonl"),
            directory,
            catalogue: InstrumentCatalogue::new(),
        }
    }

    fn settings(&self) -> AuditFileSettings {
        AuditFileSettings {
            path: self.path.clone(),
            format: AuditFormat::Json,
            max_bytes: 1 << 20,
            max_files: 3,
            sample_percent: 100,
        }
    }

    fn open(&self, settings: &AuditFileSettings) -> io::Result<AuditQueue> {
        AuditQueue::to_file(settings, EgressMetrics::new(&self.catalogue.meter()))
    }

    /// Starts a queue with a thread for this writer.
    fn start<W: EventWriter>(&self, writer: W) -> (AuditQueue, thread::JoinHandle<()>) {
        let (tasks, received) = sync_channel(8);
        let metrics = EgressMetrics::new(&self.catalogue.meter());
        let queue = AuditQueue::with_writer::<W>(TEST_TERMS, tasks, metrics.clone());
        let worker = QueueWorker {
            writer,
            place: AuditDestination::File,
            queued_bytes: Arc::clone(&queue.queued_bytes),
            metrics,
        };
        (queue, thread::spawn(move || worker.run(&received)))
    }

    fn lines(&self, name: &str) -> Vec<Value> {
        let text = fs::read_to_string(self.directory.path().join(name)).unwrap();
        text.lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect()
    }
}

fn event(operation: &str, verdict: &str) -> v1::EgressAudit {
    v1::EgressAudit {
        operation_id: operation.to_owned(),
        verdict: verdict.to_owned(),
        ..v1::EgressAudit::default()
    }
}

fn record(file: &AuditQueue, event: &v1::EgressAudit) -> QueueOutcome {
    file.record(event, &event_text(event))
}

#[test]
fn each_event_is_a_line_of_a_file_for_this_user_alone() {
    let fixture = FileFixture::new();
    fs::write(&fixture.path, "").unwrap();
    fs::set_permissions(&fixture.path, fs::Permissions::from_mode(0o644)).unwrap();
    let file = fixture.open(&fixture.settings()).unwrap();
    record(&file, &event("one", "allow"));
    record(&file, &event("two", "deny"));
    let _ = file.flush().blocking_recv();
    let lines = fixture.lines("audit.jsonl");
    let operations: Vec<_> = lines.iter().map(|line| &line["operation_id"]).collect();
    assert_eq!(operations, ["one", "two"]);
    let mode = fs::metadata(&fixture.path).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
}

#[test]
fn a_full_file_is_rotated_and_the_oldest_is_removed() {
    let fixture = FileFixture::new();
    let line = event_text(&event("0", "allow")).len() as u64 + 1;
    let settings = AuditFileSettings {
        max_bytes: 2 * line,
        ..fixture.settings()
    };
    let file = fixture.open(&settings).unwrap();
    for number in 0..9 {
        record(&file, &event(&number.to_string(), "allow"));
    }
    let _ = file.flush().blocking_recv();
    let operations = |name: &str| -> Vec<String> {
        let lines = fixture.lines(name).into_iter();
        lines
            .map(|line| line["operation_id"].as_str().unwrap().to_owned())
            .collect()
    };
    assert_eq!(operations("audit.jsonl"), ["8"]);
    assert_eq!(operations("audit.jsonl.1"), ["6", "7"]);
    assert_eq!(operations("audit.jsonl.2"), ["4", "5"]);
    assert!(!fixture.directory.path().join("audit.jsonl.3").exists());
    // A restart continues the same file.
    let file = fixture.open(&settings).unwrap();
    record(&file, &event("9", "allow"));
    let _ = file.flush().blocking_recv();
    assert_eq!(operations("audit.jsonl"), ["8", "9"]);
}

#[test]
fn sampling_drops_no_refusal_and_no_half_of_a_connection() {
    let fixture = FileFixture::new();
    let settings = AuditFileSettings {
        sample_percent: 10,
        // All events stay in one file.
        max_bytes: 1 << 30,
        ..fixture.settings()
    };
    let file = fixture.open(&settings).unwrap();
    for number in 0..500 {
        let operation = format!("operation-{number}");
        for verdict in ["allow", "deny", "allow"] {
            record(&file, &event(&operation, verdict));
        }
        // An open connection that a rule ends keeps its verdict, as does one that breaks.
        for code in ["policy_denied", "connection_closed"] {
            let ended = v1::EgressAudit {
                code: code.to_owned(),
                ..event(&operation, "allow")
            };
            record(&file, &ended);
        }
    }
    let _ = file.flush().blocking_recv();
    let lines = fixture.lines("audit.jsonl");
    let count = |verdict: &str| {
        lines
            .iter()
            .filter(|line| line["verdict"] == verdict && line["code"] == "")
            .count()
    };
    assert_eq!(count("deny"), 500);
    for code in ["policy_denied", "connection_closed"] {
        let written = lines.iter().filter(|line| line["code"] == code);
        assert_eq!(written.count(), 500, "{code}");
    }
    assert!((40..=180).contains(&count("allow")), "{}", count("allow"));
    assert_eq!(count("allow") % 2, 0);
}

#[test]
fn lines_for_a_full_disk_are_kept_and_counted_as_lost_at_the_end() {
    let fixture = FileFixture::new();
    let full = AuditFileSettings {
        path: "/dev/full".into(),
        ..fixture.settings()
    };
    assert!(
        fixture.open(&full).is_err(),
        "a device is not a regular file"
    );
    let writer = RotatedFile {
        // The path of the open file; with another path, the file would be opened again.
        path: "/dev/full".into(),
        max_bytes: 1 << 20,
        max_files: 3,
        file: File::options().write(true).open("/dev/full").unwrap(),
        size: 0,
    };
    let (file, running) = fixture.start(writer);
    let queued_bytes = Arc::clone(&file.queued_bytes);
    let line = event_text(&event("one", "deny")).len() + 1;
    for _ in 0..3 {
        record(&file, &event("one", "deny"));
    }
    let written = file.flush();
    assert_eq!(queued_bytes.load(Ordering::Relaxed), 3 * line);
    drop(file);
    running.join().unwrap();
    assert!(written.blocking_recv().is_err());
    assert_eq!(queued_bytes.load(Ordering::Relaxed), 0);
}

/// A writer that takes as many frames of each attempt as the test says.
struct ScriptedWriter {
    accepted: std::sync::mpsc::Receiver<usize>,
    written: std::sync::mpsc::Sender<String>,
}

impl EventWriter for ScriptedWriter {
    const KEEPS_UNWRITTEN: bool = true;

    fn frame(event: &dyn PlacedEvent, _text: &str) -> Vec<u8> {
        event.sampled_operation().unwrap_or_default().into()
    }

    fn write_frame(&mut self, frame: &[u8]) -> io::Result<()> {
        let frame = String::from_utf8(frame.to_vec()).unwrap();
        self.written.send(frame).map_err(io::Error::other)
    }

    fn write_frames(&mut self, frames: &[Vec<u8>]) -> Result<(), UnwrittenFrames> {
        let accepted = self.accepted.recv().unwrap().min(frames.len());
        for frame in &frames[..accepted] {
            self.write_frame(frame).unwrap();
        }
        if accepted == frames.len() {
            return Ok(());
        }
        Err(UnwrittenFrames {
            indexes: (accepted..frames.len()).collect(),
            error: io::ErrorKind::StorageFull.into(),
        })
    }
}

#[test]
fn a_batch_that_a_stalled_writer_does_not_accept_is_written_later_in_order_and_without_a_loss() {
    let fixture = FileFixture::new();
    let (accept, accepted) = std::sync::mpsc::channel();
    let (writing, written) = std::sync::mpsc::channel();
    let (file, running) = fixture.start(ScriptedWriter {
        accepted,
        written: writing,
    });
    for operation in ["one", "two", "three"] {
        record(&file, &event(operation, "deny"));
    }
    let mut flushed = file.flush();
    // The first attempts fail, wholly and in part.
    accept.send(0).unwrap();
    record(&file, &event("four", "deny"));
    accept.send(1).unwrap();
    assert_eq!(written.recv().unwrap(), "one");
    assert!(flushed.try_recv().is_err(), "the others are not written");
    for _ in 0..4 {
        accept.send(usize::MAX).unwrap();
    }
    assert_eq!(flushed.blocking_recv(), Ok(()));
    let queued_bytes = Arc::clone(&file.queued_bytes);
    drop(file);
    running.join().unwrap();
    assert_eq!(written.iter().collect::<Vec<_>>(), ["two", "three", "four"]);
    assert_eq!(queued_bytes.load(Ordering::Relaxed), 0);
}

/// A writer that reports how many frames it gets together.
struct BatchRecorder(std::sync::mpsc::Sender<usize>);

impl EventWriter for BatchRecorder {
    const KEEPS_UNWRITTEN: bool = true;

    fn frame(_event: &dyn PlacedEvent, text: &str) -> Vec<u8> {
        text.as_bytes().to_vec()
    }

    fn write_frame(&mut self, _frame: &[u8]) -> io::Result<()> {
        Ok(())
    }

    fn write_frames(&mut self, frames: &[Vec<u8>]) -> Result<(), UnwrittenFrames> {
        self.0.send(frames.len()).unwrap();
        Ok(())
    }
}

#[test]
fn events_that_wait_are_written_together_before_any_of_their_waits_ends() {
    let fixture = FileFixture::new();
    let metrics = EgressMetrics::new(&fixture.catalogue.meter());
    let (tasks, received) = sync_channel(8);
    let queue = AuditQueue::with_writer::<BatchRecorder>(TEST_TERMS, tasks, metrics.clone());
    let (sizes, written) = std::sync::mpsc::channel();
    let mut waits = Vec::new();
    for operation in ["one", "two", "three"] {
        record(&queue, &event(operation, "allow"));
        waits.push(queue.flush());
    }
    let worker = QueueWorker {
        writer: BatchRecorder(sizes),
        place: AuditDestination::File,
        queued_bytes: Arc::clone(&queue.queued_bytes),
        metrics,
    };
    drop(queue);
    // Everything waits before the thread begins, so it is one batch.
    worker.run(&received);
    assert_eq!(written.iter().collect::<Vec<_>>(), [3]);
    for wait in waits {
        assert_eq!(wait.blocking_recv(), Ok(()));
    }
}

#[test]
fn a_batch_that_fills_a_file_continues_in_the_next_one() {
    let fixture = FileFixture::new();
    let line = |number: usize| format!("{{\"number\":{number}}}\n").into_bytes();
    let line_bytes = line(0).len() as u64;
    // Room for two lines and a half.
    let mut file = RotatedFile::open(&fixture.path, 2 * line_bytes + line_bytes / 2, 3).unwrap();
    file.write_line(&line(0)).unwrap();
    let lines: Vec<_> = (1..6).map(line).collect();
    assert!(file.write_frames(&lines).is_ok());
    let numbers = |name: &str| -> Vec<u64> {
        let lines = fixture.lines(name).into_iter();
        lines.map(|line| line["number"].as_u64().unwrap()).collect()
    };
    assert_eq!(numbers("audit.jsonl.2"), [0, 1]);
    assert_eq!(numbers("audit.jsonl.1"), [2, 3]);
    assert_eq!(numbers("audit.jsonl"), [4, 5]);
}

#[test]
fn more_than_the_queue_holds_is_dropped_and_not_waited_for() {
    let fixture = FileFixture::new();
    // No worker takes lines from the queue.
    let (tasks, _received) = sync_channel(2);
    let metrics = EgressMetrics::new(&fixture.catalogue.meter());
    let file = AuditQueue::with_writer::<RotatedFile>(TEST_TERMS, tasks, metrics);
    let queued_bytes: Arc<AtomicUsize> = Arc::clone(&file.queued_bytes);
    let line = event_text(&event("one", "deny")).len() + 1;
    for number in 0..10 {
        let outcome = record(&file, &event("one", "deny"));
        let expected = if number < 2 {
            QueueOutcome::Queued
        } else {
            QueueOutcome::Dropped
        };
        assert_eq!(outcome, expected, "{number}");
    }
    assert_eq!(queued_bytes.load(Ordering::Relaxed), 2 * line);
}

#[test]
fn a_line_that_a_killed_process_did_not_finish_is_removed_and_no_other() {
    let fixture = FileFixture::new();
    let whole = event_text(&event("whole", "allow"));
    let whole = format!("{whole}\n");
    let torn = &whole[..whole.len() / 2];
    for (before, kept) in [
        (format!("{whole}{torn}"), whole.clone()),
        (torn.to_owned(), String::new()),
        (whole.clone(), whole.clone()),
        // Only the line end is missing.
        (whole.trim_end().to_owned(), whole.clone()),
        // A line of another writer: no part of it is lost.
        (format!("{whole}a note"), format!("{whole}a note\n")),
        ("x".repeat(2 << 20), format!("{}\n", "x".repeat(2 << 20))),
    ] {
        fs::write(&fixture.path, before).unwrap();
        let file = fixture.open(&AuditFileSettings {
            max_bytes: 1 << 30,
            ..fixture.settings()
        });
        let file = file.unwrap();
        record(&file, &event("next", "allow"));
        let _ = file.flush().blocking_recv();
        let text = fs::read_to_string(&fixture.path).unwrap();
        let next = text.strip_prefix(&kept).unwrap();
        let next: Value = serde_json::from_str(next).unwrap();
        assert_eq!(next["operation_id"], "next");
    }
}

/// The operations in a file of the fixture.
fn operations(fixture: &FileFixture, name: &str) -> Vec<String> {
    let lines = fixture.lines(name).into_iter();
    lines
        .map(|line| line["operation_id"].as_str().unwrap().to_owned())
        .collect()
}

#[test]
fn a_file_that_cannot_be_opened_replaces_no_older_one_and_its_lines_are_written_later() {
    let fixture = FileFixture::new();
    let line = event_text(&event("0", "allow")).len() as u64 + 1;
    let settings = AuditFileSettings {
        max_bytes: line,
        ..fixture.settings()
    };
    let file = fixture.open(&settings).unwrap();
    for number in 0..3 {
        record(&file, &event(&number.to_string(), "allow"));
    }
    file.flush().blocking_recv().unwrap();
    // A directory in place of the next file makes its creation fail, as when no descriptor is free.
    let obstacle = fixture.directory.path().join("audit.jsonl.new");
    fs::create_dir(&obstacle).unwrap();
    let mut other = RotatedFile::open(&fixture.path, line, 3).unwrap();
    let frame = RotatedFile::frame(&event("3", "allow"), &event_text(&event("3", "allow")));
    let unwritten = other.write_frames(&[frame.clone(), frame]).unwrap_err();
    assert_eq!(unwritten.indexes, [0, 1]);
    let before = [
        ("audit.jsonl", "2"),
        ("audit.jsonl.1", "1"),
        ("audit.jsonl.2", "0"),
    ];
    for (name, operation) in before {
        assert_eq!(operations(&fixture, name), [operation], "{name}");
    }
    for number in 3..6 {
        record(&file, &event(&number.to_string(), "allow"));
    }
    let written = file.flush();
    fs::remove_dir(&obstacle).unwrap();
    written.blocking_recv().unwrap();
    let after = [
        ("audit.jsonl", "5"),
        ("audit.jsonl.1", "4"),
        ("audit.jsonl.2", "3"),
    ];
    for (name, operation) in after {
        assert_eq!(operations(&fixture, name), [operation], "{name}");
    }
}
