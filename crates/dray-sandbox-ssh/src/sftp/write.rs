//! Writes a new file, or the rest of one.

use std::time::Duration;

use bytes::{Bytes, BytesMut};
use dray_sandbox::{Body, Error, ErrorKind, Follow, SandboxPath};

use super::attributes::Attributes;
use super::channel::Channel;
use super::diagnose;
use super::files::{lstat, stat};
use super::read::check_regular;
use super::reply::Reply;
use super::wire::{kind, open, protocol_error};

/// Most requests that are in flight.
const MAX_REQUESTS: usize = 64;
/// Most bytes that are in flight.
const MAX_IN_FLIGHT_BYTES: usize = 4 * 1024 * 1024;
/// Time for flushing a file to the disk of the host.
const FSYNC_TIMEOUT: Duration = Duration::from_mins(5);
/// Time for opening a file.
const OPEN_TIMEOUT: Duration = Duration::from_secs(10);
/// Extension by which a server writes a file to its disk.
const FSYNC_EXTENSION: &str = "fsync@openssh.com";

/// The file that is written, or the rest of it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct UploadTarget<'a> {
    /// Path of the new file; it must not exist unless `offset` is above 0.
    pub(crate) path: &'a SandboxPath,
    /// Bytes of the whole file.
    pub(crate) size: u64,
    /// Bytes that the file has already.
    pub(crate) offset: u64,
    /// Mode bits for the finished file; set-user-id and other special bits are dropped.
    pub(crate) mode: u32,
}

/// Writes the body and makes sure that the host has all of it on its disk.
pub(crate) async fn upload(
    channel: &mut Channel,
    upload: UploadTarget<'_>,
    body: Body,
) -> Result<(), Error> {
    channel.set_writing();
    let directory = upload.path.parent();
    let remaining = upload.size.saturating_sub(upload.offset);
    if let Ok(Some(space)) = diagnose::file_system_space(channel, &directory).await {
        if space.is_read_only {
            return Err(Error::new(ErrorKind::ReadOnly, "a read-only file system"));
        }
        // The space is checked first: the status for a full disk is only "failure" (sandbox-transfer 5.2).
        if space.free_bytes < remaining {
            return Err(Error::new(ErrorKind::NoSpace, "too little space is free"));
        }
    }
    let handle = match open_new(channel, upload).await {
        Ok(handle) => handle,
        Err(error) => return Err(explain_open_failure(channel, upload.path, error).await),
    };
    let written = write_all(channel, &handle, upload, body).await;
    // After a failed source or an invalid response no handle is closed: the whole channel is dropped.
    let closed = if channel.has_only_handles(1) {
        channel.close(&handle).await.and_then(Reply::done)
    } else {
        Ok(())
    };
    match written.and(closed) {
        // If the disk was full, not even one block is free now.
        Err(error) => Err(diagnose::explain_unwritable(channel, &directory, 4096, error).await),
        done => done,
    }
}

/// Opens a new file, or an existing one with exactly the bytes before `offset`.
async fn open_new(channel: &mut Channel, upload: UploadTarget<'_>) -> Result<Bytes, Error> {
    let flags = if upload.offset == 0 {
        open::WRITE | open::CREATE | open::EXCLUSIVE
    } else {
        let found = lstat(channel, upload.path).await?;
        check_regular(&found)?;
        if found.size != Some(upload.offset) {
            return Err(Error::new(
                ErrorKind::ChangedDuringTransfer,
                "the file has fewer bytes than were written",
            ));
        }
        open::WRITE
    };
    channel
        .call_within(OPEN_TIMEOUT, kind::OPEN, |packet| {
            packet
                .string(upload.path.as_bytes())
                .u32(flags)
                .u32(Attributes::only_permissions())
                // Other users cannot read the file before it is complete; the mode is set at the end.
                .u32(0o600)
        })
        .await?
        .handle()
}

async fn explain_open_failure(channel: &mut Channel, path: &SandboxPath, error: Error) -> Error {
    if error.kind() == ErrorKind::Unavailable && channel.is_free() {
        if lstat(channel, path).await.is_ok() {
            return Error::new(ErrorKind::Exists, "the name is taken").caused_by(error);
        }
        return diagnose::explain_unwritable(channel, &path.parent(), 4096, error).await;
    }
    if error.kind() == ErrorKind::NotFound {
        // The parent is missing, or is not a directory.
        return match stat(channel, &path.parent(), Follow::Yes).await {
            Err(parent) => parent,
            Ok(parent) if parent.kind != dray_sandbox::FileKind::Directory => {
                Error::new(ErrorKind::NotDirectory, "the parent is not a directory")
                    .caused_by(error)
            }
            Ok(_) => error,
        };
    }
    error
}

