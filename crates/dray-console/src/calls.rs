//! Calls of services for a page, and their faults for people.

use std::time::Duration;

use dray_bus::Meta;
use dray_bus::error::{CallError, TransportError};
use dray_proto::Call;
use dray_types::{Deadline, Fault, FaultCode};
use http::StatusCode;
use maud::{Markup, html};

use crate::state::ConsoleState;

/// How long a page waits for a service before it shows that the service does not respond.
pub(crate) const PAGE_TIMEOUT: Duration = Duration::from_secs(5);

impl ConsoleState {
    /// The envelope of a new operation of this tenant.
    pub(crate) fn meta(&self, time: Duration) -> Meta {
        Meta::new(self.tenant.clone(), Deadline::after(self.now_ms(), time))
    }

    /// Reads from a service what a page shows. The bus may repeat the call.
    pub(crate) async fn read<C: Call>(&self, request: &C) -> Result<C::Reply, Fault> {
        let meta = self.meta(PAGE_TIMEOUT);
        self.bus.call(&meta, request).await.map_err(call_fault)
    }

    /// Makes a call that has an effect or takes long, under its own envelope. It is not repeated once a service has
    /// accepted it.
    pub(crate) async fn call_once<C: Call>(
        &self,
        meta: &Meta,
        request: &C,
    ) -> Result<C::Reply, Fault> {
        // A resend that the bus repeated would be two deliveries.
        self.bus.call_once(meta, request).await.map_err(call_fault)
    }
}

/// The fault of a call. A service that does not respond is named, and a refusal of the bus itself names the subject,
/// because the operator reads this page.
fn call_fault(error: CallError) -> Fault {
    let silent_service = match &error {
        CallError::NoResponder(subject) | CallError::Timeout(subject) => service_of(subject),
        _ => None,
    };
    if let Some(service) = silent_service {
        let fault = Fault::from(error);
        let message = match fault.code {
            FaultCode::Timeout => format!("The service {service} did not respond in time."),
            _ => format!("The service {service} does not respond: no process of it is on the bus."),
        };
        let named = Fault::new(fault.code, message).detail(fault.detail);
        return named.advice(
            "Check that it runs and reaches the bus. The set-up page shows which services respond.",
        );
    }
    match error {
        CallError::Transport(TransportError::Denied(subject)) => Fault::new(
            FaultCode::Denied,
            format!("The bus does not let the console publish to `{subject}`."),
        )
        .detail("bus_permission")
        .advice("Run the console with the identity that deploy/nats/accounts.conf has for it."),
        other => other.into(),
    }
}

/// The service of a subject, `dray.AREA.v1.VERB`; `None` for an area that no page calls.
fn service_of(subject: &str) -> Option<&'static str> {
    match subject.split('.').nth(1)? {
        "artifact" | "file" => Some("file-resolver"),
        "clientfile" => Some("orchestrator"),
        "delivery" => Some("platform-delivery"),
        "egress" | "question" => Some("egress-fetcher"),
        "preview" | "sandbox" | "session" => Some("sandbox-transfer"),
        _ => None,
    }
}

/// The fault for something that `holder` does not have: "The store does not have this file."
pub(crate) fn not_found_fault(holder: &str, thing: &str) -> Fault {
    let sentence = format!("{holder} does not have this {thing}.");
    Fault::new(FaultCode::NotFound, sentence)
}

/// The status of a page that shows nothing but this fault, for programs that follow links.
pub(crate) fn fault_status(fault: &Fault) -> StatusCode {
    StatusCode::from_u16(fault.code.http_status()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR)
}

/// The status of a list that cannot be shown. A wrong query is an error of the client. After any other fault the status
/// is 200, because the form and the script of the page work with the notice on it.
pub(crate) fn list_status(fault: &Fault) -> StatusCode {
    match fault.code {
        FaultCode::InvalidArgument => StatusCode::BAD_REQUEST,
        _ => StatusCode::OK,
    }
}

/// The part of a page whose data could not be read, with the reason. An empty table would claim that there is no data.
pub(crate) fn fault_notice(description: &str, fault: &Fault) -> Markup {
    html! {
        div.notice.problem role="alert" {
            p { strong { (description) " " } (fault.message) }
            @if !fault.advice.is_empty() { p { (fault.advice) } }
            p.muted {
                "Code " code { (fault.code) }
                @if !fault.detail.is_empty() { ", detail " code { (fault.detail) } }
                @if !fault.trace_id.is_empty() { ", trace " code { (fault.trace_id) } }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_service_that_does_not_respond_is_named() {
        for (error, message, detail) in [
            (
                CallError::NoResponder("dray.delivery.v1.receipts".to_owned()),
                "The service platform-delivery does not respond: no process of it is on the bus.",
                "no_responder",
            ),
            (
                CallError::Timeout("dray.question.v1.list".to_owned()),
                "The service egress-fetcher did not respond in time.",
                "no_answer",
            ),
        ] {
            let fault = call_fault(error);
            assert_eq!(
                (fault.message.as_str(), fault.detail.as_str()),
                (message, detail)
            );
        }
        let other = call_fault(CallError::Timeout("dray.unknown.v1.list".to_owned()));
        assert_eq!(other.detail, "no_answer");
    }
}
