//! Responses to the calls of the client-server API.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use dray_http::fake_server::{
    ConnectionClosed, ContentDigest, ReceivedRequest, Reply, SharedState, bytes_reply, cut_reply,
    json_reply, with_header,
};
use dray_types::{Sha256Digest, whole_millis};
use percent_encoding::percent_decode_str;
use serde_json::{Map, Value, json};

use super::state::{FakeState, UploadedMedia};
use super::{ACCESS_TOKEN, BOT_USER, InjectedFault, SERVER_NAME};

/// Largest upload whose bytes are stored, in bytes. Larger ones are only hashed.
const MAX_STORED_BYTES: u64 = 4 << 20;
/// Largest event, in bytes, by the specification.
const MAX_EVENT_BYTES: usize = 65_536;

fn error_reply(status: u16, code: &str) -> Reply {
    json_reply(
        status,
        &json!({ "errcode": code, "error": "refused by the fake server" }),
    )
}

pub(super) async fn respond_to_request(
    shared: Arc<SharedState<FakeState>>,
    request: ReceivedRequest,
) -> Result<Reply, ConnectionClosed> {
    let line = format!("{} {}", request.method, request.path);
    shared.lock().requests.push(line);
    if request.header("authorization") != Some(&format!("Bearer {ACCESS_TOKEN}")) {
        return Ok(error_reply(401, "M_UNKNOWN_TOKEN"));
    }
    let parts: Vec<String> = request
        .path
        .trim_start_matches("/_matrix/")
        .split('/')
        // The path is split before decoding, because an escaped slash is a part of a room id or of a transaction id.
        .map(|part| percent_decode_str(part).decode_utf8_lossy().into_owned())
        .collect();
    let parts: Vec<&str> = parts.iter().map(String::as_str).collect();
    let is_old = shared
        .lock()
        .has_permanent_fault(&InjectedFault::OldVersion);
    match (request.method.as_str(), parts.as_slice()) {
        ("GET", ["client", "v3", "account", "whoami"]) => Ok(json_reply(
            200,
            &json!({ "user_id": BOT_USER, "device_id": "FAKE" }),
        )),
        ("GET", ["client", "v3", "directory", "room", alias]) => {
            Ok(directory_reply(&shared, alias))
        }
        (
            "GET",
            [
                "client",
                "v3",
                "rooms",
                room,
                "state",
                "m.room.encryption",
                "",
            ],
        ) => Ok(encryption_reply(&shared, room)),
        ("GET", ["client", "v3", "rooms", room, "messages"]) => {
            Ok(room_messages(&shared, room, &request))
        }
        ("GET", ["client", "v1", "media", "config"]) if !is_old => Ok(config_reply(&shared)),
        ("GET", ["media", "v3", "config"]) => Ok(config_reply(&shared)),
        ("POST", ["media", "v3", "upload"]) => upload_media(&shared, request).await,
        ("GET", ["client", "v1", "media", "download", server, id, ..]) if !is_old => {
            Ok(download_media(&shared, server, id))
        }
        ("GET", ["media", "v3", "download", server, id]) if is_old => {
            Ok(download_media(&shared, server, id))
        }
        ("PUT", ["client", "v3", "rooms", room, "send", kind, transaction]) => {
            let room_id = (*room).to_owned();
            let (kind, transaction) = ((*kind).to_owned(), (*transaction).to_owned());
            let body = request.into_reader().all().await?;
            send_event(&shared, &room_id, &kind, transaction, &body)
        }
        ("GET", ["client", "v3", "sync"]) => sync_reply(&shared, &request).await,
        _ => Ok(error_reply(404, "M_UNRECOGNIZED")),
    }
}

fn directory_reply(shared: &SharedState<FakeState>, alias: &str) -> Reply {
    match shared.lock().aliases.get(alias) {
        Some(room) => json_reply(200, &json!({ "room_id": room, "servers": [SERVER_NAME] })),
        None => error_reply(404, "M_NOT_FOUND"),
    }
}

fn encryption_reply(shared: &SharedState<FakeState>, room: &str) -> Reply {
    let state = shared.lock();
    if !state.rooms.contains(room) {
        // The response of a real homeserver for rooms of which the user is not a member.
        return error_reply(403, "M_FORBIDDEN");
    }
    if state.encrypted.contains(room) {
        return json_reply(200, &json!({ "algorithm": "m.megolm.v1.aes-sha2" }));
    }
    error_reply(404, "M_NOT_FOUND")
}

fn config_reply(shared: &SharedState<FakeState>) -> Reply {
    let state = shared.lock();
    if state.has_permanent_fault(&InjectedFault::NoLimit) {
        return json_reply(200, &json!({}));
    }
    json_reply(200, &json!({ "m.upload.size": state.largest }))
}

