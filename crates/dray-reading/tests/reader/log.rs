//! What the log says of a call, and what it never says.

use std::io::Write;
use std::sync::{Arc, Mutex};

use dray_reading::policy::Policy;
use dray_reading::reader::Vision;
use dray_reading::request::Request;

use crate::world::{World, read};

/// Keeps what is written.
#[derive(Clone, Default)]
struct Kept(Arc<Mutex<Vec<u8>>>);

impl Write for Kept {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

/// The log of what happens until the guard is dropped.
fn listen() -> (Kept, tracing::subscriber::DefaultGuard) {
    let kept = Kept::default();
    let to = kept.clone();
    let subscriber = tracing_subscriber::fmt()
        .with_writer(move || to.clone())
        .with_ansi(false)
        .finish();
    (kept, tracing::subscriber::set_default(subscriber))
}

impl Kept {
    fn text(&self) -> String {
        String::from_utf8(self.0.lock().unwrap().clone()).unwrap()
    }
}

#[tokio::test]
async fn one_record_for_each_call_without_content() {
    let world = World::with(&[("a.txt", b"the content")]);
    let (kept, guard) = listen();
    let record = world.read("a.txt").await;
    let nonce = record.output.rsplit("--END ").next().unwrap().to_owned();
    let log = kept.text();
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
        "worker=\"done\"",
        "elapsed_ms=",
        "bytes_out=",
    ] {
        assert!(log.contains(part), "{part}: {log}");
    }
    assert!(
        !log.contains("the content") && !log.contains(&nonce),
        "{log}"
    );
    drop(guard);
}

#[tokio::test]
async fn of_what_lies_outside_only_that_it_does() {
    let world = World::new();
    let (kept, guard) = listen();
    world.read("/etc/secret-name").await;
    let log = kept.text();
    assert!(
        log.contains("(outside)") && log.contains("outside_workspace"),
        "{log}"
    );
    assert!(!log.contains("secret-name"), "{log}");
    drop(guard);
}

#[tokio::test]
async fn failures_are_warnings_with_a_name() {
    let world = World::with(&[("a.pdf", b"%PDF-1.7 and nothing more")]);
    let (kept, guard) = listen();
    let record = read(&world.reader(Policy::default()), &Request::of_path("a.pdf")).await;
    let log = kept.text();
    assert!(record.error_code.is_some());
    assert!(
        log.contains("WARN") && log.contains("read_attachment.failed"),
        "{log}"
    );
    drop(guard);
}

#[test]
fn skipped_attachments_are_named_with_their_reason() {
    let world = World::new();
    let (kept, guard) = listen();
    let blocks = world
        .reader(Policy::default())
        .announce(&["gone\n.txt".to_owned()], Vision::No);
    assert!(blocks.is_empty());
    let log = kept.text();
    assert!(
        log.contains("run.attachment_skipped") && log.contains("not_found"),
        "{log}"
    );
    assert_eq!(log.lines().count(), 1, "{log}");
    drop(guard);
}
