//! Failures of calls to other services, as sentences for the agent.

use dray_bus::CallError;
use dray_proto::export::ExportError;
use dray_tool::{HandledFailure, ToolFailure};
use dray_types::{Fault, FaultCode};
use thiserror::Error;

/// Another service of the platform, with the name for agents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PeerService {
    /// The file-resolver, which also reads documents.
    Documents,
    /// The egress-fetcher, for addresses of the web.
    Web,
    /// The service sandbox-transfer, for files of sandboxes.
    Sandbox,
    /// The service platform-delivery, for files to a person's chat.
    Delivery,
    /// The artifact store that all services share.
    Store,
    /// The file API of DIAL Core.
    Drive,
    /// The service that creates tickets.
    Tickets,
}

impl PeerService {
    /// The service's name for agents.
    pub const fn title(self) -> &'static str {
        match self {
            Self::Documents => "The service that reads files",
            Self::Web => "The service that fetches from the web",
            Self::Sandbox => "The sandbox service",
            Self::Delivery => "The service that delivers files",
            Self::Store => "The file store",
            Self::Drive => "The file storage",
            Self::Tickets => "The service that makes links",
        }
    }
}

/// The reason why a service returned no usable response. Its text is for the agent.
#[derive(Debug, Error)]
pub enum CallFailure {
    /// The service refused the call, with its own message.
    #[error("{}", fault_text(.0))]
    Refused(Fault),
    /// No service is listening.
    #[error("{} is not reachable at the moment; try again later.", .0.title())]
    Unreachable(
        PeerService,
        #[source] Option<Box<dyn std::error::Error + Send + Sync>>,
    ),
    /// The service did not respond in time.
    #[error("{} did not respond in time; try again later.", .0.title())]
    TimedOut(PeerService),
    /// The service's response is malformed.
    #[error("{} returned an unusable response; try again later.", .0.title())]
    Malformed(PeerService),
    /// The copy has no proof that it is complete.
    #[error("Nothing proves that the copy out of the sandbox is complete; try again.")]
    Unproven,
}

impl From<ExportError> for CallFailure {
    fn from(error: ExportError) -> Self {
        match error {
            ExportError::NotExportable => Self::Refused(error.into()),
            ExportError::Reply(_) => Self::Malformed(PeerService::Sandbox),
            ExportError::Unproven => Self::Unproven,
        }
    }
}

impl CallFailure {
    /// The failure behind an error of the bus.
    pub(crate) fn of(peer: PeerService, error: CallError) -> Self {
        match error {
            CallError::Fault(fault) => Self::fault(peer, fault),
            CallError::Timeout(_) => Self::TimedOut(peer),
            CallError::Reply(_) => Self::Malformed(peer),
            CallError::TooLarge { .. } => Self::Refused(Fault::from(error)),
            CallError::NoResponder(_) | CallError::CircuitOpen(_) | CallError::Transport(_) => {
                Self::Unreachable(peer, Some(Box::new(error)))
            }
        }
    }

    /// The failure for a fault. A fault that means that the service cannot work now counts as an unavailable service.
    pub(crate) fn fault(peer: PeerService, fault: Fault) -> Self {
        if fault.code == FaultCode::Unavailable
            && matches!(
                fault.detail.as_str(),
                "no_responder" | "bus_unavailable" | "draining"
            )
        {
            return Self::Unreachable(peer, Some(Box::new(fault)));
        }
        Self::Refused(fault)
    }

    /// The failure of the store.
    pub(crate) fn store(error: impl Into<Fault>) -> Self {
        let fault = error.into();
        if fault.code == FaultCode::Unavailable {
            return Self::Unreachable(PeerService::Store, Some(Box::new(fault)));
        }
        Self::Refused(fault)
    }

    /// The fault, when the service refused.
    pub const fn refusal(&self) -> Option<&Fault> {
        match self {
            Self::Refused(fault) => Some(fault),
            Self::Unreachable(..) | Self::TimedOut(_) | Self::Malformed(_) | Self::Unproven => None,
        }
    }
}

/// The two sentences of a fault.
fn fault_text(fault: &Fault) -> String {
    if fault.advice.is_empty() {
        fault.message.clone()
    } else {
        format!("{} {}", fault.message, fault.advice)
    }
}

impl From<CallFailure> for ToolFailure {
    fn from(failure: CallFailure) -> Self {
        HandledFailure::new(failure.to_string())
            .because(failure)
            .into()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_absent_service_is_reported_in_a_sentence_that_invites_to_try_again() {
        let away = CallError::NoResponder("dray.egress.v1.fetch".to_owned());
        assert_eq!(
            CallFailure::of(PeerService::Web, away).to_string(),
            "The service that fetches from the web is not reachable at the moment; try again later."
        );
        let open = CallError::CircuitOpen("sandbox".to_owned());
        assert_eq!(
            CallFailure::of(PeerService::Sandbox, open).to_string(),
            "The sandbox service is not reachable at the moment; try again later."
        );
        let late = CallError::Timeout("dray.sandbox.v1.get".to_owned());
        assert_eq!(
            CallFailure::of(PeerService::Sandbox, late).to_string(),
            "The sandbox service did not respond in time; try again later."
        );
    }

    #[test]
    fn a_refusal_is_passed_on_in_the_words_of_the_service() {
        let fault =
            Fault::new(FaultCode::NotFound, "The file does not exist.").advice("List first.");
        let failure = ToolFailure::from(CallFailure::of(
            PeerService::Sandbox,
            CallError::Fault(fault),
        ));
        assert_eq!(failure.to_string(), "The file does not exist. List first.");
    }

    #[test]
    fn no_sentence_names_a_subject_or_a_cause() {
        let error = CallError::NoResponder("dray.secret.v1.verb".to_owned());
        let failure = ToolFailure::from(CallFailure::of(PeerService::Store, error));
        assert!(!failure.to_string().contains("dray."), "{failure}");
    }
}
