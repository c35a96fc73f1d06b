//! Permissions of callers: which agents each client may use, and which tools and addresses a manifest may name that did
//! not come from the operator. This module contains only the values; `crate::permissions` enforces them.

use std::collections::BTreeMap;

use dray_service::config::ConfigProblem;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// Stands for every name in a list of names.
pub const ANY_NAME: &str = "*";

/// Agents, tools and models that callers may use.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct Permissions {
    /// Permissions of single clients, by their names in `clients`. A client without an entry may use every agent and
    /// send no manifest.
    pub clients: BTreeMap<String, CallerPermissions>,
    /// Permissions of callers with a key of DIAL Core.
    pub dial: CallerPermissions,
    /// Permissions of callers on this machine if no key is required.
    pub local: CallerPermissions,
    /// Names that manifests of applications in DIAL Core may use. Their authors are users of DIAL, not the operator.
    pub applications: ManifestPermissions,
}

/// Agents and manifests that a caller may use, and headers in which a client names its users.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct CallerPermissions {
    /// Names of local manifests and ids of DIAL applications that may be used. Unset: all.
    pub agents: Option<Vec<String>>,
    /// Names that manifests in the header `X-DIAL-APPLICATION-PROPERTIES` may use.
    pub manifest_header: ManifestPermissions,
    /// For one of `clients` that speaks for several users: the `X-*` header in which it names the user of each request,
    /// such as `x-openwebui-user-id`. Sign-ins at MCP servers then belong to this user, and a request without the
    /// header has none. The client's key vouches for the header, so the client must set it itself and never pass on
    /// what a user sent. Default none: all users of the key share its sign-ins.
    pub user_header: Option<String>,
    /// For such a client: the `X-*` header in which it names the groups of the user of each request, separated by
    /// commas, such as `x-forwarded-groups`. Entries of `tool_access` may name them. The client must set it itself, as
    /// `user_header`. Default none: users of the key are in no group.
    pub groups_header: Option<String>,
}

/// Names that a manifest may use that did not come from the operator. `*` in a list of names means every name.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(default)]
pub struct ManifestPermissions {
    /// Whether manifests from this source are accepted. If so, they may name only what the other settings list.
    pub enabled: bool,
    /// Models that they may name in addition to `default_orchestrator_deployment`, or `*`.
    pub models: Vec<String>,
    /// Kinds of tools that they may have. Empty: none.
    pub tools: Vec<ToolKind>,
    /// Templates of tools and tool sets that they may name, or `*`. Empty: none.
    pub templates: Vec<String>,
    /// Programs in `mcp_servers` that they may name, or `*`. Empty: none.
    pub mcp_servers: Vec<String>,
    /// Hosts of REST and MCP servers that they may name, as `example.org`, `*.example.org`, or `*`. Connections to
    /// these hosts use only public addresses. Empty: none.
    pub hosts: Vec<String>,
    /// Exact origins of such servers that may also be at private and loopback addresses, such as
    /// `http://tools.internal:8080`. Empty: none.
    pub origins: Vec<String>,
}

/// A kind of tools in a manifest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum ToolKind {
    /// HTTP endpoints.
    RestApi,
    /// MCP servers by address, and programs in `mcp_servers`.
    Mcp,
    /// Models and applications of DIAL, called as tools.
    DialDeployment,
    /// MCP servers that DIAL knows.
    DialMcp,
    /// Applications of DIAL.
    DialApp,
    /// Sessions of the interpreter for Python.
    PythonInterpreter,
    /// Files of the caller in DIAL.
    DialFiles,
    /// Pages of the web.
    WebFetch,
    /// Other agents of the service, as far as the caller may use them itself.
    Agents,
}

impl ToolKind {
    /// All kinds of tools.
    pub const ALL_NAMES: &[Self] = &[
        Self::RestApi,
        Self::Mcp,
        Self::DialDeployment,
        Self::DialMcp,
        Self::DialApp,
        Self::PythonInterpreter,
        Self::DialFiles,
        Self::WebFetch,
        Self::Agents,
    ];

