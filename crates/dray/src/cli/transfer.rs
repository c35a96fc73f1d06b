//! The arguments for sandboxes, deliveries and sessions.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::builder::{OsStringValueParser, TypedValueParser};
use clap::{Args, Subcommand};
use dray_types::ByteSize;

/// Parses a directory, which may be empty in contrast to a path.
fn directory_parser() -> impl TypedValueParser<Value = PathBuf> {
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
pub(crate) struct SendArgs {
    /// Files or directories in the sandbox: absolute, `~/…`, or relative to its working directory. A directory is
    /// sent as a ZIP.
    #[arg(required = true, value_name = "PATH")]
    pub(crate) paths: Vec<PathBuf>,
    /// Sandbox that holds them, for example `docker:web`, `ssh:me@host`, `local:/srv/box`.
    #[arg(long, value_name = "SANDBOX")]
    pub(crate) from: Option<String>,
    #[command(flatten)]
    pub(crate) options: DeliveryOptions,
}

/// `dray deliver`
#[derive(Debug, Args)]
#[command(after_help = "\
Example:
  dray deliver report.pdf --to slack:C0123 --message 'As promised'")]
pub(crate) struct DeliverArgs {
    /// Files on this machine.
    #[arg(required = true, value_name = "FILE")]
    pub(crate) files: Vec<PathBuf>,
    #[command(flatten)]
    pub(crate) options: DeliveryOptions,
}

/// Target and options of a delivery.
#[derive(Debug, Args)]
pub(crate) struct DeliveryOptions {
    /// Where to: `PLATFORM[/ACCOUNT]:CHAT[#THREAD]`, for example `telegram:12345`; `cli:` is the current directory.
    #[arg(long, value_name = "TARGET")]
    pub(crate) to: Option<String>,
    /// Session whose sandbox and chat are used where no option names them.
    #[arg(long, value_name = "ID")]
    pub(crate) session: Option<String>,
    /// Text that is sent with the files.
    #[arg(short, long, value_name = "TEXT", default_value = "")]
    pub(crate) message: String,
    #[command(flatten)]
    pub(crate) appearance: AppearanceArgs,
    /// Show account, policy, limits and routes, and send nothing.
    #[arg(long)]
    pub(crate) dry_run: bool,
    /// Id of the delivery. The same id again continues the same delivery.
    #[arg(long, value_name = "ID")]
    pub(crate) delivery_id: Option<String>,
    /// Seconds to wait for the end.
    #[arg(long, value_name = "SECONDS", default_value_t = 600, value_parser = super::seconds_parser())]
    pub(crate) timeout: u64,
}

/// Options for the appearance of files on the platform.
#[derive(Debug, Args)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a flag of the command line"
)]
pub(crate) struct AppearanceArgs {
    /// Send everything as a plain document: exact bytes, no photo or video player.
    #[arg(long)]
    pub(crate) as_document: bool,
    /// Send audio as a voice message.
    #[arg(long)]
    pub(crate) as_voice: bool,
    /// Hide pictures until they are clicked, where the platform can.
    #[arg(long)]
    pub(crate) spoiler: bool,
    /// Send a link to a preview in place of each file of the session's sandbox, which stays there.
    /// `platform-delivery.preview_links` must allow it. The receipt says whether the link was opened.
    #[arg(long)]
    pub(crate) as_preview: bool,
}

