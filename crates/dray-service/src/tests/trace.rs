//! Tests that the trace context is passed from callers to handlers, and to the services that they call.

use dray_proto::v1;
use dray_types::TraceContext;
use opentelemetry::trace::{SpanId, TracerProvider as _};
use opentelemetry_sdk::trace::{InMemorySpanExporter, SdkTracerProvider, SpanData};
use tracing_subscriber::layer::SubscriberExt as _;

use super::service::{TestHost, call, meta};

const PARENT_TRACE: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

#[tokio::test]
async fn a_trace_reaches_the_handler_and_what_it_calls() {
    let fixture = TestHost::new(&[]).await;
    let meta = meta("acme").with_trace(TraceContext::new(PARENT_TRACE, ""));
    for url in ["trace:", "forward:trace:"] {
        let traceparent = call(&fixture.bus(), &meta, url).await.unwrap();
        assert_eq!(
            TraceContext::new(&traceparent, "").trace_id(),
            Some("4bf92f3577b34da6a3ce929d0e0e4736"),
            "{url}"
        );
    }
}

#[tokio::test]
async fn without_a_trace_the_handler_gets_a_new_one() {
    let fixture = TestHost::new(&[]).await;
    let traceparent = fixture.call("trace:").await.unwrap();
    assert!(
        !TraceContext::new(&traceparent, "").is_empty(),
        "{traceparent}"
    );
}

/// Records the spans of this thread until it is dropped.
struct SpanRecorder {
    exporter: InMemorySpanExporter,
    provider: SdkTracerProvider,
    _guard: tracing::subscriber::DefaultGuard,
}

impl SpanRecorder {
    fn start() -> Self {
        let exporter = InMemorySpanExporter::default();
        let provider = SdkTracerProvider::builder()
            .with_simple_exporter(exporter.clone())
            .build();
        let layer = crate::telemetry::span_layer(provider.tracer("test"));
        let subscriber = tracing_subscriber::registry().with(layer);
        Self {
            exporter,
            provider,
            _guard: tracing::subscriber::set_default(subscriber),
        }
    }

    /// The spans of this name so far.
    fn spans(&self, name: &str) -> Vec<SpanData> {
        self.provider.force_flush().unwrap();
        let mut spans = self.exporter.get_finished_spans().unwrap();
        spans.retain(|span| span.name == name);
        spans
    }

    async fn span(&self, name: &str) -> SpanData {
        dray_testkit::eventually(name, async || self.spans(name).into_iter().next()).await
    }
}

#[tokio::test]
async fn work_its_sends_and_the_event_about_it_are_one_trace() {
    let recorder = SpanRecorder::start();
    let fixture = TestHost::new(&[]).await;
    let meta = meta("acme").with_trace(TraceContext::new(PARENT_TRACE, ""));
    let work = v1::ToolCallRequested::default();
    fixture.bus().publish_work(&meta, &work).await.unwrap();
    let event = recorder.span("send dray.event.toolcall.v1.resolved").await;
    let sent = recorder.span("send dray.work.toolcall.v1.resolve").await;
    let handled = recorder.span("process dray.work.toolcall.v1.resolve").await;
    assert_eq!(sent.parent_span_id.to_string(), "00f067aa0ba902b7");
    assert_eq!(handled.parent_span_id, sent.span_context.span_id());
    for span in [&sent, &handled, &event] {
        let trace_id = span.span_context.trace_id().to_string();
        assert_eq!(trace_id, "4bf92f3577b34da6a3ce929d0e0e4736", "{span:?}");
        assert_ne!(span.parent_span_id, SpanId::INVALID, "{span:?}");
    }
}

#[tokio::test]
async fn the_span_of_an_answered_call_is_a_child_of_the_callers_client_span() {
    let recorder = SpanRecorder::start();
    let fixture = TestHost::new(&[]).await;
    let meta = meta("acme").with_trace(TraceContext::new(PARENT_TRACE, ""));
    call(&fixture.bus(), &meta, "echo:x").await.unwrap();
    let client_span = recorder.span("request dray.egress.v1.fetch").await;
    let answered = recorder.span("process dray.egress.v1.fetch").await;
    assert_eq!(client_span.parent_span_id.to_string(), "00f067aa0ba902b7");
    assert_eq!(answered.parent_span_id, client_span.span_context.span_id());
}
