//! The gateway: sessions, numbered events, heartbeats and resumptions.

use dray_types::whole_millis;
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use dray_http::fake_server::{
    ConnectionClosed, ReceivedRequest, Reply, SharedState, bytes_reply, with_header,
};
use flate2::{Compress, Compression, FlushCompress};
use futures_util::{SinkExt as _, StreamExt as _};
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::watch;
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;
use tokio_tungstenite::tungstenite::protocol::{CloseFrame, Role};

use super::{BOT_TOKEN, FakeDiscord, FakeState, people, user_json};

/// Intent that is needed to get the text and the files of messages.
const MESSAGE_CONTENT_INTENT: u64 = 1 << 15;

/// A fault of the gateway, which happens once, when a client identifies or resumes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GatewayFault {
    /// The session is reported as invalid. The value says whether it may still be resumed.
    Invalid(bool),
    /// The connection is closed with this code.
    Close(u16),
    /// Heartbeats get no response.
    NoHeartbeatResponse,
    /// The connection is not opened.
    NotOpened,
    /// The response to `IDENTIFY` or `RESUME` is not JSON.
    Gibberish,
}

/// The way in which all open connections end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DisconnectAll {
    /// The connections break without a close frame.
    Drop,
    /// The clients are asked to connect again (opcode 7).
    Reconnect,
    /// The connections are closed with this code.
    Close(u16),
}

/// The sessions, and the faults of the next connections.
#[derive(Debug)]
pub(super) struct FakeGateway {
    interval: Duration,
    remaining: u64,
    sessions: BTreeMap<String, Vec<Value>>,
    faults: VecDeque<GatewayFault>,
    disconnect: DisconnectAll,
    /// Notifies of each event and each [`DisconnectAll`]; the value counts the latter.
    changes: watch::Sender<u64>,
    /// The first message of each client, in order.
    logins: Vec<String>,
}

impl Default for FakeGateway {
    fn default() -> Self {
        Self {
            interval: Duration::from_secs(40),
            remaining: 1000,
            sessions: BTreeMap::new(),
            faults: VecDeque::new(),
            disconnect: DisconnectAll::Drop,
            changes: watch::Sender::new(0),
            logins: Vec::new(),
        }
    }
}

impl FakeGateway {
    /// Sends an event to every session.
    pub(super) fn broadcast(&mut self, name: &str, event: &Value) {
        for events in self.sessions.values_mut() {
            push_event(events, name, event);
        }
        self.changes.send_modify(|_| {});
    }
}

fn push_event(events: &mut Vec<Value>, name: &str, event: &Value) {
    let seq = events.len() + 1;
    events.push(json!({ "op": 0, "t": name, "s": seq, "d": event }));
}

impl FakeDiscord {
    /// Sets the heartbeat interval for later connections. The default is 40 seconds.
    pub fn set_heartbeat_interval(&self, interval: Duration) {
        self.server.shared().lock().gateway.interval = interval;
    }

    /// Sets how many sessions clients may still start today.
    pub fn set_remaining_sessions(&self, remaining: u64) {
        self.server.shared().lock().gateway.remaining = remaining;
    }

    /// Injects a fault into the next connection. Several are used one after the other.
    pub fn script_gateway(&self, fault: GatewayFault) {
        self.server.shared().lock().gateway.faults.push_back(fault);
    }

    /// Ends all open connections.
    pub fn disconnect_all(&self, disconnect: DisconnectAll) {
        let mut state = self.server.shared().lock();
        state.gateway.disconnect = disconnect;
        state
            .gateway
            .changes
            .send_modify(|disconnects| *disconnects += 1);
    }

    /// Forgets all sessions, so that no client can resume one.
    pub fn forget_sessions(&self) {
        self.server.shared().lock().gateway.sessions.clear();
    }

    /// The logins until now: `identify`, or `resume` with the number of the last event that the client handled.
    pub fn logins(&self) -> Vec<String> {
        self.server.shared().lock().gateway.logins.clone()
    }

