//! The settings of the orchestrator (quickapps 7).

use std::collections::{BTreeMap, BTreeSet};
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;

use dray_agent::approval::ApprovalRule;
use dray_http::{BASE_URL_RULE, parse_base_url};
use dray_service::config::{ConfigProblem, RestartSetting, Section, VariableAlias};
use dray_service::reload::{DEFAULT_RELOAD_INTERVAL, interval_problem};
use dray_service::restart_settings;
use dray_types::{ByteSize, FileSetting, Period, Secret, TenantId};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

mod aliases;
pub mod approvals;
mod bodies;
pub mod budgets;
mod derived;
mod origin;
pub mod permissions;
mod programs;
mod sandbox;
#[cfg(test)]
mod tests;
pub mod tool_access;

use self::sandbox::sandbox_problem;
use origin::{is_loopback_url, is_origin};
pub use programs::{Interpreter, McpPrograms, McpServer, McpWorkloadToken};

/// The orchestrator, which runs agents: it turns a chat completion into calls of a model and of tools.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
#[expect(clippy::struct_excessive_bools, reason = "each is its own switch")]
pub struct Config {
    /// Address of the chat endpoint. An address that other machines reach needs `clients` or `dial_url`. Default
    /// `127.0.0.1:5000`.
    pub listen: SocketAddr,
    /// Host names that the `Host` header may have (without its port) in addition to `localhost` and loopback addresses,
    /// while the listener is on a loopback address and has no keys. Default none.
    pub hosts: Vec<String>,
    /// Base URL at which browsers reach this service, such as `https://chat.example.org`, for users who sign in to MCP
    /// servers. It must be `https`, or `http` for a host of this machine. Default: the address of `listen` if it is one
    /// of this machine; otherwise users cannot sign in.
    pub public_url: Option<String>,
    /// Tenant to which the sessions, files, records and chats of this service belong. Default `default`.
    pub tenant: String,
    /// Keys of clients, by name. A client sends its key as bearer token or, without DIAL, as `Api-Key`. Default none.
    pub clients: BTreeMap<String, Secret>,
    /// Agents, tools and models that callers may use.
    pub permissions: permissions::Permissions,
    /// Deployment names that paths of requests may contain. Names of local manifests work too. Default `quick_apps2`
    /// and `quick_apps`.
    pub deployments: Vec<String>,
    /// Base URL of DIAL Core, such as `https://core.dial.example`. Keys are sent only to this scheme, host and port.
    /// Unset: no DIAL Core.
    pub dial_url: Option<String>,
    /// `api-version` of calls to DIAL. Default `2025-01-01-preview`.
    pub dial_api_version: String,
    /// PEM file with additional authorities that sign DIAL Core's certificate. Unset: none.
    pub dial_ca_file: Option<FileSetting>,
    /// Time to connect to DIAL Core or the model, TLS included. Default `5s`.
    pub connect_timeout: Period,
    /// Base URL of a model without DIAL: any endpoint of chat completions, such as `http://127.0.0.1:11434/v1`. Unset:
    /// models are deployments of DIAL Core.
    pub model_url: Option<String>,
    /// Key for `model_url`, sent as bearer token. Empty: none is sent.
    pub model_key: Secret,
    /// Longest wait for the first byte of a model's response. Default `10m`.
    pub model_timeout: Period,
    /// Longest time without a byte in the middle of a model's response. Default `5m`.
    pub model_idle_timeout: Period,
    /// Directory of local manifests, `NAME.json` each. Changes apply from the next request on. Unset: none.
    pub manifests: Option<PathBuf>,
    /// Name of the local manifest for requests that name none. Unset: none.
    pub default_manifest: Option<String>,
    /// Directories of prompts, tools, tool sets and skills in addition to the built-in ones. Later directories override
    /// earlier ones.
    pub layers: Vec<PathBuf>,
    /// Id of the published schema of manifests.
    pub app_schema_id: String,
    /// Whether features in preview may be used. Default off.
    pub preview: bool,
    /// Prompts that editors may offer, with the models for which each is intended. No model may appear twice.
    pub prompt_mapping: BTreeMap<String, Vec<String>>,
    /// Model for manifests that name none. Unset: none.
    pub default_orchestrator_deployment: Option<String>,
    /// Most calls of the model in one turn, unless the manifest sets another number; 1 to 1000000. Default 15.
    pub max_iterations: u32,
    /// How deeply agents may call each other, 0 to 8; with 0 they may not. Default 3.
    pub max_agent_depth: u32,
    /// How often one turn may be handed over from agent to agent, 0 to 16; with 0 it is never handed over. Default 4.
    pub max_handoffs: u32,
    /// Number of tools in all tool sets above which the model has to search for tools, unless the manifest sets another
    /// number; 0 for never. Default 128, the most that `OpenAI` accepts.
    pub tool_search_threshold: u32,
    /// Estimated tokens of a prompt from which old messages of a conversation are put into a file and summarised,
    /// unless the manifest sets another number; at least 1000. Unset: never.
    pub compaction_threshold_tokens: Option<u32>,
    /// Whether a system message of the client is kept. Default off.
    pub allow_override_system_message: bool,
    /// Whether tokens are counted and shown. Default off.
    pub show_usage_statistics: bool,
    /// Whether the time of a turn is shown. Default off.
    pub show_execution_time_stage: bool,
    /// Which stages are shown: `none`, `error`, `info` or `debug`. Unset: those that the manifest says.
    pub stage_display_level: Option<StageLevel>,
    /// Header of requests with the language of texts for the user. Default `accept-language`.
    pub language_header: String,
    /// Whether the log contains message contents at level debug. Default off.
    pub log_payloads: bool,
    /// Most characters of one message content in the log. Default 2000.
    pub log_payloads_max_length: u32,
    /// Whether spans contain messages, arguments and results, each of at most `log_payloads_max_length` characters.
    /// Default off.
    pub trace_contents: bool,
    /// Longest duration of a tool call, unless the manifest sets another one; at most `1h`. Default `5m`.
    pub tool_timeout: Period,
    /// Whether agents without a tool that takes files also get the skill on references to files. Default off.
    pub file_skill_always: bool,
    /// Names of forwarded `X-*` headers that third parties (REST and MCP servers) may see. Default none.
    pub forward_headers: Vec<String>,
    /// How long the metadata of deployments and tool sets is cached; `0s` does not cache it. Default `5m`.
    pub metadata_expiry: Period,
    /// How long a turn waits for an interactive sign-in. Default `2m`.
    pub interactive_login_timeout: Period,
    /// MCP servers on this machine that a manifest may name, by name. Default none.
    pub mcp_servers: BTreeMap<String, McpServer>,
    /// Limits of these servers that are programs.
    pub mcp_programs: McpPrograms,
    /// Tokens of the platform with which the service signs in to MCP servers, by name. Only manifests of the operator
    /// may name one. Default none.
    pub mcp_workload_tokens: BTreeMap<String, McpWorkloadToken>,
    /// The Python interpreter.
    pub py_interpreter: Interpreter,
    /// Files of agents.
    pub files: dray_tool_files::Config,
    /// Address of the sandbox for sessions without one, such as `docker:NAME`. `{session}` in it stands for the
    /// session's id, and is required if other machines or DIAL may send requests. Without it only sessions that were
    /// bound explicitly have a sandbox.
    pub sandbox: Option<String>,
    /// Most concurrent chats; `max_body_total` bounds the memory for their requests. Default 256.
    pub max_chats: usize,
    /// How long a chat above `max_chats`, or a request above `max_body_total`, waits before it is refused. Default
    /// `30s`.
    pub chat_wait: Period,
    /// Most bytes of one request; up to `256MiB`. Default `16MiB`.
    pub max_body: ByteSize,
    /// Most bytes of the requests of all running chats together, `max_body` to `1024GiB`. Each value of their JSON
    /// counts 256 bytes more. Default `128MiB`.
    pub max_body_total: ByteSize,
    /// Longest time for receiving a request's body. Default `1m`.
    pub body_timeout: Period,
    /// How long running chats may continue when the service ends, at most seven eighths of `shutdown.grace`. Default
    /// `30s`.
    pub drain: Period,
    /// Origins whose pages may call the plain endpoints from a browser, such as `https://chat.example.org`. Default
    /// none.
    pub cors_origins: Vec<String>,
    /// How long a stream of the plain endpoint may be silent before a comment keeps the connection open. Default `5s`.
    pub heartbeat_interval: Period,
    /// How files of answers appear in the text for plain clients, which do not know `custom_content`: `links`, `data`
    /// or `none`. Default `links`.
    pub answer_files: AnswerFiles,
    /// How long a turn waits for results of the client's own tools; up to `15d`. Default `7d`.
    pub client_tool_timeout: Period,
    /// Calls of tools that a person must approve, in the agents of all callers, in addition to those that a manifest
    /// names. A manifest cannot remove them. Default none.
    pub require_approval: Vec<ApprovalRule>,
    /// Calls of tools that may be repeated if their process ended during them, in the agents of all callers, in
    /// addition to those that a manifest names. Another replica then finishes a response in the background. Default
    /// none.
    pub repeatable_tools: Vec<ApprovalRule>,
    /// Tools that only some callers may use, in the agents of all manifests. Default none: all may use all tools.
    pub tool_access: Vec<tool_access::ToolAccess>,
    /// How long a call waits for its approval; up to `15d`. Default `1h`.
    pub approval_timeout: Period,
    /// Chats whose people decide about calls that need approval, or answer what tools ask during calls. Default none.
    pub approval_chats: Vec<approvals::ApprovalChat>,
    /// How long a request stays open for the decision of a chat, at most `1h`; `0s` does not wait. Afterwards the turn
    /// is paused. A response in the background stays until the approval expires. Default `1m`.
    pub approval_wait: Period,
    /// Limits of turns, conversations and callers, and the prices of models. Default no limit.
    pub budgets: budgets::Budgets,
    /// How long files, responses and conversations of `/v1` are kept after they were stored or last changed; `1h` to
    /// `14d`. Default `14d`.
    pub client_state_lifetime: Period,
    /// How long the process of a running response may give no sign of life: `2s` to `5m`. Afterwards other replicas
    /// report the response as failed, and its questions in chats as questions of a request that has ended. Default
    /// `30s`.
    pub response_lease: Period,
    /// Most bytes of one file of `/v1/files`; up to `5GiB`. Default `512MiB`.
    pub max_upload: ByteSize,
    /// How often the configuration file and the directory of secrets are read again: `1s` to `1h`. The log names changed
    /// settings that need a restart. Default `2s`.
    pub reload_interval: Period,
}