async fn upload_media(
    shared: &SharedState<FakeState>,
    request: ReceivedRequest,
) -> Result<Reply, ConnectionClosed> {
    let fault = shared.lock().fault(|fault| {
        matches!(
            fault,
            InjectedFault::CloseDuringUpload
                | InjectedFault::TooLarge
                | InjectedFault::InvalidAddress
        )
    });
    if fault == Some(InjectedFault::CloseDuringUpload) {
        // After one frame, the client has begun to send the body.
        request.into_reader().more().await?;
        return Err(ConnectionClosed);
    }
    let media_type = request
        .header("content-type")
        .unwrap_or_default()
        .to_owned();
    let Some(length) = request.length() else {
        return Ok(error_reply(400, "M_UNKNOWN"));
    };
    let (content, bytes) = if length <= MAX_STORED_BYTES {
        let bytes = request.into_reader().all().await?;
        let content = ContentDigest {
            size: bytes.len() as u64,
            sha256: Sha256Digest::of(&bytes),
            head: Vec::new(),
        };
        (content, Some(bytes))
    } else {
        (request.into_reader().digest().await?, None)
    };
    // The connection ended within the body.
    if content.size != length {
        return Err(ConnectionClosed);
    }
    let mut state = shared.lock();
    if fault == Some(InjectedFault::TooLarge) || content.size > state.largest {
        return Ok(error_reply(413, "M_TOO_LARGE"));
    }
    let uri = state.upload(UploadedMedia {
        content,
        bytes,
        kind: media_type,
    });
    let uri = if fault.is_some() {
        // This is not a valid media address, and would change the path of downloads.
        "mxc://../up".to_owned()
    } else {
        uri
    };
    Ok(json_reply(200, &json!({ "content_uri": uri })))
}

fn download_media(shared: &SharedState<FakeState>, server: &str, id: &str) -> Reply {
    let state = shared.lock();
    let media = state.find(&format!("mxc://{server}/{id}"));
    let Some((media, bytes)) = media.and_then(|media| Some((media, media.bytes.clone()?))) else {
        return error_reply(404, "M_NOT_FOUND");
    };
    with_header(
        bytes_reply(200, "application/octet-stream", bytes.into()),
        "content-type",
        &media.kind,
    )
}

/// Adds an event to a room, with the next fault that applies to it.
fn send_event(
    shared: &SharedState<FakeState>,
    room: &str,
    kind: &str,
    transaction: String,
    body: &[u8],
) -> Result<Reply, ConnectionClosed> {
    let mut state = shared.lock();
    let fault = state.fault(|fault| {
        matches!(
            fault,
            InjectedFault::Nothing
                | InjectedFault::RateLimit(_)
                | InjectedFault::Fail
                | InjectedFault::LoseResponse
                | InjectedFault::ForgetEvent
                | InjectedFault::Gibberish
                | InjectedFault::Refuse(..)
        )
    });
    match fault {
        Some(InjectedFault::RateLimit(wait)) => {
            let wait = whole_millis(wait);
            let body_json =
                json!({ "errcode": "M_LIMIT_EXCEEDED", "error": "slow", "retry_after_ms": wait });
            return Ok(json_reply(429, &body_json));
        }
        Some(InjectedFault::Fail) => return Ok(error_reply(500, "M_UNKNOWN")),
        Some(InjectedFault::Refuse(status, code)) => return Ok(error_reply(status, code)),
        // The event is lost, although the response is a success.
        Some(InjectedFault::ForgetEvent) => return Ok(json_reply(200, &json!({}))),
        _ => {}
    }
    if body.len() > MAX_EVENT_BYTES {
        return Ok(error_reply(413, "M_TOO_LARGE"));
    }
    let Ok(content @ Value::Object(_)) = serde_json::from_slice::<Value>(body) else {
        return Ok(error_reply(400, "M_NOT_JSON"));
    };
    if !state.rooms.contains(room) {
        return Ok(error_reply(403, "M_FORBIDDEN"));
    }
    // A repeated transaction returns the first event, even if its content differs.
    let transaction_key = (room.to_owned(), transaction);
    let id = match state.transactions.get(&transaction_key) {
        Some(id) => id.clone(),
        None => state.event(room, BOT_USER, kind, &content),
    };
    state.transactions.insert(transaction_key, id.clone());
    let reply = json!({ "event_id": id });
    match fault {
        Some(InjectedFault::LoseResponse) => Err(ConnectionClosed),
        Some(InjectedFault::Gibberish) => Ok(cut_reply(
            "application/json",
            &Bytes::from(reply.to_string()),
            5,
        )),
        _ => Ok(json_reply(200, &reply)),
    }
}

fn token_number(token: Option<String>) -> Option<usize> {
    token?.strip_prefix('s')?.parse().ok()
}

/// Whether an event passes a filter. Only `types` is read.
fn passes_filter(filter: &Value, event: &Value) -> bool {
    let types = filter.get("types").and_then(Value::as_array);
    types.is_none_or(|types| event.get("type").is_some_and(|kind| types.contains(kind)))
}

