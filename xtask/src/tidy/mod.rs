//! `cargo xtask tidy`: rules about the source that no compiler checks.
//!
//! Each rule is a pure function from file contents to descriptions of problems, so each is tested without a tree. This
//! module reads the files.

use std::fs;
use std::path::Path;

use anyhow::{Context as _, bail};

mod contributing;
mod edges;
mod faults;
mod glossary;
mod libraries;
mod licences;
mod rules;
mod source;
mod uncalled;
mod unused;
mod words;

use crate::metadata::CargoMetadata;
pub(crate) use faults::details_section;
use source::SourceFile;

/// Prints every violation and fails if there is one.
pub(crate) fn run_tidy(root: &Path) -> anyhow::Result<()> {
    let violations = find_violations(root)?;
    if violations.is_empty() {
        return Ok(());
    }
    for violation in &violations {
        eprintln!("tidy: {violation}");
    }
    bail!("{} violations of the source rules", violations.len());
}

/// Every violation of a rule, in one sentence each.
pub(crate) fn find_violations(root: &Path) -> anyhow::Result<Vec<String>> {
    let metadata = CargoMetadata::read(root)?;
    let sources = read_sources(root)?;
    let allowed = fs::read_to_string(root.join("deny.toml")).context("cannot read deny.toml")?;

    // Every rule runs, so that one call shows everything that is to be corrected.
    let mut violations = edges::violations(&metadata);
    violations.extend(licences::violations(&metadata, &allowed)?);
    violations.extend(unused::violations(&metadata, &sources));
    let exceptions = uncalled::CallExceptions::read(root)?;
    violations.extend(uncalled::violations(&metadata, &sources, &exceptions));
    violations.extend(sources.iter().flat_map(source::violations));
    violations.extend(rules::violations(&sources));
    violations.extend(glossary::violations(root, &sources)?);
    violations.extend(contributing::violations(root)?);
    violations.extend(faults::violations(&sources));
    violations.extend(words::violations(&sources, &words::WordRules::read(root)?));
    Ok(violations)
}

/// Every Rust file that a person wrote.
fn read_sources(root: &Path) -> anyhow::Result<Vec<SourceFile>> {
    let mut sources = Vec::new();
    for top in ["bench", "crates", "fuzz", "tests", "xtask"] {
        let top = root.join(top);
        if top.exists() {
            collect_sources(root, &top, &mut sources)?;
        }
    }
    // The files are sorted, so that violations are reported in the same order on every machine.
    sources.sort_by(|left, right| left.path.cmp(&right.path));
    Ok(sources)
}

/// Adds the Rust files below one directory, without generated and built ones.
fn collect_sources(
    root: &Path,
    directory: &Path,
    sources: &mut Vec<SourceFile>,
) -> anyhow::Result<()> {
    for entry in fs::read_dir(directory)? {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default();
        if path.is_dir() {
            let skipped = ["generated", "target", "corpus", "artifacts"];
            if !skipped.iter().any(|skip| name == *skip) {
                collect_sources(root, &path, sources)?;
            }
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let text = fs::read_to_string(&path)
                .with_context(|| format!("cannot read {}", path.display()))?;
            let path = path.strip_prefix(root)?.to_string_lossy().into_owned();
            sources.push(SourceFile { path, text });
        }
    }
    Ok(())
}
