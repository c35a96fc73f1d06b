//! The bytes of one file while they are put into the arguments: from memory, the store or DIAL itself.

use bytes::Bytes;
use sha2::{Digest as _, Sha256};

use dray_store::ArtifactReader;
use dray_types::Sha256Digest;

use crate::dial::{self, DialFile};
use crate::error::ResolveError;
use crate::loader::LoadError;
use crate::shown::DisplayName;

/// One file, read once from start to end. Its bytes are counted, and hashed where no reader checks them.
#[derive(Debug)]
pub struct FileSource {
    body: SourceBody,
    media_type: String,
    size: u64,
    hash: SourceDigest,
}

#[derive(Debug)]
enum SourceBody {
    Memory(Option<Bytes>),
    Store(Box<ArtifactReader>),
    Dial {
        file: DisplayName,
        content: Box<DialFile>,
    },
}

/// The digest: known if the reader checks it, otherwise computed from the bytes read so far.
#[derive(Debug)]
enum SourceDigest {
    Known(Sha256Digest),
    Running(Box<Sha256>),
}

/// Size, digest and type of the bytes that were read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceSummary {
    /// Number of bytes that were read.
    pub size: u64,
    /// SHA-256 of the bytes.
    pub sha256: Sha256Digest,
    /// Declared media type; empty when unknown.
    pub media_type: String,
}

impl FileSource {
    /// Reads bytes that are in memory, with their digest.
    pub fn memory(bytes: Bytes, sha256: Sha256Digest, media_type: String) -> Self {
        Self::new(
            SourceBody::Memory(Some(bytes)),
            SourceDigest::Known(sha256),
            media_type,
        )
    }

    /// Reads a stored file; its reader checks the digest.
    pub fn store(reader: ArtifactReader, sha256: Sha256Digest, media_type: String) -> Self {
        Self::new(
            SourceBody::Store(Box::new(reader)),
            SourceDigest::Known(sha256),
            media_type,
        )
    }

    /// Streams a file from DIAL.
    pub fn dial(file: DisplayName, content: DialFile) -> Self {
        let media_type = content.media_type().to_owned();
        let body = SourceBody::Dial {
            file,
            content: Box::new(content),
        };
        Self::new(body, SourceDigest::Running(Box::default()), media_type)
    }

    fn new(body: SourceBody, hash: SourceDigest, media_type: String) -> Self {
        Self {
            body,
            media_type,
            size: 0,
            hash,
        }
    }

    /// Returns the next bytes, or `None` after the last ones, when all bytes are verified.
    pub async fn next(&mut self) -> Result<Option<Bytes>, LoadError> {
        let chunk = match &mut self.body {
            SourceBody::Memory(bytes) => bytes.take(),
            SourceBody::Store(reader) => reader.next().await.map_err(ResolveError::Stored)?,
            SourceBody::Dial { file, content } => match content.next().await {
                Ok(chunk) => chunk,
                Err(error) => return Err(from_dial(error, file.clone())),
            },
        };
        if let Some(chunk) = &chunk {
            self.size = self
                .size
                .saturating_add(u64::try_from(chunk.len()).unwrap_or(u64::MAX));
            if let SourceDigest::Running(hasher) = &mut self.hash {
                hasher.update(chunk);
            }
        }
        Ok(chunk)
    }

    /// The result of reading. Complete after [`FileSource::next`] has returned `None`.
    pub fn summary(self) -> SourceSummary {
        SourceSummary {
            size: self.size,
            sha256: match self.hash {
                SourceDigest::Known(sha256) => sha256,
                SourceDigest::Running(hasher) => {
                    Sha256Digest::from_bytes((*hasher).finalize().into())
                }
            },
            media_type: self.media_type,
        }
    }
}

/// Decides whether a failure of DIAL is for the model, which can name another file, or ends the call.
pub(crate) fn from_dial(error: dial::DialError, file: DisplayName) -> LoadError {
    if error.is_correctable() {
        tracing::info!(%file, reason = %error, "file cannot be used");
        LoadError::Correctable(error.fault(&file))
    } else {
        LoadError::Failed(ResolveError::Dial {
            file,
            source: error,
        })
    }
}
