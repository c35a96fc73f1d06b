//! The polling tasks of this replica: one for each account with an inbox.

use std::collections::BTreeMap;
use std::sync::Arc;

use dray_service::ServiceContext;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::poll::LEASE_DURATION;
use super::{DurableInboundSink, InboundService};
use crate::accounts::PlatformAccount;

/// Starts and ends polling tasks, so that they are those of the accounts in force.
#[derive(Debug)]
pub(crate) struct PollTasks {
    service: Arc<InboundService>,
    tasks: TaskTracker,
    /// Name of this replica, which owns the leases.
    instance: String,
    stop: CancellationToken,
    /// By the id of the account.
    running: BTreeMap<String, PollTask>,
}

#[derive(Debug)]
struct PollTask {
    account: Arc<PlatformAccount>,
    stop: CancellationToken,
    handle: JoinHandle<()>,
}

impl PollTasks {
    /// Starts without tasks. They end with the service of `cx`.
    pub(crate) fn new(service: Arc<InboundService>, cx: &ServiceContext) -> Self {
        Self {
            service,
            tasks: cx.tasks.clone(),
            instance: cx.instance.clone(),
            stop: cx.stop.clone(),
            running: BTreeMap::new(),
        }
    }

    /// Polls for exactly the accounts in force. The task of an account that was changed ends before the new one begins,
    /// because two would take each other's messages.
    pub(crate) fn follow_accounts(&mut self) {
        let mut earlier = std::mem::take(&mut self.running);
        if self.service.config.get().poll {
            for account in self.service.accounts.iter() {
                if account.inbox.is_none() {
                    continue;
                }
                let id = account.id();
                let previous = earlier.remove(&id);
                let task = match previous {
                    Some(task) if Arc::ptr_eq(&task.account, &account) => task,
                    previous => self.start(account, previous),
                };
                self.running.insert(id, task);
            }
        }
        for task in earlier.into_values() {
            task.stop.cancel();
        }
    }

    fn start(&self, account: Arc<PlatformAccount>, previous: Option<PollTask>) -> PollTask {
        let stop = self.stop.child_token();
        let sink = DurableInboundSink {
            service: Arc::clone(&self.service),
            account: Arc::clone(&account),
        };
        let polling = sink.poll(self.instance.clone(), stop.clone());
        let handle = self.tasks.spawn(async move {
            if let Some(previous) = previous {
                previous.end().await;
            }
            polling.await;
        });
        PollTask {
            account,
            stop,
            handle,
        }
    }
}

impl PollTask {
    /// Stops the task and waits for its end, so that the last messages are stored. A task that does not end is cut off.
    async fn end(mut self) {
        self.stop.cancel();
        if tokio::time::timeout(LEASE_DURATION, &mut self.handle)
            .await
            .is_err()
        {
            tracing::warn!(account = %self.account.name, "the poll of a changed account did not end, and is cut off");
            self.handle.abort();
        }
    }
}
