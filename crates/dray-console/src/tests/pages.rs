//! Tests of pages with services that respond, refuse or are missing.

use dray_proto::v1::{self, FileState};
use dray_types::FaultCode;

use super::*;

/// A delivery with one file in this state.
fn report(id: &str, state: FileState, finished: bool) -> v1::DeliveryReport {
    let mut file = v1::DeliveredFile {
        name: "<b>report</b>.pdf".to_owned(),
        size: 2048,
        sha256: vec![0xab; 32],
        platform_message_id: "msg-77".to_owned(),
        transfer: Some(v1::TransferReceipt {
            transport: "archive".to_owned(),
            integrity: "sha256".to_owned(),
            bytes: 2048,
            milliseconds: 120,
            attempts: 2,
            ..v1::TransferReceipt::default()
        }),
        attempts: 1,
        ..v1::DeliveredFile::default()
    };
    file.set_file_state(state);
    v1::DeliveryReport {
        delivery_id: id.to_owned(),
        session: "chat-1".to_owned(),
        files: vec![file],
        finished,
        begun_at_ms: 1_800_000_000_000,
        ended_at_ms: if finished { 1_800_000_002_500 } else { 0 },
        ..v1::DeliveryReport::default()
    }
}

fn not_found() -> Fault {
    Fault::new(FaultCode::NotFound, "The resource does not exist.")
}

#[tokio::test]
async fn deliveries_say_what_is_certain_and_offer_a_resend_only_where_something_failed() {
    let mut console = ConsoleFixture::new().await;
    let seen = std::sync::Arc::new(std::sync::Mutex::new(Vec::new()));
    let requests = std::sync::Arc::clone(&seen);
    console
        .respond::<v1::ListReceiptsRequest>(move |request| {
            requests.lock().unwrap().push(request);
            Ok(v1::ListReceiptsReply {
                reports: vec![
                    v1::DeliveryReport {
                        resend: Some(v1::ResendOffer {
                            all: false,
                            may_repeat: true,
                        }),
                        ..report("d-unknown", FileState::Unknown, true)
                    },
                    report("d-done", FileState::Delivered, true),
                    report("d-open", FileState::Sending, false),
                ],
                truncated: true,
                next: "1800000000000.d-open".to_owned(),
            })
        })
        .await;
    let login = console.log_in(ConsoleRole::Act).await;
    let page = console
        .get("/deliveries?session=chat-1&open=1", Some(&login))
        .await;
    let body = &page.body;
    assert!(body.contains("&lt;b&gt;report&lt;/b&gt;.pdf") && !body.contains("<b>report"));
    assert!(body.contains("It may have arrived"), "{body}");
    assert!(body.contains("The platform confirmed message msg-77."));
    assert!(body.contains("nothing is confirmed yet"));
    let next = "/deliveries?session=chat-1&amp;open=1&amp;after=1800000000000.d-open&amp;back=";
    assert!(
        body.contains(&format!("href=\"{next}\" rel=\"next\"")),
        "{body}"
    );
    assert!(!body.contains("First page"), "{body}");
    let offers = body.matches("action=\"/deliveries/resend\"").count();
    assert_eq!(offers, 1, "{body}");
    assert!(body.contains("A file may be shown twice"));
    assert!(body.contains("href=\"/operations/d-unknown\""));
    let request = seen.lock().unwrap().pop().unwrap();
    assert_eq!(
        (request.session.as_str(), request.open_only),
        ("chat-1", true)
    );
    let second = console
        .get("/deliveries?after=1800000000000.d-open&back=", Some(&login))
        .await;
    assert!(second.body.contains("First page"), "{second:?}");
    let previous = "href=\"/deliveries?session=\" rel=\"prev\">Previous page";
    assert!(second.body.contains(previous), "{second:?}");
    let request = seen.lock().unwrap().pop().unwrap();
    assert_eq!(request.after, "1800000000000.d-open");
    let looking = console.log_in(ConsoleRole::Look).await;
    let page = console.get("/deliveries", Some(&looking)).await;
    assert!(!page.body.contains("/deliveries/resend"), "{page:?}");
}

