//! The policies that the replicas of `egress-fetcher` have in force, and which replicas differ.

use std::time::Duration;

use dray_proto::v1;
use maud::{Markup, html};

use crate::rules_in_force::refusal_text;
use crate::state::ConsoleState;
use crate::text::shown;

/// Time without a further reply after which all replicas count as heard.
const QUIET_TIME: Duration = Duration::from_millis(300);

/// The replies of all replicas that replied.
#[derive(Debug)]
pub(crate) struct ReplicaPolicies(Result<Vec<v1::ShowEgressPolicyReply>, String>);

impl ReplicaPolicies {
    /// Asks all replicas, and waits at most `limit`.
    pub(crate) async fn ask(state: &ConsoleState, limit: Duration) -> Self {
        let meta = state.meta(limit);
        let request = v1::ShowEgressPolicyRequest {};
        let replies = match state.bus.call_each(&meta, &request, QUIET_TIME).await {
            Ok(replies) => replies,
            Err(error) => return Self(Err(error.to_string())),
        };
        let mut shown: Vec<_> = replies.into_iter().filter_map(Result::ok).collect();
        shown.sort_by(|one, other| (&one.host, &one.instance).cmp(&(&other.host, &other.instance)));
        Self(Ok(shown))
    }
}

/// The number of replicas with the same policy, or each of them where they differ or refuse a policy.
pub(crate) fn replicas_list(replicas: &ReplicaPolicies) -> Markup {
    let replies = match &replicas.0 {
        Ok(replies) => replies,
        Err(reason) => {
            return html! { dt { "Replicas" } dd { "not known: " (shown(reason)) } };
        }
    };
    let mut digests: Vec<&str> = replies
        .iter()
        .map(|reply| reply.rules_digest.as_str())
        .collect();
    digests.sort_unstable();
    digests.dedup();
    let is_equal = digests.len() <= 1 && replies.iter().all(|reply| reply.refused.is_none());
    html! {
        dt { "Replicas" }
        dd #policy-replicas {
            @if is_equal {
                (replies.len()) " replied, with the same rules"
            } @else {
                (replies.len()) " replied: "
                @if digests.len() > 1 { span.state data-state="failed" { "they differ" } }
                ul { @for reply in replies { (replica(reply)) } }
            }
        }
    }
}

fn replica(reply: &v1::ShowEgressPolicyReply) -> Markup {
    html! {
        li {
            (shown(&reply.host)) " " code { (shown(&reply.instance)) } ": "
            @if reply.rules_digest.is_empty() { "no policy files" } @else { code { (shown(&reply.rules_digest)) } }
            @if reply.revision > 0 { ", revision " (reply.revision) }
            @if let Some(refusal) = &reply.refused {
                ". It refuses "
                @if refusal.revision > 0 { "revision " (refusal.revision) } @else { "the present files" }
                ": " (shown(refusal_text(refusal)))
            }
        }
    }
}
