//! `dray mcp` on the command line.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::Args;
use dray_mcp::ToolName;
use dray_types::{Period, SessionId};

use super::{McpSetupCommand, socket_address};

/// `dray mcp`: serves, or prepares a client.
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct McpCommand {
    #[command(subcommand)]
    pub(crate) setup: Option<McpSetupCommand>,
    #[command(flatten)]
    pub(crate) serve: McpArgs,
}

/// Options of the server.
#[derive(Debug, Args)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is an option of the command line"
)]
pub(crate) struct McpArgs {
    /// Offer only these tools, separated by commas, for example `read,list`.
    #[arg(long, value_name = "TOOLS", value_delimiter = ',')]
    pub(crate) tools: Option<Vec<ToolName>>,
    /// Allow tools to write: into the sandbox (`put`) and new files below --root (`get`). They never replace a file.
    #[arg(long)]
    pub(crate) allow_write: bool,
    /// Allow the tool `send_file` to send files to the chat of the session.
    #[arg(long)]
    pub(crate) allow_send: bool,
    /// Let a person at the client confirm each call of `send_file`. Clients that cannot ask a person are refused.
    #[arg(long, requires = "allow_send")]
    pub(crate) confirm_send: bool,
    /// Ask the person at the client about hosts for which a policy rule wants a person's answer. The answer holds for
    /// at most this time, for example `15m`. Without this option, such hosts wait for another approver.
    #[arg(long, value_name = "TIME")]
    pub(crate) approve_hosts: Option<Period>,
    /// Chat that a person at the client may choose where the session has none. Can be given several times.
    #[arg(long = "offer-chat", value_name = "CHAT", requires = "allow_send")]
    pub(crate) offered_chats: Vec<String>,
    /// The only directory of this machine that tools may use. Default: the current directory; with --http none.
    #[arg(long, value_name = "DIR", conflicts_with = "no_root")]
    pub(crate) root: Option<PathBuf>,
    /// Give tools access to no directory of this machine.
    #[arg(long)]
    pub(crate) no_root: bool,
    /// Session whose sandbox and chat the tools use. Clients cannot name another one.
    #[arg(long, value_name = "ID", default_value = "mcp")]
    pub(crate) session: SessionId,
    /// Bind this sandbox to the session first, for example `docker:web` or `local:/srv/box`.
    #[arg(long, value_name = "KIND:NAME")]
    pub(crate) sandbox: Option<String>,
    /// Bind this chat to the session first, for example `telegram:42`, or `cli:DIR` for a directory of this machine.
    #[arg(long, value_name = "CHAT")]
    pub(crate) to: Option<String>,
    /// Serve streamable HTTP on this address, at `/mcp`, instead of standard input and output.
    #[arg(long, value_name = "ADDR", value_parser = socket_address)]
    pub(crate) http: Option<SocketAddr>,
    /// File with a bearer token for HTTP, with all scopes and for --session. Addresses that other machines reach need
    /// this or --auth-file.
    #[arg(long, value_name = "FILE", requires = "http")]
    pub(crate) token_file: Option<PathBuf>,
    /// File with the tokens whose HTTP requests are accepted: static ones, or those of an OAuth authorization server,
    /// each with scopes, tenant and session. docs/mcp-server.md shows it.
    #[arg(long, value_name = "FILE", requires = "http")]
    pub(crate) auth_file: Option<PathBuf>,
    /// Further name of this server that HTTP requests may have in `Host`. Can be given several times.
    #[arg(long = "allow-host", value_name = "HOST", requires = "http")]
    pub(crate) allowed_hosts: Vec<String>,
    /// Origin of web pages that may call this server, for example `https://app.example.org`. Can be given several
    /// times.
    #[arg(long = "allow-origin", value_name = "ORIGIN", requires = "http")]
    pub(crate) allowed_origins: Vec<String>,
    /// Serve tickets on this address, and offer the tools that make them: URLs for files, whose bytes do not reach the
    /// model.
    #[arg(long, value_name = "ADDR", value_parser = socket_address)]
    pub(crate) tickets: Option<SocketAddr>,
    /// Base of ticket URLs where a proxy is in front of the endpoint, for example `https://files.example.org`.
    #[arg(long, value_name = "URL", requires = "tickets")]
    pub(crate) tickets_url: Option<String>,
}

