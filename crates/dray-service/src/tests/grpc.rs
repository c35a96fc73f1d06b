//! The same calls over gRPC, through a real client and a real connection.

use std::sync::atomic::Ordering;

use dray_proto::{Call, v1};
use dray_types::{Fault, FaultCode, OperationId};
use tonic::codegen::http::uri::PathAndQuery;
use tonic::transport::Channel;
use tonic::{Code, Request, Status};

use super::service::{TestHost, call, meta};
use crate::fault_of;

async fn channel(fixture: &TestHost) -> Channel {
    let address = fixture.running.addresses().grpc.unwrap();
    Channel::from_shared(format!("http://{address}"))
        .unwrap()
        .connect()
        .await
        .unwrap()
}

/// A request as a client would send it, with these metadata.
fn request(url: &str, metadata: &[(&'static str, &str)]) -> Request<v1::FetchRequest> {
    let mut request = Request::new(v1::FetchRequest {
        url: url.to_owned(),
        ..v1::FetchRequest::default()
    });
    for (name, value) in metadata {
        request.metadata_mut().insert(*name, value.parse().unwrap());
    }
    request
}

async fn send(channel: Channel, request: Request<v1::FetchRequest>) -> Result<String, Status> {
    let mut client = tonic::client::Grpc::new(channel);
    client.ready().await.unwrap();
    let codec = tonic_prost::ProstCodec::<v1::FetchRequest, v1::FetchReply>::default();
    let path = PathAndQuery::from_static(<v1::FetchRequest as Call>::GRPC_PATH);
    client
        .unary(request, path, codec)
        .await
        .map(|reply| reply.into_inner().name)
}

async fn fault(fixture: &TestHost, url: &str, metadata: &[(&'static str, &str)]) -> (Code, Fault) {
    let status = send(channel(fixture).await, request(url, metadata))
        .await
        .unwrap_err();
    (
        status.code(),
        fault_of(&status).expect("our faults travel in the details"),
    )
}

#[tokio::test]
async fn grpc_and_bus_give_the_same_answer() {
    let fixture = TestHost::new(&[]).await;
    let over_grpc = send(
        channel(&fixture).await,
        request("echo:hello", &[("dray-tenant", "acme")]),
    )
    .await;
    assert_eq!(
        over_grpc.unwrap(),
        fixture.call("echo:hello").await.unwrap()
    );
}

#[tokio::test]
async fn grpc_and_bus_give_the_same_fault() {
    let fixture = TestHost::new(&[]).await;
    let over_bus = fixture.call("fault:").await.unwrap_err();
    let (code, mut over_grpc) = fault(&fixture, "fault:", &[("dray-tenant", "acme")]).await;
    assert_eq!(code, Code::PermissionDenied);
    assert_eq!(over_grpc.trace_id.len(), 32);
    over_grpc.trace_id.clone_from(&over_bus.trace_id);
    assert_eq!(over_grpc, over_bus);
}

#[tokio::test]
async fn panics_deadlines_and_sizes_are_the_same_over_grpc() {
    let fixture = TestHost::new(&[]).await;
    let tenant = ("dray-tenant", "acme");
    let (code, panicked) = fault(&fixture, "panic:", &[tenant]).await;
    assert_eq!((code, panicked.code), (Code::Internal, FaultCode::Internal));
    let (code, late) = fault(&fixture, "forever:", &[tenant, ("grpc-timeout", "600m")]).await;
    assert_eq!(
        (code, late.code),
        (Code::DeadlineExceeded, FaultCode::Timeout)
    );
    let (code, large) = fault(&fixture, "large:200000", &[tenant]).await;
    assert_eq!((code, large.code), (Code::OutOfRange, FaultCode::TooLarge));
}

#[tokio::test]
async fn a_request_without_a_tenant_is_refused() {
    let fixture = TestHost::new(&[]).await;
    let (code, fault) = fault(&fixture, "echo:x", &[]).await;
    assert_eq!(code, Code::InvalidArgument);
    assert!(fault.message.contains("dray-tenant"));
}

#[tokio::test]
async fn a_request_above_the_message_limit_is_refused() {
    let fixture = TestHost::new(&[]).await;
    let url = format!("echo:{}", "x".repeat(dray_proto::MAX_MESSAGE_BYTES));
    let (code, fault) = fault(&fixture, &url, &[("dray-tenant", "acme")]).await;
    assert_eq!(code, Code::OutOfRange);
    assert_eq!(
        (fault.code, fault.detail.as_str()),
        (FaultCode::TooLarge, "message_too_large")
    );
    assert!(fault.message.contains("128 KiB"), "{fault:?}");
    assert!(fault.advice.contains("stored file"), "{fault:?}");
}

#[tokio::test]
async fn one_operation_over_bus_and_grpc_runs_once() {
    let fixture = TestHost::new(&[]).await;
    let operation = OperationId::mint();
    let over_bus = {
        let (bus, meta) = (
            fixture.bus(),
            meta("acme").with_operation(operation.clone()),
        );
        async move { call(&bus, &meta, "hold:").await.unwrap() }
    };
    let channel = channel(&fixture).await;
    let over_grpc = async move {
        let metadata = [
            ("dray-tenant", "acme"),
            ("dray-operation", operation.as_str()),
        ];
        send(channel, request("hold:", &metadata)).await.unwrap()
    };
    let mut callers = tokio::task::JoinSet::new();
    callers.spawn(over_bus);
    fixture.probe.wait_inside(1).await;
    callers.spawn(over_grpc);
    wait_until(|| running(&fixture) == 2).await;
    fixture.probe.release.notify_waiters();
    while let Some(answer) = callers.join_next().await {
        assert_eq!(answer.unwrap(), "released");
    }
    assert_eq!(fixture.probe.entered.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn a_handler_ends_when_its_client_disconnects() {
    let fixture = TestHost::new(&[]).await;
    let channel = channel(&fixture).await;
    let mut callers = tokio::task::JoinSet::new();
    callers
        .spawn(async move { send(channel, request("forever:", &[("dray-tenant", "acme")])).await });
    fixture.probe.wait_inside(1).await;
    callers.shutdown().await;
    fixture.probe.wait_inside(0).await;
}

#[tokio::test]
async fn a_waiting_duplicate_runs_when_the_first_call_is_gone() {
    let fixture = TestHost::new(&[]).await;
    let operation = OperationId::mint();
    let channel = channel(&fixture).await;
    let mut first = tokio::task::JoinSet::new();
    let (client, id) = (channel.clone(), operation.clone());
    first.spawn(async move {
        let metadata = [("dray-tenant", "acme"), ("dray-operation", id.as_str())];
        send(client, request("hold:", &metadata)).await
    });
    fixture.probe.wait_inside(1).await;
    let mut second = tokio::task::JoinSet::new();
    let (bus, meta) = (fixture.bus(), meta("acme").with_operation(operation));
    second.spawn(async move { call(&bus, &meta, "hold:").await });
    wait_until(|| running(&fixture) == 2).await;
    first.shutdown().await;
    wait_until(|| fixture.probe.entered.load(Ordering::SeqCst) == 2).await;
    fixture.probe.release.notify_waiters();
    assert_eq!(
        second.join_next().await.unwrap().unwrap().unwrap(),
        "released"
    );
}

#[tokio::test]
async fn a_client_that_only_watches_does_not_delay_the_stop() {
    use tonic_health::pb::{HealthCheckRequest, health_client::HealthClient};

    let fixture = TestHost::new(&[]).await;
    let mut client = HealthClient::new(channel(&fixture).await);
    let mut states = client
        .watch(HealthCheckRequest::default())
        .await
        .unwrap()
        .into_inner();
    states.message().await.unwrap().unwrap();
    let stopped = fixture.running.stop().await;
    assert!(!stopped.cut_short);
}

#[tokio::test]
async fn a_stop_answers_running_calls_over_grpc() {
    let fixture = TestHost::new(&[]).await;
    let (channel, probe) = (channel(&fixture).await, fixture.probe.clone());
    let mut callers = tokio::task::JoinSet::new();
    callers.spawn(async move { send(channel, request("hold:", &[("dray-tenant", "acme")])).await });
    probe.wait_inside(1).await;
    let health = fixture.running.health().clone();
    let mut stopping = tokio::task::JoinSet::new();
    stopping.spawn(fixture.running.stop());
    health.wait_unready().await;
    probe.release.notify_waiters();
    assert_eq!(
        callers.join_next().await.unwrap().unwrap().unwrap(),
        "released"
    );
    assert!(!stopping.join_next().await.unwrap().unwrap().cut_short);
}

#[tokio::test]
async fn dropping_the_host_ends_running_calls_over_grpc() {
    let fixture = TestHost::new(&[]).await;
    let (channel, probe) = (channel(&fixture).await, fixture.probe.clone());
    let mut callers = tokio::task::JoinSet::new();
    callers
        .spawn(async move { send(channel, request("forever:", &[("dray-tenant", "acme")])).await });
    probe.wait_inside(1).await;
    drop(fixture);
    probe.wait_inside(0).await;
}

/// Calls that the host counts as running.
fn running(fixture: &TestHost) -> usize {
    let metrics = fixture.running.metrics().unwrap();
    let line = metrics
        .lines()
        .find(|line| line.starts_with("dray_answer_running{"));
    line.and_then(|line| line.rsplit(' ').next()?.parse().ok())
        .unwrap_or(0)
}

#[tokio::test]
async fn the_health_service_follows_readiness() {
    use tonic_health::pb::health_check_response::ServingStatus;
    use tonic_health::pb::{HealthCheckRequest, health_client::HealthClient};

    let fixture = TestHost::new(&[]).await;
    fixture.running.ready().await;
    let mut client = HealthClient::new(channel(&fixture).await);
    for service in ["", "dray.v1.Egress"] {
        let request = HealthCheckRequest {
            service: service.to_owned(),
        };
        let mut states = client.watch(request).await.unwrap().into_inner();
        loop {
            let state = states.message().await.unwrap().unwrap();
            if state.status() == ServingStatus::Serving {
                break;
            }
        }
        fixture.probe.healthy.send_replace(false);
        let state = states.message().await.unwrap().unwrap();
        assert_eq!(state.status(), ServingStatus::NotServing);
        fixture.probe.healthy.send_replace(true);
        fixture.running.ready().await;
    }
}

#[tokio::test]
async fn a_request_whose_message_does_not_arrive_ends() {
    let fixture = TestHost::new(&[("grpc.message_timeout", "50ms")]).await;
    let mut client = tonic::client::Grpc::new(channel(&fixture).await);
    client.ready().await.unwrap();
    let codec = tonic_prost::ProstCodec::<v1::FetchRequest, v1::FetchReply>::default();
    let path = PathAndQuery::from_static(<v1::FetchRequest as Call>::GRPC_PATH);
    let silent = futures_util::stream::pending::<v1::FetchRequest>();
    let ended = client.client_streaming(Request::new(silent), path, codec);
    let status = ended.await.unwrap_err();
    assert_eq!(status.code(), Code::DeadlineExceeded);
    assert_eq!(fault_of(&status).unwrap().detail, "message_incomplete");
    // The time of the work after the message is another one.
    let metadata = [("dray-tenant", "acme"), ("grpc-timeout", "600m")];
    let (code, late) = fault(&fixture, "forever:", &metadata).await;
    assert_eq!(code, Code::DeadlineExceeded);
    assert_ne!(late.detail, "message_incomplete");
}

#[tokio::test]
async fn reflection_shows_the_contracts() {
    use tonic_reflection::pb::v1::ServerReflectionRequest;
    use tonic_reflection::pb::v1::server_reflection_client::ServerReflectionClient;
    use tonic_reflection::pb::v1::server_reflection_request::MessageRequest;
    use tonic_reflection::pb::v1::server_reflection_response::MessageResponse;

    let fixture = TestHost::new(&[]).await;
    let mut client = ServerReflectionClient::new(channel(&fixture).await);
    let request = ServerReflectionRequest {
        host: String::new(),
        message_request: Some(MessageRequest::ListServices(String::new())),
    };
    let mut replies = client
        .server_reflection_info(tokio_stream::once(request))
        .await
        .unwrap()
        .into_inner();
    let reply = replies.message().await.unwrap().unwrap();
    let Some(MessageResponse::ListServicesResponse(list)) = reply.message_response else {
        panic!("expected a list, got {reply:?}");
    };
    let names: Vec<&str> = list
        .service
        .iter()
        .map(|service| service.name.as_str())
        .collect();
    assert!(
        names.contains(&"dray.v1.Egress") && names.contains(&"grpc.health.v1.Health"),
        "{names:?}"
    );
}

/// Waits until a condition is true.
async fn wait_until(condition: impl Fn() -> bool) {
    dray_testkit::eventually("the condition", async || condition().then_some(())).await;
}
