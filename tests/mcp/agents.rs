//! Agents that people use, with a scripted model: Codex, Claude Code and opencode read a file through the server that
//! `dray mcp install` wrote into their configuration.
//!
//! They are installed from npm. The tests need no account and no network except the registry: the model is a fake on
//! loopback.

mod model;

use std::path::Path;
use std::process::Command;

use serde_json::json;

use self::model::{FINAL_TEXT, RehearsedModel};
use super::McpFixture;
use crate::support::{self, node};

/// The request of the model to each agent.
const QUESTION_TEXT: &str = "What is in notes.txt?";
/// The content of the file.
const FILE_TEXT: &str = "The answer is 42.";

/// The package of Codex is its launcher, which contains the program. The others are packages with the program alone:
/// their launchers are copies that an installation script creates, and npm does not run this script everywhere.
const AGENT_PACKAGES: [&str; 3] = [
    "@openai/codex@0.171.0",
    if cfg!(target_arch = "aarch64") {
        "@anthropic-ai/claude-code-linux-arm64@2.1.332"
    } else {
        "@anthropic-ai/claude-code-linux-x64@2.1.332"
    },
    if cfg!(target_arch = "aarch64") {
        "opencode-linux-arm64@1.18.33"
    } else {
        // The build without AVX2, which some machines lack.
        "opencode-linux-x64-baseline@1.18.33"
    },
];

/// An agent, and the HTTP API of its model.
struct AgentRun {
    /// The name of the agent for `dray mcp install`.
    client: &'static str,
    model: RehearsedModel,
    fixture: McpFixture,
}

impl AgentRun {
    /// Creates a home and lets `dray mcp install` write the agent's configuration there.
    async fn prepare(client: &'static str, tool: &'static str) -> Self {
        let fixture = McpFixture::new();
        let mut install = Command::new(support::dray());
        install
            .args(["mcp", "install", client, "--", "--root"])
            .arg(fixture.path("data"))
            .env("HOME", fixture.path("home"));
        support::stdout(&mut install);
        Self {
            client,
            model: RehearsedModel::start(tool).await,
            fixture,
        }
    }

    /// The program of a package, with only the search path of this process's environment.
    fn command(&self, program: &str) -> Command {
        let modules = node::packages("node-agents", &AGENT_PACKAGES).join("node_modules");
        let mut command = Command::new(modules.join(program));
        command
            .env_clear()
            .env("HOME", self.fixture.path("home"))
            .env("PATH", "/usr/local/bin:/usr/bin:/bin")
            // The directory does not have the file: only the server is given the directory that has it.
            .current_dir(self.fixture.path("out"));
        command
    }

    /// Runs the agent to its end, and checks that the model got the file and that the user got its last text.
    fn check(&self, command: &mut Command) {
        let output = support::stdout(command.stdin(std::process::Stdio::null()));
        let results = self.model.results();
        let last = results.last().map(String::as_str).unwrap_or_default();
        assert!(last.contains(FILE_TEXT), "{}: {results:?}", self.client);
        assert!(last.contains("notes.txt"), "{}: {results:?}", self.client);
        assert!(output.contains(FINAL_TEXT), "{}: {output}", self.client);
    }
}

/// The program in one of the packages for this kind of processor.
fn platform_program(package: &str, program: &str) -> String {
    let kind = if cfg!(target_arch = "aarch64") {
        "arm64"
    } else if package == "opencode" {
        "x64-baseline"
    } else {
        "x64"
    };
    let directory = format!("{package}-linux-{kind}");
    Path::new(&directory).join(program).display().to_string()
}

#[tokio::test(flavor = "multi_thread")]
async fn codex_reads_a_file_through_the_installed_server() {
    let run = AgentRun::prepare("codex", "mcp__drayage/read").await;
    let provider = format!(
        "model_providers.rehearsed={{name=\"rehearsed\",base_url=\"{}/v1\",wire_api=\"responses\"}}",
        run.model.url()
    );
    let mut codex = run.command(".bin/codex");
    codex
        .args(["exec", "--skip-git-repo-check", "--sandbox", "read-only"])
        .args(["-c", "model_provider=rehearsed", "-c", &provider])
        // Both features would connect to servers outside.
        .args([
            "-c",
            "features.plugins=false",
            "-c",
            "analytics.enabled=false",
        ])
        .args(["--model", "rehearsed", QUESTION_TEXT]);
    run.check(&mut codex);
}

#[tokio::test(flavor = "multi_thread")]
async fn claude_code_reads_a_file_through_the_installed_server() {
    let run = AgentRun::prepare("claude-code", "mcp__drayage__read").await;
    let program = platform_program("@anthropic-ai/claude-code", "claude");
    let mut claude = run.command(&program);
    claude
        .args(["-p", QUESTION_TEXT, "--allowedTools", "mcp__drayage__read"])
        .env("ANTHROPIC_BASE_URL", run.model.url())
        .env("ANTHROPIC_API_KEY", "rehearsed")
        .env("CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC", "1")
        // The scripted model does not search for tools.
        .env("ENABLE_TOOL_SEARCH", "false");
    run.check(&mut claude);
}

#[tokio::test(flavor = "multi_thread")]
async fn opencode_reads_a_file_through_the_installed_server() {
    let run = AgentRun::prepare("opencode", "drayage_read").await;
    let limits = json!({"context": 100_000, "output": 4_000});
    let provider = json!({
        "npm": "@ai-sdk/openai-compatible",
        "options": {"baseURL": format!("{}/v1", run.model.url()), "apiKey": "rehearsed"},
        "models": {"rehearsed": {"tool_call": true, "limit": limits}},
    });
    let config = json!({"provider": {"rehearsed": provider}, "autoupdate": false});
    let mut opencode = run.command(&platform_program("opencode", "bin/opencode"));
    opencode
        .args(["run", "--model", "rehearsed/rehearsed", QUESTION_TEXT])
        // Adds the model to the configuration that `dray mcp install` wrote.
        .env("OPENCODE_CONFIG_CONTENT", config.to_string())
        .env("OPENCODE_DISABLE_MODELS_FETCH", "1")
        .env("OPENCODE_DISABLE_AUTOUPDATE", "1")
        .env("OPENCODE_DISABLE_LSP_DOWNLOAD", "1")
        // Plugins would be downloaded from npm at each start.
        .env("OPENCODE_PURE", "1");
    run.check(&mut opencode);
}
