//! Updates that the API brings to us.

use dray_platform::{ErrorKind, PlatformError, WebhookReply, WebhookRequest};
use dray_types::Sha256Digest;
use serde_json::Value;

use crate::options::TelegramOptions;
use crate::update;

/// The header that proves that a request comes from the API.
const SECRET_TOKEN_HEADER: &str = "x-telegram-bot-api-secret-token";

pub(crate) fn read_webhook(
    account: &str,
    options: &TelegramOptions,
    request: &WebhookRequest,
) -> Result<WebhookReply, PlatformError> {
    let mut shown = request
        .headers
        .iter()
        .filter(|(name, _)| name == SECRET_TOKEN_HEADER)
        .map(|(_, value)| value);
    let is_ours = match (shown.next(), shown.next()) {
        (Some(secret), None) => constant_time_eq(secret, options.webhook_secret.expose()),
        _ => false,
    };
    if !is_ours || options.webhook_secret.is_empty() {
        return Err(PlatformError::new(
            ErrorKind::Auth,
            "the secret token is not ours",
        ));
    }
    let malformed = |what: &str| PlatformError::new(ErrorKind::BadFormat, what);
    if request.method != "POST" {
        return Err(malformed("an update is posted"));
    }
    let update: Value = serde_json::from_slice(&request.body)
        .map_err(|cause| malformed("the update is no JSON").caused_by(cause))?;
    let message = update::inbound_message(account, &update, options.download())
        .map_err(|cause| malformed("the update has an unknown shape").caused_by(cause))?;
    Ok(WebhookReply {
        status: 200,
        messages: message.into_iter().collect(),
        ..WebhookReply::default()
    })
}

/// Compares without telling by its duration how much is right: digests differ everywhere or nowhere.
fn constant_time_eq(shown: &str, secret: &str) -> bool {
    Sha256Digest::of(shown.as_bytes()) == Sha256Digest::of(secret.as_bytes())
}
