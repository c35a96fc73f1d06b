//! What can be typed about sandboxes, deliveries and sessions.

use std::path::PathBuf;

use clap::builder::{OsStringValueParser, TypedValueParser};
use clap::{Args, Subcommand};
use dray_types::ByteSize;

/// A directory, or nothing, which a path may not be.
fn directory() -> impl TypedValueParser<Value = PathBuf> {
    OsStringValueParser::new().map(PathBuf::from)
}

/// `dray send`
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  dray send /workspace/report.pdf --from docker:web --to telegram:12345
  dray send /srv/box/a.csv /srv/box/b.csv --from local:/srv/box --message 'The figures'
  dray send report.pdf --session chat-7 --nats nats://127.0.0.1:4222

Without --to and --session the files are copied into the current directory. With --delivery-id the same command
again continues the same delivery instead of sending twice.")]
pub(crate) struct Send {
    /// Files or directories in the sandbox: absolute, `~/…`, or relative to its working directory. A directory is
    /// sent as a ZIP.
    #[arg(required = true, value_name = "PATH")]
    pub(crate) paths: Vec<PathBuf>,
    /// Sandbox that holds them, for example `docker:web`, `ssh:me@host`, `local:/srv/box`.
    #[arg(long, value_name = "SANDBOX")]
    pub(crate) from: Option<String>,
    #[command(flatten)]
    pub(crate) way: Way,
}

/// `dray deliver`
#[derive(Debug, Args)]
#[command(after_help = "\
Example:
  dray deliver report.pdf --to slack:C0123 --message 'As promised'")]
pub(crate) struct Deliver {
    /// Files on this machine.
    #[arg(required = true, value_name = "FILE")]
    pub(crate) files: Vec<PathBuf>,
    #[command(flatten)]
    pub(crate) way: Way,
}

/// Where a delivery goes, and how.
#[derive(Debug, Args)]
pub(crate) struct Way {
    /// Where to: `PLATFORM[/ACCOUNT]:CHAT[#THREAD]`, for example `telegram:12345`; `cli:` is the current directory.
    #[arg(long, value_name = "TARGET")]
    pub(crate) to: Option<String>,
    /// Session whose sandbox and chat are meant where they are not named.
    #[arg(long, value_name = "ID")]
    pub(crate) session: Option<String>,
    /// What to say with the files.
    #[arg(short, long, value_name = "TEXT", default_value = "")]
    pub(crate) message: String,
    /// Sends everything as a plain document: exact bytes, no photo or video player.
    #[arg(long)]
    pub(crate) as_document: bool,
    /// Sends audio as a voice message.
    #[arg(long)]
    pub(crate) as_voice: bool,
    /// Hides pictures until they are clicked, where the platform can.
    #[arg(long)]
    pub(crate) spoiler: bool,
    /// Shows account, policy, limits and routes, and sends nothing.
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Id of the delivery; the same id again is the same delivery.
    #[arg(long, value_name = "ID")]
    pub(crate) delivery_id: Option<String>,
    /// Seconds to wait for the end.
    #[arg(long, value_name = "SECONDS", default_value_t = 600)]
    pub(crate) timeout: u64,
}