    /// The response to `GET /gateway/bot`.
    pub(super) fn bot(shared: &SharedState<FakeState>) -> Value {
        let url = shared.url().replacen("http", "ws", 1);
        json!({
            "url": format!("{url}/gateway"), "shards": 1,
            "session_start_limit": {
                "total": 1000, "remaining": shared.lock().gateway.remaining, "reset_after": 50, "max_concurrency": 1,
            },
        })
    }
}

/// Answers the upgrade request and serves the connection in a new task.
pub(super) fn open_connection(
    shared: &Arc<SharedState<FakeState>>,
    request: ReceivedRequest,
) -> Result<Reply, ConnectionClosed> {
    {
        let mut state = shared.lock();
        if state.gateway.faults.front() == Some(&GatewayFault::NotOpened) {
            state.gateway.faults.pop_front();
            return Ok(bytes_reply(503, "text/html", "<html>".into()));
        }
    }
    let key = request
        .header("sec-websocket-key")
        .ok_or(ConnectionClosed)?;
    let accept = derive_accept_key(key.as_bytes());
    let is_compressed = match request.parameter("compress").as_deref() {
        None => false,
        Some("zlib-stream") => true,
        Some(_) => return Ok(bytes_reply(400, "text/plain", "unknown compression".into())),
    };
    let shared = Arc::clone(shared);
    let upgrade = request.into_upgrade();
    shared.clone().lock().connections.spawn(async move {
        if let Ok(upgraded) = upgrade.await {
            let io = TokioIo::new(upgraded);
            // The handshake is done: `open_connection` answered it as an HTTP request.
            let stream = WebSocketStream::from_raw_socket(io, Role::Server, None).await;
            let connection = GatewayConnection {
                stream,
                zlib: is_compressed.then(|| Compress::new(Compression::fast(), true)),
            };
            // Some tests break connections, so an error is ignored.
            let _ = serve_gateway(&shared, connection).await;
        }
    });
    let opened = bytes_reply(101, "text/plain", bytes::Bytes::new());
    let opened = with_header(opened, "connection", "Upgrade");
    let opened = with_header(opened, "upgrade", "websocket");
    Ok(with_header(opened, "sec-websocket-accept", &accept))
}

/// A connection, whose messages are compressed if the client requested it.
struct GatewayConnection<S> {
    stream: WebSocketStream<S>,
    zlib: Option<Compress>,
}

impl<S: AsyncRead + AsyncWrite + Unpin> GatewayConnection<S> {
    async fn send(&mut self, value: &Value) -> Result<(), ConnectionClosed> {
        let text = value.to_string();
        let message = match &mut self.zlib {
            None => Message::text(text),
            Some(zlib) => Message::binary(compress_message(zlib, text.as_bytes())?),
        };
        self.stream
            .send(message)
            .await
            .map_err(|_| ConnectionClosed)
    }

    async fn next(&mut self) -> Result<Value, ConnectionClosed> {
        loop {
            match self.stream.next().await {
                Some(Ok(Message::Text(text))) => {
                    return serde_json::from_str(&text).map_err(|_| ConnectionClosed);
                }
                Some(Ok(Message::Close(_)) | Err(_)) | None => return Err(ConnectionClosed),
                // Pings and pongs are handled by the library.
                Some(Ok(_)) => {}
            }
        }
    }

    async fn close(&mut self, code: u16) -> ConnectionClosed {
        let frame = CloseFrame {
            code: CloseCode::from(code),
            reason: "".into(),
        };
        let _ = self.stream.close(Some(frame)).await;
        ConnectionClosed
    }
}

/// Compresses one message and flushes it, so that the client can decode all of it.
fn compress_message(zlib: &mut Compress, text: &[u8]) -> Result<Vec<u8>, ConnectionClosed> {
    let mut out = Vec::with_capacity(text.len() + 1024);
    let bytes_before = zlib.total_in();
    loop {
        // `compress_vec` fills the spare capacity and stops; the loop continues where it stopped.
        let used = usize::try_from(zlib.total_in() - bytes_before).unwrap_or(usize::MAX);
        let rest = text.get(used..).unwrap_or_default();
        let compressed = zlib.compress_vec(rest, &mut out, FlushCompress::Sync);
        compressed.map_err(|_| ConnectionClosed)?;
        // The capacity was not used up, so the flush is complete.
        if out.len() < out.capacity() {
            return Ok(out);
        }
        out.reserve(1024);
    }
}

