//! Updates that we ask for.

use std::time::Duration;

use dray_http::MultipartForm;
use dray_platform::{ErrorKind, InboundSink, PlatformError};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::api::TelegramApi;
use crate::options::TelegramOptions;
use crate::update;

/// Pauses after a failure: the first, and the longest of those that double.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

/// Longest wait that the API keeps.
const LONGEST_WAIT: Duration = Duration::from_secs(50);

pub(crate) async fn poll_updates(
    account: &str,
    options: &TelegramOptions,
    api: &TelegramApi,
    deliver: &dyn InboundSink,
    stop: &CancellationToken,
) -> Result<(), PlatformError> {
    let mut asker = UpdatePoller {
        account,
        options,
        api,
        offset: None,
    };
    let mut pause = FIRST_PAUSE;
    while !stop.is_cancelled() {
        let asked = tokio::select! {
            asked = asker.ask() => asked,
            () = stop.cancelled() => break,
        };
        // What was received is stored to the end even when we are to stop.
        let done = match asked {
            Ok(updates) => asker.hand_over(updates, deliver).await,
            Err(error) => Err(error),
        };
        let Err(error) = done else {
            pause = FIRST_PAUSE;
            continue;
        };
        if error.kind() == ErrorKind::Auth {
            return Err(error);
        }
        let wait = error.retry_after().unwrap_or(pause);
        if error.platform_code() == "409" {
            tracing::warn!(%error, "somebody else takes the updates of this bot");
        } else {
            tracing::warn!(%error, "no updates");
        }
        pause = (pause * 2).min(LONGEST_PAUSE);
        tokio::select! {
            () = tokio::time::sleep(wait) => {}
            () = stop.cancelled() => break,
        }
    }
    Ok(())
}

/// Asks for what was not acknowledged yet.
struct UpdatePoller<'a> {
    account: &'a str,
    options: &'a TelegramOptions,
    api: &'a TelegramApi,
    /// Everything below is acknowledged by the next request.
    offset: Option<i64>,
}

impl UpdatePoller<'_> {
    async fn ask(&self) -> Result<Vec<Value>, PlatformError> {
        let wait = self.options.poll_wait.as_duration().min(LONGEST_WAIT);
        let kinds = json!(["message", "channel_post"]);
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
                "no list of updates came",
            )),
        }
    }

    /// Stores the messages in their order. The first that cannot be stored ends it, and is sent again.
    async fn hand_over(
        &mut self,
        updates: Vec<Value>,
        deliver: &dyn InboundSink,
    ) -> Result<(), PlatformError> {
        for update in updates {
            let Some(number) = update::update_id(&update) else {
                continue;
            };
            match update::inbound_message(self.account, &update, self.options.download()) {
                Ok(Some(message)) => deliver.message(message).await?,
                Ok(None) => {}
                // Asking again would bring the same for ever.
                Err(error) => tracing::warn!(%error, number, "an update of an unknown shape"),
            }
            self.offset = Some(number + 1);
        }
        Ok(())
    }
}