/// The MCP server of `dray up`. Without --mcp-root tools use no directory of this machine.
#[derive(Debug, Default, Args)]
pub(crate) struct UpMcpArgs {
    /// Serve the Model Context Protocol over streamable HTTP on this address, at `/mcp`, as `dray mcp --http` does.
    #[arg(long = "mcp", value_name = "ADDR", value_parser = socket_address)]
    pub(crate) listen: Option<SocketAddr>,
    /// The only directory of this machine that MCP tools may use. Default: none.
    #[arg(long = "mcp-root", value_name = "DIR", requires = "listen")]
    pub(crate) root: Option<PathBuf>,
    /// File with a bearer token for MCP, with all scopes and for --mcp-session. Addresses that other machines reach
    /// need this or --mcp-auth-file.
    #[arg(long = "mcp-token-file", value_name = "FILE", requires = "listen")]
    pub(crate) token_file: Option<PathBuf>,
    /// File with the tokens whose MCP requests are accepted: static ones, or those of an OAuth authorization server.
    #[arg(long = "mcp-auth-file", value_name = "FILE", requires = "listen")]
    pub(crate) auth_file: Option<PathBuf>,
    /// Further name of this server that MCP requests may have in `Host`. Can be given several times.
    #[arg(long = "mcp-allow-host", value_name = "HOST", requires = "listen")]
    pub(crate) allowed_hosts: Vec<String>,
    /// Origin of web pages that may call the MCP server. Can be given several times.
    #[arg(long = "mcp-allow-origin", value_name = "ORIGIN", requires = "listen")]
    pub(crate) allowed_origins: Vec<String>,
    /// Offer only these MCP tools, separated by commas.
    #[arg(
        long = "mcp-tools",
        value_name = "TOOLS",
        value_delimiter = ',',
        requires = "listen"
    )]
    pub(crate) tools: Option<Vec<ToolName>>,
    /// Allow MCP tools to write: into the sandbox, and new files below --mcp-root.
    #[arg(long = "mcp-allow-write", requires = "listen")]
    pub(crate) allow_write: bool,
    /// Allow the MCP tool `send_file` to send files to the chat of the session.
    #[arg(long = "mcp-allow-send", requires = "listen")]
    pub(crate) allow_send: bool,
    /// Let a person at the client confirm each call of `send_file`. Clients that cannot ask a person are refused.
    #[arg(long = "mcp-confirm-send", requires = "allow_send")]
    pub(crate) confirm_send: bool,
    /// Ask the person at the client about hosts for which a policy rule wants a person's answer. The answer holds for
    /// at most this time.
    #[arg(long = "mcp-approve-hosts", value_name = "TIME", requires = "listen")]
    pub(crate) approve_hosts: Option<Period>,
    /// Chat that a person at the client may choose where the session has none. Can be given several times.
    #[arg(long = "mcp-offer-chat", value_name = "CHAT", requires = "allow_send")]
    pub(crate) offered_chats: Vec<String>,
    /// Bind this sandbox to the session of MCP tools at the start, for example `docker:web` or `local:/srv/box`.
    #[arg(long = "mcp-sandbox", value_name = "KIND:NAME", requires = "listen")]
    pub(crate) sandbox: Option<String>,
    /// Bind this chat to the session of MCP tools at the start, for example `telegram:42`.
    #[arg(long = "mcp-to", value_name = "CHAT", requires = "listen")]
    pub(crate) to: Option<String>,
    /// Session whose sandbox and chat MCP tools use. With --nats, `dray session bind` binds them too.
    #[arg(
        long = "mcp-session",
        value_name = "ID",
        default_value = "mcp",
        requires = "listen"
    )]
    pub(crate) session: Option<SessionId>,
}

impl UpMcpArgs {
    /// Returns these options as those of `dray mcp --http`; `None` without --mcp.
    pub(crate) fn to_server_args(&self) -> Option<McpArgs> {
        let listen = self.listen?;
        Some(McpArgs {
            tools: self.tools.clone(),
            allow_write: self.allow_write,
            allow_send: self.allow_send,
            confirm_send: self.confirm_send,
            approve_hosts: self.approve_hosts,
            offered_chats: self.offered_chats.clone(),
            root: self.root.clone(),
            no_root: self.root.is_none(),
            session: self.session.clone()?,
            sandbox: self.sandbox.clone(),
            to: self.to.clone(),
            http: Some(listen),
            token_file: self.token_file.clone(),
            auth_file: self.auth_file.clone(),
            allowed_hosts: self.allowed_hosts.clone(),
            allowed_origins: self.allowed_origins.clone(),
            // `dray up` has these options itself.
            tickets: None,
            tickets_url: None,
        })
    }
}
