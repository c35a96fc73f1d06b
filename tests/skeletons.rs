//! Tests the skeletons of `cargo xtask new`, one of each kind, in a copy of the work tree. The whole copy compiles and
//! follows the rules of the source, and each skeleton passes the suite of its kind.

use std::fs;
use std::path::Path;
use std::process::Command;

/// A name that is not in use.
const THROW_AWAY_NAME: &str = "throwaway";

/// Target directory of the copy. It differs from that of the work tree, because cargo would mistake artifacts of the
/// copy for those of the tree.
const TARGET_DIRECTORY: &str = "target/skeletons";

/// Directories that are not copied.
const EXCLUDED_DIRECTORIES: [&str; 2] = ["target", ".git"];

fn copy_directory(from: &Path, to: &Path) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap().map(Result::unwrap) {
        let (path, name) = (entry.path(), entry.file_name());
        if path.is_symlink()
            || EXCLUDED_DIRECTORIES
                .iter()
                .any(|excluded| name == *excluded)
        {
            continue;
        }
        if path.is_dir() {
            copy_directory(&path, &to.join(name));
        } else {
            fs::copy(&path, to.join(name)).unwrap();
        }
    }
}

/// Runs cargo in the copy.
fn cargo(copy: &Path, target: &Path, arguments: &[&str]) {
    let status = Command::new(env!("CARGO"))
        .args(arguments)
        .current_dir(copy)
        .env("CARGO_TARGET_DIR", target)
        .status()
        .unwrap();
    assert!(status.success(), "cargo {}", arguments.join(" "));
}

#[test]
fn skeletons_of_every_kind_compile_and_pass_the_suite_of_their_kind() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let directory = tempfile::tempdir().unwrap();
    let copy = directory.path();
    copy_directory(root, copy);
    let target = root.join(TARGET_DIRECTORY);
    let cargo = |arguments: &[&str]| cargo(copy, &target, arguments);
    let xtask = ["run", "--quiet", "--offline", "--package", "xtask", "--"];
    for kind in ["backend", "platform", "tool", "format"] {
        cargo(&[&xtask[..], &["new", kind, THROW_AWAY_NAME]].concat());
    }
    cargo(&[&xtask[..], &["tidy"]].concat());
    cargo(&["check", "--offline", "--workspace", "--bins", "--tests"]);
    let crates = ["dray-sandbox", "dray-platform", "dray-tool"];
    for name in crates.map(|kind| format!("{kind}-{THROW_AWAY_NAME}")) {
        cargo(&["test", "--offline", "--package", &name]);
    }
    cargo(&[
        "test",
        "--offline",
        "--package",
        "dray-documents",
        "--lib",
        THROW_AWAY_NAME,
    ]);
}
