//! Cases of files that must not be opened, and of changes between check and use (sandbox-transfer 1.4, R-2).

use dray_conformance::{CaseEnd, expect_bytes, expect_equal, expect_true};
use dray_sandbox::backend::Follow;
use dray_sandbox::error::{Error, ErrorKind};
use dray_sandbox::metadata::{FileKind, Metadata};
use dray_sandbox::path::SandboxPath;

use super::CaseContext;
use super::context::{chunks, new_file};
use super::expect::expect_error;

/// Metadata of a regular file under another path, as an early check would have returned it.
async fn stale_metadata(
    context: &CaseContext<'_>,
    path: &SandboxPath,
) -> Result<Metadata, CaseEnd> {
    let before = context.put("stale", b"12345").await?;
    let file = context.sandbox.stat(&before, Follow::Yes).await?;
    context.sandbox.remove(&before, false).await?;
    Ok(Metadata {
        path: path.clone(),
        real_path: path.clone(),
        identity: None,
        ..file
    })
}

pub(super) async fn a_fifo_is_refused_and_never_waited_for(
    context: &CaseContext<'_>,
) -> Result<(), CaseEnd> {
    context.needs(|traits| traits.fifo)?;
    context.sh("mkfifo pipe").await?;
    let path = context.path("pipe")?;
    let stat = context.sandbox.stat(&path, Follow::Yes).await?;
    expect_equal("kind", stat.kind, FileKind::Fifo)?;
    let listing = context.sandbox.list(&context.directory, 1, 10).await?;
    let kinds: Vec<_> = listing.entries.iter().map(|entry| entry.kind).collect();
    expect_equal("listed", kinds, vec![FileKind::Fifo])?;
    for transport in context.sandbox.transports(&path) {
        let read = context.read_by(transport, &stat).await;
        expect_error(transport.as_str(), read, &[ErrorKind::NotRegular])?;
        // The backend must check again itself; the caller's metadata are outdated.
        let mut stale_file = stale_metadata(context, &path).await?;
        stale_file.size = 5;
        let read = context.read_by(transport, &stale_file).await;
        expect_true(
            read.is_err(),
            format_args!("{}: a pipe was read", transport.as_str()),
        )?;
        let written = context
            .sandbox
            .write(new_file(transport, &path, 1), chunks(b"x"))
            .await;
        expect_error(
            "written to",
            written,
            &[ErrorKind::Exists, ErrorKind::NotRegular],
        )?;
    }
    if context.traits.fingerprint {
        let digest = context.sandbox.fingerprint(&path).await;
        expect_error("digest", digest, &[ErrorKind::NotRegular])?;
    }
    Ok(context.sandbox.remove(&path, false).await?)
}

pub(super) async fn a_directory_is_not_read(context: &CaseContext<'_>) -> Result<(), CaseEnd> {
    let stat = context
        .sandbox
        .stat(&context.directory, Follow::Yes)
        .await?;
    let kinds = [ErrorKind::IsDirectory, ErrorKind::NotRegular];
    for transport in context.sandbox.transports(&stat.real_path) {
        let read = context.read_by(transport, &stat).await;
        expect_error(transport.as_str(), read, &kinds)?;
    }
    if context.traits.fingerprint {
        let digest = context.sandbox.fingerprint(&context.directory).await;
        expect_error("digest", digest, &kinds)?;
    }
    Ok(())
}

pub(super) async fn devices_and_pseudo_files_are_not_read(
    context: &CaseContext<'_>,
) -> Result<(), CaseEnd> {
    for path in ["/dev/zero", "/dev/null"] {
        let path = SandboxPath::new(path)?;
        // A backend may hide devices; a visible device must not count as a file.
        let Ok(stat) = context.sandbox.stat(&path, Follow::Yes).await else {
            continue;
        };
        expect_equal("kind", stat.kind, FileKind::CharDevice)?;
        for transport in context.sandbox.transports(&path) {
            let read = context.read_by(transport, &stat).await;
            expect_error(transport.as_str(), read, &[ErrorKind::NotRegular])?;
            let stale_file = stale_metadata(context, &path).await?;
            let read = context.read_by(transport, &stale_file).await;
            expect_true(
                read.is_err(),
                format_args!("{}: a device was read", transport.as_str()),
            )?;
        }
    }
    Ok(())
}

pub(super) async fn a_path_swapped_after_the_check_is_noticed(
    context: &CaseContext<'_>,
) -> Result<(), CaseEnd> {
    let path = context.put("checked", b"first").await?;
    let stat = context.sandbox.stat(&path, Follow::Yes).await?;
    // Both exist for a while, so that the second one cannot get the inode of the first one.
    context
        .sh("printf other > other; mv -f other checked")
        .await?;
    for transport in context.sandbox.transports(&path) {
        match context.read_by(transport, &stat).await {
            Err(error) => expect_error(
                transport.as_str(),
                Err::<(), Error>(error),
                &[ErrorKind::ChangedDuringTransfer],
            )?,
            Ok(_) if context.traits.identity => {
                return Err(CaseEnd::fail(format_args!(
                    "{}: another file was read",
                    transport.as_str()
                )));
            }
            Ok(bytes) => expect_bytes(transport.as_str(), &bytes, b"other")?,
        }
    }
    Ok(())
}

pub(super) async fn a_link_put_in_place_after_the_check_is_not_followed(
    context: &CaseContext<'_>,
) -> Result<(), CaseEnd> {
    context.needs(|traits| traits.links && traits.identity)?;
    let path = context.put("checked", b"first").await?;
    let stat = context.sandbox.stat(&path, Follow::Yes).await?;
    context
        .sh("printf other > secret; rm checked; ln -s secret checked")
        .await?;
    for transport in context.sandbox.transports(&path) {
        let read = context.read_by(transport, &stat).await;
        expect_true(
            read.is_err(),
            format_args!("{}: the link was followed", transport.as_str()),
        )?;
    }
    Ok(())
}

pub(super) async fn access_without_permission_is_refused(
    context: &CaseContext<'_>,
) -> Result<(), CaseEnd> {
    context.needs(|traits| traits.permissions)?;
    // Permissions do not bind root.
    if context.sh("id -u").await?.trim() == "0" {
        return Err(CaseEnd::Skip("the sandbox user is root"));
    }
    context
        .sh("printf secret > closed; chmod 000 closed; mkdir sealed; chmod 555 sealed; mkdir -p dark/deep; chmod 000 dark")
        .await?;
    let denied = [ErrorKind::PermissionDenied];
    let closed = context.path("closed")?;
    let stat = context.sandbox.stat(&closed, Follow::Yes).await?;
    for transport in context.sandbox.transports(&closed) {
        let read = context.read_by(transport, &stat).await;
        expect_error(transport.as_str(), read, &denied)?;
    }
    let inside = context.path("sealed")?.join("file")?;
    for transport in context.sandbox.transports(&inside) {
        let write = new_file(transport, &inside, 1);
        let written = context.sandbox.write(write, chunks(b"x")).await;
        expect_error(transport.as_str(), written, &denied)?;
    }
    let result = context.sandbox.make_directory(&inside).await;
    expect_error("make", result, &denied)?;
    let dark = context.path("dark")?;
    expect_error("list", context.sandbox.list(&dark, 1, 10).await, &denied)?;
    let deep = context.sandbox.stat(&dark.join("deep")?, Follow::No).await;
    expect_error("stat", deep, &denied)?;
    // Without these permissions, the directory of the case could not be removed.
    context.sh("chmod 700 sealed dark").await?;
    Ok(())
}
