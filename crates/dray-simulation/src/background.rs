//! The parts that run in addition to the workers: publishers, the sweeper of work, the reconciler of deliveries.
//!
//! The sweeper and the reconciler check an operation when it makes no progress. The sweeper also checks work that
//! was delivered more than once, a minute after its deadline, because a redelivery could then run concurrently with a
//! worker.

use std::rc::Rc;
use std::time::Duration;

use dray_bus::rules::{STRANDED_AFTER, SweepPlan, plan_sweep};
use dray_proto::v1::{LedgerState, TerminalState};
use dray_types::Deadline;

use crate::delivery::SimulatedRecord;
use crate::executor::{VirtualTime, micros};
use crate::job::{JobError, SimulatedJob};
use crate::operation::{OperationHold, OperationId, OperationKind, SimulatedOperation};
use crate::platform_model::PLATFORMS;
use crate::simulation::{NO_REPLICA, NoResponse, START_MS, Simulation};
use crate::statistics::RequestKind;
use crate::worker::serve_waiting;

/// Earliest and latest deadline of a tool call, in milliseconds after the publication.
const CALL_DEADLINE_MS: (u64, u64) = (60_000, 600_000);
/// Deadline of a delivery, in milliseconds after the publication.
const DELIVERY_DEADLINE_MS: u64 = 900_000;
/// Chats for each operation per second. With the default share of deliveries, a chat gets a message about every 7 s.
const CHATS_PER_RATE: f64 = 2.0;
/// Time between two sweeps, in microseconds.
const SWEEP_INTERVAL: VirtualTime = 30_000_000;
/// Time between two checks of one delivery by the reconciler, in microseconds.
const RECONCILE_INTERVAL: VirtualTime = 10_000_000;
/// Requests of the sweeper for a message whose end was published: the message, the entry, the acknowledgement.
const SWEEPER_REQUESTS: u64 = 3;
/// Time after the deadline of a record in which only its worker may end it (`reconciler`), in milliseconds.
const GRACE_MS: u64 = 60_000;

/// Publishes all operations, one after the other.
pub(crate) async fn publish_operations(simulation: Rc<Simulation>) {
    let mean = Duration::from_secs_f64(1.0 / simulation.options.rate);
    for id in 0..simulation.options.operations {
        let wait = simulation.draw_exponential(mean);
        simulation.sleep(wait).await;
        publish(&simulation, id);
        simulation.published.set(id + 1);
    }
}

fn publish(simulation: &Rc<Simulation>, id: OperationId) {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a number of chats"
    )]
    let chats = (simulation.options.rate * CHATS_PER_RATE).max(1.0) as u64;
    let now = simulation.now();
    let now_ms = simulation.true_ms();
    let operation = if simulation.chance(simulation.options.delivery_share) {
        let platform = usize::try_from(simulation.draw(0, PLATFORMS.len() as u64)).unwrap_or(0);
        let chat = u32::try_from(simulation.draw(0, chats)).unwrap_or(0);
        let kind = OperationKind::Delivery(platform);
        SimulatedOperation::new(kind, chat, now_ms + DELIVERY_DEADLINE_MS, now)
    } else {
        let (from, to) = CALL_DEADLINE_MS;
        let deadline_ms = now_ms + simulation.draw(from, to);
        SimulatedOperation::new(OperationKind::ToolCall, 0, deadline_ms, now)
    };
    let live = {
        let mut operations = simulation.operations.borrow_mut();
        operations.insert(id, operation);
        operations.len()
    };
    simulation.max_live.set(simulation.max_live.get().max(live));
    let hold = Rc::new(OperationHold::new(simulation, id));
    store_work(simulation, &hold, 0, MessageIdentity::Fixed);
    let republished = simulation.options.faults.republished;
    for (share, identity) in [
        // A publisher that had no response publishes under the same id.
        (republished, MessageIdentity::Fixed),
        // The publisher sends no ids, or repeats the message after the stream's window for duplicates.
        (republished / 5.0, MessageIdentity::None),
    ] {
        if simulation.chance(share) {
            let hold = Rc::clone(&hold);
            let at = now + simulation.draw(0, 20_000_000);
            simulation.call_at(
                at,
                Box::new(move |simulation| store_work(simulation, &hold, 0, identity)),
            );
        }
    }
}

/// Whether the stream can recognise a repeated message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum MessageIdentity {
    /// `<operation>:<step>:0`.
    Fixed,
    None,
}

