//! Cases of directories: listing, creating and removing.

use dray_conformance::{CaseEnd, expect_bytes, expect_equal, expect_true};
use dray_sandbox::backend::Follow;
use dray_sandbox::error::ErrorKind;
use dray_sandbox::metadata::{FileKind, Listing};
use dray_sandbox::path::SandboxPath;

use super::CaseContext;
use super::expect::expect_error;

/// Names and kinds of a listing, relative to the directory of the case.
fn names_and_kinds(context: &CaseContext<'_>, listing: &Listing) -> Vec<(String, FileKind)> {
    listing
        .entries
        .iter()
        .map(|entry| {
            let path = entry.path.as_bytes();
            let name = path
                .strip_prefix(context.directory.as_bytes())
                .unwrap_or(path);
            (name.escape_ascii().to_string(), entry.kind)
        })
        .collect()
}

fn expected_entries(names: &[(&str, FileKind)]) -> Vec<(String, FileKind)> {
    names
        .iter()
        .map(|(name, kind)| ((*name).to_owned(), *kind))
        .collect()
}

async fn create_directory(context: &CaseContext<'_>, name: &str) -> Result<SandboxPath, CaseEnd> {
    let path = context.path(name)?;
    context.sandbox.make_directory(&path).await?;
    Ok(path)
}

pub(super) async fn a_listing_has_everything_in_order(
    context: &CaseContext<'_>,
) -> Result<(), CaseEnd> {
    let empty = context.sandbox.list(&context.directory, 1, 10).await?;
    expect_equal("an empty directory", empty, Listing::default())?;
    context.put("b", b"22").await?;
    context.put(".hidden", b"1").await?;
    context.put("a b", b"333").await?;
    create_directory(context, "c").await?.join("deep")?;
    context.put("0", b"").await?;
    let listing = context.sandbox.list(&context.directory, 1, 100).await?;
    expect_equal("truncated", listing.truncated, false)?;
    let names = [
        ("/.hidden", FileKind::File),
        ("/0", FileKind::File),
        ("/a b", FileKind::File),
        ("/b", FileKind::File),
        ("/c", FileKind::Directory),
    ];
    expect_equal(
        "names",
        names_and_kinds(context, &listing),
        expected_entries(&names),
    )?;
    let sizes: Vec<_> = listing
        .entries
        .iter()
        .filter(|entry| entry.kind == FileKind::File)
        .map(|entry| entry.size)
        .collect();
    expect_equal("sizes", sizes, vec![1, 0, 3, 2])
}

pub(super) async fn a_listing_is_as_deep_as_requested(
    context: &CaseContext<'_>,
) -> Result<(), CaseEnd> {
    let one = create_directory(context, "one").await?;
    let two = one.join("two")?;
    context.sandbox.make_directory(&two).await?;
    context.write(&one.join("file")?, b"x").await?;
    context.write(&two.join("file")?, b"x").await?;
    let names = [
        ("/one", FileKind::Directory),
        ("/one/file", FileKind::File),
        ("/one/two", FileKind::Directory),
        ("/one/two/file", FileKind::File),
    ];
    // A depth beyond the deepest entry must not count as truncated.
    for (depth, count) in [(1, 1), (2, 3), (3, 4), (9, 4)] {
        let listing = context.sandbox.list(&context.directory, depth, 100).await?;
        let expected = expected_entries(names.get(..count).unwrap_or(&names));
        expect_equal(
            &format!("depth {depth}"),
            names_and_kinds(context, &listing),
            expected,
        )?;
        expect_equal("truncated", listing.truncated, false)?;
    }
    Ok(())
}

pub(super) async fn a_listing_follows_no_link(context: &CaseContext<'_>) -> Result<(), CaseEnd> {
    context.needs(|traits| traits.links)?;
    context
        .sh("mkdir d; printf x > d/file; ln -s d link; ln -s nowhere dangling; ln -s . self")
        .await?;
    let listing = context.sandbox.list(&context.directory, 5, 100).await?;
    let names = [
        ("/d", FileKind::Directory),
        ("/d/file", FileKind::File),
        ("/dangling", FileKind::Symlink),
        ("/link", FileKind::Symlink),
        ("/self", FileKind::Symlink),
    ];
    expect_equal(
        "names",
        names_and_kinds(context, &listing),
        expected_entries(&names),
    )
}

pub(super) async fn a_listing_stops_at_its_limit(context: &CaseContext<'_>) -> Result<(), CaseEnd> {
    for index in 0..12 {
        context.put(format!("file-{index:02}"), b"x").await?;
    }
    let some = context.sandbox.list(&context.directory, 1, 5).await?;
    expect_equal(
        "a truncated listing",
        (some.entries.len(), some.truncated),
        (5, true),
    )?;
    let all = context.sandbox.list(&context.directory, 1, 12).await?;
    expect_equal(
        "a complete listing",
        (all.entries.len(), all.truncated),
        (12, false),
    )
}

