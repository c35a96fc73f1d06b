//! `dray completions` and `dray man`: completion scripts and manual pages, generated from the same definitions as
//! `--help`.

use std::path::Path;

use clap::CommandFactory as _;
use clap_complete::Shell;

use crate::cli::Cli;
use crate::outcome::{CommandFailure, print_text};

/// Prints the completion script of `shell` to standard output.
pub(crate) fn print_completions(shell: Shell) {
    // Into memory first: `generate` panics where its writer fails.
    let mut script: Vec<u8> = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "dray", &mut script);
    print_text(&String::from_utf8_lossy(&script));
}

/// Writes one page for each visible command into `directory`, which is created when it is missing.
pub(crate) fn write_pages(directory: &Path) -> Result<(), CommandFailure> {
    let cannot = || CommandFailure::local(format!("cannot write into {}", directory.display()));
    std::fs::create_dir_all(directory).map_err(cannot())?;
    clap_mangen::generate_to(Cli::command(), directory).map_err(cannot())
}
