//! Calls over gRPC, without generated code.

use std::time::Duration;

use dray_sandbox::{Error, ErrorKind};
use http::uri::PathAndQuery;
use prost::Message;
use tonic::client::Grpc;
use tonic::transport::{Channel, Endpoint};
use tonic::{Request, Status, Streaming};
use tonic_prost::ProstCodec;

use crate::config::{Settings, is_plain_http};

/// Longest message in bytes that is received.
const MAX_MESSAGE_BYTES: usize = 32 << 20;
/// Interval of pings on a silent connection, and the time for their response.
const PING_INTERVAL: Duration = Duration::from_secs(20);
/// Flow control window of one stream, in bytes.
const STREAM_WINDOW: u32 = 2 << 20;
/// Flow control window of a connection, in bytes.
const CONNECTION_WINDOW: u32 = 8 << 20;

/// Makes the endpoint of an address. Its connection is made at the first call, and again after it broke.
pub(crate) fn endpoint(settings: &Settings, url: &str) -> Result<Endpoint, Error> {
    let wrong = || Error::new(ErrorKind::Protocol, "the URL of the provider is not valid");
    let plain = is_plain_http(url).ok_or_else(wrong)?;
    if plain && !settings.plain {
        // Credentials never travel without TLS.
        return Err(wrong());
    }
    let mut endpoint = Endpoint::from_shared(url.to_owned())
        .map_err(|error| wrong().caused_by(error))?
        .connect_timeout(settings.connect)
        .tcp_nodelay(true)
        .initial_stream_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .http2_keep_alive_interval(PING_INTERVAL)
        .keep_alive_timeout(PING_INTERVAL);
    if !plain {
        endpoint = endpoint
            .tls_config(settings.tls.clone())
            .map_err(|error| wrong().caused_by(error))?;
    }
    Ok(endpoint)
}

async fn ready(channel: &Channel) -> Result<Grpc<Channel>, Status> {
    let mut grpc = Grpc::new(channel.clone()).max_decoding_message_size(MAX_MESSAGE_BYTES);
    grpc.ready()
        .await
        .map_err(|error| Status::unavailable(format!("no connection: {error}")))?;
    Ok(grpc)
}

/// Sends one message and receives one.
pub(crate) async fn unary<Q, A>(
    channel: &Channel,
    path: &'static str,
    request: Request<Q>,
    timeout: Duration,
) -> Result<A, Status>
where
    Q: Message + 'static,
    A: Message + Default + 'static,
{
    let exchange = async {
        let mut grpc = ready(channel).await?;
        let codec: ProstCodec<Q, A> = ProstCodec::default();
        let response = grpc.unary(request, PathAndQuery::from_static(path), codec);
        Ok(response.await?.into_inner())
    };
    match tokio::time::timeout(timeout, Box::pin(exchange)).await {
        Ok(response) => response,
        Err(_) => Err(Status::deadline_exceeded("no response in time")),
    }
}

/// Sends one message and receives a stream.
pub(crate) async fn server_stream<Q, A>(
    channel: &Channel,
    path: &'static str,
    request: Request<Q>,
) -> Result<Streaming<A>, Status>
where
    Q: Message + 'static,
    A: Message + Default + 'static,
{
    let mut grpc = ready(channel).await?;
    let codec: ProstCodec<Q, A> = ProstCodec::default();
    let response = grpc.server_streaming(request, PathAndQuery::from_static(path), codec);
    Ok(Box::pin(response).await?.into_inner())
}

/// Sends a stream and receives one message.
pub(crate) async fn client_stream<S, Q, A>(
    channel: &Channel,
    path: &'static str,
    request: Request<S>,
) -> Result<A, Status>
where
    S: futures_util::Stream<Item = Q> + Send + 'static,
    Q: Message + 'static,
    A: Message + Default + 'static,
{
    let mut grpc = ready(channel).await?;
    let codec: ProstCodec<Q, A> = ProstCodec::default();
    let response = grpc.client_streaming(request, PathAndQuery::from_static(path), codec);
    Ok(Box::pin(response).await?.into_inner())
}
