//! Messages for the user when a turn fails after its start (quickapps 41).

use crate::failure::RequestFailure;

/// Longest text of a service that is passed on, in characters.
const MAX_MESSAGE_CHARACTERS: usize = 500;

const UNKNOWN_ERROR_MESSAGE: &str =
    "Something went wrong with the execution of your request. Please contact your administrator.";

/// The part that failed, as far as the user's message depends on it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ErrorSource {
    /// The model's service refused or failed.
    Service {
        /// HTTP status of its response.
        status: Option<u16>,
        /// Code of its error.
        code: Option<String>,
        /// The service's own message for the user.
        display_message: Option<String>,
    },
    /// The service did not respond in time.
    Timeout,
    /// The service could not be reached.
    Connection,
    /// The service stopped in the middle of its response.
    BrokenStream,
    /// Any other failure; the user gets the general sentence.
    Unexpected,
}

impl ErrorSource {
    /// The failure as the client gets it.
    pub fn failure(&self) -> RequestFailure {
        let (status, code) = match self {
            Self::Service { status, code, .. } => {
                (status_of(*status, code.as_deref()), code.clone())
            }
            _ => (None, None),
        };
        let outgoing = status
            // A 429 or 503 of the model's service would look like one of this service (quickapps 41).
            .filter(|status| matches!(status, 400 | 401 | 403 | 404 | 413 | 422))
            .unwrap_or(500);
        let (text, retry) = self.text(status);
        let suffix = if retry {
            " Please try again later."
        } else {
            ""
        };
        let mut failure = RequestFailure::new(outgoing, RequestFailure::unexpected().message);
        failure.code = code;
        failure.display(format!("{text}{suffix}"))
    }

    /// The failure for a client of `OpenAI`'s API: the message describes it, and a rate limit of the model is status
    /// 429.
    pub fn plain_failure(&self) -> RequestFailure {
        let mut failure = self.failure();
        if let Some(text) = &failure.display_message {
            failure.message.clone_from(text);
        }
        let Self::Service { status, code, .. } = self else {
            return failure;
        };
        match status_of(*status, code.as_deref()) {
            Some(429) => {
                failure.status = 429;
                "rate_limit_error".clone_into(&mut failure.kind);
            }
            Some(status) if failure.message == UNKNOWN_ERROR_MESSAGE => {
                failure.message = unusual_status_text(status);
            }
            _ => {}
        }
        failure
    }

    /// The text for the user, and whether a retry may help.
    fn text(&self, status: Option<u16>) -> (String, bool) {
        let (text, retry) = match self {
            Self::Service {
                code,
                display_message,
                ..
            } => {
                // The order is that of quickapps 41: the service's message, its code, its status.
                let own = display_message.as_deref().map(str::trim);
                let retry = status.is_some_and(|status| status == 429 || status >= 500);
                if let Some(own) = own.filter(|own| !own.is_empty()) {
                    return (cut_message(own), retry);
                }
                match code.as_deref().and_then(code_text) {
                    Some(text) => (text, false),
                    None => (status.map_or(UNKNOWN_ERROR_MESSAGE, status_text), retry),
                }
            }
            Self::Timeout => ("The request to the AI model service timed out.", true),
            Self::Connection => (
                "Could not connect to the AI model service. Please check connectivity or contact your administrator.",
                false,
            ),
            Self::BrokenStream => ("The AI model service failed while responding.", true),
            Self::Unexpected => (UNKNOWN_ERROR_MESSAGE, false),
        };
        (text.to_owned(), retry)
    }
}

/// The status; a numeric code replaces a missing status.
fn status_of(status: Option<u16>, code: Option<&str>) -> Option<u16> {
    // Some services put the status into `code` alone (quickapps 41).
    status.or_else(|| code?.parse().ok())
}

fn cut_message(text: &str) -> String {
    match text.char_indices().nth(MAX_MESSAGE_CHARACTERS) {
        Some((end, _)) => format!("{}…", text.get(..end).unwrap_or_default()),
        None => text.to_owned(),
    }
}

fn code_text(code: &str) -> Option<&'static str> {
    Some(match code {
        "content_filter" => {
            "The request or the answer was blocked by the content filter of the AI model service."
        }
        "context_length_exceeded" => {
            "The conversation is too long for the AI model. Please start a new one or shorten it."
        }
        "truncate_prompt_error" => {
            "The conversation could not be shortened enough for the AI model."
        }
        _ => return None,
    })
}

/// Text for developers of clients about a status that has no text for users.
fn unusual_status_text(status: u16) -> String {
    match status {
        300..400 => format!(
            "The AI model service answered with a redirect (status {status}), which is not followed. \
             Please contact your administrator."
        ),
        _ => format!("The AI model service refused the request (status {status})."),
    }
}

