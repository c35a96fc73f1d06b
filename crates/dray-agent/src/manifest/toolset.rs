//! Tool sets (quickapps 6.4).

use dray_types::Secret;
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::{Map, Value};

use super::call::{AttachmentRules, Fallback};
use super::default_true;
use super::tool::{DeploymentTool, InternalTool, ResponseAsAttachment, RestTool};

/// Tools that belong together.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(tag = "type", rename_all = "kebab-case")]
pub enum ToolSet {
    /// HTTP endpoints.
    RestApi(RestApi),
    /// A deployment of DIAL for each tool.
    DialDeployment(DialDeployment),
    /// Tools that the service runs itself.
    Internal(Internal),
    /// An MCP server by address.
    Mcp(Mcp),
    /// An MCP server that DIAL knows.
    DialMcp(DialMcp),
    /// An application of DIAL, over any protocol that it supports.
    DialApp(DialApp),
    /// Other agents of the service.
    Agents(AgentSet),
    /// A tool set that the service knows by name.
    Predefined(Predefined),
}

/// Settings that all kinds of tool sets have.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
pub struct Common {
    /// The tool set's purpose, for the model.
    pub description: Option<String>,
    /// Whether it is used; a disabled entry counts as absent.
    #[serde(default = "default_true")]
    pub enabled: bool,
    /// Longest duration of one call in seconds, before that of `tool_defaults`.
    #[schemars(extend("exclusiveMinimum" = 0, "maximum" = 3600))]
    pub timeout_seconds: Option<f64>,
}

/// HTTP endpoints.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
pub struct RestApi {
    /// Prefix of the tools' names.
    pub name: String,
    /// Settings that all kinds of tool sets have.
    #[serde(flatten)]
    pub common: Common,
    /// Credentials.
    pub authorization: Option<RestAuthorization>,
    /// Default for the tools.
    pub response_as_attachment: Option<ResponseAsAttachment>,
    /// The endpoints.
    pub tools: Vec<RestTool>,
}

/// Credentials of HTTP endpoints.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum RestAuthorization {
    /// RFC 7617.
    Basic(Basic),
    /// RFC 6750.
    Bearer(Bearer),
    /// OAuth 2.0 client credentials (RFC 6749 section 4.4).
    ClientIdSecret(ClientIdSecret),
    /// A key in a header, a query parameter or a body field.
    ApiKey {
        /// The secret that the server checks.
        key: Secret,
        /// Name of the header, parameter or field.
        name: String,
        /// The part of the request with the key.
        location: KeyLocation,
    },
    /// The token of the caller.
    ForwardAuthToken {},
}

/// User and password.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
pub struct Basic {
    /// User.
    pub username: String,
    /// Sent with the user name in every request (RFC 7617).
    pub password: Secret,
}

/// A token.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
pub struct Bearer {
    /// Sent as `Authorization: Bearer` in every request (RFC 6750).
    pub token: Secret,
}

/// A client that gets its tokens from a server.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
pub struct ClientIdSecret {
    /// The client identifier (RFC 6749, 2.2).
    pub client_id: String,
    /// The client's password at the authorization server (RFC 6749, 2.3.1).
    pub client_secret: Secret,
    /// The server.
    pub token_url: String,
    /// Scopes of the token.
    pub scope: Option<String>,
    /// Audience of the token.
    pub aud: Option<String>,
}

/// The part of a request that carries a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum KeyLocation {
    /// A header field.
    Header,
    /// A parameter of the URL.
    Query,
    /// A field of the body.
    Body,
}

/// A tool set whose tools are deployments of DIAL.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
pub struct DialDeployment {
    /// Prefix of the tools' names.
    pub name: String,
    /// Settings that all kinds of tool sets have.
    #[serde(flatten)]
    pub common: Common,
    /// The deployments.
    pub tools: Vec<DeploymentTool>,
}

