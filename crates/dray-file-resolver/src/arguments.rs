//! Finds the `file:` references in the arguments of a tool call (quickapps 30.1, R5).
//!
//! The arguments are handled as text: everything except references is copied byte by byte, so numbers of any size, the
//! order of members and white space are unchanged. This module loads no files.

mod walk;

use std::ops::Range;

use serde::de::IgnoredAny;

use dray_types::reference::ReferenceForm;
use dray_types::{Fault, FaultCode};

/// Deepest nesting of arguments that is accepted; most JSON readers have the same limit.
pub const MAX_DEPTH: usize = 128;

/// Longest JSON pointer of a reference, in bytes; it is copied into replies and events.
pub const MAX_POINTER_BYTES: usize = 1024;

/// The part of the arguments in which strings may be references.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReferenceScope {
    /// Top-level strings and strings that are direct elements of a top-level array.
    TopLevel,
    /// Every string value, however deep.
    Nested,
}

/// One string of the arguments that begins like a reference.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReferenceSlot {
    /// Range of the string literal in the text, quotes included.
    pub range: Range<usize>,
    /// Name of the top-level argument that contains the string.
    pub parameter: String,
    /// JSON pointer (RFC 6901) of the value.
    pub pointer: String,
    /// Meaning of the string.
    pub finding: ReferenceFinding,
}

/// Meaning of a string that begins like a reference.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ReferenceFinding {
    /// A reference to a file.
    Reference {
        /// The form of the replacement.
        form: ReferenceForm,
        /// The text after the prefix, not trimmed.
        target: String,
    },
    /// `file:` without one of the prefixes.
    MissingPrefix,
    /// A reference that contains half of a surrogate pair, which no file name can contain.
    BrokenUnicode,
}

/// A reason why arguments cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ArgumentsError {
    /// The bytes are not UTF-8 (RFC 8259 section 8.1).
    #[error("the arguments are not UTF-8 text")]
    NotUtf8,
    /// The text is not JSON.
    #[error("the arguments are not valid JSON (line {line}, column {column})")]
    Syntax {
        /// Line of the first mistake, from 1.
        line: usize,
        /// Column of the first mistake, in bytes from 1.
        column: usize,
    },
    /// The text is JSON, but not an object.
    #[error("the arguments are not a JSON object")]
    NotAnObject,
    /// Objects and arrays are nested deeper than [`MAX_DEPTH`].
    #[error("the arguments are nested deeper than {MAX_DEPTH} levels")]
    TooDeep,
    /// The pointer of a reference is longer than [`MAX_POINTER_BYTES`].
    #[error("the name of an argument is longer than {MAX_POINTER_BYTES} bytes")]
    LongName,
    /// An object names the same member twice, so that it is ambiguous.
    #[error("the arguments name a member twice")]
    DuplicateMember {
        /// JSON pointer (RFC 6901) of the second one.
        pointer: String,
    },
}

impl From<&ArgumentsError> for Fault {
    fn from(error: &ArgumentsError) -> Self {
        let (detail, message) = match error {
            ArgumentsError::NotUtf8 => ("not_utf8", "The arguments are not UTF-8 text.".to_owned()),
            ArgumentsError::Syntax { line, column } => (
                "invalid_json",
                format!("The arguments are not valid JSON: line {line}, column {column}."),
            ),
            ArgumentsError::NotAnObject => (
                "not_an_object",
                "The arguments are not a JSON object.".to_owned(),
            ),
            ArgumentsError::TooDeep => (
                "too_deep",
                format!("The arguments are nested deeper than {MAX_DEPTH} levels."),
            ),
            ArgumentsError::LongName => (
                "long_name",
                format!(
                    "The name of an argument with a file reference is longer than {MAX_POINTER_BYTES} bytes."
                ),
            ),
            ArgumentsError::DuplicateMember { pointer } => (
                "duplicate_member",
                format!(
                    "The arguments name the same member twice: {}.",
                    crate::reply::shown_name(pointer)
                ),
            ),
        };
        Self::new(FaultCode::InvalidArgument, message)
            .detail(detail)
            .advice("Send the arguments as one JSON object, each member named once.")
    }
}

/// Checks the arguments and lists the strings that begin like references, in order of appearance.
pub fn find_slots(
    arguments: &[u8],
    scope: ReferenceScope,
) -> Result<Vec<ReferenceSlot>, ArgumentsError> {
    let text = std::str::from_utf8(arguments).map_err(|_| ArgumentsError::NotUtf8)?;
    // The walk requires valid JSON. `IgnoredAny` checks the complete text without building values.
    if let Err(error) = serde_json::from_str::<IgnoredAny>(text) {
        return Err(ArgumentsError::Syntax {
            line: error.line(),
            column: error.column(),
        });
    }
    walk::ArgumentWalker::new(text, scope).run()
}

#[cfg(test)]
mod tests;
