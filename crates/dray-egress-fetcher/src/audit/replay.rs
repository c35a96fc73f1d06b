//! Replays audit events: what another policy would have decided about the requests that happened.

use dray_guard::RuleSet;
use dray_guard::ruleset::Caller;
use dray_guard::ruleset::replay::{PolicyReplay, ReplayBaseline, RequestRecord};
use dray_proto::v1;

/// Judges the request of `event` by both policies; `None` stands for no policy files. Some events add nothing: those
/// that are not about a request (a lookup, the end of a connection), and those whose request the configuration or the
/// guard refused. `tenant` is for events of older services, which do not hold it.
pub fn replay_event(
    replay: &mut PolicyReplay,
    old: Option<&RuleSet>,
    new: Option<&RuleSet>,
    tenant: &str,
    event: &v1::EgressAudit,
) {
    let tenant = match event.tenant_id.as_str() {
        "" => tenant,
        tenant => tenant,
    };
    let record = RequestRecord {
        scheme: &event.url_scheme,
        host: &event.url_host,
        port: event.url_port,
        proxy_protocol: &event.proxy_protocol,
        proxy_stage: &event.proxy_stage,
        is_intercepted: event.intercepted,
        method: &event.method,
        caller: Caller {
            tenant: tenant.to_owned(),
            session: event.session_id.clone(),
            app: event.app_id.clone(),
            certificate: event.client_certificate.clone(),
        },
        time_ms: event.time_ms,
        verdict: &event.verdict,
        code: &event.code,
        phase: &event.phase,
        is_lookup: event.lookup_only,
        decided_by: &event.decided_by,
        reported_by: &event.reported_by,
        rules_digest: &event.rules_digest,
        question_id: &event.question_id,
        refused_by: &event.rule,
        is_redirected: event
            .hops
            .iter()
            .rfind(|hop| !hop.robots)
            .is_some_and(|hop| hop.index > 0),
    };
    record.compare(replay, &ReplayBaseline::Rules(old), new);
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

    fn replay_events(events: &[v1::EgressAudit]) -> PolicyReplay {
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
        let unaudited = v1::EgressAudit {
            verdict: "deny".to_owned(),
            code: "sink_failed".to_owned(),
            phase: "sink".to_owned(),
            proxy_stage: "refused".to_owned(),
            rule: "audit".to_owned(),
            ..event("other.example.org", "connect")
        };
        let mut lookup = event("other.example.org", "");
        lookup.lookup_only = true;
        let mut unreadable = event("", "");
        unreadable.url_scheme = String::new();
        let replay = replay_events(&[
            event("files.example.org", ""),
            event("other.example.org", "connect"),
            event("2606:4700::1111", "socks5"),
            closed,
            unaudited,
            lookup,
            unreadable,
        ]);
        assert_eq!((replay.judged, replay.unchanged, replay.changed), (3, 1, 2));
        assert_eq!(replay.changes()[0].old.1.name, "none");
    }

    #[test]
    fn a_request_is_undecided_only_where_its_path_matters() {
        let replay = replay_events(&[
            event("deep.example.org", ""),
            event("deep.example.org", "connect"),
        ]);
        // The path of a tunnel is hidden from both policies; the path of a fetch was not recorded.
        assert_eq!((replay.undecided, replay.changed), (1, 1));
    }

    #[test]
    fn denials_of_the_guard_stay_denials() {
        let refused = |code: &str, phase: &str| v1::EgressAudit {
            verdict: "deny".to_owned(),
            code: code.to_owned(),
            phase: phase.to_owned(),
            ..event("other.example.org", "")
        };
        let replay = replay_events(&[
            refused("ssrf_blocked", "dns"),
            refused("blocked_host", "policy"),
            refused("policy_denied", "policy"),
            refused("connect_failed", "connect"),
        ]);
        assert_eq!((replay.judged, replay.changed), (2, 2));
    }
}
