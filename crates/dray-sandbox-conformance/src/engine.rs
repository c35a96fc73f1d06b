//! Cases of transfers by the engine, as callers use it, with proof (sandbox-transfer ).

use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use dray_conformance::{CaseEnd, expect_bytes, expect_equal, expect_true};
use dray_sandbox::backend::Follow;
use dray_sandbox::body::Body;
use dray_sandbox::error::{Error, ErrorKind};
use dray_sandbox::metadata::Metadata;
use dray_sandbox::path::SandboxPath;
use dray_transfer_engine::policy::{ContentAction, Policy};
use dray_transfer_engine::{
    BytesSource, Collision, Engine, EngineOptions, GetOptions, GetResult, PutOptions, PutResult,
    Sink, Source, TransferFailure, VecSink,
};
use dray_types::Sha256Digest;
use tokio_util::sync::CancellationToken;

use super::CaseContext;
use super::context::random;
use super::expect::expect_error;
use super::proof::{expect_get_proof, expect_put_proof};

/// An engine on the sandbox of the case, with a policy that allows its directory.
pub(super) struct TransferCase {
    engine: Engine,
    policy: Policy,
}

impl TransferCase {
    pub(super) fn new(context: &CaseContext<'_>) -> Self {
        let options = EngineOptions {
            backoff: Duration::from_millis(20),
            ..EngineOptions::default()
        };
        let roots = [context.directory.clone()];
        Self {
            engine: Engine::new(std::sync::Arc::clone(&context.sandbox), options),
            // Random bytes may look like a token.
            policy: Policy::beneath(roots).with_content(ContentAction::Warn),
        }
    }

    /// Gets a file of at most `max_bytes`, with its content.
    pub(super) async fn get(
        &self,
        path: &SandboxPath,
        max_bytes: u64,
    ) -> Result<(GetResult, Vec<u8>), Error> {
        let mut sink = VecSink::default();
        let result = self.get_into(path, max_bytes, &mut sink).await?;
        let bytes = sink.into_bytes();
        let bytes = bytes.ok_or_else(|| Error::new(ErrorKind::Protocol, "not finished"))?;
        Ok((result, bytes))
    }

    async fn get_into(
        &self,
        path: &SandboxPath,
        max_bytes: u64,
        sink: &mut dyn Sink,
    ) -> Result<GetResult, Error> {
        let options = GetOptions {
            policy: &self.policy,
            max_bytes,
        };
        let cancel = CancellationToken::new();
        let result = self.engine.get(path, &options, sink, &(), &cancel).await;
        result.map_err(|failed| failed.error)
    }

    async fn put(
        &self,
        directory: &SandboxPath,
        name: &[u8],
        source: &dyn Source,
        collision: Collision,
    ) -> Result<PutResult, TransferFailure> {
        let options = PutOptions {
            policy: &self.policy,
            collision,
            mode: 0o644,
            operation: "conformance",
            epoch: 1,
        };
        let cancel = CancellationToken::new();
        self.engine
            .put(directory, name, source, &options, &(), &cancel)
            .await
    }
}

async fn names(context: &CaseContext<'_>) -> Result<Vec<String>, CaseEnd> {
    let listing = context.sandbox.list(&context.directory, 1, 100).await?;
    let names = listing.entries.iter();
    Ok(names
        .map(|entry| entry.path.name().escape_ascii().to_string())
        .collect())
}

pub(super) async fn a_file_comes_out_with_its_proof(
    context: &CaseContext<'_>,
) -> Result<(), CaseEnd> {
    let transfers = TransferCase::new(context);
    for size in [0, 1, 300_000] {
        let bytes = random(size);
        let path = context.put(format!("file {size}"), &bytes).await?;
        let (result, found) = transfers.get(&path, 300_000).await?;
        expect_bytes("content", &found, &bytes)?;
        let digest = Sha256Digest::of(&bytes);
        expect_equal("digest", result.sha256, digest)?;
        expect_equal("digest in the receipt", result.receipt.sha256, Some(digest))?;
        expect_equal("bytes", result.receipt.bytes, size as u64)?;
        // Files of these sizes are digested twice, so their states are not used.
        expect_get_proof(context, &result, false).await?;
        let kept = context.read(&path).await?;
        expect_bytes("the source", &kept, &bytes)?;
    }
    let large = context.path("file 300000")?;
    match transfers.get(&large, 299_999).await {
        Err(error) => expect_equal("numbers", error.numbers(), Some((300_000, 299_999)))?,
        Ok(_) => return Err(CaseEnd::fail("more than the limit was read")),
    }
    let outside = SandboxPath::new("/etc/passwd")?;
    let kinds = [ErrorKind::OutsideRoot, ErrorKind::DeniedPath];
    expect_error("outside", transfers.get(&outside, 1 << 20).await, &kinds)
}

