//! Writes a plain tar of files and directories. Names are written as they are.

use bytes::Bytes;
use dray_archive::tar::{END_BLOCKS, NewEntry, encode, padding};
use dray_sandbox::body::Body;
use dray_sandbox::error::{Error, ErrorKind};
use futures_util::stream;

use super::{Kind, Member, Members};

pub use dray_archive::tar::Owner;

/// Writes members as a tar. When a member cannot be read, the tar ends with that error and without its end blocks.
pub fn tar(members: impl Members + 'static, owner: Owner) -> Body {
    let state = Some(TarWrite {
        members,
        owner,
        left: None,
    });
    Body::new(stream::try_unfold(state, |state| async move {
        let Some(mut writing) = state else {
            return Ok(None);
        };
        Ok(Some(match writing.next().await? {
            Some(bytes) => (bytes, Some(writing)),
            None => (Bytes::from_static(&END_BLOCKS), None),
        }))
    }))
}

struct TarWrite<M> {
    members: M,
    owner: Owner,
    /// Bytes of the current member's content that are still to come, and the padding after it.
    left: Option<(u64, u64)>,
}

impl<M: Members> TarWrite<M> {
    /// Some bytes; `None` after the last member.
    async fn next(&mut self) -> Result<Option<Bytes>, Error> {
        if let Some((left, padding)) = &mut self.left {
            if let Some(chunk) = self.members.next_chunk().await? {
                *left = left.checked_sub(chunk.len() as u64).ok_or_else(|| {
                    Error::new(ErrorKind::ChangedDuringTransfer, "more than announced")
                })?;
                return Ok(Some(chunk));
            }
            if *left > 0 {
                return Err(Error::new(ErrorKind::Truncated, "less than announced"));
            }
            let zeros = usize::try_from(*padding).unwrap_or_default();
            self.left = None;
            if zeros > 0 {
                return Ok(Some(Bytes::from(vec![0; zeros])));
            }
        }
        let Some(member) = self.members.next().await? else {
            return Ok(None);
        };
        self.left = Some((member.size, padding(member.size)));
        Ok(Some(Bytes::from(header(&member, self.owner))))
    }
}

/// The header blocks of a member.
pub(super) fn header(member: &Member, owner: Owner) -> Vec<u8> {
    let mut name = member.name.clone();
    let flag = match member.kind {
        Kind::File => b'0',
        Kind::Directory => {
            name.push(b'/');
            b'5'
        }
    };
    encode(&NewEntry {
        flag,
        size: member.size,
        mode: member.mode & 0o777,
        owner,
        mtime: member.mtime.unwrap_or_default(),
        ..NewEntry::file(&name)
    })
}