async fn serve_gateway<S>(
    shared: &SharedState<FakeState>,
    mut connection: GatewayConnection<S>,
) -> Result<(), ConnectionClosed>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    // The subscription precedes the greeting, so that a disconnection during it is not missed.
    let mut changes = shared.lock().gateway.changes.subscribe();
    let disconnects = *changes.borrow_and_update();
    let GatewayClient {
        session,
        mut sent,
        ignores_heartbeats,
    } = greet_client(shared, &mut connection).await?;
    loop {
        // The lock is released before anything is sent.
        let (events, disconnect) = {
            let state = shared.lock();
            let events = state
                .gateway
                .sessions
                .get(&session)
                .ok_or(ConnectionClosed)?;
            (
                events.get(sent..).unwrap_or_default().to_vec(),
                state.gateway.disconnect,
            )
        };
        for event in &events {
            connection.send(event).await?;
            sent += 1;
        }
        if *changes.borrow() != disconnects {
            return match disconnect {
                DisconnectAll::Drop => Err(ConnectionClosed),
                DisconnectAll::Close(code) => Err(connection.close(code).await),
                DisconnectAll::Reconnect => {
                    connection.send(&json!({ "op": 7, "d": null })).await?;
                    // The client closes the connection; its messages until then are ignored.
                    while connection.next().await.is_ok() {}
                    Err(ConnectionClosed)
                }
            };
        }
        tokio::select! {
            changed = changes.changed() => changed.map_err(|_| ConnectionClosed)?,
            payload = connection.next() => {
                let is_heartbeat = payload?.get("op").and_then(Value::as_u64) == Some(1);
                if is_heartbeat && !ignores_heartbeats {
                    connection.send(&json!({ "op": 11 })).await?;
                }
            }
        }
    }
}

/// A client that identified or resumed.
struct GatewayClient {
    session: String,
    /// How many events of the session were sent to it.
    sent: usize,
    /// Whether its heartbeats get no response.
    ignores_heartbeats: bool,
}

/// Sends the greeting and waits until the client identifies or resumes.
async fn greet_client<S>(
    shared: &SharedState<FakeState>,
    connection: &mut GatewayConnection<S>,
) -> Result<GatewayClient, ConnectionClosed>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let interval_ms = whole_millis(shared.lock().gateway.interval);
    let hello = json!({ "op": 10, "d": { "heartbeat_interval": interval_ms } });
    connection.send(&hello).await?;
    let payload = loop {
        // A client may send a heartbeat before it identifies.
        let payload = connection.next().await?;
        match payload.get("op").and_then(Value::as_u64) {
            Some(1) => connection.send(&json!({ "op": 11 })).await?,
            _ => break payload,
        }
    };
    let fault = shared.lock().gateway.faults.pop_front();
    match fault {
        Some(GatewayFault::Close(code)) => return Err(connection.close(code).await),
        Some(GatewayFault::Invalid(repeated)) => {
            if !repeated {
                // All sessions end, so later connections cannot resume one either.
                shared.lock().gateway.sessions.clear();
            }
            // The session begins only to record the login.
            begin_session(shared, &payload);
            connection.send(&json!({ "op": 9, "d": repeated })).await?;
            return Err(ConnectionClosed);
        }
        Some(GatewayFault::Gibberish) => {
            let _ = connection.stream.send(Message::text("[what")).await;
            return Err(ConnectionClosed);
        }
        _ => {}
    }
    match begin_session(shared, &payload) {
        GatewayStart::At(session, sent) => Ok(GatewayClient {
            session,
            sent,
            ignores_heartbeats: fault == Some(GatewayFault::NoHeartbeatResponse),
        }),
        GatewayStart::Refused(code) => Err(connection.close(code).await),
        GatewayStart::Unknown => {
            connection.send(&json!({ "op": 9, "d": false })).await?;
            Err(ConnectionClosed)
        }
    }
}

