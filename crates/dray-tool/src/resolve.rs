//! Arguments with references to files (quickapps 30).

use async_trait::async_trait;
use serde_json::{Map, Value};

use crate::ToolFailure;

/// Replaces `file:{base64|text|url|data}::…` in the arguments of a call by content, with the permissions of one caller.
/// The orchestrator's implementation calls the file-resolver.
#[async_trait]
pub trait ArgumentResolver: std::fmt::Debug + Send + Sync {
    /// Returns the arguments with content. `tool` is for limits and logs.
    ///
    /// # Errors
    ///
    /// [`ToolFailure::Parameter`] for what the model can correct; others when the resolver cannot be reached.
    async fn resolve(
        &self,
        tool: &str,
        arguments: Map<String, Value>,
    ) -> Result<Map<String, Value>, ToolFailure>;
}
