//! (a) A bus call compared with a bare `async-nats` request and reply of the same size.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use bytes::Bytes;
use dray_bus::{Bus, Meta, NatsOptions, Topology};
use dray_proto::Call;
use dray_proto::convert::ContentSource;
use dray_proto::v1;
use dray_service::{Host, Request, Router, Service, ServiceContext, Settings, StartError, config};
use dray_testkit::nats::NatsServer;
use dray_types::{Clock, Deadline, Fault, TenantId};
use futures_util::StreamExt as _;
use prost::Message as _;
use serde::{Deserialize, Serialize};
use tonic::codegen::http::uri::PathAndQuery;
use tonic::transport::Channel;

use crate::harness::{BenchComparison, RatioTarget, SampleSet, side_by_side};
use crate::print_line;

/// Calls of one measurement; a single call would be near the resolution of the clock.
const CALL_COUNT: usize = 500;
/// Rounds of each measurement; the result is their median.
const ROUND_COUNT: usize = 11;
/// Bytes of a small call.
const SMALL_BYTES: usize = 128;

/// Measures small and large calls.
pub(crate) async fn run() -> anyhow::Result<()> {
    let server = NatsServer::start();
    for size in [SMALL_BYTES, 32 * 1024] {
        print_line(&compare_sizes(&server, size).await?.to_string());
    }
    print_line(&compare_grpc(&server).await?.to_string());
    Ok(())
}

/// Measures small calls over gRPC. A listener that delays small replies (Nagle's algorithm together with delayed
/// acknowledgements) would need 40 ms for each.
async fn compare_grpc(server: &NatsServer) -> anyhow::Result<BenchComparison> {
    let request = resolve_request(SMALL_BYTES);
    let payload = Bytes::from(request.encode_to_vec());
    let bare = bare_client(server).await?;
    let directory = tempfile::tempdir()?;
    let settings = Settings::embedded(directory.path())
        .set("grpc.listen", "127.0.0.1:0")
        .set("limits.free_disk_percent", "0");
    let running = Host::new(settings).with::<EchoService>().start().await?;
    running.ready().await;
    let address = running.addresses().grpc.context("no gRPC endpoint")?;
    // One connection for all calls, as for the bare client.
    let channel = Channel::from_shared(format!("http://{address}"))?
        .connect()
        .await?;
    let (baseline, ours) = side_by_side(
        ROUND_COUNT,
        || async {
            for _ in 0..CALL_COUNT {
                bare.request("bench.echo", payload.clone()).await?;
            }
            Ok(())
        },
        || async {
            for _ in 0..CALL_COUNT {
                send_call(channel.clone(), request.clone()).await?;
            }
            Ok(())
        },
    )
    .await?;
    running.stop().await;
    Ok(BenchComparison {
        name: format!(
            "(a) {CALL_COUNT} calls one after the other, {SMALL_BYTES} B there and back, gRPC"
        ),
        baseline: SampleSet::new("async-nats request and reply", baseline),
        ours: SampleSet::new("dray call over gRPC", ours),
        target: RatioTarget::TimeAtMost(4.0),
    })
}

async fn send_call(channel: Channel, request: v1::ResolveRequest) -> anyhow::Result<()> {
    let mut request = tonic::Request::new(request);
    request
        .metadata_mut()
        .insert("dray-tenant", "default".parse()?);
    let mut client = tonic::client::Grpc::new(channel);
    client.ready().await?;
    let codec = tonic_prost::ProstCodec::<v1::ResolveRequest, v1::ResolveReply>::default();
    let path = PathAndQuery::from_static(<v1::ResolveRequest as Call>::GRPC_PATH);
    client.unary(request, path, codec).await?;
    Ok(())
}

