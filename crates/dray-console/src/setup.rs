//! The set-up: health of the bus, the store and the services, and the configuration with the source of each value.

pub(crate) mod checks;

use std::time::Duration;

use axum::Extension;
use axum::body::Body;
use axum::extract::State;
use axum::response::Response;
use dray_bus::error::CallError;
use dray_proto::{Call, v1};
use dray_types::OperationId;
use http::StatusCode;
use maud::{Markup, html};
use serde_json::json;

use crate::page::PageFrame;
use crate::respond::with_type;
use crate::rules_in_force::rules_section;
use crate::session::ConsoleSession;
use crate::settings::ConfigValue;
use crate::state::ConsoleState;
use crate::text::shown;

/// How long a service may take to respond to the probe of this page.
const PROBE_TIMEOUT: Duration = Duration::from_secs(2);
/// Id of a session that does not exist, for a probe of sandbox-transfer.
const PROBE_SESSION: &str = "console-probe";

/// `GET /status`: the line about the system's health, for the script of every page.
pub(crate) async fn status_json(State(state): State<ConsoleState>) -> Response {
    let health = state.health.borrow().clone();
    let status = json!({ "working": health.is_working(), "sentence": health.sentence() });
    with_type(
        StatusCode::OK,
        "application/json",
        Body::from(status.to_string()),
    )
}

/// `GET /setup`: health, services and configuration.
pub(crate) async fn setup_page(
    State(state): State<ConsoleState>,
    Extension(session): Extension<ConsoleSession>,
) -> Response {
    let services = probe_services(&state).await;
    let health = state.health.borrow().clone();
    let content = html! {
        h2 { "Bus and store" }
        dl {
            @for (name, part) in health.parts() {
                dt { (name) } dd { (part.label()) @if let Some(reason) = part.reason() { ": " (shown(reason)) } }
            }
        }
        h2 { "Services" }
        table {
            caption { "Asked just now, over the bus" }
            thead { tr { th scope="col" { "Service" } th scope="col" { "Responds" } } }
            tbody { @for (name, response) in &services { tr {
                td data-label="Service" { (name) }
                td data-label="Responds" { (service_state(response)) }
            } } }
        }
        (rules_section(&state).await)
        (checks::check_form(&session))
        (configuration(&state.config))
    };
    PageFrame {
        state: &state,
        session: &session,
        section: "/setup",
        title: "Set-up",
    }
    .render(&content)
}

fn service_state(response: &Result<(), String>) -> Markup {
    match response {
        Ok(()) => html! { span.state data-state="done" { "yes" } },
        Err(reason) => html! { span.state data-state="failed" { "no" } " " (shown(reason)) },
    }
}

/// Makes one call without an effect to every service.
async fn probe_services(state: &ConsoleState) -> [(&'static str, Result<(), String>); 5] {
    let explain = v1::ExplainRequest::sample();
    let receipts = v1::ListReceiptsRequest {
        limit: 1,
        ..v1::ListReceiptsRequest::default()
    };
    let show = v1::ShowSessionRequest {
        session: PROBE_SESSION.to_owned(),
    };
    let outcome = v1::ToolCallOutcomeRequest {
        operation_id: OperationId::mint().to_string(),
    };
    // A digest that no file has.
    let holders = v1::ListFileHoldersRequest {
        sha256: vec![vec![0; 32]],
        limit: 1,
    };
    // The calls run concurrently, so that five unavailable services cost one timeout.
    let (egress, delivery, sandbox, resolver, orchestrator) = tokio::join!(
        probe(state, &explain),
        probe(state, &receipts),
        probe(state, &show),
        probe(state, &outcome),
        probe(state, &holders),
    );
    [
        ("egress-fetcher", egress),
        ("file-resolver", resolver),
        ("orchestrator", orchestrator),
        ("platform-delivery", delivery),
        ("sandbox-transfer", sandbox),
    ]
}

/// Whether a service responds; a fault of its own is a response.
async fn probe<C: Call>(state: &ConsoleState, request: &C) -> Result<(), String> {
    match state.bus.call(&state.meta(PROBE_TIMEOUT), request).await {
        Ok(_) | Err(CallError::Fault(_)) => Ok(()),
        Err(error) => Err(error.to_string()),
    }
}

/// The configuration by section, closed: it has hundreds of values, of which a person looks for one.
fn configuration(config: &[ConfigValue]) -> Markup {
    html! {
        h2 { "Configuration" }
        p.muted { "Of this process at its start. Secrets are hidden; services that run elsewhere have a configuration of their own." }
        @if config.is_empty() { p { "This console has no configuration." } }
        @for values in config.chunk_by(|one, next| section_of(one) == section_of(next)) {
            details {
                summary { code { (values.first().map_or("", section_of)) } " " span.muted { "(" (values.len()) ")" } }
                (value_table(values))
            }
        }
    }
}

/// The first part of a key: the section of the configuration file.
fn section_of(entry: &ConfigValue) -> &str {
    entry
        .key
        .split_once('.')
        .map_or(entry.key.as_str(), |(section, _)| section)
}

fn value_table(values: &[ConfigValue]) -> Markup {
    html! {
        table {
            caption { "Values at the start" }
            thead { tr { th scope="col" { "Key" } th scope="col" { "Value" } th scope="col" { "Source" } } }
            tbody { @for entry in values { tr {
                td data-label="Key" { code { (entry.key) } }
                td data-label="Value" { code { (shown(&entry.value)) } }
                td data-label="Source" { (shown(&entry.source)) }
            } } }
        }
    }
}
