//! Cases of metadata.

use dray_sandbox::backend::Follow;
use dray_sandbox::error::ErrorKind;
use dray_sandbox::metadata::FileKind;

use super::report::{equal, holds, refused, same_bytes};
use super::{Stop, World};

pub(super) async fn files_and_directories_are_described(world: &World<'_>) -> Result<(), Stop> {
    let path = world.put("file", b"12345").await?;
    for follow in [Follow::No, Follow::Yes] {
        let file = world.sandbox.stat(&path, follow).await?;
        equal("kind", file.kind, FileKind::File)?;
        equal("size", file.size, 5)?;
        equal("path", &file.path, &path)?;
        equal("real path", &file.real_path, &path)?;
        equal("target", file.link_target, None)?;
        equal("links", file.links.unwrap_or(1), 1)?;
        let directory = world.sandbox.stat(&world.directory, follow).await?;
        equal("kind", directory.kind, FileKind::Directory)?;
        equal("real path", &directory.real_path, &world.directory)?;
    }
    let empty = world.put("empty", b"").await?;
    let empty = world.sandbox.stat(&empty, Follow::Yes).await?;
    equal(
        "an empty file",
        (empty.kind, empty.size),
        (FileKind::File, 0),
    )
}

pub(super) async fn links_are_told_apart_and_followed(world: &World<'_>) -> Result<(), Stop> {
    world.needs(|traits| traits.links)?;
    let target = world.put("target", b"behind").await?;
    world.sh("ln -s target near; ln -s near far").await?;
    let absolute = format!("ln -s '{}' absolute", target.to_text()?);
    world.sh(&absolute).await?;
    for (name, text) in [
        ("near", b"target".as_slice()),
        ("far", b"near"),
        ("absolute", target.as_bytes()),
    ] {
        let path = world.path(name)?;
        let link = world.sandbox.stat(&path, Follow::No).await?;
        equal(name, link.kind, FileKind::Symlink)?;
        equal(name, &link.real_path, &path)?;
        // Some wires resolve the text of a link; both forms lead to the target.
        let said = link.link_target.unwrap_or_default();
        let resolved = world.path(text.rsplit(|byte| *byte == b'/').next().unwrap_or(text))?;
        holds(
            said == text || said == resolved.as_bytes(),
            format_args!("{name} leads to {}", said.escape_ascii()),
        )?;
        let file = world.sandbox.stat(&path, Follow::Yes).await?;
        equal(name, (file.kind, file.size), (FileKind::File, 6))?;
        equal(name, &file.path, &path)?;
        equal(name, &file.real_path, &target)?;
        same_bytes(name, &world.read(&path).await?, b"behind")?;
    }
    Ok(())
}

pub(super) async fn links_on_the_way_are_resolved(world: &World<'_>) -> Result<(), Stop> {
    world.needs(|traits| traits.links)?;
    world
        .sh("mkdir -p real/deep; printf x > real/deep/file; ln -s real link; ln -s ../../link real/deep/back")
        .await?;
    let real = world.path("real")?.join("deep")?.join("file")?;
    for way in ["link/deep/file", "link/deep/back/deep/file"] {
        let mut path = world.directory.clone();
        for part in way.split('/') {
            path = path.join(part)?;
        }
        for follow in [Follow::No, Follow::Yes] {
            let file = world.sandbox.stat(&path, follow).await?;
            equal(way, file.kind, FileKind::File)?;
        }
        let file = world.sandbox.stat(&path, Follow::Yes).await?;
        equal(way, &file.real_path, &real)?;
    }
    let directory = world
        .sandbox
        .stat(&world.path("link")?, Follow::Yes)
        .await?;
    equal("a link to a directory", directory.kind, FileKind::Directory)
}

pub(super) async fn a_link_to_nowhere_is_a_link_and_not_found(
    world: &World<'_>,
) -> Result<(), Stop> {
    world.needs(|traits| traits.links)?;
    world.sh("ln -s nowhere dangling").await?;
    let path = world.path("dangling")?;
    let link = world.sandbox.stat(&path, Follow::No).await?;
    equal("kind", link.kind, FileKind::Symlink)?;
    refused(
        "followed",
        world.sandbox.stat(&path, Follow::Yes).await,
        &[ErrorKind::NotFound],
    )
}

pub(super) async fn a_loop_of_links_is_a_loop(world: &World<'_>) -> Result<(), Stop> {
    world.needs(|traits| traits.links)?;
    world.sh("ln -s b a; ln -s a b; ln -s self self").await?;
    for name in ["a", "self"] {
        let path = world.path(name)?;
        let link = world.sandbox.stat(&path, Follow::No).await?;
        equal(name, link.kind, FileKind::Symlink)?;
        let followed = world.sandbox.stat(&path, Follow::Yes).await;
        refused(name, followed, &[ErrorKind::Loop])?;
        let below = world.sandbox.stat(&path.join("x")?, Follow::No).await;
        refused("below a loop", below, &[ErrorKind::Loop])?;
    }
    Ok(())
}

pub(super) async fn what_is_missing_is_not_found(world: &World<'_>) -> Result<(), Stop> {
    let file = world.put("file", b"x").await?;
    for follow in [Follow::No, Follow::Yes] {
        let missing = world.sandbox.stat(&world.path("missing")?, follow).await;
        refused("missing", missing, &[ErrorKind::NotFound])?;
        let below = world.path("missing")?.join("below")?;
        let below = world.sandbox.stat(&below, follow).await;
        refused("below what is missing", below, &[ErrorKind::NotFound])?;
        let below = world.sandbox.stat(&file.join("below")?, follow).await;
        refused(
            "below a file",
            below,
            &[ErrorKind::NotDirectory, ErrorKind::NotFound],
        )?;
    }
    Ok(())
}

pub(super) async fn times_are_those_of_the_sandbox(world: &World<'_>) -> Result<(), Stop> {
    world
        .sh("printf x > old; TZ=UTC0 touch -t 200109090146.40 old")
        .await?;
    let file = world.sandbox.stat(&world.path("old")?, Follow::Yes).await?;
    match file.mtime_ns {
        Some(time) => equal("seconds", time / 1_000_000_000, 1_000_000_000),
        None => Err(Stop::Skip("the wire has no times")),
    }
}
