//! Loads the files of tool calls, each at most once per request (quickapps 31; R3, R4, R7).
//!
//! What is loaded is kept in an index of downloads, by default one of the call's own, otherwise one that all calls of a
//! request or a conversation share. The index holds no large contents: a file that is used more than once goes to the
//! store, unless it is small, and is read back from there. What a call of its own uses once streams straight through.
//! Failures are not kept.

use bytes::{Bytes, BytesMut};

use dray_bus::Bus;
use dray_proto::INLINE_LIMIT;
use dray_proto::convert::Content;
use dray_service::release_permit_while;
use dray_store::{Label, ReadError, Store};
use dray_types::{ByteSize, Clock, Deadline, Fault, OperationId, Period, Sha256Digest, TenantId};

use crate::classify::{DialPath, Target};
use crate::dial::{Credentials, DialClient};
use crate::downloads::{DownloadKey, DownloadLimits, DownloadScope, Downloads};
use crate::error::Error;
use crate::external::{self, Fetch};
use crate::shown::Shown;
use crate::source::{Source, from_dial};

/// Whose files are loaded, with what, and within which bounds.
#[derive(Clone, Debug)]
pub struct Scope {
    /// Who owns what is stored.
    pub tenant: TenantId,
    /// The tool call.
    pub operation: OperationId,
    /// Attempt, part of staging places.
    pub epoch: u64,
    /// When everything must be done.
    pub deadline: Deadline,
    /// Most bytes of one file.
    pub limit: ByteSize,
    /// What DIAL is shown.
    pub credentials: Credentials,
    /// How files from outside are asked for.
    pub fetch: Fetch,
}

/// A loaded file: its bytes while they are few, otherwise where they are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Loaded {
    /// The bytes, or the claim for them.
    pub content: Content,
    /// Number of bytes.
    pub size: u64,
    /// Digest of the bytes.
    pub sha256: Sha256Digest,
    /// Declared media type; empty when unknown.
    pub media_type: String,
}

/// A file could not be loaded.
#[derive(Debug)]
pub enum LoadError {
    /// The model can correct the argument; the fault's message says how.
    Correctable(Fault),
    /// Nothing that the model can do.
    Failed(Error),
}

impl From<Error> for LoadError {
    fn from(error: Error) -> Self {
        Self::Failed(error)
    }
}

/// The loader of one tool call.
#[derive(Debug)]
pub struct Loader {
    bus: Bus,
    store: Store,
    dial: Option<DialClient>,
    scope: Scope,
    downloads: Downloads,
    shared_by: DownloadScope,
}

impl Loader {
    /// A loader that shares nothing with other calls.
    pub fn new(bus: Bus, store: Store, dial: Option<DialClient>, scope: Scope) -> Self {
        let limits = DownloadLimits {
            lifetime: Period::secs(u64::from(u32::MAX)),
            max_entries: usize::MAX,
        };
        Self {
            bus,
            store,
            dial,
            scope,
            downloads: Downloads::new(Clock::system(), limits),
            shared_by: DownloadScope::Call,
        }
    }

    /// The same with the downloads of others; with an index that keeps nothing, the loader as it is.
    #[must_use]
    pub fn sharing(mut self, downloads: &Downloads, shared_by: DownloadScope) -> Self {
        if downloads.is_on() {
            self.downloads = downloads.clone();
            self.shared_by = shared_by;
        }
        self
    }

    /// Opens a file that this call uses once. Nothing of it is kept unless others share it.
    pub async fn open_once(&self, target: &Target) -> Result<Source, LoadError> {
        if self.shared_by != DownloadScope::Call {
            return self.open(target).await;
        }
        match target {
            Target::Dial(path) => self.open_dial(path).await,
            Target::External(_) => self.reopen(self.fetch(target).await?).await,
        }
    }

    /// Opens a file that is used again: it is loaded by the first who asks, and read back by everybody.
    pub async fn open(&self, target: &Target) -> Result<Source, LoadError> {
        match self.reopen(self.load(target).await?).await {
            // The store let go of it earlier than the index: it is loaded again, once.
            Err(LoadError::Failed(Error::Stored(ReadError::Missing))) => {
                self.downloads.forget(&self.key(target));
                self.reopen(self.load(target).await?).await
            }
            other => other,
        }
    }

    async fn reopen(&self, loaded: Loaded) -> Result<Source, LoadError> {
        let Loaded {
            content,
            sha256,
            media_type,
            ..
        } = loaded;
        match content {
            Content::Inline(bytes) => Ok(Source::memory(bytes, sha256, media_type)),
            Content::Claim(claim) => {
                let scope = &self.scope;
                let reader = self.store.read(&scope.tenant, &claim, scope.deadline).await;
                Ok(Source::store(
                    reader.map_err(Error::Stored)?,
                    sha256,
                    media_type,
                ))
            }
        }
    }

    /// Loads a file, or waits for a load in progress, or takes what was loaded before.
    pub async fn load(&self, target: &Target) -> Result<Loaded, LoadError> {
        let load = self
            .downloads
            .get_or_load(self.key(target), self.fetch(target));
        match target {
            Target::Dial(_) => load.await,
            // Waiting for the load of another call counts as waiting for the fetcher, too.
            Target::External(_) => release_permit_while(load).await,
        }
    }

    fn key(&self, target: &Target) -> DownloadKey {
        let scope = &self.scope;
        DownloadKey::new(
            scope.tenant.clone(),
            self.shared_by.clone(),
            target.clone(),
            scope.limit,
            (&scope.credentials, scope.fetch.app_policy.as_ref()),
        )
    }

    async fn fetch(&self, target: &Target) -> Result<Loaded, LoadError> {
        match target {
            Target::Dial(path) => self.spool(self.open_dial(path).await?).await,
            // The other server decides how long this takes; other tenants must not wait for it.
            Target::External(url) => {
                release_permit_while(external::fetch(&self.bus, &self.scope.fetch, url)).await
            }
        }
    }

    async fn open_dial(&self, path: &DialPath) -> Result<Source, LoadError> {
        let client = self.dial.as_ref().ok_or(Error::NoDial)?;
        let shown = Shown::dial(path);
        let scope = &self.scope;
        match client.open(path, &scope.credentials, scope.limit).await {
            Ok(content) => Ok(Source::dial(shown, content)),
            Err(error) => Err(from_dial(error, shown)),
        }
    }

    /// Keeps a small file in memory and sends a larger one to the store.
    async fn spool(&self, mut source: Source) -> Result<Loaded, LoadError> {
        let mut held = BytesMut::new();
        let mut writer = None;
        while let Some(chunk) = source.next().await? {
            if writer.is_none() && held.len() + chunk.len() <= INLINE_LIMIT {
                held.extend_from_slice(&chunk);
                continue;
            }
            let scope = &self.scope;
            let writer = writer.get_or_insert_with(|| {
                self.store
                    .writer(&scope.tenant, &scope.operation, scope.epoch)
                    .deadline(scope.deadline)
            });
            for bytes in [held.split().freeze(), chunk] {
                writer.write(bytes).await.map_err(Error::Store)?;
            }
        }
        let summary = source.summary();
        let content = match writer {
            None => Content::Inline(Bytes::from(held)),
            Some(writer) => {
                let label = Label::new(summary.media_type.as_str(), "");
                Content::Claim(writer.finish(label).await.map_err(Error::Store)?)
            }
        };
        Ok(Loaded {
            content,
            size: summary.size,
            sha256: summary.sha256,
            media_type: summary.media_type,
        })
    }
}
