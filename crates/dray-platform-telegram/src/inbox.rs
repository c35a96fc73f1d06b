//! Updates that Telegram sends to our webhook.

use dray_platform::{ErrorKind, PlatformError, WebhookReply, WebhookRequest};
use dray_types::Sha256Digest;
use serde_json::Value;

use crate::options::TelegramOptions;
use crate::update;

/// The header that carries `secret_token` of `setWebhook`; only it proves that a request comes from Telegram.
const SECRET_TOKEN_HEADER: &str = "x-telegram-bot-api-secret-token";

/// Checks the secret before it reads anything of the body. An update without a message is answered with 200 too:
/// otherwise Telegram would send it again.
pub(crate) fn read_webhook(
    account: &str,
    options: &TelegramOptions,
    request: &WebhookRequest,
) -> Result<WebhookReply, PlatformError> {
    let mut secrets = request
        .headers
        .iter()
        .filter(|(name, _)| name == SECRET_TOKEN_HEADER)
        .map(|(_, value)| value);
    // Exactly one: with two headers, a proxy in front could have checked the other.
    let is_ours = match (secrets.next(), secrets.next()) {
        (Some(secret), None) => constant_time_eq(secret, options.webhook_secret.expose()),
        _ => false,
    };
    // An empty secret equals an empty header, and would let everyone in.
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
        .map_err(|cause| malformed("the update is not JSON").caused_by(cause))?;
    let message = update::inbound_message(account, &update, options.download())
        .map_err(|cause| malformed("the update has an unknown shape").caused_by(cause))?;
    Ok(WebhookReply {
        status: 200,
        messages: message.into_iter().collect(),
        presses: update::button_press(account, &update).into_iter().collect(),
        ..WebhookReply::default()
    })
}

/// Compares in a time that does not depend on how much is right: the digests differ everywhere or nowhere.
fn constant_time_eq(received: &str, secret: &str) -> bool {
    Sha256Digest::of(received.as_bytes()) == Sha256Digest::of(secret.as_bytes())
}
