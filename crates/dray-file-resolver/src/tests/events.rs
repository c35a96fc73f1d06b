//! Tool calls as work: in as messages, out as events.

use std::time::Duration;

use bytes::Bytes;
use prost::Message as _;

use dray_bus::{EventFilter, EventStream, Meta, ObservedEvent};
use dray_proto::convert::ContentSource;
use dray_proto::v1::{self, TerminalState, tool_call_outcome};
use dray_testkit::dial::InjectedFault;
use dray_types::{FaultCode, OperationId, TenantId};

use super::fixture::{ResolverFixture, fetched, noise};

const TENANT_KEYS: &[(&str, &str)] = &[("file-resolver.tenants.acme.api_key", "key")];

pub(super) fn call(arguments: &str) -> v1::ToolCallRequested {
    v1::ToolCallRequested {
        tool_call_id: "call-1".to_owned(),
        tool: "tool".to_owned(),
        arguments: Some(ContentSource::Inline(Bytes::copy_from_slice(arguments.as_bytes())).into()),
        options: None,
    }
}

async fn events(fixture: &ResolverFixture) -> EventStream {
    let filter = EventFilter::new("dray.event.toolcall.v1.>").from_start();
    fixture.bus.events(filter).await.unwrap()
}

/// The next event of this operation.
async fn next(events: &mut EventStream, meta: &Meta) -> ObservedEvent {
    let found = tokio::time::timeout(Duration::from_secs(20), async {
        loop {
            let event = events.next().await.unwrap();
            if event.headers.get("Dray-Operation") == Some(meta.operation.as_str()) {
                return event;
            }
        }
    });
    found.await.expect("no event within 20 s")
}

pub(super) async fn find_resolved(fixture: &ResolverFixture, meta: &Meta) -> v1::ToolCallResolved {
    let event = next(&mut events(fixture).await, meta).await;
    assert_eq!(
        event.headers.get("Dray-Schema"),
        Some("dray.v1.ToolCallResolved/1")
    );
    event.decode().unwrap()
}

pub(super) async fn find_rejected(fixture: &ResolverFixture, meta: &Meta) -> v1::ToolCallRejected {
    let event = next(&mut events(fixture).await, meta).await;
    assert_eq!(
        event.headers.get("Dray-Schema"),
        Some("dray.v1.ToolCallRejected/1")
    );
    event.decode().unwrap()
}

