//! Settings of single features, and starters (quickapps 6.6, 6.7).

use schemars::JsonSchema;
use serde::Deserialize;

use super::default_true;

/// Switches of single abilities.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
pub struct Features {
    /// The time of day for the model; on unless `null`.
    #[serde(default = "Timestamp::on")]
    pub timestamp: Option<Timestamp>,
    /// Files in arguments.
    #[serde(default)]
    pub file_loading: FileLoading,
    /// Files of the web in arguments.
    #[serde(default)]
    pub external_url_fetch: ExternalUrlFetch,
    /// Selects the stages that users see.
    #[serde(default)]
    pub stage_display: StageDisplay,
    /// Tools over the files of DIAL; off unless given.
    pub dial_files: Option<DialFiles>,
    /// Large results of tools are put into files. Takes precedence over `tool_call_result_offload` of `dial_files`.
    pub result_offload: Option<Offload>,
    /// Old messages of long conversations are put into a file; if absent, the service's configuration decides.
    pub compaction: Option<Compaction>,
    /// Large numbers of tools are found by a search; if absent, the service's configuration decides.
    pub tool_search: Option<ToolSearch>,
    /// The tool that reads pages of the web; off unless given.
    // The mark is read from the schema: `prepare` sets the member to `null` and `publish` hides it while previews are
    // off.
    #[schemars(extend("x-preview" = true))]
    pub web_fetch: Option<WebFetch>,
    /// Tools by which the model shows things.
    #[schemars(extend("x-preview" = true))]
    pub representation_tooling: Option<RepresentationTooling>,
}

impl Default for Features {
    fn default() -> Self {
        Self {
            timestamp: Timestamp::on(),
            file_loading: FileLoading::default(),
            external_url_fetch: ExternalUrlFetch::default(),
            stage_display: StageDisplay::default(),
            dial_files: None,
            result_offload: None,
            compaction: None,
            tool_search: None,
            web_fetch: None,
            representation_tooling: None,
        }
    }
}

/// The time of day for the model.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
pub struct Timestamp {
    /// How the time is delivered to the model.
    #[serde(default)]
    pub injection_strategy: InjectionStrategy,
}

impl Timestamp {
    #[expect(clippy::unnecessary_wraps, reason = "the default of an optional field")]
    fn on() -> Option<Self> {
        Some(Self::default())
    }
}

/// How information that the model did not request is delivered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum InjectionStrategy {
    /// As the result of a tool call that the model did not make.
    ToolCall {},
}

impl Default for InjectionStrategy {
    fn default() -> Self {
        Self::ToolCall {}
    }
}

/// Files in arguments.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
pub struct FileLoading {
    /// Largest file in bytes; the service's default if absent.
    #[schemars(range(min = 1, max = i64::MAX))]
    pub size_limit: Option<u64>,
}

/// Files of the web in arguments.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
pub struct ExternalUrlFetch {
    /// Whether external URLs may be fetched.
    pub enabled: Option<bool>,
    /// Hosts from which they may be fetched.
    pub host_allowlist: Option<Vec<String>>,
}

/// Selects the stages that users see.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
pub struct StageDisplay {
    /// The least important stages that are shown.
    #[serde(default)]
    pub level: StageLevel,
}

/// The levels of stages. A stage is a step of the work, as users see it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum StageLevel {
    /// No stage.
    None,
    /// Stages of failed calls only.
    Error,
    /// All stages that their tools do not hide.
    #[default]
    Info,
    /// All.
    Debug,
}

impl StageLevel {
    /// Whether a stage that no tool hides is shown; `failed` says that it ends as failed.
    pub const fn shows(self, failed: bool) -> bool {
        match self {
            Self::None => false,
            Self::Error => failed,
            Self::Info | Self::Debug => true,
        }
    }
}

/// Tools over the files of DIAL.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
pub struct DialFiles {
    /// Large results of tools are put into files.
    pub tool_call_result_offload: Option<Offload>,
    /// The tools that are offered; all if absent.
    pub enabled_tools: Option<Vec<String>>,
}

/// Large results of tools are put into files; absent fields are the service's defaults.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
pub struct Offload {
    /// Whether the feature is enabled.
    pub enabled: Option<bool>,
    /// Size from which results are put into files, in bytes.
    #[schemars(range(min = 1, max = i64::MAX))]
    pub size_threshold: Option<u64>,
    /// Tools whose results stay.
    pub excluded_tools: Option<Vec<String>>,
}

/// Old messages of long conversations are put into a file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
pub struct Compaction {
    /// Whether the feature is enabled; on if absent.
    #[serde(default = "default_true")]
    pub enabled: bool,
    /// Estimated tokens of a prompt from which messages are compacted; the service's if absent.
    #[schemars(range(min = 1_000, max = 4_294_967_295_u32))]
    pub threshold_tokens: Option<u32>,
}

/// Large numbers of tools are found by a search instead of being declared to the model.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
pub struct ToolSearch {
    /// Whether the feature is enabled; on if absent.
    #[serde(default = "default_true")]
    pub enabled: bool,
    /// Number of tools of all tool sets above which tools are found by a search; the service's if absent.
    #[schemars(range(min = 1, max = 1_000_000))]
    pub threshold: Option<u32>,
    /// Patterns of the names of tools that are declared in any case; `*` stands for any text.
    pub always_loaded: Option<Vec<String>>,
}

/// The tool that reads pages of the web.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
pub struct WebFetch {
    /// Whether the tool is offered.
    #[serde(default)]
    pub enabled: bool,
    /// Largest response that is given as text, in bytes.
    #[schemars(range(min = 1, max = i64::MAX))]
    pub max_inline_size: Option<u64>,
}

/// Tools by which the model shows things.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, JsonSchema)]
pub struct RepresentationTooling {
    /// Whether the model gets the tool that shows a file.
    #[serde(default)]
    pub add_attachment: bool,
}

/// Buttons shown before the first message.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
pub struct ConversationStarters {
    /// Text above the buttons.
    #[serde(default = "select_an_action")]
    pub intro_text: String,
    /// Whether the user can only choose a starter and cannot type.
    #[serde(default)]
    pub chat_message_input_disabled: bool,
    /// Whether the text is sent immediately.
    #[serde(default = "default_true")]
    pub auto_submit: bool,
    /// The buttons; at least one.
    #[schemars(length(min = 1))]
    pub starters: Vec<Starter>,
}

/// A button.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize, JsonSchema)]
pub struct Starter {
    /// Label of the button.
    pub title: String,
    /// The text that the user sees.
    pub text: String,
}

fn select_an_action() -> String {
    "Select an action".to_owned()
}
