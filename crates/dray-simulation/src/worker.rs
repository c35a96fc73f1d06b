//! The work loop of one queue in one replica: it pulls what can start (modelled after `dray-bus`, `work::pull`).
//!
//! The fair shares of tenants are not part of the model: all operations are of one tenant.

use std::rc::Rc;

use crate::bus_model::PulledWork;
use crate::executor::{TaskId, TimedEvent, VirtualTime};
use crate::job::process_delivery;
use crate::simulation::{NoResponse, Simulation};
use crate::statistics::RequestKind;

/// Deliveries that one loop handles concurrently: `limits.work`.
pub(crate) const WORK_SLOTS: usize = 12;
/// Longest wait of one pull, in microseconds.
const PULL_WAIT: VirtualTime = 5_000_000;
/// Largest delay before a pull is tried again.
const MAX_BACKOFF: VirtualTime = 10_000_000;
/// Delay after the first failed pull; it doubles with each further one.
const FIRST_BACKOFF: VirtualTime = 200_000;
/// Time between two measurements of the backlog of the durable consumer, in microseconds.
const MEASURE_INTERVAL: VirtualTime = 15_000_000;
/// Time between two searches of the model for messages whose redelivery is due, in microseconds.
const DISPATCH_INTERVAL: VirtualTime = 50_000;

/// Pulls and starts work until the replica is killed.
pub(crate) async fn pull_work(simulation: Rc<Simulation>, replica: u32, queue: usize) {
    let mut backoff = FIRST_BACKOFF;
    let mut next_measurement = 0;
    // The processes of a deployment do not start in the same microsecond.
    simulation.sleep(simulation.draw(0, 1_000_000)).await;
    loop {
        if simulation.now() >= next_measurement {
            next_measurement = simulation.now() + MEASURE_INTERVAL;
            simulation.count(RequestKind::Monitoring, 1);
        }
        let free = wait_for_slot(&simulation, replica, queue).await;
        if let Ok(pulled) = fetch(&simulation, replica, queue, free).await {
            backoff = FIRST_BACKOFF;
            for work in pulled {
                start(&simulation, replica, queue, work);
            }
        } else {
            // The loop also requests the consumer again.
            simulation.count(RequestKind::Monitoring, 1);
            let delay = simulation.draw(10_000, backoff);
            simulation.sleep(delay).await;
            backoff = (backoff * 2).min(MAX_BACKOFF);
        }
    }
}

/// Waits until a slot is free, and returns the number of free slots.
async fn wait_for_slot(simulation: &Simulation, replica: u32, queue: usize) -> usize {
    std::future::poll_fn(|_| {
        let task = simulation.executor.current();
        let free = simulation.with_replica(replica, |state| {
            let running = state.running.get(queue).copied().unwrap_or(0);
            let free = WORK_SLOTS.saturating_sub(running);
            if let Some(waiter) = state.slot_waiters.get_mut(queue) {
                *waiter = (free == 0).then_some(task);
            }
            free
        });
        match free {
            Some(free) if free > 0 => std::task::Poll::Ready(free),
            _ => std::task::Poll::Pending,
        }
    })
    .await
}

/// Returns the messages that are available now, or else waits for the next one.
async fn fetch(
    simulation: &Rc<Simulation>,
    replica: u32,
    queue: usize,
    count: usize,
) -> Result<Vec<PulledWork>, NoResponse> {
    let pulled = simulation
        .request(replica, RequestKind::Pull, move |simulation| {
            let now = simulation.now();
            simulation.stream.borrow_mut().pull(queue, count, now)
        })
        .await?;
    if !pulled.is_empty() {
        simulation.count(RequestKind::Message, pulled.len() as u64);
        return Ok(pulled);
    }
    // The task is taken before the request, because the message wakes it.
    let task = simulation.executor.current();
    let until = simulation.now() + PULL_WAIT;
    let waiting = simulation
        .request(replica, RequestKind::Pull, move |simulation| {
            let now = simulation.now();
            simulation
                .stream
                .borrow_mut()
                .wait(queue, replica, task, now, until)
        })
        .await?;
    let number = waiting.ok_or(NoResponse)?;
    // A message may have arrived between the two requests.
    serve_waiting(simulation, queue);
    Ok(wait_for_message(simulation, number, until).await)
}

async fn wait_for_message(
    simulation: &Simulation,
    number: u64,
    until: VirtualTime,
) -> Vec<PulledWork> {
    let mut sleep = std::pin::pin!(simulation.executor.sleep_until(until));
    std::future::poll_fn(move |context| {
        if let Some(work) = simulation.served.borrow_mut().remove(&number) {
            return std::task::Poll::Ready(vec![work]);
        }
        sleep.as_mut().poll(context).map(|()| Vec::new())
    })
    .await
}

/// Hands available messages to waiting pulls.
pub(crate) fn serve_waiting(simulation: &Rc<Simulation>, queue: usize) {
    loop {
        let now = simulation.now();
        let served = simulation.stream.borrow_mut().next_served(queue, now);
        let Some((pull, work)) = served else {
            return;
        };
        simulation.count(RequestKind::Message, 1);
        let is_lost = simulation.with_replica(pull.replica, |state| {
            state.responses_lost_until > now || state.is_dead
        });
        // The message counts as delivered, and is delivered again after `ack_wait`.
        if is_lost == Some(true) || simulation.executor.owner(pull.task).is_none() {
            continue;
        }
        simulation.served.borrow_mut().insert(pull.number, work);
        let arrival = now + simulation.draw(200, 1_500);
        // A message is not received after the end of its pull.
        simulation.call_at(
            pull.until.max(arrival) + 1,
            Box::new(move |simulation| {
                let unread = simulation.served.borrow_mut().remove(&pull.number);
                drop(unread);
            }),
        );
        simulation
            .executor
            .schedule(arrival, TimedEvent::Wake(pull.task));
    }
}

/// Hands out messages whose redelivery is due, and drops messages whose acknowledgement is on disk.
pub(crate) async fn dispatch_redeliveries(simulation: Rc<Simulation>) {
    while simulation.settled.get() < simulation.options.operations {
        for queue in 0..crate::simulation::queue_count() {
            serve_waiting(&simulation, queue);
        }
        let now = simulation.now();
        let saved = simulation.stream.borrow_mut().take_saved(now);
        drop(saved);
        simulation.sleep(DISPATCH_INTERVAL).await;
    }
}

fn start(simulation: &Rc<Simulation>, replica: u32, queue: usize, work: PulledWork) {
    simulation.with_replica(replica, |state| {
        if let Some(running) = state.running.get_mut(queue) {
            *running += 1;
        }
    });
    let shared = Rc::clone(simulation);
    simulation.spawn(replica, async move {
        process_delivery(&shared, replica, work).await;
        let waiter = shared.with_replica(replica, |state| {
            if let Some(running) = state.running.get_mut(queue) {
                *running = running.saturating_sub(1);
            }
            state.slot_waiters.get_mut(queue).and_then(Option::take)
        });
        if let Some(waiter) = waiter.flatten() {
            wake_now(&shared, waiter);
        }
    });
}

fn wake_now(simulation: &Simulation, task: TaskId) {
    simulation
        .executor
        .schedule(simulation.now(), TimedEvent::Wake(task));
}
