//! Settings of programs that run tools.

use std::collections::BTreeMap;
use std::path::PathBuf;

use dray_service::config::ConfigProblem;
use dray_types::{Period, Secret};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::Config;

/// An MCP server on this machine.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct McpServer {
    /// The program.
    pub command: String,
    /// The server's arguments.
    pub args: Vec<String>,
    /// Environment variables of the server. Of the service's own variables it gets only `PATH`.
    pub env: BTreeMap<String, Secret>,
}

/// A token that the platform of this service issued, such as a projected service account token of Kubernetes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct McpWorkloadToken {
    /// File with the token. It is read at each sign-in.
    pub file: PathBuf,
    /// URLs of the MCP servers for which it may be used, as in manifests.
    pub servers: Vec<String>,
    /// URLs of the token endpoints to which it may be sent.
    pub token_endpoints: Vec<String>,
}

impl McpWorkloadToken {
    /// Whether it can be used anywhere.
    fn is_complete(&self) -> bool {
        let has_file = !self.file.as_os_str().is_empty();
        has_file && !self.servers.is_empty() && !self.token_endpoints.is_empty()
    }
}

impl Config {
    /// Problems of programs and tokens by their names.
    pub(super) fn mcp_problems(&self) -> Vec<ConfigProblem> {
        let servers = self.mcp_servers.iter();
        let servers = servers.filter(|(_, server)| server.command.trim().is_empty());
        let servers = servers.map(|(name, _)| {
            let field = format!("mcp_servers.{name}.command");
            ConfigProblem::new(field, "must name a program")
        });
        let tokens = self.mcp_workload_tokens.iter();
        let tokens = tokens.filter(|(_, token)| !token.is_complete());
        let tokens = tokens.map(|(name, _)| {
            let text = "must have `file`, `servers` and `token_endpoints`";
            ConfigProblem::new(format!("mcp_workload_tokens.{name}"), text)
        });
        servers.chain(tokens).collect()
    }
}

/// How MCP servers on this machine run: each for one conversation, from the first call of its tools on.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct McpPrograms {
    /// How long a program may have no call before it is ended. Default `5m`.
    pub idle_timeout: Period,
    /// Most programs that run at a time; a further one ends the one that was idle longest. Default 32.
    pub max_running: usize,
}

impl Default for McpPrograms {
    fn default() -> Self {
        Self {
            idle_timeout: Period::secs(300),
            max_running: 32,
        }
    }
}

/// The Python interpreter.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Interpreter {
    /// Base URL of the Python interpreter. Unset: DIAL Core is the interpreter.
    pub url: Option<String>,
    /// Key for requests to the interpreter. Empty: the key of the caller.
    pub api_key: Secret,
    /// Session of the interpreter that is used before another one is known. Unset: none.
    pub default_session_id: Option<String>,
}
