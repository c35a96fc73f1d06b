//! Dead letters: work that was given up, why, and its restart.

mod redrive;

use axum::Extension;
use axum::extract::{Path, State};
use axum::response::Response;
use dray_bus::dead::{
    DeadLetterDetails, DeadLetterPart, DeadLetterSummary, LetterError, LetterFilter, LetterState,
};
use dray_bus::headers::SCHEMA_HEADER;
use dray_proto::json::{hide_secrets, is_secret_name, message_json};
use dray_proto::v1;
use dray_types::{Fault, FaultCode, RedactedUrl};
use http::{StatusCode, Uri};
use maud::{Markup, html};

use crate::calls::{PAGE_TIMEOUT, fault_notice, list_status};
use crate::form::{FormFields, unknown_value};
use crate::page::{PageFrame, token_field};
use crate::pager::{LETTER_PAGES, ListPager};
use crate::session::ConsoleSession;
use crate::state::ConsoleState;
use crate::text::{operation_path, shown, time_element, url_part};

pub(crate) use redrive::redrive_selected;

/// Letters on one page.
const MAX_LETTERS: usize = 100;
/// Letters whose state is read for one page.
const MAX_EXAMINED_LETTERS: usize = 1_000;

impl ConsoleState {
    /// Letters of this tenant, oldest first, from a part of the stream that is read in the time of a page.
    async fn find_letters(
        &self,
        states: Vec<LetterState>,
        area: &str,
        from: u64,
    ) -> Result<DeadLetterPart, Fault> {
        let filter = LetterFilter {
            tenant: Some(self.tenant.clone()),
            area: (!area.is_empty()).then(|| area.to_owned()),
            states,
            ..LetterFilter::default()
        };
        let letters = self.bus.dead_letters();
        let finding = letters.find_part(&filter, from, MAX_LETTERS, MAX_EXAMINED_LETTERS);
        with_page_timeout(finding).await
    }

    /// One letter of this tenant. A letter of another tenant counts as not found.
    async fn read_letter(&self, sequence: u64) -> Result<DeadLetterDetails, Fault> {
        let letters = self.bus.dead_letters();
        let details = with_page_timeout(letters.show(sequence)).await?;
        // The stream contains letters of all tenants, and a sequence number can be guessed.
        let tenant = details.summary.subject.rsplit('.').next();
        if tenant == Some(self.tenant.token().as_str()) {
            Ok(details)
        } else {
            Err(letter_fault(&LetterError::NotFound(sequence)))
        }
    }
}

/// Limits a read of the stream to [`PAGE_TIMEOUT`], and converts its error to a fault.
async fn with_page_timeout<T>(
    reading: impl Future<Output = Result<T, LetterError>>,
) -> Result<T, Fault> {
    match tokio::time::timeout(PAGE_TIMEOUT, reading).await {
        Ok(Ok(read)) => Ok(read),
        Ok(Err(error)) => Err(letter_fault(&error)),
        Err(_) => Err(unreachable_fault("the bus did not respond in time")),
    }
}

fn unreachable_fault(reason: &str) -> Fault {
    Fault::new(
        FaultCode::Unavailable,
        format!("The dead letters cannot be reached: {reason}."),
    )
    .detail("bus_unavailable")
    .advice("Check that the bus works, that its streams exist, and that the console may read them.")
}

fn missing_letter(sequence: &str) -> Fault {
    Fault::new(
        FaultCode::NotFound,
        format!("The dead letter {sequence} does not exist for this tenant."),
    )
    .detail("no_dead_letter")
}

fn letter_fault(error: &LetterError) -> Fault {
    match error {
        LetterError::NotFound(sequence) => missing_letter(&sequence.to_string()),
        LetterError::Transport(cause) => unreachable_fault(&cause.to_string()),
        other => Fault::new(FaultCode::Unavailable, format!("{other}.")),
    }
}

