//! One transfer needs at most 8 MiB beyond its message for a file of any size (ARCHITECTURE, invariant 4).
//!
//! A separate binary, so that the peak memory of the process is the peak of this transfer, including the endpoint's
//! buffers.

#![expect(clippy::unwrap_used, reason = "all of it is a test")]

use std::time::Duration;

use bytes::Bytes;
use dray_store::embedded::EmbeddedS3;
use dray_store::{ArtifactLabel, MAX_TRANSFER_BYTES, Store};
use dray_types::{Clock, Deadline, OperationId, TenantId};

const CHUNK_BYTES: usize = 64 << 10;
/// Additional bytes for the embedded endpoint, both HTTP stacks and the allocator.
const OVERHEAD_BYTES: usize = 8 << 20;

/// A line of `/proc/self/status`, in bytes.
fn status(name: &str) -> usize {
    let text = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = text.lines().find(|line| line.starts_with(name)).unwrap();
    let kib: usize = line.split_whitespace().nth(1).unwrap().parse().unwrap();
    kib << 10
}

/// Resets the recorded peak.
fn reset_peak() {
    std::fs::write("/proc/self/clear_refs", "5").unwrap();
}

async fn transfer(store: &Store, clock: &Clock, size: usize) {
    let tenant = TenantId::new("acme").unwrap();
    let mut writer = store.writer(&tenant, &OperationId::mint(), 1);
    for number in 0..size / CHUNK_BYTES {
        // A new allocation for each chunk, as when reading from a socket.
        let byte = u8::try_from(number % 251).unwrap();
        writer
            .write(Bytes::from(vec![byte; CHUNK_BYTES]))
            .await
            .unwrap();
    }
    let claim = writer.finish(ArtifactLabel::default()).await.unwrap();
    let deadline = Deadline::after(clock.now_ms(), Duration::from_mins(2));
    let mut reader = store.read(&tenant, &claim, deadline).await.unwrap();
    let mut read = 0;
    while let Some(bytes) = reader.next().await.unwrap() {
        read += bytes.len();
    }
    assert_eq!(read, size);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn memory_does_not_grow_with_the_file() {
    let directory = tempfile::tempdir().unwrap();
    let (endpoint, options) = EmbeddedS3::start(directory.path()).await.unwrap();
    let clock = Clock::system();
    let store = Store::open(&options, clock.clone()).await.unwrap();
    // The first transfer allocates everything that is set up once.
    transfer(&store, &clock, 16 << 20).await;

    reset_peak();
    let before = status("VmRSS:");
    transfer(&store, &clock, 200 << 20).await;
    let grown = status("VmHWM:").saturating_sub(before);
    assert!(
        grown <= MAX_TRANSFER_BYTES + OVERHEAD_BYTES,
        "the peak grew by {} KiB",
        grown >> 10
    );
    endpoint.stop().await;
}
