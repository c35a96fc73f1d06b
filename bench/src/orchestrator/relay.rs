//! A relay in Python, as a separate process.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use anyhow::Context as _;
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::{Child, Command};

/// Packages of the Python package index that the relay needs.
const PYTHON_PACKAGES: [&str; 2] = ["aiohttp==3.14.5", "openai==2.54.0"];
/// Time limit for the start of the relay.
const START_TIMEOUT: Duration = Duration::from_mins(1);

/// The relay process. It is killed when this is dropped.
pub(super) struct RelayProcess {
    url: String,
    _process: Child,
}

impl RelayProcess {
    /// Starts a relay to a model; the error names the missing program or package.
    pub(super) async fn start(model: &str) -> anyhow::Result<Self> {
        let root = Path::new(env!("CARGO_MANIFEST_DIR"));
        let interpreter = python_interpreter(root.parent().unwrap_or(root)).await?;
        let mut process = Command::new(interpreter)
            .arg(root.join("src/orchestrator/relay.py"))
            .arg(model)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .context("the relay does not start")?;
        let out = process.stdout.take().context("the relay has no output")?;
        let mut lines = BufReader::new(out).lines();
        // The relay picks a free port and prints it as its first line.
        let port = tokio::time::timeout(START_TIMEOUT, lines.next_line())
            .await
            .context("the relay does not listen")??
            .context("the relay ended immediately")?;
        Ok(Self {
            url: format!("http://127.0.0.1:{port}/v1/chat/completions"),
            _process: process,
        })
    }

    /// URL of its chat completions.
    pub(super) fn url(&self) -> &str {
        &self.url
    }
}

/// The interpreter of a virtual environment with the packages. The environment is created once.
async fn python_interpreter(root: &Path) -> anyhow::Result<PathBuf> {
    let environment = root.join("target/bench-relay");
    let interpreter = environment.join("bin/python");
    if !interpreter.exists() {
        let mut create = Command::new("python3");
        create.args(["-m", "venv"]).arg(&environment);
        run_successfully(&mut create, "cannot create a virtual environment").await?;
    }
    let mut install = Command::new(&interpreter);
    install
        .args(["-m", "pip", "install", "--quiet"])
        .args(PYTHON_PACKAGES);
    run_successfully(&mut install, "cannot install the packages of the relay").await?;
    Ok(interpreter)
}

async fn run_successfully(command: &mut Command, failure: &'static str) -> anyhow::Result<()> {
    let status = command.status().await.context(failure)?;
    anyhow::ensure!(status.success(), failure);
    Ok(())
}