/// `dray sandbox`
#[derive(Debug, Subcommand)]
pub(crate) enum Sandbox {
    /// Shows what a sandbox offers.
    Probe {
        /// The sandbox, for example `docker:web`.
        sandbox: String,
    },
    /// Shows what a path is.
    Stat {
        /// The sandbox.
        sandbox: String,
        /// The path in it.
        path: PathBuf,
        /// Follows a link at the end.
        #[arg(short = 'L', long)]
        follow: bool,
    },
    /// Lists a directory.
    Ls {
        /// The sandbox.
        sandbox: String,
        /// The directory in it; its working directory by default.
        #[arg(default_value = ".")]
        path: PathBuf,
        /// Levels to go down.
        #[arg(long, value_name = "N", default_value_t = 1)]
        depth: u32,
        /// Most entries.
        #[arg(long, value_name = "N", default_value_t = 1000)]
        limit: u32,
    },
    /// Copies a file, or a directory as a ZIP, to this machine, with proof.
    Get {
        /// The sandbox.
        sandbox: String,
        /// The path in it.
        path: PathBuf,
        /// Where to write; `-` is standard output. The file's own name in the current directory by default; an existing
        /// file is never overwritten unless it is named here.
        #[arg(short, long, value_name = "FILE")]
        output: Option<PathBuf>,
        /// Most bytes to take.
        #[arg(long, value_name = "N")]
        size_limit: Option<ByteSize>,
        /// Takes a directory as a tar instead of a ZIP.
        #[arg(long)]
        tar: bool,
        /// Seconds it may take in all.
        #[arg(long, value_name = "SECONDS", default_value_t = 600)]
        timeout: u64,
    },
    /// Copies a file of this machine into a sandbox, with proof. The same command again finds the file in place.
    Put {
        /// The file here; `-` is standard input, which needs --name.
        file: PathBuf,
        /// The sandbox.
        sandbox: String,
        /// Directory in it; its working directory by default.
        #[arg(default_value = ".")]
        directory: PathBuf,
        /// Name there; the file's own by default.
        #[arg(long)]
        name: Option<String>,
        /// What to do when the name is taken: rename, fail or overwrite.
        #[arg(long, default_value = "rename", value_parser = ["rename", "fail", "overwrite"])]
        collision: String,
        /// Seconds it may take in all.
        #[arg(long, value_name = "SECONDS", default_value_t = 600)]
        timeout: u64,
    },
    /// Removes a file, or a directory with what is in it.
    Rm {
        /// The sandbox.
        sandbox: String,
        /// The path in it.
        path: PathBuf,
        /// Removes a directory with what is in it.
        #[arg(short, long)]
        recursive: bool,
    },
}

/// `dray receipts`
#[derive(Debug, Args)]
pub(crate) struct Receipts {
    /// Only this delivery.
    #[arg(value_name = "DELIVERY")]
    pub(crate) delivery: Option<String>,
    /// Only of this session.
    #[arg(long, value_name = "ID", default_value = "")]
    pub(crate) session: String,
    /// Only what runs, failed, was refused or is unknown.
    #[arg(long)]
    pub(crate) open: bool,
    /// Most deliveries.
    #[arg(long, value_name = "N", default_value_t = 50)]
    pub(crate) limit: u32,
}

/// `dray resend`
#[derive(Debug, Args)]
pub(crate) struct Resend {
    /// Id of the earlier delivery, from `dray receipts`.
    pub(crate) delivery: String,
    /// Also sends again what was delivered.
    #[arg(long)]
    pub(crate) all: bool,
    /// Seconds to wait for the end.
    #[arg(long, value_name = "SECONDS", default_value_t = 600)]
    pub(crate) timeout: u64,
}

/// `dray session`
#[derive(Debug, Subcommand)]
pub(crate) enum Session {
    /// Binds a sandbox, a chat, or both to a session.
    Bind {
        /// Session id.
        session: String,
        /// Sandbox, for example `docker:web`. It is bound to its present incarnation.
        #[arg(long, value_name = "SANDBOX", default_value = "")]
        sandbox: String,
        /// Chat, for example `telegram:12345`.
        #[arg(long, value_name = "TARGET")]
        chat: Option<String>,
        /// Working directory in the sandbox; the sandbox's own by default.
        #[arg(long, value_name = "DIR", default_value = "", value_parser = directory())]
        working_directory: PathBuf,
        /// Directory for files of the user; `uploads` in the working directory by default.
        #[arg(long, value_name = "DIR", default_value = "", value_parser = directory())]
        uploads_directory: PathBuf,
        /// Further directory that files may come from. Can be given several times.
        #[arg(long = "root", value_name = "DIR")]
        roots: Vec<PathBuf>,
    },
    /// Shows what is bound to a session.
    Show {
        /// Session id.
        session: String,
    },
    /// Forgets a session, or only its sandbox.
    Unbind {
        /// Session id.
        session: String,
        /// Forgets only the sandbox.
        #[arg(long)]
        sandbox_only: bool,
    },
    /// Shows the uploads of a session, and puts those that wait into its sandbox.
    Uploads {
        /// Session id.
        session: String,
        /// Shows those that were told of before too.
        #[arg(long)]
        all: bool,
    },
}
