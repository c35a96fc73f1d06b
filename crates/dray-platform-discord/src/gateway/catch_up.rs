//! Messages from events, and messages that were written while there was no session.

use dray_platform::{DeliveryTarget, ErrorKind, InboundSink, PlatformError};
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use super::cache::GatewayCache;
use super::{GatewayReceiver, GatewaySink};
use crate::{message, question};

/// Start of the times in ids, in Unix milliseconds.
const DISCORD_EPOCH_MS: u64 = 1_420_070_400_000;
/// Most messages in one response.
const PAGE_MESSAGES: usize = 100;
/// Most responses for one channel after a reconnection.
const MAX_PAGES: usize = 50;
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
    // Checked with every event and not only with `READY`: when the catch-up failed, the session is resumed, and `READY`
    // is not sent again. The missed messages come before the event, because a later message would hide them.
    if cache.needs_catch_up() {
        for conversation in cache.conversations() {
            let all = (conversation.as_str(), u64::MAX);
            store_missed(gateway, cache, all, deliver, stop).await?;
        }
        cache.finish_catch_up();
    }
    match name {
        "INTERACTION_CREATE" => forward_press(gateway, cache, event, sink).await,
        "MESSAGE_CREATE" => store_message(gateway, cache, event, deliver).await,
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
            for channel in channels {
                let text = |name: &str| channel.get(name).and_then(Value::as_str);
                let last = text("last_message_id").and_then(|id| id.parse().ok());
                // Also on the first connection, up to the age that `gateway.since` sets.
                if let (Some(id), Some(last)) = (text("id"), last) {
                    store_missed(gateway, cache, (id, last), deliver, stop).await?;
                }
            }
            Ok(())
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
async fn store_message(
    gateway: &GatewayReceiver<'_>,
    cache: &mut GatewayCache,
    event: &Value,
    deliver: &dyn InboundSink,
) -> Result<(), PlatformError> {
    let Some(mut message) = message::inbound_message(gateway.options, &cache.own_id, event) else {
        return Ok(());
    };
    let channel = message.target.chat.clone();
    // Messages from the HTTP API have no `guild_id`, but their channel was announced or is a conversation.
    let is_in_a_server = event.get("guild_id").is_some_and(Value::is_string);
    resolve_thread(gateway, cache, &mut message.target, is_in_a_server).await?;
    let listed = &gateway.options.channels;
    let target = &message.target;
    let is_listed = |one: &String| *one == target.chat || *one == target.thread;
    if !listed.is_empty() && !listed.iter().any(is_listed) {
        return Ok(());
    }
    let id = message.message_id.clone();
    // Noted only after the message was stored, because the next catch-up starts at this id.
    deliver.message(message).await?;
    cache.note_stored(&channel, &id);
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

/// Stores the messages of a channel since the last stored one, or since `gateway.since`.
async fn store_missed(
    gateway: &GatewayReceiver<'_>,
    cache: &mut GatewayCache,
    (channel, last): (&str, u64),
    deliver: &dyn InboundSink,
    stop: &CancellationToken,
) -> Result<(), PlatformError> {
    // The bits above the lowest 22 are the time of an id, so a time can be compared with ids.
    let oldest = gateway.since.saturating_sub(DISCORD_EPOCH_MS) << 22;
    let mut after = cache.newest(channel).unwrap_or(oldest);
    // The id becomes a part of a path.
    if !message::is_id(channel) {
        return Ok(());
    }
    for _ in 0..MAX_PAGES {
        if last <= after || stop.is_cancelled() {
            return Ok(());
        }
        let path = format!("/channels/{channel}/messages");
        let query = [
            ("after", after.to_string()),
            ("limit", PAGE_MESSAGES.to_string()),
        ];
        let query = query
            .each_ref()
            .map(|(name, value)| (*name, value.as_str()));
        let page = match gateway.api.get(&path, &query).await {
            Ok(Value::Array(page)) => page,
            Ok(_) => {
                return Err(PlatformError::new(
                    ErrorKind::Transient,
                    "the response is not a list of messages",
                ));
            }
            // The bot may see this channel but not read it.
            Err(error) if matches!(error.kind(), ErrorKind::Forbidden | ErrorKind::NotFound) => {
                tracing::debug!(%error, "could not list the messages of a channel");
                return Ok(());
            }
            Err(error) => return Err(error),
        };
        let count = page.len();
        let id = |message: &Value| message.get("id")?.as_str()?.parse::<u64>().ok();
        let mut messages: Vec<(u64, Value)> = page
            .into_iter()
            .filter_map(|message| Some((id(&message)?, message)))
            .collect();
        // Oldest first, so that after an interruption only newer messages are missing. Ids grow with time.
        messages.sort_by_key(|(id, _)| *id);
        for (id, message) in &messages {
            store_message(gateway, cache, message, deliver).await?;
            // Also for messages that were not stored, such as those of bots, so that the loop does not request them
            // again.
            after = after.max(*id);
        }
        if count < PAGE_MESSAGES || messages.is_empty() {
            return Ok(());
        }
    }
    tracing::warn!(
        channel,
        "too many messages of a channel were missed: the newest are not fetched"
    );
    Ok(())
}
