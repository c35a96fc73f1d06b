//! The answer while it arrives, as server-sent events with text, stages, files and the end.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::Extension;
use axum::extract::{Path, State};
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse as _, Response};
use futures_util::stream;
use http::{HeaderMap, StatusCode, Uri};
use maud::html;
use tokio::sync::watch;

use super::conversation::{ChatTurn, Conversation, TurnEnding};
use super::view;
use crate::form::{self, FormFields};
use crate::respond;
use crate::session::ConsoleSession;
use crate::state::ConsoleState;
use crate::streams::StreamPermit;

/// Pause between two messages: a person does not notice it, and many small chunks cause few changes of the page.
const BATCH_INTERVAL: Duration = Duration::from_millis(100);
/// Interval of comments that keep proxies from closing a quiet stream.
const KEEP_ALIVE_INTERVAL: Duration = Duration::from_secs(15);

/// The part of an answer that a page has: bytes of its text, and the revision of stages and files.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct ReadPosition {
    pub(super) text_bytes: usize,
    pub(super) revision: u64,
}

impl ReadPosition {
    /// Reads `BYTES.REVISION`.
    fn parse(text: &str) -> Option<Self> {
        let (text_bytes, revision) = text.split_once('.')?;
        Some(Self {
            text_bytes: text_bytes.parse().ok()?,
            revision: revision.parse().ok()?,
        })
    }
}

impl std::fmt::Display for ReadPosition {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}.{}", self.text_bytes, self.revision)
    }
}

/// `GET /playground/{id}/events?turn=NUMBER&after=POSITION`: the part of the answer after `after`, or after
/// `Last-Event-ID` where the browser reconnects. Ends with the answer.
pub(crate) async fn answer_events(
    State(state): State<ConsoleState>,
    Extension(session): Extension<ConsoleSession>,
    Path(id): Path<String>,
    headers: HeaderMap,
    uri: Uri,
) -> Response {
    if !session.can_act() {
        return form::acting_refused();
    }
    let conversation = match super::find_conversation(&state, &session, &id) {
        Ok(conversation) => conversation,
        Err(fault) => return respond::plain_text(StatusCode::NOT_FOUND, &fault.message),
    };
    let Some(permit) = state.streams.open(&session.login) else {
        return respond::plain_text(
            StatusCode::SERVICE_UNAVAILABLE,
            "Too many live pages are open. Close one.",
        );
    };
    let fields = FormFields::of_query(&uri);
    // A browser that reconnects repeats the first URL, and this header has the last position that it received.
    let last_id = headers.get("last-event-id").and_then(|id| id.to_str().ok());
    let position = last_id.unwrap_or_else(|| fields.get("after"));
    let reader = AnswerReader {
        revision: conversation.watch_revision(),
        conversation,
        turn: fields.get("turn").parse().unwrap_or_default(),
        position: ReadPosition::parse(position).unwrap_or_default(),
        session,
        progress: StreamProgress::First,
        state,
        _permit: permit,
    };
    let events = stream::unfold(reader, async |mut reader| {
        let events = reader.next_events().await?;
        let events = stream::iter(events.into_iter().map(Ok::<_, Infallible>));
        Some((events, reader))
    });
    let events = futures_util::StreamExt::flatten(events);
    let keep_alive = KeepAlive::new().interval(KEEP_ALIVE_INTERVAL);
    Sse::new(Box::pin(events))
        .keep_alive(keep_alive)
        .into_response()
}

/// The progress of a stream.
#[derive(Clone, Copy, PartialEq, Eq)]
enum StreamProgress {
    First,
    Following,
    Ended,
}

/// The stream of one open page.
struct AnswerReader {
    state: ConsoleState,
    session: ConsoleSession,
    conversation: Arc<Conversation>,
    revision: watch::Receiver<u64>,
    turn: usize,
    position: ReadPosition,
    progress: StreamProgress,
    _permit: StreamPermit,
}

impl AnswerReader {
    /// Waits for more of the answer. `None` ends the stream.
    async fn next_events(&mut self) -> Option<Vec<Event>> {
        let stop = self.state.stop.clone();
        loop {
            match self.progress {
                StreamProgress::Ended => return None,
                StreamProgress::First => self.progress = StreamProgress::Following,
                StreamProgress::Following => {
                    let batch_pause = tokio::time::sleep(BATCH_INTERVAL);
                    stop.run_until_cancelled(batch_pause).await?;
                }
            }
            let now_ms = self.state.now_ms();
            if !self.state.sessions.is_open(&self.session.login, now_ms) {
                return None;
            }
            // The state is marked as seen before the answer is read, so that a change in between wakes the next wait.
            self.revision.borrow_and_update();
            // `?` ends the stream: the turn does not exist.
            let events = self.read()?;
            if !events.is_empty() {
                return Some(events);
            }
            let changed = self.revision.changed();
            stop.run_until_cancelled(changed).await?.ok()?;
        }
    }

    /// Events for everything after the position; `None` for a turn that does not exist.
    fn read(&mut self) -> Option<Vec<Event>> {
        let conversation = Arc::clone(&self.conversation);
        conversation.read(|content| {
            let turn = content.turns.get(self.turn)?;
            let mut events = self.new_parts(turn);
            if !matches!(turn.ending, TurnEnding::Running) {
                self.progress = StreamProgress::Ended;
                let end = view::turn_end(&self.session, &self.conversation, self.turn, turn);
                events.push(self.event("end", &end.into_string()));
            }
            Some(events)
        })
    }

    fn new_parts(&mut self, turn: &ChatTurn) -> Vec<Event> {
        let mut events = Vec::new();
        let last_revision = self.position.revision;
        let changed = turn
            .stages
            .iter()
            .filter(|stage| stage.changed_at > last_revision);
        for stage in changed {
            self.position.revision = self.position.revision.max(stage.changed_at);
            let stage = view::stage_item(self.turn, stage);
            events.push(("stage", stage.into_string()));
        }
        if turn.attached_at > last_revision {
            self.position.revision = self.position.revision.max(turn.attached_at);
            let files = view::answer_files(&self.conversation.id, self.turn, turn);
            events.push(("files", html! { (files) }.into_string()));
        }
        // A position outside this answer, or inside a character, yields no text.
        if let Some(more) = turn
            .answer
            .get(self.position.text_bytes..)
            .filter(|more| !more.is_empty())
        {
            self.position.text_bytes = turn.answer.len();
            // The text is sent as JSON, because a line break in the text would end the line of the event.
            events.push(("text", serde_json::Value::from(more).to_string()));
        }
        // Only the last event of a batch has an id, because the position is that after the whole batch: a browser that
        // received a part of it and reconnects must not miss the rest.
        let last = events.len().saturating_sub(1);
        let events = events.into_iter().enumerate();
        events
            .map(|(index, (name, data))| {
                if index == last {
                    self.event(name, &data)
                } else {
                    plain_event(name, &data)
                }
            })
            .collect()
    }

    fn event(&self, name: &str, data: &str) -> Event {
        plain_event(name, data).id(self.position.to_string())
    }
}

fn plain_event(name: &str, data: &str) -> Event {
    // A carriage return ends a line of an event too, and HTML reads it as a line feed.
    Event::default().event(name).data(data.replace('\r', "\n"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_position_survives_its_text() {
        let position = ReadPosition {
            text_bytes: 12,
            revision: 7,
        };
        assert_eq!(ReadPosition::parse(&position.to_string()), Some(position));
        for wrong in ["", "1", "a.b", "1.2.3", "-1.2"] {
            assert_eq!(ReadPosition::parse(wrong), None, "{wrong}");
        }
    }
}
