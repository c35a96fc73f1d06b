//! Arguments with references to files (quickapps 30), and with ids of files.

use async_trait::async_trait;
use serde_json::{Map, Value};

use crate::ToolFailure;

/// Replaces `file:{base64|text|url|data}::…` in the arguments of a call by content, and ids of files by links, with the
/// permissions of one caller.
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

    /// Returns the arguments with a link in place of each text that is, as a whole, the id of a file of the
    /// conversation (agent-file-context 15), or the stable name of a stored file.
    ///
    /// # Errors
    ///
    /// The service that makes links cannot be reached, or a file has no link that others can open.
    async fn replace_ids(
        &self,
        arguments: Map<String, Value>,
    ) -> Result<Map<String, Value>, ToolFailure>;

    /// Replaces the ids of files in an argument, a text or a list of texts, by the addresses of these files: for a tool
    /// that gets them through the storage of the turn.
    fn replace_ids_by_addresses(&self, argument: &mut Value);
}
