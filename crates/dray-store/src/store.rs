//! The handle that services hold, and the short operations on it.

use std::fmt;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use aws_sdk_s3::error::{ProvideErrorMetadata, SdkError};
use bytes::Bytes;
use dray_types::{Artifact, Claim, Clock, Deadline, OperationId, Sha256Digest, TenantId};
use futures_util::future::BoxFuture;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::task::TaskTracker;

use crate::client::{IDLE_TIMEOUT, RESPONSE_HEAD_TIMEOUT, S3Clients};
use crate::credentials::{SharedCredentials, StoreCredentials};
use crate::derived_keys::DerivedKeys;
use crate::embedded::EmbeddedS3;
use crate::error::{OpenError, PutError, ReadError};
use crate::options::StoreOptions;
use crate::reader::ArtifactReader;
use crate::request::RequestError;
use crate::self_test::{self, StoreCapabilities};
use crate::writer::ArtifactWriter;
use crate::{commit, object};

/// Finished content of all tenants, behind one S3 bucket. Cheap to clone.
#[derive(Clone)]
pub struct Store {
    pub(crate) inner: Arc<StoreInner>,
}

/// The labels of an artifact for people: never trusted, and never part of its identity.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ArtifactLabel {
    /// Media type as declared by the source.
    pub media_type: String,
    /// File name; may be empty.
    pub name: String,
}

/// State that all handles of one store share.
pub(crate) struct StoreInner {
    pub(crate) options: StoreOptions,
    pub(crate) clients: S3Clients,
    pub(crate) credentials: SharedCredentials,
    pub(crate) clock: Clock,
    /// Permits of running requests.
    requests: Arc<Semaphore>,
    /// Permits of open readers. They are separate from the permits of requests. With shared permits, transfers that
    /// both read and write could take all permits for reading and then wait for each other to write.
    readers: Arc<Semaphore>,
    /// Uploads that were given up and are being removed.
    pub(crate) tasks: TaskTracker,
    /// Result of the self-test, once it ran.
    capabilities: OnceLock<StoreCapabilities>,
}