/// Tools that the service runs itself.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
pub struct Internal {
    /// Name of the set.
    pub name: String,
    /// Settings that all kinds of tool sets have.
    #[serde(flatten)]
    pub common: Common,
    /// Which of the service's own tools are offered.
    pub tools: Vec<InternalTool>,
}

/// An MCP server by address.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
pub struct Mcp {
    /// Prefix of the tools' names.
    pub name: String,
    /// Settings that all kinds of tool sets have.
    #[serde(flatten)]
    pub common: Common,
    /// How the server is reached and who signs in.
    pub mcp_server_info: McpServer,
    /// Whether its resources are offered, as tools that list and read them.
    #[serde(default)]
    pub resources: bool,
    /// Whether its prompts are offered, as tools that list them and fill them in.
    #[serde(default)]
    pub prompts: bool,
    /// The tools that are offered; all if absent. Those for resources and prompts always are.
    pub allowed_tools: Option<Vec<String>>,
    /// Names of those offered tools that only hooks may call: they are hidden from models.
    pub hidden_from_model: Option<Vec<String>>,
    /// Files of results.
    pub attachment: Option<AttachmentRules>,
    /// The behaviour when a call fails.
    pub fallback_configuration: Option<Fallback>,
}

/// An MCP server.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
// Address and protocol depend on each other, for which JSON Schema checks here have no keyword.
#[schemars(extend("x-rule" = "mcp-server"))]
pub struct McpServer {
    /// The server's address; for a program of the operator, `stdio:` and its configured name.
    pub url: String,
    /// Transport of the server.
    pub protocol: McpProtocol,
    /// Credentials.
    pub authorization: Option<McpAuthorization>,
}

/// The transport of an MCP server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum McpProtocol {
    /// Server-sent events and posts.
    Sse,
    /// One endpoint for all requests (streamable HTTP).
    StreamableHttp,
    /// Input and output of a program that the operator configured.
    Stdio,
}

/// Credentials of MCP servers.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum McpAuthorization {
    /// RFC 7617.
    Basic(Basic),
    /// RFC 6750.
    Bearer(Bearer),
    /// OAuth 2.0 client credentials (RFC 6749 section 4.4).
    ClientIdSecret(ClientIdSecret),
    /// A key in a header.
    ApiKey {
        /// The secret that the server checks.
        key: Secret,
        /// Name of the header.
        name: String,
    },
    /// OAuth 2.1 as MCP uses it: the server names where users or programs sign in.
    Oauth(OauthClient),
}

/// A client of an authorization server that an MCP server names (RFC 9728).
#[derive(Clone, Debug, Default, PartialEq, Deserialize, JsonSchema)]
pub struct OauthClient {
    /// Id by which the authorization server knows this client. Without one it is registered by the server's rules.
    pub client_id: Option<String>,
    /// Secret of a confidential client.
    pub client_secret: Option<Secret>,
    /// Private key with which the client signs in instead of a secret (RFC 7523, `private_key_jwt`), only with the
    /// grant `client_credentials`: PKCS #8 in PEM, for RSA (2048 bits or more), P-256, P-384 or Ed25519.
    pub private_key: Option<Secret>,
    /// Id by which the authorization server knows the key, if it needs one.
    pub key_id: Option<String>,
    /// The party that signs in: a user, this client itself, or the workload as which this client runs.
    #[serde(default)]
    pub grant: OauthGrant,
    /// Name of the token that the client presents with the grant `jwt_bearer`, in `orchestrator.mcp_workload_tokens`.
    pub workload_token: Option<String>,
    /// Scopes to request, separated by spaces; those that the server asks for if absent.
    pub scope: Option<String>,
    /// URLs of authorization servers that may be connected to, issuers and endpoints. Only their origins count. That of
    /// the MCP server may always.
    #[serde(default)]
    pub authorization_servers: Vec<String>,
}

