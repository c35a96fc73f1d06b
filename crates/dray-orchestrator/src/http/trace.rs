//! The trace of a request: the trace of its client, which the span of the request continues.

use axum::extract::Request;
use axum::http::{HeaderMap, Method};
use axum::middleware::Next;
use axum::response::Response;
use dray_types::TraceContext;
use tracing::Instrument as _;
use tracing_opentelemetry::OpenTelemetrySpanExt as _;

/// Puts a request that begins a turn into a span. The turn keeps the span open after its response has begun.
pub(super) async fn trace_request(request: Request, next: Next) -> Response {
    let Some(route) = turn_route(request.method(), request.uri().path()) else {
        return next.run(request).await;
    };
    let name = format!("POST {route}");
    let span = tracing::info_span!("http", otel.name = name, otel.kind = "server");
    dray_bus::trace::set_parent(&span, &trace_of(request.headers()));
    span.set_attribute("http.request.method", "POST");
    span.set_attribute("http.route", route);
    let response = next.run(request).instrument(span.clone()).await;
    let status = i64::from(response.status().as_u16());
    span.set_attribute("http.response.status_code", status);
    response
}

/// The route of a request that begins a turn; names of deployments are left out.
fn turn_route(method: &Method, path: &str) -> Option<&'static str> {
    if *method != Method::POST {
        return None;
    }
    let segments: Vec<_> = path.trim_matches('/').split('/').collect();
    match segments.as_slice() {
        ["v1", "chat", "completions"] => Some("/v1/chat/completions"),
        ["v1", "responses"] => Some("/v1/responses"),
        ["openai", "deployments", _, "chat", "completions"] => {
            Some("/openai/deployments/{deployment}/chat/completions")
        }
        _ => None,
    }
}

/// The trace that the headers name; an empty one if they name none or are malformed.
pub(super) fn trace_of(headers: &HeaderMap) -> TraceContext {
    let text = |name: &str| {
        let value = headers.get(name).and_then(|value| value.to_str().ok());
        value.unwrap_or_default()
    };
    TraceContext::new(text("traceparent"), text("tracestate"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_requests_that_begin_turns_have_spans_without_deployment_names() {
        let route = |path| turn_route(&Method::POST, path);
        assert_eq!(route("/v1/responses"), Some("/v1/responses"));
        let deployment = route("/openai/deployments/secret/chat/completions");
        assert_eq!(
            deployment,
            Some("/openai/deployments/{deployment}/chat/completions")
        );
        assert_eq!(route("/v1/responses/resp_1/cancel"), None);
        assert_eq!(turn_route(&Method::GET, "/v1/responses"), None);
    }
}