#[tokio::test]
async fn a_resend_is_offered_as_the_service_reports_it_and_never_for_an_older_service() {
    let mut console = ConsoleFixture::new().await;
    console
        .respond::<v1::ListReceiptsRequest>(|_| {
            let refused = v1::DeliveryReport {
                resend: Some(v1::ResendOffer {
                    all: true,
                    may_repeat: false,
                }),
                ..report("d-refused", FileState::Rejected, true)
            };
            let older = v1::DeliveryReport {
                resend: None,
                ..report("d-older", FileState::Failed, true)
            };
            Ok(v1::ListReceiptsReply {
                reports: vec![refused, older],
                // An older service has no next page either.
                truncated: true,
                ..v1::ListReceiptsReply::default()
            })
        })
        .await;
    let login = console.log_in(ConsoleRole::Act).await;
    let page = console.get("/deliveries", Some(&login)).await;
    assert!(
        page.body.contains("Send all files again of d-refused"),
        "{page:?}"
    );
    assert!(page.body.contains("name=\"all\" value=\"1\""), "{page:?}");
    assert!(!page.body.contains("A file may be shown twice"), "{page:?}");
    assert!(!page.body.contains("value=\"d-older\""), "{page:?}");
    assert!(
        page.body.contains("Older deliveries are left out"),
        "{page:?}"
    );
}

#[tokio::test]
async fn an_operation_has_the_proof_of_each_step_and_no_step_without_a_record() {
    let mut console = ConsoleFixture::new().await;
    console
        .respond::<v1::DeliveryOutcomeRequest>(|request| match request.delivery_id.as_str() {
            "op-1" => Ok(report("op-1", FileState::Delivered, true)),
            _ => Err(not_found()),
        })
        .await;
    console
        .respond::<v1::ToolCallOutcomeRequest>(|_| Ok(v1::ToolCallOutcome::default()))
        .await;
    let progress = v1::DeliveryProgressed {
        delivery_id: "op-1".to_owned(),
        stage_code: v1::DeliveryStage::Sending.into(),
        ..v1::DeliveryProgressed::default()
    };
    console.publish("op-1", &progress).await;
    let login = console.log_in(ConsoleRole::Look).await;
    let page = console
        .wait_for("/operations/op-1", &login, "Delivery sending")
        .await;
    let body = &page.body;
    for text in [
        "via archive in 120 ms",
        "attempts: 2, compared by sha256",
        &format!("href=\"/files/{0}\"><code>sha256:{0}", "ab".repeat(32)),
        "The platform confirmed message msg-77.",
        "2.5 s",
    ] {
        assert!(body.contains(text), "{text} in {body}");
    }
    assert!(!body.contains("<h2>Tool call</h2>"), "{body}");
    let page = console.get("/operations/op-2", Some(&login)).await;
    assert!(
        page.body
            .contains("No event of this operation is in the index.")
    );
    assert!(!page.body.contains("<h2>Delivery</h2>") && !page.body.contains("msg-77"));
}

#[tokio::test]
async fn a_missing_object_has_the_status_of_its_fault() {
    let mut console = ConsoleFixture::new().await;
    let login = console.log_in(ConsoleRole::Act).await;
    // Without a service the state is unknown, which differs from an object that does not exist.
    assert_eq!(
        console.get("/operations/op-1", Some(&login)).await.status,
        503
    );
    let digest = "ab".repeat(32);
    let file = format!("/files/{digest}");
    assert_eq!(console.get(&file, Some(&login)).await.status, 503);
    console
        .respond::<v1::DeliveryOutcomeRequest>(|_| Err(not_found()))
        .await;
    console
        .respond::<v1::ToolCallOutcomeRequest>(|_| Ok(v1::ToolCallOutcome::default()))
        .await;
    console
        .respond::<v1::ListArtifactsRequest>(|_| Ok(v1::ListArtifactsReply::default()))
        .await;
    console
        .respond::<v1::ListReceiptsRequest>(|_| Ok(v1::ListReceiptsReply::default()))
        .await;
    for path in [
        "/operations/op-1",
        &file,
        "/files/none",
        "/letters/7",
        "/letters/none",
        "/playground/none",
    ] {
        let page = console.get(path, Some(&login)).await;
        assert_eq!(page.status, 404, "{path}: {page:?}");
        // The navigation links to pages that exist.
        assert!(page.body.contains("aria-label=\"Pages\""), "{page:?}");
    }
}

