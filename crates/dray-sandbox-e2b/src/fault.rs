//! Errors of the daemon: an HTTP status, or an error code of the Connect protocol.

use dray_sandbox::{Error, ErrorKind};
use dray_sandbox_hosted::{kind_of_status, kind_of_words};
use serde::Deserialize;
use serde_json::Value;

/// An error in a response or at the end of a stream. `code` is the HTTP status as a number, or a Connect code as text.
#[derive(Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Refusal {
    code: Value,
    message: String,
}

impl dray_sandbox_hosted::Refusal for Refusal {
    fn into_error(self, status: u16) -> Error {
        let code = self.code.as_str().unwrap_or_default();
        let kind = kind_of_code(code, &self.message);
        let kind = kind.unwrap_or_else(|| kind_of_status(status, &self.message));
        Error::new(
            kind,
            format!("status {status}, {}: {}", self.code, self.message),
        )
    }
}

/// The kind for a Connect error code; `None` for an unknown one.
fn kind_of_code(code: &str, message: &str) -> Option<ErrorKind> {
    let kind_by_message = || kind_of_words(message);
    Some(match code {
        "not_found" => ErrorKind::NotFound,
        "already_exists" => ErrorKind::Exists,
        "unauthenticated" => ErrorKind::Auth,
        "permission_denied" => ErrorKind::PermissionDenied,
        "resource_exhausted" => kind_by_message().unwrap_or(ErrorKind::RateLimited),
        "deadline_exceeded" => ErrorKind::Timeout,
        "unimplemented" => ErrorKind::ToolMissing,
        "invalid_argument" | "failed_precondition" | "out_of_range" => {
            kind_by_message().unwrap_or(ErrorKind::Protocol)
        }
        "unavailable" | "internal" | "unknown" | "aborted" | "canceled" | "data_loss" => {
            kind_by_message().unwrap_or(ErrorKind::Unavailable)
        }
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use dray_sandbox_hosted::Refusal as _;
    use serde_json::json;

    use super::*;

    fn kind(status: u16, code: Value, message: &str) -> ErrorKind {
        let message = message.to_owned();
        Refusal { code, message }.into_error(status).kind()
    }

    #[test]
    fn every_status_has_a_kind() {
        for (status, message, expected) in [
            (400, "path '/a' is a directory", ErrorKind::IsDirectory),
            (400, "error looking up user", ErrorKind::Protocol),
            (401, "signature is already expired", ErrorKind::Auth),
            (404, "path '/a' does not exist", ErrorKind::NotFound),
            (406, "no acceptable encoding", ErrorKind::Protocol),
            (429, "slow down", ErrorKind::RateLimited),
            (
                500,
                "open /a: permission denied",
                ErrorKind::PermissionDenied,
            ),
            (500, "something else", ErrorKind::Unavailable),
            (502, "The sandbox was not found", ErrorKind::Unavailable),
            (507, "not enough disk space", ErrorKind::NoSpace),
        ] {
            assert_eq!(kind(status, json!(status), message), expected, "{status}");
        }
    }

    #[test]
    fn every_connect_code_has_a_kind() {
        for (word, message, expected) in [
            ("not_found", "", ErrorKind::NotFound),
            ("already_exists", "", ErrorKind::Exists),
            ("unauthenticated", "", ErrorKind::Auth),
            ("permission_denied", "", ErrorKind::PermissionDenied),
            ("resource_exhausted", "", ErrorKind::RateLimited),
            (
                "resource_exhausted",
                "write: no space left on device",
                ErrorKind::NoSpace,
            ),
            ("unavailable", "", ErrorKind::Unavailable),
            (
                "invalid_argument",
                "mkdir /a/b: not a directory",
                ErrorKind::NotDirectory,
            ),
            (
                "internal",
                "rename a b: invalid cross-device link",
                ErrorKind::Unavailable,
            ),
        ] {
            assert_eq!(kind(200, json!(word), message), expected, "{word}");
        }
    }
}
