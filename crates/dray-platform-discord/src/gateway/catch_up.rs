//! What events bring, and what was written while no session stood.

use dray_platform::{ErrorKind, InboundSink, PlatformError};
use serde_json::Value;
use tokio_util::sync::CancellationToken;

use super::GatewayReceiver;
use super::memory::GatewayCache;
use crate::message;

/// The platform's epoch, in Unix milliseconds: ids count from it.
const DISCORD_EPOCH_MS: u64 = 1_420_070_400_000;
/// Messages of one answer, and most answers for one channel.
const PAGE_MESSAGES: usize = 100;
const MAX_PAGES: usize = 50;
/// Kinds of channels that are threads.
const THREAD_TYPES: [u64; 3] = [10, 11, 12];

/// Stores what an event brings.
pub(super) async fn handle_event(
    gateway: &GatewayReceiver<'_>,
    memory: &mut GatewayCache,
    (name, event): (&str, &Value),
    deliver: &dyn InboundSink,
    stop: &CancellationToken,
) -> Result<(), PlatformError> {
    match name {
        "MESSAGE_CREATE" => store_message(gateway, memory, event, deliver).await,
        "THREAD_CREATE" | "CHANNEL_CREATE" => {
            remember_channel(memory, event);
            Ok(())
        }
        "GUILD_CREATE" => {
            let list = |name: &str| {
                let found = event.get(name).and_then(Value::as_array);
                found.into_iter().flatten()
            };
            let channels: Vec<&Value> = list("channels").chain(list("threads")).collect();
            for channel in &channels {
                remember_channel(memory, channel);
            }
            for channel in channels {
                let text = |name: &str| channel.get(name).and_then(Value::as_str);
                let last = text("last_message_id").and_then(|id| id.parse().ok());
                if let (Some(id), Some(last)) = (text("id"), last) {
                    store_missed(gateway, memory, (id, last), deliver, stop).await?;
                }
            }
            Ok(())
        }
        "READY" => {
            for conversation in memory.conversations() {
                let all = (conversation.as_str(), u64::MAX);
                store_missed(gateway, memory, all, deliver, stop).await?;
            }
            Ok(())
        }
        _ => Ok(()),
    }
}

/// Takes note of a channel or thread.
fn remember_channel(memory: &mut GatewayCache, channel: &Value) {
    let text = |name: &str| channel.get(name).and_then(Value::as_str);
    let kind = channel.get("type").and_then(Value::as_u64);
    let is_thread = kind.is_some_and(|kind| THREAD_TYPES.contains(&kind));
    if let Some(id) = text("id") {
        memory.know(id, text("parent_id").filter(|_| is_thread));
    }
}

/// Stores one message, when it is one of a person.
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
    let is_in_a_server = event.get("guild_id").is_some_and(Value::is_string);
    if is_in_a_server && !memory.knows(&channel) {
        request_channel_type(gateway, memory, &channel).await?;
    }
    if let Some(parent) = memory.parent(&channel) {
        parent.clone_into(&mut message.target.chat);
        message.target.thread.clone_from(&channel);
    }
    let listed = &gateway.options.channels;
    let target = &message.target;
    let is_listed = |one: &String| *one == target.chat || *one == target.thread;
    if !listed.is_empty() && !listed.iter().any(is_listed) {
        return Ok(());
    }
    let id = message.message_id.clone();
    deliver.message(message).await?;
    memory.stored(&channel, &id);
    Ok(())
}

/// Requests the type of a channel that no event announced.
async fn request_channel_type(
    gateway: &GatewayReceiver<'_>,
    memory: &mut GatewayCache,
    channel: &str,
) -> Result<(), PlatformError> {
    match gateway.api.get(&format!("/channels/{channel}"), &[]).await {
        Ok(told) => remember_channel(memory, &told),
        // It may not be looked at, and its messages come all the same.
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
    let oldest = gateway.since.saturating_sub(DISCORD_EPOCH_MS) << 22;
    let mut after = memory.newest(channel).unwrap_or(oldest);
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
                    "no list of messages came",
                ));
            }
            Err(error) if matches!(error.kind(), ErrorKind::Forbidden | ErrorKind::NotFound) => {
                tracing::debug!(%error, "a channel cannot be looked through");
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
        known.sort_by_key(|(id, _)| *id);
        for (id, message) in &known {
            store_message(gateway, memory, message, deliver).await?;
            after = after.max(*id);
        }
        if count < PAGE_MESSAGES || known.is_empty() {
            return Ok(());
        }
    }
    tracing::warn!(
        channel,
        "more was written in a channel than is looked at again"
    );
    Ok(())
}
