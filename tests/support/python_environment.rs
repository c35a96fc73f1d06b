//! Virtual environments of Python beside the one of `tests/python/requirements.txt`: for programs whose dependencies
//! conflict with those, and for other versions of Python.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;

/// The interpreter of the environment `target/NAME`, which `python` makes with these packages, each as `NAME==VERSION`.
/// Later runs use it again.
pub(crate) fn environment(name: &str, python: &Path, packages: &[&str]) -> PathBuf {
    let directory = super::root().join("target").join(name);
    fs::create_dir_all(&directory).unwrap();
    // Tests may run as separate processes; the first one installs the packages, and the others wait.
    let lock = File::create(directory.join("lock")).unwrap();
    lock.lock().unwrap();
    let environment = directory.join("environment");
    let interpreter = environment.join("bin/python");
    // The file is written last, so that an interrupted installation has no stamp.
    let stamp = directory.join("installed");
    let package_list = packages.join(" ");
    let is_installed = fs::read_to_string(&stamp).is_ok_and(|installed| installed == package_list);
    if is_installed && works(&interpreter) {
        return interpreter;
    }
    super::stdout(
        Command::new(python)
            .args(["-m", "venv", "--clear"])
            .arg(&environment),
    );
    super::stdout(
        Command::new(&interpreter)
            .args(["-m", "pip", "install", "--quiet"])
            .args(packages)
            .env("PIP_DISABLE_PIP_VERSION_CHECK", "1"),
    );
    fs::write(&stamp, package_list).unwrap();
    interpreter
}

/// Whether the interpreter starts. It does not if the Python that made the environment was removed.
fn works(interpreter: &Path) -> bool {
    let started = Command::new(interpreter).args(["-c", ""]).status();
    started.is_ok_and(|status| status.success())
}

/// The packages of `tests/python/requirements.txt` with these names, each as `NAME==VERSION`.
pub(crate) fn required_packages(names: &[&str]) -> Vec<String> {
    let path = super::root().join("tests/python/requirements.txt");
    let requirements = fs::read_to_string(path).unwrap();
    let find = |name: &&str| {
        let prefix = format!("{name}==");
        let line = requirements.lines().find(|line| line.starts_with(&prefix));
        line.unwrap_or_else(|| panic!("{name} is not in the list"))
            .to_owned()
    };
    names.iter().map(find).collect()
}
