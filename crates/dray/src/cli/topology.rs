//! The arguments of `dray topology`.

use clap::{Args, Subcommand};
use dray_types::{ByteSize, Period, TenantId};

/// `dray topology`
#[derive(Debug, Subcommand)]
pub(crate) enum TopologyCommand {
    /// Create missing streams, consumers and the ledger, and update existing ones.
    Apply {
        #[command(flatten)]
        size: TopologySize,
        #[command(flatten)]
        options: TopologyApplyOptions,
    },
    /// Compare what exists with what is needed. Changes nothing.
    Check {
        #[command(flatten)]
        size: TopologySize,
    },
}

/// Sizes of the streams.
#[derive(Debug, Args)]
pub(crate) struct TopologySize {
    /// Copies of every stream on different servers: 3 in production, 1 on a single server. Without it, streams keep their
    /// copies; new ones get as many as the stream of work has, or 1 on an empty server.
    #[arg(long, value_name = "N")]
    pub(crate) replicas: Option<usize>,
    /// Size of the servers' JetStream store; all streams together take at most 70 % of it. Without it, streams keep their
    /// sizes; an empty server gets streams for 4GiB.
    #[arg(long, value_name = "SIZE")]
    pub(crate) store_size: Option<ByteSize>,
    /// Add a durable consumer `publisher-TENANT` with the outcomes of this tenant's tool calls. Can be given several
    /// times.
    #[arg(long = "publisher", value_name = "TENANT")]
    pub(crate) publishers: Vec<TenantId>,
}

/// Options of `dray topology apply` alone.
#[derive(Debug, Args)]
pub(crate) struct TopologyApplyOptions {
    /// Let `--replicas` reduce the copies of existing streams. The loss of a disk may then lose accepted work.
    #[arg(long)]
    pub(crate) allow_fewer_copies: bool,
    /// Let `--store-size` make streams smaller than their content. The server then drops the oldest messages: work, dead
    /// letters, sessions.
    #[arg(long)]
    pub(crate) allow_smaller: bool,
    /// Retry this long while the server cannot be reached or refuses, for example `10m`.
    #[arg(long, value_name = "TIME")]
    pub(crate) wait: Option<Period>,
}
