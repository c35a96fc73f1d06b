//! The rules of policy files that are in force, and where they come from: for the policy tester and the set-up page.

use std::fmt;
use std::time::Duration;

use dray_proto::v1;
use futures_util::future::BoxFuture;
use maud::{Markup, html};

use crate::replica_policies::{ReplicaPolicies, replicas_list};
use crate::state::ConsoleState;
use crate::text::{shown, time_element};

/// How long `egress-fetcher` and the bucket may take to respond.
const RULES_TIMEOUT: Duration = Duration::from_secs(2);
/// The setting of `egress-fetcher` that takes the rules from the bucket of the bus.
const BUCKET_SETTING: &str = "egress-fetcher.policy_bucket";

/// The policy in the bucket of the bus at its present revision.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BucketPolicy {
    /// Name of the bucket.
    pub bucket: &'static str,
    /// The revision; 0 for a bucket that was never written.
    pub revision: u64,
    /// Unix milliseconds at which it was written; `None` for a bucket that was never written.
    pub time_ms: Option<u64>,
    /// The name that its writer stated, which is not verified; `None` if the bucket does not say.
    pub written_by: Option<String>,
    /// Digest of its rules, or the reason why it cannot be used.
    pub rules_digest: Result<String, String>,
}

/// Reads the policy in the bucket of the bus. The crate of `egress-fetcher` knows its layout, and this one does not.
pub trait PolicyBucketReader: fmt::Debug + Send + Sync {
    /// The present policy, or the reason why the bucket cannot be read.
    fn read(&self) -> BoxFuture<'_, Result<BucketPolicy, String>>;
}

/// The rules with which `egress-fetcher` judges.
#[derive(Debug)]
struct RulesInForce {
    /// Digest of the policy files; empty without them.
    digest: String,
    /// The setting that names their place.
    setting: String,
    /// The policy in the bucket, where the rules come from it and it can be read.
    bucket: Option<Result<BucketPolicy, String>>,
    /// The policies of all replicas that replied.
    replicas: ReplicaPolicies,
}

/// A section with the rules in force, as one replica of `egress-fetcher` reports them, and with the replicas that differ.
pub(crate) async fn rules_section(state: &ConsoleState) -> Markup {
    let meta = state.meta(RULES_TIMEOUT);
    let sample = v1::ExplainRequest::sample();
    match state.bus.call_once(&meta, &sample).await {
        Ok(reply) => section_of_reply(state, &reply).await,
        Err(error) => html! {
            h2 { "Rules in force" }
            p #rules-in-force { "egress-fetcher did not report them: " (shown(error.to_string())) }
        },
    }
}

/// A section with the rules by which this reply was judged.
pub(crate) async fn section_of_reply(state: &ConsoleState, reply: &v1::ExplainReply) -> Markup {
    let rules = rules_of(state, reply).await;
    html! {
        h2 { "Rules in force" }
        dl #rules-in-force { (rules_list(&rules)) }
    }
}

async fn rules_of(state: &ConsoleState, reply: &v1::ExplainReply) -> RulesInForce {
    let mut steps = reply.steps.iter();
    let step = steps.find(|step| step.step() == v1::PolicyStep::PolicyRules);
    let setting = step.map(|step| step.setting.clone()).unwrap_or_default();
    let reading = async {
        match &state.policy_bucket {
            Some(reader) if setting == BUCKET_SETTING => {
                let read = tokio::time::timeout(RULES_TIMEOUT, reader.read()).await;
                Some(read.unwrap_or_else(|_| Err("the bus did not respond in time".to_owned())))
            }
            _ => None,
        }
    };
    let (bucket, replicas) = tokio::join!(reading, ReplicaPolicies::ask(state, RULES_TIMEOUT));
    RulesInForce {
        digest: reply.rules_digest.clone(),
        setting,
        bucket,
        replicas,
    }
}

fn rules_list(rules: &RulesInForce) -> Markup {
    if rules.digest.is_empty() {
        return html! {
            dt { "Policy files" } dd { "none: only the configuration and the guard judge" }
            (replicas_list(&rules.replicas))
        };
    }
    html! {
        dt { "Policy files" }
        dd {
            @if rules.setting == BUCKET_SETTING { "from the bucket of the bus (" } @else { "from files (" }
            code { (shown(&rules.setting)) } ")"
        }
        dt { "Digest" } dd { code { (shown(&rules.digest)) } }
        @match &rules.bucket {
            None => {}
            Some(Err(reason)) => { dt { "Revision" } dd { "not known: " (shown(reason)) } }
            Some(Ok(policy)) => { (revision(policy, &rules.digest)) }
        }
        (replicas_list(&rules.replicas))
    }
}

/// The first problem of a policy that a replica refuses, and what removes it.
pub(crate) fn refusal_text(refusal: &v1::EgressPolicyRefusal) -> String {
    let mut text = String::new();
    if !refusal.file.is_empty() {
        text.push_str(&refusal.file);
        if refusal.line > 0 {
            text = format!("{text}:{}", refusal.line);
        }
        text.push_str(": ");
    }
    text.push_str(&refusal.problem);
    if !refusal.remedy.is_empty() {
        text = format!("{text}. {}", refusal.remedy);
    }
    text
}

/// The revision in the bucket, and whether it is the one in force.
fn revision(policy: &BucketPolicy, digest: &str) -> Markup {
    html! {
        dt { "Revision" }
        dd {
            (policy.revision) " of " code { (policy.bucket) }
            @if let Some(writer) = &policy.written_by { ", put by " (shown(writer)) }
            @if let Some(time_ms) = policy.time_ms { ", " (time_element(time_ms)) }
            @match &policy.rules_digest {
                Ok(present) if present == digest => { " " span.state data-state="done" { "in force" } }
                Ok(present) => {
                    " " span.state data-state="failed" { "not in force" }
                    " Its digest is " code { (shown(present)) } ". A new policy is in force within seconds; if it is not, "
                    code { "dray doctor" } " and the log of egress-fetcher say why."
                }
                Err(problem) => {
                    " " span.state data-state="failed" { "not in force" } " " (shown(problem))
                }
            }
        }
    }
}
