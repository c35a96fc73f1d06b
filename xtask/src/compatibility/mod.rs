//! `cargo xtask contracts`: refuses changes of `proto/` that break clients of the last release.
//!
//! The descriptors of that release are in `proto/released.binpb`. A client of that release and a service of the current
//! tree must understand each other, in binary and in JSON. So no element that the client uses may be removed, renamed,
//! renumbered or get another type. New elements are not checked, except if they use the number of a removed one.

mod compare;

use std::fs;
use std::path::Path;

use anyhow::{Context as _, bail};
use prost::Message as _;
use prost_types::FileDescriptorSet;

use crate::generate;

/// Descriptors of the last release, relative to the workspace.
const RELEASED_DESCRIPTORS: &str = "proto/released.binpb";

/// Compares `proto/` with the last release. With `release`, and without breaking changes, stores the current contracts
/// as the released ones.
pub(crate) fn run_check(root: &Path, release: bool) -> anyhow::Result<()> {
    let current = generate::compile_descriptors(root)?;
    let violations = violations_of(root, &current)?;
    if !violations.is_empty() {
        bail!(
            "proto/ breaks clients of the last release:\n  {}\nAdd a field, a method or a message instead, and keep what is \
             there. A break needs a new package, `dray.v2`.",
            violations.join("\n  ")
        );
    }
    if release {
        fs::write(
            root.join(RELEASED_DESCRIPTORS),
            without_comments(current).encode_to_vec(),
        )?;
    }
    Ok(())
}

/// The breaking changes of the tree, one sentence each.
fn violations_of(root: &Path, current: &FileDescriptorSet) -> anyhow::Result<Vec<String>> {
    let path = root.join(RELEASED_DESCRIPTORS);
    let bytes = fs::read(&path).with_context(|| format!("cannot read {}", path.display()))?;
    let released = FileDescriptorSet::decode(bytes.as_slice())
        .with_context(|| format!("{} is not a descriptor set", path.display()))?;
    Ok(compare::breaking_changes(&released, current))
}

/// Descriptors without comments and positions, whose changes are harmless.
fn without_comments(mut descriptors: FileDescriptorSet) -> FileDescriptorSet {
    for file in &mut descriptors.file {
        file.source_code_info = None;
    }
    descriptors
}

#[cfg(test)]
mod tests;
