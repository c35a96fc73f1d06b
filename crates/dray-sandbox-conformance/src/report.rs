//! Results of cases, and the checks that they use.

use std::error::Error as StdError;
use std::fmt;
use std::panic::Location;

use dray_sandbox::error::{Error, ErrorKind};

/// The reason for which a case ended early.
#[derive(Debug)]
pub enum Stop {
    /// The case does not apply to this sandbox.
    Skip(&'static str),
    /// The backend broke its contract; with the place in the suite.
    Fail(String),
}

impl Stop {
    /// Makes a failure with the caller's file and line.
    #[track_caller]
    pub fn fail(why: impl fmt::Display) -> Self {
        let place = Location::caller();
        Self::Fail(format!("{}:{}: {why}", place.file(), place.line()))
    }
}

impl From<Error> for Stop {
    #[track_caller]
    fn from(error: Error) -> Self {
        Self::fail(format_args!("unexpected error {}", chain(&error)))
    }
}

/// Text of an error with all its causes.
fn chain(error: &Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        text.push_str(": ");
        text.push_str(&cause.to_string());
        next = cause.source();
    }
    text
}

/// Fails unless `result` is an error of one of these kinds.
#[track_caller]
pub(super) fn refused<T>(
    what: &str,
    result: Result<T, Error>,
    kinds: &[ErrorKind],
) -> Result<(), Stop> {
    match result {
        Ok(_) => Err(Stop::fail(format_args!(
            "{what}: no error, wanted {kinds:?}"
        ))),
        Err(error) if kinds.contains(&error.kind()) => Ok(()),
        Err(error) => Err(Stop::fail(format_args!(
            "{what}: {}, wanted {kinds:?}",
            chain(&error)
        ))),
    }
}

/// Fails unless both are equal.
#[expect(
    clippy::needless_pass_by_value,
    reason = "callers compare what they have just made"
)]
#[track_caller]
pub(super) fn equal<T: PartialEq + fmt::Debug>(
    what: &str,
    found: T,
    wanted: T,
) -> Result<(), Stop> {
    if found == wanted {
        return Ok(());
    }
    Err(Stop::fail(format_args!(
        "{what}: found {found:?}, wanted {wanted:?}"
    )))
}

/// Fails unless the bytes are equal; the message names the first different byte, not the content.
#[track_caller]
pub(super) fn same_bytes(what: &str, found: &[u8], wanted: &[u8]) -> Result<(), Stop> {
    if found == wanted {
        return Ok(());
    }
    let part = found
        .iter()
        .zip(wanted)
        .take_while(|(found, wanted)| found == wanted)
        .count();
    Err(Stop::fail(format_args!(
        "{what}: {} bytes found, {} wanted, different from byte {part} on",
        found.len(),
        wanted.len()
    )))
}

/// Fails unless the condition holds.
#[track_caller]
pub(super) fn holds(condition: bool, why: impl fmt::Display) -> Result<(), Stop> {
    if condition {
        Ok(())
    } else {
        Err(Stop::fail(why))
    }
}

/// The cases that did not fail.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Names of the cases that passed.
    pub passed: Vec<&'static str>,
    /// Names of the cases that do not apply to the sandbox.
    pub skipped: Vec<&'static str>,
}

/// Names of the cases that failed, with the reasons.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Failures(pub Vec<(&'static str, String)>);

impl fmt::Display for Failures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{} cases failed:", self.0.len())?;
        for (name, why) in &self.0 {
            writeln!(f, "  {name}: {why}")?;
        }
        Ok(())
    }
}

/// The same as `Display`, because `unwrap` in a test prints this one.
impl fmt::Debug for Failures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl StdError for Failures {}
