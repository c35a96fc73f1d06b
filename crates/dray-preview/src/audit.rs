//! Audit events of previews.

use std::time::Duration;

use dray_bus::{Bus, Meta, PublishError, PublishReceipt};
use dray_proto::v1::{self, PreviewAction};
use dray_types::{Clock, Deadline, Fault};

use crate::error::PreviewError;

/// How long an audit event may take to be stored.
const AUDIT_TIMEOUT: Duration = Duration::from_secs(5);

/// Publishes audit events.
#[derive(Clone, Debug)]
pub(crate) struct PreviewAuditor {
    bus: Bus,
    clock: Clock,
}

impl PreviewAuditor {
    pub(crate) const fn new(bus: Bus, clock: Clock) -> Self {
        Self { bus, clock }
    }

    /// Records what happens to a preview, under the operation of `meta`.
    ///
    /// # Errors
    ///
    /// [`PreviewError::Audit`]: the event was not stored, so the action that it reports must not happen.
    pub(crate) async fn record(
        &self,
        meta: &Meta,
        action: PreviewAction,
        preview: &v1::Preview,
    ) -> Result<(), PreviewError> {
        let meta = self.limited(meta);
        let audit = audit(action, preview);
        stored(self.bus.publish_audit(&meta, &audit).await)
    }

    /// Like [`Self::record`]; of several calls under one operation, the first event is stored.
    pub(crate) async fn record_once(
        &self,
        meta: &Meta,
        action: PreviewAction,
        preview: &v1::Preview,
    ) -> Result<(), PreviewError> {
        let meta = self.limited(meta);
        let audit = audit(action, preview);
        stored(self.bus.publish_audit_once(&meta, &audit).await)
    }

    fn limited(&self, meta: &Meta) -> Meta {
        let deadline = Deadline::after(self.clock.now_ms(), AUDIT_TIMEOUT);
        meta.clone().with_deadline(deadline)
    }
}

fn audit(action: PreviewAction, preview: &v1::Preview) -> v1::PreviewAudit {
    let mut audit = v1::PreviewAudit {
        preview: Some(preview.clone()),
        ..v1::PreviewAudit::default()
    };
    audit.set_action(action);
    audit
}

fn stored(published: Result<PublishReceipt, PublishError>) -> Result<(), PreviewError> {
    published
        .map(|_| ())
        .map_err(|error| PreviewError::Audit(Box::new(Fault::from(error))))
}
