//! `dray mcp install`, `dray mcp bundle` and `dray mcp server-json`.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::builder::{PossibleValuesParser, TypedValueParser};
use clap::{Args, Subcommand};
use dray_mcp::install::{Client, DEFAULT_NAME, InstallScope, OperatingSystem};

/// Setup of clients of the Model Context Protocol.
#[derive(Debug, Subcommand)]
pub(crate) enum McpSetupCommand {
    /// Write this server into the configuration of a client.
    ///
    /// Keeps everything else in the file. Options of the server follow after `--`, for example `dray mcp install codex
    /// -- --tools read,fetch`.
    Install(Box<McpInstallArgs>),
    /// Build an .mcpb bundle, which Claude Desktop and other clients install from one file.
    Bundle(McpBundleArgs),
    /// Print the server.json with which the MCP registry lists this server.
    ServerJson(McpServerJsonArgs),
}

/// `dray mcp install`
#[derive(Debug, Args)]
pub(crate) struct McpInstallArgs {
    /// Program whose configuration is written.
    #[arg(value_name = "CLIENT", value_parser = client_parser())]
    pub(crate) client: Client,
    /// Show what would be written and where. Changes nothing.
    #[arg(long)]
    pub(crate) print: bool,
    /// Remove the entry, if this command could have written it. Everything else in the file stays. An entry for a
    /// program that is not called `dray` needs its `--command`.
    #[arg(long, conflicts_with_all = ["replace", "env", "token_env", "server_args"])]
    pub(crate) remove: bool,
    /// Overwrite an entry of the same name that has other values.
    #[arg(long)]
    pub(crate) replace: bool,
    /// `user`: for all projects of this user. `project`: for the current directory, in a file that is often shared.
    /// Default: user; for librechat: project.
    #[arg(long, value_name = "SCOPE", value_parser = scope_parser())]
    pub(crate) scope: Option<InstallScope>,
    /// Name of the entry. Clients show it before the names of tools.
    #[arg(long, value_name = "NAME", default_value = DEFAULT_NAME)]
    pub(crate) name: String,
    /// File to change instead of the client's default, for other profiles and directories.
    #[arg(long, value_name = "FILE")]
    pub(crate) file: Option<PathBuf>,
    /// Program that the client starts. Default: this program. With `--remove`, the program of the entry.
    #[arg(long, value_name = "PATH", conflicts_with = "url")]
    pub(crate) command: Option<PathBuf>,
    /// Variable that the client sets for the program. It is readable in the file. Can be given several times.
    #[arg(long, value_name = "NAME=VALUE", conflicts_with = "url", value_parser = parse_pair)]
    pub(crate) env: Vec<(String, String)>,
    /// Address of a running server (`dray mcp --http`), which the client connects to instead of starting a program.
    /// With `--remove`, the address of the entry.
    #[arg(long, value_name = "URL", conflicts_with = "server_args")]
    pub(crate) url: Option<String>,
    /// Variable of the client's environment that holds the bearer token. Only its name is written.
    #[arg(long, value_name = "NAME", requires = "url")]
    pub(crate) token_env: Option<String>,
    /// Options of the server.
    #[arg(last = true, value_name = "OPTION")]
    pub(crate) server_args: Vec<String>,
    /// Where configurations are, by the XDG base directories. Empty and relative count as unset; a `PathBuf` would
    /// refuse an empty one.
    #[arg(long, env = "XDG_CONFIG_HOME", hide = true, hide_env_values = true)]
    pub(crate) config_home: Option<OsString>,
    /// Directory of configurations, on Windows. Empty and relative count as unset.
    #[arg(long, env = "APPDATA", hide = true, hide_env_values = true)]
    pub(crate) app_data: Option<OsString>,
}

/// `dray mcp bundle`
#[derive(Debug, Args)]
pub(crate) struct McpBundleArgs {
    /// The bundle to write; its name ends with `.mcpb`.
    #[arg(value_name = "FILE")]
    pub(crate) output: PathBuf,
    /// Program to put into the bundle. Default: this program.
    #[arg(long, value_name = "PATH")]
    pub(crate) binary: Option<PathBuf>,
    /// Operating system of the program. Default: that of this program.
    #[arg(long, value_name = "SYSTEM", value_parser = system_parser(), requires = "binary")]
    pub(crate) system: Option<OperatingSystem>,
    /// Options of the server.
    #[arg(last = true, value_name = "OPTION")]
    pub(crate) server_args: Vec<String>,
}

/// `dray mcp server-json`
#[derive(Debug, Args)]
pub(crate) struct McpServerJsonArgs {
    /// Name in reverse-DNS form, for example `io.github.example/drayage`. The registry checks who owns it.
    #[arg(long, value_name = "NAME")]
    pub(crate) name: String,
    /// Address of the source repository at GitHub or GitLab.
    #[arg(long, value_name = "URL")]
    pub(crate) repository: Option<String>,
    /// A bundle and the address of its release at GitHub or GitLab. Can be given several times.
    #[arg(long = "bundle", value_name = "FILE=URL", required = true, value_parser = parse_pair)]
    pub(crate) bundles: Vec<(String, String)>,
}

fn client_parser() -> impl TypedValueParser<Value = Client> {
    PossibleValuesParser::new(Client::ALL.map(Client::as_str))
        .try_map(|name| name.parse::<Client>())
}

fn scope_parser() -> impl TypedValueParser<Value = InstallScope> {
    PossibleValuesParser::new(["user", "project"]).map(|name| match name.as_str() {
        "user" => InstallScope::User,
        _ => InstallScope::Project,
    })
}

fn system_parser() -> impl TypedValueParser<Value = OperatingSystem> {
    PossibleValuesParser::new(["linux", "macos", "windows"]).map(|name| match name.as_str() {
        "linux" => OperatingSystem::Linux,
        "macos" => OperatingSystem::MacOs,
        _ => OperatingSystem::Windows,
    })
}

fn parse_pair(text: &str) -> Result<(String, String), String> {
    let (left, right) = text
        .split_once('=')
        .ok_or_else(|| "must have a `=` between its parts".to_owned())?;
    Ok((left.to_owned(), right.to_owned()))
}
