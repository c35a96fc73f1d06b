//! Cases of files that change while they are read (sandbox-transfer ): the result is an error or the whole
//! file, never a shorter one without an error.

use dray_conformance::{CaseEnd, expect_bytes, expect_equal};
use dray_sandbox::backend::{Follow, Read};
use dray_sandbox::error::{Error, ErrorKind};
use dray_sandbox::metadata::Transport;
use dray_sandbox::path::SandboxPath;

use super::CaseContext;
use super::context::random;

/// Size of a file that is so large that the change happens before the last byte is read, despite all buffers.
const FILE_BYTES: usize = 6 << 20;

/// Errors that report a change of the source.
const CHANGED_ERRORS: [ErrorKind; 3] = [
    ErrorKind::Truncated,
    ErrorKind::ChangedDuringTransfer,
    ErrorKind::Corrupted,
];

/// Reads a file by every transport; a script changes it after the first chunk arrived.
async fn check_changed_read(
    context: &CaseContext<'_>,
    script: &str,
    check: fn(&[u8], &[u8]) -> Result<(), CaseEnd>,
) -> Result<(), CaseEnd> {
    let path = context.path("changing")?;
    let bytes = random(FILE_BYTES);
    for transport in context.sandbox.transports(&path) {
        context.write(&path, &bytes).await?;
        match read_with_change(context, transport, &path, script).await? {
            Ok(found) => check(&found, &bytes)?,
            Err(error) if CHANGED_ERRORS.contains(&error.kind()) => {}
            Err(error) => return Err(error.into()),
        }
        context.sh("rm -f changing").await?;
    }
    Ok(())
}

/// Reads a file by this transport, and runs a script after the first chunk has arrived.
async fn read_with_change(
    context: &CaseContext<'_>,
    transport: Transport,
    path: &SandboxPath,
    script: &str,
) -> Result<Result<Vec<u8>, Error>, CaseEnd> {
    let file = context.sandbox.stat(path, Follow::Yes).await?;
    let read = Read {
        transport,
        file: &file,
        offset: 0,
    };
    let mut body = context.sandbox.read(read).await?;
    let mut found = Vec::new();
    let mut is_changed = false;
    while let Some(chunk) = body.next().await {
        match chunk {
            Ok(chunk) => found.extend_from_slice(&chunk),
            Err(error) => return Ok(Err(error)),
        }
        if !is_changed {
            is_changed = true;
            context.sh(script).await?;
        }
    }
    Ok(Ok(found))
}

pub(super) async fn a_file_that_shrinks_is_never_read_short_without_an_error(
    context: &CaseContext<'_>,
) -> Result<(), CaseEnd> {
    check_changed_read(context, ": > changing", |found, bytes| {
        expect_bytes("whole", found, bytes)
    })
    .await
}

pub(super) async fn a_file_that_grows_is_cut_or_refused(
    context: &CaseContext<'_>,
) -> Result<(), CaseEnd> {
    check_changed_read(context, "printf more >> changing", |found, bytes| {
        expect_bytes("as announced", found, bytes)
    })
    .await
}

pub(super) async fn a_file_that_is_rewritten_keeps_its_length(
    context: &CaseContext<'_>,
) -> Result<(), CaseEnd> {
    // Mixed old and new content has the right length; only digests show it, and the caller compares those.
    let script = "dd if=/dev/zero of=changing bs=65536 count=96 conv=notrunc 2>/dev/null";
    check_changed_read(context, script, |found, bytes| {
        expect_equal("length", found.len(), bytes.len())
    })
    .await
}

pub(super) async fn a_file_that_is_removed_is_whole_or_refused(
    context: &CaseContext<'_>,
) -> Result<(), CaseEnd> {
    let bytes = random(FILE_BYTES);
    let path = context.path("removed")?;
    for transport in context.sandbox.transports(&path) {
        context.write(&path, &bytes).await?;
        match read_with_change(context, transport, &path, "rm removed").await? {
            Ok(found) => expect_bytes(transport.as_str(), &found, &bytes)?,
            Err(error) if CHANGED_ERRORS.contains(&error.kind()) => {}
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(())
}

/// Most writes until the marker changes: two writes within one tick of the kernel's clock leave the same times.
const MAX_REWRITES: usize = 100;

pub(super) async fn a_modification_time_that_was_set_back_changes_the_marker(
    context: &CaseContext<'_>,
) -> Result<(), CaseEnd> {
    let path = context.path("marked")?;
    context.write(&path, b"first").await?;
    let marker = async || context.sandbox.change_marker(&path).await;
    let before = marker().await?;
    if before.is_none() {
        return Err(CaseEnd::Skip("the sandbox reports neither ctime nor inode"));
    }
    expect_equal("an untouched file", &marker().await?, &before)?;
    for _ in 0..MAX_REWRITES {
        // The file is changed in place, so that neither the inode nor the size changes.
        let script = "touch -r marked times && printf other > marked && touch -r times marked";
        context.sh(script).await?;
        if marker().await? != before {
            return Ok(());
        }
    }
    Err(CaseEnd::Fail("no write changes the marker".to_owned()))
}
