//! Spans of handlers, tied to the trace that a message came in (messaging-reliability 17).

use dray_bus::{Delivery, Meta};
use dray_types::TraceContext;
use opentelemetry::trace::{
    SpanContext, SpanId, TraceContextExt as _, TraceFlags, TraceId, TraceState,
};
use tracing::Span;
use tracing_opentelemetry::OpenTelemetrySpanExt as _;

/// The span of one call: a child of the caller's span.
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
        dray.code = tracing::field::Empty,
    );
    if let Some(parent) = remote(&meta.trace) {
        // Fails only when no layer records traces; then there is nothing to tie together.
        let _ = span.set_parent(opentelemetry::Context::new().with_remote_span_context(parent));
    }
    span
}

/// The span of one attempt at work: a child of the publisher's span on the first delivery, a new trace linked to
/// it on every further one.
pub(crate) fn for_work<W>(
    service: &'static str,
    subject: &str,
    delivery: &Delivery<W>,
    again: bool,
) -> Span {
    let span = tracing::info_span!(
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
        dray.attempt = delivery.attempt,
        dray.code = tracing::field::Empty,
    );
    match remote(&delivery.meta.trace) {
        Some(origin) if again => span.add_link(origin),
        Some(parent) => {
            let _ = span.set_parent(opentelemetry::Context::new().with_remote_span_context(parent));
        }
        None => {}
    }
    span
}

/// What a handler passes on: the context of its own span; without a recorded span the context that came in; and
/// without one a new trace id, so that log lines of one operation can still be found together.
pub(crate) fn context_of(span: &Span, came_in: &TraceContext) -> TraceContext {
    let context = span.context();
    let own = context.span().span_context().clone();
    if own.is_valid() {
        return TraceContext::new(
            &format!(
                "00-{}-{}-{:02x}",
                own.trace_id(),
                own.span_id(),
                own.trace_flags().to_u8()
            ),
            &own.trace_state().header(),
        );
    }
    if came_in.is_empty() {
        let trace = uuid::Uuid::new_v4().simple().to_string();
        let parent = uuid::Uuid::new_v4().simple().to_string();
        let parent = parent.get(..16).unwrap_or_default();
        return TraceContext::new(&format!("00-{trace}-{parent}-00"), "");
    }
    came_in.clone()
}

/// The span that a message came from; `None` outside a trace.
fn remote(trace: &TraceContext) -> Option<SpanContext> {
    let mut parts = trace.traceparent.split('-').skip(1);
    let trace_id = TraceId::from_hex(parts.next()?).ok()?;
    let span_id = SpanId::from_hex(parts.next()?).ok()?;
    let flags = u8::from_str_radix(parts.next()?, 16).ok()?;
    let state = trace.tracestate.parse::<TraceState>().unwrap_or_default();
    Some(SpanContext::new(
        trace_id,
        span_id,
        TraceFlags::new(flags) & TraceFlags::SAMPLED,
        true,
        state,
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    const PARENT: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

    #[test]
    fn without_a_recorder_the_trace_passes_through() {
        let came_in = TraceContext::new(PARENT, "a=b");
        assert_eq!(context_of(&Span::none(), &came_in), came_in);
    }

    #[test]
    fn without_a_trace_a_new_id_is_made() {
        let made = context_of(&Span::none(), &TraceContext::default());
        assert_eq!(made.trace_id().map(str::len), Some(32));
        assert_ne!(made, context_of(&Span::none(), &TraceContext::default()));
    }

    #[test]
    fn a_trace_context_becomes_a_remote_parent() {
        let parent = remote(&TraceContext::new(PARENT, "a=b")).unwrap();
        assert!(parent.is_remote() && parent.is_sampled() && parent.is_valid());
        assert_eq!(parent.span_id().to_string(), "00f067aa0ba902b7");
        assert_eq!(parent.trace_state().header(), "a=b");
        assert!(remote(&TraceContext::default()).is_none());
    }

    /// Runs `work` under a subscriber that records spans, and returns those.
    fn recorded(work: impl FnOnce()) -> Vec<opentelemetry_sdk::trace::SpanData> {
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

    fn delivery(delivered: u64) -> Delivery<()> {
        Delivery {
            meta: meta(),
            work: (),
            epoch: 1,
            attempt: 1,
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
        .with_trace(TraceContext::new(PARENT, ""))
    }

    #[test]
    fn a_call_is_a_child_of_its_caller_and_passes_itself_on() {
        let mut passed_on = TraceContext::default();
        let spans = recorded(|| {
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
        let spans = recorded(|| {
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
        let [first, again] = spans.as_slice() else {
            panic!("expected two spans, got {spans:?}");
        };
        assert_eq!(first.parent_span_id.to_string(), "00f067aa0ba902b7");
        assert!(first.links.is_empty());
        assert_eq!(again.parent_span_id, SpanId::INVALID);
        assert_ne!(again.span_context.trace_id(), first.span_context.trace_id());
        let linked = again
            .links
            .iter()
            .map(|link| link.span_context.trace_id().to_string());
        assert_eq!(
            linked.collect::<Vec<_>>(),
            ["4bf92f3577b34da6a3ce929d0e0e4736"]
        );
    }
}