/// `GET /letters`: the open letters, unless the query names another state.
pub(crate) async fn list_page(
    State(state): State<ConsoleState>,
    Extension(session): Extension<ConsoleSession>,
    uri: Uri,
) -> Response {
    let query = FormFields::of_query(&uri);
    let (area, state_name) = (query.get("area"), query.get("state"));
    let selection = selected_states(state_name)
        .and_then(|states| Ok((states, query.parse_value("from")?.unwrap_or(1))));
    let found = match selection {
        Ok((states, from)) => state.find_letters(states, area, from).await,
        Err(fault) => Err(fault),
    };
    let status = found.as_ref().map_or_else(list_status, |_| StatusCode::OK);
    let filter = format!("state={}&area={}", url_part(state_name), url_part(area));
    let content = html! {
        (filter_form(area, state_name))
        @match &found {
            Err(fault) => (fault_notice("Dead letters cannot be listed.", fault)),
            Ok(part) => {
                @if part.letters.is_empty() && part.next.is_some() {
                    p { "None of the " (MAX_EXAMINED_LETTERS) " letters from here on has this state and area." }
                } @else { (letter_table(&session, &part.letters)) }
                (ListPager::of_query(LETTER_PAGES, &query).links("/letters", &filter, &next_position(part)))
            }
        }
    };
    frame(&state, &session, "Dead letters").render_as(status, &content)
}

/// Where the next page begins; empty for the last page.
fn next_position(part: &DeadLetterPart) -> String {
    part.next.map_or_else(String::new, |next| next.to_string())
}

/// The states that the query names; empty for all.
fn selected_states(name: &str) -> Result<Vec<LetterState>, Fault> {
    match name {
        // Only open letters wait for an operator.
        "" => Ok(vec![LetterState::Open]),
        "all" => Ok(Vec::new()),
        // An unknown name does not mean all letters, because a person would take them for the requested ones.
        name => LetterState::ALL_STATES
            .into_iter()
            .find(|state| state.as_str() == name)
            .map(|state| vec![state])
            .ok_or_else(|| unknown_value("state", name)),
    }
}

fn frame<'a>(
    state: &'a ConsoleState,
    session: &'a ConsoleSession,
    title: &'a str,
) -> PageFrame<'a> {
    PageFrame {
        state,
        session,
        section: "/letters",
        title,
    }
}

fn filter_form(area: &str, selected_state: &str) -> Markup {
    html! {
        form.filters method="get" action="/letters" {
            label { "State "
                select name="state" {
                    @for state in LetterState::ALL_STATES {
                        option value=(state.as_str()) selected[state.as_str() == selected_state] { (state.as_str()) }
                    }
                    option value="all" selected[selected_state == "all"] { "all" }
                }
            }
            label { "Area " input name="area" value=(area); }
            button { "Show" }
        }
    }
}

fn letter_table(session: &ConsoleSession, letters: &[DeadLetterSummary]) -> Markup {
    html! {
        @if letters.is_empty() { p { "No dead letters." } }
        @else {
            form method="post" action="/letters/redrive" {
                (token_field(session))
                table {
                    caption { "Oldest first" }
                    thead { tr {
                        th scope="col" {
                            // The script shows the checkbox, because only the script can act on it.
                            @if session.can_act() { input type="checkbox" data-choose-all aria-label="Choose all letters of this page" hidden; " " }
                            "Letter"
                        }
                        th scope="col" { "Given up" } th scope="col" { "Why" }
                        th scope="col" { "Operation" }
                    } }
                    tbody { @for letter in letters { (letter_row(session, letter)) } }
                }
                @if session.can_act() { (redrive_buttons()) }
            }
        }
    }
}