/// How files of answers appear in the text.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum AnswerFiles {
    /// Files appear as links that expire.
    #[default]
    Links,
    /// Files appear as `data:` URLs if they are small enough, otherwise as links.
    Data,
    /// Files do not appear in the text.
    None,
}

/// The levels of stages. A stage is a step of the work, as users see it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum StageLevel {
    /// No stage is shown.
    None,
    /// Only the stages of failures are shown.
    Error,
    /// All stages except those for builders of agents.
    Info,
    /// All stages.
    Debug,
}

const ONE_HOUR: Period = Period::secs(3600);
/// Stores keep content for at least this long.
const MAX_CLIENT_TOOL_TIMEOUT: Period = Period::secs(15 * 24 * 3600);
/// A day less than that, because content that is stored again may be up to a day old by then.
const MAX_CLIENT_STATE_LIFETIME: Period = Period::secs(14 * 24 * 3600);

impl Default for Config {
    #[expect(clippy::too_many_lines, reason = "one line for each field")]
    fn default() -> Self {
        Self {
            listen: (Ipv4Addr::LOCALHOST, 5000).into(),
            hosts: Vec::new(),
            tenant: TenantId::default().to_string(),
            public_url: None,
            clients: BTreeMap::new(),
            permissions: permissions::Permissions::default(),
            deployments: vec!["quick_apps2".to_owned(), "quick_apps".to_owned()],
            dial_url: None,
            dial_api_version: "2025-01-01-preview".to_owned(),
            dial_ca_file: None,
            connect_timeout: Period::secs(5),
            model_url: None,
            model_key: Secret::default(),
            model_timeout: Period::secs(600),
            model_idle_timeout: Period::secs(300),
            manifests: None,
            default_manifest: None,
            layers: Vec::new(),
            app_schema_id: dray_agent::manifest::publish::SCHEMA_ID.to_owned(),
            preview: false,
            prompt_mapping: BTreeMap::new(),
            default_orchestrator_deployment: None,
            max_iterations: 15,
            max_agent_depth: 3,
            max_handoffs: 4,
            tool_search_threshold: 128,
            compaction_threshold_tokens: None,
            allow_override_system_message: false,
            show_usage_statistics: false,
            show_execution_time_stage: false,
            stage_display_level: None,
            language_header: "accept-language".to_owned(),
            log_payloads: false,
            log_payloads_max_length: 2000,
            trace_contents: false,
            tool_timeout: Period::secs(300),
            file_skill_always: false,
            forward_headers: Vec::new(),
            metadata_expiry: Period::secs(300),
            interactive_login_timeout: Period::secs(120),
            mcp_servers: BTreeMap::new(),
            mcp_programs: McpPrograms::default(),
            mcp_workload_tokens: BTreeMap::new(),
            py_interpreter: Interpreter::default(),
            files: dray_tool_files::Config::default(),
            sandbox: None,
            max_chats: 256,
            chat_wait: Period::secs(30),
            max_body: ByteSize::mib(16),
            max_body_total: ByteSize::mib(128),
            body_timeout: Period::secs(60),
            drain: Period::secs(30),
            cors_origins: Vec::new(),
            heartbeat_interval: Period::secs(5),
            answer_files: AnswerFiles::default(),
            client_tool_timeout: Period::secs(7 * 24 * 3600),
            require_approval: Vec::new(),
            repeatable_tools: Vec::new(),
            tool_access: Vec::new(),
            approval_timeout: ONE_HOUR,
            approval_chats: Vec::new(),
            approval_wait: Period::secs(60),
            budgets: budgets::Budgets::default(),
            client_state_lifetime: MAX_CLIENT_STATE_LIFETIME,
            response_lease: Period::secs(30),
            max_upload: ByteSize::mib(512),
            reload_interval: DEFAULT_RELOAD_INTERVAL,
        }
    }
}

