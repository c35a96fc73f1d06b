//! Options of `dray doctor`.

use std::net::SocketAddr;

use clap::Args;

/// `dray doctor`
#[derive(Debug, Args)]
pub(crate) struct DoctorArgs {
    /// Seconds that one check may take.
    #[arg(long, value_name = "SECONDS", default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..=300))]
    pub(crate) timeout: u64,

    /// Ask each platform account and sandbox backend of the running system whether it works. Sends no message to
    /// anybody. Needs --nats.
    #[arg(long)]
    pub(crate) accounts: bool,

    /// Check also this address, on which `dray up --console` will listen.
    #[arg(long, value_name = "ADDR")]
    pub(crate) console: Option<SocketAddr>,

    /// Check also this address, on which `dray up --tickets` will listen.
    #[arg(long, value_name = "ADDR")]
    pub(crate) tickets: Option<SocketAddr>,

    /// Check also this address, on which `dray up --mcp` will listen.
    #[arg(long, value_name = "ADDR")]
    pub(crate) mcp: Option<SocketAddr>,
}
