//! `cargo xtask new`: the skeleton of a new platform, backend, tool or format, and the remaining manual steps.
//!
//! - [`name`]: which names can be used, and their spellings.
//! - [`edit`]: insertions into files that exist, each at a place that must be found.
//! - [`plan`]: the files of a kind, created in memory from the templates and the tree.
//! - [`mod@write`]: writes all files, or none.
//!
//! It does not build, and writes no generated files; `cargo xtask generate` does that.

mod edit;
mod name;
mod plan;
#[cfg(test)]
mod tests;
mod write;

use std::path::Path;

use clap::ValueEnum;

use crate::step;
use name::ExtensionName;

/// Kind of extension that can be added to the product.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum ExtensionKind {
    /// A kind of sandbox: the crate dray-sandbox-NAME.
    Backend,
    /// A chat platform: the crate dray-platform-NAME.
    Platform,
    /// A family of document formats: a module of dray-documents.
    Format,
    /// A kind of tool set: the crate dray-tool-NAME.
    Tool,
}

impl ExtensionKind {
    /// The kind's value on the command line.
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Backend => "backend",
            Self::Platform => "platform",
            Self::Format => "format",
            Self::Tool => "tool",
        }
    }
}

/// Writes the skeleton and prints the written files and the remaining steps.
pub(crate) fn run_new(root: &Path, kind: ExtensionKind, name: &str) -> anyhow::Result<()> {
    let written = write_skeleton(root, kind, name)?;
    for path in written {
        eprintln!("wrote {path}");
    }
    eprintln!("\nIt compiles and its tests pass. What is left:\n");
    for (number, line) in (1..).zip(plan::remaining_steps(kind, name)) {
        eprintln!("{number}. {line}");
    }
    Ok(())
}

/// Writes the skeleton and returns the paths of its files, relative to the workspace.
fn write_skeleton(root: &Path, kind: ExtensionKind, name: &str) -> anyhow::Result<Vec<String>> {
    let name = ExtensionName::parse(kind, name)?;
    let changes = plan::skeleton(root, kind, &name)?;
    let paths = changes.keys().cloned().collect();
    write::replace_files(root, &changes, |root| {
        // Adds the new crate to the lock file, and fails if cargo cannot read a manifest.
        step::cargo_step(root)
            .args(["metadata", "--format-version", "1"])
            .output()
            .map(drop)
    })?;
    Ok(paths)
}
