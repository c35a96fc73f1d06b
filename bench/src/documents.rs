//! (e) Documents to Markdown: time, memory and the share of the text that is converted, compared with `markitdown` and
//! reference extractions.
//!
//! The converter runs in a small separate program (`documents`, an example of `dray-documents`), so that its peak
//! memory is measured alone. `tests/documents/measure.py` compares the results, because the references are made with
//! Python.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Context as _;

use crate::print_line;

/// Packages of the Python package index for the comparison. The extras of `markitdown` are the formats of the corpus.
const PYTHON_PACKAGES: [&str; 7] = [
    "markitdown[docx,outlook,pdf,pptx,xls,xlsx]==0.1.8",
    "openpyxl==3.1.5",
    "pdfplumber==0.11.10",
    "python-docx==1.2.0",
    "python-pptx==1.0.2",
    "striprtf==0.0.35",
    "xlrd==2.0.2",
];

/// Measures and prints the output of `measure.py`.
pub(crate) fn run() -> anyhow::Result<()> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .context("the directory of the benches has no parent")?;
    let converter = built_converter(root)?;
    print_line("(e) documents to Markdown, warm, one core, compared with markitdown");
    let mut measure = match python_interpreter(root) {
        Ok(interpreter) => Command::new(interpreter),
        Err(error) => {
            // Without a network, everything but `markitdown` is measured.
            print_line(&format!("  markitdown cannot be installed: {error:#}"));
            Command::new("python3")
        }
    };
    let status = measure
        .arg(root.join("tests/documents/measure.py"))
        .arg("--binary")
        .arg(converter)
        .status()
        .context("python3 could not be started; install it")?;
    anyhow::ensure!(status.success(), "the comparison failed");
    Ok(())
}

/// Builds the converter into the target directory of this program, and returns its path.
fn built_converter(root: &Path) -> anyhow::Result<PathBuf> {
    let program = std::env::current_exe()?;
    let release = program
        .parent()
        .context("the path of this program has no directory")?;
    let target = release
        .parent()
        .context("the path of this program has no target directory")?;
    let status = Command::new("cargo")
        .current_dir(root)
        .args(["build", "--release", "--package", "dray-documents"])
        // The target directory of this program is used, even if it is not the default one.
        .args(["--example", "documents", "--target-dir"])
        .arg(target)
        .status()
        .context("cargo could not be started")?;
    anyhow::ensure!(status.success(), "the converter cannot be built");
    Ok(target.join("release/examples/documents"))
}

/// An interpreter with [`PYTHON_PACKAGES`], kept below `target/`.
fn python_interpreter(root: &Path) -> anyhow::Result<PathBuf> {
    let environment = root.join("target/bench-python");
    let interpreter = environment.join("bin/python");
    // The environment is kept between runs: pip then only compares the versions of its packages.
    if !interpreter.exists() {
        let status = Command::new("python3")
            .args(["-m", "venv"])
            .arg(&environment)
            .status()?;
        anyhow::ensure!(
            status.success(),
            "the virtual environment could not be created; install python3-venv"
        );
    }
    let installed = Command::new(&interpreter)
        .args([
            "-m",
            "pip",
            "install",
            "--quiet",
            "--disable-pip-version-check",
        ])
        .args(PYTHON_PACKAGES)
        .status()?;
    anyhow::ensure!(
        installed.success(),
        "pip could not install the packages of the comparison; its output is above"
    );
    Ok(interpreter)
}
