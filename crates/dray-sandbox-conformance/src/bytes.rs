//! Cases of content: bytes that were written are read back unchanged.

use bytes::Bytes;
use dray_conformance::{CaseEnd, expect_bytes, expect_equal, expect_true};
use dray_sandbox::backend::{Follow, Write};
use dray_sandbox::body::Body;
use dray_sandbox::error::{Error, ErrorKind};
use dray_sandbox::metadata::{FileKind, Fingerprint};
use dray_types::Sha256Digest;
use futures_util::future::try_join_all;
use futures_util::stream;

use super::CaseContext;
use super::context::{chunks, new_file, random};
use super::expect::expect_error;

/// Writes a file of this size and reads it back, by every pair of transports.
async fn check_round_trip(context: &CaseContext<'_>, size: usize) -> Result<(), CaseEnd> {
    let bytes = random(size);
    let first = context.path(format!("size-{size}"))?;
    for writer in context.sandbox.transports(&first) {
        let what = format!("{size} bytes by {}", writer.as_str());
        let path = context.path(format!("size-{size}-{}", writer.as_str()))?;
        let write = new_file(writer, &path, size as u64);
        context.sandbox.write(write, chunks(&bytes)).await?;
        let file = context.sandbox.stat(&path, Follow::Yes).await?;
        expect_equal(&what, file.size, size as u64)?;
        expect_equal(&what, file.kind, FileKind::File)?;
        for reader in context.sandbox.transports(&file.real_path) {
            let found = context.read_by(reader, &file).await?;
            expect_bytes(
                &format!("{what}, back by {}", reader.as_str()),
                &found,
                &bytes,
            )?;
        }
    }
    Ok(())
}

pub(super) async fn every_size_comes_back_by_every_transport(
    context: &CaseContext<'_>,
) -> Result<(), CaseEnd> {
    // Around 64 KiB, the size of many buffers: a chunk ends exactly with the file, or one byte before or after it.
    for size in [0, 1, 65_535, 65_536, 65_537, 1 << 20] {
        check_round_trip(context, size).await?;
    }
    Ok(())
}

pub(super) async fn five_mebibytes_come_back_by_every_transport(
    context: &CaseContext<'_>,
) -> Result<(), CaseEnd> {
    check_round_trip(context, 5 << 20).await
}

pub(super) async fn an_existing_file_is_never_written_to(
    context: &CaseContext<'_>,
) -> Result<(), CaseEnd> {
    let path = context.put("there", b"first").await?;
    for transport in context.sandbox.transports(&path) {
        let write = new_file(transport, &path, 6);
        let second = context.sandbox.write(write, chunks(b"second")).await;
        expect_error(transport.as_str(), second, &[ErrorKind::Exists])?;
        expect_bytes(transport.as_str(), &context.read(&path).await?, b"first")?;
    }
    // A directory has the name as well, and some tools would write into it.
    let directory = context.path("directory")?;
    context.sandbox.make_directory(&directory).await?;
    expect_error(
        "a directory",
        context.write(&directory, b"x").await,
        &[ErrorKind::Exists, ErrorKind::IsDirectory],
    )
}

pub(super) async fn nothing_is_written_through_a_link(
    context: &CaseContext<'_>,
) -> Result<(), CaseEnd> {
    context.needs(|traits| traits.links)?;
    context
        .sh("printf kept > target; ln -s target link; ln -s nowhere dangling")
        .await?;
    for name in ["link", "dangling"] {
        let path = context.path(name)?;
        for transport in context.sandbox.transports(&path) {
            let what = format!("{name} by {}", transport.as_str());
            let write = new_file(transport, &path, 3);
            let written = context.sandbox.write(write, chunks(b"new")).await;
            expect_error(&what, written, &[ErrorKind::Exists])?;
        }
    }
    expect_bytes(
        "target",
        &context.read(&context.path("target")?).await?,
        b"kept",
    )?;
    expect_error(
        "the target of the dangling link",
        context
            .sandbox
            .stat(&context.path("nowhere")?, Follow::No)
            .await,
        &[ErrorKind::NotFound],
    )
}

/// Writes a body of another length than announced: the write must fail, and the sandbox must stay usable.
async fn check_wrong_length(
    context: &CaseContext<'_>,
    size: u64,
    body: fn() -> Body,
) -> Result<(), CaseEnd> {
    let first = context.path("misfit")?;
    for transport in context.sandbox.transports(&first) {
        let path = context.path(format!("misfit-{}", transport.as_str()))?;
        let written = context
            .sandbox
            .write(new_file(transport, &path, size), body())
            .await;
        expect_true(
            written.is_err(),
            format_args!("{}: no error", transport.as_str()),
        )?;
        // A part of the file may be left; the caller removes it, as the contract says.
        match context.sandbox.remove(&path, false).await {
            Err(error) if error.kind() != ErrorKind::NotFound => return Err(error.into()),
            _ => {}
        }
        context.write(&path, b"good").await?;
        expect_bytes("afterwards", &context.read(&path).await?, b"good")?;
    }
    Ok(())
}

