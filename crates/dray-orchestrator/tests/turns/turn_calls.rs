//! Tests of the events about calls of tools: their content for each outcome, and what they must never contain.

use std::sync::Arc;

use dray_bus::headers::{OPERATION_HEADER, SESSION_HEADER, TRACEPARENT_HEADER};
use dray_bus::{EventFilter, EventStream, ObservedEvent};
use dray_http::fake_server::{
    self, ConnectionClosed, FakeServer, ReceivedRequest, Reply, SharedState,
};
use dray_proto::v1::{self, TurnCallError, TurnCallOutcome, TurnOutcome};
use futures_util::FutureExt as _;
use serde_json::{Value, json};
use tokio::sync::Notify;

use crate::fixture::{TurnFixture, manifest, rest};

/// Text in the prompt, in the arguments and the result of a call, and in the answer.
const SECRET_TEXT: &str = "s3cr3t-words";

/// An endpoint with one path for each way in which a call ends: `/ok`, `/broken`, and `/slow` after a notice.
struct OutcomeEndpoint(FakeServer<Arc<Notify>>);

async fn answer(shared: Arc<SharedState<Arc<Notify>>>, received: ReceivedRequest) -> Reply {
    let may_end = Arc::clone(&shared.lock());
    match received.path.as_str() {
        "/broken" => return fake_server::json_reply(502, &json!({"error": SECRET_TEXT})),
        "/slow" => may_end.notified().await,
        _ => {}
    }
    fake_server::json_reply(200, &json!({"own": SECRET_TEXT}))
}

impl OutcomeEndpoint {
    async fn start() -> Self {
        let server = FakeServer::start(Arc::default(), |shared, received| {
            async move { Ok::<_, ConnectionClosed>(answer(shared, received).await) }.boxed()
        });
        Self(server.await.unwrap())
    }

    async fn fixture(&self, script: &Value) -> TurnFixture {
        let tools = rest(&self.0.shared().url(), &["ok", "broken", "slow"]);
        TurnFixture::plain(&manifest(json!([tools])), &script.to_string()).await
    }

    fn end_slow_call(&self) {
        self.0.shared().lock().notify_one();
    }
}

/// All events about turns and their calls.
async fn events(fixture: &TurnFixture) -> EventStream {
    let filter = EventFilter::new("dray.event.*.v1.*.*").from_start();
    fixture.bus().events(filter).await.unwrap()
}

/// The events up to the end of the first turn.
async fn first_turn(fixture: &TurnFixture) -> Vec<ObservedEvent> {
    let mut stream = events(fixture).await;
    let mut turn = Vec::new();
    while !turn
        .iter()
        .any(|event: &ObservedEvent| event.subject.contains("turn.v1.ended"))
    {
        turn.push(stream.next().await.unwrap());
    }
    turn
}

fn ended_calls(events: &[ObservedEvent]) -> Vec<v1::TurnCallEnded> {
    let ends = events
        .iter()
        .filter(|event| event.subject.contains("turncall.v1.ended"));
    ends.map(|event| event.decode().unwrap()).collect()
}

fn call_of(name: &str) -> Value {
    json!({"name": name, "arguments": {"q": SECRET_TEXT}})
}

