//! Requests and responses on one channel.

use std::time::Duration;

use bytes::{Buf as _, Bytes, BytesMut};
use dray_sandbox::{Error, ErrorKind};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::time::{Instant, timeout};

use super::reply::Reply;
use super::wire::{FieldReader, Packet, kind, protocol_error};
use crate::session::Session;

/// Largest response, which is the limit of OpenSSH itself.
const MAX_RESPONSE_BYTES: usize = 256 * 1024;
/// Least bytes by which the buffer grows.
const RESPONSE_ROOM_BYTES: usize = 64 * 1024;
/// Free bytes of the buffer below which it grows.
const MIN_ROOM_BYTES: usize = 4 * 1024;
/// Bytes that every server of version 3 reads and writes in one request.
const MIN_REQUEST_LIMIT_BYTES: u32 = 32 * 1024;
/// Larger requests are not made, even if the server allows them.
const MAX_REQUEST_LIMIT_BYTES: u32 = 255 * 1024;

/// A server at the other end of a pair of pipes.
pub(crate) struct Channel {
    reader: Box<dyn AsyncRead + Send + Sync + Unpin>,
    writer: Box<dyn AsyncWrite + Send + Sync + Unpin>,
    buffer: BytesMut,
    session: Option<Session>,
    extensions: Vec<(Bytes, Bytes)>,
    /// Most bytes of one read and of one write.
    limits: (u32, u32),
    response_timeout: Duration,
    last_request_id: u32,
    /// Requests without a response.
    pending_requests: usize,
    /// Handles of files and directories that the server has not been asked to close.
    open_handles: usize,
    /// Whether a packet was begun and not sent to its end.
    has_partial_packet: bool,
    is_broken: bool,
    /// Whether its requests may change files.
    may_change_files: bool,
    /// Shortest time of a request and its response so far.
    round_trip: Option<Duration>,
}

impl std::fmt::Debug for Channel {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Channel")
            .field("pending", &self.pending_requests)
            .finish_non_exhaustive()
    }
}

impl Channel {
    /// Exchanges versions with the server. `response_timeout` is the time limit for each response.
    pub(crate) async fn open(
        reader: impl AsyncRead + Send + Sync + Unpin + 'static,
        writer: impl AsyncWrite + Send + Sync + Unpin + 'static,
        response_timeout: Duration,
    ) -> Result<Self, Error> {
        let mut channel = Self {
            reader: Box::new(reader),
            writer: Box::new(writer),
            buffer: BytesMut::new(),
            session: None,
            extensions: Vec::new(),
            limits: (MIN_REQUEST_LIMIT_BYTES, MIN_REQUEST_LIMIT_BYTES),
            response_timeout,
            last_request_id: 0,
            pending_requests: 0,
            open_handles: 0,
            has_partial_packet: false,
            is_broken: false,
            may_change_files: false,
            round_trip: None,
        };
        channel
            .send_all(&Packet::new(kind::INIT).u32(3).finish())
            .await?;
        let (packet_kind, mut fields) = channel.packet().await?;
        // A server responds with the lower of both versions. Version 3 was offered, so a server with a lower one is too
        // old.
        if packet_kind != kind::VERSION || fields.u32()? != 3 {
            return Err(protocol_error("the server speaks another version"));
        }
        while !fields.is_empty() {
            channel
                .extensions
                .push((fields.string()?, fields.string()?));
        }
        channel.request_limits().await?;
        Ok(channel)
    }

    /// Ties the channel to the session that carries it: dropping the channel then closes the session.
    pub(crate) fn with_session(mut self, session: Session) -> Self {
        self.session = Some(session);
        self
    }

    /// Whether another caller may use the channel: every request was answered, no handle is open, and the session runs.
    pub(crate) fn is_free(&mut self) -> bool {
        let is_alive = self.session.as_mut().is_none_or(Session::is_alive);
        is_alive && self.has_only_handles(0)
    }

