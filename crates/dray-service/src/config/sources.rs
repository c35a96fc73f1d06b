//! The sources of a configuration, before anything is read.

use std::path::PathBuf;
use std::str::FromStr;

use super::Environment;

/// The sources of one configuration. Compiled defaults are always underneath.
#[derive(Clone, Debug, Default)]
pub struct ConfigSources {
    /// The TOML file; `None` falls back to the variable `DRAY_CONFIG`, and without it no file is read.
    pub file: Option<PathBuf>,
    /// Variables of the process, or made up by a test.
    pub environment: Environment,
    /// Flags in the order given; the last one for a key wins.
    pub overrides: Vec<FieldOverride>,
}

impl ConfigSources {
    /// Only compiled defaults and these variables.
    pub fn new(environment: Environment) -> Self {
        Self {
            environment,
            ..Self::default()
        }
    }

    /// Reads this TOML file as well, below variables and flags.
    #[must_use]
    pub fn file(mut self, file: impl Into<PathBuf>) -> Self {
        self.file = Some(file.into());
        self
    }

    /// Sets one key above all other sources, as the flag `--set key=value` does.
    #[must_use]
    pub fn set(mut self, key: impl Into<String>, value: impl Into<String>) -> Self {
        self.overrides.push(FieldOverride {
            key: key.into(),
            value: value.into(),
            flag: None,
        });
        self
    }

    /// Like [`Self::set`], for a separate flag, such as `--nats`, which messages then name.
    #[must_use]
    pub fn set_by(mut self, flag: &str, key: impl Into<String>, value: impl Into<String>) -> Self {
        self.overrides.push(FieldOverride {
            key: key.into(),
            value: value.into(),
            flag: Some(flag.to_owned()),
        });
        self
    }
}

/// One flag of the form `--set section.field=value`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldOverride {
    /// Section and field, dots between levels.
    pub key: String,
    /// The value, written as in a variable.
    pub value: String,
    /// The flag that was given instead of `--set`.
    pub flag: Option<String>,
}

/// The text of a flag is not `section.field=value`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is not of the form section.field=value")]
pub struct InvalidOverride(String);

impl FromStr for FieldOverride {
    type Err = InvalidOverride;

    fn from_str(text: &str) -> Result<Self, InvalidOverride> {
        match text.split_once('=') {
            Some((key, value)) if key.contains('.') => Ok(Self {
                key: key.trim().to_owned(),
                value: value.to_owned(),
                flag: None,
            }),
            _ => Err(InvalidOverride(text.to_owned())),
        }
    }
}
