//! Settings of programs that run tools.

use std::collections::BTreeMap;

use dray_types::{Period, Secret};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

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
    /// The interpreter's base URL; without one DIAL Core is the interpreter.
    pub url: Option<String>,
    /// Key for requests to it. Empty: the key of the caller.
    pub api_key: Secret,
    /// Session that is used before another one is known.
    pub default_session_id: Option<String>,
}
