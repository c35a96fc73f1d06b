//! Results of cases, and checks that fail with the line of their caller.

use std::error::Error as StdError;
use std::fmt;
use std::panic::Location;

use crate::error::{ErrorKind, PlatformError, SendOutcome};

/// Why a case ended early.
#[derive(Debug)]
pub enum CaseEnd {
    /// The case does not apply to this platform, for this reason.
    Skip(&'static str),
    /// The platform violated a requirement. Contains the line of the case and the reason.
    Fail(String),
}

impl CaseEnd {
    /// A failure with the file and line of the caller.
    #[track_caller]
    pub fn fail(why: impl fmt::Display) -> Self {
        let location = Location::caller();
        Self::Fail(format!("{}:{}: {why}", location.file(), location.line()))
    }
}

impl From<PlatformError> for CaseEnd {
    #[track_caller]
    fn from(error: PlatformError) -> Self {
        Self::fail(format_args!("unexpected error {}", error_chain(&error)))
    }
}

/// An error with all its causes, as a log would show it.
pub(super) fn error_chain(error: &PlatformError) -> String {
    let mut text = format!("{:?} {error}", error.moment());
    let mut next = error.source();
    while let Some(cause) = next {
        text.push_str(": ");
        text.push_str(&cause.to_string());
        next = cause.source();
    }
    text
}

/// Returns the error of `result`; fails unless it has this kind and this moment.
#[track_caller]
pub(super) fn expect_error<T>(
    result: Result<T, PlatformError>,
    kind: ErrorKind,
    moment: SendOutcome,
) -> Result<PlatformError, CaseEnd> {
    match result {
        Ok(_) => Err(CaseEnd::fail(format_args!(
            "no error, wanted {moment:?} {kind}"
        ))),
        Err(error) if error.kind() == kind && error.moment() == moment => Ok(error),
        Err(error) => Err(CaseEnd::fail(format_args!(
            "{}, wanted {moment:?} {kind}",
            error_chain(&error)
        ))),
    }
}

/// Fails unless both are equal, and shows both.
#[expect(
    clippy::needless_pass_by_value,
    reason = "callers compare what they have just made"
)]
#[track_caller]
pub(super) fn expect_equal<T: PartialEq + fmt::Debug>(
    what: &str,
    actual: T,
    wanted: T,
) -> Result<(), CaseEnd> {
    if actual == wanted {
        return Ok(());
    }
    Err(CaseEnd::fail(format_args!(
        "{what}: found {actual:?}, wanted {wanted:?}"
    )))
}

/// Fails unless the condition holds.
#[track_caller]
pub(super) fn expect_true(condition: bool, why: impl fmt::Display) -> Result<(), CaseEnd> {
    if condition {
        Ok(())
    } else {
        Err(CaseEnd::fail(why))
    }
}

/// The result of a suite in which no case failed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ConformanceReport {
    /// Names of cases that passed, in order.
    pub passed: Vec<&'static str>,
    /// Names of cases that do not apply to the platform.
    pub skipped: Vec<&'static str>,
}

/// Cases that failed, with the reason.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct CaseFailures(pub Vec<(&'static str, String)>);

impl fmt::Display for CaseFailures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{} cases failed:", self.0.len())?;
        for (name, why) in &self.0 {
            writeln!(f, "  {name}: {why}")?;
        }
        Ok(())
    }
}

/// As [`fmt::Display`], so that a test that unwraps it shows one case per line.
impl fmt::Debug for CaseFailures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl StdError for CaseFailures {}
