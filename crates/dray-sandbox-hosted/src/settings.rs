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
