//! Checks that fail with the line of their caller.

use std::fmt;

use crate::CaseEnd;

/// Fails unless the condition holds.
///
/// # Errors
///
/// [`CaseEnd::Fail`] with `reason`.
#[track_caller]
pub fn expect_true(condition: bool, reason: impl fmt::Display) -> Result<(), CaseEnd> {
    if condition {
        Ok(())
    } else {
        Err(CaseEnd::fail(reason))
    }
}

/// Fails unless both values are equal.
///
/// # Errors
///
/// [`CaseEnd::Fail`] with both values.
#[expect(
    clippy::needless_pass_by_value,
    reason = "callers compare values that they have just created"
)]
#[track_caller]
pub fn expect_equal<T: PartialEq + fmt::Debug>(
    description: &str,
    actual: T,
    expected: T,
) -> Result<(), CaseEnd> {
    if actual == expected {
        return Ok(());
    }
    Err(CaseEnd::fail(format_args!(
        "{description}: found {actual:?}, expected {expected:?}"
    )))
}

/// Fails unless the bytes are equal.
///
/// # Errors
///
/// [`CaseEnd::Fail`] with both lengths and the first different byte. The content, which may be megabytes, is left out.
#[track_caller]
pub fn expect_bytes(description: &str, actual: &[u8], expected: &[u8]) -> Result<(), CaseEnd> {
    if actual == expected {
        return Ok(());
    }
    let equal = actual
        .iter()
        .zip(expected)
        .take_while(|(actual, expected)| actual == expected)
        .count();
    Err(CaseEnd::fail(format_args!(
        "{description}: {} bytes found, {} expected, different from byte {equal} on",
        actual.len(),
        expected.len()
    )))
}