/// Requests the outcome repeatedly until the operation has ended.
async fn outcome(fixture: &ResolverFixture, meta: &Meta) -> v1::ToolCallOutcome {
    let question = v1::ToolCallOutcomeRequest {
        operation_id: meta.operation.to_string(),
    };
    let deadline = tokio::time::Instant::now() + Duration::from_secs(20);
    loop {
        let answer = fixture.bus.call(&fixture.meta(), &question).await.unwrap();
        if answer.outcome.is_some() {
            return answer;
        }
        assert!(
            tokio::time::Instant::now() < deadline,
            "no outcome within 20 s"
        );
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn a_published_tool_call_is_answered_by_an_event() {
    let fixture = ResolverFixture::with(TENANT_KEYS).await;
    fixture.core.put("b/a", "text", "text/plain");
    let outside = "https://h.example/a";
    fixture.egress.answer(
        outside,
        Ok(fetched(ContentSource::Inline("web".into()), b"web")),
    );
    let meta = fixture.meta();
    let work = call(&format!(
        r#"{{"a":"file:text::files/b/a","w":"file:text::{outside}"}}"#
    ));
    fixture.bus.publish_work(&meta, &work).await.unwrap();
    let event = find_resolved(&fixture, &meta).await;
    assert_eq!(
        (event.tool_call_id.as_str(), event.tool.as_str()),
        ("call-1", "tool")
    );
    assert_eq!(event.operation_id, meta.operation.as_str());
    let resolved = event.resolved.unwrap();
    assert_eq!(resolved.url, None);
    let text = fixture.read(resolved.arguments.unwrap()).await;
    assert_eq!(text, r#"{"a":"text","w":"web"}"#);
}

#[tokio::test]
async fn an_argument_to_correct_is_a_rejection_that_is_not_tried_again() {
    let fixture = ResolverFixture::with(TENANT_KEYS).await;
    let meta = fixture.meta();
    let work = call(r#"{"doc":"file:text::files/b/none"}"#);
    fixture.bus.publish_work(&meta, &work).await.unwrap();
    let event = find_rejected(&fixture, &meta).await;
    assert_eq!(event.state(), TerminalState::Failed);
    assert_eq!(event.tool_call_id, "call-1");
    let invalid = event.invalid.unwrap();
    assert_eq!(invalid.parameter, "doc");
    assert_eq!(
        invalid.tool_message,
        "Parameter doc is invalid, try to call the tool again with fixed exception: \
         File files/b/none could not be loaded: it does not exist."
    );
    assert_eq!(event.fault.unwrap().code(), v1::FaultCode::NotFound);
    assert_eq!(fixture.core.requests().len(), 1, "metadata, once");
}

#[tokio::test]
async fn broken_arguments_are_a_rejection_without_a_parameter() {
    let fixture = ResolverFixture::with(TENANT_KEYS).await;
    let meta = fixture.meta();
    fixture.bus.publish_work(&meta, &call("{")).await.unwrap();
    let event = find_rejected(&fixture, &meta).await;
    assert_eq!(
        (event.state(), event.invalid),
        (TerminalState::Failed, None)
    );
    assert_eq!(event.fault.unwrap().detail, "invalid_json");
}

#[tokio::test]
async fn names_that_would_fill_the_event_are_refused_and_cut() {
    let fixture = ResolverFixture::with(TENANT_KEYS).await;
    let meta = fixture.meta();
    let work = v1::ToolCallRequested {
        tool: "x".repeat(60_000),
        ..call("{}")
    };
    fixture.bus.publish_work(&meta, &work).await.unwrap();
    let event = find_rejected(&fixture, &meta).await;
    assert!(event.encoded_len() < 2000, "{}", event.encoded_len());
    assert_eq!(event.fault.unwrap().code(), v1::FaultCode::InvalidArgument);
    let submitted = fixture.bus.call(&fixture.meta(), &work).await.unwrap_err();
    assert_eq!(
        dray_types::Fault::from(submitted).code,
        FaultCode::InvalidArgument
    );
}

#[tokio::test]
async fn names_that_no_tool_has_are_refused_at_the_entry_and_as_work() {
    let fixture = ResolverFixture::with(TENANT_KEYS).await;
    let named = |tool: &str, tool_call_id: &str| v1::ToolCallRequested {
        tool: tool.to_owned(),
        tool_call_id: tool_call_id.to_owned(),
        ..call("{}")
    };
    for (work, field) in [
        (named("", "call-1"), "`tool`"),
        (named("a\nb", "call-1"), "`tool`"),
        (named("a\u{85}", "call-1"), "`tool`"),
        (named("tool", "call\0"), "`tool_call_id`"),
        (named("tool", &"x".repeat(513)), "`tool_call_id`"),
    ] {
        let submitted = fixture.bus.call(&fixture.meta(), &work).await.unwrap_err();
        let refusal = dray_types::Fault::from(submitted);
        assert_eq!(refusal.code, FaultCode::InvalidArgument, "{refusal:?}");
        assert!(refusal.message.contains(field), "{refusal:?}");
        let meta = fixture.meta();
        fixture.bus.publish_work(&meta, &work).await.unwrap();
        let fault = find_rejected(&fixture, &meta).await.fault.unwrap();
        assert_eq!(fault.message, refusal.message);
    }
    let longest = named(&"ü".repeat(256), "");
    let accepted = fixture.bus.call(&fixture.meta(), &longest).await.unwrap();
    assert!(!accepted.duplicate);
}

#[tokio::test]
async fn large_results_travel_as_claims() {
    let fixture = ResolverFixture::with(TENANT_KEYS).await;
    let content = noise(100_000);
    fixture.core.put("b/a", content.clone(), "image/x");
    let meta = fixture.meta();
    let work = call(r#"{"a":"file:base64::files/b/a"}"#);
    fixture.bus.publish_work(&meta, &work).await.unwrap();
    let resolved = find_resolved(&fixture, &meta).await.resolved.unwrap();
    let ContentSource::Claim(claim) = resolved.arguments.unwrap().try_into().unwrap() else {
        panic!("the content must be a claim");
    };
    assert_eq!(claim.artifact.size, 133_336 + 8);
    assert_eq!(resolved.files[0].size, 100_000);
}

#[tokio::test]
async fn work_uses_the_credentials_of_its_tenant_and_no_others() {
    let fixture = ResolverFixture::with(&[("file-resolver.tenants.other.api_key", "key")]).await;
    fixture.core.put("b/a", "text", "text/plain");
    let work = call(r#"{"a":"file:text::files/b/a"}"#);
    let acme = fixture.meta();
    fixture.bus.publish_work(&acme, &work).await.unwrap();
    let event = find_rejected(&fixture, &acme).await;
    assert_eq!(event.fault.unwrap().detail, "dial_unauthorized");
    assert_eq!(event.invalid, None);
    let other = Meta::new(TenantId::new("other").unwrap(), fixture.meta().deadline);
    fixture.bus.publish_work(&other, &work).await.unwrap();
    find_resolved(&fixture, &other).await;
    let keys: Vec<_> = fixture
        .core
        .received_requests()
        .iter()
        .map(|seen| seen.header("api-key").to_owned())
        .collect();
    assert_eq!(keys, ["", "key", "key"]);
}

#[tokio::test]
async fn claims_of_other_tenants_are_rejected() {
    let fixture = ResolverFixture::with(TENANT_KEYS).await;
    let foreign = fixture.put("other", "{}").await;
    let meta = fixture.meta();
    let work = v1::ToolCallRequested {
        arguments: Some(ContentSource::Claim(foreign).into()),
        ..call("")
    };
    fixture.bus.publish_work(&meta, &work).await.unwrap();
    let fault = find_rejected(&fixture, &meta).await.fault.unwrap();
    assert_eq!(
        (fault.code(), fault.detail.as_str()),
        (v1::FaultCode::Denied, "foreign_tenant")
    );
    let submitted = fixture.bus.call(&fixture.meta(), &work).await.unwrap_err();
    assert_eq!(dray_types::Fault::from(submitted).detail, "foreign_tenant");
}

#[tokio::test]
async fn a_transient_fault_is_retried_until_the_work_succeeds() {
    let fixture = ResolverFixture::with(TENANT_KEYS).await;
    fixture.core.put("b/a", "text", "text/plain");
    fixture
        .core
        .inject_file_fault("b/a", InjectedFault::Status(503));
    let meta = fixture.meta();
    let work = call(r#"{"a":"file:text::files/b/a"}"#);
    fixture.bus.publish_work(&meta, &work).await.unwrap();
    let deadline = tokio::time::Instant::now() + Duration::from_secs(20);
    while fixture.core.requests().is_empty() {
        assert!(tokio::time::Instant::now() < deadline, "never tried");
        tokio::task::yield_now().await;
    }
    fixture.core.clear_file_fault("b/a");
    let text = fixture
        .read(
            find_resolved(&fixture, &meta)
                .await
                .resolved
                .unwrap()
                .arguments
                .unwrap(),
        )
        .await;
    assert_eq!(text, r#"{"a":"text"}"#);
}

#[tokio::test]
async fn submitted_calls_are_work_whose_outcome_can_be_requested() {
    let fixture = ResolverFixture::with(TENANT_KEYS).await;
    fixture.core.put("b/a", "text", "text/plain");
    let meta = fixture.meta();
    let work = call(r#"{"a":"file:text::files/b/a"}"#);
    let accepted = fixture.bus.call(&meta, &work).await.unwrap();
    assert_eq!(
        (accepted.operation_id.as_str(), accepted.duplicate),
        (meta.operation.as_str(), false)
    );
    let repeated = fixture.bus.call(&meta, &work).await.unwrap();
    assert_eq!(
        (repeated.operation_id, repeated.duplicate),
        (accepted.operation_id, true)
    );
    let answer = outcome(&fixture, &meta).await;
    assert_eq!(answer.state(), TerminalState::Done);
    let Some(tool_call_outcome::Outcome::Resolved(event)) = answer.outcome else {
        panic!("not resolved: {answer:?}");
    };
    assert_eq!(event, find_resolved(&fixture, &meta).await);
    let gets = fixture.core.requests().len();
    assert_eq!(gets, 2, "the same operation is resolved once");
}

#[tokio::test]
async fn a_rejected_submission_has_its_rejection() {
    let fixture = ResolverFixture::with(TENANT_KEYS).await;
    let meta = fixture.meta();
    fixture
        .bus
        .call(&meta, &call(r#"{"a":"file:x"}"#))
        .await
        .unwrap();
    let answer = outcome(&fixture, &meta).await;
    let Some(tool_call_outcome::Outcome::Rejected(event)) = answer.outcome else {
        panic!("not rejected: {answer:?}");
    };
    assert_eq!(event.state(), TerminalState::Failed);
    assert_eq!(event.invalid.unwrap().parameter, "a");
}

#[tokio::test]
async fn operations_of_other_tenants_and_unknown_ones_have_no_outcome() {
    let fixture = ResolverFixture::with(TENANT_KEYS).await;
    let meta = fixture.meta();
    fixture.bus.call(&meta, &call("{}")).await.unwrap();
    outcome(&fixture, &meta).await;
    let ask = |operation: &OperationId| v1::ToolCallOutcomeRequest {
        operation_id: operation.to_string(),
    };
    let other = Meta::new(TenantId::new("other").unwrap(), meta.deadline);
    let unknown = v1::ToolCallOutcome::default();
    assert_eq!(
        fixture
            .bus
            .call(&other, &ask(&meta.operation))
            .await
            .unwrap(),
        unknown
    );
    assert_eq!(
        fixture
            .bus
            .call(&meta, &ask(&OperationId::mint()))
            .await
            .unwrap(),
        unknown
    );
    let wrong = v1::ToolCallOutcomeRequest::default();
    let fault = dray_types::Fault::from(fixture.bus.call(&meta, &wrong).await.unwrap_err());
    assert_eq!(fault.code, FaultCode::InvalidArgument);
}

#[tokio::test]
async fn a_publisher_learns_the_outcome_on_the_subject_of_its_tenant_and_of_no_other() {
    let fixture = ResolverFixture::with(TENANT_KEYS).await;
    let meta = fixture.meta();
    fixture.bus.publish_work(&meta, &call("{}")).await.unwrap();
    let ended = outcome(&fixture, &meta).await;
    let question = v1::ToolCallOutcomeRequest {
        operation_id: meta.operation.to_string(),
    };
    let response = fixture
        .bus
        .call_for_tenant(&fixture.meta(), &question)
        .await;
    assert_eq!(response.unwrap(), ended);
    let other = Meta::new(TenantId::new("other").unwrap(), meta.deadline);
    let response = fixture.bus.call_for_tenant(&other, &question).await;
    assert_eq!(response.unwrap(), v1::ToolCallOutcome::default());
}

#[tokio::test]
async fn a_stop_waits_for_work_in_hand() {
    let fixture = ResolverFixture::with(TENANT_KEYS).await;
    fixture.core.put("b/a", noise(3 << 20), "image/x");
    let meta = fixture.meta();
    let work = call(r#"{"a":"file:base64::files/b/a"}"#);
    fixture.bus.publish_work(&meta, &work).await.unwrap();
    let deadline = tokio::time::Instant::now() + Duration::from_secs(20);
    while fixture.core.requests().is_empty() {
        assert!(tokio::time::Instant::now() < deadline, "never begun");
        tokio::task::yield_now().await;
    }
    let mut events = events(&fixture).await;
    let (_, ()) = tokio::join!(next(&mut events, &meta), fixture.stop());
}
