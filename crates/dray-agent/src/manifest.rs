//! The agent manifest (quickapps 6): typed, published as JSON schema, refused with a list of all problems.
//!
//! Unknown keys are ignored and listed in the warnings, because manifests are used with several releases. The types
//! contain the values of the manifest; values with a default in the service's configuration stay `None`.

use schemars::JsonSchema;
use serde::Deserialize;

pub mod call;
mod check;
pub mod feature;
pub mod guardrail;
pub mod hook;
pub mod orchestrator;
mod prepare;
pub mod publish;
pub mod read;
pub mod tool;
pub mod toolset;

#[cfg(test)]
mod tests;

pub use check::ManifestProblem;
pub use read::{InvalidManifest, ManifestReader, ManifestSettings, ReadManifest};

use crate::approval::ApprovalRule;
use crate::budget::TurnLimits;
use feature::{ConversationStarters, Features};
use guardrail::Guardrail;
use hook::Hook;
use orchestrator::Orchestrator;
use toolset::{AgentRef, ToolSet};

/// An agent.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
pub struct Manifest {
    /// The model that leads, and its settings.
    pub orchestrator: Orchestrator,
    /// Files and texts that the agent knows in every conversation.
    pub contexts: Vec<Context>,
    /// Sets of tools that the agent may call.
    pub tool_sets: Vec<ToolSet>,
    /// Former form of `conversation_starters`: title and text in one.
    #[schemars(extend("deprecated" = true))]
    pub starters: Option<Vec<String>>,
    /// Buttons shown before the first message.
    pub conversation_starters: Option<ConversationStarters>,
    /// Skills beyond the predefined ones.
    pub skills: Option<Vec<SkillRef>>,
    /// Tools that the runtime itself calls.
    #[schemars(extend("x-preview" = true))]
    pub hooks: Option<Vec<Hook>>,
    /// Tools that judge what the model and tools get and give.
    pub guardrails: Option<Vec<Guardrail>>,
    /// Switches of single abilities.
    #[serde(default)]
    pub features: Features,
    /// Settings that apply to all tools.
    pub tool_defaults: Option<ToolDefaults>,
    /// Calls that a person must approve, in addition to those that the service's configuration names.
    pub require_approval: Option<Vec<ApprovalRule>>,
    /// Calls that may be repeated if their process ended during them, in addition to those that the service's
    /// configuration names.
    pub repeatable_tools: Option<Vec<ApprovalRule>>,
    /// Limits of one turn; those of the service's configuration apply as well.
    pub budget: Option<TurnLimits>,
    /// Local manifests to whose agents this agent may hand the conversation over. They answer the rest of the turn and
    /// the following turns.
    pub handoffs: Option<Vec<AgentRef>>,
}

impl Manifest {
    /// The agents to which this agent may hand the conversation over.
    pub fn handoff_agents(&self) -> impl Iterator<Item = &AgentRef> {
        let handoffs = self.handoffs.as_deref().unwrap_or_default();
        handoffs.iter().filter(|handoff| handoff.enabled)
    }
}

/// Content that the agent always knows about.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(tag = "type", rename_all = "kebab-case")]
pub enum Context {
    /// A file that is announced, not read.
    File {
        /// The file, `files/{bucket}/{path}`, percent-encoded.
        #[schemars(extend("format" = "dial-file-encoded", "dial:file" = true))]
        url: String,
        /// The file's content in words, for the model.
        description: Option<String>,
    },
    /// Text that is put into the system prompt.
    UserDefined {
        /// The text.
        content: String,
    },
    /// All files of a folder in DIAL.
    #[schemars(extend("x-preview" = true, "x-rule" = "folder"))]
    Folder {
        /// The folder; ends with `/`.
        #[schemars(extend("format" = "dial-file-encoded"))]
        url: String,
        /// The directory's content in words, for the model.
        description: Option<String>,
        /// Number of levels to include, 1 to 10.
        #[serde(default = "default_ten")]
        #[schemars(range(min = 1, max = 10))]
        max_depth: u32,
    },
}

/// A skill that is stored elsewhere.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(tag = "type", rename_all = "kebab-case")]
pub enum SkillRef {
    /// A prompt that DIAL Core stores.
    DialPrompt {
        /// The prompt, `prompts/{bucket}/{path}`.
        url: String,
    },
}

/// Settings that apply to all tools.
#[derive(Clone, Copy, Debug, Default, PartialEq, Deserialize, JsonSchema)]
pub struct ToolDefaults {
    /// Longest duration of one call in seconds, more than 0 and at most 3600.
    #[schemars(extend("exclusiveMinimum" = 0, "maximum" = 3600))]
    pub timeout_seconds: Option<f64>,
}

const fn default_true() -> bool {
    true
}

const fn default_ten() -> u32 {
    10
}
