//! Transfers as tasks: calls of `fetch`, `get` and `put` that take longer than a client should wait.
//!
//! The id of a task is the operation id of its transfer. Its state is a record in a bucket of the bus, so every server
//! of the same system answers for it. The server that runs a transfer renews the lease of its record; if that server
//! dies, the next server that gets a request for the task runs the call again. This has no second effect: the sandbox
//! recognises a file that is there already, and content in the store has one name. A cancelled task ends in its record
//! first; its server then drops the work, which asks the services to stop.

mod record;

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use dray_bus::KeyError;
use dray_types::{Fault, FaultCode, OperationId};
use futures_util::future::BoxFuture;
use rmcp::model::{
    CallToolResult, CreateTaskResult, DetailedTask, GetTaskResult, Task, TaskPayload, TaskStatus,
};
use serde_json::Value;
use tokio::task::{AbortHandle, JoinSet};

use crate::client::ServiceClient;
use crate::failure;
use crate::progress::ProgressLink;
use crate::tasks::{POLL_INTERVAL_MS, iso_time};
pub(crate) use record::{StoredTransfer, TransferEnd};

/// Most transfers that one server runs as tasks. Further calls wait for their end.
const MAX_RUNNING: usize = 64;
/// Interval between two renewals of a lease.
const LEASE_RENEWAL: Duration = Duration::from_secs(3);
/// Attempts to record how a transfer ended. After them another server finds the lease lapsed and runs it again.
const MAX_RECORD_ATTEMPTS: u32 = 5;
/// Delay between these attempts.
const RECORD_RETRY_DELAY: Duration = Duration::from_secs(1);
/// Servers that may run one transfer before it counts as failed. The limit stops a transfer that crashes each server.
const MAX_SERVERS: u32 = 3;
/// Attempts to record a cancellation beside the renewals of the server that runs the transfer.
const MAX_CANCEL_ATTEMPTS: u32 = 5;

/// The work of a transfer. Dropping it stops the services.
pub(crate) type TransferWork = BoxFuture<'static, Result<CallToolResult, Fault>>;

/// The transfers that run as tasks in this process. They end with it.
#[derive(Debug, Default)]
pub(crate) struct TransferTasks {
    state: Mutex<RunningTransfers>,
}

#[derive(Debug, Default)]
struct RunningTransfers {
    tasks: JoinSet<()>,
    /// Handles by the key of the record, which contains the tenant.
    handles: HashMap<String, AbortHandle>,
}

/// Whether a task with this id is a transfer, if it exists.
pub(crate) fn is_transfer_id(id: &str) -> bool {
    id.starts_with(record::ID_PREFIX)
}

/// A random id that [`is_transfer_id`] recognises.
pub(crate) fn new_id() -> OperationId {
    record::new_id()
}

impl TransferTasks {
    fn state(&self) -> MutexGuard<'_, RunningTransfers> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether another transfer may become a task.
    pub(crate) fn has_room(&self) -> bool {
        let mut state = self.state();
        while state.tasks.try_join_next().is_some() {}
        state.handles.retain(|_, handle| !handle.is_finished());
        state.handles.len() < MAX_RUNNING
    }

    /// Runs the work of a recorded transfer to its end.
    pub(crate) fn spawn(
        &self,
        client: ServiceClient,
        stored: StoredTransfer,
        work: TransferWork,
        progress: Arc<ProgressLink>,
    ) {
        let key = stored.key().to_owned();
        let mut state = self.state();
        let handle = state
            .tasks
            .spawn(run_with_lease(client, stored, work, progress));
        state.handles.insert(key, handle);
    }

    /// Stops a transfer that runs here.
    fn stop(&self, key: &str) {
        if let Some(handle) = self.state().handles.remove(key) {
            handle.abort();
        }
    }

