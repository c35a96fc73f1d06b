//! The caller of a chat request, with credentials for the calls that are made on its behalf (quickapps 2.1).

use dray_types::{Secret, TraceContext};

/// Returns the trace to which requests belong now; `None` outside a trace.
pub type TraceSource = fn() -> Option<TraceContext>;

/// The headers that name the current trace (W3C Trace Context); none outside a trace or without a source.
pub fn trace_headers(source: Option<TraceSource>) -> Vec<(&'static str, String)> {
    let trace = source.and_then(|current| current()).unwrap_or_default();
    let headers = [
        ("traceparent", trace.traceparent),
        ("tracestate", trace.tracestate),
    ];
    let named = headers.into_iter().filter(|(_, value)| !value.is_empty());
    named.collect()
}

/// Credentials and headers of a chat request. Lives as long as the request and is never stored.
#[derive(Clone, Debug, Default)]
pub struct Caller {
    /// The per-request key of DIAL, which is sent only to the exact DIAL origin.
    pub api_key: Option<Secret>,
    /// The complete value of `Authorization`, including the scheme. It is sent to the exact DIAL origin, and to tools
    /// with `forward_auth_token` in the manifest.
    pub authorization: Option<Secret>,
    /// All `X-*` headers but those that this service reads itself, names in lower case, in order of arrival. They are
    /// sent to the DIAL origin; third parties get only those that an explicit list names.
    pub forwarded: Vec<(String, String)>,
    /// `X-DIAL-CLIENT-CHANNEL-ID`: the client can show a sign-in.
    pub channel: Option<String>,
    /// Language of texts for the user, as received in `Accept-Language`.
    pub language: Option<String>,
}

impl Caller {
    /// The value of a forwarded header, without spaces around it; `None` if it is empty or came more than once, because
    /// one of several may be from another sender.
    pub fn only_header(&self, header: &str) -> Option<&str> {
        let mut named = self
            .forwarded
            .iter()
            .filter(|(name, _)| name.eq_ignore_ascii_case(header));
        let value = named.next().map(|(_, value)| value.trim())?;
        (named.next().is_none() && !value.is_empty()).then_some(value)
    }

    /// The forwarded headers that `allowed` names, ignoring case.
    pub fn forwarded_only<'a>(
        &'a self,
        allowed: &'a [String],
    ) -> impl Iterator<Item = (&'a str, &'a str)> {
        self.forwarded
            .iter()
            .filter(|(name, _)| {
                allowed
                    .iter()
                    // Names of headers are case-insensitive (RFC 9110, section 5.1), and operators write them in any
                    // case.
                    .any(|allowed| allowed.eq_ignore_ascii_case(name))
            })
            .map(|(name, value)| (name.as_str(), value.as_str()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_trace_is_named_by_two_headers_and_only_inside_a_trace() {
        assert_eq!(trace_headers(None), []);
        assert_eq!(trace_headers(Some(|| None)), []);
        let parent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
        let named = trace_headers(Some(|| {
            let parent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
            Some(TraceContext::new(parent, ""))
        }));
        assert_eq!(named, [("traceparent", parent.to_owned())]);
    }

    #[test]
    fn only_listed_headers_are_forwarded() {
        let caller = Caller {
            forwarded: vec![
                ("x-tenant".to_owned(), "a".to_owned()),
                ("x-secret".to_owned(), "b".to_owned()),
            ],
            ..Caller::default()
        };
        let allowed = ["X-Tenant".to_owned()];
        let passed: Vec<_> = caller.forwarded_only(&allowed).collect();
        assert_eq!(passed, [("x-tenant", "a")]);
        assert_eq!(caller.forwarded_only(&[]).count(), 0);
    }
}
