//! Reads a file: it is checked before and after opening, and then read with many concurrent requests.

use std::collections::VecDeque;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use dray_sandbox::{Body, Error, ErrorKind, FileKind, Metadata, SandboxPath};
use dray_types::Sha256Digest;
use futures_util::stream;
use sha2::{Digest as _, Sha256};

use super::attributes::Attributes;
use super::channel::Channel;
use super::diagnose;
use super::files::lstat;
use super::pool::ChannelLease;
use super::reply::Reply;
use super::wire::{kind, open, protocol_error, status};

/// Most requests that are in flight.
const MAX_REQUESTS: usize = 64;
/// Most bytes that are in flight. The window of an SSH channel is 2 MiB, so more would only take memory.
const MAX_IN_FLIGHT_BYTES: u64 = 4 * 1024 * 1024;
/// Time limit for opening a file. A FIFO in its place would block the channel forever.
const OPEN_TIMEOUT: Duration = Duration::from_secs(10);

/// Reads the regular file with this metadata, from `offset` on.
pub(crate) async fn download(
    mut lease: ChannelLease,
    file: &Metadata,
    offset: u64,
) -> Result<Body, Error> {
    if offset > file.size {
        return Err(protocol_error("reading begins after the end"));
    }
    let handle = match open_regular(&mut lease, file).await {
        Ok(handle) => handle,
        Err(error) => {
            return Err(diagnose::explain_missing(&mut lease, &file.real_path, error).await);
        }
    };
    let reading = FileRead {
        lease,
        handle,
        size: file.size,
        next_offset: offset,
        reads: VecDeque::new(),
        requested_bytes: 0,
    };
    Ok(Body::new(stream::try_unfold(
        Some(reading),
        |state| async {
            let Some(mut reading) = state else {
                return Ok(None);
            };
            Ok(reading
                .next_bytes()
                .await?
                .map(|part| (part, Some(reading))))
        },
    )))
}

/// Computes SHA-256 and length of content that is read back from the server.
pub(crate) async fn digest(mut body: Body) -> Result<(Sha256Digest, u64), Error> {
    let mut hasher = Sha256::new();
    let mut count = 0;
    while let Some(part) = body.next().await {
        let part = part?;
        count += part.len() as u64;
        hasher.update(&part);
    }
    Ok((Sha256Digest::from_bytes(hasher.finalize().into()), count))
}

/// Opens the file with this metadata, and checks before and after opening that it is that file and regular.
async fn open_regular(channel: &mut Channel, file: &Metadata) -> Result<Bytes, Error> {
    let path = &file.real_path;
    // The kind of the file is checked before OPEN, which would block the whole channel on a FIFO (sandbox-transfer
    // 5.2).
    check_unchanged(file, &lstat(channel, path).await?)?;
    let handle = channel
        .call_within(OPEN_TIMEOUT, kind::OPEN, |packet| {
            packet.string(path.as_bytes()).u32(open::READ).u32(0)
        })
        .await?
        .handle()?;
    match check_opened(channel, file, &handle).await {
        Ok(()) => Ok(handle),
        Err(error) => {
            // The opened file may be of any kind; if it cannot be closed, the channel is no longer used.
            let _ = channel.close(&handle).await;
            Err(error)
        }
    }
}

/// Releases a server that hangs while it opens a FIFO and waits for a writer. Opening a FIFO for both directions never
/// waits. It runs on another channel, after [`download`] gave up the one that hangs.
pub(crate) async fn release(channel: &mut Channel, path: &SandboxPath) -> Result<(), Error> {
    if lstat(channel, path).await?.kind() != FileKind::Fifo {
        return Ok(());
    }
    let handle = channel
        .call_within(OPEN_TIMEOUT, kind::OPEN, |packet| {
            packet
                .string(path.as_bytes())
                .u32(open::READ | open::WRITE)
                .u32(0)
        })
        .await?
        .handle()?;
    channel.close(&handle).await?.done()
}

async fn check_opened(channel: &mut Channel, file: &Metadata, handle: &[u8]) -> Result<(), Error> {
    let opened = channel
        .call(kind::FSTAT, |packet| packet.string(handle))
        .await?
        .attributes()?;
    check_unchanged(file, &opened)?;
    // OPEN follows links, and version 3 has no flag that prevents it. If a link was at this path during OPEN and is
    // still there, LSTAT reports it.
    check_unchanged(file, &lstat(channel, &file.real_path).await?)
}

/// Fails unless the attributes equal the metadata. Version 3 has no inode number, so kind, owner, mode, size and time
/// are compared.
fn check_unchanged(file: &Metadata, found: &Attributes) -> Result<(), Error> {
    check_regular(found)?;
    // Version 3 reports whole seconds; `file` may have nanoseconds from a command.
    let mtime = file.mtime_ns.map(|time| time.div_euclid(1_000_000_000));
    let is_same = found.size == Some(file.size)
        && found.mode() == file.mode
        && found.owner.map(|(uid, _)| uid) == file.uid
        && found.owner.map(|(_, gid)| gid) == file.gid
        && found.modified.map(i128::from) == mtime;
    if is_same {
        return Ok(());
    }
    Err(Error::new(
        ErrorKind::ChangedDuringTransfer,
        "not the file whose metadata was read",
    ))
}

