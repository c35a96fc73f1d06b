//! `dray ticket` on the command line.

use std::net::SocketAddr;

use clap::{Args, Subcommand};
use dray_ticket::TicketDestination;
use dray_types::{ByteSize, SessionId, Sha256Digest};

use super::socket_address;

/// `dray ticket`
#[derive(Debug, Subcommand)]
pub(crate) enum TicketCommand {
    /// Create a URL for the upload of one file, valid once.
    Upload(TicketUpload),
    /// Create a URL for the download of one file, valid once.
    Download(TicketDownload),
    /// List the tickets of a session: open ones, and those that moved bytes within a day. URLs are never shown.
    #[command(after_help = "Examples:\n  \
        dray ticket list\n  \
        dray ticket list --session chat-7 --json")]
    List(TicketList),
    /// Show one ticket: its state, limits and receipt.
    Show(TicketName),
    /// End a ticket and remove its received bytes. Its URL then responds that the ticket was revoked.
    #[command(after_help = "Examples:\n  \
        dray ticket list\n  \
        dray ticket revoke ID\n\n\
        A used ticket cannot be revoked: the file has been stored or downloaded already.")]
    Revoke(TicketName),
    /// Serve the URLs of tickets over a running system (`--nats`, `--s3`), with a separate identity.
    Serve(TicketServe),
}

/// `dray ticket serve`
#[derive(Debug, Args)]
pub(crate) struct TicketServe {
    /// Address of the endpoint.
    #[arg(
        long,
        value_name = "ADDR",
        default_value = "127.0.0.1:7340",
        value_parser = socket_address,
    )]
    pub(crate) listen: SocketAddr,
    /// Base of ticket URLs where a proxy is in front of the endpoint, for example `https://files.example.org`.
    #[arg(long, value_name = "URL")]
    pub(crate) url: Option<String>,
}

/// The running endpoint.
#[derive(Debug, Args)]
pub(crate) struct TicketEndpointOptions {
    /// Base URL of the running endpoint (`dray up --tickets ADDR`).
    #[arg(
        long = "endpoint",
        value_name = "URL",
        default_value = "http://127.0.0.1:7340"
    )]
    pub(crate) url: String,
}

/// `dray ticket list`
#[derive(Debug, Args)]
pub(crate) struct TicketList {
    #[command(flatten)]
    pub(crate) endpoint: TicketEndpointOptions,
    /// Session whose tickets are listed.
    #[arg(long, value_name = "ID", default_value = "cli")]
    pub(crate) session: SessionId,
    /// Most tickets to list, at most 200.
    #[arg(long, value_name = "N", default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=200))]
    pub(crate) limit: u32,
}

/// `dray ticket show` and `dray ticket revoke`
#[derive(Debug, Args)]
pub(crate) struct TicketName {
    /// Id of the ticket, 64 hexadecimal digits (`dray ticket list` prints it).
    #[arg(value_parser = parse_digest)]
    pub(crate) id: Sha256Digest,
    #[command(flatten)]
    pub(crate) endpoint: TicketEndpointOptions,
}

/// Options of every new ticket.
#[derive(Debug, Args)]
pub(crate) struct TicketOptions {
    #[command(flatten)]
    pub(crate) endpoint: TicketEndpointOptions,
    /// Session to which the ticket belongs, and whose limits apply.
    #[arg(long, value_name = "ID", default_value = "cli")]
    pub(crate) session: SessionId,
    /// Seconds until the ticket ends, at most 43200 (12 hours).
    #[arg(long, value_name = "SECONDS", default_value_t = 3600)]
    pub(crate) expires: u64,
}

/// `dray ticket upload`
#[derive(Debug, Args)]
pub(crate) struct TicketUpload {
    #[command(flatten)]
    pub(crate) options: TicketOptions,
    /// Most bytes, for example `25MiB`.
    #[arg(long, value_name = "N", default_value = "100MiB")]
    pub(crate) max_size: ByteSize,
    /// Exact size in bytes, where it is known.
    #[arg(long, value_name = "BYTES")]
    pub(crate) size: Option<u64>,
    /// Media type or pattern that the content must have, for example `application/pdf` or `image/*`.
    #[arg(long, value_name = "TYPE")]
    pub(crate) media_type: Option<String>,
    /// SHA-256 that the content must have, 64 hexadecimal digits.
    #[arg(long, value_name = "SHA256", value_parser = parse_digest)]
    pub(crate) sha256: Option<Sha256Digest>,
    /// Name of the stored file.
    #[arg(long, default_value = "")]
    pub(crate) name: String,
    /// Where the file goes once it is stored: `sandbox:DIRECTORY` of the session, `sandbox:` for its uploads, or
    /// `chat`.
    #[arg(long, value_name = "PLACE", value_parser = parse_destination)]
    pub(crate) to: Option<TicketDestination>,
}

/// `dray ticket download`
#[derive(Debug, Args)]
pub(crate) struct TicketDownload {
    /// SHA-256 of stored content, 64 hexadecimal digits (`dray artifact put` prints it), or `sandbox:PATH` for a file
    /// in the sandbox of the session, which must not change before it is downloaded.
    #[arg(value_parser = parse_source)]
    pub(crate) source: TicketSource,
    #[command(flatten)]
    pub(crate) options: TicketOptions,
    /// File name that the ticket offers.
    #[arg(long, default_value = "")]
    pub(crate) name: String,
    /// Media type that the ticket declares.
    #[arg(long, default_value = "application/octet-stream")]
    pub(crate) media_type: String,
}

/// The source of a download ticket.
#[derive(Clone, Debug)]
pub(crate) enum TicketSource {
    /// Stored content.
    Content(Sha256Digest),
    /// A file in the sandbox of the session.
    SandboxFile(String),
}

fn parse_source(text: &str) -> Result<TicketSource, String> {
    match text.strip_prefix("sandbox:") {
        Some("") => Err("`sandbox:` names no file".to_owned()),
        Some(path) => Ok(TicketSource::SandboxFile(path.to_owned())),
        None => parse_digest(text).map(TicketSource::Content),
    }
}

fn parse_destination(text: &str) -> Result<TicketDestination, String> {
    match text.strip_prefix("sandbox:") {
        Some(directory) => Ok(TicketDestination::Sandbox {
            directory: directory.to_owned(),
        }),
        None if text == "chat" => Ok(TicketDestination::Chat {
            message: String::new(),
        }),
        None => Err("write `sandbox:DIRECTORY`, `sandbox:` or `chat`".to_owned()),
    }
}

fn parse_digest(text: &str) -> Result<Sha256Digest, String> {
    text.parse::<Sha256Digest>()
        .map_err(|error| error.to_string())
}
