//! The command line of the simulation; `cargo xtask simulate` runs it in a release build.
#![expect(
    clippy::print_stderr,
    clippy::print_stdout,
    reason = "a command-line program writes to its standard streams"
)]

use std::process::ExitCode;

use clap::Parser;
use dray_simulation::{FaultSettings, SimulationOptions, simulate};

/// Run the rules of work and deliveries over a model of the bus and the platforms, in virtual time.
#[derive(Parser)]
struct SimulationArgs {
    /// Seed of all random choices.
    #[arg(long, default_value_t = 1)]
    seed: u64,
    /// Number of operations to publish.
    #[arg(long, default_value_t = 10_000_000, value_parser = clap::value_parser!(u64).range(1..))]
    operations: u64,
    /// Number of worker processes.
    #[arg(long, default_value_t = 1_000, value_parser = clap::value_parser!(u32).range(1..))]
    replicas: u32,
    /// Operations per second of virtual time.
    #[arg(long, default_value_t = 5_000.0)]
    rate: f64,
    /// Share of deliveries among the operations.
    #[arg(long, default_value_t = 0.3)]
    deliveries: f64,
    /// Disable all faults, to measure the load without failures.
    #[arg(long)]
    no_faults: bool,
    /// Print the report as JSON.
    #[arg(long)]
    json: bool,
}

/// The smallest share of deliveries that arrive, and of tool calls that are done. A run with the default faults has
/// more than 0.9 of both; with less, a rule ends work that it should continue.
const MIN_SUCCESS_SHARE: f64 = 0.8;
/// Operations below which a few faults alone can reduce the share so far.
const MIN_JUDGED_OPERATIONS: u64 = 1_000;

fn main() -> ExitCode {
    let args = SimulationArgs::parse();
    let faults = if args.no_faults {
        FaultSettings::none()
    } else {
        FaultSettings::default()
    };
    let report = simulate(SimulationOptions {
        seed: args.seed,
        operations: args.operations,
        replicas: args.replicas,
        // A rate of zero would never publish the second operation.
        rate: args.rate.max(0.001),
        delivery_share: args.deliveries.clamp(0.0, 1.0),
        faults,
        broken_rule: None,
    });
    match serde_json::to_string_pretty(&report) {
        Ok(json) if args.json => println!("{json}"),
        _ => print!("{report}"),
    }
    let shares = [report.delivered_share(), report.done_share()];
    let is_low = shares
        .into_iter()
        .flatten()
        .any(|share| share < MIN_SUCCESS_SHARE);
    if is_low && report.operations >= MIN_JUDGED_OPERATIONS {
        eprintln!(
            "less than {:.0} % of the deliveries or of the tool calls succeeded",
            MIN_SUCCESS_SHARE * 100.0
        );
        return ExitCode::FAILURE;
    }
    if report.is_clean() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}
