//! The error of a configuration, which lists everything that is wrong.

use std::fmt;

/// Everything that is wrong with a configuration, in one error.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub struct ConfigError {
    /// The findings, at least one, in the order of the sources.
    pub findings: Vec<ConfigFinding>,
}

/// One problem of the configuration, and the source that set the value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigFinding {
    /// The key, dots between levels: `egress-fetcher.max_redirects`; the name of a variable that sets no known key.
    pub key: String,
    /// The source of the value: `file dray.toml`, `variable DRAY_HTTP__LISTEN`, `flag --set http.listen`, `default`.
    pub source: String,
    /// The value as written; `***` for secrets, `None` when the key itself is wrong.
    pub value: Option<String>,
    /// The valid values, as the rest of a sentence: `must be 0 to 10`.
    pub message: String,
}

impl fmt::Display for ConfigFinding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}`", self.key)?;
        match self.value.as_deref() {
            Some("") => f.write_str(" is empty")?,
            Some(value) => write!(f, " is `{value}`")?,
            None => {}
        }
        if !self.source.is_empty() {
            write!(f, " ({})", self.source)?;
        }
        write!(f, ": {}", self.message)
    }
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the configuration is not valid")?;
        for finding in &self.findings {
            write!(f, "\n  {finding}")?;
        }
        Ok(())
    }
}
