//! The command line. The help texts here are the reference; `docs/cli.md` is generated from them.

mod bench;
mod chat;
mod console;
mod delivery;
mod dlq;
mod doctor;
mod egress;
mod mcp;
mod mcp_setup;
mod oidc;
mod policy;
mod preview;
mod read;
mod sandbox;
mod session;
mod ticket;
mod topology;

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::builder::RangedU64ValueParser;
use clap::{Args, Parser, Subcommand};
use dray_service::config::SOCKET_ADDRESS_RULE;
use dray_types::ByteSize;

pub(crate) use bench::BenchArgs;
pub(crate) use chat::ChatArgs;
pub(crate) use console::{
    ConsoleArgs, ConsoleCommand, ConsoleLinkArgs, ConsoleLinkCommand, DEFAULT_CONSOLE,
    UpConsoleArgs,
};
pub(crate) use delivery::{DeliverArgs, DeliveryOptions, ReceiptsArgs, ResendArgs, SendArgs};
pub(crate) use dlq::{DeadLetterCommand, DlqFilter};
pub(crate) use doctor::DoctorArgs;
pub(crate) use egress::{EgressCommand, EgressPurgeArgs, EgressReportArgs, EgressTokenArgs};
pub(crate) use mcp::{McpArgs, McpCommand, UpMcpArgs};
pub(crate) use mcp_setup::{McpBundleArgs, McpInstallArgs, McpServerJsonArgs, McpSetupCommand};
pub(crate) use policy::{
    PolicyAnswer, PolicyAnswerArgs, PolicyCommand, PolicyDiffArgs, PolicyExplainArgs,
    PolicyPutArgs, PolicyQuestionsArgs, PolicyShowArgs, PolicyTestArgs,
};
pub(crate) use preview::{PreviewCommand, PreviewCreate, PreviewManageCommand, PreviewOwner};
pub(crate) use read::{ClassifyArgs, ReadArgs, ReadLimitArgs, ReadLocation};
pub(crate) use sandbox::{
    SandboxCommand, SandboxCp, SandboxExec, SandboxGet, SandboxPut, TransferOptions,
};
pub(crate) use session::SessionCommand;
pub(crate) use ticket::{
    TicketCommand, TicketDownload, TicketEndpointOptions, TicketList, TicketName, TicketOptions,
    TicketServe, TicketSource, TicketUpload,
};
pub(crate) use topology::{TopologyApplyOptions, TopologyCommand, TopologySize};

/// Longest time that an option in seconds may name: a year. Sums of such times do not overflow.
const MAX_SECONDS: u64 = 365 * 24 * 60 * 60;

/// Parses a time in whole seconds.
fn seconds_parser() -> RangedU64ValueParser {
    clap::value_parser!(u64).range(1..=MAX_SECONDS)
}

/// Parses an IP address with a port.
fn socket_address(text: &str) -> Result<SocketAddr, &'static str> {
    text.parse().map_err(|_| SOCKET_ADDRESS_RULE)
}

/// Parses a size above 0.
fn positive_size(text: &str) -> Result<ByteSize, String> {
    match text.parse::<ByteSize>() {
        Ok(size) if size > ByteSize::default() => Ok(size),
        Ok(_) => Err("it must be above 0".to_owned()),
        Err(error) => Err(error.to_string()),
    }
}

/// Exit codes, shown at the end of `--help`.
const AFTER_HELP: &str = "\
Exit codes:
  0   done
  1   refused or failed; the fault says what happened, why, and what to do
  2   the command line is wrong
  69  the bus or the store cannot be reached
  78  the configuration is wrong
  129 ended by a closed terminal (SIGHUP), 130 by Ctrl-C (SIGINT), 143 by SIGTERM; what was staged
      is removed

Configuration comes from compiled defaults, one TOML file (--config), the environment
(DRAY_<SECTION>__<FIELD>) and --set, in this order; `dray config show` prints the result and where
each value came from.";

/// Moves files between agents, tools, sandboxes, the outside web and people.
#[derive(Debug, Parser)]
#[command(name = "dray", version, about, after_help = AFTER_HELP, arg_required_else_help = true)]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) global: GlobalOptions,
    #[command(subcommand)]
    pub(crate) command: DrayCommand,
}

/// The sentence about what is wrong with arguments, without the usage that follows it.
pub(crate) fn argument_problem(error: &clap::Error) -> String {
    // The text of this error is the help of the command.
    if error.kind() == clap::error::ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand {
        return "a subcommand is missing; `--help` lists them".to_owned();
    }
    let text = error.render().to_string();
    // The usage comes after an empty line.
    let text = text.split("\n\n").next().unwrap_or_default();
    text.strip_prefix("error: ").unwrap_or(text).to_owned()
}

