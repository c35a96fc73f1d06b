//! A pipe from a get into a put, without a file between them.
//!
//! The last bytes are held back until the get has verified the digest of all bytes, so that the put cannot finish or
//! publish unverified content. A pipe works only once: when one side must start again, the pipe fails, and the caller
//! copies through a file instead.

use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use async_trait::async_trait;
use bytes::Bytes;
use dray_sandbox::{Body, Error, ErrorKind, Metadata, SandboxPath};
use dray_transfer_engine::{Engine, Sink, Source};
use dray_types::Sha256Digest;
use futures_util::stream;
use tokio::sync::{mpsc, oneshot};

/// Chunks in the channel between the two sides.
const MAX_CHUNKS: usize = 8;

/// State that both sides share.
#[derive(Debug, Default)]
struct Shared {
    /// Digest of all bytes, once the get has verified it.
    proved: OnceLock<Sha256Digest>,
}

/// The side to which a get writes.
#[derive(Debug)]
pub(super) struct PipeSink {
    shared: Arc<Shared>,
    /// The channel; `None` once no more bytes are sent.
    chunks: Option<mpsc::Sender<Bytes>>,
    last: Option<Bytes>,
    broken: bool,
}

/// The side from which a put reads.
#[derive(Debug)]
pub(super) struct PipeSource<'a> {
    shared: Arc<Shared>,
    size: u64,
    /// The file in the other sandbox, to compute its digest there before the get has ended.
    origin: (&'a Engine, &'a SandboxPath),
    /// Taken by the first reader, which sends `opened`.
    chunks: Mutex<Option<Opening>>,
}

#[derive(Debug)]
struct Opening {
    chunks: mpsc::Receiver<Bytes>,
    opened: oneshot::Sender<()>,
}

/// Makes both sides for a file of this size, and a receiver that is notified when the put opens its source.
pub(super) fn pipe<'a>(
    size: u64,
    engine: &'a Engine,
    path: &'a SandboxPath,
) -> (PipeSink, PipeSource<'a>, oneshot::Receiver<()>) {
    let shared = Arc::<Shared>::default();
    let (sender, chunks) = mpsc::channel(MAX_CHUNKS);
    let (opened, wanted) = oneshot::channel();
    let sink = PipeSink {
        shared: Arc::clone(&shared),
        chunks: Some(sender),
        last: None,
        broken: false,
    };
    let source = PipeSource {
        shared,
        size,
        origin: (engine, path),
        chunks: Mutex::new(Some(Opening { chunks, opened })),
    };
    (sink, source, wanted)
}

fn broken() -> Error {
    Error::new(
        ErrorKind::Truncated,
        "the copy between the sandboxes broke off",
    )
}

impl PipeSink {
    async fn send(&mut self, chunk: Bytes) -> Result<(), Error> {
        let chunks = self.chunks.as_ref().ok_or_else(broken)?;
        chunks.send(chunk).await.map_err(|_| broken())
    }
}

#[async_trait]
impl Sink for PipeSink {
    async fn begin(&mut self, _file: &Metadata) -> Result<(), Error> {
        if self.broken {
            // The put has received bytes of an earlier attempt and cannot discard them.
            self.chunks = None;
            return Err(broken());
        }
        Ok(())
    }

    async fn write(&mut self, chunk: Bytes) -> Result<(), Error> {
        // Until the first byte the get may begin again, because no byte was passed on.
        self.broken = true;
        match self.last.replace(chunk) {
            Some(earlier) => self.send(earlier).await,
            None => Ok(()),
        }
    }

    async fn finish(&mut self, sha256: Sha256Digest, _size: u64) -> Result<(), Error> {
        // The order matters: the source must find the digest when it has received the last bytes.
        let _ = self.shared.proved.set(sha256);
        if let Some(last) = self.last.take() {
            self.send(last).await?;
        }
        self.chunks = None;
        Ok(())
    }

    async fn abort(&mut self) {
        self.chunks = None;
    }
}

impl PipeSource<'_> {
    /// Whether the get has verified all bytes.
    pub(super) fn is_proved(&self) -> bool {
        self.shared.proved.get().is_some()
    }
}

