//! Progress of a call, for clients that requested it.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rmcp::RoleServer;
use rmcp::model::{ProgressNotificationParam, ProgressToken};
use rmcp::service::{Peer, RequestContext};

/// Shortest time between two notifications.
const MIN_INTERVAL: Duration = Duration::from_millis(250);

/// Reports the progress of one call: to a client that sent a token, and as the status of a task.
#[derive(Debug)]
pub(crate) struct ProgressReporter {
    link: Arc<ProgressLink>,
    /// Number of notifications, sent as the progress, which the protocol requires to increase.
    count: u32,
    sent_at: Option<Instant>,
}

/// The recipient of the progress of a call.
#[derive(Debug)]
pub(crate) struct ProgressLink {
    state: Mutex<ProgressState>,
}

#[derive(Debug)]
struct ProgressState {
    client: Option<(Peer<RoleServer>, ProgressToken)>,
    /// The last step.
    step: String,
}

impl ProgressLink {
    fn new(client: Option<(Peer<RoleServer>, ProgressToken)>) -> Arc<Self> {
        let state = ProgressState {
            client,
            step: String::new(),
        };
        Arc::new(Self {
            state: Mutex::new(state),
        })
    }

    fn state(&self) -> MutexGuard<'_, ProgressState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The last step; empty before the first.
    pub(crate) fn step(&self) -> String {
        self.state().step.clone()
    }

    /// Ends the notifications, because the request that asked for them has its response.
    pub(crate) fn detach(&self) {
        self.state().client = None;
    }
}

impl ProgressReporter {
    pub(crate) fn new(context: &RequestContext<RoleServer>) -> Self {
        let token = context.meta.get_progress_token();
        Self::with_client(token.map(|token| (context.peer.clone(), token)))
    }

    /// A reporter without a client.
    pub(crate) fn silent() -> Self {
        Self::with_client(None)
    }

    fn with_client(client: Option<(Peer<RoleServer>, ProgressToken)>) -> Self {
        Self {
            link: ProgressLink::new(client),
            count: 0,
            sent_at: None,
        }
    }

    /// The recipient of the progress.
    pub(crate) fn link(&self) -> Arc<ProgressLink> {
        Arc::clone(&self.link)
    }

    /// Reports a step of the call.
    pub(crate) async fn step(&mut self, message: &str) {
        self.sent_at = Some(Instant::now());
        self.send(message).await;
    }

    /// Reports bytes. Sends at most a few notifications per second, so most calls have no effect.
    pub(crate) async fn bytes(&mut self, done: u64, total: u64) {
        let is_due = self
            .sent_at
            .is_none_or(|sent| sent.elapsed() >= MIN_INTERVAL);
        if is_due {
            let (done, total) = (
                dray_presentation::size::human_size(done),
                dray_presentation::size::human_size(total),
            );
            self.step(&format!("{done} of {total}")).await;
        }
    }

    async fn send(&mut self, message: &str) {
        let client = {
            let mut state = self.link.state();
            message.clone_into(&mut state.step);
            state.client.clone()
        };
        let Some((peer, token)) = client else {
            return;
        };
        self.count += 1;
        let params =
            ProgressNotificationParam::new(token, f64::from(self.count)).with_message(message);
        // A disconnected client needs no progress; the call itself ends through its cancellation.
        let _ = peer.notify_progress(params).await;
    }
}