async fn sync_reply(
    shared: &SharedState<FakeState>,
    request: &ReceivedRequest,
) -> Result<Reply, ConnectionClosed> {
    let parameter = |name: &str| request.parameter(name);
    let since = token_number(parameter("since"));
    let wait = parameter("timeout")
        .and_then(|wait| wait.parse().ok())
        .unwrap_or(0);
    let filter: Value = parameter("filter")
        .and_then(|filter| serde_json::from_str(&filter).ok())
        .unwrap_or_default();
    let filter = filter
        .pointer("/room/timeline")
        .cloned()
        .unwrap_or_default();
    if shared
        .lock()
        .fault(|fault| *fault == InjectedFault::FailSync)
        .is_some()
    {
        return Ok(error_reply(502, "M_UNKNOWN"));
    }
    let changed = Arc::clone(&shared.lock().changed);
    let waiting = tokio::time::timeout(Duration::from_millis(wait), async {
        loop {
            // The waiter is registered before the events are checked, so that an event in between is not missed.
            let notified = changed.notified();
            tokio::pin!(notified);
            notified.as_mut().enable();
            if since.is_none_or(|since| shared.lock().events.len() > since) {
                break;
            }
            notified.await;
        }
    });
    // After the timeout the response is empty, not an error.
    let _ = waiting.await;
    Ok(changes_since(&shared.lock(), since, &filter))
}

fn changes_since(state: &FakeState, since: Option<usize>, filter: &Value) -> Reply {
    let mut rooms = Map::new();
    for room in &state.rooms {
        let timeline = room_timeline(state, room, since.unwrap_or(0), filter);
        let is_new = timeline.pointer("/events/0").is_some();
        if is_new || since.is_none() {
            let none = json!({ "events": [] });
            let changed = json!({
                "timeline": timeline,
                "state": none,
                "ephemeral": none,
                "account_data": none,
            });
            rooms.insert(room.clone(), changed);
        }
    }
    json_reply(
        200,
        &json!({
            "next_batch": format!("s{}", state.events.len()),
            "rooms": { "join": rooms, "invite": {}, "leave": {} },
            "device_one_time_keys_count": {},
            "device_lists": { "changed": [], "left": [] },
            "to_device": { "events": [] },
            "presence": { "events": [] },
        }),
    )
}

/// The last events of a room since a position, as many as the filter allows; `limited` if there were more.
fn room_timeline(state: &FakeState, room: &str, since: usize, filter: &Value) -> Value {
    let limit = filter.get("limit").and_then(Value::as_u64).unwrap_or(10);
    let limit = usize::try_from(limit).unwrap_or(usize::MAX);
    let all: Vec<(usize, &Value)> = state
        .events
        .iter()
        .enumerate()
        .skip(since)
        .filter(|(_, (event_room, event))| event_room == room && passes_filter(filter, event))
        .map(|(position, (_, event))| (position, event))
        .collect();
    let first = all.len().saturating_sub(limit);
    let page = all.get(first..).unwrap_or_default();
    let from = page.first().map_or(since, |(position, _)| *position);
    let events: Vec<&Value> = page.iter().map(|(_, event)| *event).collect();
    json!({ "events": events, "limited": first > 0, "prev_batch": format!("s{from}") })
}

/// Events of a room, newest first, as `dir=b` requests.
fn room_messages(shared: &SharedState<FakeState>, room: &str, request: &ReceivedRequest) -> Reply {
    let (from, to) = (
        token_number(request.parameter("from")),
        token_number(request.parameter("to")),
    );
    let limit = request
        .parameter("limit")
        .and_then(|limit| limit.parse().ok());
    let filter = request.parameter("filter");
    let filter: Value = filter
        .and_then(|filter| serde_json::from_str(&filter).ok())
        .unwrap_or_default();
    let mut state = shared.lock();
    let from = from.unwrap_or(state.events.len());
    if state
        .fault(|fault| *fault == InjectedFault::EmptyPage)
        .is_some()
    {
        // Another token of the same position.
        let end = format!("s0{from}");
        return json_reply(
            200,
            &json!({ "start": format!("s{from}"), "chunk": [], "end": end }),
        );
    }
    let page_events: Vec<(usize, &Value)> = state
        .events
        .iter()
        .enumerate()
        .take(from)
        .skip(to.unwrap_or(0))
        .rev()
        .filter(|(_, (event_room, event))| event_room == room && passes_filter(&filter, event))
        .take(limit.unwrap_or(10))
        .map(|(position, (_, event))| (position, event))
        .collect();
    let chunk: Vec<&Value> = page_events.iter().map(|(_, event)| *event).collect();
    let mut page = json!({ "start": format!("s{from}"), "chunk": chunk });
    if let (Some((last, _)), Some(page)) = (page_events.last(), page.as_object_mut()) {
        page.insert("end".to_owned(), format!("s{last}").into());
    }
    json_reply(200, &page)
}
