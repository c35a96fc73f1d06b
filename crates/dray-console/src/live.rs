//! Events as they happen: a table that grows while the page is open, and charts of the last hour.
//!
//! The browser names the last row that it has, so a pause or a lost connection misses no row that is still in the
//! index. Rows that left the index before they were read are counted, and the page shows their number.

mod chart;

use std::collections::VecDeque;
use std::convert::Infallible;
use std::time::Duration;

use axum::Extension;
use axum::body::Body;
use axum::extract::State;
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse as _, Response};
use dray_types::Sha256Digest;
use futures_util::stream;
use http::{HeaderMap, StatusCode, Uri};
use maud::{Markup, html};
use tokio::sync::watch;

use crate::form::FormFields;
use crate::index::{EVENT_SERVICES, EventRow, IndexSlice, RowFilter, RowOutcome};
use crate::page::PageFrame;
use crate::pager::{EVENT_PAGES, ListPager};
use crate::respond;
use crate::session::ConsoleSession;
use crate::state::ConsoleState;
use crate::streams::StreamPermit;
use crate::text::{duration_text, file_path, operation_path, time_element};

/// Rows of a page when it opens.
const FIRST_ROWS: usize = 100;
/// Most rows that a page shows; the script removes older ones and counts them.
const MAX_PAGE_ROWS: usize = 500;
/// Rows of one message to the browser.
const MAX_BATCH_ROWS: usize = 250;
/// Pause between two messages: a person does not notice it, and a thousand events cause few changes of the page.
const BATCH_INTERVAL: Duration = Duration::from_millis(250);
/// Interval of comments that keep proxies from closing a quiet stream.
const KEEP_ALIVE_INTERVAL: Duration = Duration::from_secs(15);

/// `GET /live`: the newest events, to which the script adds newer ones.
pub(crate) async fn live_page(
    State(state): State<ConsoleState>,
    Extension(session): Extension<ConsoleSession>,
    uri: Uri,
) -> Response {
    let frame = PageFrame {
        state: &state,
        session: &session,
        section: "/live",
        title: "Live",
    };
    let query = FormFields::of_query(&uri);
    let selected = RowFilter::of_fields(&query)
        .and_then(|filter| Ok((filter, query.parse_value::<u64>("before")?)));
    let (filter, before) = match selected {
        Ok(selected) => selected,
        Err(fault) => {
            let all = ("/live", "all events");
            return frame.render_failure("The events cannot be filtered.", &fault, all);
        }
    };
    if let Some(before) = before {
        let pager = ListPager::of_query(EVENT_PAGES, &query);
        return frame.render(&older_page(&state, &filter, before, &pager));
    }
    let newest = state.index.newest(&filter, FIRST_ROWS);
    let content = html! {
        (filter_form(&filter))
        section #charts aria-label="The last hour" data-source="/live/charts" { (chart::charts(&state)) }
        p.toolbar {
            button #pause type="button" aria-pressed="false" hidden { "Pause" }
            span #live-status role="status" { "Reload the page to see newer events." }
        }
        div #live data-source={ "/live/events?" (filter.query()) } data-last=(newest.read_to) data-max-rows=(MAX_PAGE_ROWS) {
            (event_table(newest.rows.iter().map(AsRef::as_ref), "Newest first"))
        }
        p #left-out.muted data-count="0" hidden {}
        (older_link(&filter, &newest))
        (index_limit(&state, &newest))
    };
    frame.render(&content)
}

/// A page of events before a row. It does not grow while it is open.
fn older_page(state: &ConsoleState, filter: &RowFilter, before: u64, pager: &ListPager) -> Markup {
    let older = state
        .index
        .newest_before(before, FIRST_ROWS, |row| filter.admits(row));
    html! {
        (filter_form(filter))
        @if older.rows.is_empty() { p { "The index has no older events." } }
        @else { (event_table(older.rows.iter().map(AsRef::as_ref), "Older events, newest first")) }
        (pager.links("/live", &filter.query(), &older_position(&older)))
        (index_limit(state, &older))
    }
}

/// The last row of a full page, before which the next page begins; empty for the last page.
fn older_position(shown: &IndexSlice) -> String {
    let last = shown.rows.last().filter(|_| shown.rows.len() == FIRST_ROWS);
    last.map_or_else(String::new, |row| row.id.to_string())
}

