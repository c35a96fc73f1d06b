//! The arguments of `dray session`.

use std::path::PathBuf;

use clap::Subcommand;
use clap::builder::{OsStringValueParser, TypedValueParser};

/// Parses a directory, which may be empty in contrast to a path.
fn directory_parser() -> impl TypedValueParser<Value = PathBuf> {
    OsStringValueParser::new().map(PathBuf::from)
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