#[tokio::test]
async fn an_unknown_value_of_a_filter_is_refused_and_lists_nothing() {
    let mut console = ConsoleFixture::new().await;
    console
        .respond::<v1::ListArtifactsRequest>(|_| Ok(v1::ListArtifactsReply::default()))
        .await;
    console
        .respond::<v1::ListReceiptsRequest>(|_| Ok(v1::ListReceiptsReply::default()))
        .await;
    let login = console.log_in(ConsoleRole::Look).await;
    for path in [
        "/letters?state=bogus",
        "/letters?from=first",
        "/live?outcome=bogus",
        "/live?service=none",
        "/live/events?outcome=bogus",
        "/files?after=none",
        "/files?digest=none",
    ] {
        let page = console.get(path, Some(&login)).await;
        assert_eq!(page.status, 400, "{path}: {page:?}");
        assert!(!page.body.contains("No dead letters."), "{path}: {page:?}");
    }
    for path in [
        "/letters?state=all",
        "/letters?state=open&from=2",
        "/live?outcome=done",
    ] {
        assert_eq!(console.get(path, Some(&login)).await.status, 200, "{path}");
    }
}

#[tokio::test]
async fn the_policy_tester_asks_the_service_and_shows_each_step() {
    let mut console = ConsoleFixture::new().await;
    console
        .respond::<v1::ExplainRequest>(|request| {
            let Some(policy) = request.app_policy else {
                // The page asks about the rules in force too.
                return Ok(v1::ExplainReply::default());
            };
            let patterns = policy.host_allowlist.unwrap().patterns;
            assert_eq!(patterns, ["*.example.com"]);
            assert_eq!(request.url, "https://a.example.com/x?y=1&z");
            Ok(v1::ExplainReply {
                steps: vec![v1::JudgementStep {
                    step: v1::PolicyStep::AppHosts.into(),
                    verdict: v1::StepVerdict::Refused.into(),
                    code: "host_not_allowed".to_owned(),
                    rule: "Hosts of the app's list.".to_owned(),
                    setting: "host_allowlist".to_owned(),
                    origin: "option".to_owned(),
                    decided_by: "analysts/packages (policy.toml:5)".to_owned(),
                }],
                verdict: v1::StepVerdict::Refused.into(),
                fault: Some(Fault::new(FaultCode::Denied, "The host is not allowed.").into()),
                complete: true,
                ..v1::ExplainReply::default()
            })
        })
        .await;
    let login = console.log_in(ConsoleRole::Look).await;
    let fields = "url=https%3A%2F%2Fa.example.com%2Fx%3Fy%3D1%26z&with_list=1&allow=*.example.com";
    let page = console.post("/policy", &login, fields).await;
    for text in [
        "data-verdict=\"refused\"",
        "app_hosts",
        "host_not_allowed",
        "Hosts of the app's list.",
        "analysts/packages (policy.toml:5)",
        "The host is not allowed.",
        // The form keeps the entered values.
        "value=\"https://a.example.com/x?y=1&amp;z\"",
    ] {
        assert!(page.body.contains(text), "{text} in {page:?}");
    }
}

/// Checks what the pages say about the rules in force when the service names this setting and this digest.
async fn check_rules_in_force(
    setting: &'static str,
    digest: &'static str,
    parts: &[&str],
    absent: &str,
) {
    let mut console = ConsoleFixture::new().await;
    console
        .respond::<v1::ExplainRequest>(move |_| {
            Ok(v1::ExplainReply {
                steps: vec![v1::JudgementStep {
                    step: v1::PolicyStep::PolicyRules.into(),
                    setting: setting.to_owned(),
                    ..v1::JudgementStep::default()
                }],
                rules_digest: digest.to_owned(),
                ..v1::ExplainReply::default()
            })
        })
        .await;
    let login = console.log_in(ConsoleRole::Look).await;
    let judged = console
        .post("/policy", &login, "url=https%3A%2F%2Fa.example%2F")
        .await;
    for page in [
        console.get("/policy", Some(&login)).await,
        console.get("/setup", Some(&login)).await,
        judged,
    ] {
        for part in parts {
            assert!(page.body.contains(part), "{part} in {page:?}");
        }
        assert!(!page.body.contains(absent), "{absent} in {page:?}");
    }
}