fn store_work(
    simulation: &Rc<Simulation>,
    hold: &Rc<OperationHold>,
    round: u32,
    identity: MessageIdentity,
) {
    simulation.count(RequestKind::Publish, 1);
    let stored = simulation.with_operation(hold.id, |operation| {
        let truth = operation.rounds.entry(round).or_default();
        let is_duplicate = truth.is_published && identity == MessageIdentity::Fixed;
        truth.is_published = true;
        let queue = match operation.kind {
            OperationKind::ToolCall => 0,
            OperationKind::Delivery(platform) => 1 + platform,
        };
        (!is_duplicate).then_some(queue)
    });
    if let Some(queue) = stored.flatten() {
        simulation.count(RequestKind::Sweeper, SWEEPER_REQUESTS);
        simulation.note(
            hold.id,
            NO_REPLICA,
            "work is stored, round",
            u64::from(round),
        );
        simulation
            .stream
            .borrow_mut()
            .append(queue, Rc::clone(hold), round);
        serve_waiting(simulation, queue);
    }
}

/// Publishes the next round of a delivery at its due time.
pub(crate) fn continue_later(simulation: &Rc<Simulation>, hold: &Rc<OperationHold>, due_ms: u64) {
    // The due time is by the clock of the worker that wrote it.
    let due = due_ms.saturating_sub(START_MS).saturating_mul(1_000);
    // The reconciler searches for due deliveries every second.
    let at = due.max(simulation.now()) + simulation.draw(0, 1_000_000);
    let hold = Rc::clone(hold);
    simulation.call_at(
        at,
        Box::new(move |simulation| {
            let round = simulation
                .records
                .borrow()
                .peek(&hold.id)
                .filter(|record| !record.finished && record.due_at_ms != 0)
                .map(|record| record.rounds);
            simulation.count(RequestKind::RecordRead, 1);
            if let Some(round) = round {
                store_work(simulation, &hold, round, MessageIdentity::Fixed);
            }
        }),
    );
}

/// Sweeps the work of an operation a minute after its deadline, if the operation still exists then.
pub(crate) fn sweep_later(simulation: &Rc<Simulation>, id: OperationId, round: u32) {
    let deadline_ms = simulation.with_operation(id, |operation| operation.deadline_ms);
    let at = sweep_time(simulation, deadline_ms.unwrap_or(0));
    simulation.call_at(
        at,
        Box::new(move |simulation| {
            let exists = simulation.operations.borrow().contains_key(&id);
            if exists {
                start_sweep(simulation, id, round);
            }
        }),
    );
}

fn sweep_time(simulation: &Simulation, deadline_ms: u64) -> VirtualTime {
    let stranded = deadline_ms.saturating_sub(START_MS) * 1_000 + micros(STRANDED_AFTER);
    stranded.max(simulation.now()) + simulation.draw(0, SWEEP_INTERVAL)
}

fn start_sweep(simulation: &Rc<Simulation>, id: OperationId, round: u32) {
    let hold = Rc::new(OperationHold::new(simulation, id));
    simulation.spawn(NO_REPLICA, sweep(Rc::clone(simulation), hold, round));
}

/// Ends the work of an operation if no worker will.
async fn sweep(simulation: Rc<Simulation>, hold: Rc<OperationHold>, round: u32) {
    let mut job = SimulatedJob::for_sweeper(&simulation, hold, round);
    loop {
        match sweep_once(&mut job).await {
            Ok(None) => return,
            Ok(Some(delay)) => simulation.sleep(delay.min(SWEEP_INTERVAL)).await,
            Err(_) => simulation.sleep(1_000_000).await,
        }
    }
}

/// Checks the work once. Returns the delay before the next check; `None` if the work has ended.
async fn sweep_once(job: &mut SimulatedJob) -> Result<Option<VirtualTime>, JobError> {
    job.entry = job.read().await?;
    let now_ms = job.now_ms();
    let time_left = Deadline::after(job.deadline_ms, STRANDED_AFTER).remaining(now_ms);
    match plan_sweep(&job.record(), 0, now_ms, time_left) {
        SweepPlan::Forget => return Ok(None),
        SweepPlan::Wait(delay) => return Ok(Some(micros(delay))),
        SweepPlan::Report => {}
        SweepPlan::DeadLetter => {
            job.note("the sweeper ends it", 0);
            job.simulation.count_fault("work that the sweeper ended");
            job.dead_letter().await?;
        }
    }
    job.report().await?;
    Ok(None)
}

