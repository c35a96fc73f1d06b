//! The turns of agents on the page of an operation, from the events of the index.
//!
//! A turn without an end in the index is shown as a turn without an end: it may run, its process may have died, or its
//! event was lost.

use std::collections::HashMap;
use std::sync::Arc;

use maud::{Markup, html};

use crate::index::EventRow;
use crate::live::no_end_mark;
use crate::text::{duration_text, operation_path, shown, time_element};

/// Most turns of a page. Clients that name one trace for all their requests have more.
const MAX_TURNS: usize = 50;

/// A turn with the rows of its events, of which one may have left the index.
#[derive(Default)]
struct ShownTurn<'a> {
    begin: Option<&'a EventRow>,
    end: Option<&'a EventRow>,
}

impl<'a> ShownTurn<'a> {
    /// The row of the end, which has more facts. While the end is not known, the row of the beginning.
    fn row(&self) -> Option<&'a EventRow> {
        self.end.or(self.begin)
    }
}

/// The turns among the rows of an operation and its traces, in the order in which they began; nothing without a turn.
pub(crate) fn turn_list(rows: &[Arc<EventRow>], operation: &str) -> Markup {
    let turns = turns_of(rows);
    html! {
        @if !turns.is_empty() {
            section {
                h2 { "Turns of agents" }
                ol.steps {
                    @for turn in turns.iter().take(MAX_TURNS) {
                        @if let Some(row) = turn.row() { li { (turn_record(turn, row, operation)) } }
                    }
                }
                @if turns.len() > MAX_TURNS {
                    p.muted { (turns.len() - MAX_TURNS) " further turns of this trace are among the events below." }
                }
            }
        }
    }
}

/// One entry for each operation that is a turn.
fn turns_of(rows: &[Arc<EventRow>]) -> Vec<ShownTurn<'_>> {
    let mut turns: Vec<ShownTurn<'_>> = Vec::new();
    let mut positions = HashMap::new();
    for row in rows.iter().map(AsRef::as_ref) {
        if row.turn.is_none() {
            continue;
        }
        let position = *positions
            .entry(row.operation.as_str())
            .or_insert(turns.len());
        if position == turns.len() {
            turns.push(ShownTurn::default());
        }
        if let Some(turn) = turns.get_mut(position) {
            let event = if row.ended_key().is_some() {
                &mut turn.end
            } else {
                &mut turn.begin
            };
            *event = Some(row);
        }
    }
    turns
}

fn turn_record(turn: &ShownTurn<'_>, row: &EventRow, operation: &str) -> Markup {
    let facts = row.turn.clone().unwrap_or_default();
    html! {
        p {
            @match turn.end {
                Some(end) => span.state data-state=(end.outcome.as_str()) { (end.outcome.as_str()) },
                None => (no_end_mark()),
            }
            " " strong { (facts.agent) } " " (row.summary)
        }
        dl {
            @if row.operation != operation {
                dt { "Operation" } dd { a href=(operation_path(&row.operation)) { (shown(&row.operation)) } }
            }
            @if !facts.parent.is_empty() {
                dt { "Part of" } dd { a href=(operation_path(&facts.parent)) { (facts.parent) } }
            }
            @if !row.session.is_empty() { dt { "Session" } dd { (row.session) } }
            @if let Some(begin) = turn.begin { dt { "Began" } dd { (time_element(begin.time_ms)) } }
            dt { "Ended" }
            dd {
                @match turn.end {
                    Some(end) => (time_element(end.time_ms)),
                    None => "The index has no end of this turn: it runs, its process ended without a report, or the report was lost.",
                }
            }
            @if let Some(duration_ms) = row.duration_ms { dt { "Took" } dd { (duration_text(duration_ms)) } }
            @for (name, value) in row.proofs.iter().chain(&facts.details) { dt { (name) } dd { (value) } }
        }
    }
}
