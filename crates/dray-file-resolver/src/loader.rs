//! Loads the files of tool calls, each at most once per request (quickapps 31; R3, R4, R7).
//!
//! Loaded files are kept in an index of downloads: by default a separate one per call, otherwise one that all calls of
//! a request or a conversation share. The index contains no large contents: a file that is used more than once is
//! written to the store, unless it is small, and is read from there. A file that only one call uses, and only once, is
//! streamed directly. Failures are not stored.

use bytes::{Bytes, BytesMut};

use dray_bus::Bus;
use dray_dial::DialClient;
use dray_proto::MAX_INLINE_BYTES;
use dray_proto::convert::ContentSource;
use dray_service::release_permit_while;
use dray_store::{ArtifactLabel, ReadError, Store};
use dray_types::{ByteSize, Clock, Deadline, Fault, OperationId, Period, Sha256Digest, TenantId};

use crate::dial::{CallerCredentials, DialFile};
use crate::downloads::{DownloadIndex, DownloadKey, DownloadLimits, DownloadScope};
use crate::error::ResolveError;
use crate::external::{self, ExternalFetch};
use crate::shown::DisplayName;
use crate::source::{FileSource, from_dial};
use dray_dial::origin::{FileUrl, LoadTarget};

/// The files of one call: owner, credentials and bounds.
#[derive(Clone, Debug)]
pub struct LoadScope {
    /// Tenant that owns the stored files.
    pub tenant: TenantId,
    /// Operation of the tool call.
    pub operation: OperationId,
    /// Number of the attempt, part of staging keys.
    pub epoch: u64,
    /// Time at which everything has to be done.
    pub deadline: Deadline,
    /// Most bytes of one file.
    pub limit: ByteSize,
    /// Credentials for requests to DIAL.
    pub credentials: CallerCredentials,
    /// Terms for files from outside.
    pub fetch: ExternalFetch,
}

/// A loaded file: its bytes if it is small, otherwise their claim.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoadedFile {
    /// The bytes, or the claim for them.
    pub content: ContentSource,
    /// Number of bytes of the file.
    pub size: u64,
    /// SHA-256 of the bytes.
    pub sha256: Sha256Digest,
    /// Declared media type; empty when unknown.
    pub media_type: String,
}

/// The reason why a file could not be loaded, and whether the model can correct that.
#[derive(Debug)]
pub enum LoadError {
    /// The model can correct the argument; the fault's message explains how.
    Correctable(Fault),
    /// The model cannot do anything about it.
    Failed(ResolveError),
}

impl From<ResolveError> for LoadError {
    fn from(error: ResolveError) -> Self {
        Self::Failed(error)
    }
}

/// The loader of one tool call.
#[derive(Debug)]
pub struct FileLoader {
    bus: Bus,
    store: Store,
    dial: Option<DialClient>,
    scope: LoadScope,
    downloads: DownloadIndex,
    sharing_scope: DownloadScope,
}

impl FileLoader {
    /// Creates a loader without sharing.
    pub fn new(bus: Bus, store: Store, dial: Option<DialClient>, scope: LoadScope) -> Self {
        let limits = DownloadLimits {
            // Entries live as long as the call, because the index is dropped with the loader.
            lifetime: Period::secs(u64::from(u32::MAX)),
            max_entries: usize::MAX,
        };
        Self {
            bus,
            store,
            dial,
            scope,
            downloads: DownloadIndex::new(Clock::system(), limits),
            sharing_scope: DownloadScope::Call,
        }
    }

    /// Shares the downloads of others. A disabled index does not change the loader.
    #[must_use]
    pub fn sharing(mut self, downloads: &DownloadIndex, sharing_scope: DownloadScope) -> Self {
        if downloads.is_enabled() {
            self.downloads = downloads.clone();
            self.sharing_scope = sharing_scope;
        }
        self
    }

    /// Opens a file that this call uses once. It is not stored unless other calls share it.
    pub async fn open_once(&self, target: &LoadTarget) -> Result<FileSource, LoadError> {
        if self.sharing_scope != DownloadScope::Call {
            return self.open(target).await;
        }
        match target {
            // The file is read directly from DIAL, without a copy in the store and without waiting for the complete
            // file.
            LoadTarget::Dial(path) => self.open_dial(path).await,
            LoadTarget::External(_) => self.reopen(self.fetch(target).await?).await,
        }
    }

