//! Receives updates by long polling (`getUpdates`).

use std::time::Duration;

use dray_http::MultipartForm;
use dray_platform::{ErrorKind, InboundSink, PlatformError};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::api::TelegramApi;
use crate::options::TelegramOptions;
use crate::update;

/// Delay after the first failure; it doubles with each further one.
const FIRST_RETRY_DELAY: Duration = Duration::from_secs(1);
/// Longest delay after a failure.
const MAX_RETRY_DELAY: Duration = Duration::from_secs(30);

/// Longest `timeout` for which the API keeps a request open.
const MAX_WAIT: Duration = Duration::from_secs(50);

pub(crate) async fn poll_updates(
    account: &str,
    options: &TelegramOptions,
    api: &TelegramApi,
    deliver: &dyn InboundSink,
    stop: &CancellationToken,
) -> Result<(), PlatformError> {
    let mut poller = UpdatePoller {
        account,
        options,
        api,
        offset: None,
    };
    let mut retry_delay = FIRST_RETRY_DELAY;
    while !stop.is_cancelled() {
        // Dropping the request loses nothing, because its updates were not acknowledged and are sent again.
        let response = tokio::select! {
            response = poller.request_updates() => response,
            () = stop.cancelled() => break,
        };
        // The response is handled outside the select: received updates are stored completely, even if polling should
        // stop.
        let done = match response {
            Ok(updates) => poller.store_messages(updates, deliver).await,
            Err(error) => Err(error),
        };
        let Err(error) = done else {
            retry_delay = FIRST_RETRY_DELAY;
            continue;
        };
        // Another attempt would fail in the same way: waiting does not make an invalid token valid.
        if error.kind() == ErrorKind::Auth {
            return Err(error);
        }
        let wait = error.retry_after().unwrap_or(retry_delay);
        // A webhook is set, or another process polls with the same token. Either can end, so polling continues.
        if error.platform_code() == "409" {
            tracing::warn!(%error, "another client fetches the updates of this bot");
        } else {
            tracing::warn!(%error, "could not fetch updates");
        }
        retry_delay = (retry_delay * 2).min(MAX_RETRY_DELAY);
        tokio::select! {
            () = tokio::time::sleep(wait) => {}
            () = stop.cancelled() => break,
        }
    }
    Ok(())
}

/// Polls for updates that were not acknowledged yet.
struct UpdatePoller<'a> {
    account: &'a str,
    options: &'a TelegramOptions,
    api: &'a TelegramApi,
    /// Every update below this number is acknowledged by the next request.
    offset: Option<i64>,
}

impl UpdatePoller<'_> {
    async fn request_updates(&self) -> Result<Vec<Value>, PlatformError> {
        let wait = self.options.poll_wait.as_duration().min(MAX_WAIT);
        // Other kinds, such as edits and reactions, would be ignored.
        let kinds = json!(["message", "channel_post", "callback_query"]);
        let mut form = MultipartForm::new()
            .text("timeout", wait.as_secs().to_string())
            .text("allowed_updates", kinds.to_string());
        if let Some(offset) = self.offset {
            form = form.text("offset", offset.to_string());
        }
        match self.api.ask_for("getUpdates", form, wait).await? {
            Value::Array(updates) => Ok(updates),
            _ => Err(PlatformError::new(
                ErrorKind::Transient,
                "the response is not a list of updates",
            )),
        }
    }

    /// Stores the messages in their order. Stops at the first message that cannot be stored, which is then sent again.
    async fn store_messages(
        &mut self,
        updates: Vec<Value>,
        deliver: &dyn InboundSink,
    ) -> Result<(), PlatformError> {
        for update in updates {
            // Without a number, the update cannot be acknowledged alone; the number of the next update covers it.
            let Some(number) = update::update_id(&update) else {
                continue;
            };
            if let Some(press) = update::button_press(self.account, &update) {
                deliver.press(press).await;
                self.offset = Some(number + 1);
                continue;
            }
            if let Some(moved) = update::chat_move(&update) {
                deliver.chat_moved(moved).await;
            }
            match update::inbound_message(self.account, &update, self.options.download()) {
                // An error ends the loop before the offset changes, so this message is sent again.
                Ok(Some(message)) => deliver.message(message).await?,
                Ok(None) => {}
                // The update is skipped, because every request would return the same update again.
                Err(error) => {
                    tracing::warn!(%error, number, "skipped an update of an unknown shape");
                }
            }
            self.offset = Some(number + 1);
        }
        Ok(())
    }
}
