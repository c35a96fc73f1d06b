//! Responses: JSON, failures, and streams of chunks (quickapps 3.2, 3.3, 4).

use std::convert::Infallible;

use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use dray_agent::event::{AnswerEnd, Event, StageStatus};
use dray_agent::failure::RequestFailure;
use dray_agent::wire::{ChunkWriter, DONE_LINE, MergedAnswer, write_event_line};
use futures_util::stream;
use serde_json::Value;

use super::response_headers::SHOULD_RETRY_HEADER;
use super::run::{AnswerRun, NextEvent};

const MAX_EVENTS_PER_WRITE: usize = 64;
/// A comment of an event stream (WHATWG HTML 9.2.6): clients pass over it, and proxies keep the connection.
pub(super) const KEEP_ALIVE_LINE: &[u8] = b": keep-alive\n\n";

/// Options for writing a response.
#[derive(Clone, Copy, Debug)]
pub(super) struct ReplyOptions {
    /// Whether the client speaks `OpenAI`'s API and not DIAL's.
    pub(super) is_plain: bool,
    /// Whether a stream reports its token usage in a separate chunk after the end chunk.
    pub(super) usage_in_own_chunk: bool,
    /// How long a stream may be silent before a comment is sent; `None` for never.
    pub(super) heartbeat: Option<Duration>,
}

/// JSON with a status.
pub(super) fn json_response(status: StatusCode, body: &Value) -> Response {
    let kind = [(header::CONTENT_TYPE, "application/json")];
    (status, kind, body.to_string()).into_response()
}

/// A failure with its status.
pub(super) fn failure_response(failure: &RequestFailure) -> Response {
    let status = StatusCode::from_u16(failure.status)
        .ok()
        .filter(|status| status.is_client_error() || status.is_server_error());
    let status = status.unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let mut response = json_response(status, &failure.body());
    if failure.is_final {
        let no_retry = header::HeaderValue::from_static("false");
        response.headers_mut().insert(SHOULD_RETRY_HEADER, no_retry);
        return response;
    }
    let default_delay = (status == StatusCode::SERVICE_UNAVAILABLE).then_some(1);
    if let Some(seconds) = failure.retry_after_seconds.or(default_delay) {
        let seconds = header::HeaderValue::from(seconds);
        response.headers_mut().insert(header::RETRY_AFTER, seconds);
    }
    response
}

/// The whole answer in one response.
pub(super) async fn whole_response(
    mut run: AnswerRun,
    mut writer: ChunkWriter,
    options: ReplyOptions,
) -> Result<Response, RequestFailure> {
    let mut merged = MergedAnswer::default();
    merged.add(writer.start());
    loop {
        match run.next().await {
            NextEvent::Event(event) => writer
                .event(event)
                .into_iter()
                .for_each(|chunk| merged.add(chunk)),
            NextEvent::Ended(ended) => {
                let ending = ended?;
                // Stages that the agent left open would have no status in the merged answer.
                let closing = writer.close_open(StageStatus::Completed);
                for chunk in closing {
                    merged.add(chunk);
                }
                if let Some(annotations) = writer.annotations() {
                    merged.add(annotations);
                }
                merged.add(writer.end(&ending));
                let answer = if options.is_plain {
                    merged.into_plain_answer()
                } else {
                    merged.into_answer()
                };
                return Ok(json_response(StatusCode::OK, &answer));
            }
        }
    }
}

/// The answer as a stream. Status and first chunk are sent when there is something to show; until then a failure gets
/// its own HTTP status.
pub(super) async fn streamed_response(
    mut run: AnswerRun,
    writer: ChunkWriter,
    options: ReplyOptions,
) -> Result<Response, RequestFailure> {
    let head = run.head().await?;
    let stream = ChunkStream {
        run,
        writer,
        options,
    };
    let first = Some((stream, Some(head)));
    let chunks = stream::unfold(first, |state| async move {
        let (stream, head) = state?;
        let (bytes, stream) = match head {
            Some(head) => stream.begin(head),
            None => stream.next_frame().await,
        };
        Some((
            Ok::<_, Infallible>(bytes),
            stream.map(|stream| (stream, None)),
        ))
    });
    let headers = [
        (header::CONTENT_TYPE, "text/event-stream"),
        (header::CACHE_CONTROL, "no-cache"),
    ];
    Ok((headers, Body::from_stream(chunks)).into_response())
}

/// A stream that has begun.
struct ChunkStream {
    run: AnswerRun,
    writer: ChunkWriter,
    options: ReplyOptions,
}

impl ChunkStream {
    fn begin(mut self, head: Vec<Event>) -> (Bytes, Option<Self>) {
        let mut out = Vec::new();
        self.writer.write_start(&mut out);
        for event in head {
            self.writer.write_event(&mut out, event);
        }
        (out.into(), Some(self))
    }

    /// The bytes of all events that are ready. Waits for the first event only.
    async fn next_frame(mut self) -> (Bytes, Option<Self>) {
        let mut out = Vec::new();
        let next = match self.options.heartbeat {
            // This is cancellation safe: an event that is not taken stays in its channel.
            Some(silence) => match tokio::time::timeout(silence, self.run.next()).await {
                Ok(next) => next,
                Err(_elapsed) => return (KEEP_ALIVE_LINE.into(), Some(self)),
            },
            None => self.run.next().await,
        };
        match next {
            NextEvent::Event(event) => {
                self.writer.write_event(&mut out, event);
                // All events that are ready are sent together, so that many small events need few writes.
                for _ in 1..MAX_EVENTS_PER_WRITE {
                    let Some(event) = self.run.ready() else { break };
                    self.writer.write_event(&mut out, event);
                }
                (out.into(), Some(self))
            }
            NextEvent::Ended(ended) => {
                self.finish(&mut out, ended);
                (out.into(), None)
            }
        }
    }

    fn finish(&mut self, out: &mut Vec<u8>, ended: Result<AnswerEnd, RequestFailure>) {
        let status = match &ended {
            Ok(_) => StageStatus::Completed,
            Err(_) => StageStatus::Failed,
        };
        for chunk in self.writer.close_open(status) {
            write_event_line(out, &chunk);
        }
        if let Some(annotations) = self.writer.annotations().filter(|_| ended.is_ok()) {
            write_event_line(out, &annotations);
        }
        match ended {
            Ok(ending) if self.options.usage_in_own_chunk => {
                let without_usage = AnswerEnd {
                    reason: ending.reason,
                    ..AnswerEnd::default()
                };
                write_event_line(out, &self.writer.end(&without_usage));
                write_event_line(out, &self.writer.usage(&ending));
            }
            Ok(ending) => write_event_line(out, &self.writer.end(&ending)),
            Err(failure) => {
                // The HTTP status is already sent, so the end chunk, the error and `[DONE]` report the failure
                // (quickapps 4). Clients of `OpenAI`'s API take a finish reason for the end of a complete answer.
                if !self.options.is_plain {
                    write_event_line(out, &self.writer.end_of_failed());
                }
                write_event_line(out, &failure.body());
            }
        }
        out.extend_from_slice(DONE_LINE);
    }
}