fn letter_row(session: &ConsoleSession, letter: &DeadLetterSummary) -> Markup {
    let sequence = letter.sequence;
    let can_start = matches!(letter.state, LetterState::Open | LetterState::Unknown);
    html! {
        tr {
            td data-label="Letter" {
                @if session.can_act() && can_start {
                    input type="checkbox" name="letter" value=(sequence) aria-label={ "Choose letter " (sequence) }; " "
                }
                a href={ "/letters/" (sequence) } { "#" (sequence) }
                " " span.state data-state=(letter.state.as_str()) { (letter.state.as_str()) }
            }
            td data-label="Given up" {
                (time_element(letter.last_error_ms)) " after " (letter.attempts) " attempts"
            }
            td data-label="Why" {
                (shown(&letter.fault.message)) " " span.muted { code { (letter.fault.code) "/" (letter.fault.detail) } }
            }
            td data-label="Operation" { (operation_link(letter)) }
        }
    }
}

fn operation_link(letter: &DeadLetterSummary) -> Markup {
    html! {
        @if letter.operation.is_empty() { "none" }
        @else { a href=(operation_path(&letter.operation)) { (shown(&letter.operation)) } }
        " " span.muted { (shown(&letter.subject)) }
    }
}

fn redrive_buttons() -> Markup {
    html! {
        p.toolbar {
            button name="mode" value="plan" { "Show what a restart would do" }
            button name="mode" value="start" { "Start again" }
        }
    }
}

/// `GET /letters/{sequence}`: one letter with its message.
pub(crate) async fn letter_page(
    State(state): State<ConsoleState>,
    Extension(session): Extension<ConsoleSession>,
    Path(sequence): Path<String>,
) -> Response {
    let read = match sequence.parse() {
        Ok(sequence) => state.read_letter(sequence).await,
        Err(_) => Err(missing_letter(&shown(&sequence))),
    };
    let title = format!("Dead letter #{}", shown(&sequence));
    let frame = frame(&state, &session, &title);
    match &read {
        Ok(details) => frame.render(&letter_details(&session, details)),
        Err(fault) => frame.render_failure(
            "The dead letter cannot be shown.",
            fault,
            ("/letters", "the dead letters"),
        ),
    }
}

fn letter_details(session: &ConsoleSession, details: &DeadLetterDetails) -> Markup {
    let DeadLetterDetails { summary, letter } = details;
    let can_start = matches!(summary.state, LetterState::Open | LetterState::Unknown);
    html! {
        (fault_notice("It was given up.", &summary.fault))
        dl {
            dt { "State" } dd { span.state data-state=(summary.state.as_str()) { (summary.state.as_str()) } }
            dt { "Operation" } dd { (operation_link(summary)) }
            dt { "First failure" } dd { (time_element(summary.first_error_ms)) }
            dt { "Last failure" } dd { (time_element(summary.last_error_ms)) }
            dt { "Attempts" } dd { (summary.attempts) ", handed out " (summary.delivered) " times" }
            dt { "Service" } dd { "version " (shown(&letter.service_version)) }
        }
        @if session.can_act() && can_start {
            form method="post" action="/letters/redrive" {
                (token_field(session))
                input type="hidden" name="letter" value=(summary.sequence);
                (redrive_buttons())
            }
        }
        h2 { "Message" }
        @if !summary.complete { p { "The letter holds only the beginning of the message." } }
        p.muted { "Contents are shown by size; credentials and the queries of URLs are hidden." }
        pre { code { (payload_text(letter)) } }
        h2 { "Headers" }
        dl { @for header in &letter.headers {
            dt { (shown(&header.name)) } dd { (header_text(header)) }
        } }
    }
}

/// The message with its secrets hidden.
fn payload_text(letter: &v1::DeadLetter) -> String {
    let schema = letter
        .headers
        .iter()
        .find(|header| header.name == SCHEMA_HEADER)
        .map_or("", |header| header.value.as_str());
    // Secrets are hidden after decoding, because the position of a secret in the encoded message is not known.
    let mut message = message_json(schema, &letter.payload);
    hide_secrets(&mut message);
    format!("{message:#}")
}

fn header_text(header: &v1::Header) -> String {
    if is_secret_name(&header.name) {
        "(hidden)".to_owned()
    } else if header.value.contains("://") {
        RedactedUrl::from_text(&header.value).to_string()
    } else {
        shown(&header.value)
    }
}