/// Options of every command.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct GlobalOptions {
    /// Configuration file (TOML).
    #[arg(long, global = true, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// Set one configuration value, for example `egress-fetcher.enabled=true`. Can be given several times.
    #[arg(long = "set", global = true, value_name = "SECTION.FIELD=VALUE")]
    pub(crate) overrides: Vec<String>,
    /// NATS server to use instead of the in-process bus, for example `nats://127.0.0.1:4222`.
    #[arg(long, global = true, value_name = "URL")]
    pub(crate) nats: Option<String>,
    /// S3 endpoint to use instead of the embedded store, for example `http://127.0.0.1:9000`.
    #[arg(long, global = true, value_name = "URL")]
    pub(crate) s3: Option<String>,
    /// Directory of the embedded store.
    #[arg(long, global = true, value_name = "DIR")]
    pub(crate) state: Option<PathBuf>,
    /// Tenant to act for. Default: `default`, or all tenants where a command reads the streams of the bus.
    #[arg(long, global = true, value_name = "NAME")]
    pub(crate) tenant: Option<String>,
    /// Print JSON on standard output: one document, or one per line.
    #[arg(long, global = true)]
    pub(crate) json: bool,
}

impl GlobalOptions {
    /// Name of the tenant to act for.
    pub(crate) fn tenant_name(&self) -> &str {
        self.tenant.as_deref().unwrap_or("default")
    }
}

/// The command to run.
#[derive(Debug, Subcommand)]
pub(crate) enum DrayCommand {
    /// Demonstrate all features on this machine, without a network and without keys.
    Demo,
    /// Run services: all of them in one process, or some of them against NATS and S3.
    Up(Box<UpArgs>),
    /// Serve the console, a web page over a running system, or print a link that logs in to one.
    Console(Box<ConsoleCommand>),
    /// Chat with an agent: one message, or a conversation.
    Chat(Box<ChatArgs>),
    /// Serve the Model Context Protocol (MCP): agents read, fetch, list, move and send files through tools.
    Mcp(Box<McpCommand>),
    /// Resolve the `file:` references in the arguments of one tool call.
    Resolve(ResolveArgs),
    /// Fetch one outside URL under the operator's policy.
    Fetch(FetchArgs),
    /// Explain what the policy of fetching allows, without fetching.
    #[command(subcommand)]
    Policy(PolicyCommand),
    /// Make tokens for the forward proxy of sandboxes, forget stored responses of fetches, and count requests.
    #[command(subcommand)]
    Egress(EgressCommand),
    /// Read a document as an agent would: as Markdown, framed as untrusted data.
    Read(Box<ReadArgs>),
    /// Detect file types from content.
    Classify(Box<ClassifyArgs>),
    /// Send files of a sandbox to a person and wait for the platform's proof.
    Send(SendArgs),
    /// Send files of this machine to a person and wait for the platform's proof.
    Deliver(DeliverArgs),
    /// Show what happened to files that were sent, one line for each.
    Receipts(ReceiptsArgs),
    /// Resend files that were not delivered, as a new delivery.
    Resend(ResendArgs),
    /// Copy files into and out of a sandbox, list them, remove them.
    #[command(subcommand)]
    Sandbox(SandboxCommand),
    /// Bind a sandbox and a chat to a session, or show what is bound.
    #[command(subcommand)]
    Session(SessionCommand),
    /// Put, get and link stored files.
    #[command(subcommand)]
    Artifact(ArtifactCommand),
    /// Create a short-lived link to a file or a directory, served directly from its sandbox.
    Preview(PreviewCommand),
    /// Create single-use URLs to upload or download a file.
    #[command(subcommand)]
    Ticket(TicketCommand),
    /// Provision or check the streams and consumers on the NATS server.
    #[command(subcommand)]
    Topology(TopologyCommand),
    /// Show what happens on the bus.
    #[command(subcommand)]
    Events(EventsCommand),
    /// List, show and restart work that was given up (dead letters).
    #[command(subcommand)]
    Dlq(DeadLetterCommand),
    /// Check and show the configuration.
    #[command(subcommand)]
    Config(ConfigCommand),
    /// Find what keeps this machine or a running system from working, each finding with its remedy.
    ///
    /// Checks versions, clock, limits, configuration, addresses of listeners, the directories of services and their
    /// free space, the container engine, reading of documents, name servers, and with --nats and --s3 the bus, its
    /// clock and streams, the services, and the store with its clock. Exit code 1 when there is a problem.
    Doctor(DoctorArgs),
    /// Measure copies, fetches and reading on this machine, each beside the program that does the same without Drayage.
    ///
    /// Every time is that of a whole process. Both programs run in turn, and the ratio is that of their medians: below
    /// 1, dray is faster. Without options, files are copied into a local directory and out of it. Exit code 1 when a
    /// run of dray failed.
    ///
    /// Example: `dray bench --sandbox docker:web --document report.pdf --svg plots`
    Bench(Box<BenchArgs>),
    /// Check whether a running service is ready, for container health checks.
    Healthcheck(HealthcheckArgs),
    /// Print a completion script for a shell.
    ///
    /// For bash: `dray completions bash > ~/.local/share/bash-completion/completions/dray`.
    Completions {
        /// Shell for which the script is written.
        shell: clap_complete::Shell,
    },
    /// Write the manual pages, one for each command, into a directory.
    ///
    /// For example: `dray man ~/.local/share/man/man1`.
    Man {
        /// Directory of the pages; created when it is missing.
        #[arg(value_name = "DIR")]
        directory: PathBuf,
    },
    /// Write a generated reference page to standard output.
    #[command(hide = true)]
    Reference {
        /// Which one: asyncapi, cli, configuration, deployment, faults, metrics, publisher or subjects.
        page: String,
        /// Tenant of the page `publisher`: its account in accounts.conf.
        // Not `tenant`: that is the option of all commands, which has a default.
        #[arg(value_name = "TENANT")]
        publisher: Option<String>,
    },
}