    /// Whether requests that change files may still be carried out after their caller has disconnected.
    pub(super) fn is_writing(&self) -> bool {
        self.may_change_files
            && !self.is_broken
            && self.pending_requests > usize::from(self.has_partial_packet)
    }

    /// Records that requests from now on change files, until the channel is free.
    pub(super) fn set_writing(&mut self) {
        self.may_change_files = true;
    }

    /// Records that requests from now on may only read.
    pub(super) fn clear_writing(&mut self) {
        self.may_change_files = false;
    }

    /// Reads the responses that a dropped caller does not wait for, as long as its requests may change files.
    pub(super) async fn drain(&mut self) {
        while self.is_writing() {
            if self.reply().await.is_err() {
                return;
            }
        }
    }

    /// Whether the stream is intact, so that responses can still be matched to requests.
    pub(super) const fn is_intact(&self) -> bool {
        !self.is_broken
    }

    /// Whether no request is under way and exactly this many handles are open.
    pub(super) const fn has_only_handles(&self, handles: usize) -> bool {
        !self.is_broken
            && !self.has_partial_packet
            && self.pending_requests == 0
            && self.open_handles == handles
    }

    /// The shortest time that a request and its response took.
    pub(super) const fn round_trip(&self) -> Option<Duration> {
        self.round_trip
    }

    /// Most bytes of one read.
    pub(super) const fn read_limit(&self) -> u32 {
        self.limits.0
    }

    /// Most bytes of one write.
    pub(super) const fn write_limit(&self) -> u32 {
        self.limits.1
    }

    /// Whether the server has this extension.
    pub(super) fn has_extension(&self, extension: &str) -> bool {
        self.extensions
            .iter()
            .any(|(name, _)| name == extension.as_bytes())
    }

    /// Begins a request and returns its id.
    pub(super) fn request(&mut self, kind: u8) -> (u32, Packet) {
        self.last_request_id = self.last_request_id.wrapping_add(1);
        (
            self.last_request_id,
            Packet::new(kind).u32(self.last_request_id),
        )
    }

    /// Sends bytes of one or several finished packets.
    pub(super) async fn send(&mut self, packets: &[u8], count: usize) -> Result<(), Error> {
        // The requests are counted before they are sent: if the caller is dropped meanwhile, the channel must count as
        // waiting for a response.
        self.pending_requests += count;
        self.send_all(packets).await
    }

    /// The next response, whichever request it is for.
    pub(super) async fn reply(&mut self) -> Result<(u32, Reply), Error> {
        let parsed = async {
            let (kind, mut fields) = self.packet().await?;
            Ok((fields.u32()?, Reply::parse(kind, fields)?))
        }
        .await;
        match &parsed {
            Ok((_, reply)) => {
                self.pending_requests = self.pending_requests.saturating_sub(1);
                self.open_handles += usize::from(matches!(reply, Reply::Handle(_)));
            }
            Err(_) => self.is_broken = true,
        }
        parsed
    }

    /// Sends one request and awaits its response. No other request may be under way on the channel.
    pub(super) async fn call(
        &mut self,
        kind: u8,
        fill: impl FnOnce(Packet) -> Packet,
    ) -> Result<Reply, Error> {
        let (id, packet) = self.request(kind);
        let sent = Instant::now();
        self.send(&fill(packet).finish(), 1).await?;
        let (response_id, reply) = self.reply().await?;
        let elapsed = sent.elapsed();
        // The shortest counts: a busy host delays single responses, but a distant one delays all.
        self.round_trip = Some(self.round_trip.map_or(elapsed, |time| time.min(elapsed)));
        if response_id != id {
            self.is_broken = true;
            return Err(protocol_error("the response belongs to no request"));
        }
        Ok(reply)
    }

