//! Tests which rule decides.

use super::*;

const POLICY_TEXT: &str = r#"
[[deny]]
name = "paste"
hosts = ["pastebin.com", "*.pastebin.com"]

[[role]]
name = "analysts"
tenants = ["acme", "acme-*"]
[[role.rule]]
name = "no-uploads"
outcome = "deny"
hosts = ["pypi.org"]
paths = ["/legacy/**"]
[[role.rule]]
name = "packages"
outcome = "allow"
hosts = ["pypi.org", "*.pythonhosted.org", "pastebin.com"]

[[role]]
name = "everyone"
[[role.rule]]
name = "docs"
outcome = "allow"
hosts = ["docs.example.org"]
ports = [443]
"#;

#[test]
fn the_first_rule_of_the_roles_of_the_caller_decides() {
    let rules = rules(POLICY_TEXT);
    for (text, expected) in [
        (
            "https://pypi.org/simple/",
            decided(true, "analysts/packages", ""),
        ),
        (
            "https://pypi.org/legacy/x",
            decided(false, "analysts/no-uploads", ""),
        ),
        (
            "https://a.b.pythonhosted.org/",
            decided(true, "analysts/packages", ""),
        ),
        (
            "https://docs.example.org/",
            decided(true, "everyone/docs", ""),
        ),
        ("http://docs.example.org/", decided(false, "default", "")),
        ("https://other.example.org/", decided(false, "default", "")),
        ("https://93.184.215.14/", decided(false, "default", "")),
    ] {
        assert_eq!(fetch(&rules, text), expected, "{text}");
    }
    let other_tenant = rules.decide(
        &caller("acmeother"),
        &RequestView::fetch(&url("https://pypi.org/")),
    );
    assert_eq!(outcome(&other_tenant), decided(false, "default", ""));
    let member = rules.decide(
        &caller("acme-eu"),
        &RequestView::fetch(&url("https://pypi.org/")),
    );
    assert!(member.is_allowed());
}

#[test]
fn the_deny_list_overrides_every_rule_that_allows() {
    let rules = rules(POLICY_TEXT);
    for text in [
        "https://pastebin.com/",
        "http://a.pastebin.com/",
        "https://PASTEBIN.com./",
    ] {
        assert_eq!(
            fetch(&rules, text),
            decided(false, "deny/paste", ""),
            "{text}"
        );
    }
    let open = rules_with_default("allow");
    assert_eq!(
        fetch(&open, "https://pastebin.com/"),
        decided(false, "deny/paste", "")
    );
    assert_eq!(
        fetch(&open, "https://other.example.org/"),
        decided(true, "default", "")
    );
}

fn rules_with_default(default: &str) -> RuleSet {
    rules(&format!("default = \"{default}\"\n{POLICY_TEXT}"))
}

#[test]
fn a_name_with_a_root_dot_is_refused_by_its_rule_and_allowed_by_no_rule() {
    let rules = rules(POLICY_TEXT);
    assert_eq!(
        fetch(&rules, "https://pypi.org./"),
        decided(false, "default", "")
    );
    let denied = fetch(&rules_with_default("allow"), "https://pastebin.com./");
    assert_eq!(denied, decided(false, "deny/paste", ""));
}

#[test]
fn i_4_hidden_parts_of_a_tunnel_match_rules_that_deny_and_none_that_allow() {
    let tunnel = |text: &str, target: &str| {
        let target = url(target);
        outcome(&rules(text).decide(&caller("acme"), &RequestView::tunnel(&target)))
    };
    // The tunnel could carry the denied path.
    assert_eq!(
        tunnel(POLICY_TEXT, "https://pypi.org/"),
        decided(false, "analysts/no-uploads", "")
    );
    for condition in [
        "paths = [\"/**\"]",
        "methods = [\"GET\"]",
        "media_types = [\"text/csv\"]",
    ] {
        let text = format!(
            "[[role]]\nname = \"a\"\n[[role.rule]]\nname = \"b\"\noutcome = \"allow\"\n{condition}\n"
        );
        assert_eq!(
            tunnel(&text, "https://pypi.org/"),
            decided(false, "default", ""),
            "{text}"
        );
        assert_eq!(
            fetch(&rules(&text), "https://pypi.org/"),
            decided(true, "a/b", "")
        );
    }
}

