//! The call permit of a running call (`limits.calls`), which the call gives back while it waits for another service.
//!
//! A call that waits for a slow host uses no processor and little memory. If it kept its permit, calls of other tenants
//! would queue behind hosts that they do not use.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::admission::{Admission, AdmissionTicket, CallSlot, SuspendedCall};

tokio::task_local! {
    /// The permit of the call that this task handles.
    static CALL_PERMIT: Arc<CallPermit>;
}

/// Gives back the permit of the running call (`limits.calls`) while `wait` runs, and takes a permit again before it
/// returns the result. Calls that return from a wait have priority over calls that have not started.
///
/// Use it around requests to other services whose duration depends on an external party. At most eight calls per permit
/// wait at one time, in all and per tenant; further ones keep their permits. Has no effect in a task that handles no
/// call: a task that the handler spawned, work, or a handler that does its own admission.
///
/// Cancellation: dropping the future ends the wait. A handler that continues after it dropped one runs without a
/// permit.
pub async fn release_permit_while<F: Future>(wait: F) -> F::Output {
    let Ok(call) = CALL_PERMIT.try_with(Arc::clone) else {
        return wait.await;
    };
    let waiting = call.begin_wait();
    let output = wait.await;
    // The wait is dropped before the permit is requested: the last wait that ends takes it.
    drop(waiting);
    call.take_permit().await;
    output
}

/// Runs the handler of a call that holds `permit`, so that [`release_permit_while`] finds it.
pub(super) async fn hold_permit_while<F: Future>(permit: CallSlot, handler: F) -> F::Output {
    let call = CallPermit {
        admission: permit.admission(),
        state: Mutex::new(PermitState {
            permit: Some(permit),
            suspension: None,
            waits: 0,
        }),
    };
    CALL_PERMIT.scope(Arc::new(call), handler).await
}

#[derive(Debug)]
struct CallPermit {
    admission: Arc<Admission>,
    state: Mutex<PermitState>,
}

#[derive(Debug)]
struct PermitState {
    /// Present while the call runs; absent while it waits.
    permit: Option<CallSlot>,
    /// Present while the permit is absent.
    suspension: Option<SuspendedCall>,
    /// Number of current waits: a call may wait for several requests concurrently.
    waits: usize,
}

impl CallPermit {
    /// Counts a wait. The first wait releases the permit for another call.
    fn begin_wait(self: &Arc<Self>) -> WaitGuard {
        let mut state = self.lock();
        state.waits += 1;
        if let Some(permit) = state.permit.take() {
            match self.admission.suspend(permit) {
                Ok(suspension) => state.suspension = Some(suspension),
                // Too many calls wait without a permit: this one keeps its permit.
                Err(permit) => state.permit = Some(permit),
            }
        }
        WaitGuard(Arc::clone(self))
    }

    /// Waits for a permit, unless the call has one or is still in another wait.
    async fn take_permit(&self) {
        let granted = {
            let mut state = self.lock();
            if state.waits > 0 || state.permit.is_some() {
                return;
            }
            let Some(suspension) = state.suspension.take() else {
                // Another part of the call will take the permit.
                return;
            };
            match self.admission.resume(suspension) {
                AdmissionTicket::Now(permit) => {
                    state.permit = Some(permit);
                    return;
                }
                AdmissionTicket::Wait(granted) => granted,
                // `resume` never refuses.
                AdmissionTicket::Full => return,
            }
        };
        // The sender is dropped only with the service, which then cancels the call.
        if let Ok(permit) = granted.await {
            self.lock().permit = Some(permit);
        }
    }

    fn lock(&self) -> MutexGuard<'_, PermitState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One wait of a call. Dropping the value ends the wait.
#[derive(Debug)]
struct WaitGuard(Arc<CallPermit>);

impl Drop for WaitGuard {
    fn drop(&mut self) {
        self.0.lock().waits -= 1;
    }
}
