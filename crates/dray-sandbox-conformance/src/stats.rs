//! Conformance cases for metadata.

use dray_conformance::{CaseEnd, expect_bytes, expect_equal, expect_true};
use dray_sandbox::backend::Follow;
use dray_sandbox::error::ErrorKind;
use dray_sandbox::metadata::FileKind;

use super::CaseContext;
use super::expect::expect_error;

pub(super) async fn files_and_directories_are_described(
    context: &CaseContext<'_>,
) -> Result<(), CaseEnd> {
    let path = context.put("file", b"12345").await?;
    for follow in [Follow::No, Follow::Yes] {
        let file = context.sandbox.stat(&path, follow).await?;
        expect_equal("kind", file.kind, FileKind::File)?;
        expect_equal("size", file.size, 5)?;
        expect_equal("path", &file.path, &path)?;
        expect_equal("real path", &file.real_path, &path)?;
        expect_equal("target", file.link_target, None)?;
        expect_equal("links", file.links.unwrap_or(1), 1)?;
        let directory = context.sandbox.stat(&context.directory, follow).await?;
        expect_equal("kind", directory.kind, FileKind::Directory)?;
        expect_equal("real path", &directory.real_path, &context.directory)?;
    }
    let empty = context.put("empty", b"").await?;
    let empty = context.sandbox.stat(&empty, Follow::Yes).await?;
    expect_equal(
        "an empty file",
        (empty.kind, empty.size),
        (FileKind::File, 0),
    )
}

pub(super) async fn links_are_distinguished_and_followed(
    context: &CaseContext<'_>,
) -> Result<(), CaseEnd> {
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
        expect_equal(name, link.kind, FileKind::Symlink)?;
        expect_equal(name, &link.real_path, &path)?;
        // Some backends return the resolved target of a link; both forms lead to the target.
        let link_target = link.link_target.unwrap_or_default();
        let resolved = context.path(text.rsplit(|byte| *byte == b'/').next().unwrap_or(text))?;
        expect_true(
            link_target == text || link_target == resolved.as_bytes(),
            format_args!("{name} leads to {}", link_target.escape_ascii()),
        )?;
        let file = context.sandbox.stat(&path, Follow::Yes).await?;
        expect_equal(name, (file.kind, file.size), (FileKind::File, 6))?;
        expect_equal(name, &file.path, &path)?;
        expect_equal(name, &file.real_path, &target)?;
        expect_bytes(name, &context.read(&path).await?, b"behind")?;
    }
    Ok(())
}

pub(super) async fn links_in_a_path_are_resolved(context: &CaseContext<'_>) -> Result<(), CaseEnd> {
    context.needs(|traits| traits.links)?;
    context
        .sh("mkdir -p real/deep; printf x > real/deep/file; ln -s real link; ln -s ../../link real/deep/back")
        .await?;
    let real = context.path("real")?.join("deep")?.join("file")?;
    for route in ["link/deep/file", "link/deep/back/deep/file"] {
        let mut path = context.directory.clone();
        for part in route.split('/') {
            path = path.join(part)?;
        }
        for follow in [Follow::No, Follow::Yes] {
            let file = context.sandbox.stat(&path, follow).await?;
            expect_equal(route, file.kind, FileKind::File)?;
        }
        let file = context.sandbox.stat(&path, Follow::Yes).await?;
        expect_equal(route, &file.real_path, &real)?;
    }
    let directory = context
        .sandbox
        .stat(&context.path("link")?, Follow::Yes)
        .await?;
    expect_equal("a link to a directory", directory.kind, FileKind::Directory)
}

pub(super) async fn a_link_to_nowhere_is_a_link_and_not_found(
    context: &CaseContext<'_>,
) -> Result<(), CaseEnd> {
    context.needs(|traits| traits.links)?;
    context.sh("ln -s nowhere dangling").await?;
    let path = context.path("dangling")?;
    let link = context.sandbox.stat(&path, Follow::No).await?;
    expect_equal("kind", link.kind, FileKind::Symlink)?;
    expect_error(
        "followed",
        context.sandbox.stat(&path, Follow::Yes).await,
        &[ErrorKind::NotFound],
    )
}

pub(super) async fn a_loop_of_links_is_a_loop(context: &CaseContext<'_>) -> Result<(), CaseEnd> {
    context.needs(|traits| traits.links)?;
    context.sh("ln -s b a; ln -s a b; ln -s self self").await?;
    for name in ["a", "self"] {
        let path = context.path(name)?;
        let link = context.sandbox.stat(&path, Follow::No).await?;
        expect_equal(name, link.kind, FileKind::Symlink)?;
        let followed = context.sandbox.stat(&path, Follow::Yes).await;
        expect_error(name, followed, &[ErrorKind::Loop])?;
        let below = context.sandbox.stat(&path.join("x")?, Follow::No).await;
        expect_error("below a loop", below, &[ErrorKind::Loop])?;
    }
    Ok(())
}

pub(super) async fn a_missing_entry_is_not_found(context: &CaseContext<'_>) -> Result<(), CaseEnd> {
    let file = context.put("file", b"x").await?;
    for follow in [Follow::No, Follow::Yes] {
        let missing = context
            .sandbox
            .stat(&context.path("missing")?, follow)
            .await;
        expect_error("missing", missing, &[ErrorKind::NotFound])?;
        let below = context.path("missing")?.join("below")?;
        let below = context.sandbox.stat(&below, follow).await;
        expect_error("below a missing entry", below, &[ErrorKind::NotFound])?;
        let below = context.sandbox.stat(&file.join("below")?, follow).await;
        expect_error(
            "below a file",
            below,
            &[ErrorKind::NotDirectory, ErrorKind::NotFound],
        )?;
    }
    Ok(())
}

pub(super) async fn times_are_those_of_the_sandbox(
    context: &CaseContext<'_>,
) -> Result<(), CaseEnd> {
    context
        .sh("printf x > old; TZ=UTC0 touch -t 200109090146.40 old")
        .await?;
    let file = context
        .sandbox
        .stat(&context.path("old")?, Follow::Yes)
        .await?;
    match file.mtime_ns {
        Some(time) => expect_equal("seconds", time / 1_000_000_000, 1_000_000_000),
        None => Err(CaseEnd::Skip("the wire has no times")),
    }
}
