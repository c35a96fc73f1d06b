//! Writes new files: over stdin where the channel has one, otherwise in chunks as arguments (sandbox-transfer 11.5,
//!

use std::time::Duration;

use bytes::{Bytes, BytesMut};
use dray_sandbox::backend::Write;
use dray_sandbox::body::Body;
use dray_sandbox::error::{Error, ErrorKind, RetryMode};
use dray_sandbox::metadata::Fingerprint;

use super::channel::Exec;
use super::files::{ExecFiles, yes_or_no};
use super::input::{
    WatchedInput, base64_lines, compressed, gzip, lines, lines_length, sample, shrinks,
};
use super::probe::free;
use super::read::is_text;
use super::reply::{MAX_RESPONSE_BYTES, Nonce, Reply, command, weight};

const WRITE_SCRIPT: &str = concat!(
    include_str!("script/sha256.sh"),
    include_str!("script/write.sh")
);
const CHUNK_SCRIPT: &str = include_str!("script/chunk.sh");
const ROOM_SCRIPT: &str = include_str!("script/room.sh");
/// Longest chunk in an argument: its base64 has 60 000 characters, well below the limit for one argument.
const MAX_CHUNK_BYTES: usize = 45_000;
/// Attempts for a chunk whose response is lost.
const MAX_ATTEMPTS: u32 = 3;
/// Time limit for finding the reason of a failure that reported none.
const REASON_TIMEOUT: Duration = Duration::from_secs(10);

/// The coding of the bytes on the channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum WriteCoding {
    None,
    Raw,
    Base64,
    Gzip,
}

impl WriteCoding {
    const fn as_bytes(self) -> &'static [u8] {
        match self {
            Self::None => b"none",
            Self::Raw => b"raw",
            Self::Base64 => b"base64",
            Self::Gzip => b"gzip",
        }
    }
}

