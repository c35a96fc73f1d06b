//! `dray policy` on the command line.

use std::path::PathBuf;

use clap::{Args, Subcommand, ValueEnum};
use dray_types::{AppId, Period, SessionId};

/// Check policies without a fetch.
#[derive(Debug, Subcommand)]
pub(crate) enum PolicyCommand {
    /// Explain whether a URL may be fetched, step by step. Nothing is fetched.
    ///
    /// The steps and the verdict are those of `dray fetch`: switches, URL, scheme, host lists, port, name, and with
    /// --resolve the addresses of the host. Each step names the setting that decides it and where its value comes from.
    /// The exit code is 0 for a URL that is allowed and 1 for one that is refused.
    ///
    /// For example: `dray policy explain https://files.example.org/a.pdf --allow '*.example.org'`
    Explain(PolicyExplainArgs),
    /// Check policy files against a table of expectations. Connects to nothing.
    ///
    /// The table is TOML: `[[expect]]` with `url` and `outcome` (allow, report, ask, deny), and optionally `tenant`,
    /// `session`, `app`, `via` (fetch, request, tunnel), `method` and `rule`. Each request is judged by the
    /// configuration and the policy, without DNS. The exit code is 0 when all are met and 1 otherwise.
    ///
    /// For example: `dray policy test expectations.toml --policy /etc/dray/egress-policy`
    Test(PolicyTestArgs),
    /// Show what another policy would have decided about past requests, from the audit stream.
    ///
    /// Each fetch and connection since --since is judged by both policies; `none` stands for no policy files. Requests
    /// that the configuration or the guard refused are left out. Paths are not recorded, so requests that a rule judges
    /// by path are counted as undecided.
    ///
    /// For example: `dray policy diff /etc/dray/egress-policy new-policy --since 7d`
    Diff(PolicyDiffArgs),
    /// Show the policy in the bucket of the bus: its revision, digest and files.
    ///
    /// `egress-fetcher` uses it with `policy_bucket = true`. The identity needs the rights of `operator`. With --to,
    /// the files are written to a directory, to be edited.
    ///
    /// For example: `dray policy show --to policy`
    Show(PolicyShowArgs),
    /// Replace the policy in the bucket of the bus with a file, or with the files `*.toml` of a directory.
    ///
    /// The files are checked first, and files of the bucket that are not among them are deleted. A reader sees all
    /// changes or none. --revision is that of the policy which they are based on, as `dray policy show` prints it; 0 for
    /// a bucket that was never written. If the bucket has another one, or gets another one meanwhile, the command fails,
    /// names who was first, and writes nothing.
    ///
    /// For example: `dray policy put policy --revision 41`
    Put(PolicyPutArgs),
    /// List the questions that wait for a person: whether a session may reach a host. Rules with the outcome `ask`
    /// cause them.
    ///
    /// The questions are those of the tenant in --tenant, in a running system.
    Questions(PolicyQuestionsArgs),
    /// Answer a question. The last answer holds, so an answer can be taken back.
    ///
    /// The answer holds for exactly the session, host and port of the question.
    ///
    /// For example: `dray policy answer egq_0f… allow --for 1h`
    Answer(PolicyAnswerArgs),
}

/// `dray policy show`
#[derive(Debug, Args)]
pub(crate) struct PolicyShowArgs {
    /// Directory for the files. It must be empty or not exist yet.
    #[arg(long, value_name = "DIRECTORY")]
    pub(crate) to: Option<PathBuf>,
}

/// `dray policy put`
#[derive(Debug, Args)]
pub(crate) struct PolicyPutArgs {
    /// Policy file, or directory of files.
    pub(crate) path: PathBuf,
    /// Revision of the bucket that the files are based on.
    #[arg(long, value_name = "NUMBER")]
    pub(crate) revision: u64,
    /// Person who changes the policy, for others: `dray policy show` prints the name. It is not verified.
    #[arg(long = "as", value_name = "NAME", default_value = "command-line")]
    pub(crate) principal: String,
}

/// `dray policy questions`
#[derive(Debug, Args)]
pub(crate) struct PolicyQuestionsArgs {
    /// List answered questions too, as long as their answers hold.
    #[arg(long)]
    pub(crate) all: bool,
}

/// The answer to a question.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum PolicyAnswer {
    /// The session may reach the host and port.
    Allow,
    /// The session may not reach the host, and no question about it is asked again before the answer ends.
    Deny,
}

/// `dray policy answer`
#[derive(Debug, Args)]
pub(crate) struct PolicyAnswerArgs {
    /// Id of the question, as `dray policy questions` and the refusal show it.
    pub(crate) id: String,
    /// Whether the session may reach the host.
    #[arg(value_enum)]
    pub(crate) answer: PolicyAnswer,
    /// How long the answer holds. The default and the maximum are `egress-fetcher.questions.answer_time`.
    #[arg(long = "for", value_name = "TIME")]
    pub(crate) valid_for: Option<Period>,
    /// Person who answers, for the audit event.
    #[arg(long = "as", value_name = "NAME", default_value = "command-line")]
    pub(crate) principal: String,
}

/// `dray policy test`
#[derive(Debug, Args)]
pub(crate) struct PolicyTestArgs {
    /// File with the expectations.
    pub(crate) file: PathBuf,
    /// Policy file, or directory of files, or `bucket` for the bucket of the bus, instead of
    /// `egress-fetcher.policy_path` or `policy_bucket`.
    #[arg(long, value_name = "PATH")]
    pub(crate) policy: Option<PathBuf>,
}

/// `dray policy diff`
#[derive(Debug, Args)]
pub(crate) struct PolicyDiffArgs {
    /// Old policy: a file or a directory, `bucket` for the bucket of the bus, or `none` for no policy.
    pub(crate) old: PathBuf,
    /// New policy: a file or a directory, `bucket` for the bucket of the bus, or `none` for no policy.
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
    /// Policy of the app: a file with `{"enabled": null|bool, "host_allowlist": null|[…]}`.
    #[arg(long, value_name = "FILE", conflicts_with = "allow")]
    pub(crate) app_policy: Option<PathBuf>,
    /// Look up the host and judge its addresses. Counts as a fetch for the limits, and is audited.
    #[arg(long)]
    pub(crate) resolve: bool,
    /// App whose policy rules apply. The tenant is that of --tenant.
    #[arg(long, value_name = "ID")]
    pub(crate) app: Option<AppId>,
    /// Session whose policy rules apply.
    #[arg(long, value_name = "ID")]
    pub(crate) session: Option<SessionId>,
    /// Name of the client certificate whose policy rules apply: its first URI, or without one its first DNS name. The
    /// tenant, session and app are those of the other options. Default: none.
    #[arg(long, value_name = "NAME")]
    pub(crate) certificate: Option<String>,
}
