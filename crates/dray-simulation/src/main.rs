//! The command line of the simulation; `cargo xtask simulate` runs it in a release build.
#![expect(
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
    if report.is_clean() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}
