//! Cases of listing, making and removing.

use dray_sandbox::backend::Follow;
use dray_sandbox::error::ErrorKind;
use dray_sandbox::metadata::{FileKind, Listing};
use dray_sandbox::path::SandboxPath;

use super::report::{equal, holds, refused, same_bytes};
use super::{Stop, World};

/// Kinds and names of a listing, relative to the directory of the case.
fn named(world: &World<'_>, listing: &Listing) -> Vec<(String, FileKind)> {
    listing
        .entries
        .iter()
        .map(|entry| {
            let path = entry.path.as_bytes();
            let name = path
                .strip_prefix(world.directory.as_bytes())
                .unwrap_or(path);
            (name.escape_ascii().to_string(), entry.kind)
        })
        .collect()
}

fn wanted(names: &[(&str, FileKind)]) -> Vec<(String, FileKind)> {
    names
        .iter()
        .map(|(name, kind)| ((*name).to_owned(), *kind))
        .collect()
}

async fn make(world: &World<'_>, name: &str) -> Result<SandboxPath, Stop> {
    let path = world.path(name)?;
    world.sandbox.make_directory(&path).await?;
    Ok(path)
}

pub(super) async fn a_listing_has_everything_in_order(world: &World<'_>) -> Result<(), Stop> {
    let empty = world.sandbox.list(&world.directory, 1, 10).await?;
    equal("an empty directory", empty, Listing::default())?;
    world.put("b", b"22").await?;
    world.put(".hidden", b"1").await?;
    world.put("a b", b"333").await?;
    make(world, "c").await?.join("deep")?;
    world.put("0", b"").await?;
    let listing = world.sandbox.list(&world.directory, 1, 100).await?;
    equal("truncated", listing.truncated, false)?;
    let names = [
        ("/.hidden", FileKind::File),
        ("/0", FileKind::File),
        ("/a b", FileKind::File),
        ("/b", FileKind::File),
        ("/c", FileKind::Directory),
    ];
    equal("names", named(world, &listing), wanted(&names))?;
    let sizes: Vec<_> = listing
        .entries
        .iter()
        .filter(|entry| entry.kind == FileKind::File)
        .map(|entry| entry.size)
        .collect();
    equal("sizes", sizes, vec![1, 0, 3, 2])
}

pub(super) async fn a_listing_goes_as_deep_as_asked(world: &World<'_>) -> Result<(), Stop> {
    let one = make(world, "one").await?;
    let two = one.join("two")?;
    world.sandbox.make_directory(&two).await?;
    world.write(&one.join("file")?, b"x").await?;
    world.write(&two.join("file")?, b"x").await?;
    let names = [
        ("/one", FileKind::Directory),
        ("/one/file", FileKind::File),
        ("/one/two", FileKind::Directory),
        ("/one/two/file", FileKind::File),
    ];
    // A depth beyond the deepest entry must not count as truncated.
    for (depth, count) in [(1, 1), (2, 3), (3, 4), (9, 4)] {
        let listing = world.sandbox.list(&world.directory, depth, 100).await?;
        let expected = wanted(names.get(..count).unwrap_or(&names));
        equal(&format!("depth {depth}"), named(world, &listing), expected)?;
        equal("truncated", listing.truncated, false)?;
    }
    Ok(())
}

pub(super) async fn a_listing_follows_no_link(world: &World<'_>) -> Result<(), Stop> {
    world.needs(|traits| traits.links)?;
    world
        .sh("mkdir d; printf x > d/file; ln -s d link; ln -s nowhere dangling; ln -s . self")
        .await?;
    let listing = world.sandbox.list(&world.directory, 5, 100).await?;
    let names = [
        ("/d", FileKind::Directory),
        ("/d/file", FileKind::File),
        ("/dangling", FileKind::Symlink),
        ("/link", FileKind::Symlink),
        ("/self", FileKind::Symlink),
    ];
    equal("names", named(world, &listing), wanted(&names))
}

