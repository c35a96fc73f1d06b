//! Updates that Telegram posts to the webhook of this service.

use dray_platform::{ErrorKind, PlatformError, WebhookReply, WebhookRequest};
use dray_types::Sha256Digest;
use serde_json::Value;

use crate::options::TelegramOptions;
use crate::update;

/// The header that carries `secret_token` of `setWebhook`; only it proves that a request comes from Telegram.
const SECRET_TOKEN_HEADER: &str = "x-telegram-bot-api-secret-token";

/// Checks the secret before the body is parsed. An update without a message also gets 200, because Telegram would send
/// it again after any other status.
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
    // Exactly one header is accepted: with two, a proxy in front could have checked the other one.
    let is_valid = match (secrets.next(), secrets.next()) {
        (Some(secret), None) => constant_time_eq(secret, options.webhook_secret.expose()),
        _ => false,
    };
    // An empty secret would equal an empty header, so every request would be accepted.
    if !is_valid || options.webhook_secret.is_empty() {
        return Err(PlatformError::new(
            ErrorKind::Auth,
            "the secret token is wrong",
        ));
    }
    let malformed = |description: &str| PlatformError::new(ErrorKind::BadFormat, description);
    if request.method != "POST" {
        return Err(malformed("the method is not POST"));
    }
    let update: Value = serde_json::from_slice(&request.body)
        .map_err(|cause| malformed("the update is not JSON").caused_by(cause))?;
    let message = update::inbound_message(account, &update, options.download())
        .map_err(|cause| malformed("the update has an unknown shape").caused_by(cause))?;
    Ok(WebhookReply {
        status: 200,
        messages: message.into_iter().collect(),
        moved_chats: update::chat_move(&update).into_iter().collect(),
        presses: update::button_press(account, &update).into_iter().collect(),
        ..WebhookReply::default()
    })
}

/// Compares in a time that does not depend on the number of equal leading bytes, by comparing digests.
fn constant_time_eq(received: &str, secret: &str) -> bool {
    Sha256Digest::of(received.as_bytes()) == Sha256Digest::of(secret.as_bytes())
}
