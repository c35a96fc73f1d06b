//! Cases of whole directories, which the sandbox packs and unpacks as tars (sandbox-transfer 13). A sandbox that cannot
//! do this must fail with the right kind.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use dray_conformance::{CaseEnd, expect_bytes, expect_equal, expect_true};
use dray_sandbox::body::Body;
use dray_sandbox::error::{Error, ErrorKind};
use dray_sandbox::metadata::FileKind;
use dray_sandbox::path::SandboxPath;
use dray_sandbox_tree::{self as tree, Kind, Limits, Members, Owner, Reader, Walk};
use dray_transfer_engine::policy::Policy;
use dray_transfer_engine::{BytesSource, Engine, EngineOptions, PutTreeOptions};
use futures_util::stream;
use tokio_util::sync::CancellationToken;

use super::CaseContext;
use super::context::{chunks, random};
use super::expect::expect_error;

/// Contents by the names of a tree; directories have none.
type Files = BTreeMap<Vec<u8>, Option<Vec<u8>>>;

/// Creates a directory with files and returns their contents.
async fn create_tree(context: &CaseContext<'_>, root: &SandboxPath) -> Result<Files, CaseEnd> {
    let mut files: Files = [
        ("empty", Vec::new()),
        ("two words", b"1".to_vec()),
        ("it's $(touch pwned)", b"2".to_vec()),
        ("-rf", b"3".to_vec()),
        ("new\nline", b"4".to_vec()),
        ("日本.txt", b"5".to_vec()),
        ("deep/er/file", random(70_000)),
        (&"n".repeat(200), b"6".to_vec()),
    ]
    .into_iter()
    .map(|(name, content)| (name.as_bytes().to_vec(), Some(content)))
    .collect();
    if context.traits.byte_names {
        files.insert(b"caf\xe9".to_vec(), Some(b"7".to_vec()));
    }
    context.sandbox.make_directory(root).await?;
    context
        .sandbox
        .make_directory(&root.join("deep")?.join("er")?)
        .await?;
    for (name, content) in &files {
        let mut path = root.clone();
        for part in name.split(|byte| *byte == b'/') {
            path = path.join(part)?;
        }
        context
            .write(&path, content.as_deref().unwrap_or_default())
            .await?;
    }
    for directory in ["deep", "deep/er"] {
        files.insert(directory.as_bytes().to_vec(), None);
    }
    Ok(files)
}

async fn collect(mut members: impl Members) -> Result<Files, CaseEnd> {
    let mut files = Files::new();
    while let Some(member) = members.next().await? {
        let mut content = Vec::new();
        while let Some(chunk) = members.next_chunk().await? {
            content.extend_from_slice(&chunk);
        }
        let content = (member.kind == Kind::File).then_some(content);
        let name_text = member.name.escape_ascii().to_string();
        expect_true(
            files.insert(member.name, content).is_none(),
            format_args!("{name_text} came twice"),
        )?;
    }
    Ok(files)
}

pub(super) async fn a_tree_comes_out_whole(context: &CaseContext<'_>) -> Result<(), CaseEnd> {
    let root = context.path("it's a tree")?;
    let files = create_tree(context, &root).await?;
    let mut links = 0;
    if context.traits.links {
        match context.sh("ln -s ../.. \"it's a tree/up\"").await {
            Ok(_) => links = 1,
            Err(CaseEnd::Skip(_)) => {}
            Err(failed) => return Err(failed),
        }
    }
    let walk = Walk::open(
        Arc::clone(&context.sandbox),
        root.clone(),
        Limits::default(),
    )
    .await?;
    let report = walk.report();
    expect_equal("walked", collect(walk).await?, files.clone())?;
    expect_equal("links", report.count(), links)?;
    let tar = match context.sandbox.read_tree(&root).await {
        Ok((tar, _)) => tar,
        Err(error) if error.kind() == ErrorKind::ToolMissing => return Ok(()),
        Err(error) => return Err(error.into()),
    };
    let reader = Reader::new(tar, Limits::default());
    let report = reader.report();
    expect_equal("as a tar", collect(reader).await?, files)?;
    expect_equal("links", report.count(), links)
}

pub(super) async fn only_directories_come_as_trees(
    context: &CaseContext<'_>,
) -> Result<(), CaseEnd> {
    let file = context.put("file", b"x").await?;
    let kinds = [
        ErrorKind::NotDirectory,
        ErrorKind::NotFound,
        ErrorKind::ToolMissing,
    ];
    for path in [file, context.path("missing")?] {
        let read = match context.sandbox.read_tree(&path).await {
            Ok((tar, _)) => tar.read_all(1 << 20).await,
            Err(error) => Err(error),
        };
        expect_error("not a directory", read, &kinds)?;
    }
    Ok(())
}

