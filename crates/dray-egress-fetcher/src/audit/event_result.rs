//! The result that an audit event reports. File and syslog use it for sampling, for the severity, and for the attributes
//! of OCSF.

use dray_guard::Code;
use dray_proto::v1;

/// Codes of policies at the end of an operation that was open: the client did not get what it asked for.
const POLICY_ENDS: [Code; 4] = [
    Code::PolicyDenied,
    Code::MediaTypeNotAllowed,
    Code::QuotaExceeded,
    Code::TooLarge,
];

/// Code of an operation that its caller gave up.
const CANCELLED_CODE: &str = "cancelled";

/// The result that an event reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventResult {
    /// The operation was allowed, and nothing has failed so far.
    Success,
    /// The operation was allowed and failed: its target could not be reached, responded with an error, or broke off.
    Failed,
    /// The operation was refused, or a policy ended it.
    Refused,
}

impl EventResult {
    /// The result of an event. The verdict alone does not say it. An operation that was opened keeps its verdict
    /// `allow`, and its last event has a code if something ended it. One that failed before has the verdict `deny`.
    pub fn of(event: &v1::EgressAudit) -> Self {
        let is_policy_end = || POLICY_ENDS.iter().any(|code| code.as_str() == event.code);
        match (event.verdict.as_str(), event.code.as_str()) {
            ("deny", _) if is_failure(event) => Self::Failed,
            ("deny", _) => Self::Refused,
            (_, "") => Self::Success,
            _ if is_policy_end() => Self::Refused,
            _ => Self::Failed,
        }
    }
}

/// Whether an operation that did not open has failed. One whose event could not be stored was refused for that.
fn is_failure(event: &v1::EgressAudit) -> bool {
    let mut codes = Code::ALL_REASONS.into_iter();
    let has_failed = codes.any(|code| code.is_failure() && code.as_str() == event.code);
    event.code == CANCELLED_CODE || (has_failed && event.rule != "audit")
}
