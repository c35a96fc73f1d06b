//! `GET /v1/responses/{id}?stream=true`: the recorded events of a response, and those that follow, whichever process
//! makes it.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::http::{Uri, header};
use axum::response::{IntoResponse as _, Response};
use dray_agent::failure::RequestFailure;
use dray_agent::wire::DONE_LINE;
use futures_util::stream;
use serde_json::{Value, json};
use tokio::sync::{Notify, OwnedSemaphorePermit};
use tokio::time::{Instant, sleep};
use tokio_util::sync::DropGuard;

use super::request::invalid;
use super::takeover::{ResponseCaller, finish_abandoned};
use super::writer::write_response_event;
use crate::http::reply::KEEP_ALIVE_LINE;
use crate::http::routes::HttpSurface;
use crate::http::unsupported_failure;
use crate::responses::{RunState, TAKEOVER_GAP, sequence_of};

/// Longest time between two reads after the end of a response, and while the bus cannot be watched.
const SHORT_INTERVAL: Duration = Duration::from_millis(250);
/// Reads after a notice of the bus, which may come before the events can be read.
const READS_AFTER_NOTICE: u32 = 6;
/// Time between two of these reads.
const NOTICE_INTERVAL: Duration = Duration::from_millis(50);
/// Number of reads after the end of a response at which its last events may still be missing: its process records them
/// after the end.
const READS_AFTER_END: u32 = 12;

/// The query of a request for a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct StreamQuery {
    /// Number of the first event that the client does not have.
    first: u64,
}

impl StreamQuery {
    /// Reads the query; `None` for a request that is not for a stream.
    ///
    /// # Errors
    ///
    /// 400 for values that a member cannot have.
    pub(super) fn read(uri: &Uri) -> Result<Option<Self>, RequestFailure> {
        let (mut streams, mut first) = (false, 0);
        let query = uri.query().unwrap_or_default();
        for (name, value) in url::form_urlencoded::parse(query.as_bytes()) {
            match (&*name, &*value) {
                ("stream" | "include_obfuscation", "false") => {}
                ("stream", "true") => streams = true,
                ("include_obfuscation", "true") => {
                    return Err(unsupported_failure(name, "events are not obfuscated"));
                }
                ("stream" | "include_obfuscation", _) => {
                    return Err(invalid(&name, "It must be true or false."));
                }
                ("starting_after", number) => {
                    let after: u64 = number.parse().map_err(|_| {
                        invalid("starting_after", "It must be the number of an event.")
                    })?;
                    first = after.saturating_add(1);
                }
                _ => {}
            }
        }
        Ok(streams.then_some(Self { first }))
    }
}

/// Reads the events of one response.
struct EventReader {
    surface: Arc<HttpSurface>,
    caller: ResponseCaller,
    id: String,
    /// Index of the batch to read next.
    position: usize,
    /// Number of the event to send next.
    next: u64,
    looks_after_end: u32,
    looks_after_notice: u32,
    /// Notifies when events of the response are recorded.
    recorded: Arc<Notify>,
    /// Ends the notices of what other processes record; `None` without them.
    watch: Option<DropGuard>,
    last_write: Instant,
    // The stream holds the permit until its end: the number of such streams is limited.
    _permit: OwnedSemaphorePermit,
}

/// The result of a read of the recorded events.
enum ReadResult {
    Events(Vec<u8>),
    Last(Vec<u8>),
    Nothing,
}

/// Responds with the events of a response.
///
/// # Errors
///
/// 404 for a response that is not there, 400 for one without events, 503 for too many streams or while the bus fails.
pub(super) async fn resume_stream(
    surface: &Arc<HttpSurface>,
    caller: ResponseCaller,
    id: &str,
    query: StreamQuery,
) -> Result<Response, RequestFailure> {
    let permit = surface.stream_permit()?;
    let responses = &surface.state.responses;
    // The response is checked first, so that an unknown id is a 404.
    responses.require_response(&caller.principal, id).await?;
    let Some(log) = responses.event_log(&caller.principal, id).await? else {
        let reason = "the events of this response are not kept. Only those of a response with 'background' and 'stream' \
                      are, for an hour after its end; poll it without 'stream'";
        return Err(unsupported_failure("stream", reason));
    };
    let recorded = responses.recorded_events().signal(id);
    // The watch begins before the events are read, so that an event which is recorded meanwhile is noticed.
    let watch = match responses.watch_events(&caller.principal, id).await {
        Ok(watch) => Some(surface.running.forward(watch, Arc::clone(&recorded))),
        Err(failure) => {
            tracing::debug!(%failure, id, "the events of a response are not watched");
            None
        }
    };
    let reader = EventReader {
        surface: Arc::clone(surface),
        caller,
        id: id.to_owned(),
        position: log.position_of(query.first),
        next: query.first,
        looks_after_end: 0,
        looks_after_notice: 0,
        recorded,
        watch,
        last_write: Instant::now(),
        _permit: permit,
    };
    let frames = stream::unfold(Some(reader), |reader| async move {
        let mut reader = reader?;
        let stop = reader.surface.stop.clone();
        let (frame, is_last) = tokio::select! {
            // The client resumes at another replica.
            () = stop.cancelled() => return None,
            frame = reader.next_frame() => frame?,
        };
        Some((
            Ok::<_, std::convert::Infallible>(frame),
            (!is_last).then_some(reader),
        ))
    });
    let headers = [
        (header::CONTENT_TYPE, "text/event-stream"),
        (header::CACHE_CONTROL, "no-cache"),
    ];
    Ok((headers, Body::from_stream(frames)).into_response())
}

