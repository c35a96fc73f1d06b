//! The check of errors that only platforms have.

use dray_conformance::CaseEnd;
use dray_types::ErrorChain;

use crate::error::{ErrorKind, PlatformError, SendOutcome};

/// Returns the error of `result`; fails unless it has this kind and this outcome.
#[track_caller]
pub(super) fn expect_error<T>(
    result: Result<T, PlatformError>,
    kind: ErrorKind,
    outcome: SendOutcome,
) -> Result<PlatformError, CaseEnd> {
    match result {
        Ok(_) => Err(CaseEnd::fail(format_args!(
            "no error, wanted {outcome:?} {kind}"
        ))),
        Err(error) if error.kind() == kind && error.send_outcome() == outcome => Ok(error),
        Err(error) => Err(CaseEnd::fail(format_args!(
            "{:?} {}, wanted {outcome:?} {kind}",
            error.send_outcome(),
            ErrorChain(&error)
        ))),
    }
}