    /// Like [`Channel::call`], with its own time limit.
    pub(super) async fn call_within(
        &mut self,
        limit: Duration,
        kind: u8,
        fill: impl FnOnce(Packet) -> Packet,
    ) -> Result<Reply, Error> {
        let response_timeout = std::mem::replace(&mut self.response_timeout, limit);
        let reply = self.call(kind, fill).await;
        self.response_timeout = response_timeout;
        reply
    }

    /// Closes a handle. A failure can be one of an earlier write, so it is reported.
    pub(super) async fn close(&mut self, handle: &[u8]) -> Result<Reply, Error> {
        let reply = self
            .call(kind::CLOSE, |packet| packet.string(handle))
            .await?;
        self.open_handles = self.open_handles.saturating_sub(1);
        Ok(reply)
    }

    async fn request_limits(&mut self) -> Result<(), Error> {
        if !self.has_extension("limits@openssh.com") {
            return Ok(());
        }
        let reply = self
            .call(kind::EXTENDED, |packet| {
                packet.string(b"limits@openssh.com")
            })
            .await?;
        if let Reply::Extended(mut fields) = reply {
            let _packet = fields.u64()?;
            let limit = |value: u64| {
                u32::try_from(value)
                    .unwrap_or(MAX_REQUEST_LIMIT_BYTES)
                    // 0 means "no limit" in this extension; the smallest is always allowed.
                    .clamp(MIN_REQUEST_LIMIT_BYTES, MAX_REQUEST_LIMIT_BYTES)
            };
            self.limits = (limit(fields.u64()?), limit(fields.u64()?));
        }
        Ok(())
    }

    async fn send_all(&mut self, bytes: &[u8]) -> Result<(), Error> {
        // The flag is set during the wait: if this future is dropped, half a packet is on the wire and the rest would
        // be misread.
        self.has_partial_packet = true;
        let sent = timeout(self.response_timeout, self.writer.write_all(bytes)).await;
        let failed = match sent {
            Ok(Ok(())) => {
                self.has_partial_packet = false;
                return Ok(());
            }
            Ok(Err(error)) => {
                Error::new(ErrorKind::Unavailable, "the channel takes no more").caused_by(error)
            }
            Err(_) => Error::new(ErrorKind::Timeout, "the channel has stalled"),
        };
        self.is_broken = true;
        Err(failed)
    }

    /// One packet: its type and what follows.
    async fn packet(&mut self) -> Result<(u8, FieldReader), Error> {
        self.fill(4).await?;
        let size = usize::try_from(self.buffer.get_u32()).unwrap_or(usize::MAX);
        // Text that start files print would be read as a length of a billion or more (sandbox-transfer 5.5).
        if size == 0 || size > MAX_RESPONSE_BYTES {
            self.is_broken = true;
            return Err(protocol_error(
                "a packet of impossible length; start files that print text do this",
            ));
        }
        self.fill(size).await?;
        // The data of a read stays in this buffer and is handed on without a copy.
        let mut packet = self.buffer.split_to(size).freeze();
        Ok((packet.get_u8(), FieldReader::new(packet)))
    }

    /// Reads until the buffer has `size` bytes.
    async fn fill(&mut self, size: usize) -> Result<(), Error> {
        while self.buffer.len() < size {
            if self.buffer.capacity() - self.buffer.len() < MIN_ROOM_BYTES {
                let missing = size.saturating_sub(self.buffer.len());
                self.buffer.reserve(missing.max(RESPONSE_ROOM_BYTES));
            }
            let read = timeout(
                self.response_timeout,
                self.reader.read_buf(&mut self.buffer),
            )
            .await;
            let failed = match read {
                Ok(Ok(0)) => Error::new(ErrorKind::Unavailable, "the channel ended"),
                Ok(Ok(_)) => continue,
                Ok(Err(error)) => {
                    Error::new(ErrorKind::Unavailable, "the channel broke").caused_by(error)
                }
                Err(_) => Error::new(ErrorKind::Timeout, "no response in time"),
            };
            self.is_broken = true;
            return Err(failed);
        }
        Ok(())
    }
}