/// `dray sandbox`
#[derive(Debug, Subcommand)]
pub(crate) enum SandboxCommand {
    /// Show what a sandbox offers.
    Probe {
        /// The sandbox, for example `docker:web`.
        sandbox: String,
    },
    /// Show what a path is.
    Stat {
        /// Address, for example `docker:web` or `ssh:me@host`.
        sandbox: String,
        /// Path in the sandbox, absolute or below its working directory.
        path: PathBuf,
        /// Follow a symbolic link at the end of the path.
        #[arg(short = 'L', long)]
        follow: bool,
    },
    /// List a directory.
    Ls {
        /// Address, for example `docker:web` or `ssh:me@host`.
        sandbox: String,
        /// The directory in it; its working directory by default.
        #[arg(default_value = ".")]
        path: PathBuf,
        /// Levels of directories to list.
        #[arg(long, value_name = "N", default_value_t = 1)]
        depth: u32,
        /// Most entries to list.
        #[arg(long, value_name = "N", default_value_t = 1000, value_parser = clap::value_parser!(u32).range(1..))]
        limit: u32,
    },
    /// Copy files, or directories as a ZIP each, to this machine, with proof.
    Get(SandboxGet),
    /// Copy files and directories of this machine into a sandbox, with proof. The same command again does not copy
    /// files that are in place already.
    #[command(override_usage = "dray sandbox put [OPTIONS] <FILE>... <SANDBOX> [DIRECTORY]")]
    Put(SandboxPut),
    /// Copy files and directories between two sandboxes, or between one and this machine, with proof.
    ///
    /// A path in a sandbox is written SANDBOX:PATH, for example docker:web:/data/a.csv or ssh:me@host:~/a.csv; PATH
    /// begins with `/`, `~` or `.`; without PATH the working directory is meant. Everything else is a path of this
    /// machine; write `./` in front of one that contains a colon.
    ///
    /// If TO is an existing directory or ends with `/`, what is copied keeps its name in there; any other TO is the new
    /// name. FROM/. copies the contents of a directory. A directory that exists already is merged. Permission bits and
    /// empty directories are copied, links and special files are left out and reported. A file appears under its name
    /// once all of it is copied and proved; a file that failed is reported and leaves nothing behind.
    #[command(override_usage = "dray sandbox cp [OPTIONS] <FROM>... <TO>")]
    Cp(SandboxCp),
    /// Run one program in a sandbox and end with its status.
    ///
    /// The words after `--` are the program and its arguments; no shell reads them. The program ends with this command,
    /// and so does everything that it started. A running system needs a rule in `sandbox-transfer.commands.allow`; if
    /// no running system is named, this command opens the sandbox itself and allows the program.
    ///
    /// The status is that of the program, 128 + n for signal n, 124 at the time limit, and 1 when it was not run.
    Exec(SandboxExec),
    /// Remove a file, or a directory with its contents.
    Rm {
        /// Address, for example `docker:web` or `ssh:me@host`.
        sandbox: String,
        /// Path in the sandbox, absolute or below its working directory.
        path: PathBuf,
        /// Remove a directory with its contents.
        #[arg(short, long)]
        recursive: bool,
    },
}

/// `dray sandbox get`
#[derive(Debug, Args)]
pub(crate) struct SandboxGet {
    /// Address, for example `docker:web` or `ssh:me@host`.
    pub(crate) sandbox: String,
    /// Paths in the sandbox, absolute or below its working directory.
    #[arg(required = true, value_name = "PATH")]
    pub(crate) paths: Vec<PathBuf>,
    /// Where to write: a file, an existing directory, or `-` for standard output. Default: the file's own name in the
    /// current directory. An existing file is overwritten only if it is named here. Several paths need a directory.
    #[arg(short, long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
    /// Most bytes of each path to take.
    #[arg(long, value_name = "N", value_parser = super::positive_size)]
    pub(crate) size_limit: Option<ByteSize>,
    /// Take a directory as a tar instead of a ZIP.
    #[arg(long)]
    pub(crate) tar: bool,
    #[command(flatten)]
    pub(crate) transfer: TransferOptions,
}

/// `dray sandbox put`
#[derive(Debug, Args)]
pub(crate) struct SandboxPut {
    /// Files and directories here, then the sandbox, then a directory in it (its working directory by default, made
    /// when missing). The first operand of the form KIND:NAME after a file is the sandbox; write `./` in front of a
    /// file with such a name. `-` alone is standard input, which needs --name. A directory keeps its name; links and
    /// special files in it are left out and reported.
    #[arg(required = true, num_args = 2.., value_name = "OPERAND")]
    pub(crate) operands: Vec<PathBuf>,
    /// Name of the file in the sandbox, if only one is copied. Default: its own.
    #[arg(long)]
    pub(crate) name: Option<String>,
    /// Action when another file has the name: rename the new file, fail, or overwrite. Directories of
    /// the same name are merged.
    #[arg(long, default_value = "rename", value_parser = ["rename", "fail", "overwrite"])]
    pub(crate) collision: String,
    #[command(flatten)]
    pub(crate) transfer: TransferOptions,
}

/// `dray sandbox cp`
#[derive(Debug, Args)]
pub(crate) struct SandboxCp {
    /// Files to copy, and last the destination.
    #[arg(required = true, num_args = 2.., value_name = "PATH")]
    pub(crate) operands: Vec<PathBuf>,
    /// Action when another file has the name: overwrite it, fail, or rename the new file.
    #[arg(long, default_value = "overwrite", value_parser = ["overwrite", "fail", "rename"])]
    pub(crate) collision: String,
    #[command(flatten)]
    pub(crate) transfer: TransferOptions,
}