impl Section for Config {
    /// The listener, the stores of state, and limits that all requests share.
    fn restart_settings() -> Option<&'static [RestartSetting<Self>]> {
        const RESTART_SETTINGS: &[RestartSetting<Config>] = restart_settings![
            Config: listen, public_url, tenant, max_chats, max_body_total, drain, approval_timeout,
            client_state_lifetime, response_lease, reload_interval
        ];
        Some(RESTART_SETTINGS)
    }

    fn aliases() -> &'static [VariableAlias] {
        &aliases::VARIABLE_ALIASES
    }

    fn validate(&self) -> Vec<ConfigProblem> {
        let mut problems = self.access_problems();
        problems.extend(self.endpoint_problems());
        let files = self.files.problems().into_iter();
        problems.extend(
            // The part does not know its own name in this section.
            files.map(|(field, message)| ConfigProblem::new(format!("files.{field}"), message)),
        );
        let mut check = |is_valid: bool, field: &str, message: &str| {
            if !is_valid {
                problems.push(ConfigProblem::new(field, message));
            }
        };
        let iterations = (1..=1_000_000).contains(&self.max_iterations);
        check(iterations, "max_iterations", "must be 1 to 1000000");
        let compaction = self
            .compaction_threshold_tokens
            .is_none_or(|tokens| u64::from(tokens) >= dray_agent::compaction::MIN_THRESHOLD_TOKENS);
        check(
            compaction,
            "compaction_threshold_tokens",
            "must be at least 1000",
        );
        check(
            self.tool_timeout > Period::default() && self.tool_timeout <= ONE_HOUR,
            "tool_timeout",
            "must be above 0 and at most 1h",
        );
        let chats = (1..=100_000).contains(&self.max_chats);
        check(chats, "max_chats", "must be 1 to 100000");
        let is_name = |name: &str| name.parse::<http::HeaderName>().is_ok();
        check(
            is_name(&self.language_header),
            "language_header",
            "must be a header's name",
        );
        let names = self.forward_headers.iter().all(|name| is_name(name));
        check(names, "forward_headers", "must be names of headers");
        let programs = (1..=10_000).contains(&self.mcp_programs.max_running);
        check(programs, "mcp_programs.max_running", "must be 1 to 10000");
        for (field, period) in self.periods_above_zero() {
            check(period > Period::default(), field, "must be above 0");
        }
        problems.extend(self.body_problems());
        problems.extend(self.mcp_problems());
        problems.extend(self.mapping_problem());
        problems.extend(self.plain_problems());
        problems.extend(self.budget_problems());
        let is_client = |name: &str| self.clients.contains_key(name);
        problems.extend(self.permissions.problems(is_client));
        problems.extend(interval_problem(self.reload_interval));
        problems
    }
}

