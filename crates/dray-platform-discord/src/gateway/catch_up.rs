//! Messages from events, and messages that were written without a session.

use dray_platform::{DeliveryTarget, ErrorKind, InboundSink, PlatformError};
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use super::memory::GatewayCache;
use super::{GatewayReceiver, GatewaySink};
use crate::{message, question};

/// The platform's epoch, in Unix milliseconds: ids count from it.
const DISCORD_EPOCH_MS: u64 = 1_420_070_400_000;
/// Messages of one response, and most responses for one channel after a reconnection.
const PAGE_MESSAGES: usize = 100;
const MAX_PAGES: usize = 50;
/// Kinds of channels that are threads: announcement, public, private.
const THREAD_TYPES: [u64; 3] = [10, 11, 12];

/// Handles an event: stores its messages and remembers its channels. An error means that not all of it was stored.
pub(super) async fn handle_event(
    gateway: &GatewayReceiver<'_>,
    memory: &mut GatewayCache,
    (name, event): (&str, &Value),
    sink: &GatewaySink<'_>,
    stop: &CancellationToken,
) -> Result<(), PlatformError> {
    let deliver = sink.deliver;
    // Not only with `READY`: a session whose catch-up failed is resumed after `READY`, which does not come again. It goes
    // before the event, because a later message of a conversation would hide the ones that were missed.
    if memory.needs_catch_up() {
        for conversation in memory.conversations() {
            let all = (conversation.as_str(), u64::MAX);
            store_missed(gateway, memory, all, deliver, stop).await?;
        }
        memory.caught_up();
    }
    match name {
        "INTERACTION_CREATE" => take_press(gateway, memory, event, sink).await,
        "MESSAGE_CREATE" => store_message(gateway, memory, event, deliver).await,
        "THREAD_CREATE" | "CHANNEL_CREATE" => {
            remember_channel(memory, event);
            Ok(())
        }
        "GUILD_CREATE" => {
            let list = |name: &str| {
                let items = event.get(name).and_then(Value::as_array);
                items.into_iter().flatten()
            };
            // All are noted before one is caught up: a message in a thread needs its parent.
            let channels: Vec<&Value> = list("channels").chain(list("threads")).collect();
            for channel in &channels {
                remember_channel(memory, channel);
            }
            for channel in channels {
                let text = |name: &str| channel.get(name).and_then(Value::as_str);
                let last = text("last_message_id").and_then(|id| id.parse().ok());
                // Also on the first connection, where `gateway.since` bounds it.
                if let (Some(id), Some(last)) = (text("id"), last) {
                    store_missed(gateway, memory, (id, last), deliver, stop).await?;
                }
            }
            Ok(())
        }
        _ => Ok(()),
    }
}

/// Hands a press of a button on. Other interactions count as done.
async fn take_press(
    gateway: &GatewayReceiver<'_>,
    memory: &mut GatewayCache,
    event: &Value,
    sink: &GatewaySink<'_>,
) -> Result<(), PlatformError> {
    let Some(mut press) = question::button_press(event) else {
        return Ok(());
    };
    let is_in_a_server = event.get("guild_id").is_some_and(Value::is_string);
    resolve_thread(gateway, memory, &mut press.target, is_in_a_server).await?;
    // Not awaited: a full queue must not hold the messages behind it.
    if sink.presses.try_send(press).is_err() {
        tracing::warn!("too many presses of buttons: one was dropped");
    }
    Ok(())
}

/// Remembers a channel or thread. A category does not count as the parent of a channel.
fn remember_channel(memory: &mut GatewayCache, channel: &Value) {
    let text = |name: &str| channel.get(name).and_then(Value::as_str);
    let kind = channel.get("type").and_then(Value::as_u64);
    let is_thread = kind.is_some_and(|kind| THREAD_TYPES.contains(&kind));
    if let Some(id) = text("id") {
        memory.know(id, text("parent_id").filter(|_| is_thread));
    }
}