pub(super) async fn a_file_goes_in_with_its_proof(
    context: &CaseContext<'_>,
) -> Result<(), CaseEnd> {
    let transfers = TransferCase::new(context);
    let first = BytesSource::new(random(200_000));
    let second = BytesSource::new(random(200_001));
    let rename = Collision::Rename;
    let to = &context.directory;
    let put = |source, collision| transfers.put(to, b"it's.csv", source, collision);
    let done = put(&first, rename).await.map_err(|failed| failed.error)?;
    expect_equal("path", &done.path, &context.path("it's.csv")?)?;
    expect_equal("digest", done.receipt.sha256, Some(first.sha256()))?;
    expect_equal("renamed", (done.renamed, done.existed), (false, false))?;
    expect_put_proof(context, &done, 200_000).await?;
    let repeated = put(&first, rename).await.map_err(|failed| failed.error)?;
    expect_equal("the same again", &repeated.path, &done.path)?;
    expect_equal("transport", repeated.receipt.transport, None)?;
    expect_equal("atomic", repeated.receipt.atomic, None)?;
    let other = put(&second, rename).await.map_err(|failed| failed.error)?;
    expect_equal("another", &other.path, &context.path("it's_2.csv")?)?;
    expect_equal("renamed", other.renamed, true)?;
    let third = BytesSource::new(&b"third"[..]);
    let fail = put(&third, Collision::Fail).await;
    expect_error(
        "taken",
        fail.map_err(|failed| failed.error),
        &[ErrorKind::Exists],
    )?;
    put(&third, Collision::Overwrite)
        .await
        .map_err(|failed| failed.error)?;
    expect_bytes("replaced", &context.read(&done.path).await?, b"third")?;
    expect_bytes(
        "beside",
        &context.read(&other.path).await?,
        &random(200_001),
    )?;
    let names = names(context).await?;
    expect_equal(
        "nothing else is left",
        names,
        vec!["it\\'s.csv".to_owned(), "it\\'s_2.csv".to_owned()],
    )?;
    if context.traits.modes {
        let file = context.sandbox.stat(&done.path, Follow::No).await?;
        expect_equal("mode", file.mode, 0o644)?;
    }
    Ok(())
}

/// A source that fails after its first chunk, each time it is opened.
struct BrokenSource(BytesSource);

#[async_trait]
impl Source for BrokenSource {
    fn size(&self) -> u64 {
        self.0.size()
    }

    async fn sha256(&self) -> Result<Sha256Digest, Error> {
        Ok(self.0.sha256())
    }

    async fn open(&self, offset: u64) -> Result<Body, Error> {
        use futures_util::StreamExt as _;
        let broken = futures_util::stream::iter([Err(Error::new(ErrorKind::Corrupted, "broken"))]);
        Ok(Body::new(self.0.open(offset).await?.take(1).chain(broken)))
    }
}

pub(super) async fn a_put_that_fails_leaves_nothing(
    context: &CaseContext<'_>,
) -> Result<(), CaseEnd> {
    let transfers = TransferCase::new(context);
    let broken = BrokenSource(BytesSource::new(random(300_000)));
    let to = &context.directory;
    match transfers.put(to, b"file", &broken, Collision::Rename).await {
        Ok(_) => return Err(CaseEnd::fail("a broken source was put")),
        Err(failed) => expect_equal("left behind", failed.left, vec![])?,
    }
    expect_equal("left", names(context).await?, Vec::<String>::new())
}

/// A sink that runs a script when the first bytes of the first copy arrive.
struct RewritingSink<'a> {
    context: &'a CaseContext<'a>,
    script: Option<&'a str>,
    sink: VecSink,
}

#[async_trait]
impl Sink for RewritingSink<'_> {
    async fn begin(&mut self, file: &Metadata) -> Result<(), Error> {
        self.sink.begin(file).await
    }

    async fn write(&mut self, chunk: Bytes) -> Result<(), Error> {
        if let Some(script) = self.script.take() {
            let failed = |stop| Error::new(ErrorKind::Protocol, format!("{stop:?}"));
            self.context.sh(script).await.map_err(failed)?;
        }
        self.sink.write(chunk).await
    }

    async fn finish(&mut self, sha256: Sha256Digest, size: u64) -> Result<(), Error> {
        self.sink.finish(sha256, size).await
    }

    async fn abort(&mut self) {
        self.sink.abort().await;
    }
}

pub(super) async fn a_file_rewritten_during_a_read_is_never_torn(
    context: &CaseContext<'_>,
) -> Result<(), CaseEnd> {
    context.needs(|traits| traits.fingerprint)?;
    // Skips the case, before the large file is written, when no script can be run.
    context.sh("true").await?;
    let transfers = TransferCase::new(context);
    let bytes = random(4 << 20);
    context.put("rewritten", &bytes).await?;
    context
        .sh("cp rewritten shrunk; cp rewritten grown")
        .await?;
    for (name, script, after) in [
        (
            "rewritten",
            "dd if=/dev/zero of=rewritten bs=65536 count=64 conv=notrunc 2>/dev/null",
            vec![0; 4 << 20],
        ),
        ("shrunk", "printf short > shrunk", b"short".to_vec()),
        (
            "grown",
            "printf more >> grown",
            [bytes.as_slice(), b"more"].concat(),
        ),
    ] {
        let path = context.path(name)?;
        let mut sink = RewritingSink {
            context,
            script: Some(script),
            sink: VecSink::default(),
        };
        match transfers.get_into(&path, 8 << 20, &mut sink).await {
            Ok(got) => {
                let found = sink.sink.into_bytes().unwrap_or_default();
                expect_true(
                    found == bytes || found == after,
                    format_args!("{name}: {} bytes of a mixed state of the file", found.len()),
                )?;
                expect_equal(name, got.sha256, Sha256Digest::of(&found))?;
            }
            Err(error) => expect_error(
                name,
                Err::<(), Error>(error),
                &[
                    ErrorKind::ChangedDuringTransfer,
                    ErrorKind::Truncated,
                    ErrorKind::Corrupted,
                ],
            )?,
        }
    }
    Ok(())
}
