//! Installs npm packages: clients by other authors, and programs that drive browsers.

use std::fs::File;
use std::path::PathBuf;
use std::process::Command;

/// Packages that drive Chromium and check pages; one list, because the directory `node-console` is shared.
/// `html-validate` (MIT) checks pages against the HTML standard.
pub(crate) const BROWSER_PACKAGES: [&str; 3] = [
    "playwright-core@1.64.1",
    "axe-core@4.14.1",
    "html-validate@10.17.0",
];

/// The directory whose `node_modules` have these packages, each as `NAME@VERSION`. It is below `target`, so that later
/// runs use it again.
pub(crate) fn packages(directory: &str, packages: &[&str]) -> PathBuf {
    let directory = super::root().join("target").join(directory);
    std::fs::create_dir_all(&directory).unwrap();
    // Tests may run as separate processes; the first one installs the packages, and the others wait.
    let lock = File::create(directory.join("lock")).unwrap();
    lock.lock().unwrap();
    // The file is written last, so that an interrupted installation has no stamp.
    let stamp = directory.join("installed");
    let package_list = packages.join(" ");
    if std::fs::read_to_string(&stamp).is_ok_and(|installed| installed == package_list) {
        return directory;
    }
    std::fs::write(directory.join("package.json"), "{\"private\": true}").unwrap();
    let mut install = Command::new("npm");
    install
        .args(["install", "--silent", "--no-audit", "--no-fund"])
        .arg("--no-package-lock")
        .args(packages)
        .current_dir(&directory);
    super::stdout(&mut install);
    std::fs::write(&stamp, package_list).unwrap();
    directory
}
