/** W3C trace context of the current span, where `@opentelemetry/api` is installed. */

import type { CallOptions } from "./options.js";

/** Bit of the trace flags that says the span is recorded (W3C Trace Context, section 3.2.2.5.1). */
const SAMPLED_FLAG = 1;

type TraceApi = typeof import("@opentelemetry/api");

// The package is loaded once: a process without the package must not look for it with every request.
let loading: Promise<TraceApi | undefined> | undefined;

function loadTraceApi(): Promise<TraceApi | undefined> {
  loading ??= import("@opentelemetry/api").catch(() => undefined);
  return loading;
}

/** `traceparent` and `tracestate` to send. */
export async function traceContext(options: CallOptions): Promise<Record<string, string>> {
  if (options.traceparent !== undefined) {
    const { traceparent, tracestate } = options;
    return tracestate === undefined ? { traceparent } : { traceparent, tracestate };
  }
  const api = await loadTraceApi();
  const span = api?.trace.getSpanContext(api.context.active());
  if (api === undefined || span === undefined || !api.isSpanContextValid(span)) return {};
  const flags = (span.traceFlags & SAMPLED_FLAG).toString(16).padStart(2, "0");
  const state = span.traceState?.serialize();
  return {
    traceparent: `00-${span.traceId}-${span.spanId}-${flags}`,
    ...(state ? { tracestate: state } : {}),
  };
}
