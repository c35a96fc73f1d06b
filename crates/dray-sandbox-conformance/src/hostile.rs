//! Cases of files that must not be opened, and of changes between check and use (sandbox-transfer 1.4, R-2).

use dray_sandbox::backend::Follow;
use dray_sandbox::error::{Error, ErrorKind};
use dray_sandbox::metadata::{FileKind, Metadata};
use dray_sandbox::path::SandboxPath;

use super::report::{equal, holds, refused, same_bytes};
use super::world::{new_file, pieces};
use super::{Stop, World};

/// Metadata of a regular file under another path, as a check that came too early would have it.
async fn stale(world: &World<'_>, path: &SandboxPath) -> Result<Metadata, Stop> {
    let before = world.put("stale", b"12345").await?;
    let file = world.sandbox.stat(&before, Follow::Yes).await?;
    world.sandbox.remove(&before, false).await?;
    Ok(Metadata {
        path: path.clone(),
        real_path: path.clone(),
        identity: None,
        ..file
    })
}

pub(super) async fn a_fifo_is_refused_and_never_waited_for(world: &World<'_>) -> Result<(), Stop> {
    world.needs(|traits| traits.fifo)?;
    world.sh("mkfifo pipe").await?;
    let path = world.path("pipe")?;
    let said = world.sandbox.stat(&path, Follow::Yes).await?;
    equal("kind", said.kind, FileKind::Fifo)?;
    let listing = world.sandbox.list(&world.directory, 1, 10).await?;
    let kinds: Vec<_> = listing.entries.iter().map(|entry| entry.kind).collect();
    equal("listed", kinds, vec![FileKind::Fifo])?;
    for transport in world.sandbox.transports(&path) {
        let read = world.read_by(transport, &said).await;
        refused(transport.as_str(), read, &[ErrorKind::NotRegular])?;
        // The backend must check again itself; the caller's metadata are outdated.
        let mut early = stale(world, &path).await?;
        early.size = 5;
        let read = world.read_by(transport, &early).await;
        holds(
            read.is_err(),
            format_args!("{}: a pipe was read", transport.as_str()),
        )?;
        let written = world
            .sandbox
            .write(new_file(transport, &path, 1), pieces(b"x"))
            .await;
        refused(
            "written to",
            written,
            &[ErrorKind::Exists, ErrorKind::NotRegular],
        )?;
    }
    if world.traits.fingerprint {
        let digest = world.sandbox.fingerprint(&path).await;
        refused("digest", digest, &[ErrorKind::NotRegular])?;
    }
    Ok(world.sandbox.remove(&path, false).await?)
}

pub(super) async fn a_directory_is_not_read(world: &World<'_>) -> Result<(), Stop> {
    let said = world.sandbox.stat(&world.directory, Follow::Yes).await?;
    let kinds = [ErrorKind::IsDirectory, ErrorKind::NotRegular];
    for transport in world.sandbox.transports(&said.real_path) {
        let read = world.read_by(transport, &said).await;
        refused(transport.as_str(), read, &kinds)?;
    }
    if world.traits.fingerprint {
        let digest = world.sandbox.fingerprint(&world.directory).await;
        refused("digest", digest, &kinds)?;
    }
    Ok(())
}

pub(super) async fn devices_and_pseudo_files_are_not_read(world: &World<'_>) -> Result<(), Stop> {
    for path in ["/dev/zero", "/dev/null"] {
        let path = SandboxPath::new(path)?;
        // A backend may not see them at all; those that it sees must not count as files.
        let Ok(said) = world.sandbox.stat(&path, Follow::Yes).await else {
            continue;
        };
        equal("kind", said.kind, FileKind::CharDevice)?;
        for transport in world.sandbox.transports(&path) {
            let read = world.read_by(transport, &said).await;
            refused(transport.as_str(), read, &[ErrorKind::NotRegular])?;
            let early = stale(world, &path).await?;
            let read = world.read_by(transport, &early).await;
            holds(
                read.is_err(),
                format_args!("{}: a device was read", transport.as_str()),
            )?;
        }
    }
    Ok(())
}

pub(super) async fn a_path_swapped_after_the_check_is_noticed(
    world: &World<'_>,
) -> Result<(), Stop> {
    let path = world.put("checked", b"first").await?;
    let said = world.sandbox.stat(&path, Follow::Yes).await?;
    // Both exist for a while, so that the second cannot get the inode of the first.
    world
        .sh("printf other > other; mv -f other checked")
        .await?;
    for transport in world.sandbox.transports(&path) {
        match world.read_by(transport, &said).await {
            Err(error) => refused(
                transport.as_str(),
                Err::<(), Error>(error),
                &[ErrorKind::ChangedDuringTransfer],
            )?,
            Ok(_) if world.traits.identity => {
                return Err(Stop::fail(format_args!(
                    "{}: another file was read",
                    transport.as_str()
                )));
            }
            Ok(bytes) => same_bytes(transport.as_str(), &bytes, b"other")?,
        }
    }
    Ok(())
}

pub(super) async fn a_link_put_in_place_after_the_check_is_not_followed(
    world: &World<'_>,
) -> Result<(), Stop> {
    world.needs(|traits| traits.links && traits.identity)?;
    let path = world.put("checked", b"first").await?;
    let said = world.sandbox.stat(&path, Follow::Yes).await?;
    world
        .sh("printf other > secret; rm checked; ln -s secret checked")
        .await?;
    for transport in world.sandbox.transports(&path) {
        let read = world.read_by(transport, &said).await;
        holds(
            read.is_err(),
            format_args!("{}: the link was followed", transport.as_str()),
        )?;
    }
    Ok(())
}

pub(super) async fn what_the_user_may_not_touch_is_refused(world: &World<'_>) -> Result<(), Stop> {
    world.needs(|traits| traits.permissions)?;
    // Permissions do not bind root.
    if world.sh("id -u").await?.trim() == "0" {
        return Err(Stop::Skip("the sandbox user is root"));
    }
    world
        .sh("printf secret > closed; chmod 000 closed; mkdir sealed; chmod 555 sealed; mkdir -p dark/deep; chmod 000 dark")
        .await?;
    let denied = [ErrorKind::PermissionDenied];
    let closed = world.path("closed")?;
    let said = world.sandbox.stat(&closed, Follow::Yes).await?;
    for transport in world.sandbox.transports(&closed) {
        let read = world.read_by(transport, &said).await;
        refused(transport.as_str(), read, &denied)?;
    }
    let inside = world.path("sealed")?.join("file")?;
    for transport in world.sandbox.transports(&inside) {
        let write = new_file(transport, &inside, 1);
        let written = world.sandbox.write(write, pieces(b"x")).await;
        refused(transport.as_str(), written, &denied)?;
    }
    let made = world.sandbox.make_directory(&inside).await;
    refused("make", made, &denied)?;
    let dark = world.path("dark")?;
    refused("list", world.sandbox.list(&dark, 1, 10).await, &denied)?;
    let deep = world.sandbox.stat(&dark.join("deep")?, Follow::No).await;
    refused("stat", deep, &denied)?;
    // So that the directory of the case can be removed.
    world.sh("chmod 700 sealed dark").await?;
    Ok(())
}
