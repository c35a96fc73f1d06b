//! Spans of handlers, connected to the trace of a message (messaging-reliability 17).

use dray_bus::{Meta, WorkDelivery, trace};
use dray_types::TraceContext;
use tracing::Span;
use tracing_opentelemetry::OpenTelemetrySpanExt as _;

/// Makes the span of one call: a child of the caller's span.
pub(crate) fn for_call(service: &'static str, subject: &str, meta: &Meta) -> Span {
    let span = tracing::info_span!(
        "call",
        otel.name = format!("process {subject}"),
        otel.kind = "server",
        service,
        messaging.system = "nats",
        messaging.destination.name = subject,
        messaging.operation.r#type = "request",
        messaging.consumer.group.name = service,
        dray.operation_id = %meta.operation,
        dray.tenant = meta.tenant.as_str(),
        // The field is declared here, since a span cannot get further fields later.
        dray.code = tracing::field::Empty,
        trace_id = tracing::field::Empty,
    );
    trace::set_parent(&span, &meta.trace);
    span
}

/// Makes the span of one attempt at work: a child of the publisher's span on the first delivery, a new trace linked
/// to it on every further one.
pub(crate) fn for_work<W>(
    service: &str,
    subject: &str,
    delivery: &WorkDelivery<W>,
    is_repeated: bool,
) -> Span {
    let span = tracing::info_span!(
        // The surrounding span is the bus's work loop, which is not recorded.
        parent: None,
        "work",
        otel.name = format!("process {subject}"),
        otel.kind = "consumer",
        service,
        messaging.system = "nats",
        messaging.destination.name = subject,
        messaging.operation.r#type = "process",
        messaging.consumer.group.name = service,
        messaging.message.delivery_count = delivery.delivered,
        dray.operation_id = %delivery.meta.operation,
        dray.tenant = delivery.meta.tenant.as_str(),
        dray.attempt = delivery.attempt,
        dray.code = tracing::field::Empty,
        trace_id = tracing::field::Empty,
    );
    match trace::span_context(&delivery.meta.trace) {
        Some(origin) if is_repeated => span.add_link(origin),
        Some(_) => trace::set_parent(&span, &delivery.meta.trace),
        None => {}
    }
    span
}

/// Puts the context of a handler's span into the envelope that the handler passes on, and the trace id into the lines
/// that are logged in that span.
pub(crate) fn propagate_context(span: &Span, meta: &mut Meta) {
    meta.trace = context_of(span, &meta.trace);
    if let Some(trace_id) = meta.trace.trace_id() {
        span.record("trace_id", trace_id);
    }
}

/// The context that a handler passes on. It is the context of its own span; without a recorded span, the received
/// context; without either, a new trace id, so that the log lines of one operation can still be correlated.
fn context_of(span: &Span, received: &TraceContext) -> TraceContext {
    if let Some(own) = trace::context_of(span) {
        return own;
    }
    if received.is_empty() {
        return TraceContext::unrecorded();
    }
    received.clone()
}

#[cfg(test)]
mod tests {
    use opentelemetry::trace::SpanId;

    use super::*;

    const PARENT_TRACE: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

    #[test]
    fn without_a_recorder_the_trace_passes_through() {
        let received = TraceContext::new(PARENT_TRACE, "a=b");
        assert_eq!(context_of(&Span::none(), &received), received);
    }

    #[test]
    fn without_a_trace_a_new_id_is_made() {
        let created = context_of(&Span::none(), &TraceContext::default());
        assert_eq!(created.trace_id().map(str::len), Some(32));
        assert_ne!(created, context_of(&Span::none(), &TraceContext::default()));
    }

    /// Runs `work` under a subscriber that records spans, and returns those.
    fn record_spans(work: impl FnOnce()) -> Vec<opentelemetry_sdk::trace::SpanData> {
        use opentelemetry::trace::TracerProvider as _;
        use tracing_subscriber::layer::SubscriberExt as _;
        let exporter = opentelemetry_sdk::trace::InMemorySpanExporter::default();
        let provider = opentelemetry_sdk::trace::SdkTracerProvider::builder()
            .with_simple_exporter(exporter.clone())
            .build();
        let layer = tracing_opentelemetry::layer().with_tracer(provider.tracer("test"));
        tracing::subscriber::with_default(tracing_subscriber::registry().with(layer), work);
        provider.force_flush().unwrap();
        exporter.get_finished_spans().unwrap()
    }

    fn delivery(delivered: u64) -> WorkDelivery<()> {
        WorkDelivery {
            meta: meta(),
            work: (),
            epoch: 1,
            attempt: 1,
            is_last_attempt: false,
            redrives: 0,
            delivered,
            cancel: tokio_util::sync::CancellationToken::new(),
        }
    }

    fn meta() -> Meta {
        Meta::new(
            dray_types::TenantId::default(),
            dray_types::Deadline::from_unix_ms(1),
        )
        .with_trace(TraceContext::new(PARENT_TRACE, ""))
    }

    #[test]
    fn a_call_is_a_child_of_its_caller_and_passes_itself_on() {
        let mut passed_on = TraceContext::default();
        let spans = record_spans(|| {
            let span = for_call("echo", "dray.test.v1.echo", &meta());
            passed_on = context_of(&span, &meta().trace);
        });
        let [span] = spans.as_slice() else {
            panic!("expected one span, got {spans:?}");
        };
        assert_eq!(span.name, "process dray.test.v1.echo");
        assert_eq!(span.parent_span_id.to_string(), "00f067aa0ba902b7");
        assert_eq!(
            span.span_context.trace_id().to_string(),
            "4bf92f3577b34da6a3ce929d0e0e4736"
        );
        let own = format!(
            "{}-{}-01",
            span.span_context.trace_id(),
            span.span_context.span_id()
        );
        assert_eq!(passed_on.traceparent, format!("00-{own}"));
    }

    #[test]
    fn a_first_delivery_is_a_child_and_a_redelivery_a_new_root_with_a_link() {
        let spans = record_spans(|| {
            drop(for_work(
                "echo",
                "dray.work.test.v1.echo",
                &delivery(1),
                false,
            ));
            drop(for_work(
                "echo",
                "dray.work.test.v1.echo",
                &delivery(2),
                true,
            ));
        });
        let [first, second] = spans.as_slice() else {
            panic!("expected two spans, got {spans:?}");
        };
        assert_eq!(first.parent_span_id.to_string(), "00f067aa0ba902b7");
        assert!(first.links.is_empty());
        assert_eq!(second.parent_span_id, SpanId::INVALID);
        assert_ne!(
            second.span_context.trace_id(),
            first.span_context.trace_id()
        );
        let linked = second
            .links
            .iter()
            .map(|link| link.span_context.trace_id().to_string());
        assert_eq!(
            linked.collect::<Vec<_>>(),
            ["4bf92f3577b34da6a3ce929d0e0e4736"]
        );
    }
}