async fn write_all(
    channel: &mut Channel,
    handle: &Bytes,
    upload: UploadTarget<'_>,
    body: Body,
) -> Result<(), Error> {
    let mut writing = FileWrite {
        limit: channel.write_limit() as usize,
        channel,
        handle,
        offset: upload.offset,
        packet: BytesMut::new(),
        in_flight: Vec::new(),
        in_flight_bytes: 0,
    };
    let written = writing.write_body(body, upload.size).await;
    // After a success no response is missing, and this returns immediately.
    writing.await_responses().await;
    written?;
    if channel.has_extension(FSYNC_EXTENSION) {
        channel
            // The content is synced before the rename that publishes it: after a crash of the host the name must not
            // lead to an empty file.
            .call_within(FSYNC_TIMEOUT, kind::EXTENDED, |packet| {
                packet.string(FSYNC_EXTENSION.as_bytes()).string(handle)
            })
            .await?
            .done()?;
    }
    channel
        .call(kind::FSETSTAT, |packet| {
            packet
                .string(handle)
                .u32(Attributes::only_permissions())
                // Set-user-id, set-group-id and the sticky bit are never set (sandbox-transfer 1.5).
                .u32(upload.mode & 0o777)
        })
        .await?
        .done()
}

/// A file that is being written.
struct FileWrite<'a> {
    channel: &'a mut Channel,
    handle: &'a Bytes,
    /// Most bytes of one request.
    limit: usize,
    /// Offset of the next request.
    offset: u64,
    /// Bytes of the next request.
    packet: BytesMut,
    /// Ids and sizes of requests without a response.
    in_flight: Vec<(u32, usize)>,
    in_flight_bytes: usize,
}

impl FileWrite<'_> {
    /// Sends the whole body and awaits every response.
    async fn write_body(&mut self, mut body: Body, size: u64) -> Result<(), Error> {
        while let Some(part) = body.next().await {
            let mut part = part?;
            // The size is checked as it arrives: a source that grew is refused before the surplus is written.
            if self.offset + (self.packet.len() + part.len()) as u64 > size {
                return Err(Error::new(
                    ErrorKind::ChangedDuringTransfer,
                    "more bytes than were announced",
                ));
            }
            while !part.is_empty() {
                let room = self.limit - self.packet.len();
                let taken = part.split_to(room.min(part.len()));
                self.packet.extend_from_slice(&taken);
                if self.packet.len() == self.limit {
                    self.send().await?;
                }
            }
        }
        if !self.packet.is_empty() {
            self.send().await?;
        }
        while !self.in_flight.is_empty() {
            self.take_response().await?;
        }
        if self.offset < size {
            return Err(Error::new(
                ErrorKind::Truncated,
                format!("{} of {size} bytes were given", self.offset),
            ));
        }
        Ok(())
    }

    async fn send(&mut self) -> Result<(), Error> {
        while self.in_flight.len() >= MAX_REQUESTS || self.in_flight_bytes >= MAX_IN_FLIGHT_BYTES {
            self.take_response().await?;
        }
        let (id, packet) = self.channel.request(kind::WRITE);
        let head = packet.string(self.handle).u64(self.offset);
        let size = self.packet.len();
        let head = head.before_string(size);
        self.offset += size as u64;
        self.in_flight_bytes += size;
        self.in_flight.push((id, size));
        self.channel.send(&head, 1).await?;
        // The data follows its header without a copy; both are one request, which was counted above.
        self.channel.send(&self.packet, 0).await?;
        self.packet.clear();
        Ok(())
    }

    /// Awaits the responses that are still in flight after a failure, so that the file can be closed.
    async fn await_responses(&mut self) {
        while !self.in_flight.is_empty() && self.channel.is_intact() {
            // The first failure is the one that is reported.
            let _ = self.take_response().await;
        }
    }

    async fn take_response(&mut self) -> Result<(), Error> {
        let (id, reply) = self.channel.reply().await?;
        let Some(index) = self
            .in_flight
            .iter()
            .position(|(requested, _)| *requested == id)
        else {
            return Err(protocol_error("the response belongs to no request"));
        };
        let (_, size) = self.in_flight.swap_remove(index);
        self.in_flight_bytes -= size;
        reply.done()
    }
}
