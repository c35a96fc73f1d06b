//! One operation: what the records of services say about it, and every event that carries its id or its trace.
//!
//! The page infers no facts: it shows no step without a record or an event, and no time that was not recorded.

use axum::Extension;
use axum::extract::{Path, State};
use axum::response::Response;
use dray_presentation::size::human_size;
use dray_proto::NamedCode as _;
use dray_proto::v1::{self, TerminalState};
use dray_types::{Fault, FaultCode};
use http::{StatusCode, Uri};
use maud::{Markup, html};

use crate::calls::{fault_notice, fault_status};
use crate::deliveries::{certainty, target_text};
use crate::form::FormFields;
use crate::index::IndexSlice;
use crate::live;
use crate::page::PageFrame;
use crate::pager::ListPager;
use crate::session::ConsoleSession;
use crate::state::ConsoleState;
use crate::text::{
    digest_link, duration_text, offset_text, operation_path, position_text, shown, time_element,
};
use crate::turns;

/// Events on one page.
const PAGE_EVENTS: usize = 500;

/// `GET /operations/{operation}`: the records of services and the events of the index.
pub(crate) async fn operation_page(
    State(state): State<ConsoleState>,
    Extension(session): Extension<ConsoleSession>,
    Path(operation): Path<String>,
    uri: Uri,
) -> Response {
    let begin = FormFields::of_query(&uri).get("after").parse().unwrap_or(0);
    let delivery = v1::DeliveryOutcomeRequest {
        delivery_id: operation.clone(),
        wait_ms: 0,
    };
    let tool_call = v1::ToolCallOutcomeRequest {
        operation_id: operation.clone(),
    };
    // The reads run concurrently, so that an unavailable service costs the page its timeout once and not twice.
    let (delivery, tool_call) = tokio::join!(state.read(&delivery), state.read(&tool_call));
    let events = state.index.of_operation(&operation);
    let tool_call = known_end(tool_call);
    let status = operation_status(delivery.as_ref().err(), tool_call.as_ref().err(), &events);
    let content = html! {
        p { "Operation " code { (shown(&operation)) } }
        (record_part("Delivery", "platform-delivery", &delivery, delivery_record))
        (record_part("Tool call", "file-resolver", &tool_call, tool_call_record))
        (turns::turn_list(&events.rows, &operation))
        (timeline(&state, &operation, &events, begin))
    };
    PageFrame {
        state: &state,
        session: &session,
        section: "",
        title: "Operation",
    }
    .render_as(status, &content)
}

/// The status of the page. Nothing is found if there is neither a record nor an event, unless a service could not be
/// queried.
fn operation_status(
    delivery: Option<&Fault>,
    tool_call: Option<&Fault>,
    events: &IndexSlice,
) -> StatusCode {
    match (delivery, tool_call) {
        (Some(delivery), Some(tool_call)) if events.rows.is_empty() => {
            let is_asked = |fault: &&&Fault| fault.code != FaultCode::NotFound;
            let faults = [delivery, tool_call];
            let unanswered = faults.iter().find(is_asked);
            unanswered.map_or(StatusCode::NOT_FOUND, |fault| fault_status(fault))
        }
        _ => StatusCode::OK,
    }
}

/// The record of a service; nothing if it has none, and a notice if the call failed.
fn record_part<R>(
    title: &str,
    service: &str,
    reply: &Result<R, Fault>,
    show: impl FnOnce(&R) -> Markup,
) -> Markup {
    match reply {
        Ok(record) => html! { section { h2 { (title) } (show(record)) } },
        // Most operations are of one kind only.
        Err(fault) if fault.code == FaultCode::NotFound => html! {},
        Err(fault) => fault_notice(&format!("The records of {service} cannot be read."), fault),
    }
}

fn delivery_record(report: &v1::DeliveryReport) -> Markup {
    let duration_ms = report.ended_at_ms.checked_sub(report.begun_at_ms);
    html! {
        dl {
            dt { "To" } dd { (target_text(report.target.as_ref())) }
            @if !report.session.is_empty() { dt { "Session" } dd { (shown(&report.session)) } }
            dt { "Began" } dd { (time_element(report.begun_at_ms)) }
            dt { "Ended" }
            dd {
                @if report.finished { (time_element(report.ended_at_ms)) }
                @else { "not yet; given up after " (time_element(report.deadline_ms)) }
                @if report.cancelled { " because it was cancelled" }
            }
            @if let Some(duration_ms) = duration_ms.filter(|_| report.finished) {
                dt { "Took" } dd { (duration_text(duration_ms)) }
            }
            @if report.rounds > 0 { dt { "Put back to wait" } dd { (report.rounds) " times" } }
        }
        ol.steps { @for file in &report.files { li { (file_record(file)) } } }
    }
}