/// How a client of an authorization server gets its token.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub enum OauthGrant {
    /// The user signs in at a page (RFC 6749 section 4.1, with PKCE).
    #[default]
    AuthorizationCode,
    /// The client itself, by its secret (RFC 6749 section 4.4).
    ClientCredentials,
    /// The workload, by a token that its platform issued (RFC 7523 section 2.1).
    JwtBearer,
}

/// An MCP server that DIAL knows.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
pub struct DialMcp {
    /// The tool set's id; `deployment_id` in later manifests.
    // `prepare` renames the key before the check, which knows the present name only.
    #[schemars(extend("x-alias" = "deployment_id"))]
    pub dial_id: String,
    /// Prefix of the tools' names.
    #[serde(default = "untitled_name")]
    pub name: String,
    /// Settings that all kinds of tool sets have.
    #[serde(flatten)]
    pub common: Common,
    /// Transport that the author of the manifest expects; DIAL's own information takes precedence.
    #[serde(default)]
    pub transport: DialTransport,
    /// The tools that are offered; all if absent.
    pub allowed_tools: Option<Vec<String>>,
    /// Names of those offered tools that only hooks may call: they are hidden from models.
    pub hidden_from_model: Option<Vec<String>>,
    /// Files of results.
    pub attachment: Option<AttachmentRules>,
    /// The behaviour when a call fails.
    pub fallback_configuration: Option<Fallback>,
}

/// Transport between DIAL and an MCP server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "UPPERCASE")]
pub enum DialTransport {
    /// One endpoint for all requests (streamable HTTP).
    #[default]
    Http,
    /// Server-sent events and posts.
    Sse,
}

/// An application of DIAL.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
pub struct DialApp {
    /// Prefix of the tools' names; its display name if absent.
    pub name: Option<String>,
    /// Settings that all kinds of tool sets have.
    #[serde(flatten)]
    pub common: Common,
    /// Name of the application in DIAL.
    pub deployment_id: String,
    /// Protocol for calls of the application.
    #[serde(default)]
    pub transport: AppTransport,
    /// The tools that are offered; all if absent.
    pub allowed_tools: Option<Vec<String>>,
    /// Names of those offered tools that only hooks may call: they are hidden from models.
    pub hidden_from_model: Option<Vec<String>>,
    /// Files of results.
    pub attachment: Option<AttachmentRules>,
    /// The behaviour when a call fails.
    pub fallback_configuration: Option<Fallback>,
}

/// Other agents of the service, as tools.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
pub struct AgentSet {
    /// Prefix of the tools' names.
    pub name: String,
    /// Settings that all kinds of tool sets have.
    #[serde(flatten)]
    pub common: Common,
    /// The agents that the model may call, a tool for each.
    pub agents: Vec<AgentRef>,
}

/// An agent that another one calls, or to which it hands the conversation over.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
pub struct AgentRef {
    /// Name of a local manifest.
    pub agent: String,
    /// Description, by which the model decides when to use it.
    pub description: Option<String>,
    /// Whether it is used; a disabled entry counts as absent.
    #[serde(default = "default_true")]
    pub enabled: bool,
}

/// Protocol for calls of an application.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum AppTransport {
    /// All transports that the application offers.
    #[default]
    Auto,
    /// The application's MCP endpoint alone.
    Mcp,
    /// Chat completions.
    ChatCompletion,
}

/// A definition that the service knows by name.
#[derive(Clone, Debug, PartialEq, Deserialize, JsonSchema)]
pub struct Predefined {
    /// The name under which the service knows it.
    pub template_name: String,
    /// Changes to the definition: a merge patch (RFC 7396).
    #[serde(rename = "override")]
    pub patch: Option<Map<String, Value>>,
    /// Whether it is used; a disabled entry counts as absent.
    #[serde(default = "default_true")]
    pub enabled: bool,
}

fn untitled_name() -> String {
    "untitled-mcp-toolset".to_owned()
}
