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

    /// Makes a call that has an effect or takes its time, under its own envelope. It is not repeated once a service has
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

/// The fault of a call. A refusal of the bus itself names the subject, because the operator reads this page.
fn call_fault(error: CallError) -> Fault {
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

/// The fault for something that `holder` does not have: "The store does not have this file."
pub(crate) fn not_found_fault(holder: &str, thing: &str) -> Fault {
    let sentence = format!("{holder} does not have this {thing}.");
    Fault::new(FaultCode::NotFound, sentence)
}

/// The status of a page that shows nothing but this fault, for programs that follow links.
pub(crate) fn fault_status(fault: &Fault) -> StatusCode {
    match fault.code {
        FaultCode::InvalidArgument => StatusCode::BAD_REQUEST,
        FaultCode::NotFound => StatusCode::NOT_FOUND,
        FaultCode::Denied => StatusCode::FORBIDDEN,
        FaultCode::TooLarge => StatusCode::PAYLOAD_TOO_LARGE,
        FaultCode::Unsupported => StatusCode::NOT_IMPLEMENTED,
        FaultCode::RateLimited => StatusCode::TOO_MANY_REQUESTS,
        FaultCode::Timeout => StatusCode::GATEWAY_TIMEOUT,
        FaultCode::Unavailable => StatusCode::SERVICE_UNAVAILABLE,
        FaultCode::Internal => StatusCode::INTERNAL_SERVER_ERROR,
    }
}

/// The status of a list that cannot be shown: a wrong query is the caller's error, and every other page stays one with a
/// notice, which its form and the script expect.
pub(crate) fn list_status(fault: &Fault) -> StatusCode {
    match fault.code {
        FaultCode::InvalidArgument => StatusCode::BAD_REQUEST,
        _ => StatusCode::OK,
    }
}

/// The part of a page whose data could not be read, with the reason. An empty table would claim that there is no data.
pub(crate) fn fault_notice(what: &str, fault: &Fault) -> Markup {
    html! {
        div.notice.problem role="alert" {
            p { strong { (what) " " } (fault.message) }
            @if !fault.advice.is_empty() { p { (fault.advice) } }
            p.muted {
                "Code " code { (fault.code) }
                @if !fault.detail.is_empty() { ", detail " code { (fault.detail) } }
                @if !fault.trace_id.is_empty() { ", trace " code { (fault.trace_id) } }
            }
        }
    }
}