/// `dray up`
#[derive(Debug, Args)]
pub(crate) struct UpArgs {
    /// Run only this service. Can be given several times. Without it, every service runs.
    #[arg(long, value_name = "SERVICE")]
    pub(crate) only: Vec<String>,
    /// Log what services do, not only warnings. Twice: debug messages and every configuration value. With --only the
    /// level is `telemetry.level`.
    #[arg(short, long, action = clap::ArgAction::Count)]
    pub(crate) verbose: u8,
    /// Address of the health and metrics endpoint.
    #[arg(long, value_name = "ADDR", value_parser = socket_address)]
    pub(crate) http: Option<SocketAddr>,
    /// Address of the gRPC endpoint. One that other machines reach needs TLS and identities of callers (docs/grpc.md).
    #[arg(long, value_name = "ADDR", value_parser = socket_address)]
    pub(crate) grpc: Option<SocketAddr>,
    /// Address of the chat endpoint. Default: 127.0.0.1:5000.
    #[arg(long, value_name = "ADDR", value_parser = socket_address)]
    pub(crate) chat: Option<SocketAddr>,
    /// Address of the endpoint of tickets (`dray ticket`), for example `127.0.0.1:7340`.
    #[arg(long, value_name = "ADDR", value_parser = socket_address)]
    pub(crate) tickets: Option<SocketAddr>,
    /// Base of ticket URLs where a proxy is in front of the endpoint, for example `https://files.example.org`.
    #[arg(long, value_name = "URL", requires = "tickets")]
    pub(crate) tickets_url: Option<String>,
    /// Address on which links of previews are served (`dray preview`, console). Default:
    /// `sandbox-transfer.preview.listen`, or else a free port of loopback; with --only there is none by default.
    #[arg(long, value_name = "ADDR", value_parser = socket_address)]
    pub(crate) preview: Option<SocketAddr>,
    /// Directory of manifests. Each `NAME.json` is an agent, which the chat endpoint offers as the model NAME.
    #[arg(long, value_name = "DIR")]
    pub(crate) manifests: Option<PathBuf>,
    /// URL of the models: any endpoint of chat completions, for example `http://127.0.0.1:11434/v1`. Its key is the
    /// variable `DRAY_ORCHESTRATOR__MODEL_KEY`.
    #[arg(long, value_name = "URL")]
    pub(crate) model_url: Option<String>,
    #[command(flatten)]
    pub(crate) console: UpConsoleArgs,
    #[command(flatten)]
    pub(crate) mcp: UpMcpArgs,
}

