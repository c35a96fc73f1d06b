//! Errors with which a whole request to this service fails. The failure of a single file is part of its receipt.

use dray_bus::PublishError;
use dray_proto::convert::InvalidMessage;
use dray_types::{Fault, FaultCode};

use crate::accounts::AccountLookupError;
use crate::records::RecordError;

/// The failure of a call or of work as a whole.
#[derive(Debug, thiserror::Error)]
pub enum DeliveryError {
    /// The request breaks its contract.
    #[error("the request is not valid")]
    Request(#[from] InvalidMessage),
    /// Another service refused, or did not respond.
    #[error("{description}: {fault}")]
    ServiceFault {
        /// The service or the record that was asked, for the log.
        description: &'static str,
        /// The service's fault, which the caller gets.
        fault: Box<Fault>,
    },
    /// No chat belongs to the session.
    #[error("no chat is bound to the session")]
    NoChat,
    /// Policy does not allow this target or sandbox.
    #[error("policy does not allow this {0}")]
    NotAllowed(&'static str),
    /// No account can be chosen for the target.
    #[error(transparent)]
    NoAccount(#[from] AccountLookupError),
    /// No account serves the target on this replica, but another one may have it.
    #[error("left to another replica: {0}")]
    OtherReplica(Box<DeliveryError>),
    /// The delivery is unknown.
    #[error("the {0} does not exist")]
    NotFound(&'static str),
    /// The delivery is not over yet.
    #[error("the delivery is still under way")]
    UnderWay,
    /// No file can be delivered again.
    #[error("no part of the delivery can be sent again")]
    NothingToResend,
    /// The record could not be read or written.
    #[error(transparent)]
    Record(#[from] RecordError),
    /// The work could not be published.
    #[error("the work was not published")]
    Publish(#[from] PublishError),
    /// The worker was stopped in the middle.
    #[error("the work was interrupted")]
    Interrupted,
}

impl From<DeliveryError> for Fault {
    fn from(error: DeliveryError) -> Self {
        match error {
            DeliveryError::Request(invalid) => invalid.into(),
            DeliveryError::ServiceFault { fault, .. } => *fault,
            DeliveryError::NoChat => {
                Self::new(FaultCode::NotFound, "No chat belongs to this session.")
                    .detail("no_chat")
                    .advice("Tell the operator to bind a chat to the session.")
            }
            DeliveryError::NotAllowed(description) => Self::new(
                FaultCode::Denied,
                format!("This {description} is not allowed."),
            )
            .detail("not_allowed")
            .advice("Send to the session's own chat, from its own sandbox."),
            DeliveryError::NoAccount(error) => error.into(),
            DeliveryError::OtherReplica(_) => left_to_other_replica(),
            DeliveryError::NotFound(description) => {
                let advice = match description {
                    "delivery" => {
                        "Check the id; a new delivery is known when a worker has taken it."
                    }
                    _ => "",
                };
                Self::new(
                    FaultCode::NotFound,
                    format!("The {description} does not exist."),
                )
                .detail("not_found")
                .advice(advice)
            }
            DeliveryError::UnderWay => Self::new(
                FaultCode::InvalidArgument,
                "The delivery is still under way.",
            )
            .detail("under_way")
            .advice("Wait for its outcome first."),
            DeliveryError::NothingToResend => Self::new(
                FaultCode::InvalidArgument,
                "Every file of this delivery arrived, or was refused for good.",
            )
            .detail("nothing_to_resend")
            .advice("Ask for all files to send them once more."),
            DeliveryError::Record(error) => error.into(),
            DeliveryError::Publish(error) => error.into(),
            DeliveryError::Interrupted => {
                Self::new(FaultCode::Unavailable, "The delivery was interrupted.")
                    .detail("interrupted")
                    .advice("It continues by itself.")
                    .retry_after(std::time::Duration::from_secs(1))
            }
        }
    }
}

/// The fault of work that this replica cannot do, while others may. It parks the work, so that the message reaches
/// them.
pub(crate) fn left_to_other_replica() -> Fault {
    Fault::new(
        FaultCode::Unavailable,
        "This part of the service cannot handle the request yet.",
    )
    .detail("left_to_other_replica")
    .advice("Another part continues by itself.")
    .retry_after(std::time::Duration::from_secs(2))
}

impl DeliveryError {
    /// Logs the whole chain for the operator.
    pub(crate) fn log(&self, description: &str) {
        tracing::warn!(error = self as &dyn std::error::Error, "{description}");
    }
}
