//! Runs the rules of work and deliveries in virtual time: thousands of replicas, millions of operations, kills,
//! partitions, pauses, wrong clocks, redeliveries and platforms that lose responses. `cargo xtask simulate` runs it.
//!
//! **Real**, the functions that production calls:
//!
//! - [`dray_bus::rules`]: what a ledger entry allows, and the next entry after each operation on it; retries and their
//!   delays; leases; the grace period after a lost connection; the sweeper; the settings of a work loop.
//! - [`dray_delivery_rules`]: the states of a visible request, what follows a lost response, a failure or a refusal, the
//!   token buckets, the lease of a chat, and how a delivery without a worker ends.
//!
//! **Modelled**: the bus, the platforms, time, and the order of reads and writes around the decisions, which follows
//! `dray-bus` (`work::process`, `work::job`, `work::supervise`, `ledger`) and `dray-platform-delivery` (`deliver`,
//! `records`, `reconciler`) step by step. A delivery has one visible request. One tenant has all operations.
//!
//! The search for work that stands still is not modelled: the sweeper and the reconciler start for exactly the operation
//! that needs them, run until they succeed, and are never killed, paused, cut off or given a wrong clock. So a run
//! shows what they do with work that they find, and not that they find it.
//!
//! **Not covered**: it does not measure code, and it cannot find faults in the I/O between the decisions. The fault
//! tests of `dray-bus` and `cargo xtask soak` do that with the real code.
//!
//! ```
//! use dray_simulation::{SimulationOptions, simulate};
//!
//! let report = simulate(SimulationOptions {
//!     operations: 100,
//!     replicas: 5,
//!     rate: 50.0,
//!     ..SimulationOptions::default()
//! });
//! assert!(report.is_clean(), "{report}");
//! ```

mod background;
mod bus_model;
mod delivery;
mod executor;
mod handler;
mod job;
mod operation;
mod options;
mod platform_model;
mod replica;
mod report;
mod simulation;
mod statistics;
mod worker;

use std::rc::Rc;

pub use operation::{FailedOperation, OperationProblem};
pub use options::{BrokenRule, FaultSettings, SimulationOptions};
pub use report::SimulationReport;
pub use statistics::{DurationSummary, RequestKind};

use crate::simulation::{NO_REPLICA, Simulation};

/// Runs until every operation has ended, and returns the results. Equal options give equal reports.
pub fn simulate(options: SimulationOptions) -> SimulationReport {
    let simulation = Simulation::new(options);
    replica::start_replicas(&simulation);
    simulation.spawn(
        NO_REPLICA,
        background::publish_operations(Rc::clone(&simulation)),
    );
    simulation.spawn(
        NO_REPLICA,
        worker::dispatch_redeliveries(Rc::clone(&simulation)),
    );
    simulation.run();
    SimulationReport::of(&simulation)
}
