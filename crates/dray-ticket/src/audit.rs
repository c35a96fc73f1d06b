//! Audit events of tickets: one when it is made and one when it ends.

use std::time::Duration;

use dray_bus::Meta;
use dray_proto::v1::{self, TicketAction};
use dray_types::{Deadline, Sha256Digest};

use crate::TicketService;
use crate::destination::TicketDestination;
use crate::record::{TicketDirection, TicketRecord};
use crate::service::ticket_id;

/// How long an audit event may take to be stored.
const AUDIT_TIMEOUT: Duration = Duration::from_secs(5);

impl TicketService {
    /// Records what happened to a ticket. Without a bus it does nothing. A failure of the bus is logged and delays the
    /// request for at most [`AUDIT_TIMEOUT`], because the action has already happened.
    pub(crate) async fn record_action(
        &self,
        key: &str,
        record: &TicketRecord,
        action: TicketAction,
    ) {
        let (Some(bus), Some(tenant)) = (&self.inner.bus, record.tenant()) else {
            return;
        };
        let deadline = Deadline::after(self.inner.clock.now_ms(), AUDIT_TIMEOUT);
        let mut meta = Meta::new(tenant, deadline);
        if let Some(operation) = record.operation() {
            meta = meta.with_operation(operation);
        }
        let event = audit_event(key, record, action);
        if let Err(error) = bus.publish_audit(&meta, &event).await {
            tracing::warn!(%error, ?action, "an audit event of a ticket was not stored");
        }
    }
}

fn audit_event(key: &str, record: &TicketRecord, action: TicketAction) -> v1::TicketAudit {
    let content = record.content.as_ref();
    let sha256 = content.and_then(|content| content.sha256.parse::<Sha256Digest>().ok());
    v1::TicketAudit {
        ticket_id: ticket_id(key).to_owned(),
        session: record.session.clone(),
        direction: match record.direction {
            TicketDirection::Upload => v1::TicketDirection::Upload.into(),
            TicketDirection::Download => v1::TicketDirection::Download.into(),
        },
        action: action.into(),
        max_bytes: record.max_bytes,
        moved_bytes: record.moved,
        sha256: sha256.map_or_else(Vec::new, |sha256| sha256.as_bytes().to_vec()),
        expires_at_ms: record.expires_at_ms,
        destination: match &record.destination {
            None => String::new(),
            Some(TicketDestination::Sandbox { .. }) => "sandbox".to_owned(),
            Some(TicketDestination::Chat { .. }) => "chat".to_owned(),
        },
    }
}
