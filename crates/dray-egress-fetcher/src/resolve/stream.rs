//! DNS messages over one encrypted stream (RFC 7858): pipelined, with responses in any order (RFC 7766, section
//! 6.2.1.1).

use std::collections::HashMap;
use std::io;
use std::time::Duration;

use bytes::{Buf as _, BytesMut};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, ReadHalf, WriteHalf};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinSet;
use tokio::time::timeout;

use super::encrypted::ExchangeError;
use crate::dial::Io;

/// Queries that wait to be written.
const MAX_QUEUED_QUERIES: usize = 64;
/// Queries without a response; beyond it, the connection counts as broken.
const MAX_PENDING_QUERIES: usize = 1024;
/// Messages in a row that respond to no query; a server that sends more loses its connection. Late responses to
/// abandoned queries count too.
const MAX_UNSOLICITED_MESSAGES: u32 = 1024;
/// Longest time to write one query.
const WRITE_TIMEOUT: Duration = Duration::from_secs(3);
/// Time without a query or a message after which the connection is closed.
const IDLE_TIMEOUT: Duration = Duration::from_secs(30);

/// The sending end of a connection.
pub(super) struct StreamConnection {
    queries: mpsc::Sender<PendingQuery>,
}

/// A query whose response is awaited.
struct PendingQuery {
    packet: Vec<u8>,
    response: oneshot::Sender<Vec<u8>>,
}

impl StreamConnection {
    /// Starts to move messages over a connected stream, in a task of `tasks`.
    pub(super) fn start(io: Box<dyn Io>, tasks: &mut JoinSet<()>) -> Self {
        let (queries, receiver) = mpsc::channel(MAX_QUEUED_QUERIES);
        let (reader, writer) = tokio::io::split(io);
        let task = StreamTask {
            reader,
            writer,
            received: BytesMut::new(),
            pending: HashMap::new(),
            next_id: 0,
            unsolicited: 0,
        };
        tasks.spawn(async move {
            if let Err(error) = task.run(receiver).await {
                tracing::debug!(%error, "the connection to a DNS server ended");
            }
        });
        Self { queries }
    }

    /// Sends a query and waits for its response.
    pub(super) async fn exchange(&self, packet: &[u8]) -> Result<Vec<u8>, ExchangeError> {
        let closed = || io::Error::from(io::ErrorKind::ConnectionAborted);
        let (response, received) = oneshot::channel();
        let query = PendingQuery {
            packet: packet.to_vec(),
            response,
        };
        self.queries.send(query).await.map_err(|_| closed())?;
        let mut message = received.await.map_err(|_| closed())?;
        restore_id(&mut message, packet);
        Ok(message)
    }
}

/// Gives a response the id of the query that the caller knows.
pub(super) fn restore_id(message: &mut [u8], packet: &[u8]) {
    if let (Some(to), Some(from)) = (message.first_chunk_mut(), packet.first_chunk::<2>()) {
        *to = *from;
    }
}

/// The task of one connection.
struct StreamTask {
    reader: ReadHalf<Box<dyn Io>>,
    writer: WriteHalf<Box<dyn Io>>,
    /// Bytes that are not a whole message yet.
    received: BytesMut,
    pending: HashMap<u16, oneshot::Sender<Vec<u8>>>,
    next_id: u16,
    unsolicited: u32,
}

impl StreamTask {
    /// Runs until either side closes the connection or breaks its rules. Waiting queries end with it.
    async fn run(mut self, mut queries: mpsc::Receiver<PendingQuery>) -> io::Result<()> {
        loop {
            tokio::select! {
                query = queries.recv() => match query {
                    Some(query) => timeout(WRITE_TIMEOUT, self.send(query)).await??,
                    None => return Ok(()),
                },
                // `read_buf` loses no bytes when another branch wins.
                count = self.reader.read_buf(&mut self.received) => match count? {
                    0 => return Err(io::ErrorKind::UnexpectedEof.into()),
                    _ => self.deliver_messages()?,
                },
                () = tokio::time::sleep(IDLE_TIMEOUT) => return Ok(()),
            }
        }
    }

    /// Writes a query under an id that no pending one has.
    async fn send(&mut self, query: PendingQuery) -> io::Result<()> {
        // Removes abandoned queries, whose receivers were dropped.
        self.pending.retain(|_, response| !response.is_closed());
        if self.pending.len() >= MAX_PENDING_QUERIES {
            return Err(io::Error::other("too many queries without a response"));
        }
        while self.pending.contains_key(&self.next_id) {
            self.next_id = self.next_id.wrapping_add(1);
        }
        let id = self.next_id;
        self.next_id = self.next_id.wrapping_add(1);
        let mut packet = query.packet;
        restore_id(&mut packet, &id.to_be_bytes());
        let length = u16::try_from(packet.len()).map_err(io::Error::other)?;
        self.pending.insert(id, query.response);
        // One write for both, so that they leave in one record (RFC 7858, section 3.3).
        let framed = [&length.to_be_bytes(), packet.as_slice()].concat();
        self.writer.write_all(&framed).await?;
        self.writer.flush().await
    }

    /// Delivers every whole message to the query that waits for it.
    fn deliver_messages(&mut self) -> io::Result<()> {
        while let Some(length) = self.received.first_chunk() {
            let length = usize::from(u16::from_be_bytes(*length));
            if self.received.len() < 2 + length {
                return Ok(());
            }
            self.received.advance(2);
            let message = self.received.split_to(length).to_vec();
            let Some(id) = message.first_chunk() else {
                return Err(io::Error::other("a message without an id"));
            };
            let waiting = self.pending.remove(&u16::from_be_bytes(*id));
            let delivered = waiting.is_some_and(|response| response.send(message).is_ok());
            self.unsolicited = if delivered { 0 } else { self.unsolicited + 1 };
            if self.unsolicited > MAX_UNSOLICITED_MESSAGES {
                return Err(io::Error::other("messages that respond to no query"));
            }
        }
        Ok(())
    }
}