async fn compare_sizes(server: &NatsServer, size: usize) -> anyhow::Result<BenchComparison> {
    let request = resolve_request(size);
    let payload = Bytes::from(request.encode_to_vec());
    let bare = bare_client(server).await?;
    let provisioner = Bus::connect(
        &NatsOptions::at(server.url()),
        Clock::system(),
        &noop_meter(),
    )
    .await?;
    provisioner
        // The service is ready only when the ledger's stream exists.
        .apply_topology(&Topology::new(1, 256 << 20))
        .await?;
    let directory = tempfile::tempdir()?;
    let settings = Settings::embedded(directory.path())
        .set("bus.mode", "nats")
        .set("bus.nats.servers", server.url())
        .set("limits.free_disk_percent", "0");
    let running = Host::new(settings).with::<EchoService>().start().await?;
    running.ready().await;
    let caller = Bus::connect(
        &NatsOptions::at(server.url()),
        Clock::system(),
        &noop_meter(),
    )
    .await?;
    let (baseline, ours) = side_by_side(
        ROUND_COUNT,
        || async {
            for _ in 0..CALL_COUNT {
                bare.request("bench.echo", payload.clone()).await?;
            }
            Ok(())
        },
        || async {
            for _ in 0..CALL_COUNT {
                // A new envelope for each call, because creating its id is a part of a call.
                let now = Clock::system().now_ms();
                let meta = Meta::new(
                    TenantId::default(),
                    Deadline::after(now, Duration::from_secs(10)),
                );
                caller.call(&meta, &request).await?;
            }
            Ok(())
        },
    )
    .await?;
    running.stop().await;
    Ok(BenchComparison {
        name: format!("(a) {CALL_COUNT} calls one after the other, {size} B there and back"),
        baseline: SampleSet::new("async-nats request and reply", baseline),
        ours: SampleSet::new(
            "dray call: envelope, deadline, admission, fault mapping",
            ours,
        ),
        target: RatioTarget::TimeAtMost(1.5),
    })
}

pub(crate) fn noop_meter() -> opentelemetry::metrics::Meter {
    dray_service::telemetry::no_meter()
}

fn resolve_request(size: usize) -> v1::ResolveRequest {
    let arguments = ContentSource::Inline(Bytes::from(vec![b'x'; size]));
    v1::ResolveRequest {
        arguments: Some(arguments.into()),
        ..v1::ResolveRequest::default()
    }
}

/// A client and a responder that use only the client library.
async fn bare_client(server: &NatsServer) -> anyhow::Result<async_nats::Client> {
    // A separate connection, as a service in another process would have.
    let responder = async_nats::connect(server.url()).await?;
    let mut requests = responder
        .queue_subscribe("bench.echo", "bench".to_owned())
        .await?;
    #[expect(
        clippy::disallowed_methods,
        reason = "ends with the measurement's process"
    )]
    tokio::spawn(async move {
        while let Some(message) = requests.next().await {
            if let Some(reply) = message.reply {
                // If a reply cannot be sent, the request fails.
                let _ = responder.publish(reply, message.payload).await;
            }
        }
    });
    Ok(async_nats::connect(server.url()).await?)
}

/// Responds to `Resolve` with the received arguments.
struct EchoService;

#[derive(Clone, Default, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(default)]
struct EchoConfig {}

impl config::Section for EchoConfig {}

impl EchoService {
    #[expect(clippy::unused_async, reason = "the shape of a handler")]
    async fn resolve(
        self: Arc<Self>,
        request: Request<v1::ResolveRequest>,
    ) -> Result<v1::ResolveReply, Fault> {
        let resolved = v1::ResolvedArguments {
            arguments: request.body.arguments,
            ..Default::default()
        };
        Ok(v1::ResolveReply {
            outcome: Some(v1::resolve_reply::Outcome::Resolved(resolved)),
        })
    }
}

impl Service for EchoService {
    const NAME: &'static str = "file-resolver";
    type Config = EchoConfig;

    async fn start(_config: EchoConfig, _cx: &ServiceContext) -> Result<Self, StartError> {
        Ok(Self)
    }

    fn routes(router: Router<Self>) -> Router<Self> {
        router.answer(Self::resolve)
    }
}
