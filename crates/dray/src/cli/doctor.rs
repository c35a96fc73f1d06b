//! Options of `dray doctor`.

use clap::Args;

/// `dray doctor`
#[derive(Debug, Args)]
pub(crate) struct DoctorArgs {
    /// Seconds that one check may take.
    #[arg(long, value_name = "SECONDS", default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..=300))]
    pub(crate) timeout: u64,

    /// Ask each platform account and sandbox backend of the running system whether it works. Sends no message to anybody.
    /// Needs --nats.
    #[arg(long)]
    pub(crate) accounts: bool,
}
