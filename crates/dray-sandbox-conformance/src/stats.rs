//! Conformance cases for metadata.

use dray_sandbox::backend::Follow;
use dray_sandbox::error::ErrorKind;
use dray_sandbox::metadata::FileKind;

use super::report::{equal, holds, refused, same_bytes};
use super::{CaseContext, Stop};

pub(super) async fn files_and_directories_are_described(
    context: &CaseContext<'_>,
) -> Result<(), Stop> {
    let path = context.put("file", b"12345").await?;
    for follow in [Follow::No, Follow::Yes] {
        let file = context.sandbox.stat(&path, follow).await?;
        equal("kind", file.kind, FileKind::File)?;
        equal("size", file.size, 5)?;
        equal("path", &file.path, &path)?;
        equal("real path", &file.real_path, &path)?;
        equal("target", file.link_target, None)?;
        equal("links", file.links.unwrap_or(1), 1)?;
        let directory = context.sandbox.stat(&context.directory, follow).await?;
        equal("kind", directory.kind, FileKind::Directory)?;
        equal("real path", &directory.real_path, &context.directory)?;
    }
    let empty = context.put("empty", b"").await?;
    let empty = context.sandbox.stat(&empty, Follow::Yes).await?;
    equal(
        "an empty file",
        (empty.kind, empty.size),
        (FileKind::File, 0),
    )
}

pub(super) async fn links_are_distinguished_and_followed(
    context: &CaseContext<'_>,
) -> Result<(), Stop> {
    context.needs(|traits| traits.links)?;
    let target = context.put("target", b"behind").await?;
    context.sh("ln -s target near; ln -s near far").await?;
    let absolute = format!("ln -s '{}' absolute", target.to_text()?);
    context.sh(&absolute).await?;
    for (name, text) in [
        ("near", b"target".as_slice()),
        ("far", b"near"),
        ("absolute", target.as_bytes()),
    ] {
        let path = context.path(name)?;
        let link = context.sandbox.stat(&path, Follow::No).await?;
        equal(name, link.kind, FileKind::Symlink)?;
        equal(name, &link.real_path, &path)?;
        // Some backends return the resolved target of a link; both forms lead to the target.
        let said = link.link_target.unwrap_or_default();
        let resolved = context.path(text.rsplit(|byte| *byte == b'/').next().unwrap_or(text))?;
        holds(
            said == text || said == resolved.as_bytes(),
            format_args!("{name} leads to {}", said.escape_ascii()),
        )?;
        let file = context.sandbox.stat(&path, Follow::Yes).await?;
        equal(name, (file.kind, file.size), (FileKind::File, 6))?;
        equal(name, &file.path, &path)?;
        equal(name, &file.real_path, &target)?;
        same_bytes(name, &context.read(&path).await?, b"behind")?;
    }
    Ok(())
}

pub(super) async fn links_on_the_way_are_resolved(context: &CaseContext<'_>) -> Result<(), Stop> {
    context.needs(|traits| traits.links)?;
    context
        .sh("mkdir -p real/deep; printf x > real/deep/file; ln -s real link; ln -s ../../link real/deep/back")
        .await?;
    let real = context.path("real")?.join("deep")?.join("file")?;
    for way in ["link/deep/file", "link/deep/back/deep/file"] {
        let mut path = context.directory.clone();
        for part in way.split('/') {
            path = path.join(part)?;
        }
        for follow in [Follow::No, Follow::Yes] {
            let file = context.sandbox.stat(&path, follow).await?;
            equal(way, file.kind, FileKind::File)?;
        }
        let file = context.sandbox.stat(&path, Follow::Yes).await?;
        equal(way, &file.real_path, &real)?;
    }
    let directory = context
        .sandbox
        .stat(&context.path("link")?, Follow::Yes)
        .await?;
    equal("a link to a directory", directory.kind, FileKind::Directory)
}

pub(super) async fn a_link_to_nowhere_is_a_link_and_not_found(
    context: &CaseContext<'_>,
) -> Result<(), Stop> {
    context.needs(|traits| traits.links)?;
    context.sh("ln -s nowhere dangling").await?;
    let path = context.path("dangling")?;
    let link = context.sandbox.stat(&path, Follow::No).await?;
    equal("kind", link.kind, FileKind::Symlink)?;
    refused(
        "followed",
        context.sandbox.stat(&path, Follow::Yes).await,
        &[ErrorKind::NotFound],
    )
}

pub(super) async fn a_loop_of_links_is_a_loop(context: &CaseContext<'_>) -> Result<(), Stop> {
    context.needs(|traits| traits.links)?;
    context.sh("ln -s b a; ln -s a b; ln -s self self").await?;
    for name in ["a", "self"] {
        let path = context.path(name)?;
        let link = context.sandbox.stat(&path, Follow::No).await?;
        equal(name, link.kind, FileKind::Symlink)?;
        let followed = context.sandbox.stat(&path, Follow::Yes).await;
        refused(name, followed, &[ErrorKind::Loop])?;
        let below = context.sandbox.stat(&path.join("x")?, Follow::No).await;
        refused("below a loop", below, &[ErrorKind::Loop])?;
    }
    Ok(())
}

pub(super) async fn what_is_missing_is_not_found(context: &CaseContext<'_>) -> Result<(), Stop> {
    let file = context.put("file", b"x").await?;
    for follow in [Follow::No, Follow::Yes] {
        let missing = context
            .sandbox
            .stat(&context.path("missing")?, follow)
            .await;
        refused("missing", missing, &[ErrorKind::NotFound])?;
        let below = context.path("missing")?.join("below")?;
        let below = context.sandbox.stat(&below, follow).await;
        refused("below what is missing", below, &[ErrorKind::NotFound])?;
        let below = context.sandbox.stat(&file.join("below")?, follow).await;
        refused(
            "below a file",
            below,
            &[ErrorKind::NotDirectory, ErrorKind::NotFound],
        )?;
    }
    Ok(())
}

pub(super) async fn times_are_those_of_the_sandbox(context: &CaseContext<'_>) -> Result<(), Stop> {
    context
        .sh("printf x > old; TZ=UTC0 touch -t 200109090146.40 old")
        .await?;
    let file = context
        .sandbox
        .stat(&context.path("old")?, Follow::Yes)
        .await?;
    match file.mtime_ns {
        Some(time) => equal("seconds", time / 1_000_000_000, 1_000_000_000),
        None => Err(Stop::Skip("the wire has no times")),
    }
}