/// The link to the events before the last one of the live page.
fn older_link(filter: &RowFilter, shown: &IndexSlice) -> Markup {
    let is_full = shown.rows.len() == FIRST_ROWS;
    let last = shown.rows.last().map_or(0, |row| row.id);
    html! {
        // The script shows the link when it removes rows of the page, and then lets it begin after the last remaining
        // row.
        p #older hidden[!is_full] { a href={ "/live?" (filter.query()) "&before=" (last) } rel="next" { "Older events" } }
    }
}

fn index_limit(state: &ConsoleState, shown: &IndexSlice) -> Markup {
    html! {
        p.muted {
            "The console keeps the newest " (state.settings.max_events) " events of this tenant. "
            @if shown.left_out > 0 { (shown.left_out) " older ones left out." }
        }
    }
}

fn filter_form(filter: &RowFilter) -> Markup {
    html! {
        form.filters method="get" action="/live" {
            label { "Service "
                select name="service" {
                    option value="" { "all" }
                    @for service in EVENT_SERVICES {
                        option value=(service) selected[service == filter.service] { (service) }
                    }
                }
            }
            label { "Outcome "
                select name="outcome" {
                    option value="" { "all" }
                    @for outcome in RowOutcome::ALL_OUTCOMES {
                        option value=(outcome.as_str()) selected[Some(outcome) == filter.outcome] { (outcome.as_str()) }
                    }
                }
            }
            label { "Session " input name="session" value=(filter.session); }
            label { "Operation " input name="operation" value=(filter.operation); }
            button { "Filter" }
        }
    }
}

/// A table of events, in the order of the rows.
pub(crate) fn event_table<'a>(rows: impl Iterator<Item = &'a EventRow>, caption: &str) -> Markup {
    table_since(rows, caption, None)
}

/// The events of one operation, each with the time since `begin_ms`, its first event: many steps have the same second
/// in the column of times.
pub(crate) fn timeline_table<'a>(
    rows: impl Iterator<Item = &'a EventRow>,
    caption: &str,
    begin_ms: u64,
) -> Markup {
    table_since(rows, caption, Some(begin_ms))
}

fn table_since<'a>(
    rows: impl Iterator<Item = &'a EventRow>,
    caption: &str,
    begin_ms: Option<u64>,
) -> Markup {
    html! {
        table.events {
            caption { (caption) }
            thead { tr {
                th scope="col" { "Time" }
                @if begin_ms.is_some() { th scope="col" { "After" } }
                th scope="col" { "Event" } th scope="col" { "What happened" }
                th scope="col" { "Took" } th scope="col" { "Operation" }
            } }
            tbody { @for row in rows { (event_row(row, begin_ms)) } }
        }
    }
}

fn event_row(row: &EventRow, begin_ms: Option<u64>) -> Markup {
    html! {
        // The script removes the mark of a start event when the row of the end event comes.
        tr data-id=(row.id) data-begun=[row.open_key()] data-ended=[row.ended_key()] {
            td data-label="Time" { (time_element(row.time_ms)) }
            @if let Some(begin_ms) = begin_ms {
                td data-label="After" { (duration_text(row.time_ms.saturating_sub(begin_ms))) }
            }
            td data-label="Event" {
                span.state data-state=(row.outcome.as_str()) { (row.outcome.as_str()) } " " (row.kind)
                @if !row.session.is_empty() { " " span.muted { "session " (row.session) } }
            }
            td data-label="What happened" {
                (row.summary)
                @if row.open_key().is_some() { " " (no_end_mark()) }
                @for (name, value) in &row.proofs { " " span.proof { (name) " " (proof_value(name, value)) } }
            }
            td data-label="Took" { @match row.duration_ms { Some(time) => (duration_text(time)), None => "–" } }
            td data-label="Operation" {
                @if row.operation.is_empty() { "–" }
                @else { a href=(operation_path(&row.operation)) { (row.operation) } }
            }
        }
    }
}

/// The mark of a turn or a call whose end is not in the index. It says nothing about whether it still runs.
pub(crate) fn no_end_mark() -> Markup {
    html! { span.state data-state="working" data-no-end { "no end seen" } }
}

/// The value of a proof. A digest links to the page of its file.
fn proof_value(name: &str, value: &str) -> Markup {
    let digest: Option<Sha256Digest> = (name == "sha256").then(|| value.parse().ok()).flatten();
    html! {
        @if let Some(digest) = digest { a href=(file_path(digest)) { code { (value) } } }
        @else { code { (value) } }
    }
}

/// `GET /live/charts`: the charts alone, for the script.
pub(crate) async fn chart_fragment(State(state): State<ConsoleState>) -> Response {
    let body = Body::from(chart::charts(&state).into_string());
    respond::with_type(StatusCode::OK, "text/html; charset=utf-8", body)
}

