//! Virtual time: an event queue and the tasks that wait for its events. One thread, no real clock, so that one seed
//! gives one run.

use std::cell::{Cell, RefCell};
use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

/// Microseconds since the start of the run.
pub(crate) type VirtualTime = u64;

/// A future that runs in virtual time.
pub(crate) type TaskFuture = Pin<Box<dyn Future<Output = ()>>>;

/// Identifies a task. A slot is reused with the next generation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct TaskId {
    slot: u32,
    generation: u32,
}

/// An event at a point of virtual time. `C` is a callback that is run by the simulation.
pub(crate) enum TimedEvent<C> {
    Wake(TaskId),
    Call(C),
}

struct ScheduledEvent<C> {
    at: VirtualTime,
    /// Events of the same time happen in the order in which they were scheduled.
    sequence: u64,
    event: TimedEvent<C>,
}

impl<C> PartialEq for ScheduledEvent<C> {
    fn eq(&self, other: &Self) -> bool {
        self.sequence == other.sequence
    }
}

impl<C> Eq for ScheduledEvent<C> {}

impl<C> PartialOrd for ScheduledEvent<C> {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl<C> Ord for ScheduledEvent<C> {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.at, self.sequence).cmp(&(other.at, other.sequence))
    }
}

#[derive(Default)]
struct TaskSlot {
    generation: u32,
    /// Index of the replica that the task belongs to.
    owner: u32,
    future: Option<TaskFuture>,
    is_used: bool,
}

/// The event queue and the tasks.
pub(crate) struct VirtualExecutor<C> {
    now: Cell<VirtualTime>,
    sequence: Cell<u64>,
    current: Cell<TaskId>,
    events: RefCell<BinaryHeap<Reverse<ScheduledEvent<C>>>>,
    slots: RefCell<Vec<TaskSlot>>,
    free: RefCell<Vec<u32>>,
}

impl<C> VirtualExecutor<C> {
    pub(crate) fn new() -> Self {
        Self {
            now: Cell::new(0),
            sequence: Cell::new(0),
            current: Cell::default(),
            events: RefCell::default(),
            slots: RefCell::default(),
            free: RefCell::default(),
        }
    }

    pub(crate) fn now(&self) -> VirtualTime {
        self.now.get()
    }

    /// Number of scheduled events.
    pub(crate) fn scheduled(&self) -> u64 {
        self.sequence.get()
    }

    /// The task that runs now.
    pub(crate) fn current(&self) -> TaskId {
        self.current.get()
    }

    pub(crate) fn schedule(&self, at: VirtualTime, event: TimedEvent<C>) {
        let sequence = self.sequence.get();
        self.sequence.set(sequence + 1);
        self.events.borrow_mut().push(Reverse(ScheduledEvent {
            at: at.max(self.now()),
            sequence,
            event,
        }));
    }

    /// Starts a task of a replica; it is polled first at the present time.
    pub(crate) fn spawn(&self, owner: u32, future: TaskFuture) -> TaskId {
        let mut slots = self.slots.borrow_mut();
        let slot = self.free.borrow_mut().pop().unwrap_or_else(|| {
            slots.push(TaskSlot::default());
            u32::try_from(slots.len() - 1).unwrap_or(u32::MAX)
        });
        let mut id = TaskId::default();
        if let Some(entry) = slots.get_mut(slot as usize) {
            entry.generation = entry.generation.wrapping_add(1);
            entry.owner = owner;
            entry.future = Some(future);
            entry.is_used = true;
            id = TaskId {
                slot,
                generation: entry.generation,
            };
        }
        drop(slots);
        self.schedule(self.now(), TimedEvent::Wake(id));
        id
    }

    /// The next event; the time moves to it.
    pub(crate) fn next_event(&self) -> Option<TimedEvent<C>> {
        let Reverse(next) = self.events.borrow_mut().pop()?;
        self.now.set(next.at);
        Some(next.event)
    }

    /// The owner of a task that still exists.
    pub(crate) fn owner(&self, id: TaskId) -> Option<u32> {
        let slots = self.slots.borrow();
        let slot = slots.get(id.slot as usize)?;
        (slot.is_used && slot.generation == id.generation).then_some(slot.owner)
    }

    /// Runs a task until it waits.
    pub(crate) fn poll(&self, id: TaskId) {
        let future = self
            .slots
            .borrow_mut()
            .get_mut(id.slot as usize)
            .filter(|slot| slot.generation == id.generation)
            .and_then(|slot| slot.future.take());
        let Some(mut future) = future else {
            return;
        };
        // A future that sleeps enters this task into the queue by itself, so the waker does nothing.
        self.current.set(id);
        let mut context = Context::from_waker(Waker::noop());
        let is_over = future.as_mut().poll(&mut context).is_ready();
        if is_over {
            self.release(id.slot);
            // The future is dropped after the slot is free: guards in it may schedule events.
            drop(future);
        } else if let Some(slot) = self.slots.borrow_mut().get_mut(id.slot as usize) {
            slot.future = Some(future);
        }
    }

    /// Ends all tasks of a replica wherever they are, as `kill -9` does.
    pub(crate) fn kill_tasks(&self, owner: u32) {
        let mut killed = Vec::new();
        for (index, slot) in self.slots.borrow_mut().iter_mut().enumerate() {
            if slot.is_used && slot.owner == owner {
                killed.push((u32::try_from(index).unwrap_or(u32::MAX), slot.future.take()));
            }
        }
        // The tasks are dropped after the borrow: a request that was sent may schedule its arrival when it is dropped.
        for (index, future) in killed {
            self.release(index);
            drop(future);
        }
    }

    fn release(&self, index: u32) {
        if let Some(slot) = self.slots.borrow_mut().get_mut(index as usize) {
            slot.is_used = false;
            slot.generation = slot.generation.wrapping_add(1);
        }
        self.free.borrow_mut().push(index);
    }

    /// Waits until a time.
    pub(crate) fn sleep_until(&self, until: VirtualTime) -> SleepFuture<'_, C> {
        SleepFuture {
            executor: self,
            until,
            is_scheduled: false,
        }
    }
}

/// Completes at its time.
pub(crate) struct SleepFuture<'a, C> {
    executor: &'a VirtualExecutor<C>,
    until: VirtualTime,
    is_scheduled: bool,
}

impl<C> Future for SleepFuture<'_, C> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<()> {
        if self.executor.now() >= self.until {
            return Poll::Ready(());
        }
        if !self.is_scheduled {
            self.is_scheduled = true;
            let task = self.executor.current();
            self.executor.schedule(self.until, TimedEvent::Wake(task));
        }
        Poll::Pending
    }
}

/// A duration in microseconds.
pub(crate) fn micros(duration: Duration) -> VirtualTime {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}