/// A file with every proof of its record.
fn file_record(file: &v1::DeliveredFile) -> Markup {
    let state = file.file_state();
    html! {
        p { span.state data-state=(state.name()) { (state.name()) } " " strong { (shown(&file.name)) } }
        dl {
            @if !file.path.is_empty() { dt { "Path in the sandbox" } dd { code { (shown(&file.path)) } } }
            @if let Some(receipt) = &file.transfer {
                dt { "Copied out of the sandbox" } dd { (receipt_text(receipt)) }
            }
            @if !file.sha256.is_empty() {
                dt { "Content" } dd { (human_size(file.size)) ", " (shown(&file.media_type)) ", " (digest_link(&file.sha256)) }
            }
            @if let Some(claim) = &file.claim {
                dt { "Stored" } dd { (time_element(claim.created_at_ms)) ", may expire after " (time_element(claim.expires_at_ms)) }
            }
            @if file.attempts > 0 {
                dt { "Sent" } dd { "as " (file.route_name()) ", visible requests: " (file.attempts) }
            }
            dt { "Certain" } dd { @for sentence in certainty(file) { (sentence) " " } }
        }
    }
}

/// The proof of a transfer in one line.
fn receipt_text(receipt: &v1::TransferReceipt) -> Markup {
    html! {
        (human_size(receipt.bytes)) " via " (shown(&receipt.transport)) " in " (duration_text(receipt.milliseconds))
        ", attempts: " (receipt.attempts) ", compared by " (shown(&receipt.integrity))
        @for skipped in &receipt.skipped { ", gave up " (shown(skipped)) }
        @if !receipt.content_warning.is_empty() { ", contains a secret: " (shown(&receipt.content_warning)) }
        @if !receipt.error.is_empty() { ", failed: " (shown(&receipt.error)) }
    }
}

/// The service responds to every id; only a recorded end shows that the tool call existed.
fn known_end(reply: Result<v1::ToolCallOutcome, Fault>) -> Result<v1::ToolCallOutcome, Fault> {
    let outcome = reply?;
    if outcome.state() == TerminalState::Unspecified && outcome.outcome.is_none() {
        return Err(Fault::new(FaultCode::NotFound, "No end is recorded."));
    }
    Ok(outcome)
}

fn tool_call_record(outcome: &v1::ToolCallOutcome) -> Markup {
    let state = match outcome.state() {
        TerminalState::Unspecified => "not known",
        TerminalState::Done => "done",
        TerminalState::Failed => "failed",
        TerminalState::Expired => "expired before it was done",
        TerminalState::DeadLettered => "given up; it is among the dead letters",
        TerminalState::Unknown => "outcome not known",
    };
    html! {
        dl {
            dt { "State" } dd { (state) }
            @match &outcome.outcome {
                Some(v1::tool_call_outcome::Outcome::Resolved(resolved)) => {
                    dt { "Tool" } dd { (shown(&resolved.tool)) }
                    @for file in resolved.resolved.iter().flat_map(|resolved| &resolved.files) {
                        dt { "Argument " (shown(&file.pointer)) }
                        dd {
                            (shown(&file.reference)) " as " (shown(&file.form))
                            @if file.size > 0 { ", " (human_size(file.size)) }
                            @if !file.sha256.is_empty() { ", " (digest_link(&file.sha256)) }
                        }
                    }
                }
                Some(v1::tool_call_outcome::Outcome::Rejected(rejected)) => {
                    dt { "Tool" } dd { (shown(&rejected.tool)) }
                    dt { "Reason" } dd { (shown(rejected.fault.as_ref().map_or("", |fault| &fault.message))) }
                }
                None => {}
            }
        }
    }
}

fn timeline(state: &ConsoleState, operation: &str, events: &IndexSlice, begin: usize) -> Markup {
    let count = events.rows.len();
    // A position behind the end shows the first page.
    let begin = if begin < count { begin } else { 0 };
    let end = count.min(begin + PAGE_EVENTS);
    let page = events.rows.get(begin..end).unwrap_or_default();
    let begin_ms = events.rows.first().map_or(0, |first| first.time_ms);
    let next = offset_text(if end < count { end } else { 0 });
    html! {
        section {
            h2 { "Events" }
            @if events.rows.is_empty() {
                p { "No event of this operation is in the index." }
            } @else {
                @if page.len() < count { p.muted { (position_text(begin, page.len())) " of " (count) } }
                (live::timeline_table(page.iter().map(AsRef::as_ref), "Oldest first", begin_ms))
                (ListPager::of_offset(begin, PAGE_EVENTS).links(&operation_path(operation), "", &next))
            }
            @if events.left_out > 0 {
                p.muted { "The index keeps the newest " (state.settings.max_events) " events; " (events.left_out)
                    " older ones left it, and some of them may be of this operation." }
            }
        }
    }
}
