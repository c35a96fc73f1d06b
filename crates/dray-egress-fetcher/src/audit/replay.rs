//! Replays audit events: what another policy would have decided about the requests that happened.

use dray_guard::ruleset::replay::{PolicyReplay, RecordedRequest};
use dray_guard::ruleset::{Caller, ObservedPart};
use dray_guard::{CanonicalUrl, Code, RequestKind, RuleSet};
use dray_proto::v1;

/// Refusals by the policy files: another policy may decide otherwise. Every other refusal of these phases stays.
const POLICY_CODES: [Code; 4] = [
    Code::PolicyDenied,
    Code::ApprovalRequired,
    Code::QuotaExceeded,
    Code::Overloaded,
];

/// Judges the request of `event` by both policies; `None` stands for no policy files. An event that is not about a request
/// of its own (a lookup, the end of a connection), or whose request was refused by the configuration or the guard, adds
/// nothing. `tenant` is for events of older services, which do not hold it.
pub fn replay_event(
    replay: &mut PolicyReplay,
    old: Option<&RuleSet>,
    new: Option<&RuleSet>,
    tenant: &str,
    event: &v1::EgressAudit,
) {
    let is_other_refusal = event.verdict == "deny"
        && (matches!(event.phase.as_str(), "policy" | "url")
            || event.code == Code::SsrfBlocked.as_str())
        && POLICY_CODES.iter().all(|code| code.as_str() != event.code);
    if event.lookup_only || event.proxy_stage == "closed" || is_other_refusal {
        return;
    }
    let host = match event.url_host.as_str() {
        // The host of an event has no brackets.
        address if address.contains(':') && !address.starts_with('[') => format!("[{address}]"),
        host => host.to_owned(),
    };
    let text = format!("{}://{host}:{}/", event.url_scheme, event.url_port);
    let Ok(url) = CanonicalUrl::parse(&text) else {
        return;
    };
    let kind = match event.proxy_protocol.as_str() {
        "" => RequestKind::Fetch,
        "http" => RequestKind::Request(event.method.clone()),
        _ => RequestKind::Tunnel,
    };
    let mut request = kind.view(&url);
    if kind != RequestKind::Tunnel {
        // An event holds a hash of the path.
        request.path = ObservedPart::Unrecorded;
        if event.method.is_empty() && kind != RequestKind::Fetch {
            request.method = ObservedPart::Unrecorded;
        }
    }
    let tenant = match event.tenant_id.as_str() {
        "" => tenant,
        tenant => tenant,
    };
    let recorded = RecordedRequest {
        caller: Caller {
            tenant: tenant.to_owned(),
            session: event.session_id.clone(),
            app: event.app_id.clone(),
        },
        request,
        time_ms: event.time_ms,
    };
    replay.add(old, new, &recorded);
}

#[cfg(test)]
mod tests {
    use dray_guard::ruleset::PolicyText;

    use super::*;

    fn event(host: &str, protocol: &str) -> v1::EgressAudit {
        v1::EgressAudit {
            url_scheme: "https".to_owned(),
            url_host: host.to_owned(),
            url_port: 443,
            verdict: "allow".to_owned(),
            proxy_protocol: protocol.to_owned(),
            tenant_id: "acme".to_owned(),
            ..v1::EgressAudit::default()
        }
    }

    fn replayed(events: &[v1::EgressAudit]) -> PolicyReplay {
        let text = "[[role]]\nname = \"a\"\ntenants = [\"acme\"]\n[[role.rule]]\nname = \"b\"\noutcome = \"allow\"\n\
                    hosts = [\"files.example.org\"]\n[[role.rule]]\nname = \"c\"\noutcome = \"allow\"\n\
                    hosts = [\"deep.example.org\"]\npaths = [\"/a/**\"]\n";
        let new = RuleSet::parse(&[PolicyText::new("new.toml", text)]).unwrap();
        let mut replay = PolicyReplay::default();
        for event in events {
            replay_event(&mut replay, None, Some(&new), "acme", event);
        }
        replay
    }

    #[test]
    fn each_request_counts_once_and_lookups_do_not() {
        let mut closed = event("other.example.org", "connect");
        closed.proxy_stage = "closed".to_owned();
        let mut lookup = event("other.example.org", "");
        lookup.lookup_only = true;
        let mut unreadable = event("", "");
        unreadable.url_scheme = String::new();
        let replay = replayed(&[
            event("files.example.org", ""),
            event("other.example.org", "connect"),
            event("2606:4700::1111", "socks5"),
            closed,
            lookup,
            unreadable,
        ]);
        assert_eq!((replay.judged, replay.unchanged, replay.changed), (3, 1, 2));
        assert_eq!(replay.changes()[0].old.1.name, "none");
    }

    #[test]
    fn a_request_is_undecided_only_where_its_path_matters() {
        let replay = replayed(&[
            event("deep.example.org", ""),
            event("deep.example.org", "connect"),
        ]);
        // The path of a tunnel is hidden from both policies; that of a fetch was not recorded.
        assert_eq!((replay.undecided, replay.changed), (1, 1));
    }

    #[test]
    fn what_the_guard_refused_stays_refused() {
        let refused = |code: &str, phase: &str| v1::EgressAudit {
            verdict: "deny".to_owned(),
            code: code.to_owned(),
            phase: phase.to_owned(),
            ..event("other.example.org", "")
        };
        let replay = replayed(&[
            refused("ssrf_blocked", "dns"),
            refused("blocked_host", "policy"),
            refused("policy_denied", "policy"),
            refused("connect_failed", "connect"),
        ]);
        assert_eq!((replay.judged, replay.changed), (2, 2));
    }
}
