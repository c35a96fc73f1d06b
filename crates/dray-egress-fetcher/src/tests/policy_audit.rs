//! Tests of the audit events about policies: one for each policy that the process puts in force or refuses.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use dray_bus::{EventFilter, EventStream};
use dray_proto::v1::{self, EgressPolicyOutcome};
use dray_service::Host;
use dray_service::Settings;
use serde_json::Value;

use super::test_service::*;
use crate::service::EgressFetcher;

const ALLOW_ALL: &str = "default = \"allow\"\n";
const DENY_ALL: &str = "default = \"deny\"\n";
/// The second line has an outcome that does not exist.
const INVALID: &str = "# A comment.\ndefault = \"maybe\"\n";
const CHECKED_SUBJECT: &str = "dray.audit.policy.v1.checked.default";

/// A service with a policy file, and with files of audit events.
struct AuditedPolicy {
    service: TestService,
    events: EventStream,
    directory: tempfile::TempDir,
}

impl AuditedPolicy {
    async fn start(text: &str, format: &str) -> Self {
        let directory = tempfile::tempdir().unwrap();
        fs::write(directory.path().join("policy.toml"), text).unwrap();
        let path = |name: &str| directory.path().join(name).display().to_string();
        let (policy, audit) = (path("policy.toml"), path("audit.jsonl"));
        let set = [
            ("policy_path", policy.as_str()),
            ("egress-fetcher.audit_file.path", audit.as_str()),
            ("egress-fetcher.audit_file.format", format),
            // Sampling leaves out allowed requests alone.
            ("egress-fetcher.audit_file.sample_percent", "0"),
        ];
        let service = start_service(&hello(), &set).await;
        let filter = EventFilter::new(CHECKED_SUBJECT).from_start();
        let events = service.running.context().bus.events(filter).await.unwrap();
        Self {
            service,
            events,
            directory,
        }
    }

    fn write(&self, text: &str) {
        fs::write(self.directory.path().join("policy.toml"), text).unwrap();
    }

    async fn next(&mut self) -> v1::EgressPolicyAudit {
        let next = tokio::time::timeout(Duration::from_secs(20), self.events.next()).await;
        next.unwrap().unwrap().decode().unwrap()
    }

    async fn show(&self) -> v1::ShowEgressPolicyReply {
        let cx = self.service.running.context();
        let request = v1::ShowEgressPolicyRequest {};
        let quiet_time = Duration::from_millis(50);
        let meta = meta(&cx.clock);
        let replies = cx.bus.call_each(&meta, &request, quiet_time).await;
        let mut replies = replies.unwrap();
        assert_eq!(replies.len(), 1);
        replies.remove(0).unwrap()
    }

    fn lines(&self) -> Vec<Value> {
        lines_of(&self.directory.path().join("audit.jsonl"))
    }
}

fn lines_of(path: &Path) -> Vec<Value> {
    let text = fs::read_to_string(path).unwrap();
    let lines = text.lines();
    lines
        .map(|line| serde_json::from_str(line).unwrap())
        .collect()
}

fn digest_of(text: &str) -> String {
    dray_types::Sha256Digest::of(text.as_bytes()).to_hex()
}

