//! A tool and its calls.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

use async_trait::async_trait;
use dray_agent::manifest::call::{AttachmentRules, Fallback, ParameterDisplay, ToolDisplay};
use serde::ser::SerializeStruct as _;
use serde::{Serialize, Serializer};
use serde_json::{Map, Value};
use tokio::time::Instant;

use crate::{AnsweredQuestion, HandledFailure, StageWriter, ToolFailure, ToolOutput, Turn};

/// The description of a tool that the model gets. It contains no extension keys of manifests.
#[derive(Clone, Debug, PartialEq)]
pub struct ToolDeclaration {
    /// Unique in a request; 1 to 64 characters of `[a-zA-Z0-9_-]`.
    pub name: String,
    /// The tool's purpose, for the model.
    pub description: Option<String>,
    /// JSON schema of an object.
    pub parameters: Value,
}

/// The form in the body of a chat completion.
impl Serialize for ToolDeclaration {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        // The fields have a fixed order: equal tools give equal bytes, so prompt caches hit (quickapps 44.4 R16).
        #[derive(Serialize)]
        struct FunctionBody<'a> {
            name: &'a str,
            #[serde(skip_serializing_if = "Option::is_none")]
            description: Option<&'a str>,
            parameters: &'a Value,
        }
        let mut tool = serializer.serialize_struct("ToolDeclaration", 2)?;
        tool.serialize_field("type", "function")?;
        let function = FunctionBody {
            name: &self.name,
            description: self.description.as_deref(),
            parameters: &self.parameters,
        };
        tool.serialize_field("function", &function)?;
        tool.end()
    }
}

/// How the stage of a call looks (quickapps 22.3).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum StageStyle {
    /// The request with one line per argument, and the response as it streams.
    Deployment,
    /// Request and response in fences.
    #[default]
    Api,
    /// The tool itself writes the content of the stage.
    Own,
}

/// What a tool gets in place of the id of a file of the conversation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FileIds {
    /// The id: the tool accepts ids.
    #[default]
    Kept,
    /// In arguments that take references, the address of the file, which the tool gets through the storage of the turn.
    Addresses,
    /// In arguments that take references the address of the file, in others a link that is valid for a while.
    Links,
}

/// Rules for the calls of a tool.
#[derive(Clone, Debug, Default)]
pub struct CallRules {
    /// Name of the stage if the manifest gives none.
    pub label: String,
    /// Appearance of the stage.
    pub style: StageStyle,
    /// Whether the stage is shown at level `debug` only.
    pub debug_only: bool,
    /// Which files of results are kept, and which of these are shown to the user.
    pub attachments: AttachmentRules,
    /// The behaviour when a call fails.
    pub fallback: Fallback,
    /// The manifest's settings of the stage.
    pub display: ToolDisplay,
    /// Appearance of arguments in the stage, by name.
    pub parameters: BTreeMap<String, ParameterDisplay>,
    /// The time limit of the tool, otherwise of its set. Without either, the defaults of manifest and service apply.
    pub timeout: Option<Duration>,
    /// Arguments that take references to files and never content: `file:…::` before them is always removed.
    pub by_reference: Vec<String>,
    /// What the tool gets in place of an argument that is the id of a file of the conversation.
    pub file_ids: FileIds,
    /// Whether only hooks may call the tool, which is hidden from models.
    pub hidden: bool,
}

/// A call as its tool gets it: references are resolved, and it has a stage and a time limit.
#[derive(Clone, Debug)]
pub struct ToolCall {
    /// Id by the model.
    pub id: String,
    /// Arguments with files in place of references.
    pub arguments: Map<String, Value>,
    /// Arguments as the model wrote them, for stages and logs.
    pub written: Map<String, Value>,
    /// The stage that the call may write to while it runs; the common parts are written by the caller.
    pub stage: StageWriter,
    /// Time at which the caller drops the call.
    pub deadline: Instant,
}

/// A function that the model can call.
#[async_trait]
pub trait Tool: fmt::Debug + Send + Sync {
    /// The description that the model gets.
    fn declaration(&self) -> &ToolDeclaration;

    /// The rules for its calls.
    fn rules(&self) -> &CallRules;

    /// Calls the tool. Dropping the future cancels the call, including all of its background work.
    ///
    /// # Errors
    ///
    /// See [`ToolFailure`].
    async fn call(&self, call: ToolCall, turn: &Turn) -> Result<ToolOutput, ToolFailure>;

    /// Continues a call that asked the user, in any process and after any time. Dropping the future ends the call.
    ///
    /// # Errors
    ///
    /// Those of [`Tool::call`]. A tool that asks nothing fails.
    async fn resume(
        &self,
        _call: ToolCall,
        _answered: AnsweredQuestion,
        _turn: &Turn,
    ) -> Result<ToolOutput, ToolFailure> {
        let text = "The tool was replaced since it asked the user, so it did not get the answer. Call it again.";
        Err(HandledFailure::new(text).into())
    }
}
