//! The failures of endpoint calls, as the model and the stage see them (quickapps 20, 22.3).

use dray_http::{FailureKind as Cause, HttpError};
use dray_tool::stage::{body, value};
use dray_tool::{HandledFailure, ToolFailure};

/// Longest part of a refusal for the model, in characters.
const MAX_REFUSAL_CHARACTERS: usize = 2000;

/// The text of a stage for failures without a specific message.
const DEFAULT_STAGE_MESSAGE: &str =
    "> ##### Exception:\nGeneral exception occurred while calling web API\n";

/// The failure for a request without a complete response. `service` is the name of the called service.
pub(crate) fn of_transport(error: HttpError, service: &str) -> ToolFailure {
    let (kind, text) = match &error.failure {
        // Timeouts have separate rules (quickapps 21).
        Cause::Idle(_) => return ToolFailure::TimedOut,
        Cause::Connect(_) => (
            "ConnectionError",
            format!("The {service} cannot be reached."),
        ),
        Cause::Broken(_) => (
            "ReadError",
            format!("The connection to the {service} broke before its answer was complete."),
        ),
        Cause::TooLong(limit) => (
            "AnswerTooLong",
            format!("The answer of the {service} is longer than the limit of {limit} bytes."),
        ),
        Cause::Request(_) => (
            "RequestError",
            format!(
                "The request to the {service} cannot be sent: its address or a header is wrong."
            ),
        ),
        Cause::Options(_) | Cause::Body(_) | Cause::Malformed(_) => {
            let text = format!("Calling the {service} failed.");
            return HandledFailure::new(text)
                .because(error)
                .shown(DEFAULT_STAGE_MESSAGE)
                .into();
        }
    };
    let markdown = format!("> ##### Error:\n {kind} {text}\n");
    HandledFailure::new(text)
        .because(error)
        .shown(markdown)
        .into()
}

/// The failure for a response with a status outside 2xx, with the readable part of its body as text.
pub(crate) fn of_status(status: u16, refusal: &str, content_type: &str) -> ToolFailure {
    let text = if (300..400).contains(&status) {
        format!(
            "The server answered with status {status}: it redirects to another address, and redirects are not followed."
        )
    } else if refusal.trim().is_empty() {
        format!("The server answered with status {status}.")
    } else {
        let refusal = value::shorten_text(refusal.trim(), MAX_REFUSAL_CHARACTERS);
        format!("The server answered with status {status}: {refusal}")
    };
    let response = body::by_type(refusal, content_type);
    let markdown = format!("> ##### Status Code:\n{status}\n> ##### Response:\n{response}");
    HandledFailure::new(text)
        .status(status)
        .shown(markdown)
        .into()
}

/// A response that cannot be used.
pub(crate) fn of_answer(text: &str) -> ToolFailure {
    let markdown = format!("> ##### Error:\n AnswerError {text}\n");
    HandledFailure::new(text).shown(markdown).into()
}
