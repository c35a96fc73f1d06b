//! A tar stream with other owners: what we pack belongs to whoever it is unpacked for.

use std::collections::VecDeque;

use bytes::{Bytes, BytesMut};
use dray_sandbox::{Body, Error, ErrorKind};
use futures_util::stream;

use super::header::{Header, Kind, set_owner};
use super::{BLOCK, padding};

/// The same tar, every entry owned by this user and group. Anything but regular files and directories fails it.
pub(crate) fn owned(tar: Body, uid: u32, gid: u32) -> Body {
    let state = State {
        tar: Some(tar),
        ready: VecDeque::new(),
        block: BytesMut::new(),
        pass: 0,
        records: None,
        size: None,
        owner: (uid, gid),
    };
    Body::new(stream::try_unfold(state, State::next))
}

struct State {
    /// Absent once it has ended.
    tar: Option<Body>,
    ready: VecDeque<Bytes>,
    /// A header that has not come whole yet.
    block: BytesMut,
    /// Bytes of data and padding that go through as they are.
    pass: u64,
    /// Records that are going through: what came of them, and how many bytes are to come.
    records: Option<(Vec<u8>, usize)>,
    /// Size of the next entry by its records.
    size: Option<u64>,
    owner: (u32, u32),
}

impl State {
    async fn next(mut self) -> Result<Option<(Bytes, Self)>, Error> {
        loop {
            if let Some(piece) = self.ready.pop_front() {
                return Ok(Some((piece, self)));
            }
            let Some(tar) = &mut self.tar else {
                return Ok(None);
            };
            match tar.next().await {
                Some(piece) => self.take(piece?)?,
                None => self.tar = None,
            }
        }
    }

    fn take(&mut self, mut piece: Bytes) -> Result<(), Error> {
        while !piece.is_empty() {
            if self.pass > 0 {
                let most = usize::try_from(self.pass).unwrap_or(usize::MAX);
                let through = piece.split_to(most.min(piece.len()));
                self.pass -= through.len() as u64;
                self.remember(&through)?;
                self.ready.push_back(through);
                continue;
            }
            let most = (BLOCK - self.block.len()).min(piece.len());
            self.block.extend_from_slice(&piece.split_to(most));
            if self.block.len() == BLOCK {
                let block = self.block.split().freeze();
                self.header(&block)?;
            }
        }
        Ok(())
    }

    fn header(&mut self, bytes: &Bytes) -> Result<(), Error> {
        let mut block = [0; BLOCK];
        block.copy_from_slice(bytes);
        if block == [0; BLOCK] {
            self.ready.push_back(bytes.clone());
            return Ok(());
        }
        let header = Header::parse(&block)?;
        let size = match header.kind {
            Kind::File => self.size.take().unwrap_or(header.size),
            Kind::Directory => {
                self.size = None;
                0
            }
            Kind::Pax => {
                let length = usize::try_from(header.size).unwrap_or(usize::MAX);
                if length > BLOCK * BLOCK {
                    return Err(foreign());
                }
                self.records = Some((Vec::new(), length));
                header.size
            }
            _ => return Err(foreign()),
        };
        self.pass = size.saturating_add(padding(size));
        set_owner(&mut block, self.owner.0, self.owner.1);
        self.ready.push_back(Bytes::copy_from_slice(&block));
        self.remember(&[])
    }

    /// Keeps records until they are whole, for the size of the entry that follows.
    fn remember(&mut self, through: &[u8]) -> Result<(), Error> {
        let Some((seen, length)) = &mut self.records else {
            return Ok(());
        };
        seen.extend_from_slice(through);
        if seen.len() < *length {
            return Ok(());
        }
        seen.truncate(*length);
        let records = super::reader::records(seen)?;
        self.records = None;
        self.size = records;
        Ok(())
    }
}

fn foreign() -> Error {
    Error::new(
        ErrorKind::Protocol,
        "only files and directories are unpacked",
    )
}
