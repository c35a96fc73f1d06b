//! Runs a future that may fail, hang or panic, or whose client may disconnect.

use std::any::Any;
use std::panic::AssertUnwindSafe;

use futures_util::FutureExt as _;
use tokio::time::{Instant, timeout_at};

use crate::{ClientGone, EventSink, HandledFailure, ToolFailure};

/// Runs `work` until it ends. Drops it at the deadline, or when the client has disconnected.
pub(super) async fn run_attempt<T>(
    work: impl Future<Output = Result<T, ToolFailure>> + Send,
    deadline: Instant,
    sink: &EventSink,
) -> Result<Result<T, ToolFailure>, ClientGone> {
    // Unwind-safe, because the future is dropped after a panic and its state is not used again.
    let guarded = AssertUnwindSafe(work).catch_unwind();
    tokio::select! {
        // A finished result is returned even if the client has just disconnected.
        biased;
        done = timeout_at(deadline, guarded) => Ok(match done {
            Ok(Ok(result)) => result,
            Ok(Err(panic)) => Err(panic_failure(panic.as_ref()).into()),
            Err(_) => Err(ToolFailure::TimedOut),
        }),
        () = sink.gone() => Err(ClientGone),
    }
}

/// Message for the model about a panic, without the text of the panic.
fn panic_failure(panic: &(dyn Any + Send)) -> HandledFailure {
    let message = panic
        .downcast_ref::<&str>()
        .copied()
        .or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    tracing::error!(panic = message, "a tool panicked");
    HandledFailure::new("The tool failed unexpectedly.")
}
