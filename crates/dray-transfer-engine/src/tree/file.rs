//! A member of a tree as a source. It is kept in a file without a name, so that a retry can read it again.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;
use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use dray_sandbox::body::Body;
use dray_sandbox::error::Error;
use dray_sandbox_tree::Members;
use dray_types::Sha256Digest;
use futures_util::stream;
use sha2::{Digest as _, Sha256};

use crate::peer::Source;
use crate::queue::{Spool, blocking};
use crate::spool::SpoolSpace;

/// Longest read, in bytes.
const CHUNK_BYTES: usize = 256 << 10;

/// Content of one member, on this host's disk.
#[derive(Debug)]
pub(super) struct SpooledMember {
    file: Arc<File>,
    size: u64,
    sha256: Sha256Digest,
    /// Given back when the member is dropped.
    _space: SpoolSpace,
}

impl SpooledMember {
    /// Reads the current member of `members` to its end.
    pub(super) async fn take(members: &mut dyn Members, spool: Spool) -> Result<Self, Error> {
        let mut space = spool.empty_space();
        let file = blocking(move || spool.file().map(Arc::new)).await?;
        let (mut size, mut sha256) = (0_u64, Sha256::new());
        while let Some(chunk) = members.next_chunk().await? {
            sha256.update(&chunk);
            let (at, file) = (size, Arc::clone(&file));
            size += chunk.len() as u64;
            space.reserve_bytes(size)?;
            blocking(move || file.write_all_at(&chunk, at)).await?;
        }
        let sha256 = Sha256Digest::from_bytes(sha256.finalize().into());
        Ok(Self {
            file,
            size,
            sha256,
            _space: space,
        })
    }
}

#[async_trait]
impl Source for SpooledMember {
    fn size(&self) -> u64 {
        self.size
    }

    async fn sha256(&self) -> Result<Sha256Digest, Error> {
        Ok(self.sha256)
    }

    async fn open(&self, offset: u64) -> Result<Body, Error> {
        // Reads use offsets, because the bodies of an attempt and of its retry share the file.
        let state = (Arc::clone(&self.file), offset);
        let size = self.size;
        Ok(Body::new(stream::try_unfold(
            state,
            move |(file, at)| async move {
                let length = usize::try_from(size.saturating_sub(at))
                    .map_or(CHUNK_BYTES, |left| left.min(CHUNK_BYTES));
                if length == 0 {
                    return Ok(None);
                }
                let reading = Arc::clone(&file);
                let chunk = blocking(move || read(&reading, at, length)).await?;
                Ok(Some((chunk, (file, at + length as u64))))
            },
        )))
    }
}

fn read(file: &File, at: u64, length: usize) -> io::Result<Bytes> {
    let mut chunk = vec![0; length];
    file.read_exact_at(&mut chunk, at)?;
    Ok(chunk.into())
}