#[async_trait]
impl Source for PipeSource<'_> {
    fn size(&self) -> u64 {
        self.size
    }

    /// The verified digest; before that, the digest that the other sandbox computes.
    async fn sha256(&self) -> Result<Sha256Digest, Error> {
        if let Some(proved) = self.shared.proved.get() {
            return Ok(*proved);
        }
        let (engine, path) = self.origin;
        match engine.sandbox().fingerprint(path).await? {
            dray_sandbox::Fingerprint::Sha256(sha256, _) => Ok(sha256),
            dray_sandbox::Fingerprint::Cksum(..) => {
                let error = "the sandbox has no program that computes a SHA-256";
                Err(Error::new(ErrorKind::ToolMissing, error))
            }
        }
    }

    async fn open(&self, offset: u64) -> Result<Body, Error> {
        let mut chunks = self.chunks.lock().unwrap_or_else(PoisonError::into_inner);
        let opening = chunks.take().filter(|_| offset == 0).ok_or_else(broken)?;
        // The receiver is gone when the get was cancelled; the chunks end then.
        let _ = opening.opened.send(());
        let state = Some((opening.chunks, Arc::clone(&self.shared)));
        Ok(Body::new(stream::unfold(state, |state| async move {
            let (mut chunks, shared) = state?;
            match chunks.recv().await {
                Some(chunk) => Some((Ok(chunk), Some((chunks, shared)))),
                // A channel that closes before the digest is verified is a failed copy, not the end of the file.
                None if shared.proved.get().is_some() => None,
                None => Some((Err(broken()), None)),
            }
        })))
    }
}

#[cfg(test)]
mod tests {
    use dray_sandbox_conformance::fake::Fake;
    use dray_transfer_engine::EngineOptions;

    use super::*;

    async fn metadata(fake: &Fake, path: &SandboxPath) -> Metadata {
        use dray_sandbox::{Follow, Sandbox as _};
        fake.stat(path, Follow::Yes).await.unwrap()
    }

    fn engine() -> (Fake, Engine, SandboxPath) {
        let fake = Fake::new();
        fake.file("/work/a", "abcdef");
        let engine = Engine::new(Arc::new(fake.clone()), EngineOptions::default());
        (fake, engine, SandboxPath::new("/work/a").unwrap())
    }

    #[tokio::test]
    async fn the_last_bytes_are_held_back_until_the_digest_is_verified() {
        let (fake, engine, path) = engine();
        let (mut sink, source, wanted) = pipe(6, &engine, &path);
        let mut body = source.open(0).await.unwrap();
        wanted.await.unwrap();
        sink.begin(&metadata(&fake, &path).await).await.unwrap();
        sink.write("abc".into()).await.unwrap();
        sink.write("def".into()).await.unwrap();
        assert_eq!(body.next().await.unwrap().unwrap(), "abc");
        assert!(futures_util::poll!(std::pin::pin!(body.next())).is_pending());
        let sha256 = Sha256Digest::of(b"abcdef");
        sink.finish(sha256, 6).await.unwrap();
        assert_eq!(body.next().await.unwrap().unwrap(), "def");
        assert!(body.next().await.is_none());
        assert_eq!(source.sha256().await.unwrap(), sha256);
    }

    #[tokio::test]
    async fn without_a_verified_digest_the_put_gets_an_error() {
        let (fake, engine, path) = engine();
        let (mut sink, source, _wanted) = pipe(6, &engine, &path);
        let mut body = source.open(0).await.unwrap();
        sink.begin(&metadata(&fake, &path).await).await.unwrap();
        sink.write("abcdef".into()).await.unwrap();
        sink.abort().await;
        assert!(body.next().await.unwrap().is_err());
        assert!(source.open(0).await.is_err(), "a pipe is opened once");
    }

    #[tokio::test]
    async fn a_get_that_begins_again_breaks_the_pipe() {
        let (fake, engine, path) = engine();
        let (mut sink, _source, _wanted) = pipe(6, &engine, &path);
        let file = metadata(&fake, &path).await;
        sink.begin(&file).await.unwrap();
        sink.begin(&file).await.unwrap();
        sink.write("abc".into()).await.unwrap();
        assert!(sink.begin(&file).await.is_err());
    }
}
