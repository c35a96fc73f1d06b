//! Raw bytes as a policy file: an accepted file decides the same way twice, its deny list has priority, and a file with
//! `report_only` refuses nothing.

#![no_main]

use dray_guard::CanonicalUrl;
use dray_guard::ruleset::{Caller, PolicyText, RequestView, RuleSet};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let rules = match RuleSet::parse(&[PolicyText::new("policy.toml", bytes)]) {
        Ok(rules) => rules,
        Err(problems) => {
            assert!(!problems.is_empty());
            for problem in problems {
                assert!(
                    problem.line >= 1 && !problem.problem.is_empty() && !problem.remedy.is_empty()
                );
            }
            return;
        }
    };
    let trial = [b"report_only = true\n", bytes].concat();
    // `None` if the file sets the field itself: a repeated key is refused.
    let trial = RuleSet::parse(&[PolicyText::new("policy.toml", &trial)]).ok();
    let caller = Caller {
        tenant: "acme".to_owned(),
        session: "chat-1".to_owned(),
        app: "reporter".to_owned(),
        certificate: String::new(),
    };
    for text in [
        "https://files.example.org/a/b.csv",
        "http://files.example.org./%2e/x",
        "https://93.184.215.14/",
    ] {
        let url = CanonicalUrl::parse(text).expect("a fixed URL");
        for view in [
            RequestView::fetch(&url),
            RequestView::request(&url, "POST"),
            RequestView::tunnel(&url),
        ] {
            let decision = rules.decide(&caller, &view);
            assert_eq!(decision, rules.decide(&caller, &view));
            assert_eq!(decision.verdict().is_ok(), decision.is_allowed());
            if decision.rule.name.starts_with("deny/") {
                assert!(!decision.is_allowed());
            }
            if let Some(trial) = &trial {
                assert!(trial.decide(&caller, &view).is_allowed());
            }
        }
    }
    let _ = rules.limits(&caller).count();
});
