//! `getUpdates`.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::{Instant, timeout_at};

use super::fault::{FaultPoint, InjectedFault};
use super::form::FormData;
use super::response::{ApiResponse, MethodError};
use super::state::{FakeState, SharedState};

/// Most updates in one response.
const MAX_UPDATES: usize = 100;

pub(super) async fn get_updates(shared: &Arc<SharedState>, form: &FormData) -> ApiResponse {
    let poll_number = begin_poll(&mut shared.state())?;
    // Wakes the previous request, which then ends with 409 as on the real server.
    shared.updates_changed.notify_waiters();
    let wait = Duration::from_secs(form.get("timeout").parse().unwrap_or_default());
    let end = Instant::now() + wait;
    loop {
        let changes = shared.updates_changed.notified();
        tokio::pin!(changes);
        // The waiter is enabled before the check, so that no change in between is missed.
        changes.as_mut().enable();
        if let Some(response) =
            pending_updates(&mut shared.state(), poll_number, form.number("offset"))
        {
            return response;
        }
        if timeout_at(end, changes).await.is_err() {
            return Ok(json!([]));
        }
    }
}

fn begin_poll(state: &mut FakeState) -> Result<u64, MethodError> {
    if let Some(InjectedFault::RefuseUpdates(code, reason)) = state.fault(FaultPoint::Updates) {
        return Err(MethodError::of(code, &reason));
    }
    if state.webhook.is_some() {
        return Err(MethodError::of(
            409,
            "Conflict: can't use getUpdates method while webhook is active; use deleteWebhook to delete the webhook first",
        ));
    }
    state.poll_number += 1;
    Ok(state.poll_number)
}

fn pending_updates(state: &mut FakeState, poll_number: u64, offset: i64) -> Option<ApiResponse> {
    if state.poll_number != poll_number {
        return Some(Err(MethodError::of(
            409,
            "Conflict: terminated by other getUpdates request; make sure that only one bot instance is running",
        )));
    }
    let number = |update: &Value| update.get("update_id").and_then(Value::as_i64);
    // The offset acknowledges every update below it.
    state
        .updates
        .retain(|update| number(update).is_some_and(|number| number >= offset));
    let pending: Vec<Value> = state.updates.iter().take(MAX_UPDATES).cloned().collect();
    (!pending.is_empty()).then(|| Ok(Value::Array(pending)))
}