/// Checks that all events of a turn have its operation, session and trace, and no content.
fn check_headers(events: &[ObservedEvent], operation: &str, session: &str) {
    let header = |event: &ObservedEvent, name| event.headers.get(name).unwrap().to_owned();
    let trace = |event: &ObservedEvent| header(event, TRACEPARENT_HEADER)[3..35].to_owned();
    for event in events {
        assert_eq!(header(event, OPERATION_HEADER), operation);
        assert_eq!(header(event, SESSION_HEADER), session);
        assert_eq!(trace(event), trace(&events[0]));
        assert!(!format!("{:?}", event.headers).contains(SECRET_TEXT));
        let mut parts = event.payload.windows(SECRET_TEXT.len());
        assert!(
            !parts.any(|part| part == SECRET_TEXT.as_bytes()),
            "{event:?}"
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn each_call_of_a_turn_has_an_end_with_its_outcome_and_no_content() {
    let endpoint = OutcomeEndpoint::start().await;
    let script = json!({"rules": [
        {"when": {"tool_result_of": "shop_broken"}, "reply": {"call": [{"name": "shop_ok", "arguments": "no JSON"}]}},
        {"when": {"tool_result_of": "shop_ok"}, "reply": {"say": SECRET_TEXT}},
        {"reply": {"call": [call_of("shop_broken"), call_of("shop_ok"), call_of("unknown")]}},
    ]});
    let fixture = endpoint.fixture(&script).await;
    fixture.send_text(&format!("Order {SECRET_TEXT}.")).await;
    let events = first_turn(&fixture).await;
    let mut calls = ended_calls(&events);
    calls.sort_by_key(|ended| ended.call.as_ref().unwrap().number);
    let described: Vec<_> = calls
        .iter()
        .map(|ended| {
            let call = ended.call.as_ref().unwrap();
            (
                call.tool.as_str(),
                call.round,
                ended.outcome(),
                ended.error(),
                ended.http_status,
            )
        })
        .collect();
    // A call of a tool that does not exist is not made.
    assert_eq!(
        described,
        [
            (
                "shop_broken",
                1,
                TurnCallOutcome::Failed,
                TurnCallError::ToolFailure,
                502
            ),
            (
                "shop_ok",
                1,
                TurnCallOutcome::Finished,
                TurnCallError::Unspecified,
                0
            ),
            (
                "shop_ok",
                2,
                TurnCallOutcome::Failed,
                TurnCallError::InvalidArguments,
                0
            ),
        ]
    );
    let begun: v1::TurnBegun = events[0].decode().unwrap();
    let turn = begun.turn.unwrap();
    check_headers(&events, &begun.operation_id, &turn.session);
    let call = calls[1].call.as_ref().unwrap();
    assert_eq!(
        (call.agent.as_str(), &call.operation_id),
        ("agent", &begun.operation_id)
    );
    assert!(call.call_id.starts_with("call_"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_that_takes_long_has_an_event_while_it_runs() {
    let endpoint = OutcomeEndpoint::start().await;
    let script = json!({"rules": [
        {"when": {"tool_result_of": "shop_slow"}, "reply": {"say": "Done."}},
        {"reply": {"call": [call_of("shop_slow")]}},
    ]});
    let fixture = endpoint.fixture(&script).await;
    let mut stream = events(&fixture).await;
    let observed = async {
        // The turn begins, then the call, which continues only after its event.
        let _: v1::TurnBegun = stream.next().await.unwrap().decode().unwrap();
        let begun: v1::TurnCallBegun = stream.next().await.unwrap().decode().unwrap();
        endpoint.end_slow_call();
        let ended: v1::TurnCallEnded = stream.next().await.unwrap().decode().unwrap();
        (begun, ended)
    };
    let (answer, (begun, ended)) = tokio::join!(fixture.send_text("go"), observed);
    assert_eq!(answer.text(), "Done.");
    assert_eq!(begun.call, ended.call);
    assert_eq!(ended.outcome(), TurnCallOutcome::Finished);
    assert!(ended.duration_ms >= 250, "{ended:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_leaves_during_a_call_cancels_it_before_its_turn_ends() {
    let endpoint = OutcomeEndpoint::start().await;
    let script = json!({"rules": [{"reply": {"call": [call_of("shop_slow")]}}]});
    let fixture = endpoint.fixture(&script).await;
    let mut stream = events(&fixture).await;
    let _: v1::TurnBegun = tokio::select! {
        answer = fixture.send_text("go") => panic!("{answer:?}"),
        begun = async {
            let begun = stream.next().await.unwrap().decode().unwrap();
            let _: v1::TurnCallBegun = stream.next().await.unwrap().decode().unwrap();
            begun
        } => begun,
    };
    let call: v1::TurnCallEnded = stream.next().await.unwrap().decode().unwrap();
    assert_eq!(call.outcome(), TurnCallOutcome::Cancelled);
    assert_eq!(call.error(), TurnCallError::Unspecified);
    let turn: v1::TurnEnded = stream.next().await.unwrap().decode().unwrap();
    assert_eq!(turn.outcome(), TurnOutcome::Cancelled);
    assert_eq!((turn.tool_calls, turn.tools[0].failed_calls), (1, 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn calls_are_made_while_the_bus_takes_no_events() {
    let endpoint = OutcomeEndpoint::start().await;
    let script = json!({"rules": [
        {"when": {"tool_result_of": "shop_ok"}, "reply": {"say": "Done."}},
        {"reply": {"call": vec![call_of("shop_ok"); 20]}},
    ]});
    let tools = rest(&endpoint.0.shared().url(), &["ok"]);
    let agent = manifest(json!([tools]));
    let fixture = TurnFixture::without_streams(&agent, &script.to_string()).await;
    for _ in 0..5 {
        let answer = fixture.send_text("go").await;
        assert_eq!((answer.text().as_str(), answer.done), ("Done.", true));
    }
}
