//! Cases of names: they are bytes, and no tool ever runs them (sandbox-transfer R-16).

use dray_conformance::{CaseEnd, expect_bytes, expect_equal, expect_true};
use dray_sandbox::backend::Follow;
use dray_sandbox::error::{Error, ErrorKind};
use dray_sandbox::path::SandboxPath;

use super::CaseContext;
use super::expect::expect_error;

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

/// Performs every operation on files of these names in one directory.
async fn exercise_files(context: &CaseContext<'_>, paths: &[SandboxPath]) -> Result<(), Error> {
    let wrong = |path: &SandboxPath, description: &str| {
        Error::new(ErrorKind::Protocol, format!("{path}: {description}"))
    };
    for path in paths {
        let content = path.to_string().into_bytes();
        context.write(path, &content).await?;
        let file = context.sandbox.stat(path, Follow::Yes).await?;
        if file.size != content.len() as u64 || file.real_path != *path {
            return Err(wrong(path, "another size or path"));
        }
        if context.read_by(context.best(path)?, &file).await? != content {
            return Err(wrong(path, "other bytes"));
        }
    }
    let listing = context.sandbox.list(&context.directory, 1, 1000).await?;
    for path in paths {
        if !listing.entries.iter().any(|entry| entry.path == *path) {
            return Err(wrong(path, "not in the listing"));
        }
    }
    if listing.entries.len() != paths.len() {
        return Err(Error::new(ErrorKind::Protocol, "the listing has more"));
    }
    for path in paths {
        if context.traits.fingerprint {
            context.sandbox.fingerprint(path).await?;
        }
        if context.traits.rename {
            let beside = context.directory.join("beside")?;
            context.sandbox.rename(path, &beside, false).await?;
            context.sandbox.rename(&beside, path, false).await?;
        }
        context.sandbox.remove(path, false).await?;
        match context.sandbox.stat(path, Follow::No).await {
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) => return Err(error),
            Ok(_) => return Err(wrong(path, "still there")),
        }
    }
    Ok(())
}

/// The paths of these names in the directory of the case.
fn all_paths<N: AsRef<[u8]>>(
    context: &CaseContext<'_>,
    names: impl IntoIterator<Item = N>,
) -> Result<Vec<SandboxPath>, CaseEnd> {
    names.into_iter().map(|name| context.path(name)).collect()
}

pub(super) async fn every_name_survives(context: &CaseContext<'_>) -> Result<(), CaseEnd> {
    exercise_files(context, &all_paths(context, HOSTILE_NAMES)?).await?;
    let listing = context.sandbox.list(&context.directory, 1, 10).await?;
    expect_equal(
        "nothing was run and nothing is left",
        listing.entries,
        vec![],
    )
}

pub(super) async fn names_that_are_not_text_survive_or_are_refused(
    context: &CaseContext<'_>,
) -> Result<(), CaseEnd> {
    let names = [b"\xff\xfe.bin".as_slice(), b"caf\xe9", b"\x80\n\xc3\x28"];
    let paths = all_paths(context, names)?;
    if context.traits.byte_names {
        exercise_files(context, &paths).await?;
        let listing = context.sandbox.list(&context.directory, 1, 10).await?;
        return expect_equal("nothing is left", listing.entries, vec![]);
    }
    for path in paths {
        let refusal = [ErrorKind::InvalidName];
        expect_error("write", context.write(&path, b"x").await, &refusal)?;
        expect_error(
            "stat",
            context.sandbox.stat(&path, Follow::Yes).await,
            &refusal,
        )?;
        expect_error(
            "remove",
            context.sandbox.remove(&path, false).await,
            &refusal,
        )?;
        expect_error(
            "make",
            context.sandbox.make_directory(&path).await,
            &refusal,
        )?;
        expect_error("list", context.sandbox.list(&path, 1, 1).await, &refusal)?;
    }
    let listing = context.sandbox.list(&context.directory, 1, 10).await?;
    expect_equal("nothing is left", listing.entries, vec![])
}

pub(super) async fn the_longest_name_is_a_name(context: &CaseContext<'_>) -> Result<(), CaseEnd> {
    // 255 bytes in one, two and three bytes for each character: the limit counts bytes.
    let names = ["x".repeat(255), "é".repeat(127), "日".repeat(85)];
    exercise_files(context, &all_paths(context, names)?).await?;
    expect_true(
        context.directory.join("x".repeat(256)).is_err(),
        "a name of 256 bytes is a path",
    )
}

pub(super) async fn directories_may_have_any_name_too(
    context: &CaseContext<'_>,
) -> Result<(), CaseEnd> {
    for name in ["it's $(touch pwned)", "-rf", "new\nline", "%2f", "日本"] {
        let directory = context.path(name)?;
        context.sandbox.make_directory(&directory).await?;
        let inside = directory.join("-file 'x'")?;
        context.write(&inside, b"inside").await?;
        expect_bytes(name, &context.read(&inside).await?, b"inside")?;
        let listing = context.sandbox.list(&directory, 1, 10).await?;
        let paths: Vec<_> = listing
            .entries
            .into_iter()
            .map(|entry| entry.path)
            .collect();
        expect_equal(name, paths, vec![inside])?;
        context.sandbox.remove(&directory, true).await?;
    }
    let left = context.sandbox.list(&context.directory, 1, 10).await?;
    expect_equal("nothing was run and nothing is left", left.entries, vec![])
}
