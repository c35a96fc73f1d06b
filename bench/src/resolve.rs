//! (c) Resolving base64 of 10 MiB, one and 32 concurrently, against reading, hashing and encoding the bytes in memory.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use dray_proto::convert::ContentSource;
use dray_proto::v1;
use sha2::{Digest as _, Sha256};

use crate::fixture::BenchFixture;
use crate::harness::{BenchComparison, RatioTarget, SampleSet, side_by_side};
use crate::print_line;

const FILE_BYTES: u64 = 10 << 20;
const ROUND_COUNT: usize = 7;

/// Measures one and 32 concurrently.
pub(crate) async fn run() -> anyhow::Result<()> {
    let fixture = BenchFixture::start().await?;
    for source in [FileOrigin::Dial, FileOrigin::Outside] {
        for count in [1, 32] {
            print_line(&compare_counts(&fixture, source, count).await?.to_string());
        }
    }
    fixture.running.stop().await;
    Ok(())
}

async fn compare_counts(
    fixture: &BenchFixture,
    source: FileOrigin,
    count: usize,
) -> anyhow::Result<BenchComparison> {
    let directory = tempfile::tempdir()?;
    let file = directory.path().join("file");
    std::fs::write(&file, vec![0x5a; usize::try_from(FILE_BYTES)?])?;
    let (baseline, ours) = side_by_side(
        ROUND_COUNT,
        || async {
            let work = (0..count).map(|_| {
                let file = file.clone();
                // On blocking threads, so that 32 of them run concurrently.
                tokio::task::spawn_blocking(move || in_memory(&file))
            });
            for result in futures_util::future::join_all(work).await {
                result??;
            }
            Ok(())
        },
        || async {
            let calls = (0..count).map(|_| resolve_file(fixture, source));
            futures_util::future::try_join_all(calls).await?;
            Ok(())
        },
    )
    .await?;
    Ok(BenchComparison {
        name: format!(
            "(c) base64 of 10 MiB {}, {count} concurrent",
            source.label()
        ),
        baseline: SampleSet::new("read a file, SHA-256, encode, all in memory", baseline),
        ours: SampleSet::new(source.work(), ours),
        target: RatioTarget::TimeAtMost(2.5),
    })
}

fn in_memory(file: &std::path::Path) -> anyhow::Result<()> {
    let content = std::fs::read(file)?;
    let digest = Sha256::digest(&content);
    let text = STANDARD.encode(&content);
    // Without this the optimiser may drop the work.
    std::hint::black_box((digest, text));
    Ok(())
}

/// Where the file comes from.
#[derive(Clone, Copy, Debug)]
enum FileOrigin {
    /// DIAL Core: streamed straight into the result.
    Dial,
    /// The outside web: fetched into the store first, by the fetcher.
    Outside,
}

impl FileOrigin {
    fn label(self) -> &'static str {
        match self {
            Self::Dial => "from DIAL Core",
            Self::Outside => "from the outside web",
        }
    }

    fn work(self) -> &'static str {
        match self {
            Self::Dial => "dray resolve: HTTP, SHA-256, encode, S3, claim",
            Self::Outside => "dray resolve: fetch into S3, read, encode, S3 again",
        }
    }

    fn reference(self, number: u64) -> String {
        match self {
            Self::Dial => "file:base64::files/bench/file".to_owned(),
            Self::Outside => format!("file:base64::{}?{number}", BenchFixture::url(FILE_BYTES)),
        }
    }
}

async fn resolve_file(fixture: &BenchFixture, source: FileOrigin) -> anyhow::Result<()> {
    // A new number gives a new result, because a result that is stored already would not be written again.
    let number = fixture.server.unused_query();
    let arguments =
        serde_json::json!({ "n": number, "file": source.reference(number) }).to_string();
    let request = v1::ResolveRequest {
        arguments: Some(ContentSource::Inline(Bytes::from(arguments)).into()),
        options: Some(v1::ResolveOptions {
            size_limit_bytes: FILE_BYTES,
            ..v1::ResolveOptions::default()
        }),
        credentials: Some(v1::DialCredentials {
            api_key: BenchFixture::DIAL_KEY.to_owned(),
            authorization: String::new(),
        }),
        ..v1::ResolveRequest::default()
    };
    let bus = &fixture.running.context().bus;
    let reply = bus.call(&fixture.meta(), &request).await?;
    let resolved = matches!(reply.outcome, Some(v1::resolve_reply::Outcome::Resolved(_)));
    anyhow::ensure!(resolved, "not resolved: {:?}", reply.outcome);
    Ok(())
}
