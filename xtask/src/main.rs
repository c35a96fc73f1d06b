//! The project's own commands: `cargo xtask --help`.
//!
//! Each command is a module; this file only lists them. The programs that a command needs are data in
//! `required_programs`; the rules of the source are in `tidy`.
#![expect(
    clippy::print_stderr,
    reason = "a command-line program writes to its standard streams"
)]

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::Context as _;
use clap::{Parser, Subcommand};

mod check;
mod compatibility;
mod disk;
mod dist;
mod fuzz;
mod generate;
mod heavy;
mod kubectl;
mod message_limits;
mod metadata;
mod monitoring;
mod new;
mod npm;
mod python;
mod python_client;
mod python_contracts;
mod required_programs;
mod step;
mod suite;
mod tidy;
mod tool_definitions;
mod typescript_contracts;

/// Check, test, measure and generate.
#[derive(Parser)]
#[command(
    name = "cargo xtask",
    arg_required_else_help = true,
    after_help = "Most used:\n  \
        cargo xtask test                  all tests; installs missing programs where it may\n  \
        cargo xtask test -- redirect      only tests whose name contains `redirect`\n  \
        cargo xtask lint                  formatting, lints, documentation: no warning in any target\n  \
        cargo xtask check                 both: before you send a change\n  \
        cargo xtask bench                 speed, compared with the plain method for the same task\n\n\
        Programs are installed only as root on Debian or a relative of it; otherwise the command prints what to\n\
        install and stops."
)]
struct XtaskArgs {
    #[command(subcommand)]
    command: XtaskCommand,
}