/// Starts the sweeper or the reconciler for an operation without progress; `false` if the operation has ended.
pub(crate) fn start_recovery(simulation: &Rc<Simulation>, id: OperationId) -> bool {
    let open_round = simulation.with_operation(id, |operation| {
        let ledger = simulation.ledger.borrow();
        let is_open = |round: u32| {
            let entry = ledger.peek(&(id, round));
            entry.is_none_or(|entry| entry.state() != LedgerState::Reported)
        };
        let mut rounds = operation.rounds.iter();
        rounds
            .find(|(round, truth)| truth.is_published && is_open(**round))
            .map(|(round, _)| *round)
    });
    if let Some(round) = open_round.flatten() {
        let is_repeated = simulation.with_operation(id, |operation| {
            std::mem::replace(&mut operation.is_swept, true)
        });
        let deadline_ms = simulation.with_operation(id, |operation| operation.deadline_ms);
        // The sweeper of the product finds work by its deadline, so the check does not run before it.
        let mut at = sweep_time(simulation, deadline_ms.unwrap_or(0));
        if is_repeated == Some(true) {
            at += SWEEP_INTERVAL;
        }
        let hold = OperationHold::new(simulation, id);
        simulation.call_at(
            at,
            Box::new(move |simulation| {
                start_sweep(simulation, id, round);
                // The hold is moved into the closure, so that the operation stays in memory until now.
                drop(hold);
            }),
        );
        return true;
    }
    let is_waiting = {
        let records = simulation.records.borrow();
        records.peek(&id).is_some_and(|record| !record.finished)
    };
    if is_waiting {
        let hold = Rc::new(OperationHold::new(simulation, id));
        simulation.spawn(NO_REPLICA, reconcile(Rc::clone(simulation), hold));
    }
    is_waiting
}

/// Gives a delivery another round, or ends it (`dray-platform-delivery`, `reconciler`).
async fn reconcile(simulation: Rc<Simulation>, hold: Rc<OperationHold>) {
    simulation
        .sleep(simulation.draw(0, RECONCILE_INTERVAL))
        .await;
    let id = hold.id;
    let read = simulation
        .request(NO_REPLICA, RequestKind::RecordRead, move |simulation| {
            let record = simulation.records.borrow().get(&id);
            let round = record.as_ref().map_or(0, |entry| entry.value.rounds);
            let entry = simulation.ledger.borrow().get(&(id, round));
            (record, entry.map(|entry| entry.value.terminal()))
        })
        .await;
    let Ok((Some(entry), terminal)) = read else {
        // An operation without progress is checked again.
        return;
    };
    let mut record = (*entry.value).clone();
    if record.finished {
        return;
    }
    let is_late = simulation.true_ms() >= record.deadline_ms.saturating_add(GRACE_MS);
    match terminal {
        Some(TerminalState::Unspecified) if !is_late => return,
        None if record.due_at_ms != 0 && !is_late => {
            continue_later(&simulation, &hold, record.due_at_ms);
            return;
        }
        // The work ended and the delivery did not, so it gets another round.
        Some(TerminalState::Done) if !is_late => {
            record.rounds += 1;
            record.due_at_ms = record.due_at_ms.max(simulation.true_ms());
        }
        _ => {
            simulation.note(id, NO_REPLICA, "the reconciler ends it", 0);
            record.step = record.step.give_up();
            record.finished = true;
        }
    }
    let due_ms = record.due_at_ms;
    let is_waiting = !record.finished;
    let written = write_record(&simulation, &hold, record, entry.revision).await;
    if written == Ok(true) && is_waiting {
        continue_later(&simulation, &hold, due_ms);
    }
}

async fn write_record(
    simulation: &Rc<Simulation>,
    hold: &Rc<OperationHold>,
    mut record: SimulatedRecord,
    expected: u64,
) -> Result<bool, NoResponse> {
    record.writer = simulation.draw(1, u64::MAX);
    let hold = Rc::clone(hold);
    let record = Rc::new(record);
    simulation
        .request(NO_REPLICA, RequestKind::RecordWrite, move |simulation| {
            let mut records = simulation.records.borrow_mut();
            records.put(hold.id, record, expected).is_some()
        })
        .await
}