pub(super) async fn only_directories_are_listed(context: &CaseContext<'_>) -> Result<(), CaseEnd> {
    let file = context.put("file", b"x").await?;
    let listed = context.sandbox.list(&file, 1, 10).await;
    expect_error("a file", listed, &[ErrorKind::NotDirectory])?;
    let listed = context.sandbox.list(&context.path("missing")?, 1, 10).await;
    expect_error("missing", listed, &[ErrorKind::NotFound])
}

pub(super) async fn directories_are_made_with_their_parents(
    context: &CaseContext<'_>,
) -> Result<(), CaseEnd> {
    let deep = context.path("one")?.join("two")?.join("three")?;
    context.sandbox.make_directory(&deep).await?;
    context.write(&deep.join("file")?, b"kept").await?;
    // A second call must leave a directory with contents as it is.
    context.sandbox.make_directory(&deep).await?;
    expect_bytes("after", &context.read(&deep.join("file")?).await?, b"kept")?;
    let metadata = context.sandbox.stat(&deep, Follow::No).await?;
    expect_equal("kind", metadata.kind, FileKind::Directory)?;
    if context.traits.modes {
        expect_equal("mode", metadata.mode & 0o777, 0o755)?;
    }
    let file = context.put("file", b"x").await?;
    for path in [file.clone(), file.join("below")?] {
        expect_error(
            "over a file",
            context.sandbox.make_directory(&path).await,
            &[ErrorKind::NotDirectory, ErrorKind::Exists],
        )?;
    }
    expect_bytes("the file", &context.read(&file).await?, b"x")
}

pub(super) async fn several_directories_are_made_with_their_parents(
    context: &CaseContext<'_>,
) -> Result<(), CaseEnd> {
    let existing = context.path("existing")?;
    context.sandbox.make_directory(&existing).await?;
    let mut paths = vec![existing];
    // More bytes than one command line of any channel has.
    for number in 0..200 {
        let long = format!("{number:0200}");
        paths.push(context.path("many")?.join(long)?.join("-inner")?);
    }
    context.sandbox.make_directories(&paths).await?;
    context.sandbox.make_directories(&paths).await?;
    for path in &paths {
        let metadata = context.sandbox.stat(path, Follow::No).await?;
        expect_equal("kind", metadata.kind, FileKind::Directory)?;
    }
    let file = context.put("file", b"x").await?;
    let both = [context.path("other")?, file];
    expect_error(
        "over a file",
        context.sandbox.make_directories(&both).await,
        &[ErrorKind::NotDirectory, ErrorKind::Exists],
    )
}

pub(super) async fn files_and_links_are_removed(context: &CaseContext<'_>) -> Result<(), CaseEnd> {
    let file = context.put("file", b"x").await?;
    context.sandbox.remove(&file, false).await?;
    let error = context.sandbox.stat(&file, Follow::No).await;
    expect_error("removed", error, &[ErrorKind::NotFound])?;
    context.needs(|traits| traits.links)?;
    context
        .sh("mkdir kept; printf x > kept/file; ln -s kept link; ln -s kept/file leaf")
        .await?;
    for (name, recursive) in [("link", true), ("leaf", false)] {
        let link = context.path(name)?;
        context.sandbox.remove(&link, recursive).await?;
        let error = context.sandbox.stat(&link, Follow::No).await;
        expect_error(name, error, &[ErrorKind::NotFound])?;
    }
    let kept = context.path("kept")?.join("file")?;
    expect_bytes("kept", &context.read(&kept).await?, b"x")
}

pub(super) async fn directories_are_removed_only_on_request(
    context: &CaseContext<'_>,
) -> Result<(), CaseEnd> {
    let full = create_directory(context, "full").await?;
    let file = full.join("file")?;
    context.write(&file, b"x").await?;
    let deep = full.join("deep")?.join("er")?;
    context.sandbox.make_directory(&deep).await?;
    context.write(&deep.join("-rf")?, b"x").await?;
    let kept = context.put("kept", b"kept").await?;
    if context.traits.links {
        // Where no script runs, no link can exist.
        match context
            .sh("ln -s ../kept full/link; ln -s .. full/up")
            .await
        {
            Ok(_) | Err(CaseEnd::Skip(_)) => {}
            Err(failed) => return Err(failed),
        }
    }
    let removed = context.sandbox.remove(&full, false).await;
    expect_true(
        removed.is_err(),
        "a directory with entries was removed without a request",
    )?;
    expect_bytes("still there", &context.read(&file).await?, b"x")?;
    context.sandbox.remove(&full, true).await?;
    let error = context.sandbox.stat(&full, Follow::No).await;
    expect_error("removed", error, &[ErrorKind::NotFound])?;
    expect_bytes("beside it", &context.read(&kept).await?, b"kept")
}
