//! Variables that other products already use for the same settings.

use serde_json::Value;

/// A documented second name for a field: a variable with its own, stricter syntax.
#[derive(Clone, Copy, Debug)]
pub struct VariableAlias {
    /// The full name of the variable: `EXTERNAL_URL_FETCH_ENABLED`.
    pub variable: &'static str,
    /// The field it sets, dots between levels: `enabled`.
    pub field: &'static str,
    /// Parser of its text; see [`super::parse`] for common parsers.
    pub parse: AliasParser,
}

/// Reads the text of a variable. The error describes valid values.
pub type AliasParser = fn(&str) -> Result<AliasValue, String>;

/// The meaning of a variable's text.
#[derive(Clone, Debug, PartialEq)]
pub enum AliasValue {
    /// The field gets this value, in the form that its type reads.
    Value(Value),
    /// The variable counts as absent; the text is a warning for the log.
    Unset(&'static str),
}