fn status_text(status: u16) -> &'static str {
    match status {
        401 => {
            "Authentication failed when accessing the AI model. Please contact your administrator."
        }
        403 => {
            "You don't have permission to use the AI model configured in this application. \
             Please contact your administrator."
        }
        404 => {
            "The AI model configured in this application could not be found. Please contact your administrator."
        }
        413 => {
            "The request payload is too large. Please reduce the size of your message or attachments."
        }
        400 | 422 => {
            "The request was rejected as invalid by the AI model service. Please contact your administrator."
        }
        429 => "The request was rate-limited by the AI model service.",
        500.. => "The AI model service encountered an internal error.",
        _ => UNKNOWN_ERROR_MESSAGE,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn service(status: Option<u16>, code: Option<&str>, own: Option<&str>) -> RequestFailure {
        ErrorSource::Service {
            status,
            code: code.map(str::to_owned),
            display_message: own.map(str::to_owned),
        }
        .failure()
    }

    fn message_of(failure: RequestFailure) -> String {
        failure.display_message.unwrap()
    }

    #[test]
    fn statuses_have_their_texts() {
        for (status, text) in [
            (
                401,
                "Authentication failed when accessing the AI model. Please contact your administrator.",
            ),
            (
                413,
                "The request payload is too large. Please reduce the size of your message or attachments.",
            ),
            (
                429,
                "The request was rate-limited by the AI model service. Please try again later.",
            ),
            (
                503,
                "The AI model service encountered an internal error. Please try again later.",
            ),
            (418, UNKNOWN_ERROR_MESSAGE),
        ] {
            assert_eq!(message_of(service(Some(status), None, None)), text);
        }
        assert!(message_of(service(Some(403), None, None)).starts_with(
            "You don't have permission to use the AI model configured in this application. "
        ));
        assert!(
            message_of(service(Some(404), None, None))
                .starts_with("The AI model configured in this application could not be found. ")
        );
        for status in [400, 422] {
            assert!(
                message_of(service(Some(status), None, None))
                    .starts_with("The request was rejected as invalid by the AI model service. ")
            );
        }
    }

    #[test]
    fn faults_without_an_answer_have_their_texts() {
        for (source, text) in [
            (
                ErrorSource::Timeout,
                "The request to the AI model service timed out. Please try again later.",
            ),
            (
                ErrorSource::Connection,
                "Could not connect to the AI model service. Please check connectivity or contact your administrator.",
            ),
            (
                ErrorSource::BrokenStream,
                "The AI model service failed while responding. Please try again later.",
            ),
            (
                ErrorSource::Unexpected,
                "Something went wrong with the execution of your request. Please contact your administrator.",
            ),
        ] {
            assert_eq!(source.failure().status, 500);
            assert_eq!(message_of(source.failure()), text);
        }
    }

    #[test]
    fn the_services_own_text_comes_first_and_is_cut() {
        let long = format!(" {} ", "ä".repeat(501));
        let failure = service(Some(400), Some("content_filter"), Some(&long));
        assert_eq!(message_of(failure), format!("{}…", "ä".repeat(500)));
        let by_code = message_of(service(Some(400), Some("content_filter"), Some(" ")));
        assert!(by_code.contains("content filter"));
    }

    #[test]
    fn some_statuses_are_kept_and_codes_replace_missing_ones() {
        for status in [400, 401, 403, 404, 413, 422] {
            assert_eq!(service(Some(status), None, None).status, status);
        }
        for status in [402, 429, 500, 503] {
            assert_eq!(service(Some(status), None, None).status, 500);
        }
        let failure = service(None, Some("404"), None);
        assert_eq!(
            (failure.status, failure.code.as_deref()),
            (404, Some("404"))
        );
        assert_eq!(failure.kind, "invalid_request_error");
        assert_eq!(service(None, None, None).kind, "runtime_error");
    }

    #[test]
    fn a_plain_failure_names_its_cause_and_keeps_a_rate_limit() {
        let source = |status| ErrorSource::Service {
            status: Some(status),
            code: None,
            display_message: None,
        };
        let limited = source(429).plain_failure();
        assert_eq!(
            (limited.status, limited.kind.as_str()),
            (429, "rate_limit_error")
        );
        assert_eq!(
            limited.message,
            "The request was rate-limited by the AI model service. Please try again later."
        );
        assert_eq!(source(503).plain_failure().status, 500);
        for (status, text) in [(307, "a redirect (status 307)"), (402, "(status 402)")] {
            let failure = source(status).plain_failure();
            assert_eq!(failure.status, 500);
            assert!(failure.message.contains(text), "{failure}");
        }
        let lost = ErrorSource::Connection.plain_failure();
        assert!(
            lost.message
                .starts_with("Could not connect to the AI model service.")
        );
    }
}
