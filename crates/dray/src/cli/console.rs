//! `dray console` on the command line, and the options of `dray up` for it.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{Args, Subcommand};
use dray_console::ConsoleRole;

use super::oidc::OidcArgs;
use super::socket_address;

/// Where the console listens unless an option says otherwise.
pub(crate) const DEFAULT_CONSOLE: &str = "127.0.0.1:7300";

/// `dray console`: serves, or makes a link.
#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct ConsoleCommand {
    #[command(subcommand)]
    pub(crate) link: Option<ConsoleLinkCommand>,
    #[command(flatten)]
    pub(crate) serve: ConsoleArgs,
}

/// Options of the server.
#[derive(Debug, Args)]
pub(crate) struct ConsoleArgs {
    /// Address of the console. One that other machines reach needs --url with https.
    #[arg(
        long,
        value_name = "ADDR",
        default_value = DEFAULT_CONSOLE,
        value_parser = socket_address,
    )]
    pub(crate) listen: SocketAddr,
    /// URL under which browsers reach the console where a proxy is in front of it, for example
    /// `https://console.example.org`.
    #[arg(long, value_name = "URL")]
    pub(crate) url: Option<String>,
    /// Highest role of a login: `look`, or `act`, which may also resend, redrive and move files of sandboxes. The
    /// identity `console` suffices for looking; acting needs `console-operator`.
    #[arg(long, value_name = "ROLE", default_value = "look")]
    pub(crate) role: ConsoleRole,
    /// URL of the orchestrator for the playground, for example `http://127.0.0.1:5000`. Without it the console has no
    /// chat. Only with --role act.
    #[arg(long, value_name = "URL")]
    pub(crate) agents: Option<String>,
    /// File that holds the key for --agents, one of `orchestrator.clients`.
    #[arg(long, value_name = "FILE", requires = "agents")]
    pub(crate) agents_key_file: Option<PathBuf>,
    #[command(flatten)]
    pub(crate) oidc: OidcArgs,
}

/// Commands of `dray console` besides serving.
#[derive(Debug, Subcommand)]
pub(crate) enum ConsoleLinkCommand {
    /// Print a URL that logs in to a running console, once, within 10 minutes.
    Link(ConsoleLinkArgs),
}

/// Options of `dray console link`, which needs no running console.
#[derive(Debug, Args)]
pub(crate) struct ConsoleLinkArgs {
    /// URL of the running console.
    #[arg(long, value_name = "URL", default_value = "http://127.0.0.1:7300")]
    pub(crate) console: String,
    /// Role of the login: `look` or `act`.
    #[arg(long, value_name = "ROLE", default_value = "look")]
    pub(crate) role: ConsoleRole,
}

/// Options of `dray up` for its console.
#[derive(Debug, Args)]
pub(crate) struct UpConsoleArgs {
    /// Address of the console. Default: 127.0.0.1:7300, or a free port of loopback where that one is taken. With --only
    /// there is none by default.
    #[arg(long, value_name = "ADDR", value_parser = socket_address)]
    pub(crate) console: Option<SocketAddr>,
    /// URL under which browsers reach the console where a proxy is in front of it.
    #[arg(long, value_name = "URL", requires = "console")]
    pub(crate) console_url: Option<String>,
    /// Serve no console, even where one is served by default.
    #[arg(long, conflicts_with = "console")]
    pub(crate) no_console: bool,
    #[command(flatten)]
    pub(crate) oidc: OidcArgs,
}
