//! Tests of tunnels into which the proxy looks.

use super::*;
use crate::policy::RequestKind;
use crate::ruleset::replay::{METHOD_OVERRIDE_RULE, PolicyReplay, ReplayBaseline, RequestRecord};

const POLICY_TEXT: &str = r#"
[[intercept]]
name = "packages"
hosts = ["pypi.org", "*.pythonhosted.org"]
ports = [443]
tenants = ["acme"]
[[role]]
name = "builders"
[[role.rule]]
name = "no-uploads"
outcome = "deny"
hosts = ["pypi.org"]
paths = ["/legacy/**"]
[[role.rule]]
name = "packages"
outcome = "allow"
hosts = ["pypi.org"]
methods = ["GET"]
media_types = ["text/html"]
"#;

#[test]
fn only_tunnels_with_tls_to_the_named_hosts_and_of_the_named_tenants_are_intercepted() {
    let rules = rules(POLICY_TEXT);
    for (tenant, text, is_intercepted) in [
        ("acme", "https://pypi.org/", true),
        ("acme", "https://PYPI.org./", true),
        ("acme", "https://files.pythonhosted.org/", true),
        ("umbrella", "https://pypi.org/", false),
        ("acme", "https://pypi.org:8443/", false),
        ("acme", "http://pypi.org:443/", false),
        ("acme", "https://x.pypi.org/", false),
        ("acme", "https://93.184.215.14/", false),
    ] {
        let kind = rules.tunnel_kind(tenant, &url(text));
        let expected = if is_intercepted {
            RequestKind::Intercepted
        } else {
            RequestKind::Tunnel
        };
        assert_eq!(kind, expected, "{tenant} {text}");
    }
}

#[test]
fn i_4_an_intercepted_tunnel_opens_if_a_request_could_pass_and_each_request_is_judged() {
    let rules = rules(POLICY_TEXT);
    let target = url("https://pypi.org/");
    let judged = |view: &RequestView<'_>| outcome(&rules.decide(&caller("acme"), view));
    let intercepted = judged(&RequestView::intercepted(&target));
    assert_eq!(intercepted, decided(true, "builders/packages", ""));
    let hidden = judged(&RequestView::tunnel(&target));
    assert_eq!(hidden, decided(false, "builders/no-uploads", ""));
    for (method, text, expected) in [
        ("GET", "https://pypi.org/simple/", "builders/packages"),
        ("POST", "https://pypi.org/simple/", "default"),
        ("GET", "https://pypi.org/legacy/", "builders/no-uploads"),
    ] {
        let target = url(text);
        let inside = judged(&RequestView::request(&target, method));
        let is_allowed = expected == "builders/packages";
        assert_eq!(inside, decided(is_allowed, expected, ""), "{method} {text}");
    }
    // No request to this host could pass, so the tunnel does not open.
    let other = url("https://files.pythonhosted.org/");
    let refused = judged(&RequestView::intercepted(&other));
    assert_eq!(refused, decided(false, "default", ""));
}

#[test]
fn entries_need_hosts_and_names_and_have_no_report_only_mode() {
    let entry = "[[intercept]]\nname = \"a\"\nhosts = [\"pypi.org\"]\n";
    assert_eq!(
        problems(format!("report_only = true\n{entry}")),
        [
            "policy.toml:2: an entry of intercept has no report-only mode. \
             Move the entry to a file without report_only."
        ]
    );
    assert_eq!(
        problems(format!("{entry}{entry}")),
        [
            "policy.toml:5: an entry of intercept \"a\" exists at policy.toml:2. \
             Rename one of them, or put their rules together."
        ]
    );
    assert_eq!(
        problems("[[intercept]]\nname = \"a\"\nhosts = []\n").len(),
        1
    );
    let unnamed = problems("[[intercept]]\nname = \"a\"\n");
    assert!(unnamed[0].contains("hosts"), "{unnamed:?}");
}

#[test]
fn a_replay_does_not_decide_about_requests_that_a_tunnel_hid() {
    let rules = rules(POLICY_TEXT);
    let replayed = |is_intercepted, method| {
        let record = RequestRecord {
            scheme: "https",
            host: "pypi.org",
            port: 443,
            proxy_protocol: "connect",
            proxy_stage: "opened",
            is_intercepted,
            method,
            caller: caller("acme"),
            verdict: "allow",
            ..RequestRecord::default()
        };
        let mut replay = PolicyReplay::default();
        record.compare(&mut replay, &ReplayBaseline::Rules(None), Some(&rules));
        (replay.undecided, replay.changed)
    };
    assert_eq!(replayed(false, ""), (1, 0));
    // The path of a request that was seen is not in its event, and a rule needs it.
    assert_eq!(replayed(true, "GET"), (1, 0));
}

