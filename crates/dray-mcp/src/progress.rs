//! Progress of a call, for clients that requested it.

use std::time::{Duration, Instant};

use rmcp::RoleServer;
use rmcp::model::{ProgressNotificationParam, ProgressToken};
use rmcp::service::{Peer, RequestContext};

/// Shortest time between two notifications.
const MIN_INTERVAL: Duration = Duration::from_millis(250);

/// Reports the progress of one call. Without a token of the client it does nothing.
#[derive(Debug)]
pub(crate) struct ProgressReporter {
    client: Option<(Peer<RoleServer>, ProgressToken)>,
    /// Number of notifications: the protocol wants a value that grows.
    count: u32,
    sent_at: Option<Instant>,
}

impl ProgressReporter {
    pub(crate) fn new(context: &RequestContext<RoleServer>) -> Self {
        let token = context.meta.get_progress_token();
        Self {
            client: token.map(|token| (context.peer.clone(), token)),
            count: 0,
            sent_at: None,
        }
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
        if self.client.is_some() && is_due {
            let (done, total) = (
                dray_presentation::size::human_size(done),
                dray_presentation::size::human_size(total),
            );
            self.step(&format!("{done} of {total}")).await;
        }
    }

    async fn send(&mut self, message: &str) {
        let Some((peer, token)) = &self.client else {
            return;
        };
        self.count += 1;
        let params = ProgressNotificationParam::new(token.clone(), f64::from(self.count))
            .with_message(message);
        // A disconnected client needs no progress; the call itself ends through its cancellation.
        let _ = peer.notify_progress(params).await;
    }
}
