//! `dray ticket` on the command line.

use clap::{Args, Subcommand};
use dray_types::{ByteSize, SessionId, Sha256Digest};

/// `dray ticket`
#[derive(Debug, Subcommand)]
pub(crate) enum TicketCommand {
    /// Make a URL through which one file comes in, once.
    Upload(TicketUpload),
    /// Make a URL through which one file goes out, once.
    Download(TicketDownload),
}

/// Options of every ticket.
#[derive(Debug, Args)]
pub(crate) struct TicketOptions {
    /// Base URL of the running endpoint (`dray up --tickets ADDR`).
    #[arg(long, value_name = "URL", default_value = "http://127.0.0.1:7340")]
    pub(crate) endpoint: String,
    /// Session for which the limits of tickets count.
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
}

/// `dray ticket download`
#[derive(Debug, Args)]
pub(crate) struct TicketDownload {
    /// SHA-256 of the stored content, 64 hexadecimal digits; `dray artifact put` stores a file and prints it.
    #[arg(value_parser = parse_digest)]
    pub(crate) sha256: Sha256Digest,
    #[command(flatten)]
    pub(crate) options: TicketOptions,
    /// File name that the ticket offers.
    #[arg(long, default_value = "")]
    pub(crate) name: String,
    /// Media type that the ticket declares.
    #[arg(long, default_value = "application/octet-stream")]
    pub(crate) media_type: String,
}

fn parse_digest(text: &str) -> Result<Sha256Digest, String> {
    text.parse::<Sha256Digest>()
        .map_err(|error| error.to_string())
}
