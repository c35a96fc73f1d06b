//! Settings that all providers have.

use std::path::Path;

use dray_http::{HttpClient, HttpError, HttpTimeouts};
use dray_types::Period;

/// The client of a provider. `ca_file` is a PEM file with additional certificate authorities.
///
/// # Errors
/// The authorities cannot be read.
pub fn http_client(
    connect: Period,
    idle: Period,
    response: Period,
    ca_file: Option<&Path>,
) -> Result<HttpClient, HttpError> {
    let timeouts = HttpTimeouts {
        connect: connect.as_duration(),
        idle: idle.as_duration(),
        response: response.as_duration(),
    };
    HttpClient::new(timeouts, ca_file)
}

/// Whether a text is an HTTP or HTTPS URL to which paths can be appended: without credentials, query and fragment.
pub fn is_base_url(url: &str) -> bool {
    let rest = url
        .strip_prefix("https://")
        .or_else(|| url.strip_prefix("http://"));
    // No `@`: credentials in a URL would end up in logs. Paths and ids are appended, so no query either.
    rest.is_some_and(|rest| !rest.is_empty() && !rest.contains(['@', '?', '#', ' ']))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_base_url_has_a_scheme_and_a_host_and_no_credentials() {
        assert!(is_base_url("https://app.daytona.io/api"));
        for url in ["", "ftp://host", "https://", "http://user:pw@host", "host"] {
            assert!(!is_base_url(url), "{url}");
        }
    }
}