/// `dray sandbox exec`
#[derive(Debug, Args)]
#[command(after_help = "\
Examples:
  dray sandbox exec docker:web -- python3 -c 'print(1 + 1)'
  dray sandbox exec chat-7 --nats nats://127.0.0.1:4222 -- sh -c 'ls | wc -l'
  dray sandbox exec docker:web --input data.csv --env LANG=C -- sort -u")]
pub(crate) struct SandboxExec {
    /// The sandbox, for example `docker:web`, or the id of a session of a running system.
    #[arg(value_name = "SANDBOX_OR_SESSION")]
    pub(crate) sandbox: String,
    /// Program and arguments.
    #[arg(required = true, last = true, value_name = "ARGV")]
    pub(crate) argv: Vec<OsString>,
    /// Directory in the sandbox; its working directory by default.
    #[arg(short = 'C', long, value_name = "DIR")]
    pub(crate) directory: Option<PathBuf>,
    /// Variable of its environment, as NAME=VALUE. Can be given several times.
    #[arg(short, long = "env", value_name = "NAME=VALUE")]
    pub(crate) environment: Vec<String>,
    /// File for the standard input of the program; `-` passes on the input of this command. Empty by default.
    #[arg(short, long, value_name = "FILE")]
    pub(crate) input: Option<PathBuf>,
    /// Most bytes of standard output to keep.
    #[arg(long, value_name = "N")]
    pub(crate) output_limit: Option<ByteSize>,
    /// Seconds it may run.
    #[arg(long, value_name = "SECONDS", default_value_t = 600, value_parser = super::seconds_parser())]
    pub(crate) timeout: u64,
}

/// Options of every copy.
#[derive(Clone, Copy, Debug, Args)]
pub(crate) struct TransferOptions {
    /// Keep the copied part of a file when the command is interrupted, and continue there the next time. The file must
    /// have the same size, time and inode, and a digest of the whole file decides. Otherwise it is copied from its
    /// beginning, and `resumed` in the receipt is false. Not between two sandboxes.
    #[arg(long)]
    pub(crate) resume: bool,
    /// Seconds it may take in all.
    #[arg(long, value_name = "SECONDS", default_value_t = 600, value_parser = super::seconds_parser())]
    pub(crate) timeout: u64,
}

/// `dray receipts`
#[derive(Debug, Args)]
pub(crate) struct ReceiptsArgs {
    /// Only the receipt of this delivery.
    #[arg(value_name = "DELIVERY")]
    pub(crate) delivery: Option<String>,
    /// Only receipts of this session.
    #[arg(long, value_name = "ID", default_value = "")]
    pub(crate) session: String,
    /// Only deliveries that run, failed, were refused or have an unknown outcome.
    #[arg(long)]
    pub(crate) open: bool,
    /// Also print the address of each delivery in the console at this URL, for example `http://127.0.0.1:7300`.
    #[arg(long, value_name = "URL")]
    pub(crate) console: Option<String>,
    /// Most deliveries to show.
    #[arg(long, value_name = "N", default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) limit: u32,
}

/// `dray resend`
#[derive(Debug, Args)]
pub(crate) struct ResendArgs {
    /// Id of the earlier delivery, from `dray receipts`.
    pub(crate) delivery: String,
    /// Also send the files that were delivered already.
    #[arg(long)]
    pub(crate) all: bool,
    /// Seconds to wait for the end.
    #[arg(long, value_name = "SECONDS", default_value_t = 600, value_parser = super::seconds_parser())]
    pub(crate) timeout: u64,
}

/// `dray session`
#[derive(Debug, Subcommand)]
pub(crate) enum SessionCommand {
    /// Bind a sandbox, a chat, or both to a session.
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
        #[arg(long, value_name = "DIR", default_value = "", value_parser = directory_parser())]
        working_directory: PathBuf,
        /// Directory for files of the user; `uploads` in the working directory by default.
        #[arg(long, value_name = "DIR", default_value = "", value_parser = directory_parser())]
        uploads_directory: PathBuf,
        /// Further directory that files may come from. Can be given several times.
        #[arg(long = "root", value_name = "DIR")]
        roots: Vec<PathBuf>,
    },
    /// Show what is bound to a session.
    Show {
        /// Session id.
        session: String,
    },
    /// Delete the bindings of a session, or only its sandbox.
    Unbind {
        /// Session id.
        session: String,
        /// Delete only the binding of the sandbox.
        #[arg(long)]
        sandbox_only: bool,
    },
    /// Show the uploads of a session, and put those that wait into its sandbox.
    Uploads {
        /// Session id.
        session: String,
        /// Also show failures that were reported before.
        #[arg(long)]
        all: bool,
    },
}
