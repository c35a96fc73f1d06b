//! Packages of npm for clients that we did not write.

use std::path::PathBuf;
use std::process::Command;

/// The directory whose `node_modules` have these packages, each as `NAME@VERSION`; below `target`, so that it survives
/// between runs.
pub(crate) fn packages(directory: &str, packages: &[&str]) -> PathBuf {
    let directory = super::root().join("target").join(directory);
    let is_there = |package: &&str| {
        let (name, version) = package.rsplit_once('@').unwrap();
        let about = directory
            .join("node_modules")
            .join(name)
            .join("package.json");
        // Another version of an earlier tree does not count.
        let about = std::fs::read_to_string(about).unwrap_or_default();
        about.contains(&format!("\"version\": \"{version}\""))
    };
    if !packages.iter().all(is_there) {
        std::fs::create_dir_all(&directory).unwrap();
        std::fs::write(directory.join("package.json"), "{\"private\": true}").unwrap();
        let mut install = Command::new("npm");
        install
            .args(["install", "--silent", "--no-audit", "--no-fund"])
            .arg("--no-package-lock")
            .args(packages)
            .current_dir(&directory);
        super::stdout(&mut install);
    }
    directory
}
