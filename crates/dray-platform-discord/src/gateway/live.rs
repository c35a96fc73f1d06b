//! A connection that was greeted: identifying, heartbeats, and events in their order.

use std::time::Duration;

use dray_platform::PlatformError;
use rand::Rng as _;
use serde_json::{Value, json};
use tokio::time::{Instant, Interval, MissedTickBehavior, interval_at};
use tokio_util::sync::CancellationToken;

use super::close::{self, CloseAction};
use super::memory::GatewayCache;
use super::socket::{GatewayPayload, GatewaySocket, SocketRead};
use super::{GatewayReceiver, GatewaySink, catch_up};

/// Intents: servers, messages in them, conversations with people, and the content of messages.
const GATEWAY_INTENTS: u64 = 1 | 1 << 9 | 1 << 12 | 1 << 15;
/// Close code after which the session can be resumed: with 1000 or 1001, Discord would end it.
const RESUMABLE_CLOSE_CODE: u16 = 4000;
/// Close code that ends the session.
const CLOSE_CODE: u16 = 1000;

/// Why a connection ended, where that is not an error.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum ConnectionEnd {
    /// The receiver was asked to stop.
    Stopped,
    /// Connect again immediately or after a wait; the reason is for the log.
    Again(&'static str),
    /// The session is not valid, or no longer valid.
    Invalid,
}

/// Heartbeats of one connection.
#[derive(Debug)]
struct HeartbeatState {
    beats: Interval,
    /// Whether the last heartbeat was answered.
    answered: bool,
}

#[derive(Debug)]
pub(super) struct LiveConnection<'a> {
    gateway: &'a GatewayReceiver<'a>,
    memory: &'a mut GatewayCache,
    socket: GatewaySocket,
    heart: HeartbeatState,
}

impl<'a> LiveConnection<'a> {
    pub(super) fn new(
        gateway: &'a GatewayReceiver<'a>,
        memory: &'a mut GatewayCache,
        socket: GatewaySocket,
        interval: Duration,
    ) -> Self {
        // The first heartbeat comes at a random moment of the interval, so that clients do not all send theirs
        // together.
        let first = interval.mul_f64(rand::rng().random_range(0.0..=1.0));
        let mut beats = interval_at(Instant::now() + first, interval);
        // A late heartbeat is sent once, not made up for by a burst.
        beats.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let heart = HeartbeatState {
            beats,
            answered: true,
        };
        Self {
            gateway,
            memory,
            socket,
            heart,
        }
    }

    /// Identifies or resumes, then handles events until the connection ends. Consumes the connection.
    pub(super) async fn run(
        mut self,
        sink: &GatewaySink<'_>,
        stop: &CancellationToken,
    ) -> Result<ConnectionEnd, PlatformError> {
        let begin = self.begin();
        self.socket.send(&begin).await?;
        loop {
            tokio::select! {
                () = stop.cancelled() => {
                    self.socket.close(CLOSE_CODE).await;
                    return Ok(ConnectionEnd::Stopped);
                }
                _ = self.heart.beats.tick() => {
                    // A zombie connection: still open, but the other side is gone.
                    if !self.heart.answered {
                        self.socket.close(RESUMABLE_CLOSE_CODE).await;
                        return Ok(ConnectionEnd::Again("a heartbeat was not answered"));
                    }
                    self.heart.beat(&mut self.socket, self.memory).await?;
                }
                read = self.socket.next() => match read? {
                    SocketRead::Closed(code) => return self.closed(code),
                    SocketRead::Payload(payload) => {
                        if let Some(end) = self.take(payload, sink, stop).await? {
                            // The session is taken up again, so it must stay resumable.
                            self.socket.close(RESUMABLE_CLOSE_CODE).await;
                            return Ok(end);
                        }
                    }
                },
            }
        }
    }

    /// `RESUME` where there is a session, `IDENTIFY` otherwise.
    fn begin(&self) -> Value {
        let token = self.gateway.api.token.expose();
        match self.memory.session() {
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

    fn closed(&mut self, code: Option<u16>) -> Result<ConnectionEnd, PlatformError> {
        let Some(code) = code else {
            return Ok(ConnectionEnd::Again("the connection broke"));
        };
        tracing::debug!(code, "the gateway closed the connection");
        match close::close_action(code) {
            CloseAction::Resume => Ok(ConnectionEnd::Again("the gateway closed the connection")),
            CloseAction::Begin => {
                self.memory.forget_session();
                Ok(ConnectionEnd::Invalid)
            }
            CloseAction::GiveUp(why) => Err(close::refused_close_error(code, why)),
        }
    }

    /// Handles one message of the gateway; returns how the connection ends when it ends with it.
    async fn take(
        &mut self,
        payload: GatewayPayload,
        sink: &GatewaySink<'_>,
        stop: &CancellationToken,
    ) -> Result<Option<ConnectionEnd>, PlatformError> {
        match payload.op {
            0 => self.event(payload, sink, stop).await?,
            // The gateway may ask for a heartbeat outside of the interval.
            1 => self.heart.beat(&mut self.socket, self.memory).await?,
            7 => {
                return Ok(Some(ConnectionEnd::Again(
                    "the gateway requested a reconnect",
                )));
            }
            9 => {
                // `d` says whether the session can be resumed.
                if payload.d.as_bool() != Some(true) {
                    self.memory.forget_session();
                }
                return Ok(Some(ConnectionEnd::Invalid));
            }
            11 => self.heart.answered = true,
            // Opcodes that are not known, which Discord may add at any time.
            _ => {}
        }
        Ok(None)
    }

    /// Handles one event. It counts as read once all of it was stored; heartbeats continue meanwhile.
    async fn event(
        &mut self,
        payload: GatewayPayload,
        sink: &GatewaySink<'_>,
        stop: &CancellationToken,
    ) -> Result<(), PlatformError> {
        let seq = payload.s.unwrap_or_default();
        let name = payload.t.as_deref().unwrap_or_default();
        match name {
            "READY" => {
                // Before it is handled: catching up needs our own id.
                self.memory.ready(&payload.d, seq);
                tracing::info!("connected to the gateway");
            }
            "RESUMED" => tracing::info!("resumed the session of the gateway"),
            _ => {}
        }
        // Taken before: the event must not be acknowledged until it is stored.
        let last = self.memory.session().map(|(_, seq)| seq);
        {
            let handling =
                catch_up::handle_event(self.gateway, self.memory, (name, &payload.d), sink, stop);
            tokio::pin!(handling);
            loop {
                tokio::select! {
                    done = &mut handling => break done?,
                    _ = self.heart.beats.tick() => {
                        // Responses are not read now, so a missing one would mean nothing: `answered` keeps its
                        // value.
                        self.socket.send(&json!({ "op": 1, "d": last })).await?;
                    }
                }
            }
        }
        self.memory.read(seq);
        Ok(())
    }
}

impl HeartbeatState {
    async fn beat(
        &mut self,
        socket: &mut GatewaySocket,
        memory: &GatewayCache,
    ) -> Result<(), PlatformError> {
        let last = memory.session().map(|(_, seq)| seq);
        self.answered = false;
        socket.send(&json!({ "op": 1, "d": last })).await
    }
}
