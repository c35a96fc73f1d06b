//! What can be typed. The help texts here are the reference; `docs/cli.md` is generated from them.

mod chat;
mod read;
mod transfer;

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};
use dray_bus::dead::LetterState;
use dray_types::{ByteSize, FaultCode, Period, TenantId};

pub(crate) use chat::ChatArgs;
pub(crate) use read::{ClassifyArgs, ReadArgs, ReadLimitArgs, ReadLocation};
pub(crate) use transfer::{
    DeliverArgs, DeliveryOptions, ReceiptsArgs, ResendArgs, SandboxCommand, SandboxCp, SandboxGet,
    SandboxPut, SendArgs, SessionCommand, TransferOptions,
};

/// Exit codes, shown at the end of `--help`.
const AFTER_HELP: &str = "\
Exit codes:
  0   done
  1   refused or failed; the fault says what happened, why, and what to do
  2   the command line is wrong
  69  the bus or the store cannot be reached
  78  the configuration is wrong

Configuration comes from compiled defaults, one TOML file (--config), the environment (DRAY_<SECTION>__<FIELD>)
and --set, in this order; `dray config show` prints the result and where each value came from.";

/// Moves files between agents, tools, sandboxes, the outside web and people.
#[derive(Debug, Parser)]
#[command(name = "dray", version, about, after_help = AFTER_HELP, arg_required_else_help = true)]
pub(crate) struct Cli {
    #[command(flatten)]
    pub(crate) global: GlobalOptions,
    #[command(subcommand)]
    pub(crate) command: DrayCommand,
}

/// Options of every command.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct GlobalOptions {
    /// Configuration file (TOML).
    #[arg(long, global = true, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
    /// Sets one configuration value, for example `egress-fetcher.enabled=true`. Can be given several times.
    #[arg(long = "set", global = true, value_name = "SECTION.FIELD=VALUE")]
    pub(crate) overrides: Vec<String>,
    /// NATS server to use instead of the in-process bus, for example `nats://127.0.0.1:4222`.
    #[arg(long, global = true, value_name = "URL")]
    pub(crate) nats: Option<String>,
    /// S3 endpoint to use instead of the embedded store, for example `http://127.0.0.1:9000`.
    #[arg(long, global = true, value_name = "URL")]
    pub(crate) s3: Option<String>,
    /// Folder of the embedded store.
    #[arg(long, global = true, value_name = "DIR")]
    pub(crate) state: Option<PathBuf>,
    /// Tenant to act for.
    #[arg(long, global = true, value_name = "NAME", default_value = "default")]
    pub(crate) tenant: String,
    /// Machine-readable output: one JSON document or one per line on standard output.
    #[arg(long, global = true)]
    pub(crate) json: bool,
}

