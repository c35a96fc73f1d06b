//! Checks of the bucket from which `egress-fetcher` takes its policy, and whether that policy is in force.

use std::time::Duration;

use dray_bus::Bus;
use dray_egress_fetcher::policy_bucket::{BucketState, POLICY_BUCKET, bucket_topology};
use dray_egress_fetcher::policy_files::PolicyReadError;
use dray_guard::RuleSet;
use dray_proto::v1;
use dray_types::{ErrorChain, TenantId};

use super::finding::Finding;
use super::policy_replicas::{QUIET_TIME, ask_replicas, list, not_asked, replica_count};
use super::system::is_denied;
use crate::commands::policy_bucket::revision_text;

/// The subject of the finding, which is that of policy files too.
const POLICY_SUBJECT: &str = "egress policy";
/// Time between two comparisons with the rules in force.
const COMPARISON_INTERVAL: Duration = Duration::from_millis(500);
/// Most comparisons. A change is in force when two reads of the service agree, and it reads every second.
const MAX_COMPARISONS: u32 = 8;

/// The finding where the bus is in the process of the services, whose bucket no other process can write.
pub(super) fn without_a_server() -> Finding {
    Finding::problem(
        POLICY_SUBJECT,
        "`egress-fetcher.policy_bucket` is set, and the bus is in the process (`bus.mode`), where its bucket stays empty",
        "Name a NATS server (`bus.mode`, or --nats), or set `egress-fetcher.policy_path` instead of `policy_bucket`.",
    )
}

/// Checks that the bucket exists, has a valid policy, and that `egress-fetcher` uses it.
pub(super) async fn check_policy_bucket(bus: &Bus, tenant: &TenantId, limit: Duration) -> Finding {
    let examined = async {
        if let Some(finding) = check_existence(bus).await {
            return finding;
        }
        compare_with_rules_in_force(bus, tenant, limit).await
    };
    // The comparison may wait for a policy that was just put.
    let limit = limit + (COMPARISON_INTERVAL + QUIET_TIME) * MAX_COMPARISONS;
    tokio::time::timeout(limit, examined)
        .await
        .unwrap_or_else(|_| {
            Finding::problem(
                POLICY_SUBJECT,
                format!(
                    "The bucket {POLICY_BUCKET} was not read within {} s.",
                    limit.as_secs()
                ),
                "Run the command again with a longer --timeout.",
            )
        })
}

/// A finding if the bucket does not exist or cannot be looked at. Other differences are those of the streams.
async fn check_existence(bus: &Bus) -> Option<Finding> {
    match bus.verify_topology(&bucket_topology()).await {
        Ok(mismatches) => mismatches
            .iter()
            .any(|mismatch| mismatch.field == "existence")
            .then(|| {
                Finding::problem(
                    POLICY_SUBJECT,
                    format!(
                        "`egress-fetcher.policy_bucket` is set, and the bucket {POLICY_BUCKET} does not exist"
                    ),
                    "Run `dray topology apply` with an identity that may manage streams, then \
                     `dray policy put DIRECTORY --revision 0`.",
                )
            }),
        Err(error) if is_denied(&error) => Some(not_permitted()),
        Err(error) => Some(unreadable(&ErrorChain(&error).to_string())),
    }
}

fn not_permitted() -> Finding {
    let text = format!("this identity may not read the bucket {POLICY_BUCKET}; `operator` may");
    Finding::skipped(POLICY_SUBJECT, text)
}

fn unreadable(cause: &str) -> Finding {
    Finding::problem(
        POLICY_SUBJECT,
        format!("the bucket {POLICY_BUCKET} could not be read: {cause}"),
        "Check the server and its log; `dray policy show` reads the bucket too.",
    )
}

/// The policy in the bucket and the revision of it; a finding if it cannot be used.
async fn read_policy(bus: &Bus) -> Result<(String, RuleSet), Finding> {
    let state = match BucketState::read(&bus.key_value(POLICY_BUCKET)).await {
        Ok(state) => state,
        Err(error) if is_denied(&error) => return Err(not_permitted()),
        Err(error) => return Err(unreadable(&ErrorChain(&error).to_string())),
    };
    let revision = state.revision();
    let number = revision.number;
    let described = revision_text(&revision);
    let rules = state.policy().and_then(|files| files.rules());
    match rules {
        Ok(rules) => Ok((described, rules)),
        Err(error) => {
            let text = format!(
                "{described}: {}. `egress-fetcher` keeps the rules that it has, and does not start again",
                ErrorChain(&error)
            );
            let advice = if matches!(error, PolicyReadError::Invalid(_)) {
                format!(
                    "Correct what is named: `dray policy show --to DIRECTORY`, then \
                     `dray policy put DIRECTORY --revision {number}`."
                )
            } else {
                format!("Put the whole policy: `dray policy put DIRECTORY --revision {number}`.")
            };
            Err(Finding::problem(POLICY_SUBJECT, text, advice))
        }
    }
}

async fn compare_with_rules_in_force(bus: &Bus, tenant: &TenantId, limit: Duration) -> Finding {
    let mut finding = Finding::skipped(POLICY_SUBJECT, "it was not compared");
    for attempt in 0..MAX_COMPARISONS {
        if attempt > 0 {
            tokio::time::sleep(COMPARISON_INTERVAL).await;
        }
        // The bucket is read again each time: another policy may be put meanwhile.
        let (revision, rules) = match read_policy(bus).await {
            Ok(policy) => policy,
            Err(finding) => return finding,
        };
        let asked = ask_replicas(bus, tenant, limit).await;
        let (digest, count) = (rules.digest(), rules.rule_count());
        let replicas = match asked {
            Ok(replicas) => replicas,
            Err(error) => return not_compared(&revision, count, &not_asked(&error)),
        };
        let is_other = |replica: &&v1::ShowEgressPolicyReply| replica.rules_digest != digest;
        let others: Vec<_> = replicas.iter().filter(is_other).collect();
        if others.is_empty() {
            let replicas = replica_count(replicas.len());
            let text =
                format!("{revision}, is in force in {replicas}: {count} rules, digest {digest}");
            return Finding::good(POLICY_SUBJECT, text);
        }
        finding = not_in_force(&revision, digest, &others, replicas.len());
    }
    finding
}

/// The finding about `others`, the replicas among `count` that have another policy.
fn not_in_force(
    revision: &str,
    digest: &str,
    others: &[&v1::ShowEgressPolicyReply],
    count: usize,
) -> Finding {
    let is_everywhere = others.len() == count;
    if is_everywhere && others.iter().all(|other| other.rules_digest.is_empty()) {
        return Finding::problem(
            POLICY_SUBJECT,
            format!("{revision}, is not in force: `egress-fetcher` has no policy files"),
            "Set `egress-fetcher.policy_bucket = true` where the service runs, and restart it.",
        );
    }
    let scope = if is_everywhere {
        String::new()
    } else {
        format!(" in {} of {}", others.len(), replica_count(count))
    };
    Finding::problem(
        POLICY_SUBJECT,
        format!(
            "{revision}, is not in force{scope}: its digest is {digest}, and {}",
            list(others)
        ),
        "Read the log of `egress-fetcher` for the reason why it does not use the policy. An earlier version has to be \
         upgraded, and the service needs `egress-fetcher.policy_bucket = true`.",
    )
}

fn not_compared(revision: &str, count: usize, reason: &str) -> Finding {
    Finding::skipped(
        POLICY_SUBJECT,
        format!(
            "{revision}, is valid ({count} rules), and was not compared with the rules in force: {reason}"
        ),
    )
}
