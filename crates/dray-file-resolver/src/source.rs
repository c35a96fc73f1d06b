//! The bytes of one file while they are put into the arguments: from memory, from the store or from DIAL itself.

use bytes::Bytes;
use sha2::{Digest as _, Sha256};

use dray_store::Reader;
use dray_types::Sha256Digest;

use crate::dial::{self, DialFile};
use crate::error::Error;
use crate::loader::LoadError;
use crate::shown::Shown;

/// One file, read once from start to end. Counts and hashes what goes by.
#[derive(Debug)]
pub struct Source {
    body: Body,
    media_type: String,
    size: u64,
    hash: Hash,
}

#[derive(Debug)]
enum Body {
    Memory(Option<Bytes>),
    Store(Box<Reader>),
    Dial { file: Shown, content: Box<DialFile> },
}

/// The digest, where it is known already and the peer checks it, or so far.
#[derive(Debug)]
enum Hash {
    Known(Sha256Digest),
    Running(Box<Sha256>),
}

/// What went by.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Summary {
    /// Bytes.
    pub size: u64,
    /// Their digest.
    pub sha256: Sha256Digest,
    /// Declared media type; empty when unknown.
    pub media_type: String,
}

impl Source {
    /// Bytes that are here, with their digest.
    pub fn memory(bytes: Bytes, sha256: Sha256Digest, media_type: String) -> Self {
        Self::new(Body::Memory(Some(bytes)), Hash::Known(sha256), media_type)
    }

    /// A stored file; its reader checks the digest.
    pub fn store(reader: Reader, sha256: Sha256Digest, media_type: String) -> Self {
        Self::new(
            Body::Store(Box::new(reader)),
            Hash::Known(sha256),
            media_type,
        )
    }

    /// A file that comes from DIAL while it is read.
    pub fn dial(file: Shown, content: DialFile) -> Self {
        let media_type = content.media_type().to_owned();
        let body = Body::Dial {
            file,
            content: Box::new(content),
        };
        Self::new(body, Hash::Running(Box::default()), media_type)
    }

    fn new(body: Body, hash: Hash, media_type: String) -> Self {
        Self {
            body,
            media_type,
            size: 0,
            hash,
        }
    }

    /// The next bytes; `None` after the last, when everything is proven.
    pub async fn next(&mut self) -> Result<Option<Bytes>, LoadError> {
        let chunk = match &mut self.body {
            Body::Memory(bytes) => bytes.take(),
            Body::Store(reader) => reader.next().await.map_err(Error::Stored)?,
            Body::Dial { file, content } => match content.next().await {
                Ok(chunk) => chunk,
                Err(error) => return Err(from_dial(error, file.clone())),
            },
        };
        if let Some(chunk) = &chunk {
            self.size = self
                .size
                .saturating_add(u64::try_from(chunk.len()).unwrap_or(u64::MAX));
            if let Hash::Running(hasher) = &mut self.hash {
                hasher.update(chunk);
            }
        }
        Ok(chunk)
    }

    /// What went by. Complete once [`Source::next`] has given `None`.
    pub fn summary(self) -> Summary {
        Summary {
            size: self.size,
            sha256: match self.hash {
                Hash::Known(sha256) => sha256,
                Hash::Running(hasher) => Sha256Digest::from_bytes((*hasher).finalize().into()),
            },
            media_type: self.media_type,
        }
    }
}

/// Sorts a failure of DIAL: another file helps, or nothing that the model can do.
pub(crate) fn from_dial(error: dial::Error, file: Shown) -> LoadError {
    if error.is_correctable() {
        tracing::info!(%file, reason = %error, "file cannot be used");
        LoadError::Correctable(error.fault(&file))
    } else {
        LoadError::Failed(Error::Dial {
            file,
            source: error,
        })
    }
}
