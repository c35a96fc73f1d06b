//! Cancels a call whose caller no longer waits.

use bytes::Bytes;

use crate::backend::OutgoingMessage;
use crate::bus_core::Bus;
use crate::meta::Meta;
use crate::subject;

/// Cancels the request at the responders when it is dropped (C-9), unless a response came.
pub(super) struct CancelGuard<'a> {
    pub(super) bus: &'a Bus,
    pub(super) area: &'static str,
    pub(super) meta: &'a Meta,
    /// Whether a responder may be working on the request.
    pub(super) armed: bool,
    /// Whether the outcome of the call was reported to the area.
    pub(super) outcome_reported: bool,
}

impl CancelGuard<'_> {
    pub(super) fn arm(&mut self) {
        self.armed = true;
    }

    pub(super) fn disarm(&mut self) {
        self.armed = false;
    }
}

impl Drop for CancelGuard<'_> {
    fn drop(&mut self) {
        if !self.outcome_reported {
            // A caller that is dropped before the outcome returns its probe. Otherwise the circuit would stay open
            // forever.
            self.bus.area(self.area).release_probe();
        }
        // `drop` cannot wait, so a task publishes. Without a runtime the process is ending, and the request runs until
        // its deadline.
        let Some(runtime) = tokio::runtime::Handle::try_current()
            .ok()
            .filter(|_| self.armed)
        else {
            return;
        };
        let bus = self.bus.clone();
        let message = OutgoingMessage {
            subject: subject::cancel_subject(self.area),
            headers: self.meta.headers(""),
            payload: Bytes::new(),
        };
        // The task is tracked, so that a drain of the bus sends it before the connection closes.
        self.bus.inner.tasks.spawn_on(
            async move {
                let sent = bus.inner.backend.publish(None, &message);
                if let Ok(Err(error)) =
                    tokio::time::timeout(crate::bus_core::DRAIN_WAIT, sent).await
                {
                    tracing::debug!(
                        error = &error as &dyn std::error::Error,
                        "cancellation was not sent"
                    );
                }
            },
            &runtime,
        );
    }
}
