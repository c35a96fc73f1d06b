//! The words that a receipt must have, from the evidence that the sandbox offers (the table in
//! `docs/backends/transfers.md`).

use std::time::Duration;

use dray_conformance::{CaseEnd, expect_bytes, expect_equal};
use dray_sandbox::backend::Follow;
use dray_sandbox::error::ErrorKind;
use dray_sandbox::metadata::{Fingerprint, Integrity, Metadata};
use dray_sandbox::path::SandboxPath;
use dray_transfer_engine::{GetResult, PutResult};

use super::CaseContext;
use super::context::{chunks, new_file, random};
use super::engine::TransferCase;

/// Larger than the files that are digested twice.
const LARGE_FILE_BYTES: usize = 2 << 20;
/// Delay between two looks at the state of a file.
const POLL_INTERVAL: Duration = Duration::from_millis(100);
/// Most looks at the state of a file, which settles after two to three seconds.
const MAX_POLLS: u32 = 300;

/// Checks the integrity and the transport of a get. `settled` is whether the state of the file had settled before.
pub(super) async fn expect_get_proof(
    context: &CaseContext<'_>,
    got: &GetResult,
    settled: bool,
) -> Result<(), CaseEnd> {
    let file = &got.metadata;
    let digests = match context.sandbox.fingerprint(&file.real_path).await {
        Ok(Fingerprint::Sha256(..)) if settled => Integrity::Sha256Beside,
        Ok(Fingerprint::Sha256(..)) => Integrity::Sha256,
        Ok(Fingerprint::Cksum(..)) => Integrity::Weak,
        Err(error) if error.kind() == ErrorKind::ToolMissing => Integrity::SizeMtime,
        Err(error) => return Err(error.into()),
    };
    expect_equal("integrity", got.receipt.integrity, Some(digests))?;
    let transport = context.sandbox.read_transports(file).first().copied();
    expect_equal("transport", got.receipt.transport, transport)
}

/// Checks the receipt of a put that wrote a file of `size` bytes.
pub(super) async fn expect_put_proof(
    context: &CaseContext<'_>,
    put: &PutResult,
    size: usize,
) -> Result<(), CaseEnd> {
    let transport = context.sandbox.write_transports(&put.path).first().copied();
    expect_equal("transport", put.receipt.transport, transport)?;
    let Some(transport) = transport else {
        return Err(CaseEnd::fail("no transport writes to this path"));
    };
    // A second file shows whether this sandbox computes a digest beside a write.
    let probe = context.path("probe")?;
    let write = new_file(transport, &probe, size as u64);
    let digest = context
        .sandbox
        .write_with_digest(write, chunks(&random(size)))
        .await?;
    context.sandbox.remove(&probe, false).await?;
    let integrity = match digest {
        Some(Fingerprint::Sha256(..)) => Integrity::Sha256Beside,
        _ => Integrity::Sha256After,
    };
    expect_equal("integrity", put.receipt.integrity, Some(integrity))?;
    expect_equal("atomic", put.receipt.atomic, Some(context.traits.rename))
}

/// Waits until a write to the file would show in its state. `false` where the sandbox reports no state.
async fn is_settled(context: &CaseContext<'_>, path: &SandboxPath) -> Result<bool, CaseEnd> {
    let file = context.sandbox.stat(path, Follow::Yes).await?;
    for _ in 0..MAX_POLLS {
        let Ok(state) = context.sandbox.state(&file.real_path).await else {
            return Ok(false);
        };
        if state.is_settled() {
            // In another mount namespace the path may name another file, whose state says nothing about this one.
            return Ok(is_same_file(&file, state.identity));
        }
        tokio::time::sleep(POLL_INTERVAL).await;
    }
    Err(CaseEnd::fail("the state of the file did not settle"))
}

fn is_same_file(file: &Metadata, identity: (u64, u64)) -> bool {
    file.identity.is_none_or(|of_file| of_file == identity)
}

pub(super) async fn a_large_file_comes_out_with_its_proof(
    context: &CaseContext<'_>,
) -> Result<(), CaseEnd> {
    context.needs(|traits| traits.fingerprint)?;
    let transfers = TransferCase::new(context);
    let bytes = random(LARGE_FILE_BYTES);
    let path = context.put("large", &bytes).await?;
    let settled = is_settled(context, &path).await?;
    let (got, found) = transfers.get(&path, LARGE_FILE_BYTES as u64).await?;
    expect_bytes("content", &found, &bytes)?;
    expect_get_proof(context, &got, settled).await
}