impl<E: Exec + 'static> ExecFiles<E> {
    /// See [`dray_sandbox::Sandbox::write`]. Takes [`dray_sandbox::Transport::ExecRaw`] and
    /// [`dray_sandbox::Transport::ExecBase64`].
    pub async fn write(&self, write: Write<'_>, body: Body) -> Result<(), Error> {
        self.write_input(write, body, false).await.map(|_| ())
    }

    /// See [`dray_sandbox::Sandbox::write_with_digest`]. The digest is computed by the command that writes, where it
    /// has `dd` or `tee` and a program for SHA-256; a continued write returns no digest.
    pub async fn write_with_digest(
        &self,
        write: Write<'_>,
        body: Body,
    ) -> Result<Option<Fingerprint>, Error> {
        self.write_input(write, body, true).await
    }

    async fn write_input(
        &self,
        write: Write<'_>,
        body: Body,
        digest: bool,
    ) -> Result<Option<Fingerprint>, Error> {
        let text = is_text(write.transport)?;
        let channel = self.exec.channel();
        let raw_input = channel.input && channel.binary_input;
        if !text && !raw_input {
            return Err(Error::new(
                ErrorKind::ToolMissing,
                "the channel takes no raw bytes",
            ));
        }
        let Some(left) = write.size.checked_sub(write.offset) else {
            return Err(Error::new(
                ErrorKind::Protocol,
                "the offset is beyond the size of the file",
            ));
        };
        let body = body.exactly(left);
        if left == 0 {
            // There is nothing to send, but the body may still be longer than it should be.
            body.read_all(0).await?;
            let reply = self.put(write, WriteCoding::None, (0, false), None).await?;
            return check_written(&reply, write.size).map(|()| None);
        }
        if !channel.input {
            return self.write_arguments(write, body).await.map(|()| None);
        }
        let (input, body) = WatchedInput::watch(body);
        let (coding, length, body) = if text {
            let (helps, body) = match input.guard(sample(body)).await? {
                // Without a signal for the end of input the script needs the length, and the length of compressed input
                // is not known in advance.
                (true, body) if channel.input_end => (self.has_tool("gzip").await?, body),
                (_, body) => (false, body),
            };
            if helps {
                (WriteCoding::Gzip, 0, base64_lines(compressed(body)))
            } else {
                (WriteCoding::Base64, lines_length(left), base64_lines(body))
            }
        } else {
            (WriteCoding::Raw, left, body)
        };
        // The shell reads commands after the input, so its script must count the bytes itself.
        let lent = self.lendable_shell().filter(|_| coding == WriteCoding::Raw);
        let ends = channel.input_end && lent.is_none();
        let length = if ends { 0 } else { length };
        // A digest beside the write would not cover the bytes before `offset`.
        let digest = digest && write.offset == 0;
        let request = self.put(write, coding, (length, digest), Some(body));
        let reply = input.guard(request).await?;
        check_written(&reply, write.size)?;
        let sha256 = reply.text("sha256").parse().ok();
        Ok(sha256.map(|sha256| Fingerprint::Sha256(sha256, write.size)))
    }

    /// Runs the script that reads stdin: `length` bytes of it, 0 for all, with or without a digest.
    async fn put(
        &self,
        write: Write<'_>,
        coding: WriteCoding,
        (length, digest): (u64, bool),
        stdin: Option<Body>,
    ) -> Result<Reply, Error> {
        let arguments: [&[u8]; 7] = [
            write.path.as_bytes(),
            &write.size.to_string().into_bytes(),
            &write.offset.to_string().into_bytes(),
            &mode(write.mode),
            coding.as_bytes(),
            &length.to_string().into_bytes(),
            yes_or_no(digest),
        ];
        let request = match (self.lendable_shell(), stdin) {
            (Some(persistent_shell), Some(stdin)) if coding == WriteCoding::Raw => {
                let exec = self.exec.as_ref();
                persistent_shell
                    .run_script_with_input(
                        exec,
                        WRITE_SCRIPT,
                        &arguments,
                        stdin,
                        MAX_RESPONSE_BYTES,
                    )
                    .await
            }
            (_, stdin) => self.run_script(WRITE_SCRIPT, &arguments, stdin).await,
        };
        match request {
            Err(error) => Err(self.explain(&write, error).await),
            reply => reply,
        }
    }

    /// Replaces the error of a missing response if the disk is full: a full disk ends a command before its input does,
    /// and the broken channel reports no reason.
    async fn explain(&self, write: &Write<'_>, error: Error) -> Error {
        if !matches!(
            error.kind(),
            ErrorKind::Unavailable | ErrorKind::Truncated | ErrorKind::Timeout
        ) {
            return error;
        }
        let arguments = [write.path.as_bytes()];
        let lookup = self.run_script(ROOM_SCRIPT, &arguments, None);
        let Ok(Ok(reply)) = tokio::time::timeout(REASON_TIMEOUT, lookup).await else {
            return error;
        };
        match written_before_full(&reply, write.size) {
            Some(found) => no_space(found, write.size).caused_by(error),
            None => error,
        }
    }

    async fn write_arguments(&self, write: Write<'_>, mut body: Body) -> Result<(), Error> {
        let max_bytes = self.max_chunk_bytes(&write)?;
        let compresses = self.has_tool("gzip").await?;
        // Creates the file exclusively; the chunks are appended to it.
        if write.offset == 0 {
            let nothing = Write { size: 0, ..write };
            let reply = self
                .put(nothing, WriteCoding::None, (0, false), None)
                .await?;
            reply.check("text")?;
        }
        let mut offset = write.offset;
        let mut pending = BytesMut::new();
        while let Some(part) = body.next().await {
            pending.extend_from_slice(&part?);
            while pending.len() >= max_bytes {
                let chunk = pending.split_to(max_bytes).freeze();
                offset = self.append(&write, offset, chunk, compresses).await?;
            }
        }
        if !pending.is_empty() {
            offset = self
                .append(&write, offset, pending.freeze(), compresses)
                .await?;
        }
        if offset == write.size {
            Ok(())
        } else {
            Err(Error::new(ErrorKind::Truncated, "the body was short"))
        }
    }

    /// Sends one chunk, and sends it again when its response is lost. The script compares the offset, so the chunk is
    /// added only once.
    async fn append(
        &self,
        write: &Write<'_>,
        offset: u64,
        chunk: Bytes,
        compresses: bool,
    ) -> Result<u64, Error> {
        let packed = (compresses && shrinks(&chunk))
            .then(|| gzip(&chunk))
            .flatten();
        let (coding, text) = match packed {
            Some(packed) => (WriteCoding::Gzip, lines(&packed)),
            None => (WriteCoding::Base64, lines(&chunk)),
        };
        let arguments: [&[u8]; 7] = [
            write.path.as_bytes(),
            &write.size.to_string().into_bytes(),
            &offset.to_string().into_bytes(),
            &mode(write.mode),
            coding.as_bytes(),
            &chunk.len().to_string().into_bytes(),
            text.as_bytes(),
        ];
        let after = offset + chunk.len() as u64;
        for attempts_left in (0..MAX_ATTEMPTS).rev() {
            match self.run_script(CHUNK_SCRIPT, &arguments, None).await {
                Ok(reply) => return check_written(&reply, after).map(|()| after),
                Err(error) if attempts_left > 0 && may_be_lost(&error) => {
                    tracing::debug!(%error, offset, "the response to a chunk was lost");
                }
                Err(error) => return Err(self.explain(write, error).await),
            }
        }
        Err(Error::new(ErrorKind::Unavailable, "no response"))
    }

    /// Number of bytes of a chunk that fit into the arguments of one command.
    fn max_chunk_bytes(&self, write: &Write<'_>) -> Result<usize, Error> {
        let channel = self.exec.channel();
        // These bytes stand for the numbers and words that the real command has in addition.
        let numbers = [b'9'; 100];
        let bare = command(
            CHUNK_SCRIPT,
            &Nonce::new(),
            !channel.binary_output,
            &[write.path.as_bytes(), &numbers],
        );
        let room = channel
            .longest_arguments
            .saturating_sub(weight(&channel, &bare) + 16);
        // 57 bytes become a line of 77 characters, its break included.
        let max_bytes = (room / 77 * 57).min(MAX_CHUNK_BYTES);
        if max_bytes == 0 {
            return Err(Error::new(
                ErrorKind::ToolMissing,
                "arguments of this channel are too short",
            ));
        }
        Ok(max_bytes)
    }
}

