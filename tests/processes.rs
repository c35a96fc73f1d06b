//! Tests of services as processes on a real nats-server and a store that can fail: no work is lost or repeated when a
//! part of the system disappears during a call.

pub(crate) mod machine;

use std::time::Duration;

use dray_proto::convert::ContentSource;
use dray_proto::v1;
use dray_testkit::dial::InjectedFault;
use dray_testkit::eventually;
use dray_testkit::s3::{FaultRule, S3Fault};
use serde_json::{Value, json};

use machine::ProcessFixture;

/// Larger than an event or a reply may be, so that it is transferred through the store.
const LARGE_FILE_BYTES: usize = 300 * 1024;

#[tokio::test(flavor = "multi_thread")]
async fn a_service_killed_during_work_loses_nothing_and_repeats_nothing() {
    let fixture = ProcessFixture::start().await;
    fixture.dial.put("acme/a.txt", "hello", "text/plain");
    fixture
        .dial
        .inject_file_fault("acme/a.txt", InjectedFault::Silent);
    let resolver = fixture.up(&["file-resolver"]).await;
    let operation = fixture
        .publish(&json!({"a": "file:text::files/acme/a.txt"}))
        .await;
    fixture.wait_until_asked("acme/a.txt").await;
    resolver.kill9();
    fixture.dial.clear_file_fault("acme/a.txt");

    let _second = fixture.up(&["file-resolver"]).await;
    let event = fixture.event_of(&operation).await;
    assert_eq!(inline(&event), json!({"a": "hello"}));
    assert_eq!(
        fixture.count_events_of(&operation).await,
        1,
        "effectively once"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_restart_of_nats_during_a_call_loses_nothing() {
    let mut fixture = ProcessFixture::start().await;
    fixture.dial.put("acme/a.txt", "hello", "text/plain");
    fixture
        .dial
        .inject_file_fault("acme/a.txt", InjectedFault::Silent);
    let resolver = fixture.up(&["file-resolver"]).await;
    let operation = fixture
        .publish(&json!({"a": "file:text::files/acme/a.txt"}))
        .await;
    fixture.wait_until_asked("acme/a.txt").await;
    fixture.restart_nats();
    fixture.dial.clear_file_fault("acme/a.txt");
    let event = fixture.event_of(&operation).await;
    assert_eq!(inline(&event), json!({"a": "hello"}));
    drop(resolver);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_store_outage_is_reported_in_time_and_other_requests_continue() {
    let fixture = ProcessFixture::start().await;
    fixture.dial.put(
        "acme/large.bin",
        vec![7; LARGE_FILE_BYTES],
        "application/octet-stream",
    );
    fixture.dial.put("acme/small.txt", "small", "text/plain");
    let _resolver = fixture.up(&["file-resolver"]).await;
    fixture.store.add(FaultRule::all(S3Fault::Down));

    let large = json!({"a": "file:base64::files/acme/large.bin"});
    let fault = fixture
        .resolve(&large, Duration::from_secs(20))
        .await
        .unwrap_err();
    assert!(fault.is_retryable(), "{fault:?}");
    assert!(fault.detail.starts_with("store_"), "{fault:?}");
    let small = json!({"a": "file:text::files/acme/small.txt"});
    assert_eq!(
        fixture
            .resolve(&small, Duration::from_secs(20))
            .await
            .unwrap(),
        json!({"a": "small"})
    );

    let operation = fixture.publish(&large).await;
    fixture.store.clear_faults();
    let event = fixture.event_of(&operation).await;
    let resolved = event.resolved.unwrap();
    let content = ContentSource::try_from(resolved.arguments.unwrap()).unwrap();
    assert!(
        matches!(content, ContentSource::Claim(_)),
        "the work was done after the store was available again"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn expired_work_is_rejected_without_an_attempt() {
    let fixture = ProcessFixture::start().await;
    fixture.dial.put("acme/a.txt", "hello", "text/plain");
    let operation = fixture
        .publish_for(
            &json!({"a": "file:text::files/acme/a.txt"}),
            Duration::from_millis(1),
        )
        .await;
    let _resolver = fixture.up(&["file-resolver"]).await;
    let rejected = fixture.rejection_of(&operation).await;
    assert_eq!(rejected.state(), v1::TerminalState::Expired);
    assert_eq!(fixture.dial.requests(), Vec::<String>::new());
}

#[tokio::test(flavor = "multi_thread")]
async fn undecodable_work_becomes_a_dead_letter_that_the_operator_can_read() {
    let fixture = ProcessFixture::start().await;
    let _resolver = fixture.up(&["file-resolver"]).await;
    let operation = fixture.publish_garbage().await;
    let letter = fixture.dead_letter_of(&operation).await;
    let sequence = letter["sequence"].to_string();
    let dead_letter = fixture.ask(&["dlq", "show", &sequence, "--json"]);
    assert!(dead_letter.status.success(), "{dead_letter:?}");
    let dead_letter: Value = serde_json::from_slice(&dead_letter.stdout).unwrap();
    assert_eq!(dead_letter["operation"], operation);
    let missing = fixture.ask(&["dlq", "show", "999999", "--json"]);
    assert_eq!(missing.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&missing.stdout).contains("no_dead_letter"));
}

#[tokio::test(flavor = "multi_thread")]
async fn dead_letters_are_filtered_planned_started_once_and_resolved_by_commands() {
    let fixture = ProcessFixture::start().await;
    fixture.dial.put("acme/a.txt", "hello", "text/plain");
    fixture
        .dial
        .inject_file_fault("acme/a.txt", InjectedFault::Status(500));
    let _resolver = fixture.up(&["file-resolver"]).await;
    let operation = fixture
        .publish_for(
            &json!({"a": "file:text::files/acme/a.txt"}),
            Duration::from_mins(5),
        )
        .await;
    let undecodable = fixture.publish_garbage().await;
    fixture.dead_letter_of(&undecodable).await;
    let letter = fixture.dead_letter_of(&operation).await;
    assert_eq!(letter["state"], "open", "{letter}");
    let sequence = letter["sequence"].to_string();
    let detail = letter["fault"]["detail"].as_str().unwrap().to_owned();
    let filter = ["dlq", "redrive", "--detail", &detail, "--json"];

    let (_, none) = fixture.restarts(&["dlq", "redrive", "--detail", "no_responder", "--json"]);
    assert!(none.is_empty(), "another detail selects nothing: {none:?}");
    let dry_run = [&filter[..], &["--dry-run"]].concat();
    let result = |result: &str| json!({"sequence": letter["sequence"], "operation": operation, "result": result});
    // The second run shows that the first one started nothing.
    for _ in 0..2 {
        assert_eq!(
            fixture.restarts(&dry_run),
            (Some(0), vec![result("would_start")])
        );
    }
    fixture.dial.clear_file_fault("acme/a.txt");
    assert_eq!(
        fixture.restarts(&filter),
        (Some(0), vec![result("started")])
    );
    let event = fixture.event_of(&operation).await;
    assert_eq!(inline(&event), json!({"a": "hello"}));
    eventually("the letter to be resolved", async || {
        let letter = fixture.dead_letter_of(&operation).await;
        (letter["state"] == "resolved").then_some(())
    })
    .await;
    let again = fixture.restarts(&["dlq", "redrive", &sequence, "--json"]);
    assert_eq!(again, (Some(1), vec![result("already_done")]));
    assert_eq!(fixture.restarts(&filter), (Some(0), Vec::new()));
}

/// The arguments of a resolved event, which must be inside the event and not in the store.
fn inline(event: &v1::ToolCallResolved) -> Value {
    let resolved = event.resolved.clone().expect("arguments");
    match ContentSource::try_from(resolved.arguments.expect("content")).expect("valid content") {
        ContentSource::Inline(bytes) => serde_json::from_slice(&bytes).expect("JSON"),
        ContentSource::Claim(claim) => panic!("a claim of {} bytes", claim.artifact.size),
    }
}
