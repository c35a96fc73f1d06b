//! Messages for failed answers: cause and advice.

use std::time::Duration;

use dray_dial::chat::{ChatError, ChatKind};
use dray_presentation::name;
use dray_types::{Fault, FaultCode};

use super::chat_failure;
use crate::outcome::CommandFailure;

/// Longest text of the peer that is shown, in characters.
const MAX_SHOWN_CHARACTERS: usize = 500;
/// Advice for most failures.
const RETRY_ADVICE: &str = "The message is kept: /retry sends it again.";

/// Describes a failed answer of `url`, where `silence` was the timeout.
pub(super) fn answer_failure(error: &ChatError, url: &str, silence: Duration) -> CommandFailure {
    let text = display_message(error);
    match error.kind {
        ChatKind::Connect => CommandFailure::Unreachable {
            description: format!("{url} cannot be reached"),
            advice: "Start an orchestrator with `dray up`, or check --url; then /retry.".to_owned(),
        },
        ChatKind::Timeout => chat_failure(
            FaultCode::Timeout,
            "silent",
            format!("No data arrived for {} s.", silence.as_secs()),
            "The message is kept: /retry sends it again; with a larger --timeout it waits longer.",
        ),
        ChatKind::Status(status) => of_status(status, &text, error),
        // The peer reported the failure, or the stream ended without its last chunk.
        ChatKind::Broken if error.source.is_none() => chat_failure(
            FaultCode::Unavailable,
            "agent_failed",
            format!("The answer failed: {text}"),
            RETRY_ADVICE,
        ),
        ChatKind::Broken => chat_failure(
            FaultCode::Unavailable,
            "broke_off",
            "The connection broke in the middle of the answer.",
            RETRY_ADVICE,
        ),
        ChatKind::Malformed => chat_failure(
            FaultCode::Unavailable,
            "not_a_chat",
            format!("The response is not a chat completion: {text}."),
            "Check that --url is an orchestrator or an endpoint of chat completions.",
        ),
    }
}

/// The text of the peer for people, on one line.
fn display_message(error: &ChatError) -> String {
    let text = error.display_message.as_deref().unwrap_or(&error.message);
    let lines: Vec<_> = text.lines().map(str::trim).collect();
    name::shown_text(lines.join("; "), MAX_SHOWN_CHARACTERS)
}

/// The failure of the command when the orchestrator answers 401 or 403.
pub(super) fn refused_key_failure(status: u16, message: Option<&str>) -> CommandFailure {
    chat_failure(
        FaultCode::Denied,
        "not_allowed",
        format!(
            "{} (status {status})",
            message.unwrap_or("The key is refused.")
        ),
        "Check the key: --api-key-file names the file that contains it.",
    )
}

fn of_status(status: u16, message: &str, error: &ChatError) -> CommandFailure {
    let (code, detail, advice) = match status {
        401 | 403 => return refused_key_failure(status, Some(message)),
        404 => (
            FaultCode::NotFound,
            "not_found",
            "Check --manifest, --model or --deployment.",
        ),
        413 => (
            FaultCode::TooLarge,
            "too_large",
            "Attach fewer or smaller files, or begin a new conversation.",
        ),
        // The request itself is refused, and would be refused again.
        400 | 421 | 422 => (
            FaultCode::InvalidArgument,
            "refused",
            "Change the message, or begin a new conversation.",
        ),
        429 => (FaultCode::RateLimited, "busy", "Wait, then /retry."),
        _ => (FaultCode::Unavailable, "agent_failed", RETRY_ADVICE),
    };
    let mut fault = Fault::new(code, format!("{message} (status {status})"))
        .detail(detail)
        .advice(advice);
    if let Some(delay) = error.retry_after {
        fault = fault.retry_after(delay);
    }
    fault.into()
}