/// Whether the error means that a response was lost. A refusal would come again.
fn may_be_lost(error: &Error) -> bool {
    error.kind() != ErrorKind::RateLimited
        && matches!(error.kind().retry_mode(), RetryMode::BackOff(5))
}

fn mode(mode: u32) -> Vec<u8> {
    format!("{:o}", mode & 0o777).into_bytes()
}

/// Checks that the file has this many bytes now. Some tools report a full disk with unknown texts, so the disk counts
/// as full where fewer bytes were written and no more fit.
fn check_written(reply: &Reply, size: u64) -> Result<(), Error> {
    let written_before_full = written_before_full(reply, size);
    match reply.check("text") {
        Err(error) if written_before_full.is_none() || error.kind() != ErrorKind::Unavailable => {
            return Err(error);
        }
        _ => {}
    }
    if let Some(found) = written_before_full {
        return Err(no_space(found, size));
    }
    match reply.number("size") {
        Some(found) if found == size => Ok(()),
        Some(found) if found < size => Err(Error::new(
            ErrorKind::Truncated,
            format!("{found} of {size} bytes were written"),
        )),
        Some(_) => Err(Error::new(
            ErrorKind::Corrupted,
            "the file is longer than what was sent",
        )),
        None => Err(Error::new(ErrorKind::Protocol, "no size")),
    }
}

/// The number of bytes in the file, if they are too few and the rest does not fit.
fn written_before_full(reply: &Reply, size: u64) -> Option<u64> {
    let found = reply.number("size")?;
    let left = free(&reply.text("free"))?;
    (found < size && left < size - found).then_some(found)
}

fn no_space(found: u64, size: u64) -> Error {
    Error::new(
        ErrorKind::NoSpace,
        format!("only {found} of {size} bytes were written"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reply::Nonce;

    fn kind(text: &str, status: u32, size: &str, left: u64) -> Result<(), ErrorKind> {
        let df = format!(
            "Filesystem 1024-blocks Used Available Capacity Mounted on\ntmpfs 1024 1024 {left} 100% /small"
        );
        let response = format!(
            "@@7e57 begin raw\n\n@@7e57 text {text}\n\n@@7e57 status {status}\n\n@@7e57 size {size}\n\n@@7e57 free {df}\n@@7e57 end\n"
        );
        let reply = Reply::parse(response.as_bytes(), &Nonce::fixed("7e57"))
            .unwrap()
            .unwrap();
        check_written(&reply, 1 << 20).map_err(|error| error.kind())
    }

    #[test]
    fn a_full_disk_is_recognised_in_the_message_of_every_tool() {
        let full = Err(ErrorKind::NoSpace);
        assert_eq!(kind("gzip: short write", 1, "1000", 0), full);
        assert_eq!(kind("", 0, "1000", 0), full);
        assert_eq!(
            kind("cat: write error: No space left on device", 1, "1000", 0),
            full
        );
        assert_eq!(
            kind("gzip: short write", 1, "1000", 4096),
            Err(ErrorKind::Unavailable)
        );
        assert_eq!(kind("", 0, "1000", 4096), Err(ErrorKind::Truncated));
        assert_eq!(
            kind("sh: Permission denied", 1, "1000", 0),
            Err(ErrorKind::PermissionDenied)
        );
        assert_eq!(kind("", 0, "1048576", 0), Ok(()));
    }
}
