//! A connection after its greeting: login, heartbeats, and events in order.

use std::time::Duration;

use dray_platform::PlatformError;
use rand::Rng as _;
use serde_json::{Value, json};
use tokio::time::{Instant, Interval, MissedTickBehavior, interval_at};
use tokio_util::sync::CancellationToken;

use super::cache::GatewayCache;
use super::close::{self, CloseAction};
use super::socket::{GatewayPayload, GatewaySocket, SocketRead};
use super::{GatewayReceiver, GatewaySink, catch_up};

/// Intents: servers, messages in them, conversations with people, and the content of messages.
const GATEWAY_INTENTS: u64 = 1 | 1 << 9 | 1 << 12 | 1 << 15;
/// Close code after which the session can be resumed: with 1000 or 1001, Discord would end it.
const RESUMABLE_CLOSE_CODE: u16 = 4000;
/// Close code that ends the session.
const CLOSE_CODE: u16 = 1000;

/// The reason why a connection ended, where that is not an error.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum ConnectionEnd {
    /// The receiver was asked to stop.
    Stopped,
    /// Connect again, immediately or after a wait. The reason is for the log.
    Reconnect(&'static str),
    /// The session is not valid, or no longer valid.
    Invalid,
}

/// The heartbeats of one connection.
#[derive(Debug)]
struct HeartbeatState {
    timer: Interval,
    /// Whether the gateway acknowledged the last heartbeat.
    is_acknowledged: bool,
}

#[derive(Debug)]
pub(super) struct LiveConnection<'a> {
    gateway: &'a GatewayReceiver<'a>,
    cache: &'a mut GatewayCache,
    socket: GatewaySocket,
    heartbeat: HeartbeatState,
}

impl<'a> LiveConnection<'a> {
    pub(super) fn new(
        gateway: &'a GatewayReceiver<'a>,
        cache: &'a mut GatewayCache,
        socket: GatewaySocket,
        interval: Duration,
    ) -> Self {
        // The first heartbeat is sent at a random point of the interval, so that clients do not all send theirs
        // together.
        let first = interval.mul_f64(rand::rng().random_range(0.0..=1.0));
        let mut timer = interval_at(Instant::now() + first, interval);
        // After a delay, one heartbeat is sent instead of all that were missed.
        timer.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let heartbeat = HeartbeatState {
            timer,
            is_acknowledged: true,
        };
        Self {
            gateway,
            cache,
            socket,
            heartbeat,
        }
    }

    /// Identifies or resumes, then handles events until the connection ends. Consumes the connection.
    pub(super) async fn run(
        mut self,
        sink: &GatewaySink<'_>,
        stop: &CancellationToken,
    ) -> Result<ConnectionEnd, PlatformError> {
        let login = self.login_payload();
        self.socket.send(&login).await?;
        loop {
            tokio::select! {
                () = stop.cancelled() => {
                    self.socket.close(CLOSE_CODE).await;
                    return Ok(ConnectionEnd::Stopped);
                }
                _ = self.heartbeat.timer.tick() => {
                    // The connection is still open, but the other end does not respond.
                    if !self.heartbeat.is_acknowledged {
                        self.socket.close(RESUMABLE_CLOSE_CODE).await;
                        return Ok(ConnectionEnd::Reconnect("a heartbeat was not answered"));
                    }
                    self.heartbeat.send_heartbeat(&mut self.socket, self.cache).await?;
                }
                read = self.socket.next() => match read? {
                    SocketRead::Closed(code) => return self.handle_close(code),
                    SocketRead::Payload(payload) => {
                        if let Some(end) = self.handle_payload(payload, sink, stop).await? {
                            // The next connection resumes the session.
                            self.socket.close(RESUMABLE_CLOSE_CODE).await;
                            return Ok(end);
                        }
                    }
                },
            }
        }
    }

