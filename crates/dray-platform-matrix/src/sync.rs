//! Messages that we ask for.

use std::time::Duration;

use dray_platform::{ErrorKind, InboundSink, PlatformError};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::api::{MatrixApi, encode_path_segment};
use crate::event;
use crate::options::MatrixOptions;

/// Pauses after a failure: the first, and the longest of those that double.
const FIRST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);
/// Most messages of one room in one answer.
const MAX_ROOM_MESSAGES: u64 = 100;
/// Most further answers for a room in which more was written.
const MAX_PAGES: usize = 20;

/// Asks, hands over, and asks for what is newer.
#[derive(Debug)]
pub(crate) struct SyncLoop<'a> {
    pub(crate) account: &'a str,
    pub(crate) options: &'a MatrixOptions,
    pub(crate) api: &'a MatrixApi,
    /// Older messages are not handed over, in Unix milliseconds.
    pub(crate) since: u64,
}

impl SyncLoop<'_> {
    pub(crate) async fn run(
        &self,
        deliver: &dyn InboundSink,
        stop: &CancellationToken,
    ) -> Result<(), PlatformError> {
        let mut me = String::new();
        let mut next = None;
        let mut pause = FIRST_PAUSE;
        while !stop.is_cancelled() {
            let asked = tokio::select! {
                asked = self.ask(&mut me, next.as_deref()) => asked,
                () = stop.cancelled() => break,
            };
            // What was received is stored to the end even when we are to stop; only then the next is asked for.
            let done = match asked {
                Ok(told) => self.hand_over(&me, next.as_deref(), &told, deliver).await,
                Err(error) => Err(error),
            };
            let error = match done {
                Ok(newer) => {
                    next = Some(newer);
                    pause = FIRST_PAUSE;
                    continue;
                }
                Err(error) => error,
            };
            if error.kind() == ErrorKind::Auth {
                return Err(error);
            }
            tracing::warn!(%error, "no messages");
            let wait = error.retry_after().unwrap_or(pause);
            pause = (pause * 2).min(LONGEST_PAUSE);
            tokio::select! {
                () = tokio::time::sleep(wait) => {}
                () = stop.cancelled() => break,
            }
        }
        Ok(())
    }

    async fn ask(&self, me: &mut String, since: Option<&str>) -> Result<Value, PlatformError> {
        if me.is_empty() {
            let told = self.api.get("/client/v3/account/whoami", &[]).await?;
            let user = told.get("user_id").and_then(Value::as_str);
            user.unwrap_or_default().clone_into(me);
        }
        let none = json!({ "types": [] });
        let filter = json!({
            "presence": none,
            "account_data": none,
            "room": {
                "account_data": none,
                "ephemeral": none,
                "state": none,
                "timeline": { "types": ["m.room.message"], "limit": MAX_ROOM_MESSAGES },
            },
        });
        let wait = self.options.poll_wait.as_millis().to_string();
        let filter = filter.to_string();
        let mut query = vec![("filter", filter.as_str())];
        // The first answer comes immediately.
        if let Some(since) = since {
            query.extend([("since", since), ("timeout", wait.as_str())]);
        }
        let longest =
            self.options.poll_wait.as_duration() + self.options.answer_timeout.as_duration();
        self.api.wait(&query, longest).await
    }

    /// Stores the messages in their order; what to ask for next. The first that cannot be stored ends it, and is sent
    /// again.
    async fn hand_over(
        &self,
        me: &str,
        since: Option<&str>,
        told: &Value,
        deliver: &dyn InboundSink,
    ) -> Result<String, PlatformError> {
        let next = told.get("next_batch").and_then(Value::as_str);
        let next =
            next.ok_or_else(|| PlatformError::new(ErrorKind::Transient, "no answer of a sync"))?;
        let rooms = told.pointer("/rooms/join").and_then(Value::as_object);
        for (room, news) in rooms.into_iter().flatten() {
            let timeline = news.get("timeline").unwrap_or(&Value::Null);
            let mut events = self.missed(room, since, timeline).await?;
            events.extend(event_list(timeline.get("events")));
            for event in &events {
                let at = event.get("origin_server_ts").and_then(Value::as_u64);
                if at.is_some_and(|at| at < self.since) {
                    continue;
                }
                if let Some(message) = event::inbound_message(self.account, me, room, event) {
                    deliver.message(message).await?;
                }
            }
        }
        Ok(next.to_owned())
    }

    /// What was written between the last answer and a timeline that was cut, oldest first.
    async fn missed(
        &self,
        room: &str,
        since: Option<&str>,
        timeline: &Value,
    ) -> Result<Vec<Value>, PlatformError> {
        let text = |name: &str| timeline.get(name).and_then(Value::as_str);
        let is_cut = timeline.get("limited").and_then(Value::as_bool) == Some(true);
        let (true, Some(since), Some(from)) = (is_cut, since, text("prev_batch")) else {
            return Ok(Vec::new());
        };
        let path = format!("/client/v3/rooms/{}/messages", encode_path_segment(room));
        let filter = json!({ "types": ["m.room.message"] }).to_string();
        let limit = MAX_ROOM_MESSAGES.to_string();
        let mut from = from.to_owned();
        let mut all = Vec::new();
        for _ in 0..MAX_PAGES {
            let query = [
                ("dir", "b"),
                ("from", from.as_str()),
                ("to", since),
                ("limit", limit.as_str()),
                ("filter", filter.as_str()),
            ];
            let page = self.api.get(&path, &query).await?;
            let events = event_list(page.get("chunk"));
            let end = page.get("end").and_then(Value::as_str).map(str::to_owned);
            let is_last = events.is_empty();
            all.extend(events);
            match end {
                Some(end) if !is_last => from = end,
                _ => break,
            }
        }
        all.reverse();
        Ok(all)
    }
}

fn event_list(events: Option<&Value>) -> Vec<Value> {
    events
        .and_then(Value::as_array)
        .cloned()
        .unwrap_or_default()
}
