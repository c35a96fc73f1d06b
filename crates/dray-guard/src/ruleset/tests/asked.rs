//! Tests of rules that ask a person.

use super::*;
use crate::reason::Code;

const POLICY_TEXT: &str = r#"
[[deny]]
name = "paste"
hosts = ["pastebin.com"]
[[role]]
name = "analysts"
tenants = ["acme"]
[[role.rule]]
name = "no-admin"
outcome = "deny"
hosts = ["*.example.org"]
paths = ["/admin/**"]
[[role.rule]]
name = "known"
outcome = "allow"
hosts = ["files.example.org"]
[[role.rule]]
name = "others"
outcome = "ask"
ports = [443]
"#;

fn decision(rules: &RuleSet, text: &str) -> RuleDecision {
    rules.decide(&caller("acme"), &RequestView::fetch(&url(text)))
}

#[test]
fn a_rule_asks_where_no_earlier_one_decides() {
    let rules = rules(POLICY_TEXT);
    for (text, verdict, rule) in [
        ("https://files.example.org/", Ok(()), "analysts/known"),
        (
            "https://other.example.org/",
            Err(Code::ApprovalRequired),
            "analysts/others",
        ),
        (
            "https://other.example.org/admin/x",
            Err(Code::PolicyDenied),
            "analysts/no-admin",
        ),
        (
            "https://pastebin.com/",
            Err(Code::PolicyDenied),
            "deny/paste",
        ),
        (
            "http://other.example.org/",
            Err(Code::PolicyDenied),
            "default",
        ),
        // A person would read the name without its root dot, which is another name.
        (
            "https://other.example.org./",
            Err(Code::PolicyDenied),
            "analysts/others",
        ),
    ] {
        let decision = decision(&rules, text);
        assert_eq!(
            (decision.verdict(), decision.rule.name.as_str()),
            (verdict, rule),
            "{text}"
        );
        assert_eq!(
            decision.needs_approval(),
            verdict == Err(Code::ApprovalRequired)
        );
    }
}

#[test]
fn an_answer_allows_its_host_and_nothing_that_is_denied() {
    let rules = rules(POLICY_TEXT);
    assert!(
        decision(&rules, "https://other.example.org/")
            .approved()
            .is_allowed()
    );
    for text in ["https://pastebin.com/", "https://other.example.org/admin/x"] {
        assert!(!decision(&rules, text).approved().is_allowed(), "{text}");
    }
}

#[test]
fn a_report_only_rule_before_one_that_asks_reports_what_a_person_allowed() {
    let rules = rules(
        "[[role]]\nname = \"a\"\n\
         [[role.rule]]\nname = \"tried\"\noutcome = \"report\"\nhosts = [\"tried.example.org\"]\n\
         [[role.rule]]\nname = \"no-put\"\noutcome = \"report\"\nmethods = [\"PUT\"]\nhosts = [\"put.example.org\"]\n\
         [[role.rule]]\nname = \"write\"\noutcome = \"allow\"\nmethods = [\"PUT\"]\nhosts = [\"put.example.org\"]\n\
         [[role.rule]]\nname = \"others\"\noutcome = \"ask\"\n",
    );
    for (text, reported) in [
        ("https://tried.example.org/", "a/tried"),
        ("https://other.example.org/", ""),
        ("https://put.example.org/", ""),
        // The report about one of two methods counts, although the other one is asked about.
        ("https://put.example.org/?_method=PUT", "a/no-put"),
    ] {
        let asked = decision(&rules, text);
        assert!(asked.needs_approval(), "{text}");
        // A refusal so far: nothing would have been refused in addition.
        assert_eq!(asked.reported, None, "{text}");
        assert_eq!(
            outcome(&asked.approved()),
            decided(true, "a/others", reported),
            "{text}"
        );
    }
}

#[test]
fn the_default_can_ask_and_a_report_only_default_reports() {
    let asking = rules("default = \"ask\"");
    assert!(decision(&asking, "https://other.example.org/").needs_approval());
    let tried = rules("report_only = true\ndefault = \"ask\"");
    let found = fetch(&tried, "https://other.example.org/");
    assert_eq!(found, decided(true, "default", "default"));
}

#[test]
fn a_grant_is_for_exactly_its_host_and_port() {
    use crate::{AdminPolicy, AppPolicy, CallerRules, EffectivePolicy, HostGrant, RequestKind};

    let policy = |grants| {
        let policy = EffectivePolicy::new(
            &AdminPolicy {
                enabled: true,
                ..AdminPolicy::default()
            },
            &AppPolicy::default(),
        );
        policy.unwrap().with_rules(Some(CallerRules {
            rules: std::sync::Arc::new(rules("default = \"ask\"")),
            caller: caller("acme"),
            kind: RequestKind::Tunnel,
            grants,
        }))
    };
    let asked_url = url("https://other.example.org/");
    assert_eq!(
        policy(Vec::new()).check(&asked_url),
        Err(Code::ApprovalRequired)
    );
    let granted = policy(vec![HostGrant::of_url(&asked_url)]);
    assert_eq!(granted.check(&asked_url), Ok(()));
    for other_url in [
        "https://a.other.example.org/",
        "https://example.org/",
        "https://other.example.org:8443/",
        "http://other.example.org/",
    ] {
        assert_eq!(
            granted.check(&url(other_url)),
            Err(Code::ApprovalRequired),
            "{other_url}"
        );
    }
}
