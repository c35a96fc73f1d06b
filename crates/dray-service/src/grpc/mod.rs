//! Answers the calls of the bus over gRPC as well, with health and reflection (messaging-reliability C-11).
//!
//! No code is generated per service: every call that a service handles becomes a route at its gRPC path, and
//! bodies are passed undecoded to the same handler as on the bus.
//!
//! The envelope travels in metadata: `dray-tenant`, `dray-operation`, `dray-session`, `dray-app`, `traceparent`,
//! `tracestate`, and `grpc-timeout` for the deadline. With configured identities (`grpc.identities`), the tenant is the
//! tenant of the caller. A request without credentials, or without the scope for its method, is refused before its body
//! is read. The health service has no such check: probes have no credentials.

mod accept;
mod arrival;
mod auth;
mod codec;
mod connection;
mod envelope;
mod identity;
mod security;
mod status;
mod stream;
mod validity;

use std::collections::BTreeSet;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use dray_bus::Meta;
use dray_types::{Clock, Period, TenantId};
use http::HeaderMap;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tonic::server::Grpc;
use tonic::service::Interceptor;
use tonic::service::interceptor::InterceptedService;
use tonic_health::ServingStatus;
use tonic_health::server::{HealthReporter, HealthService};

pub(crate) use codec::RawCodec;
pub(crate) use security::{GrpcFileMetrics, GrpcSecurity};
pub use security::{SecurityFileError, check_grpc_files};
pub use status::{fault_of, status_of};
pub use validity::certificate_expiry_seconds;

use accept::HandshakeListener;
use arrival::answer_arrived;
use auth::AuthRefusal;
use connection::CertificateNames;
use identity::CallerIdentity;
use status::with_size_fault;

use crate::NoDelayListener;
use crate::router::{BoundCall, CallTransport, stopping_fault};

/// Most concurrent requests on one connection.
const MAX_CONCURRENT_STREAMS: u32 = 256;
/// Time after which a ping checks that a silent connection is still alive.
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(30);
/// Most bytes of all metadata of a request (RFC 9113, `SETTINGS_MAX_HEADER_LIST_SIZE`). A token has at most 4 KiB in
/// practice.
const MAX_METADATA_BYTES: u32 = 16 * 1024;

/// State of the endpoint that all its calls share.
#[derive(Clone, Debug)]
pub(crate) struct GrpcEndpoint {
    pub(crate) clock: Clock,
    pub(crate) default_timeout: Period,
    security: Arc<GrpcSecurity>,
    /// Owner of running requests, so that a stop can wait for them.
    handlers: TaskTracker,
    /// Ends the requests that still run.
    kill: CancellationToken,
    health: HealthReporter,
    services: Arc<BTreeSet<String>>,
}

impl GrpcEndpoint {
    pub(crate) fn new(
        clock: Clock,
        default_timeout: Period,
        security: Arc<GrpcSecurity>,
        handlers: TaskTracker,
        kill: CancellationToken,
        calls: &[Arc<BoundCall>],
    ) -> Self {
        let services = calls
            .iter()
            .filter_map(|call| service_of(call.grpc_path))
            .collect();
        Self {
            clock,
            default_timeout,
            security,
            handlers,
            kill,
            health: HealthReporter::new(),
            services: Arc::new(services),
        }
    }

    /// Reports to the health service whether calls are accepted.
    pub(crate) async fn set_serving(&self, serving: bool) {
        let status = if serving {
            ServingStatus::Serving
        } else {
            ServingStatus::NotServing
        };
        self.health.set_service_status("", status).await;
        // Clients may check the complete server (an empty name) or one service.
        for service in self.services.iter() {
            self.health.set_service_status(service, status).await;
        }
    }

