//! Stored bytes as platforms read them: verified while they are read, and reopened for every attempt.

use async_trait::async_trait;
use bytes::Bytes;
use dray_platform::{ByteSource, ByteStream, ErrorKind, PlatformError};
use dray_store::{ArtifactReader, ReadError, Store};
use dray_types::{Claim, Clock, Deadline, TenantId};
use std::time::Duration;

/// Longest time for one read. A stalled read ends much earlier.
const READ_TIMEOUT: Duration = Duration::from_hours(6);

/// One stored file as a source for platforms.
#[derive(Clone, Debug)]
pub struct StoredSource {
    /// The store that has the file.
    pub store: Store,
    /// Tenant to whom the file belongs.
    pub tenant: TenantId,
    /// The claim for the file.
    pub claim: Claim,
    /// Wall clock, for the deadline of a read.
    pub clock: Clock,
}

#[async_trait]
impl ByteSource for StoredSource {
    async fn open(&self) -> Result<ByteStream, PlatformError> {
        let reader = self.reader().await.map_err(to_platform_error)?;
        let stream = futures_util::stream::try_unfold(reader, |mut reader| async move {
            let next = reader.next().await.map_err(to_platform_error)?;
            Ok(next.map(|bytes| (bytes, reader)))
        });
        Ok(Box::pin(stream))
    }
}

impl StoredSource {
    /// Reads the first bytes, at most `max_bytes`.
    ///
    /// # Errors
    /// The failure to open or to read the file.
    pub async fn head(&self, max_bytes: usize) -> Result<Bytes, ReadError> {
        self.reader().await?.read_head(max_bytes).await
    }

    async fn reader(&self) -> Result<ArtifactReader, ReadError> {
        let deadline = Deadline::after(self.clock.now_ms(), READ_TIMEOUT);
        self.store.read(&self.tenant, &self.claim, deadline).await
    }
}

/// The error of a platform whose file was not read.
pub(crate) fn to_platform_error(error: ReadError) -> PlatformError {
    PlatformError::new(ErrorKind::Source, "the stored file cannot be read").caused_by(error)
}
