//! A call of `egress-fetcher` without an effect.

use crate::v1::ExplainRequest;

impl ExplainRequest {
    /// A request about a sample URL, for the rules in force and for whether the service responds. No query leaves the
    /// service.
    pub fn sample() -> Self {
        Self {
            url: "https://example.com/".to_owned(),
            ..Self::default()
        }
    }
}