    /// Serves `calls` until `stop` resolves and the running requests are finished.
    pub(crate) fn serve(
        &self,
        listener: TcpListener,
        calls: &[Arc<BoundCall>],
        stop: impl Future<Output = ()> + Send + 'static,
    ) -> Result<
        impl Future<Output = Result<(), tonic::transport::Error>> + Send + 'static,
        ReflectionError,
    > {
        let mut routes = axum::Router::new();
        for call in calls {
            routes = routes.route(call.grpc_path, axum::routing::post(self.handler(call)));
        }
        // Older clients support only the first version of reflection.
        let reflection = reflection_builder().build_v1().map_err(ReflectionError)?;
        let old_reflection = reflection_builder()
            .build_v1alpha()
            .map_err(ReflectionError)?;
        let health = tonic_health::pb::health_server::HealthServer::new(
            HealthService::from_health_reporter(self.health.clone()),
        );
        let known_callers = self.known_callers_only();
        let routes = tonic::service::Routes::from(routes)
            .add_service(health)
            .add_service(InterceptedService::new(reflection, known_callers.clone()))
            .add_service(InterceptedService::new(old_reflection, known_callers));
        let listener = NoDelayListener::new(listener);
        let incoming = HandshakeListener::new(listener, Arc::clone(&self.security));
        Ok(tonic::transport::Server::builder()
            .max_concurrent_streams(MAX_CONCURRENT_STREAMS)
            .http2_keepalive_interval(Some(KEEPALIVE_INTERVAL))
            .http2_max_header_list_size(MAX_METADATA_BYTES)
            // Without a grace period of tonic, which would cut running requests off.
            .max_connection_age(self.security.max_connection_age())
            .add_routes(routes)
            .serve_with_incoming_shutdown(incoming, stop))
    }

    /// Accepts requests of identified callers with any scope: the contracts are public, but the endpoint is not.
    fn known_callers_only(&self) -> impl Interceptor + Clone + Send + Sync + 'static {
        let endpoint = self.clone();
        move |request: tonic::Request<()>| {
            let names = certificate_names(request.extensions());
            let headers = request.metadata().clone().into_headers();
            match endpoint.identify(&headers, &names) {
                Ok(_) => Ok(request),
                Err(refusal) => Err(refusal.status()),
            }
        }
    }

    /// Finds the caller of a request; `None` without configured identities.
    fn identify(
        &self,
        headers: &HeaderMap,
        names: &CertificateNames,
    ) -> Result<Option<Arc<CallerIdentity>>, AuthRefusal> {
        match self.security.identities() {
            None => Ok(None),
            Some(table) => auth::identify(&table, headers, &names.0).map(Some),
        }
    }

    /// Decides whether the caller of a request may call the method at `path`. Returns the tenant of the credentials, or
    /// `None` without configured identities.
    fn admit_caller(
        &self,
        request: &axum::extract::Request,
        path: &str,
    ) -> Result<Option<TenantId>, AuthRefusal> {
        let names = certificate_names(request.extensions());
        let Some(identity) = self.identify(request.headers(), &names)? else {
            return Ok(None);
        };
        auth::authorize(&identity, request.headers(), path)?;
        Ok(Some(identity.tenant.clone()))
    }

    /// Returns the handler of one route, which decodes an HTTP/2 request and builds the response.
    fn handler(
        &self,
        call: &Arc<BoundCall>,
    ) -> impl Fn(axum::extract::Request) -> Pending + Clone + Send + Sync + 'static {
        let call = Arc::clone(call);
        let endpoint = self.clone();
        move |request| {
            // The handle is cloned for each request: the future outlives this call.
            let call = Arc::clone(&call);
            let endpoint = endpoint.clone();
            Box::pin(async move {
                // The caller is admitted before the body is read, so that an unknown caller cannot fill the memory.
                let tenant = match endpoint.admit_caller(&request, call.grpc_path) {
                    Ok(tenant) => tenant,
                    Err(refusal) => {
                        call.refused_request(refusal.reason());
                        tracing::debug!(path = call.grpc_path, reason = ?refusal, "gRPC request refused");
                        return refusal.status().into_http();
                    }
                };
                let limit = endpoint.security.message_timeout();
                let (arrived, bound) = (CancellationToken::new(), Arc::clone(&call));
                let message_arrived = arrived.clone();
                // The limit is that of the bus (E-3); tonic's own is 4 MiB.
                let mut grpc =
                    Grpc::new(RawCodec).max_decoding_message_size(dray_proto::MAX_MESSAGE_BYTES);
                if call.streams {
                    let streaming = tower::service_fn(move |request: tonic::Request<Bytes>| {
                        message_arrived.cancel();
                        let started =
                            stream::answer_stream(&call, &endpoint, tenant.clone(), request);
                        std::future::ready(started)
                    });
                    let answer = grpc.server_streaming(streaming, request);
                    return with_size_fault(answer_arrived(&bound, limit, &arrived, answer).await);
                }
                let unary = tower::service_fn(move |request: tonic::Request<Bytes>| {
                    message_arrived.cancel();
                    answer_call(Arc::clone(&call), endpoint.clone(), tenant.clone(), request)
                });
                let answer = grpc.unary(unary, request);
                with_size_fault(answer_arrived(&bound, limit, &arrived, answer).await)
            })
        }
    }
}

