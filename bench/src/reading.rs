//! (q) Calls of the file-resolver for an agent's turn over gRPC, one after the other: building a context, and reading a
//! document for the first time and again. A listener that delays small replies (Nagle's algorithm together with delayed
//! acknowledgements) would need 40 ms more for most of them.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use bytes::Bytes;
use dray_bus::Meta;
use dray_file_resolver::FileResolver;
use dray_proto::Call;
use dray_proto::convert::ContentSource;
use dray_proto::v1;
use dray_proto::v1::document_source::Source;
use dray_service::{Host, RunningHost, Settings};
use dray_store::ArtifactLabel;
use dray_types::{Claim, Deadline, TenantId};
use prost::Message;
use serde_json::json;
use tonic::codegen::http::uri::PathAndQuery;
use tonic::transport::Channel;

use crate::harness::{SampleSet, to_millis, verdict_text};
use crate::print_line;

const CALL_COUNT: usize = 101;
/// New documents: each starts a worker, so there are fewer.
const DOCUMENT_COUNT: usize = 21;
/// Time from the request to store a document until its deadline.
const OPERATION_TIMEOUT: Duration = Duration::from_mins(1);

/// Highest median for building a context, in milliseconds. Like the two below, it is about twice the median that was
/// measured when replies were first sent without delay.
const MAX_CONTEXT_MS: f64 = 2.0;
/// Highest median for reading a document again, in milliseconds.
const MAX_CACHED_READ_MS: f64 = 4.0;
/// Highest median for reading a new document, in milliseconds.
const MAX_NEW_READ_MS: f64 = 25.0;

/// Measures the calls of a resolver whose conversions run in workers of `dray`.
pub(crate) async fn run(dray: &Path) -> anyhow::Result<()> {
    let directory = tempfile::tempdir()?;
    let worker = dray.to_str().context("the path of dray is not UTF-8")?;
    let settings = Settings::embedded(directory.path())
        .set("grpc.listen", "127.0.0.1:0")
        .set("limits.free_disk_percent", "0")
        .set("file-resolver.reading.worker", worker);
    let running = Host::new(settings).with::<FileResolver>().start().await?;
    running.ready().await;
    let address = running.addresses().grpc.context("no gRPC endpoint")?;
    let channel = Channel::from_shared(format!("http://{address}"))?
        .connect()
        .await?;

    print_line("(q) calls of the file-resolver over gRPC, one after the other");
    let context = context_request();
    let times = times_of(CALL_COUNT, async |_| {
        send(&channel, context.clone()).await.map(drop)
    });
    report("building a context", times.await?, MAX_CONTEXT_MS);

    let mut claims = Vec::new();
    for number in 0..=DOCUMENT_COUNT {
        claims.push(store_document(&running, number).await?);
    }
    let times = times_of(DOCUMENT_COUNT, async |number| {
        let claim = claims.get(number).context("no further document")?;
        read_document(&channel, claim).await
    });
    report("reading a new document", times.await?, MAX_NEW_READ_MS);
    let first = claims.first().context("no document")?;
    let times = times_of(CALL_COUNT, async |_| read_document(&channel, first).await);
    report("reading it again", times.await?, MAX_CACHED_READ_MS);
    running.stop().await;
    Ok(())
}

/// Times of `count` runs. Run 0 is not measured, because it creates connections and caches.
async fn times_of(
    count: usize,
    call: impl AsyncFn(usize) -> anyhow::Result<()>,
) -> anyhow::Result<Vec<Duration>> {
    let mut times = Vec::with_capacity(count);
    for number in 0..=count {
        let start = Instant::now();
        call(number).await?;
        if number > 0 {
            times.push(start.elapsed());
        }
    }
    Ok(times)
}

fn report(name: &str, times: Vec<Duration>, target_ms: f64) {
    let median_ms = to_millis(SampleSet::new(name, times).median());
    let verdict = verdict_text(median_ms <= target_ms);
    print_line(&format!(
        "  {name:<40} {median_ms:>9.3} ms, aim at most {target_ms}: {verdict}"
    ));
}

/// A turn whose message names one file of the web.
fn context_request() -> v1::BuildContextRequest {
    let file = json!({"type": "file", "name": "report.pdf", "url": "https://files.example.org/report.pdf"});
    let value = json!([{ "file": file }, {"text": {"content": "read it"}}]);
    let request = json!({
        "userMessage": {"obj": "Human", "dataId": "h1", "value": value},
        "question": "read it",
        "responseChatItemId": "a1",
    });
    v1::BuildContextRequest {
        request: Some(ContentSource::Inline(Bytes::from(request.to_string())).into()),
        ..v1::BuildContextRequest::default()
    }
}

/// Stores a table. Its number makes it another document.
async fn store_document(running: &RunningHost, number: usize) -> anyhow::Result<Claim> {
    let context = running.context();
    let tenant = TenantId::default();
    let deadline = Deadline::after(context.clock.now_ms(), OPERATION_TIMEOUT);
    let meta = Meta::new(tenant.clone(), deadline);
    let table = format!("name,amount\nada,{number}\ngrace,12\n");
    let label = ArtifactLabel::new("text/csv", "people.csv");
    let stored = context
        .store
        .put(&tenant, &meta.operation, table.into(), label);
    Ok(stored.await?)
}

async fn read_document(channel: &Channel, claim: &Claim) -> anyhow::Result<()> {
    let source = Source::Claim(claim.clone().into());
    let request = v1::ReadAttachmentRequest {
        source: Some(v1::DocumentSource {
            source: Some(source),
        }),
        ..v1::ReadAttachmentRequest::default()
    };
    let reply = send(channel, request).await?;
    anyhow::ensure!(reply.outcome == "inline", "{reply:?}");
    Ok(())
}

async fn send<C>(channel: &Channel, request: C) -> anyhow::Result<C::Reply>
where
    C: Call + Message + Default + 'static,
    C::Reply: Message + Default + 'static,
{
    let mut request = tonic::Request::new(request);
    request
        .metadata_mut()
        .insert("dray-tenant", "default".parse()?);
    let mut client = tonic::client::Grpc::new(channel.clone());
    client.ready().await?;
    let codec = tonic_prost::ProstCodec::<C, C::Reply>::default();
    let path = PathAndQuery::from_static(C::GRPC_PATH);
    Ok(client.unary(request, path, codec).await?.into_inner())
}
