//! One audit event for each policy that this process puts in force or refuses, and the status that it reports to
//! callers.
//!
//! The policy is that of all tenants, so its events have the tenant `default`. They go to the log, to every place beside
//! it, whatever is sampled there, and to the audit stream.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use dray_bus::Meta;
use dray_proto::{NamedCode as _, v1};
use dray_types::{Deadline, TenantId};
use serde_json::{Value, json};

use super::event_result::EventResult;
use super::ocsf::SCHEMA_VERSION;
use super::queue::PlacedEvent;
use super::syslog::host_name;
use super::{Auditor, PUBLISH_TIMEOUT, PendingPublish};

/// Version of the fetcher.
const FETCHER_VERSION: &str = env!("CARGO_PKG_VERSION");
/// `category_uid` of identity and access management.
const IAM_CATEGORY: u32 = 3;
/// The class Entity Management: a change of an entity that a service manages.
const ENTITY_MANAGEMENT: u32 = 3004;
/// The activity `update` of Entity Management.
const UPDATE_ACTIVITY: u32 = 3;

/// The policy of this process, as callers get it. Clones share it.
#[derive(Clone, Debug, Default)]
pub struct PolicyStatus {
    present: Arc<Mutex<v1::ShowEgressPolicyReply>>,
}

impl PolicyStatus {
    /// The status of a process without policy files.
    pub fn of_instance(instance: &str) -> Self {
        let status = Self::default();
        status.change(|present| {
            instance.clone_into(&mut present.instance);
            FETCHER_VERSION.clone_into(&mut present.fetcher_version);
            present.host = own_host();
        });
        status
    }

    /// The policy in force, and the refused one.
    pub fn show(&self) -> v1::ShowEgressPolicyReply {
        let present = self.present.lock();
        present.unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn change(&self, change: impl FnOnce(&mut v1::ShowEgressPolicyReply)) {
        let present = self.present.lock();
        change(&mut present.unwrap_or_else(PoisonError::into_inner));
    }
}

/// The name of the host; empty where it is not known.
fn own_host() -> String {
    match host_name().as_str() {
        "-" => String::new(),
        name => name.to_owned(),
    }
}

/// A policy that was read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReadPolicy {
    /// Where it comes from: `path` or `bucket`.
    pub source: &'static str,
    /// Digest of its files; empty where they could not be read.
    pub digest: String,
    /// Revision of the bucket; 0 for files at a path.
    pub revision: u64,
    /// The name that the writer of the revision stated; empty for files at a path.
    pub written_by: String,
}

/// Records what this process does with policies, once for each revision.
#[derive(Debug)]
pub struct PolicyReporter {
    auditor: Option<Auditor>,
    status: PolicyStatus,
    /// The last event, so that the same decision about the same revision is not recorded twice.
    last: Option<(ReadPolicy, v1::EgressPolicyOutcome)>,
    publishing: Option<PendingPublish>,
}

impl PolicyReporter {
    /// A reporter whose events `auditor` publishes. Without one, only the status changes.
    pub const fn new(auditor: Option<Auditor>, status: PolicyStatus) -> Self {
        Self {
            auditor,
            status,
            last: None,
            publishing: None,
        }
    }

    /// A policy with `rule_count` rules is in force. Another revision with equal files counts too.
    pub fn in_force(&mut self, policy: &ReadPolicy, rule_count: usize) {
        let rule_count = u32::try_from(rule_count).unwrap_or(u32::MAX);
        let previous_digest = self.status.show().rules_digest;
        self.status.change(|present| {
            present.rules_digest.clone_from(&policy.digest);
            policy.source.clone_into(&mut present.source);
            present.revision = policy.revision;
            present.rule_count = rule_count;
            present.refused = None;
        });
        self.record(
            policy,
            v1::EgressPolicyOutcome::InForce,
            v1::EgressPolicyAudit {
                rule_count,
                previous_digest,
                ..v1::EgressPolicyAudit::default()
            },
        );
    }

    /// The files equal those in force again, perhaps at another revision.
    pub fn still_in_force(&mut self, policy: &ReadPolicy) {
        let present = self.status.show();
        if present.refused.is_some() || present.revision != policy.revision {
            let is_new = present.revision != policy.revision;
            self.status.change(|present| {
                present.refused = None;
                present.revision = policy.revision;
            });
            if is_new {
                self.in_force(policy, present.rule_count as usize);
            }
        }
    }

    /// A policy is refused; the earlier one stays in force.
    pub fn refused(&mut self, policy: &ReadPolicy, refusal: v1::EgressPolicyRefusal) {
        let refusal = v1::EgressPolicyRefusal {
            rules_digest: policy.digest.clone(),
            revision: policy.revision,
            ..refusal
        };
        let present = self.status.show();
        self.status
            .change(|present| present.refused = Some(refusal.clone()));
        self.record(
            policy,
            v1::EgressPolicyOutcome::Refused,
            v1::EgressPolicyAudit {
                previous_digest: present.rules_digest,
                refused: Some(refusal),
                ..v1::EgressPolicyAudit::default()
            },
        );
    }

