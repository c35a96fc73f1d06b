//! Why something of the manifest is not there (quickapps 40).

use std::sync::Arc;

use crate::Tool;

/// One tool or tool set that could not be set up; the request goes on without it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SetupIssue {
    /// The tool, when it is one.
    pub tool: Option<String>,
    /// The tool set.
    pub toolset: Option<String>,
    /// What is wrong, for the builder; no secret, no inner address.
    pub message: String,
    /// More lines, shown in a fence.
    pub details: Vec<String>,
}

impl SetupIssue {
    /// An issue of a whole tool set.
    pub fn of_set(toolset: impl Into<String>, message: impl Into<String>) -> Self {
        Self {
            tool: None,
            toolset: Some(toolset.into()),
            message: message.into(),
            details: Vec::new(),
        }
    }
}

/// What became of a tool set: what can be used, and what cannot.
#[derive(Clone, Debug, Default)]
pub struct ToolsetResult {
    /// In the order of the manifest or of the server's list.
    pub tools: Vec<Arc<dyn Tool>>,
    /// What is not there.
    pub issues: Vec<SetupIssue>,
}
