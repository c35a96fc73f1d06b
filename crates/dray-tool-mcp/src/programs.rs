//! Running programs of the operator, kept between the requests of one conversation. A program is started by the first
//! call of one of its tools, never shared between conversations, and ended when it was unused for a while.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::error::SessionError;
use crate::session::{McpSession, ServerOffer};

/// Longest age of a known list of tools, which a program returned right after its start.
const MAX_LIST_AGE: Duration = Duration::from_mins(10);

/// Longest time between two checks for idle programs.
const MAX_CHECK_INTERVAL: Duration = Duration::from_secs(30);
/// Shortest time between two checks for idle programs.
const MIN_CHECK_INTERVAL: Duration = Duration::from_millis(10);

/// A conversation with its owner, and the name of a program.
type ProgramKey = (String, String);

/// Running programs by conversation. Cheap to clone.
#[derive(Clone, Debug)]
pub struct ProgramPool {
    inner: Arc<ProgramsInner>,
}

#[derive(Debug)]
struct ProgramsInner {
    idle_timeout: Duration,
    max_running: usize,
    state: Mutex<ProgramsState>,
}

#[derive(Debug, Default)]
struct ProgramsState {
    programs: HashMap<ProgramKey, Arc<ProgramSlot>>,
    /// The tools of each program, as returned before its first call.
    lists: HashMap<String, (Instant, ServerOffer)>,
    is_closed: bool,
}

/// One program of one conversation. Its lock is held while it starts.
#[derive(Debug)]
struct ProgramSlot {
    session: tokio::sync::Mutex<Option<Arc<McpSession>>>,
    last_used: Mutex<Instant>,
}

impl ProgramSlot {
    fn touch(&self) {
        *self
            .last_used
            .lock()
            .unwrap_or_else(PoisonError::into_inner) = Instant::now();
    }