pub(super) async fn a_tree_goes_in_whole(context: &CaseContext<'_>) -> Result<(), CaseEnd> {
    let from = context.path("from")?;
    let files = create_tree(context, &from).await?;
    let to = context.path("it's to")?;
    context.sandbox.make_directory(&to).await?;
    let probe = context.sandbox.probe().await?;
    let owner = Owner {
        uid: probe.uid,
        gid: probe.gid,
    };
    let walk = Walk::open(Arc::clone(&context.sandbox), from, Limits::default()).await?;
    match context
        .sandbox
        .write_tree(&to, tree::tar(walk, owner))
        .await
    {
        Err(error) if error.kind() == ErrorKind::ToolMissing => return Ok(()),
        written => {
            written?;
        }
    }
    let walk = Walk::open(Arc::clone(&context.sandbox), to.clone(), Limits::default()).await?;
    expect_equal("unpacked", collect(walk).await?, files)?;
    if context.traits.modes {
        let listing = context.sandbox.list(&to, 9, 100).await?;
        for entry in listing.entries {
            let mode = if entry.kind == FileKind::Directory {
                0o755
            } else {
                0o644
            };
            expect_equal(&entry.path.to_string(), entry.mode & 0o777, mode)?;
        }
    }
    let left = context.sandbox.list(&context.directory, 1, 10).await?;
    expect_equal("beside", left.entries.len(), 2)
}

pub(super) async fn a_broken_tar_is_a_failure(context: &CaseContext<'_>) -> Result<(), CaseEnd> {
    let (from, to) = (context.path("from")?, context.path("to")?);
    create_tree(context, &from).await?;
    context.sandbox.make_directory(&to).await?;
    let walk = Walk::open(Arc::clone(&context.sandbox), from, Limits::default()).await?;
    let tar = tree::tar(walk, Owner::default()).read_all(1 << 20).await?;
    let half = tar.get(..tar.len() / 2).unwrap_or_default();
    let broken = Body::new(stream::iter([
        Ok(Bytes::copy_from_slice(half)),
        Err(Error::new(ErrorKind::Unavailable, "the source broke")),
    ]));
    let written = context.sandbox.write_tree(&to, broken).await;
    expect_true(written.is_err(), "a tar that breaks was unpacked")?;
    // The source ends in the middle of a file, without an error of the source.
    let written = context.sandbox.write_tree(&to, chunks(half)).await;
    expect_true(written.is_err(), "half a tar was unpacked")?;
    let path = context.put("after", b"still here").await?;
    expect_bytes("afterwards", &context.read(&path).await?, b"still here")
}

pub(super) async fn a_tree_does_not_go_through_a_link(
    context: &CaseContext<'_>,
) -> Result<(), CaseEnd> {
    if !context.traits.links {
        return Err(CaseEnd::Skip("the sandbox has no links"));
    }
    let (from, to) = (context.path("from")?, context.path("to")?);
    let outside = context.path("outside")?;
    for directory in [&from.join("cfg")?, &to, &outside] {
        context.sandbox.make_directory(directory).await?;
    }
    context.write(&from.join("plain")?, b"1").await?;
    context.write(&from.join("cfg")?.join("key")?, b"2").await?;
    context.sh("ln -s ../outside to/cfg").await?;
    let walk = Walk::open(Arc::clone(&context.sandbox), from, Limits::default()).await?;
    let tar = tree::tar(walk, Owner::default()).read_all(1 << 20).await?;
    let engine = Engine::new(Arc::clone(&context.sandbox), EngineOptions::default());
    let policy = Policy::beneath([to.clone()]);
    let options = PutTreeOptions {
        policy: &policy,
        limits: Limits::default(),
        operation: "op1",
        epoch: 1,
    };
    let (source, cancel) = (BytesSource::new(tar), CancellationToken::new());
    let put = engine.put_tree(&to, &source, &options, &(), &cancel).await;
    let put = put.map_err(|failed| failed.error)?;
    let skipped = put.skipped.skipped().into_iter();
    let skipped: Vec<_> = skipped.map(|skipped| skipped.name).collect();
    expect_equal(
        "skipped",
        skipped,
        vec!["cfg".to_owned(), "cfg/key".to_owned()],
    )?;
    expect_bytes("plain", &context.read(&to.join("plain")?).await?, b"1")?;
    let listing = context.sandbox.list(&outside, 1, 10).await?;
    expect_equal("outside", listing.entries.len(), 0)
}