pub(super) async fn a_listing_stops_at_its_limit(world: &World<'_>) -> Result<(), Stop> {
    for index in 0..12 {
        world.put(format!("file-{index:02}"), b"x").await?;
    }
    let some = world.sandbox.list(&world.directory, 1, 5).await?;
    equal("cut", (some.entries.len(), some.truncated), (5, true))?;
    let all = world.sandbox.list(&world.directory, 1, 12).await?;
    equal("whole", (all.entries.len(), all.truncated), (12, false))
}

pub(super) async fn only_directories_are_listed(world: &World<'_>) -> Result<(), Stop> {
    let file = world.put("file", b"x").await?;
    let listed = world.sandbox.list(&file, 1, 10).await;
    refused("a file", listed, &[ErrorKind::NotDirectory])?;
    let listed = world.sandbox.list(&world.path("missing")?, 1, 10).await;
    refused("missing", listed, &[ErrorKind::NotFound])
}

pub(super) async fn directories_are_made_with_their_parents(world: &World<'_>) -> Result<(), Stop> {
    let deep = world.path("one")?.join("two")?.join("three")?;
    world.sandbox.make_directory(&deep).await?;
    world.write(&deep.join("file")?, b"kept").await?;
    // A second call must leave a directory with contents as it is.
    world.sandbox.make_directory(&deep).await?;
    same_bytes("after", &world.read(&deep.join("file")?).await?, b"kept")?;
    let made = world.sandbox.stat(&deep, Follow::No).await?;
    equal("kind", made.kind, FileKind::Directory)?;
    if world.traits.modes {
        equal("mode", made.mode & 0o777, 0o755)?;
    }
    let file = world.put("file", b"x").await?;
    for path in [file.clone(), file.join("below")?] {
        refused(
            "over a file",
            world.sandbox.make_directory(&path).await,
            &[ErrorKind::NotDirectory, ErrorKind::Exists],
        )?;
    }
    same_bytes("the file", &world.read(&file).await?, b"x")
}

pub(super) async fn files_and_links_are_removed(world: &World<'_>) -> Result<(), Stop> {
    let file = world.put("file", b"x").await?;
    world.sandbox.remove(&file, false).await?;
    let gone = world.sandbox.stat(&file, Follow::No).await;
    refused("removed", gone, &[ErrorKind::NotFound])?;
    world.needs(|traits| traits.links)?;
    world
        .sh("mkdir kept; printf x > kept/file; ln -s kept link; ln -s kept/file leaf")
        .await?;
    for (name, recursive) in [("link", true), ("leaf", false)] {
        let link = world.path(name)?;
        world.sandbox.remove(&link, recursive).await?;
        let gone = world.sandbox.stat(&link, Follow::No).await;
        refused(name, gone, &[ErrorKind::NotFound])?;
    }
    let kept = world.path("kept")?.join("file")?;
    same_bytes("kept", &world.read(&kept).await?, b"x")
}

pub(super) async fn directories_are_removed_only_when_told(world: &World<'_>) -> Result<(), Stop> {
    let full = make(world, "full").await?;
    let file = full.join("file")?;
    world.write(&file, b"x").await?;
    let deep = full.join("deep")?.join("er")?;
    world.sandbox.make_directory(&deep).await?;
    world.write(&deep.join("-rf")?, b"x").await?;
    let kept = world.put("kept", b"kept").await?;
    if world.traits.links {
        // Where no script runs, no link can exist.
        match world.sh("ln -s ../kept full/link; ln -s .. full/up").await {
            Ok(_) | Err(Stop::Skip(_)) => {}
            Err(failed) => return Err(failed),
        }
    }
    let told = world.sandbox.remove(&full, false).await;
    holds(told.is_err(), "a full directory was removed unasked")?;
    same_bytes("still there", &world.read(&file).await?, b"x")?;
    world.sandbox.remove(&full, true).await?;
    let gone = world.sandbox.stat(&full, Follow::No).await;
    refused("removed", gone, &[ErrorKind::NotFound])?;
    same_bytes("beside it", &world.read(&kept).await?, b"kept")
}