/// The result of `IDENTIFY` or `RESUME`.
enum GatewayStart {
    /// The session, and how many of its events the client has.
    At(String, usize),
    Refused(u16),
    Unknown,
}

fn begin_session(shared: &SharedState<FakeState>, payload: &Value) -> GatewayStart {
    let url = shared.url().replacen("http", "ws", 1);
    let text = |pointer: &str| payload.pointer(pointer).and_then(Value::as_str);
    let number = |pointer: &str| payload.pointer(pointer).and_then(Value::as_u64);
    let mut state = shared.lock();
    if text("/d/token") != Some(BOT_TOKEN) {
        // Authentication failed.
        return GatewayStart::Refused(4004);
    }
    match number("/op") {
        Some(2) => {
            state.gateway.logins.push("identify".to_owned());
            if number("/d/intents").unwrap_or_default() & MESSAGE_CONTENT_INTENT == 0 {
                // 4014 is the code for disallowed intents. This is stricter than the real gateway, so that a client
                // without this intent is noticed.
                return GatewayStart::Refused(4014);
            }
            let id = format!("session-{}", state.next());
            let mut events = Vec::new();
            let guilds: Vec<Value> = state.guilds();
            let known: Vec<Value> = guilds
                .iter()
                // Unavailable at first, because the `GUILD_CREATE` events describe them.
                .map(|guild| json!({ "id": guild.get("id"), "unavailable": true }))
                .collect();
            let ready = json!({
                "v": 10, "user": user_json(), "guilds": known, "session_id": id, "shard": [0, 1],
                "resume_gateway_url": format!("{url}/gateway"), "application": { "id": "1", "flags": 0 },
            });
            push_event(&mut events, "READY", &ready);
            for guild in guilds {
                push_event(&mut events, "GUILD_CREATE", &guild);
            }
            state.gateway.sessions.insert(id.clone(), events);
            GatewayStart::At(id, 0)
        }
        Some(6) => {
            let seq = number("/d/seq").unwrap_or_default();
            state.gateway.logins.push(format!("resume {seq}"));
            let id = text("/d/session_id").unwrap_or_default().to_owned();
            let sent = usize::try_from(seq).unwrap_or(usize::MAX);
            match state.gateway.sessions.get_mut(&id) {
                None => GatewayStart::Unknown,
                // The sequence is invalid: the client claims events that were never sent.
                Some(events) if sent > events.len() => GatewayStart::Refused(4007),
                Some(events) => {
                    // `RESUMED` follows the missed events, as at the real gateway.
                    push_event(events, "RESUMED", &json!({}));
                    GatewayStart::At(id, sent)
                }
            }
        }
        _ => GatewayStart::Refused(4003),
    }
}

impl FakeState {
    /// The servers, as JSON of the gateway.
    fn guilds(&self) -> Vec<Value> {
        let described = |guild: &String, tier: &u64| {
            let own = |is_thread: bool| -> Vec<Value> {
                let channels = self.channels.iter();
                channels
                    .filter(|(_, channel)| {
                        channel.guild == *guild && channel.parent.is_empty() != is_thread
                    })
                    .map(|(id, channel)| super::channel_json(id, channel))
                    .collect()
            };
            json!({
                "id": guild, "name": "fake", "premium_tier": tier, "unavailable": false, "owner_id": people::USER_ID,
                "roles": [], "emojis": [], "stickers": [], "features": [], "members": [], "presences": [],
                "voice_states": [], "stage_instances": [], "guild_scheduled_events": [], "soundboard_sounds": [],
                "channels": own(false), "threads": own(true), "member_count": 2, "large": false,
                "verification_level": 0, "default_message_notifications": 0, "explicit_content_filter": 0,
                "mfa_level": 0, "nsfw_level": 0, "preferred_locale": "en-US", "system_channel_flags": 0,
                "afk_timeout": 300, "premium_progress_bar_enabled": false, "joined_at": "2026-01-01T00:00:00+00:00",
            })
        };
        self.tiers
            .iter()
            .map(|(guild, tier)| described(guild, tier))
            .collect()
    }
}
