//! Ties spans to the trace of a message, and messages to the span that sends them (messaging-reliability 17).
//!
//! Without a layer that records traces this module has no effect. `dray-service` decides which spans are recorded and
//! where they are sent.

use dray_types::TraceContext;
use opentelemetry::Context;
use opentelemetry::trace::{
    SpanContext, SpanId, TraceContextExt as _, TraceFlags, TraceId, TraceState,
};
use tracing::Span;
use tracing_opentelemetry::OpenTelemetrySpanExt as _;

use crate::headers::{self, MessageHeaders};

/// The span that a trace context names; `None` outside a trace.
pub fn span_context(trace: &TraceContext) -> Option<SpanContext> {
    // The first part is the version; `TraceContext` accepts only the form of version 00.
    let mut parts = trace.traceparent.split('-').skip(1);
    let trace_id = TraceId::from_hex(parts.next()?).ok()?;
    let span_id = SpanId::from_hex(parts.next()?).ok()?;
    let flags = u8::from_str_radix(parts.next()?, 16).ok()?;
    let state = trace.tracestate.parse::<TraceState>().unwrap_or_default();
    Some(SpanContext::new(
        trace_id,
        span_id,
        // Bits that version 00 does not define are not passed on (W3C Trace Context 3.2.2.5).
        TraceFlags::new(flags) & TraceFlags::SAMPLED,
        true,
        state,
    ))
}

/// The trace context of messages that this span sends; `None` for a span that is not recorded.
pub fn context_of(span: &Span) -> Option<TraceContext> {
    let context = span.context();
    let own = context.span().span_context().clone();
    own.is_valid().then(|| {
        TraceContext::new(
            &format!(
                "00-{}-{}-{:02x}",
                own.trace_id(),
                own.span_id(),
                own.trace_flags().to_u8()
            ),
            &own.trace_state().header(),
        )
    })
}

/// Makes a span a child of the span that sent a message.
pub fn set_parent(span: &Span, trace: &TraceContext) {
    if let Some(parent) = span_context(trace) {
        // Fails only when no layer records traces; then no trace has to be continued.
        let _ = span.set_parent(Context::new().with_remote_span_context(parent));
    }
}

/// Makes the span that sends a message part of the message's trace, and names that span in the message's headers. A
/// span below a recorded span of the same trace stays where it is.
pub(crate) fn join_trace(span: &Span, headers: &mut MessageHeaders) {
    let trace = TraceContext::new(
        headers.get(headers::TRACEPARENT_HEADER).unwrap_or_default(),
        headers.get(headers::TRACESTATE_HEADER).unwrap_or_default(),
    );
    let current = context_of(&Span::current());
    // If the current span is in the trace of the headers, as in a handler that started a separate trace, the new span
    // stays its child.
    let is_below = current.is_some_and(|current| current.trace_id() == trace.trace_id());
    if !is_below {
        set_parent(span, &trace);
    }
    if let Some(own) = context_of(span) {
        headers.set(headers::TRACEPARENT_HEADER, own.traceparent);
        if own.tracestate.is_empty() {
            // A tracestate belongs to one traceparent; the one of the replaced traceparent must be removed.
            headers.remove(headers::TRACESTATE_HEADER);
        } else {
            headers.set(headers::TRACESTATE_HEADER, own.tracestate);
        }
    }
}

#[cfg(test)]
mod tests {
    use opentelemetry::trace::TracerProvider as _;
    use opentelemetry_sdk::trace::{InMemorySpanExporter, SdkTracerProvider, SpanData};
    use tracing_subscriber::layer::SubscriberExt as _;

    use super::*;

    const PARENT_TRACE: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
    const TRACE_ID: &str = "4bf92f3577b34da6a3ce929d0e0e4736";

    /// Runs `work` under a subscriber that records spans, and returns those in the order of their ends.
    fn record_spans(work: impl FnOnce()) -> Vec<SpanData> {
        let exporter = InMemorySpanExporter::default();
        let provider = SdkTracerProvider::builder()
            .with_simple_exporter(exporter.clone())
            .build();
        let layer = tracing_opentelemetry::layer().with_tracer(provider.tracer("test"));
        tracing::subscriber::with_default(tracing_subscriber::registry().with(layer), work);
        provider.force_flush().unwrap();
        exporter.get_finished_spans().unwrap()
    }

    fn message() -> MessageHeaders {
        [(headers::TRACEPARENT_HEADER, PARENT_TRACE)]
            .into_iter()
            .collect()
    }

    #[test]
    fn a_trace_context_becomes_a_remote_parent() {
        let parent = span_context(&TraceContext::new(PARENT_TRACE, "a=b")).unwrap();
        assert!(parent.is_remote() && parent.is_sampled() && parent.is_valid());
        assert_eq!(parent.span_id().to_string(), "00f067aa0ba902b7");
        assert_eq!(parent.trace_state().header(), "a=b");
        assert!(span_context(&TraceContext::default()).is_none());
    }

    #[test]
    fn a_send_outside_any_span_joins_the_trace_of_its_message_and_the_message_names_the_send() {
        let mut sent = message();
        let spans = record_spans(|| join_trace(&tracing::info_span!("send"), &mut sent));
        assert_eq!(spans[0].parent_span_id.to_string(), "00f067aa0ba902b7");
        let own = &spans[0].span_context;
        assert_eq!(own.trace_id().to_string(), TRACE_ID);
        let expected = format!("00-{TRACE_ID}-{}-01", own.span_id());
        assert_eq!(
            sent.get(headers::TRACEPARENT_HEADER),
            Some(expected.as_str())
        );
    }

    #[test]
    fn a_send_below_a_span_of_its_trace_stays_below_it() {
        let spans = record_spans(|| {
            let handler = tracing::info_span!("work");
            set_parent(&handler, &TraceContext::new(PARENT_TRACE, ""));
            handler.in_scope(|| join_trace(&tracing::info_span!("send"), &mut message()));
        });
        assert_eq!(
            (spans[0].name.as_ref(), spans[1].name.as_ref()),
            ("send", "work")
        );
        assert_eq!(spans[0].parent_span_id, spans[1].span_context.span_id());
    }

    #[test]
    fn without_a_recorder_the_headers_stay_as_they_are() {
        let mut sent = message();
        join_trace(&tracing::info_span!("send"), &mut sent);
        assert_eq!(sent.get(headers::TRACEPARENT_HEADER), Some(PARENT_TRACE));
    }
}
