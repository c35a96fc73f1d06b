//! The project's own commands: `cargo xtask --help`.
//!
//! Each command is a module; this file only names them. What a command needs of the machine stands as data in
//! `need`, what must stay true of the source stands in `tidy`.
#![expect(
    clippy::print_stderr,
    reason = "a command line speaks on its standard streams"
)]

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context as _;
use clap::{Parser, Subcommand};

mod check;
mod compatibility;
mod conformance;
mod fuzz;
mod generate;
mod heavy;
mod metadata;
mod monitoring;
mod need;
mod new;
mod npm;
mod python;
mod python_contracts;
mod step;
mod suite;
mod tidy;
mod typescript_contracts;

/// Checks, tests, measures and generates.
#[derive(Parser)]
#[command(
    name = "cargo xtask",
    arg_required_else_help = true,
    after_help = "Most used:\n  \
        cargo xtask test                  everything a change must pass, installing what it needs when it may\n  \
        cargo xtask test -- redirect      only tests whose name contains `redirect`\n  \
        cargo xtask check                 the same and formatting, lints, documentation\n  \
        cargo xtask bench                 how fast, against the plain way of doing the same\n\n\
        Installs happen only when run as root on Debian or a relative of it; otherwise the command says what to\n\
        install and stops."
)]
struct XtaskArgs {
    #[command(subcommand)]
    command: XtaskCommand,
}

#[derive(Subcommand)]
enum XtaskCommand {
    /// Formatting, lints, tests, documentation, generated files and the source rules: the whole of CI.
    Check,
    /// The test command: prepares the machine, then runs all tests, generated files and source rules included.
    Test {
        /// Prepares the machine and stops.
        #[arg(long)]
        prepare: bool,
        /// Only tests whose name contains this; what follows goes to the test runner as it is.
        #[arg(last = true)]
        filter: Vec<String>,
    },
    /// Measures against the plain way of doing the same, in a release build.
    Bench {
        /// Names of measurements and switches of the bench binary; everything without one.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        names: Vec<String>,
    },
    /// Fault tests that need minutes: restarts, clocks, hundreds of kills.
    Soak {
        /// How often each service is killed in the round of deliveries; 200 without it.
        #[arg(long, value_parser = clap::value_parser!(u64).range(1..))]
        rounds: Option<u64>,
        /// Repeats the choices of a run that printed this.
        #[arg(long)]
        seed: Option<u64>,
        /// Only tests whose name contains this.
        #[arg(last = true)]
        filter: Vec<String>,
    },
    /// The release binary in network namespaces with packet counters. Needs root.
    Blackbox {
        /// Only tests whose name contains this.
        #[arg(last = true)]
        filter: Vec<String>,
    },
    /// Feeds parsers of untrusted bytes with mutated input until a finding or the time is up.
    Fuzz {
        /// Minutes for each target.
        #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..))]
        minutes: u64,
        /// The target; all of them, one after another, without it.
        target: Option<String>,
    },
    /// The official conformance suite of MCP against our server and our client. Needs npm and its registry.
    Conformance {
        /// Prints all results as JSON on standard output.
        #[arg(long)]
        json: bool,
    },
    /// What a first build spends its time on, as a tree. Builds from nothing: takes minutes.
    Heavy {
        /// Reads the report of a `cargo build --timings` instead.
        #[arg(long, value_name = "HTML")]
        report: Option<PathBuf>,
        /// Puts the tree into CONTRIBUTING.md.
        #[arg(long)]
        write: bool,
    },
    /// Write the skeleton of a new platform, backend, tool or format, and print what is left to do by hand.
    ///
    /// The skeleton compiles, passes tidy, and its tests pass: it speaks a simple wire to a fake of its own, which the
    /// new one replaces. When anything fails, no file is written.
    #[command(after_help = "Examples:\n  \
        cargo xtask new platform acme     a crate dray-platform-acme, its account, queue, rights and page\n  \
        cargo xtask new backend box2      a crate dray-sandbox-box2, its section, address and page\n  \
        cargo xtask new tool web-search   a crate dray-tool-web-search and its tool set in manifests\n  \
        cargo xtask new format org        a module of dray-documents and its page\n\n\
        Names are kebab-case: lower-case letters and digits, words with a dash between them. Platforms and backends\n\
        have one word. ARCHITECTURE.md has the same steps.")]
    New {
        /// What to add.
        kind: new::ExtensionKind,
        /// Its name, as it will stand in configuration, addresses and crates.
        name: String,
    },
    /// Writes every generated file again.
    Generate {
        /// Changes nothing; fails when a file would change.
        #[arg(long)]
        check: bool,
    },
    /// Refuse changes of proto/ that break clients of the last release.
    Contracts {
        /// Makes the present contracts those of the last release, where they break nothing.
        #[arg(long)]
        release: bool,
    },
    /// Rules about the source that no compiler knows: who may depend on whom, licences, coverage of the security rules.
    Tidy,
}

fn main() -> ExitCode {
    match run_command(XtaskArgs::parse().command) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn run_command(command: XtaskCommand) -> anyhow::Result<()> {
    let root = workspace_root()?;
    match command {
        XtaskCommand::Check => check::run_checks(&root),
        // The variables are for the tests that would follow.
        XtaskCommand::Test { prepare: true, .. } => suite::prepare_environment(&root).map(drop),
        XtaskCommand::Test { filter, .. } => suite::run_tests(&root, &filter),
        XtaskCommand::Bench { names } => run_benchmarks(&root, &names),
        XtaskCommand::Soak {
            rounds,
            seed,
            filter,
        } => suite::run_soak(&root, rounds, seed, &filter),
        XtaskCommand::Blackbox { filter } => suite::run_blackbox(&root, &filter),
        XtaskCommand::Fuzz { minutes, target } => {
            fuzz::run_targets(&root, minutes, target.as_deref())
        }
        XtaskCommand::Conformance { json } => conformance::run_suite(&root, json),
        XtaskCommand::Generate { check } => generate::run_generators(&root, check),
        XtaskCommand::New { kind, name } => new::run_new(&root, kind, &name),
        XtaskCommand::Heavy { report, write } => heavy::run_report(&root, report, write),
        XtaskCommand::Contracts { release } => compatibility::run_check(&root, release),
        XtaskCommand::Tidy => tidy::run_tidy(&root),
    }
}

/// The measurements are a binary of their own, so that this one stays small.
fn run_benchmarks(root: &Path, names: &[String]) -> anyhow::Result<()> {
    need::ensure_programs(need::BENCH_PROGRAMS)?;
    step::cargo_step(root)
        .args(["run", "--release", "--package", "dray-bench", "--"])
        .args(names)
        .run()
}

/// The folder of the workspace manifest.
fn workspace_root() -> anyhow::Result<PathBuf> {
    let manifest = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    Ok(manifest
        .parent()
        .context("xtask stands below the workspace root")?
        .to_path_buf())
}
