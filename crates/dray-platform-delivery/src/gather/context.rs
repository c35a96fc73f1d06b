//! Finds session and chat of a request. Only the session's own chat is allowed, unless policy lists others
//! (platform-delivery 14.4).

use std::time::Duration;

use dray_bus::{Bus, CallError, Meta};
use dray_proto::convert::InvalidMessage;
use dray_proto::v1::{self, DeliveryStage};
use dray_service::ReplaceableValue;
use dray_types::{Clock, Deadline, Fault, OperationId};

use super::GatherRequest;
use crate::config::Config;
use crate::deliver::target_of;
use crate::error::DeliveryError;

/// Handles that requests use: the bus, the time and the configuration.
#[derive(Clone, Debug)]
pub(crate) struct RequestContext {
    pub(crate) bus: Bus,
    pub(crate) clock: Clock,
    pub(crate) config: ReplaceableValue<Config>,
}

impl RequestContext {
    /// Reads the session of the request, by a call whose operation id has this suffix; `None` for a request without a
    /// session.
    pub(crate) async fn session(
        &self,
        gather_request: &GatherRequest<'_>,
        suffix: &str,
        timeout: Duration,
    ) -> Result<Option<v1::Session>, DeliveryError> {
        let work = gather_request.work;
        let config = self.config.get();
        if !work.sandbox.is_empty() && !config.allow_targets {
            return Err(DeliveryError::NotAllowed("sandbox"));
        }
        if work.session.is_empty() {
            if !config.allow_targets {
                return Err(InvalidMessage::Missing("session").into());
            }
            return Ok(None);
        }
        let request = v1::ShowSessionRequest {
            session: work.session.clone(),
        };
        let binding = self
            .bus
            .call(&self.call_meta(gather_request, suffix, timeout), &request)
            .await;
        binding
            .map(Some)
            .map_err(|error| failed_call("the session", error))
    }

    /// The chat to which the files go.
    pub(crate) fn target(
        &self,
        gather_request: &GatherRequest<'_>,
        session: Option<&v1::Session>,
    ) -> Result<v1::ChatTarget, DeliveryError> {
        let own = session.and_then(|session| session.chat.clone());
        let Some(requested) = gather_request.work.target.clone() else {
            return own.ok_or(DeliveryError::NoChat);
        };
        // A reply to another message of the same chat is still the same chat.
        let is_own = own.is_some_and(|own| {
            let without_reply = |target: &v1::ChatTarget| v1::ChatTarget {
                reply_to: String::new(),
                ..target.clone()
            };
            without_reply(&own) == without_reply(&requested)
        });
        let config = self.config.get();
        if is_own || config.allow_targets || config.lists(&target_of(&requested)) {
            return Ok(requested);
        }
        Err(DeliveryError::NotAllowed("chat"))
    }

    /// Publishes a progress report. A lost report is not repeated.
    pub(super) async fn publish_progress(
        &self,
        gather_request: &GatherRequest<'_>,
        stage: DeliveryStage,
        name: &str,
    ) {
        let report = progress_report(gather_request, stage, name);
        let (stage, epoch) = (report.stage_name(), gather_request.epoch);
        let part = format!("{stage}.{epoch}.{:x}", rand::random::<u32>());
        if let Err(error) = self
            .bus
            .publish_event_part(gather_request.meta, &part, &report)
            .await
        {
            tracing::debug!(%error, "report of a delivery was not published");
        }
    }

    /// The envelope of a call for this work that may take `time`.
    pub(super) fn call_meta(
        &self,
        gather_request: &GatherRequest<'_>,
        suffix: &str,
        time: Duration,
    ) -> Meta {
        let deadline = Deadline::after(self.clock.now_ms(), time).min(gather_request.meta.deadline);
        let operation = match suffix {
            "" => gather_request.meta.operation.clone(),
            suffix => OperationId::new(format!(
                "{}-{suffix}",
                gather_request.meta.operation.ledger_token()
            ))
            .unwrap_or_else(|_| gather_request.meta.operation.clone()),
        };
        gather_request
            .meta
            .clone()
            .with_operation(operation)
            .with_deadline(deadline)
    }
}

/// The event that reports one step of gathering one file.
pub(super) fn progress_report(
    gather_request: &GatherRequest<'_>,
    stage: DeliveryStage,
    name: &str,
) -> v1::DeliveryProgressed {
    let mut report = v1::DeliveryProgressed {
        delivery_id: gather_request.meta.operation.to_string(),
        session: gather_request.work.session.clone(),
        name: name.to_owned(),
        ..v1::DeliveryProgressed::default()
    };
    report.set_delivery_stage(stage);
    report
}

/// Logs a call without a usable response for the operator, and makes the error for the caller.
pub(crate) fn failed_call(description: &'static str, error: CallError) -> DeliveryError {
    tracing::warn!(
        error = &error as &dyn std::error::Error,
        "could not fetch {description}"
    );
    DeliveryError::ServiceFault {
        description,
        fault: Box::new(Fault::from(error)),
    }
}
