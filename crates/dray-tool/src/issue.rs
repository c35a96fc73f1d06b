//! The reasons why a tool or tool set of the manifest cannot be used (quickapps 40).

use std::sync::Arc;

use crate::Tool;

/// One tool or tool set that could not be set up; the request continues without it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SetupIssue {
    /// Name of the tool; `None` for an issue of a whole tool set.
    pub tool: Option<String>,
    /// The name of the tool set, or of the tool set to which the tool belongs.
    pub toolset: Option<String>,
    /// The problem, for the builder; contains no secret and no internal address.
    pub message: String,
    /// More lines, shown in a fence.
    pub details: Vec<String>,
    /// Whether the user can fix it. If so, the message is also shown in the response.
    pub is_for_user: bool,
}

impl SetupIssue {
    /// An issue of a whole tool set and not of one tool.
    pub fn of_set(toolset: impl Into<String>, message: impl Into<String>) -> Self {
        Self {
            tool: None,
            toolset: Some(toolset.into()),
            message: message.into(),
            details: Vec::new(),
            is_for_user: false,
        }
    }
}

/// The outcome of setting up a tool set.
#[derive(Clone, Debug, Default)]
pub struct ToolsetResult {
    /// Tools in the order of the manifest or of the server's list.
    pub tools: Vec<Arc<dyn Tool>>,
    /// The tools that cannot be used.
    pub issues: Vec<SetupIssue>,
}
