//! `cargo xtask conformance`: the official conformance suite of the Model Context Protocol, against the server and the
//! client of this repository.
//!
//! The suite is an npm package of a fixed version. The scenarios that have to pass are in `xtask/conformance.toml`.
//! Each scenario runs with the wire of its set of requirements, so most of them run twice.

mod report;

use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use anyhow::{Context as _, bail};

use crate::{npm, step};
use report::{RequirementSet, ScenarioResult, SuiteRole};

/// The suite and the Node.js that it needs, with the versions whose scenarios the list names.
const NPM_PACKAGES: [(&str, &str); 2] = [
    ("@modelcontextprotocol/conformance", "0.2.0-alpha.12"),
    ("node", "22.23.3"),
];
/// Timeout of one scenario, in milliseconds.
const SCENARIO_TIMEOUT_MS: &str = "30000";

/// Installs the suite, builds both roles, runs all sets and compares them with the list.
pub(crate) fn run_suite(root: &Path, prints_json: bool) -> anyhow::Result<()> {
    let list = root.join("xtask/conformance.toml");
    let text = fs::read_to_string(&list).context("cannot read xtask/conformance.toml")?;
    let sets = report::parse_list(&text).context("xtask/conformance.toml is not valid")?;
    let suite = install_suite(root)?;
    build_roles(root)?;
    let server = ServerProcess::start(root)?;
    let results = sets
        .iter()
        .map(|set| {
            let subject = match set.role {
                SuiteRole::Server => ("--url", server.url.clone()),
                SuiteRole::Client => ("--command", client_command(root)),
            };
            run_set(&suite, set, subject)
        })
        .collect::<anyhow::Result<Vec<_>>>()?;
    drop(server);
    for (set, scenarios) in sets.iter().zip(&results) {
        eprint!("{}", report::table(set, scenarios));
    }
    if prints_json {
        let value = report::json(&sets, &results);
        writeln!(std::io::stdout(), "{value:#}")?;
    }
    let violations: Vec<_> = sets
        .iter()
        .zip(&results)
        .flat_map(|(set, scenarios)| report::violations(set, scenarios))
        .collect();
    if violations.is_empty() {
        return Ok(());
    }
    bail!("{}", violations.join("\n"))
}

/// The example program of this name.
fn example(root: &Path, name: &str) -> PathBuf {
    root.join("target/debug/examples").join(name)
}

/// The line that the suite passes to a shell, with the URL of its server after it. The shell passes the necessary
/// environment variables to the client.
fn client_command(root: &Path) -> String {
    let program = example(root, "conformance_client");
    format!(
        "'{}' \"$MCP_CONFORMANCE_SCENARIO\" \"$MCP_CONFORMANCE_CONTEXT\"",
        program.display()
    )
}

fn build_roles(root: &Path) -> anyhow::Result<()> {
    step::cargo_step(root)
        .args([
            "build",
            "--package",
            "dray-mcp",
            "--package",
            "dray-tool-mcp",
        ])
        .args([
            "--example",
            "conformance",
            "--example",
            "conformance_client",
        ])
        // The directory in which `example` searches the programs.
        .env("CARGO_TARGET_DIR", root.join("target"))
        .run()
}

/// The suite that npm installed.
struct InstalledSuite {
    node: PathBuf,
    script: PathBuf,
    /// The directory for the results of each run.
    results: PathBuf,
}

/// Installs the packages below `target/` unless these versions are installed.
fn install_suite(root: &Path) -> anyhow::Result<InstalledSuite> {
    let directory = root.join("target/conformance");
    let modules = npm::install_packages(&directory, &NPM_PACKAGES)
        .context("the conformance suite could not be installed")?;
    Ok(InstalledSuite {
        node: modules.join("node/bin/node"),
        script: modules.join("@modelcontextprotocol/conformance/dist/index.js"),
        results: directory.join("results"),
    })
}

/// The server under test. A drop closes its standard input, which ends the process.
struct ServerProcess {
    process: Child,
    url: String,
}

impl ServerProcess {
    fn start(root: &Path) -> anyhow::Result<Self> {
        let program = example(root, "conformance");
        let mut process = Command::new(&program)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .with_context(|| format!("cannot start {}", program.display()))?;
        let output = process.stdout.take().context("the server has no output")?;
        let mut url = String::new();
        BufReader::new(output).read_line(&mut url)?;
        let url = url.trim().to_owned();
        let server = Self { process, url };
        if !server.url.starts_with("http://") {
            bail!("the server did not start: {}", server.url);
        }
        Ok(server)
    }
}

impl Drop for ServerProcess {
    fn drop(&mut self) {
        drop(self.process.stdin.take());
        // An error is ignored, because the server may have already ended.
        let _ = self.process.wait();
    }
}

/// Runs one set. The outcome is read from the results and not from the status, because the suite fails when a scenario
/// fails.
fn run_set(
    suite: &InstalledSuite,
    set: &RequirementSet,
    (switch, subject): (&str, String),
) -> anyhow::Result<Vec<ScenarioResult>> {
    let (role, requirements) = (set.role.as_str(), set.requirements.as_str());
    let results = suite.results.join(format!("{role}-{requirements}"));
    if results.exists() {
        fs::remove_dir_all(&results)?;
    }
    fs::create_dir_all(&results)?;
    eprintln!("$ conformance {role} --requirements {requirements}");
    Command::new(&suite.node)
        .arg(&suite.script)
        .args([role, switch, &subject, "--requirements", requirements])
        .args(["--timeout", SCENARIO_TIMEOUT_MS, "--output-dir"])
        .arg(&results)
        .stdin(Stdio::null())
        .output()
        .context("cannot start Node.js")?;
    let scenarios = report::read_results(&results)?;
    if scenarios.is_empty() {
        bail!("the suite wrote no results of {role} {requirements}");
    }
    Ok(scenarios)
}
