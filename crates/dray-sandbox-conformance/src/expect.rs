//! The check of errors that only sandboxes have.

use dray_conformance::CaseEnd;
use dray_sandbox::error::{Error, ErrorKind};
use dray_types::ErrorChain;

/// Fails unless `result` is an error of one of these kinds.
#[track_caller]
pub(super) fn expect_error<T>(
    description: &str,
    result: Result<T, Error>,
    kinds: &[ErrorKind],
) -> Result<(), CaseEnd> {
    match result {
        Ok(_) => Err(CaseEnd::fail(format_args!(
            "{description}: no error, wanted {kinds:?}"
        ))),
        Err(error) if kinds.contains(&error.kind()) => Ok(()),
        Err(error) => Err(CaseEnd::fail(format_args!(
            "{description}: {}, wanted {kinds:?}",
            ErrorChain(&error)
        ))),
    }
}
