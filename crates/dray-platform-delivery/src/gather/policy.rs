//! Which session, which chat: only the session's own, unless policy lists others (platform-delivery 14.4).

use std::time::Duration;

use dray_bus::CallError;
use dray_proto::convert::InvalidMessage;
use dray_proto::v1;
use dray_types::Fault;

use super::GatherRequest;
use crate::deliver::{DeliveryService, target_of};
use crate::error::DeliveryError;

impl DeliveryService {
    /// What belongs to the session of the request; asked under the operation with this suffix.
    pub(super) async fn session(
        &self,
        order: &GatherRequest<'_>,
        suffix: &str,
        timeout: Duration,
    ) -> Result<Option<v1::Session>, DeliveryError> {
        let work = order.work;
        if !work.sandbox.is_empty() && !self.config.allow_targets {
            return Err(DeliveryError::NotAllowed("sandbox"));
        }
        if work.session.is_empty() {
            if !self.config.allow_targets {
                return Err(InvalidMessage::Missing("session").into());
            }
            return Ok(None);
        }
        let request = v1::ShowSessionRequest {
            session: work.session.clone(),
        };
        let asked = self
            .bus
            .call(&self.question(order, suffix, timeout), &request)
            .await;
        asked
            .map(Some)
            .map_err(|error| asked_in_vain("the session", error))
    }

    /// Where the files go.
    pub(super) fn target(
        &self,
        order: &GatherRequest<'_>,
        session: Option<&v1::Session>,
    ) -> Result<v1::ChatTarget, DeliveryError> {
        let own = session.and_then(|session| session.chat.clone());
        let Some(wanted) = order.work.target.clone() else {
            return own.ok_or(DeliveryError::NoChat);
        };
        let is_own = own.is_some_and(|own| {
            let without_reply = |target: &v1::ChatTarget| v1::ChatTarget {
                reply_to: String::new(),
                ..target.clone()
            };
            without_reply(&own) == without_reply(&wanted)
        });
        if is_own || self.config.allow_targets || self.config.lists(&target_of(&wanted)) {
            return Ok(wanted);
        }
        Err(DeliveryError::NotAllowed("chat"))
    }
}

/// A question that brought no answer, for the operator and the caller.
pub(crate) fn asked_in_vain(what: &'static str, error: CallError) -> DeliveryError {
    tracing::warn!(
        error = &error as &dyn std::error::Error,
        "{what} cannot be had"
    );
    DeliveryError::Asked {
        what,
        fault: Box::new(Fault::from(error)),
    }
}
