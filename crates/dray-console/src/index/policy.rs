//! The row of an event about a policy of `egress-fetcher`.

use dray_proto::NamedCode as _;
use dray_proto::v1::{self, EgressPolicyOutcome};

use super::row::{EventRow, RowOutcome};
use crate::rules_in_force::refusal_text;
use crate::text::shown;

/// Fills in which replica put which policy in force, or refused it, and why.
pub(super) fn policy_audit(row: &mut EventRow, audit: &v1::EgressPolicyAudit) {
    row.outcome = match audit.outcome() {
        EgressPolicyOutcome::InForce => RowOutcome::Done,
        EgressPolicyOutcome::Refused => RowOutcome::Refused,
        EgressPolicyOutcome::Unspecified => RowOutcome::Unknown,
    };
    row.summary = match &audit.refused {
        Some(refusal) => format!("Policy refused: {}", shown(refusal_text(refusal))),
        None => format!(
            "Policy {}: {} rules",
            audit.outcome().name(),
            audit.rule_count
        ),
    };
    row.prove("replica", audit.instance.as_str());
    row.prove("host", audit.host.as_str());
    row.prove("rules_digest", audit.rules_digest.as_str());
    if audit.revision > 0 {
        row.prove("revision", audit.revision.to_string());
    }
    row.prove("written_by", audit.written_by.as_str());
}
