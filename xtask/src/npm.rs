//! Packages of npm that the commands run, of fixed versions, below `target/`.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use serde_json::json;

use crate::step;

/// Installs packages (name and version) into a directory unless these versions are installed; returns its
/// `node_modules`.
pub(crate) fn install_packages(
    directory: &Path,
    packages: &[(&str, &str)],
) -> anyhow::Result<PathBuf> {
    fs::create_dir_all(directory)?;
    let packages: serde_json::Map<_, _> = packages
        .iter()
        .map(|(name, version)| ((*name).to_owned(), json!(version)))
        .collect();
    let manifest = json!({"private": true, "dependencies": packages}).to_string();
    let modules = directory.join("node_modules");
    let stamp = directory.join("installed.json");
    if fs::read_to_string(&stamp).is_ok_and(|installed| installed == manifest) && modules.exists() {
        return Ok(modules);
    }
    fs::write(directory.join("package.json"), &manifest)?;
    // Silent, because only a failure is of interest.
    step::program_step("npm")
        .args([
            "install",
            "--silent",
            "--no-audit",
            "--no-fund",
            "--no-package-lock",
        ])
        .inside(directory)
        .run()
        .context("the packages could not be installed; this needs npm and its registry")?;
    // The stamp is written last, so an interrupted installation has none.
    fs::write(&stamp, manifest)?;
    Ok(modules)
}