pub(super) async fn a_short_body_is_a_failure(context: &CaseContext<'_>) -> Result<(), CaseEnd> {
    check_wrong_length(context, 100_000, || chunks(&random(99_999))).await?;
    check_wrong_length(context, 1, || Body::from_bytes(Bytes::new())).await
}

pub(super) async fn a_long_body_is_a_failure(context: &CaseContext<'_>) -> Result<(), CaseEnd> {
    check_wrong_length(context, 99_999, || chunks(&random(100_000))).await?;
    check_wrong_length(context, 0, || Body::from_bytes(&b"x"[..])).await
}

pub(super) async fn a_body_that_breaks_is_a_failure(
    context: &CaseContext<'_>,
) -> Result<(), CaseEnd> {
    check_wrong_length(context, 100_000, || {
        Body::new(stream::iter([
            Ok(Bytes::from(random(50_000))),
            Err(Error::new(ErrorKind::Unavailable, "the source broke")),
        ]))
    })
    .await
}

pub(super) async fn written_files_have_the_mode_and_the_owner(
    context: &CaseContext<'_>,
) -> Result<(), CaseEnd> {
    context.needs(|traits| traits.modes)?;
    let probe = context.sandbox.probe().await?;
    let first = context.path("mode")?;
    for transport in context.sandbox.transports(&first) {
        for mode in [0o600, 0o644, 0o755] {
            let what = format!("{mode:o} by {}", transport.as_str());
            let path = context.path(format!("mode-{mode:o}-{}", transport.as_str()))?;
            let write = Write {
                mode,
                ..new_file(transport, &path, 1)
            };
            context.sandbox.write(write, chunks(b"x")).await?;
            let file = context.sandbox.stat(&path, Follow::Yes).await?;
            expect_equal(&what, file.mode, mode)?;
            expect_equal(&what, file.uid.unwrap_or(probe.uid), probe.uid)?;
        }
    }
    Ok(())
}

pub(super) async fn nothing_is_written_below_a_file(
    context: &CaseContext<'_>,
) -> Result<(), CaseEnd> {
    let file = context.put("file", b"kept").await?;
    let below = file.join("below")?;
    for transport in context.sandbox.transports(&below) {
        let written = context
            .sandbox
            .write(new_file(transport, &below, 1), chunks(b"x"))
            .await;
        expect_error(
            transport.as_str(),
            written,
            &[ErrorKind::NotDirectory, ErrorKind::NotFound],
        )?;
    }
    expect_bytes("the file", &context.read(&file).await?, b"kept")
}

pub(super) async fn digests_are_those_of_the_bytes(
    context: &CaseContext<'_>,
) -> Result<(), CaseEnd> {
    context.needs(|traits| traits.fingerprint)?;
    for size in [0, 1, 65_537, 1 << 20] {
        let bytes = random(size);
        let path = context.put(format!("digest-{size}"), &bytes).await?;
        let what = format!("{size} bytes");
        match context.sandbox.fingerprint(&path).await? {
            Fingerprint::Sha256(digest, counted) => {
                expect_equal(&what, digest, Sha256Digest::of(&bytes))?;
                expect_equal(&what, counted, size as u64)?;
            }
            Fingerprint::Cksum(sum, counted) => {
                expect_equal(&what, sum, cksum(&bytes))?;
                expect_equal(&what, counted, size as u64)?;
            }
        }
    }
    expect_error(
        "a missing file",
        context.sandbox.fingerprint(&context.path("missing")?).await,
        &[ErrorKind::NotFound],
    )
}

/// CRC of POSIX `cksum`, written independently of the code under test.
fn cksum(bytes: &[u8]) -> u32 {
    let feed = |sum: u32, byte: u8| {
        (0..8).fold(sum ^ (u32::from(byte) << 24), |sum, _| {
            let carry = sum >> 31;
            (sum << 1) ^ (carry * 0x04c1_1db7)
        })
    };
    let mut sum = bytes.iter().fold(0, |sum, byte| feed(sum, *byte));
    let mut length = bytes.len();
    while length != 0 {
        sum = feed(sum, length.to_le_bytes()[0]);
        length >>= 8;
    }
    !sum
}

pub(super) async fn eight_transfers_run_concurrently(
    context: &CaseContext<'_>,
) -> Result<(), CaseEnd> {
    try_join_all((0..8_usize).map(|index| async move {
        let bytes = random(256 * 1024 + index);
        let path = context.put(format!("parallel-{index}"), &bytes).await?;
        expect_bytes("in parallel", &context.read(&path).await?, &bytes)
    }))
    .await?;
    Ok(())
}
