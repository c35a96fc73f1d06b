//! Streams into and out of the sandbox in memory.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use dray_sandbox::body::Body;
use dray_sandbox::error::{Error, ErrorKind};
use dray_sandbox::path::SandboxPath;
use futures_util::stream;

use super::{Change, FAKE_CHUNK_BYTES, Fake, Fault};

/// Counts one stream until it is dropped.
pub(super) struct StreamCount(Arc<AtomicUsize>);

impl StreamCount {
    pub(super) fn new(count: &Arc<AtomicUsize>) -> Self {
        count.fetch_add(1, Ordering::SeqCst);
        Self(Arc::clone(count))
    }
}

impl Drop for StreamCount {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

/// A read that has not ended.
struct FakeRead {
    fake: Fake,
    path: SandboxPath,
    position: u64,
    /// Bytes that the file had when it was opened. The read sends as many unless a fault says otherwise.
    promised: u64,
    fault: Fault,
    ended: bool,
    _open: StreamCount,
}

/// The bytes of a file from `offset`.
pub(super) fn read(fake: &Fake, path: SandboxPath, offset: u64, size: u64, fault: Fault) -> Body {
    let reading = FakeRead {
        fake: fake.clone(),
        path,
        position: offset,
        promised: size,
        fault,
        ended: false,
        _open: StreamCount::new(&fake.streams),
    };
    Body::new(stream::unfold(reading, async |mut reading| {
        if reading.ended {
            return None;
        }
        match reading.next().await {
            Ok(Some(chunk)) => Some((Ok(chunk), reading)),
            Ok(None) => None,
            Err(error) => {
                reading.ended = true;
                Some((Err(error), reading))
            }
        }
    }))
}

impl FakeRead {
    async fn next(&mut self) -> Result<Option<Bytes>, Error> {
        // Lets other tasks run between chunks, as a network does.
        tokio::task::yield_now().await;
        let mut until = self.promised;
        match self.fault.clone() {
            Fault::Break(after, kind) if self.position >= after => return Err(scripted(kind)),
            Fault::Stall(after) if self.position >= after => std::future::pending().await,
            Fault::ShortEnd(after) if self.position >= after => return Ok(None),
            Fault::Break(after, _) | Fault::Stall(after) | Fault::ShortEnd(after) => {
                until = until.min(after);
            }
            Fault::Meanwhile(after, change) if self.position >= after => {
                self.fake.state().change(&self.path, &change);
                self.fault = Fault::None;
                if change == Change::EndSandbox {
                    return Err(Error::new(ErrorKind::SandboxGone, "scripted death"));
                }
            }
            Fault::Meanwhile(after, _) => until = until.min(after),
            Fault::Endless(more) => until += more,
            Fault::Lost(kind) if self.position >= self.promised => return Err(scripted(kind)),
            _ => {}
        }
        if self.position >= until {
            return self.end();
        }
        let chunk = self.take(until)?;
        self.position += chunk.len() as u64;
        Ok(Some(chunk))
    }

    /// The end of the read. A fault at a position after the promised bytes does not occur.
    fn end(&self) -> Result<Option<Bytes>, Error> {
        match &self.fault {
            Fault::Break(_, kind) if self.position < self.promised => Err(scripted(*kind)),
            _ => Ok(None),
        }
    }

