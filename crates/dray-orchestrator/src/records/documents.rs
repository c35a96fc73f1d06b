//! Documents of records in the store. The requests of a process wait for each other in their order, so that a burst of
//! requests takes longer and does not fail.

use bytes::Bytes;
use dray_agent::failure::RequestFailure;
use dray_store::{ArtifactLabel, ArtifactReader, PutError, ReadError, RequestError, Store};
use dray_types::{Artifact, ByteSize, Claim, OperationId, TenantId};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::{CallerRecords, ContentRef, STORE_TIMEOUT, store_failure, unavailable_failure};

impl CallerRecords {
    /// Stores a JSON document.
    ///
    /// # Errors
    ///
    /// 413 for one above `limit`, 503 while the store fails.
    pub(crate) async fn store_document<T: Serialize + Sync>(
        &self,
        document: &T,
        limit: ByteSize,
    ) -> Result<ContentRef, RequestFailure> {
        let bytes = serde_json::to_vec(document).map_err(|_| RequestFailure::unexpected())?;
        let size = u64::try_from(bytes.len()).unwrap_or(u64::MAX);
        if size > limit.as_u64() {
            return Err(RequestFailure::new(
                413,
                format!("The content is larger than {limit}, so it cannot be stored."),
            ));
        }
        let label = ArtifactLabel::new("application/json", "");
        let claim = self.store_bytes(bytes.into(), label).await?;
        Ok(ContentRef::of(&claim))
    }

    /// Stores bytes in memory.
    ///
    /// # Errors
    ///
    /// 503 while the store fails.
    pub(crate) async fn store_bytes(
        &self,
        bytes: Bytes,
        label: ArtifactLabel,
    ) -> Result<Claim, RequestFailure> {
        let stored = async {
            // The semaphore is never closed.
            let _permit = self.documents.acquire().await.ok();
            put_when_free(&self.store, &self.tenant, &bytes, &label).await
        };
        match tokio::time::timeout(STORE_TIMEOUT, stored).await {
            Ok(Ok(claim)) => Ok(claim),
            Ok(Err(error)) => Err(store_failure(&error)),
            Err(_elapsed) => Err(unavailable_failure()),
        }
    }

    /// Reads a document; `None` when the store has dropped it.
    ///
    /// # Errors
    ///
    /// 503 while the store fails.
    pub(crate) async fn read_document<T: DeserializeOwned>(
        &self,
        content: &ContentRef,
    ) -> Result<Option<T>, RequestFailure> {
        let read = async {
            // The semaphore is never closed.
            let _permit = self.documents.acquire().await.ok();
            let Some(reader) = self.open(content).await? else {
                return Ok(None);
            };
            let limit = ByteSize::bytes(content.size);
            match reader.read_all(limit).await {
                Ok(bytes) => Ok(serde_json::from_slice(&bytes).ok()),
                Err(ReadError::Missing) => Ok(None),
                Err(error) => Err(store_failure(&error)),
            }
        };
        // The read may wait for other documents for a part of this time.
        let read = tokio::time::timeout(STORE_TIMEOUT * 2, read);
        read.await
            .unwrap_or_else(|_elapsed| Err(unavailable_failure()))
    }

    /// Opens content for reading; `None` when the store has dropped it.
    ///
    /// # Errors
    ///
    /// 503 while the store fails.
    pub(crate) async fn open(
        &self,
        content: &ContentRef,
    ) -> Result<Option<ArtifactReader>, RequestFailure> {
        let Some(claim) = self.claim(content, "", "") else {
            return Ok(None);
        };
        let deadline = self.store.deadline_after(STORE_TIMEOUT);
        let opened = loop {
            match self.store.read(&self.tenant, &claim, deadline).await {
                // No request was sent. The deadline ends the operation.
                Err(ReadError::Request(RequestError::Busy)) => {}
                opened => break opened,
            }
        };
        match opened {
            Ok(reader) => Ok(Some(reader)),
            Err(ReadError::Missing) => Ok(None),
            Err(error) => Err(store_failure(&error)),
        }
    }

    /// A claim for content that a record names.
    pub(crate) fn claim(
        &self,
        content: &ContentRef,
        media_type: &str,
        name: &str,
    ) -> Option<Claim> {
        Some(Claim {
            artifact: Artifact {
                tenant: self.tenant.clone(),
                sha256: content.sha256()?,
                size: content.size,
                media_type: media_type.to_owned(),
                name: name.to_owned(),
            },
            store: self.store.alias().to_owned(),
            version_id: None,
            created_at_ms: 0,
            expires_at_ms: u64::MAX,
        })
    }

    /// Extends the lifetime of content as if it were stored now; `false` when the store has dropped it.
    ///
    /// # Errors
    ///
    /// 503 while the store fails.
    pub(crate) async fn renew(&self, content: &ContentRef) -> Result<bool, RequestFailure> {
        let Some(sha256) = content.sha256() else {
            return Ok(false);
        };
        let label = ArtifactLabel::new("application/json", "");
        let claimed = self.store.claim(&self.tenant, sha256, label).await;
        let claimed = claimed.map_err(|error| store_failure(&error))?;
        Ok(claimed.is_some())
    }
}

/// Stores bytes. While many other requests of this process use the store, it waits; the caller sets a limit.
///
/// # Errors
///
/// Every failure but [`RequestError::Busy`].
pub(crate) async fn put_when_free(
    store: &Store,
    tenant: &TenantId,
    bytes: &Bytes,
    label: &ArtifactLabel,
) -> Result<Claim, PutError> {
    loop {
        let operation = OperationId::mint();
        let stored = store.put(tenant, &operation, bytes.clone(), label.clone());
        match stored.await {
            // It has waited 10 s for a permit, so this does not spin.
            Err(PutError::Request(RequestError::Busy)) => {}
            stored => return stored,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use dray_bus::test_bus;
    use dray_store::StoreOptions;
    use dray_store::embedded::EmbeddedS3;
    use dray_types::Clock;
    use futures_util::future::join;

    use super::*;

    #[tokio::test]
    async fn a_document_waits_for_the_store_longer_than_one_request_of_the_store_does() {
        let directory = tempfile::tempdir().unwrap();
        let (s3, options) = EmbeddedS3::start(directory.path()).await.unwrap();
        let options = StoreOptions {
            concurrency: 1,
            ..options
        };
        let clock = Clock::system();
        let store = Store::open_in_process(&s3, &options, clock.clone());
        let store = store.await.unwrap();
        let bus = test_bus::in_process(&clock).await;
        let records = CallerRecords::new(&bus, store, TenantId::default(), clock);
        let content = records.store_document(&"text", ByteSize::kib(1)).await;
        let content = content.unwrap();
        // Holds the only permit of readers.
        let reader = records.open(&content).await.unwrap();
        tokio::time::pause();
        let releasing = async {
            // paused clock
            tokio::time::sleep(Duration::from_secs(15)).await;
            tokio::time::resume();
            drop(reader);
        };
        let (read, ()) = join(records.read_document::<String>(&content), releasing).await;
        assert_eq!(read.unwrap().as_deref(), Some("text"));
    }
}
