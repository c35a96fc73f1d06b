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

/// The result that an event reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum EventResult {
    /// The operation was allowed, and nothing has failed so far.
    Success,
    /// An open operation broke off, by no policy.
    Failed,
    /// The operation was refused, or a policy ended it.
    Refused,
}

impl EventResult {
    /// The result of an event. The verdict alone does not say it: an operation that was opened keeps its verdict
    /// `allow`, and its last event has a code if something ended it.
    pub(super) fn of(event: &v1::EgressAudit) -> Self {
        let is_policy_end = || POLICY_ENDS.iter().any(|code| code.as_str() == event.code);
        match (event.verdict.as_str(), event.code.as_str()) {
            ("deny", _) => Self::Refused,
            (_, "") => Self::Success,
            _ if is_policy_end() => Self::Refused,
            _ => Self::Failed,
        }
    }
}
