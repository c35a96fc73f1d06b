//! The operator's settings of MCP.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use dray_agent::caller::TraceSource;
use dray_dial::DialPort;
use dray_http::HttpClient;
use dray_types::{Clock, Secret};

use crate::legacy_servers::LegacyServers;
use crate::oauth::OAuthOptions;
use crate::programs::ProgramPool;
use crate::questions::QuestionPort;

/// Most bytes of one response by default.
const DEFAULT_MAX_RESPONSE_BYTES: usize = 16 << 20;

/// Longest set-up of one server by default (quickapps 21).
const DEFAULT_SETUP_TIMEOUT: Duration = Duration::from_secs(30);

/// Longest wait for a person who signs in, by default.
const DEFAULT_LOGIN_TIMEOUT: Duration = Duration::from_mins(1);

/// Longest wait for the versions of a program by default. Most programs that do not know the request refuse it
/// immediately; programs that ignore the request cause this wait at each start.
const DISCOVERY_TIMEOUT: Duration = Duration::from_secs(1);

/// Time that a program runs without a call by default.
const PROGRAM_IDLE_TIMEOUT: Duration = Duration::from_mins(5);

/// Most programs that run at a time by default.
const MAX_PROGRAMS: usize = 32;

/// A program that is an MCP server. A manifest names it `stdio:{name}`; it never contains the command.
#[derive(Clone, Debug, Default)]
pub struct ProgramCommand {
    /// The program; absolute, or found by the `PATH` of `env`, else in the system's own directories.
    pub command: String,
    /// The program's arguments, without the program itself.
    pub args: Vec<String>,
    /// The program's complete environment: no variable of the service is passed on.
    pub env: BTreeMap<String, Secret>,
    /// Working directory; that of the service if absent.
    pub cwd: Option<PathBuf>,
}

/// Settings of all servers.
#[derive(Clone, Debug)]
pub struct McpOptions {
    /// Headers of the caller (`X-*`) that may go to servers which are not DIAL's; names in any case.
    pub forward_headers: Vec<String>,
    /// The programs, by name.
    pub stdio: BTreeMap<String, ProgramCommand>,
    /// The programs that run.
    pub programs: ProgramPool,
    /// The servers that are known to begin with `initialize`.
    pub legacy_servers: LegacyServers,
    /// Key of the running programs: the conversation and its owner. Callers with the same key share programs. Without
    /// one a program ends with its request.
    pub conversation: Option<String>,
    /// The caller, by a name that stays the same from one request to the next. Sign-ins are stored under this name.
    pub principal: Option<String>,
    /// Asks users of servers' questions while a call waits; without it the call returns its questions.
    pub questions: Option<Arc<dyn QuestionPort>>,
    /// Sign-ins to remote servers.
    pub oauth: OAuthOptions,
    /// Longest wait for the versions of a program; after that, the session begins with `initialize`.
    pub discovery_timeout: Duration,
    /// Longest set-up of one server, listing included.
    pub setup: Duration,
    /// Longest wait for a person who signs in.
    pub login_timeout: Duration,
    /// Most bytes of one response of a server.
    pub max_response_bytes: usize,
    /// HTTP client, without redirects and proxies.
    pub client: HttpClient,
    /// DIAL, when there is one.
    pub dial: Option<Arc<dyn DialPort>>,
    /// Clock for the names of files.
    pub clock: Clock,
    /// The trace that calls of tools name; none by default.
    pub trace: Option<TraceSource>,
}

impl McpOptions {
    /// Without programs, DIAL and forwarded headers; 30 s for set-up, a minute for a sign-in and 16 MiB for a response.
    pub fn new(client: HttpClient) -> Self {
        Self {
            forward_headers: Vec::new(),
            stdio: BTreeMap::new(),
            programs: ProgramPool::new(PROGRAM_IDLE_TIMEOUT, MAX_PROGRAMS),
            legacy_servers: LegacyServers::default(),
            conversation: None,
            principal: None,
            questions: None,
            oauth: OAuthOptions::default(),
            discovery_timeout: DISCOVERY_TIMEOUT,
            setup: DEFAULT_SETUP_TIMEOUT,
            login_timeout: DEFAULT_LOGIN_TIMEOUT,
            max_response_bytes: DEFAULT_MAX_RESPONSE_BYTES,
            client,
            dial: None,
            clock: Clock::system(),
            trace: None,
        }
    }
}
