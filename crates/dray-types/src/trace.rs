//! W3C trace context as it travels in headers.

/// `traceparent` and `tracestate` (W3C Trace Context, level 1), checked for shape.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TraceContext {
    /// `00-<32 hex>-<16 hex>-<2 hex>`; empty without a trace.
    pub traceparent: String,
    /// Vendor state, passed on unchanged; empty without one.
    pub tracestate: String,
}

impl TraceContext {
    /// Takes both headers. An invalid `traceparent` is never an error: the result is then empty, and a new trace
    /// starts.
    pub fn new(traceparent: &str, tracestate: &str) -> Self {
        if !is_traceparent(traceparent) {
            return Self::default();
        }
        // W3C Trace Context: at least 512 characters should be passed on; longer state may be dropped.
        let state_is_clean =
            tracestate.len() <= 512 && tracestate.bytes().all(|byte| (0x20..0x7f).contains(&byte));
        Self {
            traceparent: traceparent.to_owned(),
            tracestate: if state_is_clean {
                tracestate.to_owned()
            } else {
                String::new()
            },
        }
    }

    /// A new trace of which no span is recorded, so that messages and log lines of one operation can be found together.
    pub fn unrecorded() -> Self {
        let trace = uuid::Uuid::new_v4().simple();
        let parent = uuid::Uuid::new_v4().simple().to_string();
        // A span id has 16 hexadecimal digits, half of a trace id (W3C Trace Context, section 3.2.2).
        let parent = parent.get(..16).unwrap_or_default();
        // Flags 00: not sampled.
        Self::new(&format!("00-{trace}-{parent}-00"), "")
    }

    /// The 32 hexadecimal digits of the trace id; `None` without a trace.
    pub fn trace_id(&self) -> Option<&str> {
        // The digits after `00-`; `None` for an empty text.
        self.traceparent.get(3..35)
    }

    /// Whether a new trace starts, because the header was absent or invalid.
    pub fn is_empty(&self) -> bool {
        self.traceparent.is_empty()
    }
}

fn is_traceparent(text: &str) -> bool {
    let lower_hex = |part: &str, length: usize| {
        part.len() == length
            && part
                .bytes()
                .all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
    };
    // The standard forbids ids that have only zeros.
    let not_zero = |part: &str| part.bytes().any(|byte| byte != b'0');
    let mut parts = text.split('-');
    let (Some(version), Some(trace), Some(parent), Some(flags), None) = (
        parts.next(),
        parts.next(),
        parts.next(),
        parts.next(),
        parts.next(),
    ) else {
        return false;
    };
    // Only version 00 is supported; `ff` is forbidden.
    version == "00"
        && lower_hex(trace, 32)
        && not_zero(trace)
        && lower_hex(parent, 16)
        && not_zero(parent)
        && lower_hex(flags, 2)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unrecorded_trace_is_valid_new_and_not_sampled() {
        let trace = TraceContext::unrecorded();
        assert_eq!(TraceContext::new(&trace.traceparent, ""), trace);
        assert!(trace.traceparent.ends_with("-00"), "{trace:?}");
        assert_ne!(trace.trace_id(), TraceContext::unrecorded().trace_id());
    }

    #[test]
    fn malformed_headers_start_a_new_trace() {
        let valid = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
        assert_eq!(
            TraceContext::new(valid, "a=b").trace_id(),
            Some("4bf92f3577b34da6a3ce929d0e0e4736")
        );
        for wrong in [
            "",
            "00-x",
            "ff-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
            &valid.to_uppercase(),
            "00-00000000000000000000000000000000-00f067aa0ba902b7-01",
        ] {
            assert!(TraceContext::new(wrong, "a=b").is_empty(), "{wrong}");
        }
        assert_eq!(TraceContext::new(valid, "a=b\r\nx: y").tracestate, "");
    }
}