impl Store {
    /// Connects, creates the bucket when the options say so, and verifies that the store has the required properties
    /// (messaging-reliability K-7): conditional create and checksums.
    ///
    /// # Errors
    ///
    /// [`OpenError`]; [`OpenError::is_temporary`] says whether a later attempt may succeed.
    pub fn open(options: &StoreOptions, clock: Clock) -> BoxFuture<'_, Result<Self, OpenError>> {
        Box::pin(async move {
            check_options(options)?;
            let credentials = SharedCredentials::new(options.into());
            let clients = S3Clients::new(options, &credentials)
                .await
                .map_err(OpenError::Authorities)?;
            Self::open_with(options, (clients, credentials), clock).await
        })
    }

    /// Like [`Store::open`], for an endpoint of this process. Its requests need no connection; everything else is the
    /// same, and links lead to the endpoint's listener. After the end of `endpoint` all requests fail.
    ///
    /// # Errors
    ///
    /// Those of [`Store::open`].
    pub fn open_in_process<'a>(
        endpoint: &EmbeddedS3,
        options: &'a StoreOptions,
        clock: Clock,
    ) -> BoxFuture<'a, Result<Self, OpenError>> {
        let transport = endpoint.transport();
        Box::pin(async move {
            check_options(options)?;
            let credentials = SharedCredentials::new(options.into());
            let clients = S3Clients::in_process(options, &credentials, transport);
            Self::open_with(options, (clients, credentials), clock).await
        })
    }

    fn open_with(
        options: &StoreOptions,
        (clients, credentials): (S3Clients, SharedCredentials),
        clock: Clock,
    ) -> BoxFuture<'_, Result<Self, OpenError>> {
        Box::pin(async move {
            let permits = usize::try_from(options.concurrency).unwrap_or(1);
            let store = Self {
                inner: Arc::new(StoreInner {
                    options: options.clone(),
                    clients,
                    credentials,
                    clock,
                    requests: Arc::new(Semaphore::new(permits)),
                    readers: Arc::new(Semaphore::new(permits)),
                    tasks: TaskTracker::new(),
                    capabilities: OnceLock::new(),
                }),
            };
            if options.create_bucket {
                self_test::create_bucket(&store.inner)
                    .await
                    .map_err(OpenError::Bucket)?;
            }
            let capabilities = self_test::run_self_test(&store.inner).await?;
            // The capabilities are set after the self-test, which itself has to run with the careful assumptions.
            store.inner.capabilities.get_or_init(|| capabilities);
            Ok(store)
        })
    }

    /// Signs later requests and links with other credentials.
    pub fn replace_credentials(&self, credentials: StoreCredentials) {
        self.inner.credentials.replace(credentials);
    }

    /// The name of this store in claims.
    pub fn alias(&self) -> &str {
        &self.inner.options.alias
    }

    /// The deadline `limit` from now, by the clock with which the store checks deadlines.
    pub fn deadline_after(&self, limit: Duration) -> Deadline {
        Deadline::after(self.inner.clock.now_ms(), limit)
    }

    /// Starts storing bytes that arrive in chunks. `epoch` is the attempt's lease epoch: attempts of one operation
    /// never share a staging key (messaging-reliability K-3).
    pub fn writer(&self, tenant: &TenantId, operation: &OperationId, epoch: u64) -> ArtifactWriter {
        ArtifactWriter::new(Arc::clone(&self.inner), tenant, operation, epoch)
    }

    /// Stores bytes that are in memory already. Storing the same bytes again returns the same artifact.
    ///
    /// # Errors
    ///
    /// [`PutError`]; the call can be repeated, and then stores the bytes once.
    pub async fn put(
        &self,
        tenant: &TenantId,
        operation: &OperationId,
        bytes: Bytes,
        label: ArtifactLabel,
    ) -> Result<Claim, PutError> {
        if bytes.len() <= object::MAX_SINGLE_REQUEST_BYTES {
            return commit::put_known(&self.inner, tenant, bytes, label).await;
        }
        // The staging key has a random part, so the epoch may be the same for all.
        let mut writer = self.writer(tenant, operation, 0);
        writer.write(bytes).await?;
        writer.finish(label).await
    }

    /// Opens a claim of `tenant` for reading. Another tenant's claim is refused without a request.
    ///
    /// If the object is missing within 5 s of the claim's creation, it is requested up to three times (K-5).
    ///
    /// # Errors
    ///
    /// [`ReadError::ForeignTenant`] and [`ReadError::UnknownStore`] without a request, [`ReadError::Missing`], and
    /// [`ReadError::Request`] when the store fails or the deadline has passed.
    pub async fn read(
        &self,
        tenant: &TenantId,
        claim: &Claim,
        deadline: Deadline,
    ) -> Result<ArtifactReader, ReadError> {
        ArtifactReader::open(&self.inner, tenant, claim, deadline).await
    }

    /// Returns the size of the tenant's artifact with this digest, when it is stored.
    ///
    /// # Errors
    ///
    /// [`RequestError`] when the store fails; an object that does not exist is `None`.
    pub async fn find(
        &self,
        tenant: &TenantId,
        sha256: Sha256Digest,
    ) -> Result<Option<u64>, RequestError> {
        let key = Artifact {
            tenant: tenant.clone(),
            sha256,
            size: 0,
            media_type: String::new(),
            name: String::new(),
        }
        .key();
        let head = object::head_object(&self.inner, &key, None).await?;
        Ok(head.map(|object| object.size))
    }

    /// Returns the claim for the tenant's artifact with this digest, under a label of the caller's choice, when it is
    /// stored.
    ///
    /// # Errors
    ///
    /// [`RequestError`] when the store fails; an object that does not exist is `None`.
    pub async fn claim(
        &self,
        tenant: &TenantId,
        sha256: Sha256Digest,
        label: ArtifactLabel,
    ) -> Result<Option<Claim>, RequestError> {
        commit::claim_stored(&self.inner, tenant, sha256, label).await
    }

    /// Derives the keys of a purpose from `derivation_key`, or from the secret access key at the start where that is empty:
    /// they are the same in all replicas of a service and after restarts, as long as this secret is the same. Another
    /// purpose results in unrelated keys.
    pub fn derive_keys(&self, purpose: &str) -> DerivedKeys {
        self.inner.options.derive_keys(purpose)
    }

    /// Requests a fixed key to check that the store responds and accepts the credentials (messaging-reliability 16).
    ///
    /// # Errors
    ///
    /// [`RequestError`] when the store does not respond or refuses the credentials. The key need not exist.
    pub async fn probe(&self) -> Result<(), RequestError> {
        object::head_object(&self.inner, self_test::PROBE_KEY, None).await?;
        Ok(())
    }

    /// Waits until the uploads that were given up are removed. Called at the end of a drain.
    pub async fn settle(&self) {
        self.inner.tasks.close();
        self.inner.tasks.wait().await;
        // Uploads of this store continue after a drain.
        self.inner.tasks.reopen();
    }
}

