//! How calls of endpoints fail, as the model and the stage see it (quickapps 20, 22.3).

use dray_http::{Error, Failure as Cause};
use dray_tool::stage::{body, value};
use dray_tool::{Failed, Failure};

/// Longest part of a refusal that the model sees, in characters.
const TOLD: usize = 2000;

/// What the stage says of a failure that has no name.
const GENERAL: &str = "> ##### Exception:\nGeneral exception occurred while calling web API\n";

/// A request that got no whole answer. `whom` is what was called.
pub(crate) fn of_transport(error: Error, whom: &str) -> Failure {
    let (kind, text) = match &error.failure {
        Cause::Idle(_) => return Failure::TimedOut,
        Cause::Connect(_) => (
            "ConnectionError",
            format!("There is no connection to the {whom}."),
        ),
        Cause::Broken(_) => (
            "ReadError",
            format!("The connection to the {whom} broke before its answer was complete."),
        ),
        Cause::TooLong(limit) => (
            "AnswerTooLong",
            format!("The answer of the {whom} is longer than the limit of {limit} bytes."),
        ),
        Cause::Request(_) => (
            "RequestError",
            format!("The request to the {whom} cannot be sent: its address or a header is wrong."),
        ),
        Cause::Options(_) | Cause::Body(_) | Cause::Malformed(_) => {
            let text = format!("Calling the {whom} failed.");
            return Failed::new(text).because(error).shown(GENERAL).into();
        }
    };
    let shown = format!("> ##### Error:\n {kind} {text}\n");
    Failed::new(text).because(error).shown(shown).into()
}

/// An answer with a status outside 2xx, with what could be read of its body as text.
pub(crate) fn of_status(status: u16, said: &str, content_type: &str) -> Failure {
    let text = if (300..400).contains(&status) {
        format!(
            "The server answered with status {status}: it redirects to another address, and redirects are not followed."
        )
    } else if said.trim().is_empty() {
        format!("The server answered with status {status}.")
    } else {
        let said = value::shortened(said.trim(), TOLD);
        format!("The server answered with status {status}: {said}")
    };
    let response = body::by_type(said, content_type);
    let shown = format!("> ##### Status Code:\n{status}\n> ##### Response:\n{response}");
    Failed::new(text).status(status).shown(shown).into()
}

/// An answer that cannot be used.
pub(crate) fn of_answer(text: &str) -> Failure {
    let shown = format!("> ##### Error:\n AnswerError {text}\n");
    Failed::new(text).shown(shown).into()
}