#[derive(Subcommand)]
enum XtaskCommand {
    /// Check formatting, Clippy's lints and the documentation; refuse every warning, in tests and examples too.
    Lint,
    /// Run `lint`, then `test`: everything that a change must pass.
    Check,
    /// Prepare the machine, then run all tests, with the checks of generated files and source rules.
    Test {
        /// Prepare the machine and stop.
        #[arg(long)]
        prepare: bool,
        /// Seed for the cases of property tests; the same in every run by default.
        #[arg(long, default_value_t = suite::PROPERTY_SEED)]
        seed: u64,
        /// Run only tests whose name contains this; all words after `--` go to the test runner unchanged.
        #[arg(last = true)]
        filter: Vec<String>,
    },
    /// Compare the speed with the plain method for the same task, in a release build.
    Bench {
        /// Names of measurements and switches of the bench binary; without one, all measurements run.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        names: Vec<String>,
    },
    /// Run the fault tests that take minutes: restarts, clock changes, hundreds of kills.
    Soak {
        /// Kills of each service in the round of deliveries; 200 by default.
        #[arg(long, value_parser = clap::value_parser!(u64).range(1..))]
        rounds: Option<u64>,
        /// Repeat the random choices of the run that printed this seed.
        #[arg(long)]
        seed: Option<u64>,
        /// Test this program, such as that of a release, instead of a debug build.
        #[arg(long, value_name = "FILE")]
        program: Option<PathBuf>,
        /// Run only tests whose name contains this.
        #[arg(last = true)]
        filter: Vec<String>,
    },
    /// Run the rules of work and deliveries in virtual time over a model of the bus and the platforms, in a release
    /// build.
    ///
    /// Fails when an operation is lost, duplicated or falsely reported, and prints its shortest trace.
    #[command(after_help = "Examples:\n  \
        cargo xtask simulate                                       1,000 replicas, 10 million operations\n  \
        cargo xtask simulate --seed 7 --operations 100000          another, shorter run\n  \
        cargo xtask simulate --rate 2000 --no-faults --json        the load at a rate, as JSON\n  \
        cargo xtask simulate --help-run                            all switches")]
    Simulate {
        /// Print the switches of the simulation.
        #[arg(long)]
        help_run: bool,
        /// Switches of the simulation: `--seed`, `--operations`, `--replicas`, `--rate`, `--json` and others.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        switches: Vec<String>,
    },
    /// Test the release binary in network namespaces with packet counters. Needs root.
    Blackbox {
        /// Run only tests whose name contains this.
        #[arg(last = true)]
        filter: Vec<String>,
    },
    /// Feed parsers of untrusted bytes with mutated input until one fails or the time is up.
    Fuzz {
        /// Minutes for each target.
        #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..))]
        minutes: u64,
        /// The target; without it, all targets run one after another.
        target: Option<String>,
    },
    /// Show where a first build spends its time, as a tree. Builds from nothing, which takes minutes.
    Heavy {
        /// Read this report of `cargo build --timings` instead of building.
        #[arg(long, value_name = "HTML")]
        report: Option<PathBuf>,
        /// Write the tree into CONTRIBUTING.md.
        #[arg(long)]
        write: bool,
    },
    /// Create the files of a release: the program, its image, bills of materials, the provenance, digests and
    /// signatures.
    ///
    /// The program is static and needs nothing of the system; with a `gnu` target it needs the C library alone. Builds with
    /// the profile `dist`, which takes several times as long as a release build. Needs the standard library of the target,
    /// from `rustup`, and `musl-tools`.
    #[command(after_help = "Examples:\n  \
        cargo xtask dist                  build the commit that is checked out\n  \
        cargo xtask dist --verify         build it twice, in two directories, and compare\n  \
        cargo xtask dist --signing-key release.pem\n                                    \
        sign each file (docs/releases.md)\n  \
        cargo xtask dist --target x86_64-unknown-linux-gnu\n                                    \
        a program that loads the C library of its system\n  \
        cargo xtask dist --update-base    take the versions that Debian offers now for the base of the image")]
    Dist(dist::DistOptions),
    /// Write the skeleton of a new platform, backend, tool or format, and print the remaining manual steps.
    ///
    /// The skeleton compiles, passes tidy, and its tests pass: its simple protocol and its fake are placeholders, to be
    /// replaced with the real ones. After a failure, no file is changed.
    #[command(after_help = "Examples:\n  \
        cargo xtask new platform acme     a crate dray-platform-acme, its account, queue, rights and page\n  \
        cargo xtask new backend box2      a crate dray-sandbox-box2, its section, address and page\n  \
        cargo xtask new tool web-search   a crate dray-tool-web-search and its tool set in manifests\n  \
        cargo xtask new format org        a module of dray-documents and its page\n\n\
        Names are kebab-case: lower-case letters and digits, words with a dash between them. Platforms and backends\n\
        have one word. ARCHITECTURE.md has the same steps.")]
    New {
        /// Kind of the extension to add.
        kind: new::ExtensionKind,
        /// The extension's name, as it appears in the configuration, in addresses and in the names of crates.
        name: String,
    },
    /// Write every generated file again.
    Generate {
        /// Change nothing; fail when a file would change.
        #[arg(long)]
        check: bool,
    },
    /// Refuse changes of proto/ that break clients of the last release.
    Contracts {
        /// Store the current contracts as those of the last release, unless they break clients.
        #[arg(long)]
        release: bool,
    },
    /// Check the rules about the source that no compiler knows: dependencies, licences, words, coverage of security
    /// rules.
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
        XtaskCommand::Lint => check::run_lints(&root),
        XtaskCommand::Check => check::run_checks(&root),
        // `--prepare` runs no tests, so the variables for them are not needed.
        XtaskCommand::Test { prepare: true, .. } => suite::prepare_environment(&root).map(drop),
        XtaskCommand::Test { seed, filter, .. } => suite::run_tests(&root, seed, &filter),
        XtaskCommand::Bench { names } => run_benchmarks(&root, &names),
        XtaskCommand::Soak {
            rounds,
            seed,
            program,
            filter,
        } => suite::run_soak(&root, rounds, seed, program.as_deref(), &filter),
        XtaskCommand::Simulate { help_run, switches } => run_simulation(&root, help_run, &switches),
        XtaskCommand::Blackbox { filter } => suite::run_blackbox(&root, &filter),
        XtaskCommand::Fuzz { minutes, target } => {
            fuzz::run_targets(&root, minutes, target.as_deref())
        }
        XtaskCommand::Generate { check } => generate::run_generators(&root, check),
        XtaskCommand::New { kind, name } => new::run_new(&root, kind, &name),
        XtaskCommand::Heavy { report, write } => heavy::run_report(&root, report, write),
        XtaskCommand::Dist(options) => dist::run_dist(&root, &options),
        XtaskCommand::Contracts { release } => compatibility::run_check(&root, release),
        XtaskCommand::Tidy => tidy::run_tidy(&root),
    }
}

/// The measurements are a separate binary, to keep this one small.
fn run_benchmarks(root: &Path, names: &[String]) -> anyhow::Result<()> {
    required_programs::ensure_programs(required_programs::BENCH_PROGRAMS)?;
    step::cargo_step(root)
        .args(["run", "--release", "--package", "dray-bench", "--"])
        .args(names)
        .run()
}

/// The simulation is a separate binary: it links the bus, and `xtask` does not.
fn run_simulation(root: &Path, help: bool, switches: &[String]) -> anyhow::Result<()> {
    step::cargo_step(root)
        .args(["run", "--release", "--package", "dray-simulation", "--"])
        .args(help.then_some("--help"))
        .args(switches)
        .run()
}

/// The directory of the workspace manifest.
fn workspace_root() -> anyhow::Result<PathBuf> {
    let manifest = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
    Ok(manifest
        .parent()
        .context("xtask is not below the workspace root")?
        .to_path_buf())
}
