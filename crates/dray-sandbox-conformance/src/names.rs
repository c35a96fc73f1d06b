//! Cases of names: they are bytes, and no tool ever runs them (sandbox-transfer R-16).

use dray_sandbox::backend::Follow;
use dray_sandbox::error::{Error, ErrorKind};
use dray_sandbox::path::SandboxPath;

use super::report::{equal, holds, refused, same_bytes};
use super::{CaseContext, Stop};

/// Names that break wrong quoting, globbing, word splitting or URLs.
const HOSTILE_NAMES: &[&str] = &[
    "two words",
    " leading",
    "trailing ",
    "it's",
    "\"quoted\"",
    "$(touch pwned)",
    "`touch pwned`",
    "; touch pwned ;",
    "&& touch pwned",
    "| touch pwned",
    "-rf",
    "--",
    "-",
    "new\nline",
    "\n",
    "@@ end",
    "tab\there",
    "carriage\rreturn",
    "back\\slash",
    "\\n",
    "*",
    "?",
    "[a-z]",
    "{a,b}",
    "~",
    "#anchor",
    "a?b=c&d",
    "100%",
    "%2e%2e%2fup",
    "a+b",
    "a:b",
    "...",
    ".hidden",
    "é",
    "e\u{301}",
    "日本語.txt",
    "🦀",
    "\u{202e}fdp.exe",
    "\u{1b}[31mred",
];

/// Runs every operation on a file with this name.
async fn whole_life(context: &CaseContext<'_>, path: &SandboxPath) -> Result<(), Error> {
    let shown = path.to_string();
    let wrong = |what: &str| Error::new(ErrorKind::Protocol, format!("{shown}: {what}"));
    context.write(path, shown.as_bytes()).await?;
    let file = context.sandbox.stat(path, Follow::Yes).await?;
    if file.size != shown.len() as u64 || file.real_path != *path {
        return Err(wrong("another size or path"));
    }
    if context.read(path).await? != shown.as_bytes() {
        return Err(wrong("other bytes"));
    }
    let listing = context.sandbox.list(&path.parent(), 1, 1000).await?;
    if !listing.entries.iter().any(|entry| entry.path == *path) {
        return Err(wrong("not in the listing"));
    }
    if context.traits.fingerprint {
        context.sandbox.fingerprint(path).await?;
    }
    if context.traits.rename {
        let beside = path.parent().join("beside")?;
        context.sandbox.rename(path, &beside, false).await?;
        context.sandbox.rename(&beside, path, false).await?;
    }
    context.sandbox.remove(path, false).await?;
    match context.sandbox.stat(path, Follow::No).await {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error),
        Ok(_) => Err(wrong("still there")),
    }
}

pub(super) async fn every_name_survives(context: &CaseContext<'_>) -> Result<(), Stop> {
    for name in HOSTILE_NAMES {
        whole_life(context, &context.path(name)?).await?;
    }
    let left = context.sandbox.list(&context.directory, 1, 10).await?;
    equal("nothing was run and nothing is left", left.entries, vec![])
}

pub(super) async fn names_that_are_not_text_survive_or_are_refused(
    context: &CaseContext<'_>,
) -> Result<(), Stop> {
    for name in [b"\xff\xfe.bin".as_slice(), b"caf\xe9", b"\x80\n\xc3\x28"] {
        let path = context.path(name)?;
        if context.traits.byte_names {
            whole_life(context, &path).await?;
            continue;
        }
        let refusal = [ErrorKind::InvalidName];
        refused("write", context.write(&path, b"x").await, &refusal)?;
        refused(
            "stat",
            context.sandbox.stat(&path, Follow::Yes).await,
            &refusal,
        )?;
        refused(
            "remove",
            context.sandbox.remove(&path, false).await,
            &refusal,
        )?;
        refused(
            "make",
            context.sandbox.make_directory(&path).await,
            &refusal,
        )?;
        refused("list", context.sandbox.list(&path, 1, 1).await, &refusal)?;
    }
    let left = context.sandbox.list(&context.directory, 1, 10).await?;
    equal("nothing is left", left.entries, vec![])
}

pub(super) async fn the_longest_name_is_a_name(context: &CaseContext<'_>) -> Result<(), Stop> {
    // 255 bytes in one, two and three bytes for each character: the limit counts bytes.
    for name in ["x".repeat(255), "é".repeat(127), "日".repeat(85)] {
        whole_life(context, &context.path(name)?).await?;
    }
    holds(
        context.directory.join("x".repeat(256)).is_err(),
        "a name of 256 bytes is a path",
    )
}

pub(super) async fn directories_may_have_any_name_too(
    context: &CaseContext<'_>,
) -> Result<(), Stop> {
    for name in ["it's $(touch pwned)", "-rf", "new\nline", "%2f", "日本"] {
        let directory = context.path(name)?;
        context.sandbox.make_directory(&directory).await?;
        let inside = directory.join("-file 'x'")?;
        context.write(&inside, b"inside").await?;
        same_bytes(name, &context.read(&inside).await?, b"inside")?;
        let listing = context.sandbox.list(&directory, 1, 10).await?;
        let paths: Vec<_> = listing
            .entries
            .into_iter()
            .map(|entry| entry.path)
            .collect();
        equal(name, paths, vec![inside])?;
        context.sandbox.remove(&directory, true).await?;
    }
    let left = context.sandbox.list(&context.directory, 1, 10).await?;
    equal("nothing was run and nothing is left", left.entries, vec![])
}
