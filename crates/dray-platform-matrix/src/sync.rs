//! Receives messages by `sync` requests.

use std::collections::HashSet;
use std::time::Duration;

use dray_platform::{ErrorKind, InboundSink, PlatformError};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::api::{MatrixApi, encode_path_segment};
use crate::event;
use crate::options::MatrixOptions;

/// Delay after the first failure; it doubles with each further one.
const FIRST_RETRY_DELAY: Duration = Duration::from_secs(1);
/// Longest delay after a failure.
const MAX_RETRY_DELAY: Duration = Duration::from_secs(30);
/// Most messages of one room in one response.
const MAX_ROOM_MESSAGES: u64 = 100;
/// Most further responses for a room with more messages than fit one response.
const MAX_PAGES: usize = 100;
/// Events that are requested. Own memberships show that a room was joined again.
const EVENT_TYPES: [&str; 2] = ["m.room.message", "m.room.member"];

/// Requests messages and stores them, in a loop.
#[derive(Debug)]
pub(crate) struct SyncLoop<'a> {
    pub(crate) account: &'a str,
    pub(crate) options: &'a MatrixOptions,
    pub(crate) api: &'a MatrixApi,
    /// Unix milliseconds; messages that were sent before are ignored when their room is seen for the first time.
    pub(crate) oldest_ms: u64,
}

