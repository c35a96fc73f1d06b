//! Tests of policies from their text to their decisions.

mod asked;
mod files;
mod intercepted;
mod matching;
mod outcomes;

use super::*;
use crate::CanonicalUrl;

fn rules(text: &str) -> RuleSet {
    RuleSet::parse(&[PolicyText::new("policy.toml", text)]).unwrap()
}

fn problems(text: impl AsRef<[u8]>) -> Vec<String> {
    let text = PolicyText::new("policy.toml", &text);
    let problems = RuleSet::parse(&[text]).unwrap_err();
    problems.iter().map(ToString::to_string).collect()
}

fn caller(tenant: &str) -> Caller {
    Caller {
        tenant: tenant.to_owned(),
        session: "chat-1".to_owned(),
        app: "reporter".to_owned(),
        certificate: String::new(),
    }
}

fn url(text: &str) -> CanonicalUrl {
    CanonicalUrl::parse(text).unwrap()
}

/// Whether a fetch of the tenant `acme` is allowed, by which rule, and what would refuse it.
fn fetch(rules: &RuleSet, text: &str) -> (bool, String, String) {
    let url = url(text);
    outcome(&rules.decide(&caller("acme"), &RequestView::fetch(&url)))
}

fn outcome(decision: &RuleDecision) -> (bool, String, String) {
    let reported = decision.reported.as_ref();
    (
        decision.is_allowed(),
        decision.rule.name.clone(),
        reported.map(|rule| rule.name.clone()).unwrap_or_default(),
    )
}

fn decided(is_allowed: bool, rule: &str, reported: &str) -> (bool, String, String) {
    (is_allowed, rule.to_owned(), reported.to_owned())
}