fn check_options(options: &StoreOptions) -> Result<(), OpenError> {
    let problems = options.problems();
    if problems.is_empty() {
        Ok(())
    } else {
        Err(OpenError::Options(problems))
    }
}

impl fmt::Debug for Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.fmt(f)
    }
}

/// Short, because the debug form of the SDK's client has hundreds of lines.
impl fmt::Debug for StoreInner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Store")
            .field("alias", &self.options.alias)
            .field("bucket", &self.options.bucket)
            .finish_non_exhaustive()
    }
}

impl ArtifactLabel {
    /// A label with this media type and name.
    pub fn new(media_type: impl Into<String>, name: impl Into<String>) -> Self {
        Self {
            media_type: media_type.into(),
            name: name.into(),
        }
    }
}

impl Default for ArtifactLabel {
    fn default() -> Self {
        Self::new("application/octet-stream", "")
    }
}

impl StoreInner {
    /// Abilities of the store beyond the minimum.
    pub(crate) fn capabilities(&self) -> StoreCapabilities {
        self.capabilities.get().copied().unwrap_or_default()
    }

    /// Sends one request within the permits and the deadline.
    pub(crate) async fn request<T, E>(
        &self,
        deadline: Option<Deadline>,
        request: impl Future<Output = Result<T, SdkError<E>>> + Send,
    ) -> Result<T, RequestError>
    where
        E: ProvideErrorMetadata + std::error::Error + Send + Sync + 'static,
    {
        self.request_within(RESPONSE_HEAD_TIMEOUT, deadline, request)
            .await
    }

    /// Sends one request with another limit for each attempt.
    pub(crate) async fn request_within<T, E>(
        &self,
        attempt_timeout: Duration,
        deadline: Option<Deadline>,
        request: impl Future<Output = Result<T, SdkError<E>>> + Send,
    ) -> Result<T, RequestError>
    where
        E: ProvideErrorMetadata + std::error::Error + Send + Sync + 'static,
    {
        let _permit = self.permit(&self.requests, deadline).await?;
        // Two attempts and the pause between them; the SDK has limits for an attempt alone.
        let limit = self
            .remaining_time(deadline)
            .min(attempt_timeout * 2 + Duration::from_secs(3));
        match tokio::time::timeout(limit, request).await {
            Ok(response) => response.map_err(RequestError::from_sdk),
            Err(_) => Err(RequestError::TimedOut),
        }
    }

    /// Waits for a permit of a reader.
    pub(crate) async fn reader_permit(
        &self,
        deadline: Option<Deadline>,
    ) -> Result<OwnedSemaphorePermit, RequestError> {
        self.permit(&self.readers, deadline).await
    }

    /// Time until the deadline; a day without one.
    pub(crate) fn remaining_time(&self, deadline: Option<Deadline>) -> Duration {
        deadline.map_or(Duration::from_hours(24), |deadline| {
            deadline.remaining(self.clock.now_ms())
        })
    }

    async fn permit(
        &self,
        permits: &Arc<Semaphore>,
        deadline: Option<Deadline>,
    ) -> Result<OwnedSemaphorePermit, RequestError> {
        let remaining = self.remaining_time(deadline);
        // The time is checked before a permit is taken: a request without time left is not sent.
        if remaining.is_zero() {
            return Err(RequestError::TimedOut);
        }
        // A queue longer than this is reported as busy, which callers can act on.
        match tokio::time::timeout(
            remaining.min(IDLE_TIMEOUT),
            Arc::clone(permits).acquire_owned(),
        )
        .await
        {
            Ok(Ok(permit)) => Ok(permit),
            Ok(Err(_)) | Err(_) => Err(RequestError::Busy),
        }
    }
}
