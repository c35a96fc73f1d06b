//! (c) Resolving base64 of 10 MiB, one and 32 at once, against reading, hashing and encoding the bytes in memory.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use dray_proto::convert::Content;
use dray_proto::v1;
use sha2::{Digest as _, Sha256};

use crate::harness::{Aim, Comparison, Measured, side_by_side};
use crate::say;
use crate::world::World;

const SIZE: u64 = 10 << 20;
const ROUNDS: usize = 7;

/// Measures one and 32 at once.
pub(crate) async fn run() -> anyhow::Result<()> {
    let world = World::start().await?;
    for count in [1, 32] {
        say(&compare(&world, count).await?.to_string());
    }
    world.running.stop().await;
    Ok(())
}

async fn compare(world: &World, count: usize) -> anyhow::Result<Comparison> {
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("file");
    std::fs::write(&file, vec![0x5a; usize::try_from(SIZE)?])?;
    let (baseline, ours) = side_by_side(
        ROUNDS,
        || async {
            let work = (0..count).map(|_| {
                let file = file.clone();
                tokio::task::spawn_blocking(move || in_memory(&file))
            });
            for done in futures_util::future::join_all(work).await {
                done??;
            }
            Ok(())
        },
        || async {
            let calls = (0..count).map(|_| resolve(world));
            futures_util::future::try_join_all(calls).await?;
            Ok(())
        },
    )
    .await?;
    Ok(Comparison {
        name: format!("(c) base64 of 10 MiB, {count} at once"),
        baseline: Measured::new("read a file, SHA-256, encode, all in memory", baseline),
        ours: Measured::new("dray resolve: fetch, stage, encode, store, claim", ours),
        aim: Aim::TimeAtMost(2.5),
    })
}

fn in_memory(file: &std::path::Path) -> anyhow::Result<()> {
    let content = std::fs::read(file)?;
    let digest = Sha256::digest(&content);
    let text = STANDARD.encode(&content);
    std::hint::black_box((digest, text));
    Ok(())
}

async fn resolve(world: &World) -> anyhow::Result<()> {
    let url = format!("{}?{}", World::url(SIZE), world.server.fresh());
    let arguments = serde_json::json!({ "file": format!("file:base64::{url}") }).to_string();
    let request = v1::ResolveRequest {
        arguments: Some(Content::Inline(Bytes::from(arguments)).into()),
        options: Some(v1::ResolveOptions {
            size_limit_bytes: SIZE,
            ..v1::ResolveOptions::default()
        }),
        ..v1::ResolveRequest::default()
    };
    let reply = world
        .running
        .context()
        .bus
        .call(&world.meta(), &request)
        .await?;
    let resolved = matches!(reply.outcome, Some(v1::resolve_reply::Outcome::Resolved(_)));
    anyhow::ensure!(resolved, "not resolved: {:?}", reply.outcome);
    Ok(())
}
