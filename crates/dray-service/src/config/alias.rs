//! Variables that other products already use for the same settings.

use serde_json::Value;

/// A documented second name for a field: a variable with its own, stricter way of being written.
#[derive(Clone, Copy, Debug)]
pub struct VariableAlias {
    /// The whole name of the variable: `EXTERNAL_URL_FETCH_ENABLED`.
    pub variable: &'static str,
    /// The field it sets, dots between levels: `enabled`.
    pub field: &'static str,
    /// How its text is read; see [`super::parse`] for the usual ways.
    pub parse: AliasParser,
}

/// Reads the text of a variable. An error says what would be right.
pub type AliasParser = fn(&str) -> Result<AliasValue, String>;

/// What the text of a variable means.
#[derive(Clone, Debug, PartialEq)]
pub enum AliasValue {
    /// This value for the field.
    Value(Value),
    /// As if the variable were not there; the text is a warning for the log.
    Unset(&'static str),
}