#[tokio::test]
async fn each_policy_that_is_put_in_force_or_refused_has_one_event() {
    let mut policy = AuditedPolicy::start(DENY_ALL, "json").await;
    let first = policy.next().await;
    assert_eq!(first.outcome(), EgressPolicyOutcome::InForce);
    assert_eq!(first.rules_digest, digest_of(DENY_ALL));
    assert_eq!((first.source.as_str(), first.revision), ("path", 0));
    let instance = policy.service.running.context().instance.clone();
    assert_eq!(
        (&first.instance, first.previous_digest.as_str()),
        (&instance, "")
    );
    assert!(first.refused.is_none());

    policy.write(INVALID);
    let refused = policy.next().await;
    assert_eq!(refused.outcome(), EgressPolicyOutcome::Refused);
    assert_eq!(refused.rules_digest, digest_of(INVALID));
    assert_eq!(refused.previous_digest, digest_of(DENY_ALL));
    let problem = refused.refused.unwrap();
    assert_eq!((problem.file.as_str(), problem.line), ("policy.toml", 2));
    assert!(
        !problem.problem.is_empty() && !problem.remedy.is_empty(),
        "{problem:?}"
    );
    assert_eq!(problem.problem_count, 1);
    let shown = policy.show().await;
    assert_eq!(
        (&shown.instance, shown.rules_digest),
        (&instance, digest_of(DENY_ALL))
    );
    assert_eq!(shown.refused, Some(problem));

    // The files that are in force return: nothing was put in force, and the same refusal is not recorded twice.
    policy.write(DENY_ALL);
    dray_testkit::eventually("the end of the refusal", async || {
        policy.show().await.refused.is_none().then_some(())
    })
    .await;
    policy.write(INVALID);
    dray_testkit::eventually("the refusal", async || policy.show().await.refused).await;
    policy.write(ALLOW_ALL);
    let second = policy.next().await;
    assert_eq!(second.outcome(), EgressPolicyOutcome::InForce);
    assert_eq!(second.rules_digest, digest_of(ALLOW_ALL));
    assert_eq!(second.previous_digest, digest_of(DENY_ALL));
    assert_eq!(policy.show().await.refused, None);

    let outcomes = dray_testkit::eventually("three lines", async || {
        let lines = policy.lines();
        (lines.len() == 3).then_some(lines)
    })
    .await;
    let outcomes: Vec<&str> = outcomes
        .iter()
        .map(|line| line["policy_outcome"].as_str().unwrap())
        .collect();
    assert_eq!(outcomes, ["in_force", "refused", "in_force"]);
    assert_eq!(policy.lines()[1]["refused"]["line"], 2);
}

#[tokio::test]
async fn a_refused_policy_is_a_failed_change_of_an_entity_in_ocsf() {
    let mut policy = AuditedPolicy::start(DENY_ALL, "ocsf").await;
    policy.next().await;
    policy.write(INVALID);
    let event = policy.next().await;
    let lines = dray_testkit::eventually("two lines", async || {
        let lines = policy.lines();
        (lines.len() == 2).then_some(lines)
    })
    .await;
    assert_eq!(
        (&lines[0]["status_id"], &lines[1]["status_id"]),
        (&1.into(), &2.into())
    );
    let line = &lines[1];
    assert_eq!(
        (&line["class_uid"], &line["type_uid"]),
        (&3004.into(), &300_403.into())
    );
    assert_eq!(line["metadata"]["uid"], event.event_id);
    assert_eq!(line["entity"]["uid"], digest_of(INVALID));
    assert_eq!(line["status_code"], "refused");
    assert_eq!(line["status_detail"], event.refused.unwrap().problem);
    assert_eq!(line["unmapped"]["refused"]["file"], "policy.toml");
}

#[tokio::test]
async fn a_policy_that_stops_the_start_is_in_the_file_of_audit_events() {
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| -> PathBuf { directory.path().join(name) };
    fs::write(path("policy.toml"), INVALID).unwrap();
    let settings = Settings::embedded(path("state"))
        .set("egress-fetcher.enabled", "true")
        .set(
            "egress-fetcher.policy_path",
            path("policy.toml").display().to_string(),
        )
        .set(
            "egress-fetcher.audit_file.path",
            path("audit.jsonl").display().to_string(),
        );
    let network = hello().network();
    let started = Host::new(settings)
        .with_start::<EgressFetcher, _, _>(move |config, cx| {
            EgressFetcher::start_with(config, cx, network)
        })
        .start()
        .await;
    assert!(started.is_err());
    let lines = lines_of(&path("audit.jsonl"));
    assert_eq!(lines.len(), 1);
    assert_eq!(lines[0]["policy_outcome"], "refused");
    assert_eq!(lines[0]["rules_digest"], digest_of(INVALID));
    assert_eq!(lines[0]["refused"]["line"], 2);
}