/// `dray resolve`
#[derive(Debug, Args)]
pub(crate) struct ResolveArgs {
    /// The arguments, a JSON object; `-` reads it from standard input.
    #[arg(long, value_name = "JSON")]
    pub(crate) arguments: String,
    /// Resolve references in nested objects and arrays too.
    #[arg(long)]
    pub(crate) nested: bool,
    /// Largest file, for example `25MiB`.
    #[arg(long, value_name = "N", value_parser = positive_size)]
    pub(crate) size_limit: Option<ByteSize>,
    /// Policy of the app: a file with `{"enabled": null|bool, "host_allowlist": null|[…]}`.
    #[arg(long, value_name = "FILE")]
    pub(crate) app_policy: Option<PathBuf>,
    /// File that holds the API key for DIAL Core; without it the variable `DIAL_API_KEY` is used. The key goes to
    /// the origin of `DIAL_URL` and nowhere else.
    #[arg(long, value_name = "FILE")]
    pub(crate) api_key_file: Option<PathBuf>,
    /// Seconds to wait in all.
    #[arg(long, value_name = "SECONDS", default_value_t = 120, value_parser = seconds_parser())]
    pub(crate) timeout: u64,
}

/// `dray fetch`
#[derive(Debug, Args)]
pub(crate) struct FetchArgs {
    /// The URL, http or https.
    pub(crate) url: String,
    /// Policy of the app: a file with `{"enabled": null|bool, "host_allowlist": null|[…]}`.
    #[arg(long, value_name = "FILE")]
    pub(crate) app_policy: Option<PathBuf>,
    /// Most bytes to take, for example `25MiB`; at most the operator's ceiling.
    #[arg(long, value_name = "N", value_parser = positive_size)]
    pub(crate) size_limit: Option<ByteSize>,
    /// Where to write the content; `-` is standard output, where nothing else is printed then. Without it the content is
    /// only stored.
    #[arg(short, long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
    /// Seconds the fetch may take in all; without it as long as the operator allows.
    #[arg(long, value_name = "SECONDS", value_parser = seconds_parser())]
    pub(crate) timeout: Option<u64>,
}

/// `dray artifact`
#[derive(Debug, Subcommand)]
pub(crate) enum ArtifactCommand {
    /// Store a file and print its digest.
    Put {
        /// The file; `-` is standard input.
        file: PathBuf,
        /// Name for people; the file's own by default.
        #[arg(long)]
        name: Option<String>,
        /// Media type label.
        #[arg(long, default_value = "application/octet-stream")]
        media_type: String,
    },
    /// Read a stored file by its digest and check it.
    Get {
        /// SHA-256 of the content, 64 hexadecimal digits.
        sha256: String,
        /// Where to write; `-` (the default) is standard output.
        #[arg(short, long, default_value = "-")]
        output: PathBuf,
    },
    /// Print where the bytes of a digest were fetched from, the newest fetch first.
    Origin {
        /// SHA-256 of the content, 64 hexadecimal digits.
        sha256: String,
    },
    /// Create a link that opens a stored file for anyone who holds it.
    Url {
        /// SHA-256 of the content, 64 hexadecimal digits.
        sha256: String,
        /// How long the link works, in seconds: 300 (5 minutes) to 604800 (7 days).
        #[arg(long, value_name = "SECONDS", default_value_t = 86_400)]
        expires: u64,
        /// File name that the link offers.
        #[arg(long, default_value = "")]
        name: String,
        /// Media type that the link declares, if it is an inert one.
        #[arg(long, default_value = "application/octet-stream")]
        media_type: String,
    },
}

/// `dray events`
#[derive(Debug, Subcommand)]
pub(crate) enum EventsCommand {
    /// Print events as they come.
    Tail {
        /// Start with events that are already stored.
        #[arg(long)]
        all: bool,
        /// Stop after this many events.
        #[arg(long, value_name = "N")]
        count: Option<u64>,
        /// Show audit events instead of result events.
        #[arg(long)]
        audit: bool,
    },
}

/// `dray config`
#[derive(Debug, Subcommand)]
pub(crate) enum ConfigCommand {
    /// Load and validate the configuration; the exit code is the result.
    Check,
    /// Print every effective value and where it came from.
    Show,
}

/// `dray healthcheck`
#[derive(Debug, Args)]
pub(crate) struct HealthcheckArgs {
    /// Address of the health endpoint.
    #[arg(
        long,
        value_name = "ADDR",
        default_value = "127.0.0.1:9464",
        value_parser = socket_address,
    )]
    pub(crate) http: SocketAddr,
    /// The probe: live, ready or started.
    #[arg(long, default_value = "ready")]
    pub(crate) probe: String,
}

#[cfg(test)]
mod tests;
