//! Failures of a turn as the client gets them (quickapps 41).

use dray_agent::failure::RequestFailure;
use dray_agent::layer;
use dray_agent::user_error::ErrorSource;
use dray_dial::chat::{ChatError, ChatKind};

/// Status of nginx for a client that has disconnected; it is not in RFC 9110 and is never sent.
pub(super) const CLIENT_GONE_STATUS: u16 = 499;

/// A failure that is never sent, because the client has disconnected.
pub(super) fn client_gone_failure() -> RequestFailure {
    RequestFailure::new(CLIENT_GONE_STATUS, "The client is gone.")
}

/// The model was called as often as allowed. Another attempt would make all of its calls again.
pub(super) fn call_limit_failure() -> RequestFailure {
    let text = "Agent stopped due to max iterations.";
    RequestFailure::new(500, text).display(text).without_retry()
}

/// A strategy of a tool ended the request.
pub(super) fn stopped_failure(text: &str) -> RequestFailure {
    RequestFailure::new(500, text).display(text)
}

/// The model's answer is too long or has too many calls.
pub(super) fn too_much_failure() -> RequestFailure {
    let text = "The AI model's answer was too long, or asked for too many tools in one step.";
    RequestFailure::new(500, text).display(text)
}

/// No model is configured. For the user this looks like a model that cannot be reached, which an administrator can
/// change.
pub(super) fn missing_model_failure(is_plain: bool) -> RequestFailure {
    tracing::warn!("a call of the model failed: neither dial_url nor model_url is set");
    source_failure(&ErrorSource::Connection, is_plain)
}

/// The failure in the form of the client's API.
fn source_failure(source: &ErrorSource, is_plain: bool) -> RequestFailure {
    if is_plain {
        source.plain_failure()
    } else {
        source.failure()
    }
}

/// The model gave no answer. A service's message may quote the conversation or a key, so it is logged only if contents
/// may be logged. A plain client that set a parameter which the model refuses gets the message, as it would from the
/// model itself. `has_own_key` for a model that gets the operator's key and not that of the client.
pub(super) fn model_failure(
    error: &ChatError,
    log_payloads: Option<usize>,
    is_plain: bool,
    has_own_key: bool,
) -> RequestFailure {
    let code = error.code.as_deref().unwrap_or_default();
    if error.status().is_some() {
        tracing::warn!(kind = ?error.kind, code, "a call of the model failed");
        // The payload is logged only at level debug, and only when the operator allows contents in the log (quickapps
        // 42).
        if let Some(max_chars) = log_payloads {
            let message: String = error.message.chars().take(max_chars).collect();
            tracing::debug!(message, "the model's service failed");
        }
    } else {
        tracing::warn!(
            error = error as &dyn std::error::Error,
            kind = ?error.kind,
            code,
            "a call of the model failed"
        );
    }
    let source = match error.kind {
        ChatKind::Status(_) => ErrorSource::Service {
            status: error.status(),
            code: error.code.clone(),
            display_message: error.display_message.clone(),
        },
        ChatKind::Connect => ErrorSource::Connection,
        ChatKind::Timeout => ErrorSource::Timeout,
        ChatKind::Broken | ChatKind::Malformed => ErrorSource::BrokenStream,
    };
    let mut failure = source_failure(&source, is_plain);
    if is_plain {
        failure.retry_after_seconds = error.retry_after.map(whole_seconds);
        if let (Some(400 | 422), true) = (error.status(), error.has_peer_message()) {
            failure.message.clone_from(&error.message);
        }
        if let (Some(status @ (401 | 403)), true) = (error.status(), has_own_key) {
            return refused_own_key_failure(status, failure.display_message);
        }
    }
    failure
}

/// The model refused the operator's key. DIAL's clients get the model's status (quickapps 41); on the plain endpoints
/// it would mean that the client's own key is wrong.
fn refused_own_key_failure(status: u16, display_message: Option<String>) -> RequestFailure {
    let message = format!(
        "The AI model's service does not accept the key of this service (status {status}). The key of the client is \
         not at fault. Please contact your administrator."
    );
    let mut failure = RequestFailure::new(502, message);
    failure.display_message = display_message;
    failure
}

/// Seconds, rounded up: an attempt before the delay has passed would be refused again.
fn whole_seconds(delay: std::time::Duration) -> u16 {
    let seconds = delay
        .as_secs()
        .saturating_add(u64::from(delay.subsec_nanos() > 0));
    u16::try_from(seconds).unwrap_or(u16::MAX)
}

/// Metadata of the model's deployment are not available.
pub(super) fn metadata_failure(error: &dray_dial::Error) -> RequestFailure {
    tracing::warn!(
        kind = ?error.kind,
        status = error.status,
        "could not fetch metadata of the model"
    );
    let source = match (error.status, error.kind) {
        // A status is more specific than the kind of the error, so it is used first.
        (Some(status), _) => ErrorSource::Service {
            status: Some(status),
            code: error.code.clone(),
            display_message: error.display_message.clone(),
        },
        (None, dray_dial::ErrorKind::Timeout) => ErrorSource::Timeout,
        (None, dray_dial::ErrorKind::Connect) => ErrorSource::Connection,
        (None, _) => ErrorSource::BrokenStream,
    };
    source.failure()
}

/// DIAL Core did not confirm whose key the caller sent. The request ends without any effect.
pub(super) fn unverified_failure(error: &dray_dial::Error) -> RequestFailure {
    tracing::warn!(
        error = error as &dyn std::error::Error,
        kind = ?error.kind,
        status = error.status,
        "a key could not be verified"
    );
    if let Some(401 | 403) = error.status {
        let mut failure = RequestFailure::new(401, "DIAL Core does not accept this API key");
        failure.code = Some("invalid_api_key".to_owned());
        return failure;
    }
    // No request was made: the key contains bytes that are not valid in a header.
    if error.kind == dray_dial::ErrorKind::Request {
        return RequestFailure::new(401, "The API key is not one that a header can hold");
    }
    RequestFailure::new(503, "DIAL Core cannot be asked whose API key this is")
        .display("The service cannot check your access at the moment. Please try again later.")
}

/// The system prompt is a template that cannot be used.
pub(super) fn prompt_failure(failure: &layer::TemplateFailure) -> RequestFailure {
    let message = format!("template '{}': {}", failure.template, failure.message());
    RequestFailure::new(400, message.clone()).display(message)
}

/// A tool could not be made from the metadata of a deployment.
pub(super) fn refused_template_failure(
    deployment: &str,
    refused: &dray_dial::Error,
) -> RequestFailure {
    match refused.status {
        Some(404) => RequestFailure::new(404, format!("Deployment '{deployment}' not found.")),
        Some(status @ (401 | 403)) => {
            RequestFailure::new(status, "DIAL does not let this key see the deployment.")
        }
        _ => RequestFailure::new(
            502,
            "DIAL Core returns no information about the deployment; try again later.",
        ),
    }
}
