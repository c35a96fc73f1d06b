//! Requests of this process to its own endpoint: the same requests, signatures and responses, without a connection.
//!
//! A connection on loopback copies every byte into the kernel and out of it, and parses each request and response again
//! (docs/decisions/store-embedded-endpoint.md). Clients outside and presigned URLs use the listener.

use std::fmt;
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Weak};

use aws_sdk_s3::config::SharedHttpClient;
use aws_sdk_s3::config::http::{HttpRequest, HttpResponse};
use aws_smithy_runtime_api::client::http::{
    HttpConnector, HttpConnectorFuture, SharedHttpConnector, http_client_fn,
};
use aws_smithy_runtime_api::client::result::ConnectorError;
use aws_smithy_types::body::SdkBody;
use futures_util::FutureExt as _;
use http::header::{CONTENT_LENGTH, HOST, HeaderValue};
use http::uri::{Authority, PathAndQuery};
use http::{Method, Request, Uri};
use s3s::service::S3Service;
use tokio_util::task::TaskTracker;

type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// The endpoint as its own process reaches it. It does not keep the endpoint alive. After the end of the endpoint,
/// requests fail as they do at a closed port.
#[derive(Clone)]
pub(crate) struct InProcessTransport {
    service: Weak<S3Service>,
    /// Running requests, for which a stop waits.
    tasks: TaskTracker,
}

impl InProcessTransport {
    pub(super) fn new(service: &Arc<S3Service>, tasks: TaskTracker) -> Self {
        Self {
            service: Arc::downgrade(service),
            tasks,
        }
    }

    /// A client of the SDK that sends all its requests here.
    pub(crate) fn into_client(self) -> SharedHttpClient {
        let connector = SharedHttpConnector::new(self);
        http_client_fn(move |_settings, _components| connector.clone())
    }
}

impl fmt::Debug for InProcessTransport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("InProcessTransport").finish_non_exhaustive()
    }
}

impl HttpConnector for InProcessTransport {
    fn call(&self, request: HttpRequest) -> HttpConnectorFuture {
        let Some(service) = self.service.upgrade() else {
            let closed = std::io::Error::from(std::io::ErrorKind::ConnectionRefused);
            return HttpConnectorFuture::ready(Err(ConnectorError::io(closed.into())));
        };
        // The request counts from here, so that a stop that begins before the first poll waits as well.
        let counted = self.tasks.token();
        HttpConnectorFuture::new(async move {
            let _counted = counted;
            // A panic of a request ends that request alone, as it ends one connection of the listener.
            let served = AssertUnwindSafe(serve(&service, request)).catch_unwind();
            served
                .await
                .unwrap_or_else(|_| Err("the endpoint panicked".into()))
                .map_err(|error| ConnectorError::other(error, None))
        })
    }
}

async fn serve(service: &S3Service, request: HttpRequest) -> Result<HttpResponse, BoxError> {
    let mut request = request.try_into_http1x()?;
    complete_head(&mut request)?;
    // The response to HEAD describes a body that is not sent (RFC 9110, section 9.3.2).
    let has_body = request.method() != Method::HEAD;
    let response = service.call(request.map(s3s::Body::http_body)).await?;
    let response = response.map(|body| {
        if has_body {
            SdkBody::from_body_1_x(body)
        } else {
            SdkBody::empty()
        }
    });
    Ok(HttpResponse::try_from(response)?)
}

/// Adds what an HTTP client adds to the head of a request: host, length and the origin form of the URI (RFC 9112,
/// section 3.2).
fn complete_head(request: &mut Request<SdkBody>) -> Result<(), BoxError> {
    let authority = request.uri().authority().map(Authority::as_str);
    let host = authority.map(HeaderValue::from_str).transpose()?;
    let path = request.uri().path_and_query().cloned();
    *request.uri_mut() = Uri::from(path.unwrap_or_else(|| PathAndQuery::from_static("/")));
    let length = request.body().content_length();
    let takes_body = matches!(*request.method(), Method::PUT | Method::POST);
    let headers = request.headers_mut();
    // The signature covers the host.
    if let Some(host) = host
        && !headers.contains_key(HOST)
    {
        headers.insert(HOST, host);
    }
    if let Some(length) = length.filter(|_| takes_body)
        && !headers.contains_key(CONTENT_LENGTH)
    {
        headers.insert(CONTENT_LENGTH, HeaderValue::from(length));
    }
    Ok(())
}
