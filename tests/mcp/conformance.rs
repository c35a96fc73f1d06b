//! The official conformance suite of the Model Context Protocol, with the wire format of each version: against the
//! server of this repository with the names that the suite expects, against `dray mcp` as users start it, and against
//! the client of the agents.
//!
//! The suite is an npm package of a fixed version. `conformance/scenarios.toml` lists the scenarios that have to pass.

mod report;
mod server;

use std::process::{Command, Stdio};

use super::{HttpServer, McpFixture};
use crate::support::node;

/// The suite and the Node.js that it needs, with the versions whose scenarios the list names.
const NPM_PACKAGES: [&str; 2] = [
    "@modelcontextprotocol/conformance@0.2.0-alpha.12",
    "node@22.23.3",
];
/// The scenarios that have to pass.
const SCENARIO_LIST: &str = include_str!("conformance/scenarios.toml");
/// Timeout of one scenario, in milliseconds.
const SCENARIO_TIMEOUT_MS: &str = "30000";
/// The line that the suite passes to a shell, after the path of the client. The suite adds the URL of its server, and
/// passes the rest in variables.
const CLIENT_ARGUMENTS: &str = "\"$MCP_CONFORMANCE_SCENARIO\" \"$MCP_CONFORMANCE_CONTEXT\"";

/// Runs the scenarios of one version against `subject`, and fails unless those of `table` in the list pass.
fn check_scenarios(table: &str, version: &str, subject: &[&str]) {
    let modules = node::packages("conformance", &NPM_PACKAGES).join("node_modules");
    let results = tempfile::tempdir().unwrap();
    // The exit status is not checked: the suite fails even if only a scenario failed that is not on the list.
    let output = Command::new(modules.join("node/bin/node"))
        .arg(modules.join("@modelcontextprotocol/conformance/dist/index.js"))
        .args(subject)
        .args(["--requirements", version, "--timeout", SCENARIO_TIMEOUT_MS])
        .arg("--output-dir")
        .arg(results.path())
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let required = report::required_scenarios(SCENARIO_LIST, table, version);
    let outcomes = report::read_results(results.path());
    let violations = report::violations(&required, &outcomes);
    assert!(
        violations.is_empty(),
        "{}\n{}",
        violations.join("\n"),
        String::from_utf8_lossy(&output.stderr)
    );
}

async fn check_server(version: &'static str) {
    server::serve_during(move |url| check_scenarios("server", version, &["server", "--url", &url]))
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_server_passes_the_official_scenarios_of_2025_11_25() {
    check_server("2025-11-25").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_server_passes_the_official_scenarios_of_2026_07_28() {
    check_server("2026-07-28").await;
}

#[test]
fn the_program_passes_the_official_scenarios_that_need_no_names_of_the_suite() {
    let fixture = McpFixture::new();
    let server = HttpServer::start_with(&fixture, &[]);
    for version in ["2025-11-25", "2026-07-28"] {
        check_scenarios("program", version, &["server", "--url", &server.url]);
    }
}

fn check_client(version: &str) {
    let program = env!("CARGO_BIN_EXE_mcp-client");
    let command = format!("'{program}' {CLIENT_ARGUMENTS}");
    check_scenarios("client", version, &["client", "--command", &command]);
}

#[test]
fn the_client_passes_the_official_scenarios_of_2025_11_25() {
    check_client("2025-11-25");
}

#[test]
fn the_client_passes_the_official_scenarios_of_2026_07_28() {
    check_client("2026-07-28");
}