/// `GET /live/events?after=ID`: rows after `after`, or after `Last-Event-ID` if the browser reconnects.
pub(crate) async fn live_events(
    State(state): State<ConsoleState>,
    Extension(session): Extension<ConsoleSession>,
    headers: HeaderMap,
    uri: Uri,
) -> Response {
    let Some(permit) = state.streams.open(&session.login) else {
        return respond::plain_text(
            StatusCode::SERVICE_UNAVAILABLE,
            "Too many live pages are open. Close one.",
        );
    };
    let fields = FormFields::of_query(&uri);
    let filter = match RowFilter::of_fields(&fields) {
        Ok(filter) => filter,
        Err(fault) => return respond::plain_text(StatusCode::BAD_REQUEST, &fault.message),
    };
    // A browser that reconnects repeats the first URL, and this header has the last row that it received.
    let last_id = headers.get("last-event-id");
    let last_id = last_id.and_then(|id| id.to_str().ok()?.parse().ok());
    let reader = LiveReader {
        newest: state.index.watch_newest(),
        after: last_id.or(fields.get("after").parse().ok()).unwrap_or(0),
        filter,
        login: session.login,
        is_first: true,
        queued: VecDeque::new(),
        state,
        _permit: permit,
    };
    let events = stream::unfold(reader, async |mut reader| {
        let event = reader.next_event().await?;
        Some((Ok::<_, Infallible>(event), reader))
    });
    // Comments, which browsers ignore. Writing them also detects a connection that was closed.
    let keep_alive = KeepAlive::new().interval(KEEP_ALIVE_INTERVAL);
    Sse::new(Box::pin(events))
        .keep_alive(keep_alive)
        .into_response()
}

/// The stream of one open page.
struct LiveReader {
    state: ConsoleState,
    newest: watch::Receiver<u64>,
    filter: RowFilter,
    /// Id of the last row that was sent to the page, or that its filter rejected.
    after: u64,
    login: String,
    is_first: bool,
    /// Messages that are sent next.
    queued: VecDeque<Event>,
    _permit: StreamPermit,
}

impl LiveReader {
    /// Waits for rows. `None` ends the stream: the console stops, or the login ended.
    async fn next_event(&mut self) -> Option<Event> {
        if let Some(event) = self.queued.pop_front() {
            return Some(event);
        }
        let stop = self.state.stop.clone();
        loop {
            if !self.is_first {
                let batch_pause = tokio::time::sleep(BATCH_INTERVAL);
                stop.run_until_cancelled(batch_pause).await?;
            }
            self.is_first = false;
            if !self
                .state
                .sessions
                .is_open(&self.login, self.state.now_ms())
            {
                return None;
            }
            // The state is marked as seen before the rows are read, so that a row that comes in between wakes the next
            // wait.
            self.newest.borrow_and_update();
            let slice = self
                .state
                .index
                .after(self.after, &self.filter, MAX_BATCH_ROWS);
            if slice.left_out > 0 {
                // The rows themselves follow with the next message.
                self.after += slice.left_out;
                let event = Event::default().event("gap").id(self.after.to_string());
                return Some(event.data(slice.left_out.to_string()));
            }
            let is_behind = slice.read_to > self.after;
            self.after = slice.read_to;
            self.queue_messages(&slice);
            if let Some(event) = self.queued.pop_front() {
                return Some(event);
            }
            if !is_behind {
                let changed = self.newest.changed();
                stop.run_until_cancelled(changed).await?.ok()?;
            }
        }
    }

    /// Queues the messages about rows, and about ends of turns and calls whose beginnings may be on the page.
    fn queue_messages(&mut self, slice: &IndexSlice) {
        if !slice.ended.is_empty() {
            let keys = serde_json::json!(slice.ended).to_string();
            self.queued
                .push_back(Event::default().event("ended").data(keys));
        }
        if !slice.rows.is_empty() {
            // The newest row comes first, as on the page: the script puts each batch before the rows that it has.
            let rows = html! { @for row in slice.rows.iter().rev() { (event_row(row, None)) } };
            let event = Event::default().event("rows").data(rows.into_string());
            self.queued.push_back(event);
        }
        // Only the last message has the id: a browser that loses its connection before that message gets both again.
        if let Some(last) = self.queued.pop_back() {
            self.queued.push_back(last.id(self.after.to_string()));
        }
    }
}
