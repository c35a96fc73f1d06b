//! Configuration as values: its sources, its checks, and how it is shown.
//!
//! Sources, each overriding the one before: compiled defaults, one TOML file, a directory of secrets, the environment
//! (`DRAY_<SECTION>__<FIELD>`, and the documented aliases of each section), flags (`--set section.field=value`).
//! Unknown keys are errors everywhere. No other code in the workspace reads the environment; the loaded value is passed
//! down and never stored globally.

mod alias;
mod check;
mod environment;
mod error;
mod former;
mod layer;
mod loader;
mod merged;
pub mod parse;
mod reference;
mod report;
mod restart;
mod schema;
mod secrets_dir;
mod sources;
#[cfg(test)]
mod tests;
mod text;
mod variable;
mod watch;

pub use alias::{AliasParser, AliasValue, VariableAlias};
pub use check::SOCKET_ADDRESS_RULE;
pub use environment::Environment;
pub use error::{ConfigError, ConfigFinding};
pub use former::FormerName;
pub use loader::{ConfigLoader, LoadedConfig, ValueOrigins};
pub use reference::configuration_page;
pub use report::{ConfigReport, ReportEntry};
pub use restart::RestartSetting;
pub use schema::SectionSpec;
pub use sources::{ConfigSources, FieldOverride};
pub use watch::{SectionChange, SectionReader, SectionWatcher};

use schemars::JsonSchema;
use serde::Serialize;
use serde::de::DeserializeOwned;

/// One section of the configuration: a documented struct whose `Default` is the compiled defaults.
///
/// Field documentation (with unit and effect) becomes the reference page, so it is written for operators. Use
/// [`dray_types::Period`] for lengths of time, [`dray_types::ByteSize`] for sizes and [`dray_types::Secret`]
/// for credentials: the loader recognises them. Fields that may be absent are `Option`s. The struct needs
/// `#[serde(default)]`; unknown keys are refused by the loader.
pub trait Section:
    Serialize + DeserializeOwned + Default + Clone + JsonSchema + Send + Sync + 'static
{
    /// Variables of other products that set a field of this section.
    fn aliases() -> &'static [VariableAlias] {
        &[]
    }

    /// Fields that had another name before. The former name still works, with a warning.
    fn former_names() -> &'static [FormerName] {
        &[]
    }

    /// Fields that apply only at the next start, if a [`SectionReload`](crate::reload::SectionReload) applies changes of
    /// the others. `None` if every field needs a restart.
    fn restart_settings() -> Option<&'static [RestartSetting<Self>]> {
        None
    }

    /// Prefixes under which every variable has to be a known alias: a typo must not silently remove a limit.
    fn strict_prefixes() -> &'static [&'static str] {
        &[]
    }

    /// Checks within and across fields after everything was read.
    fn validate(&self) -> Vec<ConfigProblem> {
        Vec::new()
    }
}

/// The fields that validation refuses after a change of the defaults, for tests of a section.
pub fn refused_fields<S: Section>(change: impl FnOnce(&mut S)) -> Vec<String> {
    let mut section = S::default();
    change(&mut section);
    let problems = section.validate();
    problems.into_iter().map(|problem| problem.field).collect()
}

/// A value that its type can read but that may not be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigProblem {
    /// The field within its section, dots between levels: `max_redirects`, `limits.per_host`.
    pub field: String,
    /// The valid values, as the rest of a sentence: `must be 0 to 10`.
    pub message: String,
}

impl ConfigProblem {
    /// A problem with `field`. `message` completes a sentence about it: `must be 0 to 10`.
    pub fn new(field: impl Into<String>, message: impl Into<String>) -> Self {
        Self {
            field: field.into(),
            message: message.into(),
        }
    }
}