    /// Waits until the last event is published and in the file, at most 2 s: before the process ends.
    pub async fn finish(&mut self) {
        let (Some(auditor), Some(publishing)) = (&self.auditor, self.publishing.take()) else {
            return;
        };
        tokio::join!(
            publishing.wait(PUBLISH_TIMEOUT),
            auditor.flush_file(PUBLISH_TIMEOUT)
        );
    }

    fn record(
        &mut self,
        policy: &ReadPolicy,
        outcome: v1::EgressPolicyOutcome,
        event: v1::EgressPolicyAudit,
    ) {
        let decision = (policy.clone(), outcome);
        if self.last.as_ref() == Some(&decision) {
            return;
        }
        self.last = Some(decision);
        let Some(auditor) = &self.auditor else {
            return;
        };
        let status = self.status.show();
        let event = v1::EgressPolicyAudit {
            event_id: uuid::Uuid::new_v4().to_string(),
            time_ms: auditor.inner.clock.now_ms(),
            instance: status.instance,
            host: status.host,
            outcome: outcome.into(),
            source: policy.source.to_owned(),
            rules_digest: policy.digest.clone(),
            revision: policy.revision,
            written_by: policy.written_by.clone(),
            fetcher_version: FETCHER_VERSION.to_owned(),
            ..event
        };
        self.publishing = Some(auditor.record_policy(event));
    }
}

impl Auditor {
    /// Logs the event, hands it to every place, and begins to publish it.
    fn record_policy(&self, event: v1::EgressPolicyAudit) -> PendingPublish {
        let text = event_json(&event).to_string();
        tracing::info!(target: "dray_egress_fetcher::audit", audit = text, "policy checked");
        self.record_in_destinations(&event, &text);
        let Ok(runtime) = tokio::runtime::Handle::try_current() else {
            return PendingPublish::Known(false);
        };
        let deadline = Deadline::after(event.time_ms, Duration::from_mins(1));
        let meta = Meta::new(TenantId::default(), deadline);
        let publishing = self.clone().publish(meta, event.event_id.clone(), event);
        PendingPublish::Running(self.inner.tasks.spawn_on(publishing, &runtime))
    }
}

/// The event as a JSON object. Only an event of a policy has the field `policy_outcome`.
fn event_json(event: &v1::EgressPolicyAudit) -> Value {
    let v1::EgressPolicyAudit {
        event_id,
        time_ms,
        instance,
        outcome: _,
        source,
        rules_digest,
        revision,
        written_by,
        rule_count,
        previous_digest,
        refused,
        fetcher_version,
        host,
    } = event;
    let refused = refused.as_ref().map(|refusal| {
        json!({
            "file": refusal.file,
            "line": refusal.line,
            "problem": refusal.problem,
            "remedy": refusal.remedy,
            "problem_count": refusal.problem_count,
        })
    });
    json!({
        "event_id": event_id,
        "time": time_ms,
        "policy_outcome": event.outcome().name(),
        "instance": instance,
        "host": host,
        "source": source,
        "rules_digest": rules_digest,
        "revision": revision,
        "written_by": written_by,
        "rule_count": rule_count,
        "previous_digest": previous_digest,
        "refused": refused,
        "fetcher_version": fetcher_version,
    })
}

impl PlacedEvent for v1::EgressPolicyAudit {
    fn result(&self) -> EventResult {
        match self.outcome() {
            v1::EgressPolicyOutcome::Refused => EventResult::Refused,
            _ => EventResult::Success,
        }
    }

    fn sampled_operation(&self) -> Option<&str> {
        None
    }

    fn time_ms(&self) -> u64 {
        self.time_ms
    }

    fn kind(&self) -> &'static str {
        "EgressPolicyAudit"
    }

    fn ocsf_json(&self) -> Value {
        let is_refused = self.result() == EventResult::Refused;
        json!({
            "category_uid": IAM_CATEGORY,
            "class_uid": ENTITY_MANAGEMENT,
            "activity_id": UPDATE_ACTIVITY,
            "type_uid": ENTITY_MANAGEMENT * 100 + UPDATE_ACTIVITY,
            "time": self.time_ms,
            // The severity is "informational" or "medium".
            "severity_id": if is_refused { 3 } else { 1 },
            // The status is "success" or "failure".
            "status_id": if is_refused { 2 } else { 1 },
            "status_code": self.outcome().name(),
            "status_detail": self.refused.as_ref().map(|refusal| refusal.problem.as_str()).unwrap_or_default(),
            "metadata": {
                "version": SCHEMA_VERSION,
                "uid": self.event_id,
                "tenant_uid": TenantId::default().as_str(),
                "product": {
                    "name": "egress-fetcher",
                    "vendor_name": "Drayage",
                    "version": self.fetcher_version,
                },
            },
            "entity": {
                "type": "Policy",
                "name": self.source,
                "uid": self.rules_digest,
                "version": self.revision.to_string(),
            },
            "unmapped": event_json(self),
        })
    }
}