#[test]
fn a_rule_that_reports_never_changes_the_verdict() {
    let text = POLICY_TEXT.replace("outcome = \"deny\"", "outcome = \"report\"");
    let trial = rules(&text);
    assert_eq!(
        fetch(&trial, "https://pypi.org/legacy/x"),
        decided(true, "analysts/packages", "analysts/no-uploads")
    );
    assert_eq!(
        fetch(&trial, "https://pypi.org/x"),
        decided(true, "analysts/packages", "")
    );
    // A request that no rule allows stays refused, even where a report-only rule matches.
    let text = text.replace(
        "hosts = [\"pypi.org\"]",
        "hosts = [\"refused.example.org\"]",
    );
    let trial = rules(&text);
    assert_eq!(
        fetch(&trial, "https://refused.example.org/legacy/x"),
        decided(false, "default", "")
    );
}

#[test]
fn a_default_that_reports_allows_everything_and_is_named() {
    let trial = rules_with_default("report");
    assert_eq!(
        fetch(&trial, "https://other.example.org/"),
        decided(true, "default", "default")
    );
    assert_eq!(
        fetch(&trial, "https://pypi.org/"),
        decided(true, "analysts/packages", "")
    );
    assert_eq!(
        fetch(&trial, "https://pastebin.com/"),
        decided(false, "deny/paste", "")
    );
}

#[test]
fn a_file_that_only_reports_refuses_nothing_and_allows_nothing() {
    let trial = format!("report_only = true\n{POLICY_TEXT}");
    let trial_rules = rules(&trial);
    for (text, reported) in [
        ("https://pastebin.com/", "deny/paste"),
        ("https://other.example.org/", "default"),
        ("https://pypi.org/legacy/x", "analysts/no-uploads"),
        ("https://pypi.org/", ""),
    ] {
        assert_eq!(
            fetch(&trial_rules, text),
            decided(true, "default", reported),
            "{text}"
        );
    }
    let enforced = "[[role]]\nname = \"base\"\n[[role.rule]]\nname = \"all\"\noutcome = \"allow\"\n\
                    hosts = [\"pastebin.com\", \"a.example.org\"]\n";
    let combined = RuleSet::parse(&[
        PolicyText::new("10-base.toml", enforced),
        PolicyText::new("20-trial.toml", &trial),
    ])
    .unwrap();
    assert_eq!(
        fetch(&combined, "https://pastebin.com/"),
        decided(true, "base/all", "deny/paste")
    );
    assert_eq!(
        fetch(&combined, "https://a.example.org/"),
        decided(true, "base/all", "")
    );
    // The report-only file would allow it; only the file in force decides.
    assert_eq!(
        fetch(&combined, "https://pypi.org/"),
        decided(false, "default", "")
    );
}

#[test]
fn a_rule_limits_the_response_that_it_allows() {
    let rules = rules(
        "[[role]]\nname = \"a\"\n[[role.rule]]\nname = \"b\"\noutcome = \"allow\"\n\
         media_types = [\"text/csv\", \"image/*\"]\nmax_bytes = \"2MiB\"\nrobots = \"report\"\n",
    );
    let target = url("https://files.example.org/");
    let decision = rules.decide(&caller("acme"), &RequestView::fetch(&target));
    assert_eq!(decision.max_bytes(), Some(2 << 20));
    assert_eq!(decision.robots(), Some(crate::robots::RobotsMode::Report));
    for (declared, is_allowed) in [
        ("text/csv", true),
        ("Text/CSV; charset=utf-8", true),
        ("image/png", true),
        ("text/html", false),
        ("imagex/png", false),
        ("", false),
    ] {
        assert_eq!(
            decision.check_media_type(declared).is_ok(),
            is_allowed,
            "{declared}"
        );
    }
}

#[test]
fn a_replay_counts_changes_and_does_not_decide_by_unrecorded_parts() {
    let old = rules(POLICY_TEXT);
    let new = rules(&POLICY_TEXT.replace(
        "\"pypi.org\", \"*.pythonhosted.org\"",
        "\"*.pythonhosted.org\"",
    ));
    let mut replay = replay::PolicyReplay::default();
    for (index, text) in [
        "https://a.pythonhosted.org/",
        "https://pypi.org/x",
        "https://pypi.org/x",
        "https://docs.example.org/",
    ]
    .into_iter()
    .enumerate()
    {
        let target = url(text);
        let request = RequestView {
            path: ObservedPart::Unrecorded,
            ..RequestView::fetch(&target)
        };
        let recorded = replay::RecordedRequest {
            caller: caller("acme"),
            request,
            answer: replay::RecordedAnswer::Missing,
            time_ms: u64::try_from(index).unwrap(),
        };
        replay.add(Some(&old), Some(&new), &recorded);
    }
    // The rule about paths of pypi.org comes before the one that allows it.
    assert_eq!(
        (replay.judged, replay.unchanged, replay.undecided),
        (2, 2, 2)
    );
    let target = url("https://pypi.org/x");
    let recorded = replay::RecordedRequest {
        caller: caller("acme"),
        request: RequestView::fetch(&target),
        answer: replay::RecordedAnswer::Missing,
        time_ms: 9,
    };
    replay.add(Some(&old), Some(&new), &recorded);
    replay.add(None, Some(&new), &recorded);
    assert_eq!(replay.changed, 2);
    let changes = replay.changes();
    assert_eq!(changes[0].target, "pypi.org:443");
    assert_eq!(changes[0].new.1.name, "default");
    let mut olds: Vec<_> = changes
        .iter()
        .map(|change| change.old.1.name.as_str())
        .collect();
    olds.sort_unstable();
    assert_eq!(olds, ["analysts/packages", "none"]);
}