/// The descriptors that reflection shows: the contract and the health service.
fn reflection_builder() -> tonic_reflection::server::Builder<'static> {
    tonic_reflection::server::Builder::configure()
        .register_encoded_file_descriptor_set(dray_proto::FILE_DESCRIPTOR_SET)
        .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
}

type Pending = std::pin::Pin<Box<dyn Future<Output = http::Response<tonic::body::Body>> + Send>>;

async fn answer_call(
    call: Arc<BoundCall>,
    endpoint: GrpcEndpoint,
    known_tenant: Option<TenantId>,
    request: tonic::Request<Bytes>,
) -> Result<tonic::Response<Bytes>, tonic::Status> {
    let (meta, payload) = read_call(&call, &endpoint, known_tenant, request)?;
    // When the caller disconnects, this future and the handler are dropped.
    let admitted = call
        .admit(
            CallTransport::Grpc,
            meta,
            payload,
            CancellationToken::new(),
            None,
        )
        .map_err(|fault| status_of(&fault))?;
    let answered = async {
        tokio::select! {
            outcome = admitted => outcome,
            // The grace of a stop has run out; the caller still gets a response (C-4).
            () = endpoint.kill.cancelled() => Err(stopping_fault()),
        }
    };
    // The handler is tracked, so that a stop waits for it as for calls from the bus.
    match endpoint.handlers.track_future(answered).await {
        Ok(reply) => Ok(tonic::Response::new(reply)),
        Err(fault) => Err(status_of(&fault)),
    }
}

/// Splits a request into its envelope and its message. Counts an envelope that is not valid as a refused request.
fn read_call(
    call: &BoundCall,
    endpoint: &GrpcEndpoint,
    known_tenant: Option<TenantId>,
    request: tonic::Request<Bytes>,
) -> Result<(Meta, Bytes), tonic::Status> {
    let (metadata, _, payload) = request.into_parts();
    let now = endpoint.clock.now_ms();
    let meta = envelope::read_meta(&metadata, now, endpoint.default_timeout, known_tenant);
    let meta = meta.map_err(|fault| {
        call.refused_request("envelope");
        status_of(&fault)
    })?;
    Ok((meta, payload))
}

/// The names in the client certificate of a request's connection.
fn certificate_names(extensions: &http::Extensions) -> CertificateNames {
    extensions
        .get::<CertificateNames>()
        .cloned()
        .unwrap_or_default()
}

/// Finds `dray.v1.Egress` in `/dray.v1.Egress/Fetch`.
fn service_of(path: &str) -> Option<String> {
    let (service, _) = path.strip_prefix('/')?.split_once('/')?;
    Some(service.to_owned())
}

/// The descriptors that reflection shows could not be read.
#[derive(Debug, thiserror::Error)]
#[error("the embedded contract descriptors could not be read")]
pub struct ReflectionError(#[source] tonic_reflection::server::Error);
