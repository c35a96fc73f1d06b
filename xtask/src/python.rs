//! The Python of the tests: a virtual environment below `target/`, with the packages of
//! `tests/python/requirements.txt`. Made when it is missing or when that file changed.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::Context as _;

use crate::step;

/// Creates the environment if needed, and returns the path of its interpreter.
pub(crate) fn ensure_environment(root: &Path) -> anyhow::Result<PathBuf> {
    let requirements = root.join("tests/python/requirements.txt");
    let wanted = fs::read_to_string(&requirements)
        .with_context(|| format!("cannot read {}", requirements.display()))?;
    let folder = root.join("target/python");
    let interpreter = folder.join("bin/python");
    let stamp = folder.join("requirements.txt");
    // The stamp is written last, so an interrupted installation has none.
    if fs::read_to_string(&stamp).is_ok_and(|had| had == wanted) && interpreter_works(&interpreter)
    {
        return Ok(interpreter);
    }
    if folder.exists() {
        // Created from scratch, because otherwise packages that were removed from the list would stay installed.
        fs::remove_dir_all(&folder)?;
    }
    step::program_step("python3")
        .args(["-m", "venv"])
        .arg(&folder)
        .run()?;
    step::program_step(&interpreter)
        .args(["-m", "pip", "install", "--quiet", "--requirement"])
        .arg(&requirements)
        .env("PIP_DISABLE_PIP_VERSION_CHECK", "1")
        .run()
        .context("the Python packages of tests/python/requirements.txt could not be installed")?;
    fs::write(&stamp, wanted)?;
    Ok(interpreter)
}

/// An environment dies with the interpreter that it was made from.
fn interpreter_works(interpreter: &Path) -> bool {
    step::program_step(interpreter).args(["-c", ""]).succeeds()
}