/// The results by the default configuration, with its ports of the proxy.
fn check_table(
    table: &expectation::ExpectationTable,
    rules: &std::sync::Arc<RuleSet>,
) -> Vec<expectation::ExpectationResult> {
    let configured = expectation::ConfiguredLimits {
        admin: &crate::AdminPolicy::default(),
        judge: &crate::Judge::new(crate::JudgeConfig::default()),
        tunnel_ports: &"443".parse().unwrap(),
        request_ports: &"80".parse().unwrap(),
    };
    table.check(configured, rules)
}

#[test]
fn a_table_of_expectations_knows_the_ports_of_the_proxy_and_blocked_addresses() {
    let rules = std::sync::Arc::new(rules("default = \"allow\"\n"));
    for (url, via, found) in [
        ("http://a.example.org:8080/", "fetch", "allow by default"),
        (
            "http://a.example.org:8080/",
            "request",
            "deny by port_not_allowed",
        ),
        ("http://a.example.org/", "request", "allow by default"),
        (
            "https://a.example.org:8443/",
            "request",
            "deny by port_not_allowed",
        ),
        (
            "https://a.example.org:8443/",
            "tunnel",
            "deny by port_not_allowed",
        ),
        ("https://a.example.org/", "tunnel", "allow by default"),
        ("http://127.0.0.1/", "fetch", "deny by ssrf_blocked"),
        (
            "https://[::ffff:169.254.169.254]/",
            "tunnel",
            "deny by ssrf_blocked",
        ),
        ("https://8.8.8.8/", "tunnel", "allow by default"),
    ] {
        let text = format!("[[expect]]\nurl = \"{url}\"\nvia = \"{via}\"\noutcome = \"allow\"\n");
        let table = expectation::ExpectationTable::parse(&PolicyText::new("expect.toml", &text));
        let results = check_table(&table.unwrap(), &rules);
        assert_eq!(results[0].found, found, "{via} {url}");
    }
}

#[test]
fn a_table_of_expectations_is_checked_by_configuration_and_policy() {
    let rules = std::sync::Arc::new(rules(POLICY_TEXT));
    let table =
        |text: &str| expectation::ExpectationTable::parse(&PolicyText::new("expect.toml", text));
    let text = "[[expect]]\ntenant = \"acme\"\nurl = \"https://pypi.org/x\"\noutcome = \"allow\"\nrule = \"analysts/packages\"\n\
                [[expect]]\ntenant = \"acme\"\nurl = \"https://pypi.org/\"\nvia = \"tunnel\"\noutcome = \"allow\"\n\
                [[expect]]\nurl = \"http://docs.example.org/\"\nvia = \"request\"\nmethod = \"POST\"\noutcome = \"deny\"\n\
                [[expect]]\nurl = \"https://docs.example.org:22/\"\noutcome = \"deny\"\nrule = \"port_not_allowed\"\n";
    let results = check_table(&table(text).unwrap(), &rules);
    let met: Vec<_> = results
        .iter()
        .map(|result| (result.line, result.is_met))
        .collect();
    assert_eq!(met, [(1, true), (6, false), (11, true), (16, true)]);
    assert_eq!(results[1].found, "deny by analysts/no-uploads");
    for (text, expected) in [
        ("", "expect.toml:1: the file expects nothing."),
        (
            "[[expect]]\nurl = \"x\"\noutcome = \"maybe\"\n",
            "expect.toml:1: \"maybe\" is not an outcome.",
        ),
        (
            "[[expect]]\nurl = \"x\"\n",
            "expect.toml:1: missing field `outcome`.",
        ),
        (
            "[[expect]]\nurl = \"x\"\noutcome = \"deny\"\nmethod = \"GET\"\n",
            "expect.toml:1: only a request has a method.",
        ),
    ] {
        let problem = table(text).unwrap_err()[0].to_string();
        assert!(problem.starts_with(expected), "{problem}");
    }
}
