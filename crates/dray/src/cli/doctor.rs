//! Options of `dray doctor`.

use std::net::SocketAddr;

use clap::Args;

use super::socket_address;

/// `dray doctor`
#[derive(Debug, Args)]
pub(crate) struct DoctorArgs {
    /// Seconds that one check may take.
    #[arg(long, value_name = "SECONDS", default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..=300))]
    pub(crate) timeout: u64,

    /// Check whether each platform account and sandbox backend of the running system works. Sends no messages. Needs
    /// --nats.
    #[arg(long)]
    pub(crate) accounts: bool,

    /// Also check this address, on which `dray up --console` will listen.
    #[arg(long, value_name = "ADDR", value_parser = socket_address)]
    pub(crate) console: Option<SocketAddr>,

    /// Also check this address, on which `dray up --tickets` will listen.
    #[arg(long, value_name = "ADDR", value_parser = socket_address)]
    pub(crate) tickets: Option<SocketAddr>,

    /// Also check this address, on which `dray up --mcp` will listen.
    #[arg(long, value_name = "ADDR", value_parser = socket_address)]
    pub(crate) mcp: Option<SocketAddr>,
}
