//! `dray policy` on the command line.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use dray_types::{AppId, Period, SessionId};

/// What is known of a URL before anything is fetched.
#[derive(Debug, Subcommand)]
pub(crate) enum PolicyCommand {
    /// Explain whether a URL may be fetched, step by step. Nothing is fetched.
    ///
    /// The steps are those of `dray fetch`, and so is the verdict: switches, URL, scheme, host lists, port, name, and
    /// with --resolve the addresses of the host. Each step names the setting that decides it and where its value comes
    /// from. The exit code is 0 for a URL that is allowed and 1 for one that is refused.
    ///
    /// For example: `dray policy explain https://files.example.org/a.pdf --allow '*.example.org'`
    Explain(PolicyExplainArgs),
    /// Check policy files against a table of expectations. Connects to nothing.
    ///
    /// The table is TOML: `[[expect]]` with `url` and `outcome` (allow, report, deny), and where wanted `tenant`, `session`,
    /// `app`, `via` (fetch, request, tunnel), `method` and `rule`. Each request is judged by the configuration and the
    /// policy, without DNS. The exit code is 0 when all are met and 1 otherwise.
    ///
    /// For example: `dray policy test expectations.toml --policy /etc/dray/egress-policy`
    Test(PolicyTestArgs),
    /// Show what another policy would have decided about past requests, from the audit stream.
    ///
    /// Each fetch and connection since --since is judged by both policies; `none` stands for no policy files. Requests that
    /// the configuration or the guard refused are left out. Paths are not recorded, so requests that a rule judges by path
    /// are counted as undecided.
    ///
    /// For example: `dray policy diff /etc/dray/egress-policy new-policy --since 7d`
    Diff(PolicyDiffArgs),
}

/// `dray policy test`
#[derive(Debug, Args)]
pub(crate) struct PolicyTestArgs {
    /// File with the expectations.
    pub(crate) file: PathBuf,
    /// Policy file, or directory of files, instead of `egress-fetcher.policy_path`.
    #[arg(long, value_name = "PATH")]
    pub(crate) policy: Option<PathBuf>,
}

/// `dray policy diff`
#[derive(Debug, Args)]
pub(crate) struct PolicyDiffArgs {
    /// Policy file or directory as it is; `none` for no policy.
    pub(crate) old: PathBuf,
    /// Policy file or directory as it would be; `none` for no policy.
    pub(crate) new: PathBuf,
    /// How far back the audit stream is read.
    #[arg(long, value_name = "TIME", default_value = "7d")]
    pub(crate) since: Period,
}

/// `dray policy explain`
#[derive(Debug, Args)]
pub(crate) struct PolicyExplainArgs {
    /// The URL, as an agent would write it.
    pub(crate) url: String,
    /// Host that the app allows, `example.com` or `*.example.com`. Can be given several times; without it the app
    /// allows every host.
    #[arg(long, value_name = "HOST")]
    pub(crate) allow: Vec<String>,
    /// What the app allows: a file with `{"enabled": null|bool, "host_allowlist": null|[…]}`.
    #[arg(long, value_name = "FILE", conflicts_with = "allow")]
    pub(crate) app_policy: Option<PathBuf>,
    /// Look the host up and judge its addresses. Counts as a fetch for the limits, and is audited.
    #[arg(long)]
    pub(crate) resolve: bool,
    /// App that asks, for the rules of policy files. The tenant is that of --tenant.
    #[arg(long, value_name = "ID")]
    pub(crate) app: Option<AppId>,
    /// Session that asks, for the rules of policy files.
    #[arg(long, value_name = "ID")]
    pub(crate) session: Option<SessionId>,
}
