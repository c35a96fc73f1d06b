//! The place of a delivery in its chat, taken when it is asked for: before its files are copied.

use std::time::Duration;

use dray_bus::Meta;
use dray_proto::v1;

use super::GatherRequest;
use crate::deliver::DeliveryService;
use crate::error::DeliveryError;
use crate::records::{self, RecordError};

/// How long the caller of a delivery waits for the session's chat. Without an answer the place is taken later.
const SESSION_TIMEOUT: Duration = Duration::from_secs(2);

/// A chat and the delivery that has a place in it.
#[derive(Debug)]
pub(crate) struct ChatPlace {
    pub(crate) chat: String,
    pub(crate) delivery: String,
    pub(crate) is_new: bool,
}

impl DeliveryService {
    /// Takes the place of a request. `None` when its chat is not known yet or not allowed: the
    /// worker reports that, or takes the place.
    ///
    /// # Errors
    /// The bus.
    pub(crate) async fn take_place(
        &self,
        meta: &Meta,
        work: &v1::SendFileRequested,
    ) -> Result<Option<ChatPlace>, DeliveryError> {
        let order = GatherRequest {
            meta,
            work,
            epoch: 0,
        };
        let session = match self.session(&order, "order", SESSION_TIMEOUT).await {
            Ok(session) => session,
            Err(error) => {
                error.log("the chat of a delivery is not known yet");
                return Ok(None);
            }
        };
        let Ok(target) = self.target(&order, session.as_ref()) else {
            return Ok(None);
        };
        let Some((_, chat)) = self.chat_of(&meta.tenant, &target).await else {
            return Ok(None);
        };
        let delivery = records::record_key(&meta.tenant, &meta.operation);
        let place = self.chat_order.take(&chat, &delivery).await;
        let place = place.map_err(RecordError::Unreachable)?;
        Ok(Some(ChatPlace {
            chat,
            delivery,
            is_new: place.is_new,
        }))
    }

    /// Gives a place back, so that later deliveries go on. What cannot be given back ends with its time.
    pub(crate) async fn release_place(&self, chat: &str, delivery: &str) {
        if let Err(error) = self.chat_order.release(chat, delivery).await {
            tracing::warn!(
                error = &error as &dyn std::error::Error,
                "the place of a delivery in its chat ends by itself"
            );
        }
        if self.index.is_waited_in(chat) {
            self.wake_keeper.notify_one();
        }
    }
}
