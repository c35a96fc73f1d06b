//! The end of a command: exit codes, and faults with event, cause and advice.

use std::fmt::Write as _;
use std::io::{ErrorKind, Write as _};
use std::process::ExitCode;
use std::sync::{Mutex, PoisonError};

use anstyle::AnsiColor;
use dray_presentation::name;
use dray_proto::export::ExportError;
use dray_types::{Fault, FaultCode, RetryAdvice};
use serde_json::{Value, json};

/// The reason why a command did not succeed. The exit codes are part of the interface: see
/// [`CommandFailure::exit_code`].
#[derive(Debug, thiserror::Error)]
pub(crate) enum CommandFailure {
    /// Refused or failed, with a reason that the user can act on.
    #[error("{0}")]
    Fault(#[from] Fault),
    /// The command line is invalid; the text describes a valid one.
    #[error("{0}")]
    Usage(String),
    /// The configuration is wrong; the text names key, source and value.
    #[error("{0}")]
    Configuration(String),
    /// The bus or the store cannot be reached.
    #[error("{description}")]
    Unreachable {
        /// The unreachable service, and the reason.
        description: String,
        /// Advice for the user.
        advice: String,
    },
    /// A failure on this machine: a file that cannot be read, a full disk.
    #[error("{description}")]
    Local {
        /// The operation that failed, in words.
        description: String,
        /// The error of the operating system.
        #[source]
        source: std::io::Error,
    },
    /// A program in a sandbox ended with this status, and its output was printed.
    #[error("the program ended with status {0}")]
    Program(u8),
    /// A signal ended the command; the exit code names the signal, and nothing is printed.
    #[error("interrupted")]
    Interrupted(u8),
    /// The message was already printed; only the exit code has to be set.
    #[error("reported")]
    Reported,
    /// This failure was already printed; only its exit code has to be set.
    #[error("reported")]
    AlreadyPrinted(Box<Self>),
}

impl From<ExportError> for CommandFailure {
    fn from(error: ExportError) -> Self {
        Self::Fault(error.into())
    }
}

impl CommandFailure {
    /// A conversion for `map_err`: a failed file operation with what was tried.
    pub(crate) fn local(description: impl Into<String>) -> impl FnOnce(std::io::Error) -> Self {
        let description = description.into();
        move |source| Self::Local {
            description,
            source,
        }
    }

    /// The exit code, as documented in `dray --help`.
    pub(crate) fn exit_code(&self) -> ExitCode {
        ExitCode::from(match self {
            Self::AlreadyPrinted(failure) => return failure.exit_code(),
            Self::Fault(_) | Self::Local { .. } | Self::Reported => 1,
            Self::Program(status) | Self::Interrupted(status) => *status,
            Self::Usage(_) => 2,
            // `EX_UNAVAILABLE` of `sysexits.h`.
            Self::Unreachable { .. } => 69,
            // `EX_CONFIG` of `sysexits.h`.
            Self::Configuration(_) => 78,
        })
    }

    /// Prints the failure: one JSON line on standard output for scripts, sentences on standard error for people.
    pub(crate) fn report(&self, as_json: bool) {
        if self.is_reported() {
            return;
        }
        if as_json {
            // The fault is on standard output, so that a script reads results and faults from one stream.
            print_line(&json!({ "fault": self.to_json() }).to_string());
        } else {
            // The text has no colour when standard error is not a terminal, or with NO_COLOR or TERM=dumb.
            let _ = anstream::stderr().write_all(self.to_text().as_bytes());
        }
    }

    /// Logs the failure as one JSON record on standard error.
    pub(crate) fn log_json(&self) {
        if !self.is_reported() {
            dray_service::telemetry::log_json_failure(&self.as_fault());
        }
    }

    /// Whether the failure was printed already, or needs no message.
    fn is_reported(&self) -> bool {
        matches!(
            self,
            Self::Reported | Self::AlreadyPrinted(_) | Self::Program(_) | Self::Interrupted(_)
        )
    }

