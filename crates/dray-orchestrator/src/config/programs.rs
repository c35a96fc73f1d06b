//! Settings of programs that run tools.

use std::collections::BTreeMap;
use std::path::PathBuf;

use dray_types::{Period, Secret};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// An MCP server on this machine.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct McpServer {
    /// The program.
    pub command: String,
    /// Its arguments.
    pub args: Vec<String>,
    /// Its environment; it gets nothing of the service's but `PATH`.
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
    pub(super) fn is_complete(&self) -> bool {
        let has_file = !self.file.as_os_str().is_empty();
        has_file && !self.servers.is_empty() && !self.token_endpoints.is_empty()
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
    /// Its base URL; without one DIAL Core is the interpreter.
    pub url: Option<String>,
    /// Key for requests to it. Empty: the key of the caller.
    pub api_key: Secret,
    /// Session that is used before another one is known.
    pub default_session_id: Option<String>,
}