impl SyncLoop<'_> {
    pub(crate) async fn run(
        &self,
        deliver: &dyn InboundSink,
        stop: &CancellationToken,
    ) -> Result<(), PlatformError> {
        let mut own_user = String::new();
        let mut known_rooms = HashSet::new();
        let mut next = None;
        let mut retry_delay = FIRST_RETRY_DELAY;
        while !stop.is_cancelled() {
            // Dropping the request loses nothing: without its token, the next one returns the same.
            let response = tokio::select! {
                response = self.request_sync(&mut own_user, next.as_deref()) => response,
                () = stop.cancelled() => break,
            };
            // The response is handled outside the select: received messages are stored completely, even if the receiver
            // should stop.
            let done = match response {
                Ok(synced) => self
                    .store_messages(
                        &own_user,
                        next.as_deref(),
                        &known_rooms,
                        &synced,
                        deliver,
                        stop,
                    )
                    .await
                    .map(|newer| (newer, synced)),
                Err(error) => Err(error),
            };
            let error = match done {
                Ok((Some(newer), synced)) => {
                    note_rooms(&mut known_rooms, &synced);
                    // The token is updated only here, so that the same events are returned again after an error.
                    next = Some(newer);
                    retry_delay = FIRST_RETRY_DELAY;
                    continue;
                }
                // The sync stopped before all was stored; the next start reads it again.
                Ok((None, _)) => break,
                Err(error) => error,
            };
            // Another attempt would fail in the same way: waiting does not make an invalid token valid.
            if error.kind() == ErrorKind::Auth {
                return Err(error);
            }
            tracing::warn!(%error, "could not fetch messages");
            let wait = error.retry_after().unwrap_or(retry_delay);
            retry_delay = (retry_delay * 2).min(MAX_RETRY_DELAY);
            tokio::select! {
                () = tokio::time::sleep(wait) => {}
                () = stop.cancelled() => break,
            }
        }
        Ok(())
    }

    async fn request_sync(
        &self,
        own_user: &mut String,
        since: Option<&str>,
    ) -> Result<Value, PlatformError> {
        // The own user is requested once, because the token belongs to one user.
        if own_user.is_empty() {
            let identity = self.api.get("/client/v3/account/whoami", &[]).await?;
            let user = identity.get("user_id").and_then(Value::as_str);
            user.unwrap_or_default().clone_into(own_user);
        }
        // An empty list of types excludes all events of a section. Only messages are read.
        let no_events = json!({ "types": [] });
        let filter = json!({
            "presence": no_events,
            "account_data": no_events,
            "room": {
                "account_data": no_events,
                "ephemeral": no_events,
                "state": no_events,
                "timeline": { "types": EVENT_TYPES, "limit": MAX_ROOM_MESSAGES },
            },
        });
        let wait = self.options.poll_wait.as_millis().to_string();
        let filter = filter.to_string();
        let mut query = vec![("filter", filter.as_str())];
        // Without a token the server responds immediately, with the newest messages of each room.
        if let Some(since) = since {
            query.extend([("since", since), ("timeout", wait.as_str())]);
        }
        let longest =
            self.options.poll_wait.as_duration() + self.options.response_timeout.as_duration();
        self.api.sync(&query, longest).await
    }

    /// Stores the messages in their order, and returns the token of the next request; `None` when it was stopped. The
    /// first message that cannot be stored ends it; the complete response is then requested again, and known messages
    /// are dropped by their ids.
    async fn store_messages(
        &self,
        own_user: &str,
        since: Option<&str>,
        known_rooms: &HashSet<String>,
        synced: &Value,
        deliver: &dyn InboundSink,
        stop: &CancellationToken,
    ) -> Result<Option<String>, PlatformError> {
        let next = synced.get("next_batch").and_then(Value::as_str);
        let next = next.ok_or_else(|| {
            PlatformError::new(
                ErrorKind::Transient,
                "the response to the sync has no next_batch",
            )
        })?;
        let rooms = synced.pointer("/rooms/join").and_then(Value::as_object);
        for (room, room_data) in rooms.into_iter().flatten() {
            let timeline = room_data.get("timeline").unwrap_or(&Value::Null);
            let Some(mut events) = self.fetch_missed(room, since, timeline, stop).await? else {
                return Ok(None);
            };
            events.extend(event_list(timeline.get("events")));
            let is_known = known_rooms.contains(room) && !has_joined(own_user, &events);
            for event in &events {
                // This limits the first response and the response after a join: both contain messages of any age. Later
                // responses have only new messages, even if the clock of the server is slow.
                let sent_ms = event.get("origin_server_ts").and_then(Value::as_u64);
                let is_old = sent_ms.is_some_and(|sent_ms| sent_ms < self.oldest_ms);
                if is_old && !is_known {
                    continue;
                }
                if let Some(message) = event::inbound_message(self.account, own_user, room, event) {
                    deliver.message(message).await?;
                }
            }
        }
        Ok(Some(next.to_owned()))
    }

    /// The messages between the last response and a limited timeline, oldest first; `None` when it was stopped.
    async fn fetch_missed(
        &self,
        room: &str,
        since: Option<&str>,
        timeline: &Value,
        stop: &CancellationToken,
    ) -> Result<Option<Vec<Value>>, PlatformError> {
        let text = |name: &str| timeline.get(name).and_then(Value::as_str);
        let is_limited = timeline.get("limited").and_then(Value::as_bool) == Some(true);
        // On the first request, no message can have been missed.
        let (true, Some(since), Some(from)) = (is_limited, since, text("prev_batch")) else {
            return Ok(Some(Vec::new()));
        };
        let path = format!("/client/v3/rooms/{}/messages", encode_path_segment(room));
        let filter = json!({ "types": EVENT_TYPES }).to_string();
        let limit = MAX_ROOM_MESSAGES.to_string();
        let mut from = from.to_owned();
        let mut missed_events = Vec::new();
        let mut is_complete = false;
        for _ in 0..MAX_PAGES {
            let query = [
                ("dir", "b"),
                ("from", from.as_str()),
                ("to", since),
                ("limit", limit.as_str()),
                ("filter", filter.as_str()),
            ];
            let page = tokio::select! {
                page = self.api.get(&path, &query) => page?,
                () = stop.cancelled() => return Ok(None),
            };
            missed_events.extend(event_list(page.get("chunk")));
            // Without `end` the beginning was reached. A page may be empty before, because the filter applies to it.
            match page.get("end").and_then(Value::as_str) {
                Some(end) if end != from && end != since => end.clone_into(&mut from),
                _ => {
                    is_complete = true;
                    break;
                }
            }
        }
        if !is_complete {
            let fetched = missed_events.len();
            tracing::warn!(fetched, "more messages were missed than are fetched");
        }
        // The pages were read backwards.
        missed_events.reverse();
        Ok(Some(missed_events))
    }
}

/// Whether the account joined the room in these events: the messages before it may have any age.
fn has_joined(own_user: &str, events: &[Value]) -> bool {
    let text = |event: &Value, pointer: &str| {
        let value = event.pointer(pointer).and_then(Value::as_str);
        value.unwrap_or_default().to_owned()
    };
    events.iter().any(|event| {
        text(event, "/type") == "m.room.member"
            && text(event, "/state_key") == own_user
            && text(event, "/content/membership") == "join"
            // A change of the name or picture is an event of this kind as well.
            && text(event, "/unsigned/prev_content/membership") != "join"
    })
}

/// Notes the rooms of a response whose messages are stored. A room that is left is new after the next join.
fn note_rooms(known_rooms: &mut HashSet<String>, synced: &Value) {
    let rooms = |kind: &str| synced.pointer(kind).and_then(Value::as_object);
    if let Some(joined) = rooms("/rooms/join") {
        known_rooms.extend(joined.keys().cloned());
    }
    if let Some(left) = rooms("/rooms/leave") {
        for room in left.keys() {
            known_rooms.remove(room);
        }
    }
}

fn event_list(events: Option<&Value>) -> Vec<Value> {
    events
        .and_then(Value::as_array)
        .cloned()
        .unwrap_or_default()
}