impl EventReader {
    /// The next bytes, and whether the stream ends after them. `None` ends it without a last event: the response no
    /// longer exists, or cannot be read.
    async fn next_frame(&mut self) -> Option<(Bytes, bool)> {
        let signal = Arc::clone(&self.recorded);
        loop {
            let mut recorded = pin!(signal.notified());
            // The wait begins before the events are read, so that an event which is recorded meanwhile ends it.
            recorded.as_mut().enable();
            let found = self.look().await.inspect_err(|failure| {
                tracing::warn!(%failure, id = self.id, "a resumed stream breaks off");
            });
            match found.ok()? {
                Some(ReadResult::Events(bytes)) if bytes.is_empty() => continue,
                Some(ReadResult::Events(bytes)) => {
                    self.last_write = Instant::now();
                    return Some((bytes.into(), false));
                }
                Some(ReadResult::Last(bytes)) => return Some((bytes.into(), true)),
                Some(ReadResult::Nothing) => {}
                None => return None,
            }
            if self.last_write.elapsed() >= self.surface.options.heartbeat {
                self.last_write = Instant::now();
                return Some((KEEP_ALIVE_LINE.into(), false));
            }
            tokio::select! {
                () = sleep(self.next_interval()) => {}
                () = recorded => self.looks_after_notice = READS_AFTER_NOTICE,
            }
        }
    }

    /// Time until the next read, without a notice.
    fn next_interval(&mut self) -> Duration {
        let options = &self.surface.options;
        let interval = options.poll_interval.min(options.heartbeat);
        if self.looks_after_notice > 0 {
            self.looks_after_notice -= 1;
            return NOTICE_INTERVAL.min(interval);
        }
        if self.looks_after_end > 0 || self.watch.is_none() {
            return SHORT_INTERVAL.min(interval);
        }
        interval
    }

    async fn look(&mut self) -> Result<Option<ReadResult>, RequestFailure> {
        let responses = &self.surface.state.responses;
        let principal = &self.caller.principal;
        let Some(log) = responses.event_log(principal, &self.id).await? else {
            return Ok(None);
        };
        if self.position < log.len() {
            let Some(events) = responses.read_events(&log, self.position).await? else {
                return Ok(None);
            };
            self.position += 1;
            return Ok(Some(self.frame(&events)));
        }
        match responses.run_state(principal, &self.id, false).await? {
            RunState::Gone | RunState::Unreadable => Ok(None),
            RunState::Running { .. } => Ok(Some(ReadResult::Nothing)),
            RunState::Abandoned => {
                let (surface, caller) = (&self.surface, self.caller.clone());
                if finish_abandoned(surface, caller, &self.id).await? {
                    responses.poll(principal, &self.id, true).await?;
                }
                Ok(Some(ReadResult::Nothing))
            }
            RunState::Ended { .. } if self.looks_after_end < READS_AFTER_END => {
                self.looks_after_end += 1;
                Ok(Some(ReadResult::Nothing))
            }
            RunState::Ended { .. } => {
                let stored = responses.get(principal, &self.id).await?;
                let last = last_event(&stored.response, log.next().saturating_add(TAKEOVER_GAP));
                Ok(Some(self.frame(&[last])))
            }
        }
    }

    /// The events that the client does not have.
    fn frame(&mut self, events: &[Value]) -> ReadResult {
        let mut bytes = Vec::new();
        for event in events {
            if sequence_of(event).is_some_and(|number| number >= self.next) {
                write_response_event(&mut bytes, event);
            }
        }
        let last = events.last();
        let end = last.and_then(sequence_of).map_or(0, |number| number + 1);
        self.next = self.next.max(end);
        if last.is_some_and(is_last) {
            bytes.extend_from_slice(DONE_LINE);
            ReadResult::Last(bytes)
        } else {
            ReadResult::Events(bytes)
        }
    }
}

fn is_last(event: &Value) -> bool {
    let kind = event.get("type").and_then(Value::as_str);
    matches!(
        kind,
        Some("response.completed" | "response.incomplete" | "response.failed")
    )
}

/// The last event of a response whose process did not record it.
fn last_event(response: &Value, number: u64) -> Value {
    let kind = match response.get("status").and_then(Value::as_str) {
        Some("completed") => "response.completed",
        Some("incomplete") => "response.incomplete",
        _ => "response.failed",
    };
    json!({"type": kind, "sequence_number": number, "response": response})
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(query: &str) -> Result<Option<StreamQuery>, Option<String>> {
        let uri: Uri = format!("/v1/responses/resp_1?{query}").parse().unwrap();
        StreamQuery::read(&uri).map_err(|failure| failure.param.map(Into::into))
    }

    #[test]
    fn a_query_is_for_a_stream_from_an_event_on_or_refused_by_name() {
        assert_eq!(read("").unwrap(), None);
        assert_eq!(read("stream=false&include=x").unwrap(), None);
        assert_eq!(read("stream=true").unwrap(), Some(StreamQuery { first: 0 }));
        let after = read("stream=true&starting_after=7&include_obfuscation=false");
        assert_eq!(after.unwrap(), Some(StreamQuery { first: 8 }));
        for (query, param) in [
            ("stream=yes", "stream"),
            ("stream=true&starting_after=-1", "starting_after"),
            (
                "stream=true&include_obfuscation=true",
                "include_obfuscation",
            ),
        ] {
            assert_eq!(read(query).unwrap_err().as_deref(), Some(param), "{query}");
        }
    }
}