    /// The failure as a fault, with a code for every kind: scripts see one shape.
    pub(crate) fn as_fault(&self) -> Fault {
        match self {
            Self::Fault(fault) => fault.clone(),
            Self::Usage(text) => Fault::new(FaultCode::InvalidArgument, text).detail("usage"),
            Self::Configuration(text) => {
                Fault::new(FaultCode::InvalidArgument, text).detail("config_invalid")
            }
            Self::Unreachable {
                description,
                advice,
            } => Fault::new(FaultCode::Unavailable, description)
                .detail("unreachable")
                .advice(advice),
            Self::Local {
                description,
                source,
            } => {
                let (code, advice) = local_advice(source.kind());
                Fault::new(code, format!("{description}: {source}"))
                    .detail("local")
                    .advice(advice)
            }
            Self::Interrupted(_) => {
                Fault::new(FaultCode::Unavailable, "Interrupted.").detail("interrupted")
            }
            Self::Reported | Self::Program(_) => Fault::internal(),
            Self::AlreadyPrinted(failure) => failure.as_fault(),
        }
    }

    fn to_json(&self) -> Value {
        fault_json(&self.as_fault())
    }

    fn to_text(&self) -> String {
        let fault = self.as_fault();
        let style = AnsiColor::Red.on_default().bold();
        let message = match self {
            // The file name in the message may have line breaks that imitate other lines.
            Self::Local { .. } => name::shown_text(&fault.message, MAX_LOCAL_CHARACTERS),
            _ => replace_control_characters(&fault.message),
        };
        let mut text = format!("{style}error:{style:#} {message}\n");
        let mut reason = fault.code.to_string();
        if !fault.detail.is_empty() && fault.detail != reason {
            reason = format!("{} ({reason})", fault.detail);
        }
        let _ = writeln!(text, "  why:  {reason}");
        if !fault.advice.is_empty() {
            let _ = writeln!(
                text,
                "  do:   {}",
                replace_control_characters(&fault.advice)
            );
        }
        if let RetryAdvice::After(delay) = fault.retry {
            let _ = writeln!(
                text,
                "  retry: worth trying again after {} ms",
                delay.as_millis()
            );
        }
        if !fault.trace_id.is_empty() {
            let _ = writeln!(text, "  trace: {}", fault.trace_id);
        }
        text
    }
}

/// Code and advice for a failure of this machine.
fn local_advice(kind: ErrorKind) -> (FaultCode, &'static str) {
    match kind {
        ErrorKind::NotFound => (FaultCode::NotFound, "Check the path."),
        ErrorKind::PermissionDenied => (
            FaultCode::Denied,
            "Let this user access the path, or name another one.",
        ),
        ErrorKind::StorageFull | ErrorKind::QuotaExceeded => (
            FaultCode::Unavailable,
            "Free some space, then run the command again.",
        ),
        _ => (FaultCode::Unavailable, ""),
    }
}

/// Longest message of a [`CommandFailure::Local`] for people, in characters.
const MAX_LOCAL_CHARACTERS: usize = 10_000;

/// Text for a terminal: control characters, which could change it, as `?`. Lines stay.
fn replace_control_characters(text: &str) -> String {
    let is_tame = |letter: char| matches!(letter, '\n' | '\t') || !letter.is_control();
    let tame = |letter| if is_tame(letter) { letter } else { '?' };
    text.chars().map(tame).collect()
}

/// A fault as scripts see it.
pub(crate) fn fault_json(fault: &Fault) -> Value {
    json!(fault)
}

/// The first failure of standard output, which [`report_output_failure`] reports at the end of the command. That of a
/// closed pipe (`dray … | head`) is the reader's wish.
static OUTPUT_FAILURE: Mutex<Option<std::io::Error>> = Mutex::new(None);

/// Writes one line to standard output. A failure is kept until the end of the command.
pub(crate) fn print_line(line: &str) {
    write_line(&mut std::io::stdout().lock(), line);
}

/// Like [`print_line`], for text with colours, which are left out where standard output is not a terminal.
pub(crate) fn print_styled_line(line: &str) {
    write_line(&mut anstream::stdout().lock(), line);
}

/// Like [`print_line`], for text without the end of a line.
pub(crate) fn print_text(text: &str) {
    let mut out = std::io::stdout().lock();
    keep_output_failure(out.write_all(text.as_bytes()).and_then(|()| out.flush()));
}

/// One write for the line and one flush, under the lock of the caller: lines of concurrent tasks do not mix.
fn write_line(out: &mut impl std::io::Write, line: &str) {
    let written = out
        .write_all(line.as_bytes())
        .and_then(|()| out.write_all(b"\n"))
        .and_then(|()| out.flush());
    keep_output_failure(written);
}

fn keep_output_failure(written: std::io::Result<()>) {
    if let Err(error) = written {
        let mut failure = OUTPUT_FAILURE
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if failure.is_none() {
            *failure = Some(error);
        }
    }
}

/// Whether standard output takes nothing more: its reader has ended, or a write failed. A command that prints without
/// end ends then.
pub(crate) fn has_output_ended() -> bool {
    let failure = OUTPUT_FAILURE.lock();
    failure.unwrap_or_else(PoisonError::into_inner).is_some()
}

/// Reports on standard error that standard output could not be written; returns whether that is so.
pub(crate) fn report_output_failure() -> bool {
    let failure = OUTPUT_FAILURE
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .take();
    let Some(error) = failure.filter(|error| error.kind() != ErrorKind::BrokenPipe) else {
        return false;
    };
    // The fault is text even with --json: a fault on standard output would be lost as the result was.
    CommandFailure::local("cannot write to standard output")(error).report(false);
    true
}

/// Writes one line for people to standard error, which may be closed.
pub(crate) fn print_note(line: &str) {
    let mut out = std::io::stderr().lock();
    let _ = out
        .write_all(replace_control_characters(line).as_bytes())
        .and_then(|()| out.write_all(b"\n"));
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn faults_say_what_why_and_what_to_do() {
        let fault = Fault::new(FaultCode::Denied, "It is refused.")
            .detail("ssrf_blocked")
            .advice("Name another host.")
            .retry_after(Duration::from_millis(5));
        let text = CommandFailure::from(fault.clone()).to_text();
        assert_eq!(
            anstream::adapter::strip_str(&text).to_string(),
            "error: It is refused.\n  why:  ssrf_blocked (denied)\n  do:   Name another host.\n  retry: worth trying again after 5 ms\n"
        );
        assert_eq!(fault_json(&fault)["retry_after_ms"], 5);
    }

    #[test]
    fn a_reason_that_equals_its_code_is_said_once() {
        let fault = Fault::new(FaultCode::NotFound, "It does not exist.").detail("not_found");
        let text = CommandFailure::from(fault).to_text();
        assert!(text.contains("  why:  not_found\n"), "{text}");
    }

    #[test]
    fn names_of_files_do_not_change_the_terminal() {
        let error = std::io::Error::from(ErrorKind::NotFound);
        let failure = CommandFailure::local("cannot read a\u{1b}[31m\nb")(error);
        let text = anstream::adapter::strip_str(&failure.to_text()).to_string();
        assert!(text.starts_with("error: cannot read a?[31m?b"), "{text}");
        assert_eq!(
            replace_control_characters("a\u{1b}[31m\n\tb"),
            "a?[31m\n\tb"
        );
    }

    #[test]
    fn exit_codes_are_the_documented_ones() {
        let check = |failure: &CommandFailure, code: u8| {
            assert_eq!(failure.exit_code(), ExitCode::from(code));
        };
        check(&CommandFailure::from(Fault::internal()), 1);
        check(&CommandFailure::Usage(String::new()), 2);
        check(
            &CommandFailure::Unreachable {
                description: String::new(),
                advice: String::new(),
            },
            69,
        );
        check(&CommandFailure::Configuration(String::new()), 78);
    }
}
