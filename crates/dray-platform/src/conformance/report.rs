//! What came out.

use std::error::Error as StdError;
use std::fmt;
use std::panic::Location;

use crate::error::{ErrorKind, PlatformError, SendOutcome};

/// Why a case ended early.
#[derive(Debug)]
pub enum CaseEnd {
    /// It cannot be asked of this platform.
    Skip(&'static str),
    /// The platform did something else than it must.
    Fail(String),
}

impl CaseEnd {
    /// A failure at the caller's line.
    #[track_caller]
    pub fn fail(why: impl fmt::Display) -> Self {
        let place = Location::caller();
        Self::Fail(format!("{}:{}: {why}", place.file(), place.line()))
    }
}

impl From<PlatformError> for CaseEnd {
    #[track_caller]
    fn from(error: PlatformError) -> Self {
        Self::fail(format_args!("unexpected error {}", error_chain(&error)))
    }
}

/// An error with its causes.
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

/// Fails unless `result` is an error of this kind and moment; gives it back.
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

/// Fails unless both are equal.
#[expect(
    clippy::needless_pass_by_value,
    reason = "callers compare what they have just made"
)]
#[track_caller]
pub(super) fn expect_equal<T: PartialEq + fmt::Debug>(
    what: &str,
    found: T,
    wanted: T,
) -> Result<(), CaseEnd> {
    if found == wanted {
        return Ok(());
    }
    Err(CaseEnd::fail(format_args!(
        "{what}: found {found:?}, wanted {wanted:?}"
    )))
}

/// Fails unless it holds.
#[track_caller]
pub(super) fn expect_true(condition: bool, why: impl fmt::Display) -> Result<(), CaseEnd> {
    if condition {
        Ok(())
    } else {
        Err(CaseEnd::fail(why))
    }
}

/// What was asked.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ConformanceReport {
    /// Cases that passed.
    pub passed: Vec<&'static str>,
    /// Cases that could not be asked.
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

/// Readable where a test unwraps it.
impl fmt::Debug for CaseFailures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl StdError for CaseFailures {}
