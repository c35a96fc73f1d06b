//! Names of the codes of questions about hosts.

use super::NamedCode;
use crate::v1::{EgressAnswer, EgressQuestionStage};

names!(EgressAnswer {
    Allow => "allow",
    Deny => "deny",
});

names!(EgressQuestionStage {
    Asked => "asked",
    Answered => "answered",
});