    /// The kind's name in the configuration.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::RestApi => "rest-api",
            Self::Mcp => "mcp",
            Self::DialDeployment => "dial-deployment",
            Self::DialMcp => "dial-mcp",
            Self::DialApp => "dial-app",
            Self::PythonInterpreter => "python-interpreter",
            Self::DialFiles => "dial-files",
            Self::WebFetch => "web-fetch",
            Self::Agents => "agents",
        }
    }
}

impl Default for Permissions {
    fn default() -> Self {
        let any = || vec![ANY_NAME.to_owned()];
        Self {
            clients: BTreeMap::new(),
            dial: CallerPermissions::default(),
            local: CallerPermissions::default(),
            applications: ManifestPermissions {
                enabled: true,
                models: any(),
                tools: ToolKind::ALL_NAMES.to_vec(),
                templates: any(),
                // The operator has to name programs of this machine and private origins one by one.
                mcp_servers: Vec::new(),
                hosts: any(),
                origins: Vec::new(),
            },
        }
    }
}

impl CallerPermissions {
    /// Whether the agent of this name or id may be used.
    pub fn allows_agent(&self, name: &str) -> bool {
        self.agents
            .as_ref()
            .is_none_or(|agents| agents.iter().any(|agent| agent == name))
    }

    /// The headers that describe the user of a request, by their fields.
    const fn headers(&self) -> [(&'static str, &Option<String>); 2] {
        [
            ("user_header", &self.user_header),
            ("groups_header", &self.groups_header),
        ]
    }
}

impl Permissions {
    /// Problems of the permissions; `clients` returns the configured names of clients.
    pub(super) fn problems<'a>(&self, clients: impl Fn(&str) -> bool + 'a) -> Vec<ConfigProblem> {
        let mut problems = Vec::new();
        for (name, permissions) in &self.clients {
            let field = format!("permissions.clients.{name}");
            if !clients(name) {
                problems.push(ConfigProblem::new(&field, "must name one of `clients`"));
            }
            check_manifest_names(
                &format!("{field}.manifest_header"),
                &permissions.manifest_header,
                &mut problems,
            );
            for (member, header) in permissions.headers() {
                if !header.as_deref().is_none_or(is_user_header) {
                    problems.push(ConfigProblem::new(
                        format!("{field}.{member}"),
                        "must be the name of an `X-*` header that DIAL does not use",
                    ));
                }
            }
        }
        for (kind, caller) in [("dial", &self.dial), ("local", &self.local)] {
            let headers = caller.headers().into_iter();
            for (member, _) in headers.filter(|(_, header)| header.is_some()) {
                problems.push(ConfigProblem::new(
                    format!("permissions.{kind}.{member}"),
                    "must not be set: only `clients` speak for several users",
                ));
            }
        }
        for (field, manifests) in [
            (
                "permissions.dial.manifest_header",
                &self.dial.manifest_header,
            ),
            (
                "permissions.local.manifest_header",
                &self.local.manifest_header,
            ),
            ("permissions.applications", &self.applications),
        ] {
            check_manifest_names(field, manifests, &mut problems);
        }
        problems
    }
}

/// Whether a header can name users: only `X-*` headers of a request are read, and DIAL reserves `X-DIAL-*`.
fn is_user_header(name: &str) -> bool {
    let lower = name.to_ascii_lowercase();
    lower.starts_with("x-")
        && !lower.starts_with("x-dial-")
        && lower.parse::<http::HeaderName>().is_ok()
}

fn check_manifest_names(
    field: &str,
    manifests: &ManifestPermissions,
    problems: &mut Vec<ConfigProblem>,
) {
    if let Err(message) = crate::permissions::DestinationPolicy::new(manifests) {
        problems.push(ConfigProblem::new(field, message));
    }
}