/// Stores one message if a person wrote it in a channel that the options allow. Anything else counts as done.
async fn store_message(
    gateway: &GatewayReceiver<'_>,
    memory: &mut GatewayCache,
    event: &Value,
    deliver: &dyn InboundSink,
) -> Result<(), PlatformError> {
    let Some(mut message) = message::inbound_message(gateway.options, &memory.me, event) else {
        return Ok(());
    };
    let channel = message.target.chat.clone();
    // Messages from the HTTP API have no `guild_id`; their channel was announced, or is a conversation.
    let is_in_a_server = event.get("guild_id").is_some_and(Value::is_string);
    resolve_thread(gateway, memory, &mut message.target, is_in_a_server).await?;
    let listed = &gateway.options.channels;
    let target = &message.target;
    let is_listed = |one: &String| *one == target.chat || *one == target.thread;
    if !listed.is_empty() && !listed.iter().any(is_listed) {
        return Ok(());
    }
    let id = message.message_id.clone();
    // Noted only after it was stored: the next catch-up starts at this id.
    deliver.message(message).await?;
    memory.stored(&channel, &id);
    Ok(())
}

/// Makes the target the channel with the thread below it, as a delivery names it.
async fn resolve_thread(
    gateway: &GatewayReceiver<'_>,
    memory: &mut GatewayCache,
    target: &mut DeliveryTarget,
    is_in_a_server: bool,
) -> Result<(), PlatformError> {
    if is_in_a_server && !memory.knows(&target.chat) {
        request_channel_type(gateway, memory, &target.chat).await?;
    }
    if let Some(parent) = memory.parent(&target.chat) {
        target.thread = std::mem::replace(&mut target.chat, parent.to_owned());
    }
    Ok(())
}

/// Requests the type of a channel that no event announced, to find out whether it is a thread.
async fn request_channel_type(
    gateway: &GatewayReceiver<'_>,
    memory: &mut GatewayCache,
    channel: &str,
) -> Result<(), PlatformError> {
    match gateway.api.get(&format!("/channels/{channel}"), &[]).await {
        Ok(announced) => remember_channel(memory, &announced),
        // The bot may not read the channel itself, but gets its messages.
        Err(error) if matches!(error.kind(), ErrorKind::Forbidden | ErrorKind::NotFound) => {
            memory.know(channel, None);
        }
        Err(error) => return Err(error),
    }
    Ok(())
}

/// Stores what was written in a channel since its last stored message, or since `gateway.since`.
async fn store_missed(
    gateway: &GatewayReceiver<'_>,
    memory: &mut GatewayCache,
    (channel, last): (&str, u64),
    deliver: &dyn InboundSink,
    stop: &CancellationToken,
) -> Result<(), PlatformError> {
    // An id holds its time in the bits above the lowest 22, so a time is an id to compare with.
    let oldest = gateway.since.saturating_sub(DISCORD_EPOCH_MS) << 22;
    let mut after = memory.newest(channel).unwrap_or(oldest);
    // It becomes a part of a path.
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
            // A channel that the bot may see but not read.
            Err(error) if matches!(error.kind(), ErrorKind::Forbidden | ErrorKind::NotFound) => {
                tracing::debug!(%error, "could not list the messages of a channel");
                return Ok(());
            }
            Err(error) => return Err(error),
        };
        let count = page.len();
        let id = |message: &Value| message.get("id")?.as_str()?.parse::<u64>().ok();
        let mut known: Vec<(u64, Value)> = page
            .into_iter()
            .filter_map(|message| Some((id(&message)?, message)))
            .collect();
        // Oldest first: ids grow with time, and a stop in the middle must leave only newer ones behind.
        known.sort_by_key(|(id, _)| *id);
        for (id, message) in &known {
            store_message(gateway, memory, message, deliver).await?;
            // Also for messages that were not stored, such as those of bots, or the loop would request them again.
            after = after.max(*id);
        }
        if count < PAGE_MESSAGES || known.is_empty() {
            return Ok(());
        }
    }
    tracing::warn!(
        channel,
        "more messages of a channel were missed than are fetched again"
    );
    Ok(())
}
