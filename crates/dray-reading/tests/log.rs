//! Tests the log lines of a call: outcomes are logged, content is not.
//!
//! The only test of its program: `tracing` caches for the whole process whether a call site is enabled, and other tests
//! would change the cached value.

#![expect(clippy::unwrap_used, reason = "all of it is a test")]

use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use dray_reading::policy::Policy;
use dray_reading::reader::{Reader, Vision};
use dray_reading::record::Record;
use dray_reading::request::Request;
use dray_reading::worker::Worker;
use dray_reading::workspace::Roots;
use tokio_util::sync::CancellationToken;

/// A writer that stores the log lines in memory.
#[derive(Clone, Default)]
struct LogBuffer(Arc<Mutex<Vec<u8>>>);

impl Write for LogBuffer {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// Collects the log of this thread until the guard is dropped.
fn listen() -> (LogBuffer, tracing::subscriber::DefaultGuard) {
    let log_lines = LogBuffer::default();
    let to = log_lines.clone();
    let subscriber = tracing_subscriber::fmt()
        .with_writer(move || to.clone())
        .with_ansi(false)
        .finish();
    (log_lines, tracing::subscriber::set_default(subscriber))
}

impl LogBuffer {
    /// Removes and returns the log lines since the last call.
    fn text(&self) -> String {
        String::from_utf8(std::mem::take(&mut *self.0.lock().unwrap())).unwrap()
    }
}

fn reader(root: &Path) -> Reader {
    let worker = Worker::at(PathBuf::from(env!("CARGO_BIN_EXE_dray-convert")));
    Reader::new(Policy::default(), Roots::new(root), worker)
}

async fn read(reader: &Reader, path: &str) -> Record {
    let cancel = CancellationToken::new();
    reader.read(&Request::of_path(path), &cancel, &|_| {}).await
}

async fn one_record_without_content(reader: &Reader, log_lines: &LogBuffer) {
    let record = read(reader, "a.txt").await;
    let nonce = record.output.rsplit("--END ").next().unwrap().to_owned();
    let log = log_lines.text();
    assert_eq!(log.lines().count(), 1, "{log}");
    for part in [
        "INFO",
        "tool=\"read_attachment\"",
        "a.txt",
        "kind=\"text\"",
        "mime=\"text/plain\"",
        "size=11",
        "outcome=\"inline\"",
        "converter=\"text\"",
        "truncated=false",
        "worker=\"not needed\"",
        "elapsed_ms=",
        "bytes_out=",
    ] {
        assert!(log.contains(part), "{part}: {log}");
    }
    assert!(
        !log.contains("the content") && !log.contains(&nonce),
        "{log}"
    );
}

async fn paths_outside_are_logged_without_their_name(reader: &Reader, log_lines: &LogBuffer) {
    read(reader, "/etc/secret-name").await;
    let staged = ["/etc/secret-name".to_owned()];
    assert!(reader.announce(&staged, Vision::No).is_empty());
    let log = log_lines.text();
    assert_eq!(log.matches("(outside)").count(), 2, "{log}");
    assert_eq!(log.matches("outside_workspace").count(), 2, "{log}");
    assert!(!log.contains("secret-name"), "{log}");
}

async fn failures_are_warnings_with_a_name(reader: &Reader, log_lines: &LogBuffer) {
    let record = read(reader, "a.pdf").await;
    assert!(record.error_code.is_some());
    let log = log_lines.text();
    assert!(
        log.contains("WARN") && log.contains("read_attachment.failed"),
        "{log}"
    );
}

fn skipped_attachments_are_named_with_their_reason(reader: &Reader, log_lines: &LogBuffer) {
    let blocks = reader.announce(&["gone\n.txt".to_owned()], Vision::No);
    assert!(blocks.is_empty());
    let log = log_lines.text();
    assert!(
        log.contains("run.attachment_skipped") && log.contains("not_found"),
        "{log}"
    );
    assert_eq!(log.lines().count(), 1, "{log}");
}

#[tokio::test]
async fn the_log_has_outcomes_and_no_content() {
    let root = tempfile::tempdir().unwrap();
    std::fs::write(root.path().join("a.txt"), "the content").unwrap();
    std::fs::write(root.path().join("a.pdf"), "%PDF-1.7 and nothing more").unwrap();
    let reader = reader(root.path());
    let (log_lines, _guard) = listen();
    one_record_without_content(&reader, &log_lines).await;
    paths_outside_are_logged_without_their_name(&reader, &log_lines).await;
    failures_are_warnings_with_a_name(&reader, &log_lines).await;
    skipped_attachments_are_named_with_their_reason(&reader, &log_lines);
}
