//! `dray preview` on the command line.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::socket_address;

/// `dray preview`: creates a link to a file or a directory, or manages existing links.
#[derive(Debug, Args)]
#[command(
    args_conflicts_with_subcommands = true,
    subcommand_negates_reqs = true,
    after_help = "\
Examples:
  dray preview docker:web:/workspace/site
  dray preview local:/srv/box:report.html --expires 600
  dray preview /workspace/site --session chat-7 --nats nats://127.0.0.1:4222
  dray preview list --session chat-7 --nats nats://127.0.0.1:4222

Until the link ends, anyone who has it can view the directory without a login. For a file, this is its directory.
Without --nats this command serves the preview itself until Ctrl-C."
)]
pub(crate) struct PreviewCommand {
    #[command(subcommand)]
    pub(crate) manage: Option<PreviewManageCommand>,
    #[command(flatten)]
    pub(crate) create: PreviewCreate,
}

/// Options of a new preview.
#[derive(Debug, Args)]
pub(crate) struct PreviewCreate {
    /// A file or a directory: `KIND:NAME:PATH`, or a path in the sandbox of --session.
    #[arg(required = true, value_name = "PLACE")]
    pub(crate) place: Option<PathBuf>,
    /// Session whose sandbox contains the path.
    #[arg(long, value_name = "ID")]
    pub(crate) session: Option<String>,
    /// Seconds until the link ends. Default: `sandbox-transfer.preview.lifetime`, an hour.
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) expires: Option<u32>,
    /// Address on which this command serves the preview; a free port of loopback by default. Not with --nats.
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:0", value_parser = socket_address)]
    pub(crate) listen: SocketAddr,
}

/// Commands for existing previews. They need a running system.
#[derive(Debug, Subcommand)]
pub(crate) enum PreviewManageCommand {
    /// List the open previews of a session or of a sandbox.
    List(PreviewOwner),
    /// End a preview.
    Revoke {
        /// The preview's id, as `dray preview list` shows it.
        #[arg(value_name = "ID")]
        preview: String,
        #[command(flatten)]
        owner: PreviewOwner,
    },
}

/// The owner of previews: a session or a sandbox.
#[derive(Debug, Args)]
#[group(required = true, multiple = false)]
pub(crate) struct PreviewOwner {
    /// Id of the session whose sandbox has the previews.
    #[arg(long, value_name = "ID")]
    pub(crate) session: Option<String>,
    /// Sandbox by address, for example `docker:web`.
    #[arg(long, value_name = "SANDBOX")]
    pub(crate) sandbox: Option<String>,
}
