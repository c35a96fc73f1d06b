//! Names of the codes of questions about hosts, and of policies.

use super::NamedCode;
use crate::v1::{EgressAnswer, EgressPolicyOutcome, EgressQuestionStage};

names!(EgressAnswer {
    Allow => "allow",
    Deny => "deny",
});

names!(EgressQuestionStage {
    Asked => "asked",
    Answered => "answered",
});

names!(EgressPolicyOutcome {
    InForce => "in_force",
    Refused => "refused",
});
