//! Faults of replicas and of the bus: kills, partitions, pauses, restarts of the server.

use std::rc::Rc;
use std::time::Duration;

use crate::executor::VirtualTime;
use crate::simulation::{NO_REPLICA, Simulation, queue_count};
use crate::worker;

// Shortest and longest duration of each fault, in seconds.
const KILLED_SECONDS: (u64, u64) = (1, 15);
const PARTITION_SECONDS: (u64, u64) = (1, 60);
const PAUSE_SECONDS: (u64, u64) = (1, 60);
const OUTAGE_SECONDS: (u64, u64) = (1, 20);

/// Longest pause of a client between two attempts to connect again (`dray-bus`).
const MAX_RECONNECT: VirtualTime = 4_000_000;

/// Starts the workers and the faults of every replica.
pub(crate) fn start_replicas(simulation: &Rc<Simulation>) {
    for replica in 0..simulation.options.replicas {
        start_workers(simulation, replica);
        let faults = &simulation.options.faults;
        start_fault(simulation, faults.kill_every, move |simulation| {
            kill(simulation, replica);
        });
        start_fault(simulation, faults.partition_every, move |simulation| {
            partition(simulation, replica);
        });
        start_fault(simulation, faults.pause_every, move |simulation| {
            let until = simulation.now() + draw_seconds(simulation, PAUSE_SECONDS);
            simulation.with_replica(replica, |state| state.paused_until = until);
            simulation.count_fault("pauses of a replica");
        });
    }
    start_fault(simulation, simulation.options.faults.outage_every, outage);
}

fn start_workers(simulation: &Rc<Simulation>, replica: u32) {
    for queue in 0..queue_count() {
        simulation.spawn(
            replica,
            worker::pull_work(Rc::clone(simulation), replica, queue),
        );
    }
}

/// Repeats a fault. `interval` is the mean time between two of them; zero means never.
fn start_fault(
    simulation: &Rc<Simulation>,
    interval: Duration,
    fault: impl Fn(&Rc<Simulation>) + 'static,
) {
    if interval.is_zero() {
        return;
    }
    let weak = Rc::downgrade(simulation);
    simulation.spawn(NO_REPLICA, async move {
        while let Some(simulation) = weak.upgrade() {
            let wait = simulation.draw_exponential(interval);
            simulation.sleep(wait).await;
            // After the last publication, the remaining operations end without new faults.
            if simulation.published.get() >= simulation.options.operations {
                return;
            }
            fault(&simulation);
        }
    });
}

fn draw_seconds(simulation: &Simulation, (from, to): (u64, u64)) -> VirtualTime {
    simulation.draw(from * 1_000_000, to * 1_000_000)
}

fn kill(simulation: &Rc<Simulation>, replica: u32) {
    simulation.count_fault("kills of a replica");
    // The tasks of the replica end first, so that no task of the dead process sees the state of the next one.
    simulation.executor.kill_tasks(replica);
    simulation.with_replica(replica, |state| {
        state.is_dead = true;
        state.paused_until = 0;
        // The next process starts with new rate limits and a new connection.
        state.buckets = dray_delivery_rules::buckets::RateBuckets::default();
        state.is_lost = false;
        state.restored_at = None;
        state.running.fill(0);
        state.slot_waiters.fill(None);
    });
    let back = simulation.now() + draw_seconds(simulation, KILLED_SECONDS);
    simulation.call_at(
        back,
        Box::new(move |simulation| {
            let is_dead =
                simulation.with_replica(replica, |state| std::mem::take(&mut state.is_dead));
            // If the replica was killed again meanwhile, that kill has scheduled another start.
            if is_dead == Some(true) {
                start_workers(simulation, replica);
            }
        }),
    );
}

/// Disconnects a replica from the bus, in one direction or both. Its client notices it or not.
fn partition(simulation: &Rc<Simulation>, replica: u32) {
    simulation.count_fault("partitions of a replica");
    let until = simulation.now() + draw_seconds(simulation, PARTITION_SECONDS);
    match simulation.draw(0, 4) {
        0 => {
            simulation.with_replica(replica, |state| state.requests_lost_until = until);
        }
        1 => {
            simulation.with_replica(replica, |state| state.responses_lost_until = until);
        }
        2 => disconnect(simulation, replica, until, false),
        _ => disconnect(simulation, replica, until, true),
    }
}

fn disconnect(simulation: &Rc<Simulation>, replica: u32, until: VirtualTime, is_noticed: bool) {
    let is_alive = simulation.with_replica(replica, |state| {
        state.requests_lost_until = until;
        state.responses_lost_until = until;
        state.is_lost = is_noticed && !state.is_dead;
        state.is_lost
    });
    if is_alive == Some(true) {
        simulation.call_at(
            until,
            Box::new(move |simulation| {
                let now = simulation.now();
                simulation.with_replica(replica, |state| {
                    if std::mem::take(&mut state.is_lost) {
                        state.restored_at = Some(now);
                    }
                });
            }),
        );
    }
}

/// The server crashes and starts again. Clients reconnect one after the other.
fn outage(simulation: &Rc<Simulation>) {
    simulation.count_fault("restarts of the bus");
    let now = simulation.now();
    simulation.stream.borrow_mut().crash(now);
    // All replicas lose their connection at the same time, and reconnect within the longest reconnect delay.
    let back = now + draw_seconds(simulation, OUTAGE_SECONDS);
    for replica in 0..simulation.options.replicas {
        let until = back + simulation.draw(0, MAX_RECONNECT);
        disconnect(simulation, replica, until, true);
    }
}
