//! The account check of a bridge: whether its phone is connected.

use dray_http::HttpClient;
use dray_platform::{ErrorKind, PlatformError, SendOutcome};
use dray_types::Secret;
use serde_json::Value;

use super::refusal_error;

/// Asks the bridge whether its phone is connected.
pub(super) async fn check_connection(
    client: &HttpClient,
    url: &str,
    token: &Secret,
) -> Result<(), PlatformError> {
    let response = client
        .get(url)
        .authorization("Bearer", token)
        .send(&|_| {})
        .await;
    let invisible = |error| PlatformError::from(error).with_outcome(SendOutcome::NotSent);
    let response = response.map_err(invisible)?;
    if !response.is_success() {
        return Err(refusal_error(&response).with_outcome(SendOutcome::NotSent));
    }
    let health: Value = response.json().await.map_err(invisible)?;
    if health.get("status").and_then(Value::as_str) == Some("connected") {
        return Ok(());
    }
    let what = "the bridge is not connected";
    Err(PlatformError::new(ErrorKind::Transient, what))
}