/// How many requests a replay of one record finds unchanged, changed and undecided.
fn replay_recorded(record: &RequestRecord<'_>, rules: &RuleSet) -> (u64, u64, u64) {
    let mut replay = PolicyReplay::default();
    record.compare(&mut replay, &record.baseline(), Some(rules));
    (replay.unchanged, replay.changed, replay.undecided)
}

const REPLAYED_RULES: &str = "[[role]]\nname = \"a\"\n\
         [[role.rule]]\nname = \"form\"\noutcome = \"allow\"\nmethods = [\"GET\", \"POST\"]\nhosts = [\"form.example.org\"]\n\
         [[role.rule]]\nname = \"any\"\noutcome = \"allow\"\nhosts = [\"any.example.org\"]\n\
         [[role.rule]]\nname = \"person\"\noutcome = \"ask\"\nhosts = [\"ask.example.org\"]\n";

fn posted_request(host: &str) -> RequestRecord<'_> {
    RequestRecord {
        scheme: "https",
        host,
        port: 443,
        proxy_protocol: "http",
        method: "POST",
        caller: caller("acme"),
        ..RequestRecord::default()
    }
}

#[test]
fn a_replay_of_a_policy_that_decides_the_same_finds_no_change() {
    let rules = rules(REPLAYED_RULES);
    let asked = |verdict, code, question_id| RequestRecord {
        verdict,
        code,
        phase: if code == "connect_failed" {
            "connect"
        } else {
            "policy"
        },
        question_id,
        ..posted_request("ask.example.org")
    };
    let refused = |host, code, refused_by| RequestRecord {
        verdict: "deny",
        code,
        phase: "policy",
        refused_by,
        ..posted_request(host)
    };
    let (same, changed, undecided) = ((1, 0, 0), (0, 1, 0), (0, 0, 1));
    for (record, expected) in [
        // A person had allowed or denied the host, or had not answered. The answer holds under another policy too.
        (asked("allow", "", "egq_1"), same),
        (asked("deny", "connect_failed", "egq_1"), same),
        (asked("deny", "policy_denied", "egq_1"), same),
        (asked("deny", "approval_required", "egq_1"), same),
        (asked("allow", "", ""), changed),
        // The recorded method passes, and the one that a form named was refused.
        (
            refused("form.example.org", "policy_denied", METHOD_OVERRIDE_RULE),
            undecided,
        ),
        (
            refused("any.example.org", "policy_denied", METHOD_OVERRIDE_RULE),
            changed,
        ),
        (refused("form.example.org", "policy_denied", ""), changed),
        // A replay counts no requests.
        (
            refused("any.example.org", "quota_exceeded", "quota"),
            undecided,
        ),
        (
            refused("other.example.org", "quota_exceeded", "quota"),
            same,
        ),
        // The same files.
        (
            RequestRecord {
                rules_digest: rules.digest(),
                ..refused("form.example.org", "policy_denied", "")
            },
            same,
        ),
    ] {
        assert_eq!(replay_recorded(&record, &rules), expected, "{record:?}");
    }
}

#[test]
fn a_replay_does_not_decide_about_a_fetch_that_was_refused_after_a_redirect() {
    let rules = rules(REPLAYED_RULES);
    let refused = |host, code| RequestRecord {
        proxy_protocol: "",
        method: "GET",
        verdict: "deny",
        code,
        phase: "policy",
        is_redirected: true,
        ..posted_request(host)
    };
    let (same, undecided) = ((1, 0, 0), (0, 0, 1));
    for (record, expected) in [
        (refused("any.example.org", "policy_denied"), undecided),
        (refused("any.example.org", "approval_required"), undecided),
        // The second policy does not even allow the first URL.
        (refused("other.example.org", "policy_denied"), same),
        // The target of the redirect passed the policy.
        (
            RequestRecord {
                phase: "connect",
                ..refused("any.example.org", "connect_failed")
            },
            same,
        ),
    ] {
        assert_eq!(replay_recorded(&record, &rules), expected, "{record:?}");
    }
}
