//! The project's own commands: `cargo xtask --help`.

use std::path::PathBuf;

use anyhow::Context as _;
use clap::{Parser, Subcommand};

mod generate;

#[derive(Parser)]
#[command(
    name = "cargo xtask",
    about = "Checks, tests, measures and generates.",
    arg_required_else_help = true
)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Writes every generated file anew.
    Generate {
        /// Changes nothing; fails when a file would change.
        #[arg(long)]
        check: bool,
    },
}

fn main() -> anyhow::Result<()> {
    let arguments = Arguments::parse();
    let root = workspace_root()?;
    match arguments.command {
        Command::Generate { check } => generate::run(&root, check),
    }
}

/// The folder of the workspace manifest.
fn workspace_root() -> anyhow::Result<PathBuf> {
    let manifest = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    Ok(manifest
        .parent()
        .context("xtask stands below the workspace root")?
        .to_path_buf())
}