/// What to do.
#[derive(Debug, Subcommand)]
pub(crate) enum DrayCommand {
    /// Shows everything at work on this machine: no network, no keys.
    Demo,
    /// Runs services: all of them in one process, or some of them against NATS and S3.
    Up(UpArgs),
    /// Talks with an agent: one message, or a conversation.
    Chat(Box<ChatArgs>),
    /// Resolves the `file:` references in the arguments of one tool call.
    Resolve(ResolveArgs),
    /// Fetches one outside URL under the operator's policy.
    Fetch(FetchArgs),
    /// Reads a document as an agent would: as Markdown, framed as untrusted data.
    Read(Box<ReadArgs>),
    /// Detects file types from content.
    Classify(Box<ClassifyArgs>),
    /// Sends files of a sandbox to a person and waits for the platform's proof.
    Send(SendArgs),
    /// Sends files of this machine to a person and waits for the platform's proof.
    Deliver(DeliverArgs),
    /// Shows what happened to files that were sent, one line for each.
    Receipts(ReceiptsArgs),
    /// Sends once more what was not delivered, as a new delivery.
    Resend(ResendArgs),
    /// Moves files in and out of a sandbox and looks into it.
    #[command(subcommand)]
    Sandbox(SandboxCommand),
    /// Says which sandbox and which chat belong to a session.
    #[command(subcommand)]
    Session(SessionCommand),
    /// Puts, gets and links stored files.
    #[command(subcommand)]
    Artifact(ArtifactCommand),
    /// Provisions or checks the streams and consumers on the NATS server.
    #[command(subcommand)]
    Topology(TopologyCommand),
    /// Shows what happens on the bus.
    #[command(subcommand)]
    Events(EventsCommand),
    /// Shows and restarts work that was given up (dead letters).
    #[command(subcommand)]
    Dlq(DeadLetterCommand),
    /// Checks and shows the configuration.
    #[command(subcommand)]
    Config(ConfigCommand),
    /// Asks a running service whether it is ready; for container health checks.
    Healthcheck(HealthcheckArgs),
    /// Print a completion script for a shell.
    ///
    /// For bash: `dray completions bash > ~/.local/share/bash-completion/completions/dray`.
    Completions {
        /// The shell.
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
    /// Writes a generated reference page to standard output.
    #[command(hide = true)]
    Reference {
        /// Which one: cli, configuration, deployment, faults, metrics or subjects.
        page: String,
    },
}

/// `dray up`
#[derive(Debug, Args)]
pub(crate) struct UpArgs {
    /// Runs only this service. Can be given several times. Without it, every service runs.
    #[arg(long, value_name = "SERVICE")]
    pub(crate) only: Vec<String>,
    /// Log what services do, not only warnings. Twice: debug messages and every configuration value. With --only the
    /// level is `telemetry.level`.
    #[arg(short, long, action = clap::ArgAction::Count)]
    pub(crate) verbose: u8,
    /// Address of the health and metrics endpoint.
    #[arg(long, value_name = "ADDR")]
    pub(crate) http: Option<SocketAddr>,
    /// Address of the gRPC endpoint.
    #[arg(long, value_name = "ADDR")]
    pub(crate) grpc: Option<SocketAddr>,
    /// Address of the chat endpoint. Default: 127.0.0.1:5000.
    #[arg(long, value_name = "ADDR")]
    pub(crate) chat: Option<SocketAddr>,
    /// Folder of manifests: `NAME.json` each is an agent, the model NAME of the chat endpoint.
    #[arg(long, value_name = "DIR")]
    pub(crate) manifests: Option<PathBuf>,
    /// Where models are, any endpoint of chat completions, for example `http://127.0.0.1:11434/v1`. Its key:
    /// `DRAY_ORCHESTRATOR__MODEL_KEY`.
    #[arg(long, value_name = "URL")]
    pub(crate) model_url: Option<String>,
}

/// `dray resolve`
#[derive(Debug, Args)]
pub(crate) struct ResolveArgs {
    /// The arguments, a JSON object; `-` reads it from standard input.
    #[arg(long, value_name = "JSON")]
    pub(crate) arguments: String,
    /// Resolves references in nested objects and arrays too.
    #[arg(long)]
    pub(crate) nested: bool,
    /// Largest file, for example `25MiB`.
    #[arg(long, value_name = "N")]
    pub(crate) size_limit: Option<ByteSize>,
    /// What the app allows: a file with `{"enabled": null|bool, "host_allowlist": null|[…]}`.
    #[arg(long, value_name = "FILE")]
    pub(crate) app_policy: Option<PathBuf>,
    /// File that holds the API key for DIAL Core; without it the variable `DIAL_API_KEY` is used. The key goes to
    /// the origin of `DIAL_URL` and nowhere else.
    #[arg(long, value_name = "FILE")]
    pub(crate) api_key_file: Option<PathBuf>,
    /// Seconds to wait in all.
    #[arg(long, value_name = "SECONDS", default_value_t = 120)]
    pub(crate) timeout: u64,
}

/// `dray fetch`
#[derive(Debug, Args)]
pub(crate) struct FetchArgs {
    /// The URL, http or https.
    pub(crate) url: String,
    /// What the app allows: a file with `{"enabled": null|bool, "host_allowlist": null|[…]}`.
    #[arg(long, value_name = "FILE")]
    pub(crate) app_policy: Option<PathBuf>,
    /// Most bytes to take, for example `25MiB`; at most the operator's ceiling.
    #[arg(long, value_name = "N")]
    pub(crate) size_limit: Option<ByteSize>,
    /// Where to write the content; `-` is standard output. Without it the content is only stored.
    #[arg(short, long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
    /// Seconds the fetch may take in all; without it as long as the operator allows.
    #[arg(long, value_name = "SECONDS")]
    pub(crate) timeout: Option<u64>,
}

/// `dray artifact`
#[derive(Debug, Subcommand)]
pub(crate) enum ArtifactCommand {
    /// Stores a file and prints its digest.
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
    /// Reads a stored file by its digest and checks it.
    Get {
        /// SHA-256 of the content, 64 hexadecimal digits.
        sha256: String,
        /// Where to write; `-` (the default) is standard output.
        #[arg(short, long, default_value = "-")]
        output: PathBuf,
    },
    /// Mints a link that opens a stored file for anyone who holds it.
    Url {
        /// SHA-256 of the content, 64 hexadecimal digits.
        sha256: String,
        /// How long the link works, in seconds: 300 (5 minutes) to 604800 (7 days).
        #[arg(long, value_name = "SECONDS", default_value_t = 86_400)]
        expires: u64,
        /// File name that the link offers.
        #[arg(long, default_value = "")]
        name: String,
        /// Media type that the link declares, where it is an inert one.
        #[arg(long, default_value = "application/octet-stream")]
        media_type: String,
    },
}

/// `dray topology`
#[derive(Debug, Subcommand)]
pub(crate) enum TopologyCommand {
    /// Creates missing streams, consumers and the ledger, and makes existing ones what they must be.
    Apply {
        #[command(flatten)]
        size: TopologySize,
    },
    /// Compares what is there with what is needed. Changes nothing.
    Check {
        #[command(flatten)]
        size: TopologySize,
    },
}

/// How large the streams are made.
#[derive(Debug, Args)]
pub(crate) struct TopologySize {
    /// Copies of every stream on different servers: 3 in production, 1 on a single server.
    #[arg(long, value_name = "N", default_value_t = 1)]
    pub(crate) replicas: usize,
    /// Size of the servers' JetStream store; all streams together stay below 70 % of it.
    #[arg(long, value_name = "SIZE", default_value = "4GiB")]
    pub(crate) store_size: ByteSize,
    /// Adds a durable consumer `publisher-TENANT` with the outcomes of this tenant's tool calls. Can be given several
    /// times.
    #[arg(long = "publisher", value_name = "TENANT")]
    pub(crate) publishers: Vec<TenantId>,
}

/// `dray events`
#[derive(Debug, Subcommand)]
pub(crate) enum EventsCommand {
    /// Prints events as they come.
    Tail {
        /// Starts with events that are already stored.
        #[arg(long)]
        all: bool,
        /// Stops after this many.
        #[arg(long, value_name = "N")]
        count: Option<u64>,
        /// Shows audit events instead of result events.
        #[arg(long)]
        audit: bool,
    },
}

/// `dray dlq`
#[derive(Debug, Subcommand)]
pub(crate) enum DeadLetterCommand {
    /// Lists dead letters, newest last, with their state: open, restarted, resolved or unknown.
    List {
        /// At most this many.
        #[arg(long, value_name = "N", default_value_t = 100)]
        limit: usize,
        #[command(flatten)]
        filter: DlqFilter,
    },
    /// Shows one dead letter.
    Show {
        /// Its sequence, from `list`.
        sequence: u64,
    },
    /// Starts the work of dead letters again: those named, or the open ones that a filter admits. Work that was
    /// started again before or is done is left alone.
    Redrive {
        /// Their sequences, from `list`.
        #[arg(value_name = "SEQUENCE")]
        sequences: Vec<u64>,
        #[command(flatten)]
        filter: DlqFilter,
        /// Starts every open dead letter again.
        #[arg(long)]
        all: bool,
        /// Prints what would be started again, and does nothing.
        #[arg(long)]
        dry_run: bool,
        /// At most this many.
        #[arg(long, value_name = "N", default_value_t = 100)]
        limit: usize,
    },
}

/// Which dead letters are meant; several options must all match.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct DlqFilter {
    /// Of this tenant.
    #[arg(long, value_name = "TENANT")]
    pub(crate) of_tenant: Option<TenantId>,
    /// Of this area of work, for example `toolcall`.
    #[arg(long, value_name = "AREA")]
    pub(crate) area: Option<String>,
    /// Given up with this code, for example `unavailable`.
    #[arg(long, value_name = "CODE", value_parser = fault_code)]
    pub(crate) code: Option<FaultCode>,
    /// Given up with this detail, for example `no_responder`.
    #[arg(long, value_name = "DETAIL")]
    pub(crate) detail: Option<String>,
    /// In this state: open, restarted, resolved or unknown. Can be given several times.
    #[arg(long = "in-state", value_name = "STATE", value_parser = letter_state)]
    pub(crate) states: Vec<LetterState>,
    /// Given up within this time, for example `2h`.
    #[arg(long, value_name = "TIME")]
    pub(crate) newer_than: Option<Period>,
    /// Given up longer ago than this, for example `10m`.
    #[arg(long, value_name = "TIME")]
    pub(crate) older_than: Option<Period>,
}

fn fault_code(name: &str) -> Result<FaultCode, String> {
    let found = FaultCode::ALL_CODES
        .into_iter()
        .find(|code| code.as_str() == name);
    found.ok_or_else(|| {
        let names = FaultCode::ALL_CODES.map(FaultCode::as_str).join(", ");
        format!("must be one of {names}")
    })
}

fn letter_state(name: &str) -> Result<LetterState, String> {
    let found = LetterState::ALL_STATES
        .into_iter()
        .find(|state| state.as_str() == name);
    found.ok_or_else(|| {
        let names = LetterState::ALL_STATES.map(LetterState::as_str).join(", ");
        format!("must be one of {names}")
    })
}

/// `dray config`
#[derive(Debug, Subcommand)]
pub(crate) enum ConfigCommand {
    /// Loads and validates; the exit code is the answer.
    Check,
    /// Prints every effective value and where it came from.
    Show,
}

/// `dray healthcheck`
#[derive(Debug, Args)]
pub(crate) struct HealthcheckArgs {
    /// Address of the health endpoint.
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:9464")]
    pub(crate) http: SocketAddr,
    /// Which probe: live, ready or started.
    #[arg(long, default_value = "ready")]
    pub(crate) probe: String,
}