    /// `RESUME` if there is a session, otherwise `IDENTIFY`.
    fn login_payload(&self) -> Value {
        let token = self.gateway.api.token.expose();
        match self.cache.session() {
            Some((id, seq)) => json!({
                "op": 6,
                "d": { "token": token, "session_id": id, "seq": seq },
            }),
            None => json!({
                "op": 2,
                "d": {
                    "token": token,
                    "intents": GATEWAY_INTENTS,
                    "properties": { "os": "linux", "browser": "drayage", "device": "drayage" },
                },
            }),
        }
    }

    fn handle_close(&mut self, code: Option<u16>) -> Result<ConnectionEnd, PlatformError> {
        let Some(code) = code else {
            return Ok(ConnectionEnd::Reconnect("the connection broke"));
        };
        tracing::debug!(code, "the gateway closed the connection");
        match close::close_action(code) {
            CloseAction::Resume => Ok(ConnectionEnd::Reconnect(
                "the gateway closed the connection",
            )),
            CloseAction::Identify => {
                self.cache.forget_session();
                Ok(ConnectionEnd::Invalid)
            }
            CloseAction::GiveUp(reason) => Err(close::refused_close_error(code, reason)),
        }
    }

    /// Handles one message of the gateway. If the message ends the connection, returns why.
    async fn handle_payload(
        &mut self,
        payload: GatewayPayload,
        sink: &GatewaySink<'_>,
        stop: &CancellationToken,
    ) -> Result<Option<ConnectionEnd>, PlatformError> {
        match payload.op {
            0 => self.handle_dispatch(payload, sink, stop).await?,
            // The gateway may request a heartbeat at any time.
            1 => {
                self.heartbeat
                    .send_heartbeat(&mut self.socket, self.cache)
                    .await?;
            }
            7 => {
                return Ok(Some(ConnectionEnd::Reconnect(
                    "the gateway requested a reconnect",
                )));
            }
            9 => {
                // `d` is true if the session can be resumed.
                if payload.d.as_bool() != Some(true) {
                    self.cache.forget_session();
                }
                return Ok(Some(ConnectionEnd::Invalid));
            }
            11 => self.heartbeat.is_acknowledged = true,
            // Unknown opcodes: Discord may add some at any time.
            _ => {}
        }
        Ok(None)
    }

    /// Handles one event, and counts it as handled when all its messages are stored. Heartbeats continue meanwhile.
    async fn handle_dispatch(
        &mut self,
        payload: GatewayPayload,
        sink: &GatewaySink<'_>,
        stop: &CancellationToken,
    ) -> Result<(), PlatformError> {
        let seq = payload.s.unwrap_or_default();
        let name = payload.t.as_deref().unwrap_or_default();
        match name {
            "READY" => {
                // The session begins before the event is handled, because catching up needs the bot's own id.
                self.cache.begin_session(&payload.d, seq);
                tracing::info!("connected to the gateway");
            }
            "RESUMED" => tracing::info!("resumed the session of the gateway"),
            _ => {}
        }
        // Heartbeats carry the number of the previous event until this one is stored.
        let last_handled = self.cache.session().map(|(_, seq)| seq);
        {
            let handling =
                catch_up::handle_event(self.gateway, self.cache, (name, &payload.d), sink, stop);
            tokio::pin!(handling);
            loop {
                tokio::select! {
                    done = &mut handling => break done?,
                    _ = self.heartbeat.timer.tick() => {
                        // Acknowledgements are not read now, so a missing one would mean nothing, and `is_acknowledged`
                        // keeps its value.
                        self.socket.send(&json!({ "op": 1, "d": last_handled })).await?;
                    }
                }
            }
        }
        self.cache.note_handled(seq);
        Ok(())
    }
}

impl HeartbeatState {
    async fn send_heartbeat(
        &mut self,
        socket: &mut GatewaySocket,
        cache: &GatewayCache,
    ) -> Result<(), PlatformError> {
        let last_handled = cache.session().map(|(_, seq)| seq);
        self.is_acknowledged = false;
        socket.send(&json!({ "op": 1, "d": last_handled })).await
    }
}
