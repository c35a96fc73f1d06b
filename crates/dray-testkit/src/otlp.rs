//! A collector of OpenTelemetry that stores received spans (OTLP over gRPC). Exports of metrics are accepted and
//! dropped.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::io;
use std::net::Ipv4Addr;
use std::sync::{Arc, Mutex, PoisonError};

use bytes::{Buf as _, Bytes};
use dray_types::hex::hex_digits;
use http::{HeaderMap, HeaderValue, Request, Response};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::server::conn::http2;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use prost::Message as _;

use crate::listen::ConnectionServer;

/// Path of exports of spans.
const TRACE_EXPORT_PATH: &str = "/opentelemetry.proto.collector.trace.v1.TraceService/Export";
/// Bytes before a message of gRPC: a flag and the length.
const FRAME_HEAD_BYTES: usize = 5;

/// A span that a service exported to the collector.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReceivedSpan {
    /// Name of the service that sent it.
    pub service: String,
    /// Name of the operation.
    pub name: String,
    /// The span's trace in hexadecimal digits.
    pub trace_id: String,
    /// The span's id in hexadecimal digits.
    pub span_id: String,
    /// The span above; empty for a root.
    pub parent_id: String,
    /// The span's attributes as text; the values of a list are joined by commas.
    pub attributes: BTreeMap<String, String>,
}

/// The collector. Ends when it is dropped.
#[derive(Debug)]
pub struct SpanCollector {
    server: ConnectionServer,
    spans: Arc<Mutex<Vec<ReceivedSpan>>>,
}

impl SpanCollector {
    /// Listens on a free loopback port.
    ///
    /// # Errors
    ///
    /// When no port can be bound.
    pub async fn start() -> io::Result<Self> {
        let spans: Arc<Mutex<Vec<ReceivedSpan>>> = Arc::default();
        let shared = Arc::clone(&spans);
        let serve = move |stream| {
            let spans = Arc::clone(&shared);
            let service = service_fn(move |request| answer_export(Arc::clone(&spans), request));
            http2::Builder::new(TokioExecutor::new())
                .serve_connection(TokioIo::new(stream), service)
        };
        let server = ConnectionServer::start((Ipv4Addr::LOCALHOST, 0).into(), serve).await?;
        Ok(Self { server, spans })
    }

    /// The endpoint for exporters.
    pub fn url(&self) -> String {
        format!("http://{}", self.server.address())
    }

    /// All received spans of a trace so far.
    pub fn trace(&self, trace_id: &str) -> Vec<ReceivedSpan> {
        let spans = self.spans.lock().unwrap_or_else(PoisonError::into_inner);
        let trace_spans = spans.iter().filter(|span| span.trace_id == trace_id);
        trace_spans.cloned().collect()
    }
}

async fn answer_export(
    spans: Arc<Mutex<Vec<ReceivedSpan>>>,
    request: Request<Incoming>,
) -> Result<Response<impl hyper::body::Body<Data = Bytes, Error = Infallible>>, hyper::Error> {
    let is_trace = request.uri().path() == TRACE_EXPORT_PATH;
    let mut body = request.into_body().collect().await?.to_bytes();
    if is_trace && body.len() >= FRAME_HEAD_BYTES {
        body.advance(FRAME_HEAD_BYTES);
        if let Ok(export) = ExportRequest::decode(body) {
            let mut spans = spans.lock().unwrap_or_else(PoisonError::into_inner);
            spans.extend(export.resources.into_iter().flat_map(received_spans));
        }
    }
    let trailers = async {
        let status = ("grpc-status".parse(), HeaderValue::from_static("0"));
        let trailers = status
            .0
            .map(|name| HeaderMap::from_iter([(name, status.1)]));
        trailers.ok().map(Ok)
    };
    let empty_message = Bytes::from_static(&[0; FRAME_HEAD_BYTES]);
    let mut response = Response::new(Full::new(empty_message).with_trailers(trailers));
    let kind = HeaderValue::from_static("application/grpc");
    response
        .headers_mut()
        .insert(http::header::CONTENT_TYPE, kind);
    Ok(response)
}

fn received_spans(resource: ResourceSpans) -> Vec<ReceivedSpan> {
    let attributes = resource.resource.unwrap_or_default().attributes;
    let service = texts(attributes).remove("service.name").unwrap_or_default();
    let spans = resource.scopes.into_iter().flat_map(|scope| scope.spans);
    spans
        .map(|span| ReceivedSpan {
            service: service.clone(),
            name: span.name,
            trace_id: hex_digits(&span.trace_id),
            span_id: hex_digits(&span.span_id),
            parent_id: hex_digits(&span.parent_span_id),
            attributes: texts(span.attributes),
        })
        .collect()
}

fn texts(attributes: Vec<Attribute>) -> BTreeMap<String, String> {
    attributes
        .into_iter()
        .map(|attribute| (attribute.key, text(attribute.value.unwrap_or_default())))
        .collect()
}

fn text(value: AnyValue) -> String {
    match value.value {
        None => String::new(),
        Some(any_value::Value::Text(text)) => text,
        Some(any_value::Value::Bool(value)) => value.to_string(),
        Some(any_value::Value::Int(value)) => value.to_string(),
        Some(any_value::Value::Double(value)) => value.to_string(),
        Some(any_value::Value::Array(array)) => {
            let all: Vec<_> = array.values.into_iter().map(text).collect();
            all.join(",")
        }
    }
}

// The fields of opentelemetry/proto/trace/v1/trace.proto that tests use.

#[derive(Clone, PartialEq, prost::Message)]
struct ExportRequest {
    #[prost(message, repeated, tag = "1")]
    resources: Vec<ResourceSpans>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct ResourceSpans {
    #[prost(message, optional, tag = "1")]
    resource: Option<Resource>,
    #[prost(message, repeated, tag = "2")]
    scopes: Vec<ScopeSpans>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct Resource {
    #[prost(message, repeated, tag = "1")]
    attributes: Vec<Attribute>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct ScopeSpans {
    #[prost(message, repeated, tag = "2")]
    spans: Vec<WireSpan>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct WireSpan {
    #[prost(bytes = "vec", tag = "1")]
    trace_id: Vec<u8>,
    #[prost(bytes = "vec", tag = "2")]
    span_id: Vec<u8>,
    #[prost(bytes = "vec", tag = "4")]
    parent_span_id: Vec<u8>,
    #[prost(string, tag = "5")]
    name: String,
    #[prost(message, repeated, tag = "9")]
    attributes: Vec<Attribute>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct Attribute {
    #[prost(string, tag = "1")]
    key: String,
    #[prost(message, optional, tag = "2")]
    value: Option<AnyValue>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct AnyValue {
    #[prost(oneof = "any_value::Value", tags = "1, 2, 3, 4, 5")]
    value: Option<any_value::Value>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct ArrayValue {
    #[prost(message, repeated, tag = "1")]
    values: Vec<AnyValue>,
}

mod any_value {
    #[derive(Clone, PartialEq, prost::Oneof)]
    pub(super) enum Value {
        #[prost(string, tag = "1")]
        Text(String),
        #[prost(bool, tag = "2")]
        Bool(bool),
        #[prost(int64, tag = "3")]
        Int(i64),
        #[prost(double, tag = "4")]
        Double(f64),
        #[prost(message, tag = "5")]
        Array(super::ArrayValue),
    }
}
