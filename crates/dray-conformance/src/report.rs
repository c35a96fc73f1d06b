//! How a case ends, and what a suite reports.

use std::error::Error;
use std::fmt;
use std::panic::Location;

use dray_types::ErrorChain;

/// The reason why a case ended before its last line.
///
/// The type does not implement [`Error`], so that `?` converts every error into it.
#[derive(Debug)]
pub enum CaseEnd {
    /// The case does not apply to this implementation, for this reason.
    Skip(&'static str),
    /// The implementation violated a requirement. Contains the line of the check and the reason.
    Fail(String),
}

impl CaseEnd {
    /// A failure with the file and line of the caller.
    #[track_caller]
    pub fn fail(reason: impl fmt::Display) -> Self {
        let location = Location::caller();
        Self::Fail(format!("{}:{}: {reason}", location.file(), location.line()))
    }
}

/// An error that the case did not expect, with its causes. The text ends with the `Debug` form, because fields that
/// decide about the next action, such as whether a message may be visible, are often not in the sentence.
impl<E: Error + 'static> From<E> for CaseEnd {
    #[track_caller]
    fn from(error: E) -> Self {
        Self::fail(format_args!(
            "unexpected error: {}; {error:?}",
            ErrorChain(&error)
        ))
    }
}

/// The result of a suite in which no case failed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ConformanceReport {
    /// Names of the cases that passed, in the order in which they ran.
    pub passed: Vec<&'static str>,
    /// Names of the cases that do not apply, in the order in which they ran.
    pub skipped: Vec<&'static str>,
}

/// Names of the cases that failed, each with the line of the check and the reason.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct CaseFailures(pub Vec<(&'static str, String)>);

impl fmt::Display for CaseFailures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{} cases failed:", self.0.len())?;
        for (name, reason) in &self.0 {
            writeln!(f, "  {name}: {reason}")?;
        }
        Ok(())
    }
}

/// The same as `Display`, so that a test that unwraps it shows one case per line.
impl fmt::Debug for CaseFailures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl Error for CaseFailures {}
