//! The model that leads the session (quickapps 6.2).

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::default_true;

/// The model, its instructions and its limits.
#[derive(Clone, Debug, Deserialize, JsonSchema)]
pub struct Orchestrator {
    /// The model; may be left out where the service has a default.
    pub deployment: Deployment,
    /// Models that take its place, in this order, when a call fails before any of its answer has arrived.
    #[serde(default)]
    pub fallback_deployments: Vec<Deployment>,
    /// The system prompt: the agent's instructions.
    #[serde(default)]
    pub system_prompt: SystemPrompt,
    /// How many times the model is called in one turn; the service's default if absent.
    #[schemars(range(min = 1, max = 1_000_000))]
    pub max_iterations: Option<u32>,
    /// Whether stages that the model's deployment shows are passed on.
    #[serde(default = "default_true")]
    pub propagate_stages: bool,
    /// The way in which the model gets the content of files.
    #[schemars(extend("x-preview" = true))]
    pub attachment_strategy: Option<AttachmentStrategy>,
    /// Parameters that clients of the plain endpoint may set; those of `OpenAI`'s API if absent. Other names are
    /// allowed too: such parameters are sent to the model unchanged.
    pub client_parameters: Option<Vec<String>>,
}

/// Parameters that a client may set unless the manifest has a list of its own.
pub const DEFAULT_CLIENT_PARAMETERS: [&str; 23] = [
    "tools",
    "tool_choice",
    "parallel_tool_calls",
    "response_format",
    "stop",
    "max_tokens",
    "max_completion_tokens",
    "temperature",
    "top_p",
    "presence_penalty",
    "frequency_penalty",
    "logit_bias",
    "seed",
    "logprobs",
    "top_logprobs",
    "reasoning_effort",
    "verbosity",
    "prediction",
    "user",
    "safety_identifier",
    "prompt_cache_key",
    "service_tier",
    "metadata",
];

impl Orchestrator {
    /// All models that a turn may call, in the order in which they are tried.
    pub fn models(&self) -> impl Iterator<Item = &Deployment> {
        std::iter::once(&self.deployment).chain(&self.fallback_deployments)
    }

    /// Whether a client of the plain endpoint may set this parameter.
    pub fn allows_parameter(&self, name: &str) -> bool {
        match &self.client_parameters {
            Some(allowed) => allowed.iter().any(|allowed_name| allowed_name == name),
            None => DEFAULT_CLIENT_PARAMETERS.contains(&name),
        }
    }
}

/// A deployment and the parameters of each call.
#[derive(Clone, Debug, PartialEq, Deserialize, JsonSchema)]
pub struct Deployment {
    /// The deployment's id; `name` in early manifests.
    // `prepare` renames the key before the check, which knows only the current name.
    #[schemars(extend("x-alias" = "name"))]
    pub deployment_id: String,
    /// Parameters that are sent with each call.
    #[serde(default)]
    pub parameters: Parameters,
}

/// Sampling and similar parameters; absent ones are not sent.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct Parameters {
    /// Randomness, 0 to 2.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 2))]
    pub temperature: Option<f64>,
    /// Nucleus sampling, 0 to 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 1))]
    pub top_p: Option<f64>,
    /// Seed of sampling.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = i64::MIN, max = i64::MAX))]
    pub seed: Option<i64>,
    /// Where to stop: a text or a list of texts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stop: Option<Stop>,
    /// Number of answers to generate.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 128))]
    pub n: Option<u32>,
    /// Longest answer in tokens.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 4_294_967_295_u32))]
    pub max_tokens: Option<u32>,
    /// Penalty on tokens that occurred before, -2 to 2.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = -2, max = 2))]
    pub presence_penalty: Option<f64>,
    /// Penalty that grows with each repetition of a token, -2 to 2.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = -2, max = 2))]
    pub frequency_penalty: Option<f64>,
    /// Members that DIAL adds to the API of `OpenAI`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub custom_fields: Option<CustomFields>,
}

/// Members that DIAL adds to the body of a call.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct CustomFields {
    /// Settings of the deployment, by its own schema.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub configuration: Option<Map<String, Value>>,
}

/// Texts at which the model stops generating.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(untagged)]
pub enum Stop {
    /// The model stops at this text.
    One(String),
    /// The model stops at any of these texts.
    Any(Vec<String>),
}

/// The configured part of the system prompt.
#[derive(Clone, Debug, PartialEq, Deserialize, JsonSchema)]
#[serde(tag = "type", rename_all = "lowercase")]
pub enum SystemPrompt {
    /// A text that the service knows by name.
    Predefined {
        /// The template's name.
        template: String,
        /// Kept by editors; not used.
        content: Option<String>,
    },
    /// The text itself.
    Custom {
        /// The text, used unchanged.
        content: String,
        /// Kept by editors; not used.
        variables: Option<Map<String, Value>>,
    },
    /// A prompt of DIAL.
    Dial {
        /// The prompt's path in DIAL.
        path: String,
        /// Kept by editors; not used.
        variables: Option<Map<String, Value>>,
        /// Kept by editors; not used.
        content: Option<String>,
    },
}

impl Default for SystemPrompt {
    fn default() -> Self {
        Self::Custom {
            content: String::new(),
            variables: None,
        }
    }
}

/// The way in which the model gets the content of files.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum AttachmentStrategy {
    /// The model requests the content of those files that it needs.
    LazyOnDemand {},
}