    fn last_used(&self) -> Instant {
        *self
            .last_used
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether no task starts the program or waits for its response.
fn is_idle(program: &Arc<ProgramSlot>) -> bool {
    if Arc::strong_count(program) > 1 {
        return false;
    }
    // If the lock is held, the program is being started or removed.
    program.session.try_lock().is_ok_and(|session| {
        session
            .as_ref()
            .is_none_or(|session| Arc::strong_count(session) == 1)
    })
}

fn has_ended(program: &ProgramSlot) -> bool {
    program
        .session
        .try_lock()
        .is_ok_and(|session| session.as_ref().is_none_or(|session| session.is_closed()))
}

impl ProgramPool {
    /// An empty pool. Programs end after `idle_timeout` without a call; at most `max_running` run at a time.
    pub fn new(idle_timeout: Duration, max_running: usize) -> Self {
        let inner = ProgramsInner {
            idle_timeout,
            max_running,
            state: Mutex::default(),
        };
        Self {
            inner: Arc::new(inner),
        }
    }

    /// Ends idle programs until `stop` is cancelled, then all of them. Returns earlier once no clone of the pool is
    /// left and its last program has ended.
    pub async fn run(self, stop: CancellationToken) {
        let interval = self.inner.idle_timeout / 4;
        let interval = interval.clamp(MIN_CHECK_INTERVAL, MAX_CHECK_INTERVAL);
        loop {
            tokio::select! {
                () = stop.cancelled() => break,
                () = tokio::time::sleep(interval) => self.end_idle(),
            }
            if Arc::strong_count(&self.inner) == 1 && self.state().programs.is_empty() {
                return;
            }
        }
        // The program is removed under the lock, and ended after it is released.
        let ended = {
            let mut state = self.state();
            state.is_closed = true;
            std::mem::take(&mut state.programs)
        };
        drop(ended);
    }

    /// Whether a program of this conversation runs.
    pub fn is_running(&self, conversation: &str) -> bool {
        let state = self.state();
        state
            .programs
            .keys()
            .any(|(owner, _)| owner == conversation)
    }

    /// The running program of a conversation, else a new one. Returns whether it is new.
    pub(crate) async fn acquire(
        &self,
        conversation: &str,
        name: &str,
        start: impl Future<Output = Result<McpSession, SessionError>>,
    ) -> Result<(Arc<McpSession>, bool), SessionError> {
        let key = (conversation.to_owned(), name.to_owned());
        let program = self.program(&key)?;
        program.touch();
        let mut current = program.session.lock().await;
        if let Some(session) = current.as_ref().filter(|session| !session.is_closed()) {
            return Ok((Arc::clone(session), false));
        }
        // Ends the old program before the new one starts.
        *current = None;
        let started = start.await;
        program.touch();
        // A slot without a program would count as a running one.
        let session = Arc::new(started.inspect_err(|_| self.remove(&key, &program))?);
        *current = Some(Arc::clone(&session));
        Ok((session, true))
    }

    /// Ends a program that did not work, unless another one was started already.
    pub(crate) async fn forget(&self, conversation: &str, name: &str, broken: &Arc<McpSession>) {
        let key = (conversation.to_owned(), name.to_owned());
        let program = self.state().programs.get(&key).cloned();
        let Some(program) = program else {
            return;
        };
        let mut current = program.session.lock().await;
        if current
            .as_ref()
            .is_some_and(|session| Arc::ptr_eq(session, broken))
        {
            *current = None;
        }
    }

    /// Notes that a call ended.
    pub(crate) fn touch(&self, conversation: &str, name: &str) {
        let key = (conversation.to_owned(), name.to_owned());
        if let Some(program) = self.state().programs.get(&key) {
            program.touch();
        }
    }

    /// Whether the running program of a conversation has reported other tools than those at its start.
    pub(crate) fn has_changed_tools(&self, conversation: &str, name: &str) -> bool {
        let key = (conversation.to_owned(), name.to_owned());
        let program = self.state().programs.get(&key).cloned();
        // If the lock is held, the program is being started or removed.
        program.is_some_and(|program| {
            let current = program.session.try_lock();
            current.is_ok_and(|current| {
                let session = current.as_ref().filter(|session| !session.is_closed());
                session.is_some_and(|session| session.has_changed_tools())
            })
        })
    }

    /// The tools of a program, if they are known.
    pub(crate) fn cached_offer(&self, name: &str) -> Option<ServerOffer> {
        let state = self.state();
        let (listed_at, offer) = state.lists.get(name)?;
        (listed_at.elapsed() < MAX_LIST_AGE).then(|| offer.clone())
    }

    /// Stores the tools of a program. The program must not have served a call yet, so that the tools contain no data of
    /// a caller.
    pub(crate) fn cache_offer(&self, name: &str, offer: &ServerOffer) {
        let entry = (Instant::now(), offer.clone());
        self.state().lists.insert(name.to_owned(), entry);
    }

    /// The place of a program. If there is no free place, the program that was idle longest is ended.
    fn program(&self, key: &ProgramKey) -> Result<Arc<ProgramSlot>, SessionError> {
        let mut ended = None;
        let mut state = self.state();
        if let Some(program) = state.programs.get(key) {
            return Ok(Arc::clone(program));
        }
        if state.programs.len() >= self.inner.max_running {
            let idle = state
                .programs
                .iter()
                .filter(|(_, program)| is_idle(program));
            let oldest = idle.min_by_key(|(_, program)| program.last_used());
            let oldest = oldest.map(|(key, _)| key.clone());
            let oldest = oldest.ok_or(SessionError::TooManyPrograms)?;
            ended = state.programs.remove(&oldest);
        }
        let program = Arc::new(ProgramSlot {
            session: tokio::sync::Mutex::default(),
            last_used: Mutex::new(Instant::now()),
        });
        // While the service ends, the program belongs only to this request.
        if !state.is_closed {
            state.programs.insert(key.clone(), Arc::clone(&program));
        }
        drop(state);
        // The program ends after the lock is released.
        drop(ended);
        Ok(program)
    }

    fn remove(&self, key: &ProgramKey, program: &Arc<ProgramSlot>) {
        let mut state = self.state();
        if state
            .programs
            .get(key)
            // Another call may have stored a new one.
            .is_some_and(|known| Arc::ptr_eq(known, program))
        {
            state.programs.remove(key);
        }
    }

    fn end_idle(&self) {
        let mut state = self.state();
        let timeout = self.inner.idle_timeout;
        let ended_keys: Vec<_> = state
            .programs
            .iter()
            .filter(|(_, program)| {
                is_idle(program) && (program.last_used().elapsed() >= timeout || has_ended(program))
            })
            .map(|(key, _)| key.clone())
            .collect();
        let ended: Vec<_> = ended_keys
            .iter()
            .filter_map(|key| state.programs.remove(key))
            .collect();
        drop(state);
        drop(ended);
    }

    fn state(&self) -> MutexGuard<'_, ProgramsState> {
        self.inner
            .state
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}
