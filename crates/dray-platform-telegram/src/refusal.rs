//! The meaning of refusals of the API, by their descriptions (the table of platform-delivery 7.2).

use std::time::Duration;

use dray_platform::{ErrorKind, PlatformError, SendOutcome};
use dray_presentation::name::{MAX_SHOWN_CHARACTERS, shown_text};
use serde::Deserialize;
use serde_json::Value;

/// The envelope of every response of the Bot API.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct ResponseEnvelope {
    pub(crate) ok: bool,
    pub(crate) result: Value,
    pub(crate) error_code: Option<u16>,
    pub(crate) description: String,
    pub(crate) parameters: ResponseParameters,
}

/// Fields of a refusal for programs, besides the text.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct ResponseParameters {
    pub(crate) retry_after: Option<u64>,
    pub(crate) migrate_to_chat_id: Option<i64>,
}

/// A failed request.
#[derive(Debug)]
pub(crate) struct ApiError {
    pub(crate) error: PlatformError,
    /// New id of the chat; `None` unless it moved and no message was sent.
    pub(crate) moved: Option<i64>,
}

impl From<PlatformError> for ApiError {
    fn from(error: PlatformError) -> Self {
        Self { error, moved: None }
    }
}

/// Parts of descriptions in lower case, and what they mean. The first match counts. Most refusals share the code 400,
/// so only the text distinguishes them.
const DESCRIPTION_MEANINGS: &[(&str, ErrorKind)] = &[
    ("photo_invalid_dimensions", ErrorKind::UnsupportedKind),
    ("image_process_failed", ErrorKind::UnsupportedKind),
    ("photo_save_file_invalid", ErrorKind::UnsupportedKind),
    ("photo_ext_invalid", ErrorKind::UnsupportedKind),
    ("too big for a photo", ErrorKind::UnsupportedKind),
    ("voice_messages_forbidden", ErrorKind::UnsupportedKind),
    ("can't parse entities", ErrorKind::BadFormat),
    ("caption is too long", ErrorKind::TooLong),
    ("message is too long", ErrorKind::TooLong),
    ("message thread not found", ErrorKind::NoThread),
    ("topic_deleted", ErrorKind::NoThread),
    ("message to be replied not found", ErrorKind::NoThread),
    ("message to reply not found", ErrorKind::NoThread),
    ("upgraded to a supergroup", ErrorKind::NotFound),
    ("chat not found", ErrorKind::NotFound),
    ("peer_id_invalid", ErrorKind::NotFound),
    ("not enough rights", ErrorKind::Forbidden),
    ("have no rights", ErrorKind::Forbidden),
    ("chat_write_forbidden", ErrorKind::Forbidden),
    ("topic_closed", ErrorKind::Forbidden),
    ("bot was blocked", ErrorKind::Forbidden),
    ("bot was kicked", ErrorKind::Forbidden),
    ("user is deactivated", ErrorKind::Forbidden),
    ("file must be non-empty", ErrorKind::Empty),
    ("file is too big", ErrorKind::TooLarge),
    ("request entity too large", ErrorKind::TooLarge),
    ("wrong file_id", ErrorKind::StaleFileId),
    ("wrong file identifier", ErrorKind::StaleFileId),
    ("wrong remote file id", ErrorKind::StaleFileId),
    ("type of file mismatch", ErrorKind::StaleFileId),
    ("can't use file of type", ErrorKind::StaleFileId),
    // The server took a file id for a URL, because this client sends no URLs.
    ("failed to get http url content", ErrorKind::StaleFileId),
    ("wrong type of the web page content", ErrorKind::StaleFileId),
    ("too many requests", ErrorKind::RateLimited),
];

fn kind_of_description(description: &str) -> Option<ErrorKind> {
    let description = description.to_ascii_lowercase();
    DESCRIPTION_MEANINGS
        .iter()
        .find(|(part, _)| description.contains(part))
        .map(|(_, kind)| *kind)
}

/// The error for a refusal. The delay comes from the body, else from the header `Retry-After` (`waits`), else from the
/// description.
pub(crate) fn refusal_error(
    status: u16,
    envelope: &ResponseEnvelope,
    waits: Option<Duration>,
) -> ApiError {
    let code = envelope.error_code.unwrap_or(status);
    let description = envelope.description.as_str();
    let album = broken_album(description);
    let kind = match code {
        429 => ErrorKind::RateLimited,
        // The Bot API responds with 404 to a malformed token. Unknown methods are never called here.
        401 | 404 => ErrorKind::Auth,
        413 => ErrorKind::TooLarge,
        403 => ErrorKind::Forbidden,
        500.. => ErrorKind::Transient,
        // The text decides only for this code. For a partly sent album, it is the text of the failed item.
        400 => kind_of_description(album.unwrap_or(description)).unwrap_or(ErrorKind::Unknown),
        _ => ErrorKind::Unknown,
    };
    // The text is cleaned and cut, because it comes from the network and is logged.
    let mut error = PlatformError::new(kind, shown_text(description, MAX_SHOWN_CHARACTERS))
        .code(code.to_string());
    if kind == ErrorKind::RateLimited {
        let wait = envelope
            .parameters
            .retry_after
            .map(Duration::from_secs)
            .or(waits)
            .or_else(|| retry_after(description));
        if let Some(wait) = wait {
            error = error.with_retry_after(wait);
        }
    }
    // This applies to a rate limit in the middle of an album, too: the items before it are visible.
    if album.is_some() {
        error = error.with_outcome(SendOutcome::Partial);
    } else if kind == ErrorKind::Transient {
        // 5xx: the server may have failed after it sent the message.
        error = error.ambiguous();
    }
    let moved = envelope.parameters.migrate_to_chat_id;
    ApiError {
        // The new id leads to another attempt, which is safe only if no part of the step is visible.
        moved: moved.filter(|_| error.send_outcome() == SendOutcome::NotSent),
        error,
    }
}

