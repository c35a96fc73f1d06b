//! The Python of the tests: a virtual environment below `target/`, with the packages of
//! `tests/python/requirements.txt`. Created if it is missing or that file has changed.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Context as _;

use crate::step;

/// Creates the environment if needed, and returns the path of its interpreter.
pub(crate) fn ensure_environment(root: &Path) -> anyhow::Result<PathBuf> {
    let requirements = root.join("tests/python/requirements.txt");
    let required = fs::read_to_string(&requirements)
        .with_context(|| format!("cannot read {}", requirements.display()))?;
    let directory = root.join("target/python");
    let interpreter = directory.join("bin/python");
    let stamp = directory.join("requirements.txt");
    // The stamp is written last, so an interrupted installation has none.
    if fs::read_to_string(&stamp).is_ok_and(|installed| installed == required)
        && interpreter_works(&interpreter)
    {
        return Ok(interpreter);
    }
    if directory.exists() {
        // The environment is created from scratch, because otherwise packages that were removed from the list would
        // stay installed.
        fs::remove_dir_all(&directory)?;
    }
    step::program_step("python3")
        .args(["-m", "venv"])
        .arg(&directory)
        .run()?;
    step::program_step(&interpreter)
        .args(["-m", "pip", "install", "--quiet", "--requirement"])
        .arg(&requirements)
        .env("PIP_DISABLE_PIP_VERSION_CHECK", "1")
        .run()
        .context("the Python packages of tests/python/requirements.txt could not be installed")?;
    fs::write(&stamp, required)?;
    Ok(interpreter)
}

/// Whether the interpreter starts. It does not if the Python that created the environment was removed.
fn interpreter_works(interpreter: &Path) -> bool {
    step::program_step(interpreter).args(["-c", ""]).succeeds()
}
