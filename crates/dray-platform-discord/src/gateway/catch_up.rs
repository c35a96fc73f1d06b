//! Messages from events, and messages that were written while there was no session.

use std::collections::VecDeque;

use dray_platform::{DeliveryTarget, ErrorKind, InboundSink, PlatformError};
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use super::cache::GatewayCache;
use super::{GatewayReceiver, GatewaySink};
use crate::{message, question};

/// Start of the times in ids, in Unix milliseconds.
const DISCORD_EPOCH_MS: u64 = 1_420_070_400_000;
/// Most messages in one response.
const MAX_PAGE_MESSAGES: usize = 100;
/// Most responses for one channel before the next channel has its turn.
const MAX_ROUND_PAGES: usize = 10;
/// Kinds of channels that are threads: announcement, public, private.
const THREAD_TYPES: [u64; 3] = [10, 11, 12];

/// Handles an event: stores its messages and caches its channels. After an error, not all of it was stored.
pub(super) async fn handle_event(
    gateway: &GatewayReceiver<'_>,
    cache: &mut GatewayCache,
    (name, event): (&str, &Value),
    sink: &GatewaySink<'_>,
    stop: &CancellationToken,
) -> Result<(), PlatformError> {
    let deliver = sink.deliver;
    // The need is checked with every event and not only with `READY`: when the catch-up failed, the session is resumed,
    // and `READY` is not sent again. The missed messages come before the event, because a later message would hide
    // them.
    if cache.needs_catch_up() {
        let all_messages = |conversation| (conversation, u64::MAX);
        let missed = MissedMessages {
            channels: cache
                .conversations()
                .into_iter()
                .map(all_messages)
                .collect(),
            is_in_a_server: false,
        };
        missed.store(gateway, cache, deliver, stop).await?;
        cache.finish_catch_up();
    }
    match name {
        "INTERACTION_CREATE" => forward_press(gateway, cache, event, sink).await,
        "MESSAGE_CREATE" => {
            let is_in_a_server = event.get("guild_id").is_some_and(Value::is_string);
            store_message(gateway, cache, event, is_in_a_server, deliver).await
        }
        "THREAD_CREATE" | "CHANNEL_CREATE" => {
            cache_channel(cache, event);
            Ok(())
        }
        "GUILD_CREATE" => {
            let list = |name: &str| {
                let items = event.get(name).and_then(Value::as_array);
                items.into_iter().flatten()
            };
            // All are cached before the first is caught up, because a message in a thread needs the thread's parent.
            let channels: Vec<&Value> = list("channels").chain(list("threads")).collect();
            for channel in &channels {
                cache_channel(cache, channel);
            }
            let newest = |channel: &&Value| {
                let text = |name: &str| channel.get(name).and_then(Value::as_str);
                let last = text("last_message_id")?.parse().ok()?;
                Some((text("id")?.to_owned(), last))
            };
            // Messages are read on the first connection too, up to the age that `gateway.since` sets.
            let missed = MissedMessages {
                channels: channels.iter().filter_map(newest).collect(),
                is_in_a_server: true,
            };
            missed.store(gateway, cache, deliver, stop).await
        }
        _ => Ok(()),
    }
}

/// Queues the press of a button. Ignores other interactions.
async fn forward_press(
    gateway: &GatewayReceiver<'_>,
    cache: &mut GatewayCache,
    event: &Value,
    sink: &GatewaySink<'_>,
) -> Result<(), PlatformError> {
    let Some(mut press) = question::button_press(event) else {
        return Ok(());
    };
    let is_in_a_server = event.get("guild_id").is_some_and(Value::is_string);
    resolve_thread(gateway, cache, &mut press.target, is_in_a_server).await?;
    // A press does not wait for room in the queue, because a full queue must not delay messages.
    if sink.presses.try_send(press).is_err() {
        tracing::warn!("too many button presses: one was dropped");
    }
    Ok(())
}

/// Caches a channel or thread. The category of a channel is not its parent.
fn cache_channel(cache: &mut GatewayCache, channel: &Value) {
    let text = |name: &str| channel.get(name).and_then(Value::as_str);
    let kind = channel.get("type").and_then(Value::as_u64);
    let is_thread = kind.is_some_and(|kind| THREAD_TYPES.contains(&kind));
    if let Some(id) = text("id") {
        cache.add_channel(id, text("parent_id").filter(|_| is_thread));
    }
}

/// Stores a message if a person wrote it in a channel that the options allow. Ignores other messages.
///
/// Only messages of events have a `guild_id`, so the caller says whether the channel belongs to a server.
async fn store_message(
    gateway: &GatewayReceiver<'_>,
    cache: &mut GatewayCache,
    event: &Value,
    is_in_a_server: bool,
    deliver: &dyn InboundSink,
) -> Result<(), PlatformError> {
    let Some(mut message) = message::inbound_message(gateway.options, &cache.own_id, event) else {
        return Ok(());
    };
    let channel = message.target.chat.clone();
    resolve_thread(gateway, cache, &mut message.target, is_in_a_server).await?;
    let listed = &gateway.options.channels;
    let target = &message.target;
    let is_listed = |id: &String| *id == target.chat || *id == target.thread;
    if !listed.is_empty() && !listed.iter().any(is_listed) {
        return Ok(());
    }
    let id = message.message_id.parse();
    // The id is noted only after the message was stored, because the next catch-up starts at this id.
    deliver.message(message).await?;
    // An id that is not a number has no order.
    if let Ok(id) = id {
        cache.note_message(&channel, id);
    }
    Ok(())
}