impl Config {
    /// The timeouts and intervals for which zero has no meaning, by their keys.
    fn periods_above_zero(&self) -> [(&'static str, Period); 9] {
        [
            ("mcp_programs.idle_timeout", self.mcp_programs.idle_timeout),
            ("connect_timeout", self.connect_timeout),
            ("model_timeout", self.model_timeout),
            ("model_idle_timeout", self.model_idle_timeout),
            ("interactive_login_timeout", self.interactive_login_timeout),
            ("body_timeout", self.body_timeout),
            ("heartbeat_interval", self.heartbeat_interval),
            ("client_tool_timeout", self.client_tool_timeout),
            ("approval_timeout", self.approval_timeout),
        ]
    }

    fn access_problems(&self) -> Vec<ConfigProblem> {
        let mut problems = Vec::new();
        // An unspecified address such as `0.0.0.0` is not loopback, so it counts as reachable by others.
        let is_loopback_only = self.listen.ip().is_loopback();
        if !is_loopback_only && self.clients.is_empty() && self.dial_url.is_none() {
            problems.push(ConfigProblem::new(
                "clients",
                "must hold a key: other machines reach `listen`, and no `dial_url` is set whose keys could be checked",
            ));
        }
        for (name, key) in &self.clients {
            if key.is_empty() {
                problems.push(ConfigProblem::new(
                    format!("clients.{name}"),
                    "must not be empty",
                ));
            }
        }
        // DIAL Core acts for many users, even when it runs on this machine.
        let shared = !is_loopback_only || self.dial_url.is_some();
        let sandbox = self.sandbox.as_deref();
        problems.extend(sandbox.and_then(|address| sandbox_problem(address, shared)));
        let is_https_or_loopback =
            |url: &String| url.starts_with("https://") || is_loopback_url(url);
        if !self.public_url.as_ref().is_none_or(is_https_or_loopback) {
            problems.push(ConfigProblem::new(
                "public_url",
                "must be `https`: authorization codes come back there",
            ));
        }
        if self.deployments.is_empty() {
            problems.push(ConfigProblem::new("deployments", "must name one"));
        }
        problems
    }

    fn endpoint_problems(&self) -> Vec<ConfigProblem> {
        let endpoints = [
            ("dial_url", &self.dial_url),
            ("model_url", &self.model_url),
            ("public_url", &self.public_url),
            ("py_interpreter.url", &self.py_interpreter.url),
        ];
        // Only the text is checked: a name that does not resolve yet must not stop the start.
        let invalid = endpoints.into_iter().filter(|(_, url)| {
            let url = url.as_deref();
            url.is_some_and(|url| parse_base_url(url).is_none())
        });
        invalid
            .map(|(field, _)| ConfigProblem::new(field, BASE_URL_RULE))
            .collect()
    }

    /// Problems of settings that only apply to clients of `OpenAI`'s API.
    fn plain_problems(&self) -> Vec<ConfigProblem> {
        let mut problems = Vec::new();
        if !self.cors_origins.iter().all(|origin| is_origin(origin)) {
            problems.push(ConfigProblem::new(
                "cors_origins",
                "must be origins such as `https://chat.example.org`, in lower case, without path",
            ));
        }
        if self.client_tool_timeout > MAX_CLIENT_TOOL_TIMEOUT {
            problems.push(ConfigProblem::new(
                "client_tool_timeout",
                "must be at most 15d, which is how long the store keeps what it needs",
            ));
        }
        problems.extend(self.approval_problems());
        if !(Period::secs(2)..=Period::secs(300)).contains(&self.response_lease) {
            problems.push(ConfigProblem::new("response_lease", "must be 2s to 5m"));
        }
        if !(ONE_HOUR..=MAX_CLIENT_STATE_LIFETIME).contains(&self.client_state_lifetime) {
            problems.push(ConfigProblem::new(
                "client_state_lifetime",
                "must be 1h to 14d, which is how long the store keeps what it needs",
            ));
        }
        let sizes = 1..=dray_store::MAX_OBJECT;
        if !sizes.contains(&self.max_upload.as_u64()) {
            problems.push(ConfigProblem::new("max_upload", "must be 1B to 5GiB"));
        }
        problems
    }

    fn mapping_problem(&self) -> Option<ConfigProblem> {
        let mut seen = BTreeSet::new();
        let models = self.prompt_mapping.values().flatten();
        let duplicates: BTreeSet<_> = models.filter(|model| !seen.insert(*model)).collect();
        let names: Vec<_> = duplicates.into_iter().map(String::as_str).collect();
        let message = format!(
            "Duplicate model/deployment names found: {}",
            names.join(", ")
        );
        (!names.is_empty()).then(|| ConfigProblem::new("prompt_mapping", message))
    }
}
