//! The arguments of `dray sandbox`.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, Subcommand};
use dray_types::ByteSize;

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
    /// The status is that of the program, 128 + n for signal n, 124 at the time limit, 141 when the reader of its output
    /// has ended, and 1 when it was not run.
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
