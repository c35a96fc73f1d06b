//! Calls with a stream of replies, over the bus and over gRPC.

use std::time::Duration;

use dray_bus::CallError;
use dray_proto::{Call as _, v1};
use dray_types::{Fault, FaultCode};
use tokio::sync::mpsc;
use tokio::task::JoinSet;
use tonic::codegen::http::uri::PathAndQuery;
use tonic::{Code, Request, Status, Streaming};

use super::service::{TestHost, meta, meta_for, stdout};
use crate::fault_of;

/// More replies than are sent without an acknowledgement.
const MANY_REPLIES: usize = 500;

/// A request for these replies, then the outcome of a fetch of the URL.
fn request(words: impl IntoIterator<Item = String>, url: &str) -> v1::ExecSandboxStreamRequest {
    v1::ExecSandboxStreamRequest {
        command: Some(v1::ExecSandboxRequest {
            argv: words.into_iter().map(String::into_bytes).collect(),
            working_directory: url.as_bytes().to_vec(),
            ..v1::ExecSandboxRequest::default()
        }),
    }
}

fn words() -> Vec<String> {
    (0..MANY_REPLIES).map(|number| number.to_string()).collect()
}

fn expected_events() -> Vec<v1::ExecSandboxEvent> {
    let words = words().into_iter().chain(["end".to_owned()]);
    words.map(|word| stdout(word.into_bytes())).collect()
}

async fn open_grpc(
    fixture: &TestHost,
    request: v1::ExecSandboxStreamRequest,
) -> Result<Streaming<v1::ExecSandboxEvent>, Status> {
    let address = fixture.running.addresses().grpc.unwrap();
    let channel = tonic::transport::Channel::from_shared(format!("http://{address}"));
    let channel = channel.unwrap().connect().await.unwrap();
    let mut client = tonic::client::Grpc::new(channel);
    client.ready().await.unwrap();
    let codec = tonic_prost::ProstCodec::default();
    let path = PathAndQuery::from_static(v1::ExecSandboxStreamRequest::GRPC_PATH);
    let mut request = Request::new(request);
    request
        .metadata_mut()
        .insert("dray-tenant", "acme".parse().unwrap());
    let response = client.server_streaming(request, path, codec).await;
    response.map(tonic::Response::into_inner)
}

#[tokio::test]
async fn replies_arrive_in_order_over_the_bus() {
    let fixture = TestHost::new(&[]).await;
    let (sender, mut events) = mpsc::channel(1);
    let (bus, meta) = (fixture.bus(), meta("acme"));
    let request = request(words(), "echo:end");
    let reading = async {
        let mut all = Vec::new();
        while let Some(event) = events.recv().await {
            all.push(event);
        }
        all
    };
    let (last, mut all) = tokio::join!(bus.call_streaming(&meta, &request, sender), reading);
    all.push(last.unwrap());
    assert_eq!(all, expected_events());
}

#[tokio::test]
async fn replies_arrive_in_order_over_grpc() {
    let fixture = TestHost::new(&[]).await;
    let mut replies = open_grpc(&fixture, request(words(), "echo:end"))
        .await
        .unwrap();
    let mut all = Vec::new();
    while let Some(event) = replies.message().await.unwrap() {
        all.push(event);
    }
    assert_eq!(all, expected_events());
}

#[tokio::test]
async fn a_fault_after_replies_is_the_same_over_the_bus_and_grpc() {
    let fixture = TestHost::new(&[]).await;
    let (sender, mut events) = mpsc::channel(4);
    let one = || request(["one".to_owned()], "fault:");
    let over_bus: Fault = fixture
        .bus()
        .call_streaming(&meta("acme"), &one(), sender)
        .await
        .unwrap_err()
        .into();
    assert_eq!(events.recv().await, Some(stdout(b"one".to_vec())));
    let mut replies = open_grpc(&fixture, one()).await.unwrap();
    assert_eq!(
        replies.message().await.unwrap(),
        Some(stdout(b"one".to_vec()))
    );
    let status = replies.message().await.unwrap_err();
    assert_eq!(status.code(), Code::PermissionDenied);
    let mut over_grpc = fault_of(&status).unwrap();
    over_grpc.trace_id.clone_from(&over_bus.trace_id);
    assert_eq!(over_grpc, over_bus);
}

#[tokio::test]
async fn a_handler_is_dropped_when_its_caller_leaves_the_stream() {
    let fixture = TestHost::new(&[]).await;
    let held = || request(["one".to_owned()], "hold:");
    let mut replies = open_grpc(&fixture, held()).await.unwrap();
    replies.message().await.unwrap();
    fixture.probe.wait_inside(1).await;
    drop(replies);
    fixture.probe.wait_inside(0).await;

    let (sender, mut events) = mpsc::channel(1);
    let bus = fixture.bus();
    let mut calling = JoinSet::new();
    calling.spawn(async move {
        let (meta, request) = (meta("acme"), held());
        bus.call_streaming(&meta, &request, sender).await
    });
    events.recv().await.unwrap();
    fixture.probe.wait_inside(1).await;
    calling.abort_all();
    fixture.probe.wait_inside(0).await;
}

#[tokio::test]
async fn a_caller_that_stops_reading_does_not_keep_its_handler_beyond_the_deadline() {
    let fixture = TestHost::new(&[]).await;
    let (sender, events) = mpsc::channel(1);
    let short = meta_for("acme", Duration::from_millis(700));
    let failed = fixture
        .bus()
        .call_streaming(&short, &request(words(), "echo:end"), sender)
        .await
        .unwrap_err();
    assert!(matches!(
        failed,
        CallError::Timeout(_)
            | CallError::Fault(Fault {
                code: FaultCode::Timeout,
                ..
            })
    ));
    fixture.probe.wait_inside(0).await;
    drop(events);
}

#[tokio::test]
async fn equal_requests_of_one_operation_each_run_the_handler() {
    let fixture = TestHost::new(&[]).await;
    let (bus, meta) = (fixture.bus(), meta("acme"));
    let same = request(["one".to_owned()], "echo:end");
    let (first, mut first_events) = mpsc::channel(1);
    let (second, mut second_events) = mpsc::channel(1);
    let (one, two) = tokio::join!(
        bus.call_streaming(&meta, &same, first),
        bus.call_streaming(&meta, &same, second)
    );
    assert_eq!(one.unwrap(), two.unwrap());
    for events in [&mut first_events, &mut second_events] {
        assert_eq!(events.recv().await, Some(stdout(b"one".to_vec())));
    }
}
