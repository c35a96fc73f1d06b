//! `dray egress` on the command line.

use clap::{Args, Subcommand};
use dray_types::{AppId, Period, SessionId};

/// The forward proxy, the stored responses and the recorded requests of the egress fetcher.
#[derive(Debug, Subcommand)]
pub(crate) enum EgressCommand {
    /// Print a token with which one session uses the forward proxy.
    ///
    /// The token belongs to the tenant of --tenant. The key is `egress-fetcher.proxy.token_key` of the configuration;
    /// the command connects to no service. A token cannot be revoked before it expires.
    ///
    /// For example: `HTTPS_PROXY=http://sandbox:$(dray egress token --session chat-1)@127.0.0.1:3128 curl
    /// https://example.com`
    Token(EgressTokenArgs),
    /// Forget the stored response of a URL, so that the next fetch requests it from the server.
    ///
    /// If `egress-fetcher.cache.enabled` is set, responses are stored for each tenant separately. A redirect is not
    /// stored: name the URL to which it leads.
    ///
    /// For example: `dray egress purge https://files.example.org/table.csv`
    Purge(EgressPurgeArgs),
    /// Count requests by tenant and verdict, with refused and failed hosts and slow lookups.
    ///
    /// Reads the audit stream, which keeps events only up to its limits. Bytes of a connection count when it closes,
    /// even when it opened before `--since`. A request in a tunnel that is granted and then refused counts in both
    /// verdicts. Lookups that took less than 1 ms are left out.
    ///
    /// For example: `dray egress report --since 7d`
    Report(EgressReportArgs),
}

/// `dray egress report`
#[derive(Debug, Args)]
pub(crate) struct EgressReportArgs {
    /// How far back the audit stream is read.
    #[arg(long, value_name = "TIME", default_value = "24h")]
    pub(crate) since: Period,
    /// Most refused hosts, failed hosts and slow names to list.
    #[arg(long, value_name = "N", default_value_t = 20)]
    pub(crate) limit: usize,
}

/// `dray egress purge`
#[derive(Debug, Args)]
pub(crate) struct EgressPurgeArgs {
    /// The URL of the stored response.
    #[arg(value_name = "URL")]
    pub(crate) url: String,
}

/// `dray egress token`
#[derive(Debug, Args)]
pub(crate) struct EgressTokenArgs {
    /// Session that the token stands for.
    #[arg(long, value_name = "ID")]
    pub(crate) session: SessionId,
    /// App of the session.
    #[arg(long, value_name = "ID")]
    pub(crate) app: Option<AppId>,
    /// Time until the token expires, and every connection with it; at most 30 days.
    #[arg(long, value_name = "TIME", default_value = "1h")]
    pub(crate) ttl: Period,
    /// Host that the session may reach, `example.com` or `*.example.com`, within the operator's policy. Can be given
    /// several times; without it the policy alone decides.
    #[arg(long, value_name = "HOST")]
    pub(crate) allow: Vec<String>,
}
