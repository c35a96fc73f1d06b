//! The limits of the bodies of requests.

use dray_service::config::ConfigProblem;
use dray_types::ByteSize;

use super::Config;

/// Largest `max_body`.
const MAX_BODY: ByteSize = ByteSize::mib(256);
/// Largest `max_body_total`.
const MAX_BODY_TOTAL: ByteSize = ByteSize::mib(1 << 20);

impl Config {
    pub(super) fn body_problems(&self) -> Vec<ConfigProblem> {
        let mut problems = Vec::new();
        if !(ByteSize::bytes(1)..=MAX_BODY).contains(&self.max_body) {
            problems.push(ConfigProblem::new("max_body", "must be 1B to 256MiB"));
        } else if !(self.max_body..=MAX_BODY_TOTAL).contains(&self.max_body_total) {
            problems.push(ConfigProblem::new(
                "max_body_total",
                "must be at least `max_body` and at most 1024GiB",
            ));
        }
        problems
    }
}