    /// Cancels a transfer. One that is over does not change.
    ///
    /// # Errors
    ///
    /// The record cannot be written.
    pub(crate) async fn cancel(
        &self,
        client: &ServiceClient,
        mut stored: StoredTransfer,
    ) -> Result<(), Fault> {
        for _ in 0..MAX_CANCEL_ATTEMPTS {
            if stored.record.end.is_some() {
                return Ok(());
            }
            stored.end(client, TransferEnd::Cancelled);
            match stored.update(client).await {
                Ok(()) => {
                    self.stop(stored.key());
                    return Ok(());
                }
                // The server that runs the transfer renewed the lease, or the transfer ended.
                Err(KeyError::Stale) => stored = stored.read_again(client).await?,
                Err(error) => return Err(error.into()),
            }
        }
        Err(Fault::new(FaultCode::Unavailable, "The task was not cancelled.").detail("task_busy"))
    }
}

/// Runs the work and keeps the lease meanwhile.
async fn run_with_lease(
    client: ServiceClient,
    mut stored: StoredTransfer,
    mut work: TransferWork,
    progress: Arc<ProgressLink>,
) {
    loop {
        tokio::select! {
            result = &mut work => return record_end(&client, stored, result).await,
            () = tokio::time::sleep(LEASE_RENEWAL) => {}
        }
        stored.renew(&client, progress.step());
        match stored.update(&client).await {
            Ok(()) => {}
            // The task was cancelled, or another server took over: dropping the work stops it.
            Err(KeyError::Stale) => return,
            Err(error) => {
                tracing::warn!(task = %stored.id(), %error, "the lease of a transfer was not renewed");
                if stored.is_abandoned(client.clock.now_ms()) {
                    return;
                }
            }
        }
    }
}

async fn record_end(
    client: &ServiceClient,
    mut stored: StoredTransfer,
    result: Result<CallToolResult, Fault>,
) {
    let result = result.unwrap_or_else(|fault| {
        tracing::info!(task = %stored.id(), code = %fault.code, detail = %fault.detail, "a transfer failed");
        failure::failed_result(&fault)
    });
    let Ok(Value::Object(result)) = serde_json::to_value(result) else {
        return;
    };
    stored.end(client, TransferEnd::Completed(result));
    for _ in 0..MAX_RECORD_ATTEMPTS {
        match stored.update(client).await {
            // Stale: it was cancelled meanwhile.
            Ok(()) | Err(KeyError::Stale) => return,
            Err(error) => {
                tracing::warn!(task = %stored.id(), %error, "the end of a transfer was not recorded");
                tokio::time::sleep(RECORD_RETRY_DELAY).await;
            }
        }
    }
}

impl StoredTransfer {
    /// Takes over the transfer of a dead server. Returns whether its call runs again: a transfer during which
    /// [`MAX_SERVERS`] servers died ends as failed.
    pub(crate) fn take_over(&mut self, client: &ServiceClient) -> bool {
        if self.record.servers >= MAX_SERVERS {
            let fault = Fault::new(
                FaultCode::Unavailable,
                "The transfer was interrupted several times and was given up.",
            )
            .detail("interrupted");
            let result = serde_json::to_value(failure::failed_result(&fault));
            if let Ok(Value::Object(result)) = result {
                self.end(client, TransferEnd::Completed(result));
            }
            return false;
        }
        self.record.servers += 1;
        self.renew(client, "continuing after an interruption".to_owned());
        true
    }

    /// The result that makes a call a task.
    pub(crate) fn created(&self) -> CreateTaskResult {
        CreateTaskResult::new(self.task())
    }

    /// The state for `tasks/get`.
    pub(crate) fn state(&self) -> GetTaskResult {
        let payload = match &self.record.end {
            None => TaskPayload::Working,
            Some(TransferEnd::Cancelled) => TaskPayload::Cancelled,
            // A failed call too: the tool ran, and its result reports the failure.
            Some(TransferEnd::Completed(result)) => TaskPayload::Completed {
                result: result.clone(),
            },
        };
        GetTaskResult::new(DetailedTask::new(self.task(), payload))
    }

    fn task(&self) -> Task {
        let record = &self.record;
        Task::new(
            self.id().to_string(),
            // The payload decides the state; this one is replaced by `DetailedTask`.
            TaskStatus::Working,
            iso_time(record.begun_at_ms),
            iso_time(record.changed_at_ms),
        )
        .with_status_message(&record.step)
        .with_poll_interval_ms(POLL_INTERVAL_MS)
    }
}
