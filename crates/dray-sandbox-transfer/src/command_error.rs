//! Failures of programs that callers run, and the faults for callers.

use dray_sandbox::ErrorKind;
use dray_types::{Fault, FaultCode, RetryAdvice};

use crate::error::{Error, sandbox};
use crate::store::store_fault;

/// The reason for which a program was not run, or ended without a result.
#[derive(Debug, thiserror::Error)]
pub enum CommandError {
    /// No rule allows this tenant to run programs in this sandbox.
    #[error("no rule allows the tenant to run programs there")]
    Denied,
    /// The operation has started its program already.
    #[error("the operation has started a program before")]
    Repeated,
    /// The audit event was not stored, so the program was not started.
    #[error("the audit event of a program was not stored: {0:?}")]
    Audit(Box<Fault>),
    /// Like [`Self::Audit`], and the record of the operation could not be removed, so a repetition would be refused.
    #[error(
        "the audit event of a program was not stored, and its operation cannot be repeated: {0:?}"
    )]
    Unrepeatable(Box<Fault>),
    /// The sandbox did not run it.
    #[error(transparent)]
    NotRun(dray_sandbox::Error),
    /// The program was started, or may have been, so the operation is not repeated.
    #[error(transparent)]
    Started(Box<Error>),
}

impl From<CommandError> for Fault {
    fn from(error: CommandError) -> Self {
        match error {
            CommandError::Denied => Self::new(
                FaultCode::Denied,
                "Programs may not be run in this sandbox.",
            )
            .detail("command_denied")
            .advice("Ask an operator to allow it in `sandbox-transfer.commands.allow`."),
            CommandError::Repeated => Self::new(
                FaultCode::InvalidArgument,
                "This operation has started its program before; it is not started again.",
            )
            .detail("command_repeated")
            .advice(
                "Check what the program has done, then send a new operation id to run it again.",
            ),
            CommandError::Audit(fault) => *fault,
            CommandError::Unrepeatable(fault) => Self {
                retry: RetryAdvice::Never,
                ..fault.advice("Nothing was run. Send a new operation id to run the program.")
            },
            CommandError::NotRun(error) => refused_fault(&error),
            CommandError::Started(error) => Self {
                retry: RetryAdvice::Never,
                ..Self::from(*error)
            },
        }
    }
}

/// The fault for a program that was not run. Kinds with the same meaning in transfers have the fault of transfers.
fn refused_fault(error: &dray_sandbox::Error) -> Fault {
    if store_fault(error).is_some() {
        return sandbox(error);
    }
    let (code, message, detail, advice) = match error.kind() {
        ErrorKind::NotFound => (
            FaultCode::NotFound,
            "This program does not exist in the sandbox.",
            "program_not_found",
            "Check its name, or install it; `PATH` may need another directory.",
        ),
        ErrorKind::PermissionDenied => (
            FaultCode::Denied,
            "This file may not be executed by the sandbox user.",
            "program_not_executable",
            "Run its interpreter with the file as an argument, or change its mode.",
        ),
        ErrorKind::ToolMissing => (
            FaultCode::Unsupported,
            "This sandbox runs no programs.",
            "commands_unsupported",
            "It needs a way to run commands, and `sh`, `env`, `head` and `cat` in it.",
        ),
        ErrorKind::TooLarge => (
            FaultCode::TooLarge,
            "The arguments or the input are longer than this sandbox accepts.",
            "command_too_large",
            "Put them into a file of the sandbox, and name the file.",
        ),
        ErrorKind::InvalidName => (
            FaultCode::InvalidArgument,
            "The program, an argument or a variable has a form that is not allowed.",
            "invalid_command",
            "Use a program name that is not empty, does not begin with `-` and has no `=`, names of variables as in a shell, and no NUL.",
        ),
        _ => return sandbox(error),
    };
    Fault::new(code, message).detail(detail).advice(advice)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_program_that_may_have_run_is_not_to_be_repeated() {
        let lost = || dray_sandbox::Error::new(ErrorKind::Unavailable, "the channel broke");
        assert!(Fault::from(CommandError::NotRun(lost())).is_retryable());
        let started = CommandError::Started(Box::new(Error::Sandbox(lost())));
        let fault = Fault::from(started);
        assert!(!fault.is_retryable());
        assert_eq!(fault.detail, "unavailable");
    }

    #[test]
    fn a_program_that_cannot_be_repeated_although_it_did_not_run_needs_a_new_operation() {
        let busy = Fault::new(FaultCode::RateLimited, "Busy.").retry_after(Duration::from_secs(1));
        let stored = Fault::from(CommandError::Audit(Box::new(busy.clone())));
        assert!(stored.is_retryable());
        let kept = Fault::from(CommandError::Unrepeatable(Box::new(busy)));
        assert!(!kept.is_retryable());
        assert!(kept.advice.contains("new operation id"), "{kept:?}");
    }

    #[test]
    fn no_context_of_a_failure_reaches_a_caller() {
        for kind in ErrorKind::ALL {
            let error = dray_sandbox::Error::new(kind, "/root/.ssh token=xyz");
            let text = format!("{:?}", Fault::from(CommandError::NotRun(error)));
            assert!(!text.contains("xyz") && !text.contains(".ssh"), "{text}");
        }
    }
}