    /// The next chunk from the current content of the file.
    fn take(&self, until: u64) -> Result<Bytes, Error> {
        let state = self.fake.state();
        if state.dead {
            return Err(Error::new(ErrorKind::SandboxGone, "scripted death"));
        }
        let length = usize::try_from(until - self.position)
            .map_or(FAKE_CHUNK_BYTES, |left| left.min(FAKE_CHUNK_BYTES));
        let position = usize::try_from(self.position).unwrap_or(usize::MAX);
        let content = state
            .nodes
            .get(&self.path)
            .map(|node| node.content.as_slice());
        // A removed file stays readable in reality, but is read here as too short and not as missing.
        let rest = content
            .and_then(|content| content.get(position..))
            .unwrap_or_default();
        let mut chunk: Vec<u8> = rest.iter().copied().take(length).collect();
        if chunk.len() < length {
            if !matches!(self.fault, Fault::Endless(_)) {
                return Err(Error::new(ErrorKind::Truncated, "the file became shorter"));
            }
            chunk.resize(length, b'!');
        }
        if let Fault::Flip(flipped) = self.fault
            && let Some(byte) = flipped
                .checked_sub(self.position)
                .and_then(|position| usize::try_from(position).ok())
                .and_then(|position| chunk.get_mut(position))
        {
            // This flips one bit of the byte: the length stays right, and only the digest differs.
            *byte ^= 0x20;
        }
        Ok(chunk.into())
    }
}

/// A body that breaks, stalls or ends short at the byte of the fault.
pub(super) fn faulty(fake: &Fake, body: Body, fault: Fault) -> Body {
    let state = (body, 0_u64, fault, StreamCount::new(&fake.streams));
    Body::new(stream::try_unfold(
        state,
        async |(mut body, position, fault, open)| {
            tokio::task::yield_now().await;
            match fault {
                Fault::Break(after, kind) if position >= after => return Err(scripted(kind)),
                Fault::Stall(after) if position >= after => std::future::pending().await,
                Fault::ShortEnd(after) if position >= after => return Ok(None),
                _ => {}
            }
            let chunk = body.next().await.transpose()?;
            Ok(chunk.map(|chunk| {
                let position = position + chunk.len() as u64;
                (chunk, (body, position, fault, open))
            }))
        },
    ))
}

/// Appends a body to a file until it ends or a fault occurs.
pub(super) async fn write(
    fake: &Fake,
    path: &SandboxPath,
    mut position: u64,
    mut body: Body,
    fault: &Fault,
) -> Result<(), Error> {
    let _open = StreamCount::new(&fake.streams);
    while let Some(chunk) = body.next().await {
        let mut chunk = chunk?.to_vec();
        let start = position;
        position += chunk.len() as u64;
        let bytes_until =
            |after: u64| usize::try_from(after.saturating_sub(start)).unwrap_or(usize::MAX);
        match fault {
            Fault::Break(after, kind) if position > *after => {
                chunk.truncate(bytes_until(*after));
                fake.append(path, &chunk)?;
                return Err(scripted(*kind));
            }
            Fault::Stall(after) if position > *after => {
                chunk.truncate(bytes_until(*after));
                // The bytes before the fault stay in the file, as after a lost connection.
                fake.append(path, &chunk)?;
                std::future::pending::<()>().await;
            }
            Fault::Flip(flipped) if (start..position).contains(flipped) => {
                if let Some(byte) = chunk.get_mut(bytes_until(*flipped)) {
                    *byte ^= 0x20;
                }
            }
            _ => {}
        }
        fake.append(path, &chunk)?;
        tokio::task::yield_now().await;
    }
    Ok(())
}

impl Fake {
    fn append(&self, path: &SandboxPath, chunk: &[u8]) -> Result<(), Error> {
        let mut state = self.state();
        if state.dead {
            return Err(Error::new(ErrorKind::SandboxGone, "scripted death"));
        }
        let available = state
            .capacity
            .map_or(u64::MAX, |capacity| capacity.saturating_sub(state.used()));
        let fits = usize::try_from(available)
            .unwrap_or(usize::MAX)
            .min(chunk.len());
        let now = state.tick();
        let node = state
            .nodes
            .get_mut(path)
            .ok_or_else(|| Error::new(ErrorKind::NotFound, "the file is gone"))?;
        // A full disk stores the bytes that fit and then fails, so a partial file remains.
        node.content.extend(chunk.iter().take(fits));
        node.mtime_ns = now;
        if fits < chunk.len() {
            return Err(Error::new(ErrorKind::NoSpace, "scripted capacity"));
        }
        Ok(())
    }
}

pub(super) fn scripted(kind: ErrorKind) -> Error {
    Error::new(kind, "scripted")
}
