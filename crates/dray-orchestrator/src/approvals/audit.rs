//! Audit events of decisions. The event is stored before the decision; an approval or an answer does not hold without
//! it.

use std::time::Duration;

use dray_agent::failure::RequestFailure;
use dray_bus::{Bus, Meta};
use dray_proto::v1::{ApprovalAudit, ApprovalChoice};
use dray_types::{Clock, Deadline, TenantId};

use super::{ApprovalDecision, ApprovalRecord};

/// How long an audit event may take to be stored.
const AUDIT_TIMEOUT: Duration = Duration::from_secs(5);

/// Reports decisions to the audit stream. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct ApprovalAudits {
    bus: Bus,
    tenant: TenantId,
    clock: Clock,
}

impl ApprovalAudits {
    /// Events of one tenant.
    pub(crate) const fn new(bus: Bus, tenant: TenantId, clock: Clock) -> Self {
        Self { bus, tenant, clock }
    }

    /// Events of another tenant on the same bus.
    pub(super) fn for_tenant(&self, tenant: TenantId) -> Self {
        Self {
            tenant,
            ..self.clone()
        }
    }

    /// The bus of the events.
    pub(super) const fn bus(&self) -> &Bus {
        &self.bus
    }

    /// The envelope of a message of this service, with the tenant.
    pub(super) fn meta(&self, timeout: Duration) -> Meta {
        let deadline = Deadline::after(self.clock.now_ms(), timeout);
        Meta::new(self.tenant.clone(), deadline)
    }

    /// Stores the event of a decision that is about to hold.
    ///
    /// # Errors
    ///
    /// 503 when the event of an approval or an answer cannot be stored. A refusal needs no event, because it has no
    /// effect.
    pub(super) async fn report(
        &self,
        principal: &str,
        id: &str,
        record: &ApprovalRecord,
        decision: &ApprovalDecision,
    ) -> Result<(), RequestFailure> {
        let mut audit = ApprovalAudit {
            approval_id: id.to_owned(),
            principal: principal.to_owned(),
            tool: record.tool.clone(),
            call_sha256: record.digest.clone(),
            decided_by: record
                .decided_by
                .as_ref()
                .map(|decider| decider.id.clone())
                .unwrap_or_default(),
            option: record.chosen_option().unwrap_or_default().to_owned(),
            ..ApprovalAudit::default()
        };
        audit.set_choice(match decision {
            ApprovalDecision::Approved | ApprovalDecision::Answered => ApprovalChoice::Approved,
            ApprovalDecision::Refused { .. }
            | ApprovalDecision::Declined
            | ApprovalDecision::Cancelled => ApprovalChoice::Refused,
        });
        let meta = self.meta(AUDIT_TIMEOUT);
        let published = self.bus.publish_audit(&meta, &audit).await;
        tracing::info!(
            approval = id,
            principal,
            tool = record.tool,
            call_sha256 = record.digest,
            decided_by = audit.decided_by,
            choice = ?audit.choice(),
            is_stored = published.is_ok(),
            "a decision about a call of a tool was made"
        );
        match published {
            Ok(_) => Ok(()),
            Err(_) if !decision.permits() => Ok(()),
            Err(error) => {
                tracing::warn!(
                    error = &error as &dyn std::error::Error,
                    "the audit event of an approval was not stored"
                );
                let text = "Nothing was done: the approval cannot be recorded at the moment.";
                Err(RequestFailure::new(503, text)
                    .display(format!("{text} Please try again later.")))
            }
        }
    }
}
