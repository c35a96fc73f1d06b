//! The policies that the replicas of `egress-fetcher` have in force.

use std::collections::BTreeSet;
use std::time::Duration;

use dray_bus::error::{CallError, TransportError};
use dray_bus::{Bus, Meta};
use dray_proto::v1;
use dray_types::{Clock, Deadline, TenantId};

use super::finding::Finding;

/// The subject of the finding about replicas with policy files at a path.
const REPLICAS_SUBJECT: &str = "egress policy in force";
/// Time without a further reply after which all replicas count as heard.
pub(super) const QUIET_TIME: Duration = Duration::from_millis(300);

/// The policies of all replicas that reply, in the order of their hosts. A replica of an earlier version has no call for
/// it: where no other one runs, one of them is asked for its digest.
pub(super) async fn ask_replicas(
    bus: &Bus,
    tenant: &TenantId,
    limit: Duration,
) -> Result<Vec<v1::ShowEgressPolicyReply>, CallError> {
    let deadline = Deadline::after(Clock::system().now_ms(), limit);
    let meta = Meta::new(tenant.clone(), deadline);
    let request = v1::ShowEgressPolicyRequest {};
    let replies = match bus.call_each(&meta, &request, QUIET_TIME).await {
        Ok(replies) => replies,
        Err(CallError::NoResponder(_)) => {
            let explained = bus.call_once(&meta, &v1::ExplainRequest::sample()).await?;
            return Ok(vec![v1::ShowEgressPolicyReply {
                rules_digest: explained.rules_digest,
                ..v1::ShowEgressPolicyReply::default()
            }]);
        }
        Err(error) => return Err(error),
    };
    let mut policies = Vec::new();
    for reply in replies {
        policies.push(reply?);
    }
    policies.sort_by(|one, other| (&one.host, &one.instance).cmp(&(&other.host, &other.instance)));
    Ok(policies)
}

/// Checks that all replicas have the same policy files in force, and that none refuses the present ones.
pub(super) async fn check_replicas(bus: &Bus, tenant: &TenantId, limit: Duration) -> Finding {
    let replicas = match ask_replicas(bus, tenant, limit).await {
        Ok(replicas) => replicas,
        Err(error) => return Finding::skipped(REPLICAS_SUBJECT, not_asked(&error)),
    };
    let digests: BTreeSet<&str> = replicas
        .iter()
        .map(|replica| replica.rules_digest.as_str())
        .collect();
    let is_refused = replicas.iter().any(|replica| replica.refused.is_some());
    if digests.len() == 1 && !is_refused {
        let digest = replicas.first().map(|replica| replica.rules_digest.clone());
        let digest = digest.filter(|digest| !digest.is_empty());
        let text = format!(
            "{} with the digest {}",
            replica_count(replicas.len()),
            digest.as_deref().unwrap_or("of no policy files")
        );
        return Finding::good(REPLICAS_SUBJECT, text);
    }
    let replicas: Vec<_> = replicas.iter().collect();
    Finding::problem(
        REPLICAS_SUBJECT,
        format!(
            "the replicas of `egress-fetcher` differ, or refuse files: {}",
            list(&replicas)
        ),
        "Give all replicas the same valid files; each reads its own copy every second.",
    )
}

/// The reason why the replicas could not be asked.
pub(super) fn not_asked(error: &CallError) -> String {
    match error {
        CallError::Transport(TransportError::Denied(_)) => {
            "this identity may not call `egress-fetcher`; `operator` may".to_owned()
        }
        error => error.to_string(),
    }
}

/// `1 replica`, `2 replicas`.
pub(super) fn replica_count(count: usize) -> String {
    match count {
        1 => "1 replica".to_owned(),
        count => format!("{count} replicas"),
    }
}

/// The replicas with what they have in force and what they refuse.
pub(super) fn list(replicas: &[&v1::ShowEgressPolicyReply]) -> String {
    let described: Vec<String> = replicas.iter().map(|replica| describe(replica)).collect();
    described.join("; ")
}

fn describe(replica: &v1::ShowEgressPolicyReply) -> String {
    let name = match (replica.host.as_str(), replica.instance.as_str()) {
        ("", "") => "the service".to_owned(),
        (host, instance) => format!("{host} ({instance})")
            .trim_start()
            .escape_debug()
            .to_string(),
    };
    let digest = match replica.rules_digest.as_str() {
        "" => "has no policy files".to_owned(),
        digest => format!("has {digest} in force"),
    };
    let revision = match replica.revision {
        0 => String::new(),
        revision => format!(", revision {revision}"),
    };
    let refusal = replica
        .refused
        .as_ref()
        .map_or_else(String::new, |refusal| {
            let revision = match refusal.revision {
                0 => "the present files".to_owned(),
                revision => format!("revision {revision}"),
            };
            let place = match (refusal.file.as_str(), refusal.line) {
                ("", _) => String::new(),
                (file, 0) => format!("{file}: "),
                (file, line) => format!("{file}:{line}: "),
            };
            let text = format!("{place}{}. {}", refusal.problem, refusal.remedy);
            format!(
                ", and refuses {revision}: {}",
                text.trim_end().escape_debug()
            )
        });
    format!("{name} {digest}{revision}{refusal}")
}
