//! Tests of the engine with a sandbox whose failures are scripted. Time is paused, so that timeouts and pauses take no
//! time.

mod engine;
mod get;
mod local;
mod names;
mod properties;
mod put;
mod refusals;
mod resume;
mod tree;
mod witness;

use async_trait::async_trait;
use bytes::Bytes;
use dray_sandbox::error::ErrorKind;
use dray_sandbox_conformance::fake::Fake;
use dray_types::Sha256Digest;
use tokio_util::sync::CancellationToken;

use super::*;
use crate::policy::{ContentAction, Policy};

/// A fake sandbox, an engine on it, and a policy that allows `/work`.
struct EngineFixture {
    fake: Fake,
    engine: Engine,
    policy: Policy,
    max_bytes: u64,
    collision: Collision,
    epoch: u64,
}

/// Bytes that differ from position to position.
fn pattern(length: usize) -> Vec<u8> {
    (0..length)
        .map(|at| b'a' + (at * 7 / 5 % 26).to_le_bytes()[0])
        .collect()
}

fn path(text: &str) -> SandboxPath {
    SandboxPath::new(text).unwrap()
}

impl EngineFixture {
    fn new(fake: Fake) -> Self {
        Self::with(fake, EngineOptions::default())
    }

    fn with(fake: Fake, options: EngineOptions) -> Self {
        Self {
            engine: Engine::new(std::sync::Arc::new(fake.clone()), options),
            fake,
            policy: Policy::beneath([path("/work")]),
            max_bytes: 1 << 30,
            collision: Collision::Rename,
            epoch: 1,
        }
    }

    async fn get_into(
        &self,
        file: &str,
        sink: &mut dyn Sink,
    ) -> Result<GetResult, TransferFailure> {
        let options = GetOptions {
            policy: &self.policy,
            max_bytes: self.max_bytes,
        };
        let cancel = CancellationToken::new();
        let result = self
            .engine
            .get(&path(file), &options, sink, &(), &cancel)
            .await;
        assert_eq!(self.fake.streams(), 0, "a stream stays open");
        result
    }

    async fn get(&self, file: &str) -> (Result<GetResult, TransferFailure>, RecordingSink) {
        let mut sink = RecordingSink::default();
        let result = self.get_into(file, &mut sink).await;
        assert_eq!(result.is_ok(), sink.finished.is_some());
        assert_eq!(result.is_err(), sink.aborted);
        if let Ok(result) = &result {
            assert_eq!(sink.finished, Some((result.sha256, result.size)));
            assert_eq!(Sha256Digest::of(&sink.bytes), result.sha256);
            assert_eq!(result.receipt.sha256, Some(result.sha256));
        }
        (result, sink)
    }

    /// Gets a file, which must succeed, and returns its present content.
    async fn got(&self, file: &str) -> (GetResult, RecordingSink) {
        let (got, sink) = self.get(file).await;
        assert_eq!(
            Some(Bytes::from(sink.bytes.clone())),
            self.fake.content(file)
        );
        (got.unwrap(), sink)
    }

    /// Gets a file, which must fail, and returns the failure.
    async fn refused(&self, file: &str) -> (ErrorKind, Receipt) {
        let failed = self.get(file).await.0.unwrap_err();
        (failed.error.kind(), failed.receipt)
    }

    async fn put_from(
        &self,
        directory: &str,
        name: &[u8],
        source: &dyn Source,
    ) -> Result<PutResult, TransferFailure> {
        let cancel = CancellationToken::new();
        self.put_until(directory, name, source, &cancel).await
    }

    async fn put_until(
        &self,
        directory: &str,
        name: &[u8],
        source: &dyn Source,
        cancel: &CancellationToken,
    ) -> Result<PutResult, TransferFailure> {
        let options = PutOptions {
            policy: &self.policy,
            collision: self.collision,
            mode: 0o644,
            operation: "op1",
            epoch: self.epoch,
        };
        let directory = path(directory);
        let put = self
            .engine
            .put(&directory, name, source, &options, &(), cancel)
            .await;
        assert_eq!(self.fake.streams(), 0, "a stream stays open");
        put
    }

    async fn put(
        &self,
        name: &str,
        content: impl Into<Bytes>,
    ) -> Result<PutResult, TransferFailure> {
        self.put_from("/work", name.as_bytes(), &BytesSource::new(content))
            .await
    }

    /// Names of all files in `/work`, temporary files included.
    fn work(&self) -> Vec<String> {
        let paths = self.fake.paths();
        paths
            .iter()
            .filter_map(|path| path.strip_prefix("/work/"))
            .map(str::to_owned)
            .collect()
    }
}

/// A sink that records how it was used and can fail.
#[derive(Default)]
struct RecordingSink {
    bytes: Vec<u8>,
    begun: u32,
    finished: Option<(Sha256Digest, u64)>,
    aborted: bool,
    fails_after: Option<usize>,
}

#[async_trait]
impl Sink for RecordingSink {
    async fn begin(&mut self, _file: &Metadata) -> Result<(), Error> {
        assert!(self.finished.is_none() && !self.aborted);
        self.begun += 1;
        self.bytes.clear();
        Ok(())
    }

    async fn write(&mut self, chunk: Bytes) -> Result<(), Error> {
        assert!(self.begun > 0 && self.finished.is_none() && !self.aborted);
        self.bytes.extend_from_slice(&chunk);
        match self.fails_after {
            Some(after) if self.bytes.len() > after => {
                Err(Error::new(ErrorKind::NoSpace, "our disk is full"))
            }
            _ => Ok(()),
        }
    }

    async fn finish(&mut self, sha256: Sha256Digest, size: u64) -> Result<(), Error> {
        assert!(self.finished.is_none() && !self.aborted);
        self.finished = Some((sha256, size));
        Ok(())
    }

    async fn abort(&mut self) {
        assert!(!self.aborted, "aborted twice");
        self.aborted = true;
    }
}

/// Lets other tasks run until a condition holds, or long enough to be sure that it never will.
async fn until(holds: impl Fn() -> bool) {
    for _ in 0..1_000_000 {
        if holds() {
            return;
        }
        tokio::task::yield_now().await;
    }
    panic!("the condition was never met");
}
