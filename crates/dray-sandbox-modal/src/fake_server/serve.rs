//! Serves gRPC calls without generated code.

use std::future::Future;

use futures_util::Stream;
use prost::Message;
use tonic::body::Body;
use tonic::server::Grpc;
use tonic::{Request, Response, Status, Streaming};
use tonic_prost::ProstCodec;

/// A call as it arrives over HTTP/2.
pub(super) type GrpcCall = http::Request<Body>;
/// The response to a call.
pub(super) type GrpcResponse = http::Response<Body>;

/// Name of the method without the service.
pub(super) fn method(call: &GrpcCall) -> String {
    let path = call.uri().path();
    path.rsplit('/').next().unwrap_or_default().to_owned()
}

/// Receives one message and sends one.
pub(super) async fn unary<Q, A, F, R>(call: GrpcCall, mut handle: F) -> GrpcResponse
where
    Q: Message + Default + 'static,
    A: Message + 'static,
    F: FnMut(Request<Q>) -> R,
    R: Future<Output = Result<A, Status>>,
{
    let service = tower::service_fn(|request| {
        let response = handle(request);
        async move { response.await.map(Response::new) }
    });
    let codec: ProstCodec<A, Q> = ProstCodec::default();
    Grpc::new(codec).unary(service, call).await
}

/// Receives one message and sends a stream.
pub(super) async fn server_stream<Q, A, F, S>(call: GrpcCall, mut handle: F) -> GrpcResponse
where
    Q: Message + Default + 'static,
    A: Message + 'static,
    F: FnMut(Request<Q>) -> Result<S, Status>,
    S: Stream<Item = Result<A, Status>> + Send + 'static,
{
    let service =
        tower::service_fn(|request| std::future::ready(handle(request).map(Response::new)));
    let codec: ProstCodec<A, Q> = ProstCodec::default();
    Grpc::new(codec).server_streaming(service, call).await
}

/// Receives a stream and sends one message.
pub(super) async fn client_stream<Q, A, F, R>(call: GrpcCall, mut handle: F) -> GrpcResponse
where
    Q: Message + Default + 'static,
    A: Message + 'static,
    F: FnMut(Request<Streaming<Q>>) -> R,
    R: Future<Output = Result<A, Status>>,
{
    let service = tower::service_fn(|request| {
        let response = handle(request);
        async move { response.await.map(Response::new) }
    });
    let codec: ProstCodec<A, Q> = ProstCodec::default();
    Grpc::new(codec).client_streaming(service, call).await
}

/// The response to a method that does not exist.
pub(super) fn unknown() -> GrpcResponse {
    Status::unimplemented("no such method").into_http()
}