/// Fails unless it is a regular file.
pub(super) fn check_regular(found: &Attributes) -> Result<(), Error> {
    match found.kind() {
        FileKind::File => Ok(()),
        FileKind::Directory => Err(Error::new(ErrorKind::IsDirectory, "a directory")),
        FileKind::Symlink => Err(Error::new(
            ErrorKind::ChangedDuringTransfer,
            "a link replaced the file",
        )),
        _ => Err(Error::new(ErrorKind::NotRegular, "not a regular file")),
    }
}

/// A request that is in flight, or whose response was not passed on yet.
#[derive(Debug)]
struct PendingRead {
    id: u32,
    offset: u64,
    length: u32,
    /// `None` until it is answered, empty at the end of the file.
    response: Option<Bytes>,
}

/// A file that is being read.
#[derive(Debug)]
struct FileRead {
    lease: ChannelLease,
    handle: Bytes,
    size: u64,
    /// Offset of the next request.
    next_offset: u64,
    /// Open reads in the order of their offsets.
    reads: VecDeque<PendingRead>,
    /// Bytes that were requested and not passed on yet.
    requested_bytes: u64,
}

impl FileRead {
    /// Returns the next bytes, or `None` at the end of the file.
    async fn next_bytes(&mut self) -> Result<Option<Bytes>, Error> {
        loop {
            // The window is filled before a response is awaited, so that the wire is never idle.
            self.send_requests().await?;
            let Some(front) = self.reads.front_mut() else {
                return Err(protocol_error("the request has no bytes"));
            };
            let Some(data) = front.response.take() else {
                self.take_response().await?;
                continue;
            };
            let (offset, length) = (front.offset, front.length);
            self.reads.pop_front();
            self.requested_bytes -= u64::from(length);
            if data.is_empty() {
                return self.finish(offset).await.map(|()| None);
            }
            // The request beyond the size was answered with data.
            if offset >= self.size {
                return Err(Error::new(
                    ErrorKind::ChangedDuringTransfer,
                    "the file grew",
                ));
            }
            let received = u32::try_from(data.len()).unwrap_or(u32::MAX);
            if received < length {
                // Fewer bytes than requested: the rest is requested, and passed on before everything else.
                let packet =
                    self.record_request(offset + u64::from(received), length - received, true);
                self.lease.send(&packet, 1).await?;
            }
            return Ok(Some(data));
        }
    }

    /// Sends requests until enough are in flight. The last request begins at the end of the file and gets bytes only if
    /// the file grew.
    async fn send_requests(&mut self) -> Result<(), Error> {
        let limit = u64::from(self.lease.read_limit());
        let mut packets = BytesMut::new();
        let mut count = 0;
        while self.reads.len() < MAX_REQUESTS && self.requested_bytes < MAX_IN_FLIGHT_BYTES {
            let is_beyond_end = self.next_offset >= self.size;
            if is_beyond_end && self.reads.iter().any(|part| part.offset >= self.size) {
                break;
            }
            let length = if is_beyond_end {
                limit
            } else {
                limit.min(self.size - self.next_offset)
            };
            let length = u32::try_from(length).unwrap_or(u32::MAX);
            let packet = self.record_request(self.next_offset, length, false);
            packets.extend_from_slice(&packet);
            count += 1;
            self.next_offset += u64::from(length);
            if is_beyond_end {
                break;
            }
        }
        if count == 0 {
            return Ok(());
        }
        self.lease.send(&packets, count).await
    }

    /// Records a request and builds its packet.
    fn record_request(&mut self, offset: u64, length: u32, at_front: bool) -> BytesMut {
        let (id, packet) = self.lease.request(kind::READ);
        let part = PendingRead {
            id,
            offset,
            length,
            response: None,
        };
        self.requested_bytes += u64::from(length);
        if at_front {
            self.reads.push_front(part);
        } else {
            self.reads.push_back(part);
        }
        packet.string(&self.handle).u64(offset).u32(length).finish()
    }

    /// Takes one response, whichever request it is for.
    async fn take_response(&mut self) -> Result<(), Error> {
        let (id, reply) = self.lease.reply().await?;
        // Responses may arrive in any order; a second response to the same id is refused.
        let waiting = |part: &&mut PendingRead| part.id == id && part.response.is_none();
        let Some(part) = self.reads.iter_mut().find(waiting) else {
            return Err(protocol_error("the response belongs to no request"));
        };
        let data = match reply {
            Reply::Data(data) if data.is_empty() => {
                return Err(protocol_error("data without bytes"));
            }
            Reply::Data(data) if data.len() > part.length as usize => {
                return Err(protocol_error("more data than requested"));
            }
            Reply::Data(data) => data,
            other if other.code() == Some(status::EOF) => Bytes::new(),
            other => return Err(other.failure()),
        };
        part.response = Some(data);
        Ok(())
    }

    /// Ends the read: awaits the responses that are still in flight, all of them for bytes beyond the end, and closes
    /// the file.
    async fn finish(&mut self, offset: u64) -> Result<(), Error> {
        if offset < self.size {
            return Err(Error::new(
                ErrorKind::Truncated,
                format!("{offset} of {} bytes are there", self.size),
            ));
        }
        // The channel can serve another transfer only when no response is left in it.
        while self.reads.iter().any(|part| part.response.is_none()) {
            self.take_response().await?;
        }
        let handle = self.handle.clone();
        self.lease.close(&handle).await?.done()
    }
}
