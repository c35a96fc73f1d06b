//! The policy replay over audit events that the tests publish.

use dray_guard::ruleset::PolicyText;
use dray_proto::v1;

use super::*;

/// Denies one of two hosts.
const SECOND_POLICY: &str = "[[role]]\nname = \"all\"\ntenants = [\"*\"]\n[[role.rule]]\nname = \"files\"\n\
                             outcome = \"allow\"\nhosts = [\"files.example.org\"]\n";

/// Host of the event at which the replay stops reading.
const LATER_HOST: &str = "later.example.org";

async fn publish(console: &ConsoleFixture, tenant: &TenantId, host: &str, decided_by: &str) {
    let audit = v1::EgressAudit {
        time_ms: console.clock.now_ms(),
        url_scheme: "https".to_owned(),
        url_host: host.to_owned(),
        url_port: 443,
        verdict: "allow".to_owned(),
        tenant_id: tenant.to_string(),
        decided_by: decided_by.to_owned(),
        // A DNS lookup is not a request: the replay stops reading at it and does not decide it, even in the same
        // millisecond.
        lookup_only: host == LATER_HOST,
        ..v1::EgressAudit::default()
    };
    publish_audit(console, tenant, &audit).await;
}

async fn publish_audit(console: &ConsoleFixture, tenant: &TenantId, audit: &v1::EgressAudit) {
    let deadline = Deadline::after(console.clock.now_ms(), TEST_TIMEOUT);
    let meta = dray_bus::Meta::new(tenant.clone(), deadline);
    console.bus.publish_audit(&meta, audit).await.unwrap();
}

#[tokio::test]
async fn a_replay_knows_answers_of_people_methods_of_forms_and_the_same_files() {
    let text = "[[role]]\nname = \"all\"\n[[role.rule]]\nname = \"form\"\noutcome = \"allow\"\nmethods = [\"POST\"]\n\
                hosts = [\"form.example.org\"]\n[[role.rule]]\nname = \"person\"\noutcome = \"ask\"\n";
    let parsed = dray_guard::RuleSet::parse(&[PolicyText::new("second.toml", text)]).unwrap();
    let console = ConsoleFixture::new().await;
    let approved = v1::EgressAudit {
        url_host: "asked.example.org".to_owned(),
        verdict: "allow".to_owned(),
        question_id: "egq_1".to_owned(),
        ..v1::EgressAudit::default()
    };
    let refused = v1::EgressAudit {
        url_host: "form.example.org".to_owned(),
        proxy_protocol: "http".to_owned(),
        proxy_stage: "refused".to_owned(),
        method: "POST".to_owned(),
        verdict: "deny".to_owned(),
        code: "policy_denied".to_owned(),
        phase: "policy".to_owned(),
        rule: "method_override".to_owned(),
        ..v1::EgressAudit::default()
    };
    let of_same_files = v1::EgressAudit {
        rules_digest: parsed.digest().to_owned(),
        ..refused.clone()
    };
    let after_redirect = v1::EgressAudit {
        rule: "policy_rules".to_owned(),
        hops: vec![v1::AuditHop {
            index: 1,
            ..v1::AuditHop::default()
        }],
        ..refused.clone()
    };
    for audit in [approved, refused, of_same_files, after_redirect] {
        let audit = v1::EgressAudit {
            time_ms: console.clock.now_ms(),
            url_scheme: "https".to_owned(),
            url_port: 443,
            ..audit
        };
        publish_audit(&console, &TenantId::default(), &audit).await;
    }
    let login = console.log_in(ConsoleRole::Look).await;
    begin(&console, &login, &[("second.toml", text)]).await;
    let page = result(&console, &login).await;
    assert!(
        page.contains("<strong>0 with another outcome</strong>, 2 with the same, 2 undecided"),
        "{page}"
    );
}

async fn begin(console: &ConsoleFixture, login: &Login, files: &[(&str, &str)]) -> TestResponse {
    let fields = [
        ("csrf", login.form_token.as_str()),
        ("window", "hour"),
        ("policy", ""),
    ];
    let form = multipart_form(&fields, files);
    console.post_multipart("/policy/replay", login, &form).await
}

/// Waits for the result. A replay reads until the first event after its start, so one is published repeatedly.
async fn result(console: &ConsoleFixture, login: &Login) -> String {
    let waiting = async {
        loop {
            publish(console, &TenantId::default(), LATER_HOST, "").await;
            let page = console.get("/policy/replay/progress", Some(login)).await;
            if page.body.contains("replay-result") {
                return page.body;
            }
        }
    };
    tokio::time::timeout(TEST_TIMEOUT, waiting).await.unwrap()
}

#[tokio::test]
async fn a_replay_compares_a_policy_with_the_recorded_decisions() {
    let console = ConsoleFixture::new().await;
    let (own, other) = (TenantId::default(), TenantId::new("other").unwrap());
    publish(&console, &own, "files.example.org", "old/one (a.toml:3)").await;
    publish(&console, &own, "<b>.example.org", "").await;
    publish(&console, &own, "other.example.org", "old/two (a.toml:9)").await;
    publish(&console, &own, "other.example.org", "old/two (a.toml:9)").await;
    publish(&console, &other, "secret.example.org", "").await;
    // The role for reading is enough, because a replay changes nothing.
    let login = console.log_in(ConsoleRole::Look).await;
    let begun = begin(&console, &login, &[("second.toml", SECOND_POLICY)]).await;
    assert_eq!(begun.status, 303, "{begun:?}");
    let page = result(&console, &login).await;
    assert!(
        page.contains("<td data-label=\"Requests\">2</td>"),
        "{page}"
    );
    assert!(page.contains("other.example.org:443"), "{page}");
    assert!(page.contains("old/two (a.toml:9)"), "{page}");
    assert!(
        page.contains("<strong>2 with another outcome</strong>, 1 with the same"),
        "{page}"
    );
    assert!(!page.contains("secret.example.org"), "{page}");
    let other_login = console.log_in(ConsoleRole::Look).await;
    let page = console.get("/policy/replay", Some(&other_login)).await;
    assert!(!page.body.contains("other.example.org"), "{page:?}");
}

#[tokio::test]
async fn a_replay_can_be_cancelled_and_an_invalid_policy_begins_none() {
    let console = ConsoleFixture::new().await;
    let login = console.log_in(ConsoleRole::Look).await;
    // Without events the replay waits for some.
    let begun = begin(&console, &login, &[("", "")]).await;
    assert!(begun.body.contains("Choose a policy file"), "{begun:?}");
    let wrong = begin(&console, &login, &[("x.toml", "[[role]]\nnane = 1\n")]).await;
    assert!(wrong.body.contains("policy_invalid"), "{wrong:?}");
    assert!(wrong.body.contains("x.toml:"), "{wrong:?}");
    let forged = multipart_form(&[("csrf", "x"), ("window", "hour")], &[]);
    let forged = console
        .post_multipart("/policy/replay", &login, &forged)
        .await;
    assert_eq!(forged.status, 403);
    begin(&console, &login, &[("x.toml", SECOND_POLICY)]).await;
    let page = console.get("/policy/replay", Some(&login)).await;
    assert!(page.body.contains("Cancel the replay"), "{page:?}");
    let cancelled = console.post("/policy/replay/cancel", &login, "").await;
    assert_eq!(cancelled.status, 303);
    let page = console
        .wait_for("/policy/replay", &login, "Cancelled.")
        .await;
    assert!(!page.body.contains("data-running"), "{page:?}");
}
