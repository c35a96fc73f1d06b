//! `dray policy` on the command line.

use std::path::PathBuf;

use clap::{Args, Subcommand};

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
}