    /// Opens a file that is used more than once: the first caller loads it, and all of them read it back.
    pub async fn open(&self, target: &LoadTarget) -> Result<FileSource, LoadError> {
        match self.reopen(self.load(target).await?).await {
            // The store removed the bytes before the index removed the entry, so the file is loaded again, once.
            Err(LoadError::Failed(ResolveError::Stored(ReadError::Missing))) => {
                self.downloads.forget(&self.key(target)).await;
                self.reopen(self.load(target).await?).await
            }
            other => other,
        }
    }

    async fn reopen(&self, loaded: LoadedFile) -> Result<FileSource, LoadError> {
        let LoadedFile {
            content,
            sha256,
            media_type,
            ..
        } = loaded;
        match content {
            ContentSource::Inline(bytes) => Ok(FileSource::memory(bytes, sha256, media_type)),
            ContentSource::Claim(claim) => {
                let scope = &self.scope;
                let reader = self.store.read(&scope.tenant, &claim, scope.deadline).await;
                Ok(FileSource::store(
                    reader.map_err(ResolveError::Stored)?,
                    sha256,
                    media_type,
                ))
            }
        }
    }

    /// Loads a file, waits for a running load, or uses the result of an earlier one.
    pub async fn load(&self, target: &LoadTarget) -> Result<LoadedFile, LoadError> {
        // The future is boxed, because otherwise every outer future would contain its 4 KiB, ten times in total.
        let fetch = Box::pin(self.fetch(target));
        let load = self.downloads.get_or_load(self.key(target), fetch);
        match target {
            LoadTarget::Dial(_) => load.await,
            // Waiting for the load of another call is waiting for the fetcher, too.
            LoadTarget::External(_) => release_permit_while(load).await,
        }
    }

    fn key(&self, target: &LoadTarget) -> DownloadKey {
        let scope = &self.scope;
        DownloadKey::new(
            scope.tenant.clone(),
            self.sharing_scope.clone(),
            target.clone(),
            scope.limit,
            (&scope.credentials, scope.fetch.app_policy.as_ref()),
        )
    }

    async fn fetch(&self, target: &LoadTarget) -> Result<LoadedFile, LoadError> {
        match target {
            LoadTarget::Dial(path) => self.spool(self.open_dial(path).await?).await,
            // The duration depends on the external server; other tenants must not wait for it.
            LoadTarget::External(url) => {
                release_permit_while(external::fetch_external(&self.bus, &self.scope.fetch, url))
                    .await
            }
        }
    }

    async fn open_dial(&self, path: &FileUrl) -> Result<FileSource, LoadError> {
        let client = self.dial.as_ref().ok_or(ResolveError::NoDial)?;
        let display_name = DisplayName::dial(path);
        let scope = &self.scope;
        match DialFile::open(client, path, &scope.credentials, scope.limit).await {
            Ok(content) => Ok(FileSource::dial(display_name, content)),
            Err(error) => Err(from_dial(error, display_name)),
        }
    }

    /// Keeps a small file in memory and sends a larger one to the store.
    async fn spool(&self, mut source: FileSource) -> Result<LoadedFile, LoadError> {
        let mut buffered = BytesMut::new();
        let mut writer = None;
        while let Some(chunk) = source.next().await? {
            // Chunks are buffered only while everything fits: once a writer exists, it gets all bytes in order.
            if writer.is_none() && buffered.len() + chunk.len() <= MAX_INLINE_BYTES {
                buffered.extend_from_slice(&chunk);
                continue;
            }
            let scope = &self.scope;
            let writer = writer.get_or_insert_with(|| {
                self.store
                    // Attempts of one operation never share a staging key (messaging-reliability K-3).
                    .writer(&scope.tenant, &scope.operation, scope.epoch)
                    .deadline(scope.deadline)
            });
            for bytes in [buffered.split().freeze(), chunk] {
                writer.write(bytes).await.map_err(ResolveError::Store)?;
            }
        }
        let summary = source.summary();
        let content = match writer {
            None => ContentSource::Inline(Bytes::from(buffered)),
            Some(writer) => {
                let label = ArtifactLabel::new(summary.media_type.as_str(), "");
                ContentSource::Claim(writer.finish(label).await.map_err(ResolveError::Store)?)
            }
        };
        Ok(LoadedFile {
            content,
            size: summary.size,
            sha256: summary.sha256,
            media_type: summary.media_type,
        })
    }
}