/// If the chat of the target is a thread, makes it the thread of its channel, as in the target of a delivery.
async fn resolve_thread(
    gateway: &GatewayReceiver<'_>,
    cache: &mut GatewayCache,
    target: &mut DeliveryTarget,
    is_in_a_server: bool,
) -> Result<(), PlatformError> {
    if is_in_a_server && !cache.is_known(&target.chat) {
        request_channel_type(gateway, cache, &target.chat).await?;
    }
    if let Some(parent) = cache.parent(&target.chat) {
        target.thread = std::mem::replace(&mut target.chat, parent.to_owned());
    }
    Ok(())
}

/// Requests the type of a channel that no event announced, to find out whether it is a thread.
async fn request_channel_type(
    gateway: &GatewayReceiver<'_>,
    cache: &mut GatewayCache,
    channel: &str,
) -> Result<(), PlatformError> {
    match gateway.api.get(&format!("/channels/{channel}"), &[]).await {
        Ok(channel) => cache_channel(cache, &channel),
        // The bot may not read the channel itself, but gets its messages.
        Err(error) if matches!(error.kind(), ErrorKind::Forbidden | ErrorKind::NotFound) => {
            cache.add_channel(channel, None);
        }
        Err(error) => return Err(error),
    }
    Ok(())
}

/// Channels that may have messages that were not received.
#[derive(Debug)]
struct MissedMessages {
    /// Each channel with the id of its newest message.
    channels: VecDeque<(String, u64)>,
    is_in_a_server: bool,
}

impl MissedMessages {
    /// Stores the messages of all channels since the last handled one, or since `gateway.since`. The channels take
    /// turns of [`MAX_ROUND_PAGES`] pages, so that a long history in one does not delay the others.
    async fn store(
        mut self,
        gateway: &GatewayReceiver<'_>,
        cache: &mut GatewayCache,
        deliver: &dyn InboundSink,
        stop: &CancellationToken,
    ) -> Result<(), PlatformError> {
        while let Some((channel, last)) = self.channels.pop_front() {
            let mut is_complete = false;
            for _ in 0..MAX_ROUND_PAGES {
                if stop.is_cancelled() {
                    return Ok(());
                }
                is_complete = self
                    .store_page(gateway, cache, (&channel, last), deliver)
                    .await?;
                if is_complete {
                    break;
                }
            }
            if !is_complete {
                tracing::info!(channel, "a channel has many missed messages");
                self.channels.push_back((channel, last));
            }
        }
        Ok(())
    }

    /// Stores the next messages of a channel. Returns whether these are all, up to the message `last`.
    async fn store_page(
        &self,
        gateway: &GatewayReceiver<'_>,
        cache: &mut GatewayCache,
        (channel, last): (&str, u64),
        deliver: &dyn InboundSink,
    ) -> Result<bool, PlatformError> {
        // The bits above the lowest 22 are the time of an id, so a time can be compared with ids.
        let oldest = gateway.since.saturating_sub(DISCORD_EPOCH_MS) << 22;
        let after = cache.newest(channel).unwrap_or(oldest);
        // The id becomes a part of a path.
        if last <= after || !message::is_id(channel) {
            return Ok(true);
        }
        let page = list_messages(gateway, channel, after).await?;
        let id = |message: &Value| message.get("id")?.as_str()?.parse::<u64>().ok();
        // Older messages than requested are dropped, because they would cause the same page to be requested for ever.
        let mut missed: Vec<(u64, &Value)> = page
            .iter()
            .filter_map(|message| Some((id(message)?, message)))
            .filter(|(id, _)| *id > after)
            .collect();
        // Oldest first, so that after an interruption only newer messages are missing. Ids grow with time.
        missed.sort_by_key(|(id, _)| *id);
        for (id, message) in &missed {
            store_message(gateway, cache, message, self.is_in_a_server, deliver).await?;
            // The position advances for messages that were not stored too, such as those of bots, so that they are not
            // requested again.
            cache.note_message(channel, *id);
        }
        Ok(page.len() < MAX_PAGE_MESSAGES || missed.is_empty())
    }
}

/// Requests the oldest messages of a channel after an id; none if the bot may see the channel but not read it.
async fn list_messages(
    gateway: &GatewayReceiver<'_>,
    channel: &str,
    after: u64,
) -> Result<Vec<Value>, PlatformError> {
    let path = format!("/channels/{channel}/messages");
    let (after, limit) = (after.to_string(), MAX_PAGE_MESSAGES.to_string());
    let query = [("after", after.as_str()), ("limit", limit.as_str())];
    match gateway.api.get(&path, &query).await {
        Ok(Value::Array(page)) => Ok(page),
        Ok(_) => Err(PlatformError::new(
            ErrorKind::Transient,
            "the response is not a list of messages",
        )),
        Err(error) if matches!(error.kind(), ErrorKind::Forbidden | ErrorKind::NotFound) => {
            tracing::debug!(%error, "could not list the messages of a channel");
            Ok(Vec::new())
        }
        Err(error) => Err(error),
    }
}
