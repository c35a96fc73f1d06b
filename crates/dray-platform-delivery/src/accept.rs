//! Accepts requests: extends their claims until the delivery ends, takes a place in the order of their chat, and
//! publishes them as work.

use std::time::Duration;

use dray_bus::Meta;
use dray_proto::v1;
use dray_types::Deadline;

use crate::cache::ClaimKeeper;
use crate::chat_positions::ChatPositions;
use crate::error::DeliveryError;
use crate::gather::{GatherRequest, RequestContext};
use crate::records::{self, RecordError};

/// How long a request waits for the session's chat. Without a response, the worker takes the place later.
pub(crate) const SESSION_TIMEOUT: Duration = Duration::from_secs(2);

/// A chat, and the delivery that has a place in it.
#[derive(Debug)]
struct QueuedDelivery {
    chat: String,
    delivery: String,
    is_new: bool,
}

/// Accepts requests to send files, before any worker has them.
#[derive(Clone, Debug)]
pub(crate) struct RequestIntake {
    pub(crate) context: RequestContext,
    pub(crate) claims: ClaimKeeper,
    pub(crate) places: ChatPositions,
}

impl RequestIntake {
    /// Publishes a request as work.
    pub(crate) async fn accept(
        &self,
        meta: &Meta,
        work: &v1::SendFileRequested,
    ) -> Result<v1::DeliveryAccepted, DeliveryError> {
        let delivery_timeout = self.context.config.get().delivery_timeout.as_duration();
        let deadline =
            Deadline::after(self.context.clock.now_ms(), delivery_timeout).max(meta.deadline);
        let envelope = meta.clone().with_deadline(deadline);
        let work = self.claims.with_kept_claims(meta, work).await?;
        // The position is taken before the publication, so that the next request of the same caller gets a later place.
        let position = self.take_place(meta, &work).await?;
        let published = self.context.bus.publish_work(&envelope, &work).await;
        let is_repeated = published
            .as_ref()
            .is_ok_and(|published| published.duplicate);
        if let Some(position) = position
            && position.is_new
            && (is_repeated || published.is_err())
        {
            self.places
                .release_place(&position.chat, &position.delivery)
                .await;
        }
        let published = published?;
        Ok(v1::DeliveryAccepted {
            delivery_id: meta.operation.to_string(),
            duplicate: published.duplicate,
        })
    }

    /// Takes the position of a request in its chat. `None` when the chat is not known yet or not allowed: the worker
    /// then reports that, or takes the position.
    ///
    /// # Errors
    /// The bus failed, so the order of the chat is unknown.
    async fn take_place(
        &self,
        meta: &Meta,
        work: &v1::SendFileRequested,
    ) -> Result<Option<QueuedDelivery>, DeliveryError> {
        let gather_request = GatherRequest {
            meta,
            work,
            epoch: 0,
        };
        let session = match self
            .context
            .session(&gather_request, "order", SESSION_TIMEOUT)
            .await
        {
            Ok(session) => session,
            Err(error) => {
                error.log("the chat of a delivery is not known yet");
                return Ok(None);
            }
        };
        let Ok(target) = self.context.target(&gather_request, session.as_ref()) else {
            return Ok(None);
        };
        let Some((_, chat)) = self.places.chat_of(&meta.tenant, &target).await else {
            return Ok(None);
        };
        let delivery = records::record_key(&meta.tenant, &meta.operation);
        let position = self.places.order.take(&chat, &delivery).await;
        let position = position.map_err(RecordError::Unreachable)?;
        Ok(Some(QueuedDelivery {
            chat,
            delivery,
            is_new: position.is_new,
        }))
    }
}