/// The inner text of a failure of one item of an album, after which earlier items may be visible. `None` for any other
/// description.
fn broken_album(description: &str) -> Option<&str> {
    // The text is compared without the first letter, which the server writes in upper or lower case.
    let (_, after) = description.split_once("ailed to send message #")?;
    let (_, inner) = after.split_once("with the error message \"")?;
    Some(inner.trim_end_matches('"'))
}

/// The delay in a text such as `retry after 8`. For an album, only the text contains it.
fn retry_after(description: &str) -> Option<Duration> {
    let (_, after) = description.split_once("retry after ")?;
    let digits: String = after.chars().take_while(char::is_ascii_digit).collect();
    digits.parse().ok().map(Duration::from_secs)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refuse(code: u16, description: &str) -> ApiError {
        let envelope = ResponseEnvelope {
            error_code: Some(code),
            description: description.to_owned(),
            ..ResponseEnvelope::default()
        };
        refusal_error(code, &envelope, None)
    }

    #[test]
    fn refusals_have_the_kinds_of_the_table() {
        use ErrorKind as Kind;
        for (code, description, kind) in [
            (400, "PHOTO_INVALID_DIMENSIONS", Kind::UnsupportedKind),
            (400, "IMAGE_PROCESS_FAILED", Kind::UnsupportedKind),
            (400, "PHOTO_SAVE_FILE_INVALID", Kind::UnsupportedKind),
            (400, "PHOTO_EXT_INVALID", Kind::UnsupportedKind),
            (400, "VOICE_MESSAGES_FORBIDDEN", Kind::UnsupportedKind),
            (
                400,
                "can't parse entities: Unsupported tag",
                Kind::BadFormat,
            ),
            (400, "message caption is too long", Kind::TooLong),
            (400, "message thread not found", Kind::NoThread),
            (400, "message to be replied not found", Kind::NoThread),
            (400, "chat not found", Kind::NotFound),
            (403, "bot was blocked by the user", Kind::Forbidden),
            (403, "user is deactivated", Kind::Forbidden),
            (403, "bot was kicked from the group chat", Kind::Forbidden),
            (400, "not enough rights to send documents", Kind::Forbidden),
            (400, "file must be non-empty", Kind::Empty),
            (400, "wrong file_id or the file is …", Kind::StaleFileId),
            (400, "failed to get HTTP URL content", Kind::StaleFileId),
            (413, "Request Entity Too Large", Kind::TooLarge),
            (400, "file is too big", Kind::TooLarge),
            (401, "Unauthorized", Kind::Auth),
            (404, "Not Found", Kind::Auth),
            (400, "something new", Kind::Unknown),
        ] {
            let refused = refuse(code, &format!("Bad Request: {description}"));
            assert_eq!(refused.error.kind(), kind, "{description}");
            assert_eq!(
                refused.error.send_outcome(),
                SendOutcome::NotSent,
                "{description}"
            );
            assert_eq!(refused.error.platform_code(), code.to_string());
        }
    }

    #[test]
    fn a_refusal_carries_the_new_id_of_the_chat() {
        let envelope = serde_json::json!({
            "ok": false, "error_code": 400,
            "description": "Bad Request: group chat was upgraded to a supergroup chat",
            "parameters": { "migrate_to_chat_id": -1_001_234_i64 },
        });
        let envelope: ResponseEnvelope = serde_json::from_value(envelope).unwrap();
        let refused = refusal_error(400, &envelope, None);
        assert_eq!(refused.moved, Some(-1_001_234));
        assert_eq!(refused.error.kind(), ErrorKind::NotFound);
    }

    #[test]
    fn r_13_a_server_failure_is_ambiguous() {
        for code in [500, 502, 504] {
            let error = refuse(code, "Internal Server Error: restart").error;
            assert_eq!(
                (error.kind(), error.send_outcome()),
                (ErrorKind::Transient, SendOutcome::Ambiguous)
            );
        }
    }

    #[test]
    fn a_broken_album_is_partial_and_carries_its_inner_delay() {
        let error = refuse(
            400,
            "Bad Request: failed to send message #3 with the error message \"Too Many Requests: retry after 8\"",
        )
        .error;
        assert_eq!(
            (error.kind(), error.send_outcome(), error.retry_after()),
            (
                ErrorKind::RateLimited,
                SendOutcome::Partial,
                Some(Duration::from_secs(8))
            )
        );
        let inner = "Bad Request: failed to send message #1 with the error message \"message thread not found\"";
        let error = refuse(400, inner).error;
        assert_eq!(
            (error.kind(), error.send_outcome()),
            (ErrorKind::NoThread, SendOutcome::Partial)
        );
    }

    #[test]
    fn a_delay_is_found_in_parameters_header_and_text() {
        let wait = |envelope: &ResponseEnvelope, header| {
            refusal_error(429, envelope, header).error.retry_after()
        };
        let mut envelope = ResponseEnvelope {
            description: "Too Many Requests: retry after 31".to_owned(),
            ..ResponseEnvelope::default()
        };
        assert_eq!(wait(&envelope, None), Some(Duration::from_secs(31)));
        let header = Some(Duration::from_secs(32));
        assert_eq!(wait(&envelope, header), header);
        envelope.parameters.retry_after = Some(5821);
        assert_eq!(wait(&envelope, header), Some(Duration::from_secs(5821)));
        assert_eq!(wait(&ResponseEnvelope::default(), None), None);
    }
}