#[tokio::test]
async fn replicas_are_counted_and_those_that_differ_are_shown_with_what_they_refuse() {
    let mut console = ConsoleFixture::new().await;
    console
        .respond::<v1::ExplainRequest>(|_| Ok(v1::ExplainReply::default()))
        .await;
    let subject = call_subject::<v1::ShowEgressPolicyRequest>();
    let bus = console.bus.clone();
    for (host, digest) in [("pod-a", "d1"), ("pod-b", "d1"), ("pod-c", "d2")] {
        let mut responder = bus.respond_to_each(&subject).await.unwrap();
        console.responders.spawn(async move {
            while let Some(incoming) = responder.next().await {
                let refused = (digest == "d2").then(|| v1::EgressPolicyRefusal {
                    file: "a.toml".to_owned(),
                    line: 2,
                    problem: "<unknown>".to_owned(),
                    revision: 43,
                    ..v1::EgressPolicyRefusal::default()
                });
                let reply = v1::ShowEgressPolicyReply {
                    host: host.to_owned(),
                    rules_digest: digest.to_owned(),
                    refused,
                    ..v1::ShowEgressPolicyReply::default()
                };
                incoming.answer(Ok(reply)).await;
            }
        });
        let login = console.log_in(ConsoleRole::Look).await;
        let page = console.get("/policy", Some(&login)).await;
        let parts: &[&str] = match host {
            "pod-a" => &["1 replied, with the same rules"],
            "pod-b" => &["2 replied, with the same rules"],
            _ => &[
                "3 replied: ",
                "they differ",
                "pod-b",
                "<code>d2</code>",
                "It refuses revision 43: a.toml:2: &lt;unknown&gt;",
            ],
        };
        for part in parts {
            assert!(page.body.contains(part), "{part} in {page:?}");
        }
    }
}

#[tokio::test]
async fn rules_of_the_bucket_are_shown_with_their_revision_and_whether_it_is_in_force() {
    let bucket = "egress-fetcher.policy_bucket";
    let in_force = [
        "from the bucket",
        "43 of",
        "put by &lt;ada&gt;",
        ">in force<",
        "2026-01-01",
    ];
    check_rules_in_force(bucket, BUCKET_DIGEST, &in_force, "not in force").await;
    let outdated = [
        "from the bucket",
        "43 of",
        ">not in force<",
        "<code>d1</code>",
        "<code>d2</code>",
    ];
    check_rules_in_force(bucket, "d2", &outdated, ">in force<").await;
}

#[tokio::test]
async fn rules_of_files_are_shown_with_their_digest_and_without_a_revision() {
    let files = "egress-fetcher.policy_path";
    let rules = ["from files", "<code>d2</code>"];
    check_rules_in_force(files, "d2", &rules, "43 of").await;
    check_rules_in_force(files, "", &["none: only the configuration"], "43 of").await;
}

#[tokio::test]
async fn the_set_up_shows_which_services_respond_and_where_values_come_from() {
    let mut console = ConsoleFixture::new().await;
    // A fault of the service counts as a response.
    console
        .respond::<v1::ShowSessionRequest>(|_| Err(not_found()))
        .await;
    let login = console.log_in(ConsoleRole::Look).await;
    let page = console.wait_for("/setup", &login, ALL_WORKING).await;
    let row = |service: &str| {
        let (_, rest) = page.body.split_once(&format!(">{service}</td>")).unwrap();
        rest.split("</tr>").next().unwrap().to_owned()
    };
    assert!(row("sandbox-transfer").contains(">yes<"), "{page:?}");
    assert!(row("egress-fetcher").contains(">no<"), "{page:?}");
    assert!(page.body.contains("variable DRAY_EGRESS_FETCHER__ENABLED"));
}

#[tokio::test]
async fn an_unavailable_part_is_reported_and_not_shown_as_empty() {
    let mut console = ConsoleFixture::new().await;
    let login = console.log_in(ConsoleRole::Look).await;
    let page = console.get("/deliveries", Some(&login)).await;
    assert_eq!(page.status, 200);
    assert!(
        page.body.contains("Deliveries cannot be listed."),
        "{page:?}"
    );
    assert!(!page.body.contains("No deliveries."), "{page:?}");
    // When the service is available again, the same page shows its content.
    console
        .respond::<v1::ListReceiptsRequest>(|_| Ok(v1::ListReceiptsReply::default()))
        .await;
    console
        .wait_for("/deliveries", &login, "No deliveries.")
        .await;
}
