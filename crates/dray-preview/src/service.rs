//! Creates, lists and revokes previews, and finds the preview of a link.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use dray_bus::{Bus, Meta};
use dray_proto::NamedCode as _;
use dray_proto::v1::{self, PreviewAction};
use dray_sandbox::{FileKind, Handle, SandboxPath};
use dray_sandbox_tree as tree;
use dray_store::Store;
use dray_transfer_engine::policy::expand;
use dray_types::{Clock, TenantId, whole_millis};
use tokio::sync::Semaphore;
use tokio::time::Instant;

use crate::audit::PreviewAuditor;
use crate::config::PreviewConfig;
use crate::error::PreviewError;
use crate::location::Location;
use crate::metrics::PreviewMetrics;
use crate::records::{
    PreviewRecordStore, add_unreported, has_room, id_of, is_unreported, open_preview, remove_ended,
};
use crate::source::{OpenSandbox, PreviewSource};
use crate::token::{PreviewKey, PreviewToken};

/// Hexadecimal digits of an id.
const ID_DIGITS: usize = 16;
/// How long an open sandbox and its policy are used before the session is read again.
const OPEN_SANDBOX_TTL: Duration = Duration::from_secs(10);
/// Most open sandboxes that are cached.
const MAX_CACHED_SANDBOXES: usize = 64;
/// Longest id of a delivery.
const MAX_DELIVERY_ID_BYTES: usize = 128;
/// Most responses that this process sends concurrently, for all links.
const MAX_RESPONSES: usize = 256;
/// Documents that this process renders concurrently; others wait.
const MAX_RENDERINGS: usize = 4;

/// Creates previews, and serves them to holders of their links. Cheap to clone.
#[derive(Clone, Debug)]
pub struct PreviewService {
    pub(crate) inner: Arc<ServiceParts>,
}

/// The parts from which the service is built.
#[derive(Debug)]
pub struct PreviewSystem {
    /// Bus of records and audit events.
    pub bus: Bus,
    /// Store whose cache carries documents to the reader.
    pub store: Store,
    /// Opens sandboxes.
    pub source: Arc<dyn PreviewSource>,
    /// Clock of lifetimes.
    pub clock: Clock,
    /// Instruments.
    pub metrics: PreviewMetrics,
    /// Settings.
    pub config: PreviewConfig,
    /// Limits of directories that are sent as an archive.
    pub tree_limits: tree::Limits,
    /// Address of the endpoint, for links without a configured URL.
    pub address: Option<SocketAddr>,
}

#[derive(Debug)]
pub(crate) struct ServiceParts {
    pub(crate) system: PreviewSystem,
    pub(crate) records: PreviewRecordStore,
    pub(crate) auditor: PreviewAuditor,
    /// Open sandboxes by preview, each with the instant at which it is opened again.
    opened: Mutex<HashMap<String, (OpenSandbox, Instant)>>,
    pub(crate) responses: Arc<Semaphore>,
    /// Permits for documents that are rendered concurrently.
    pub(crate) renderings: Semaphore,
}

/// The request for a preview.
#[derive(Clone, Debug)]
pub struct NewPreview {
    /// The sandbox that has the file, by session or by address.
    pub sandbox: v1::SandboxRef,
    /// A file or a directory, as the caller wrote it.
    pub path: Vec<u8>,
    /// Lifetime; `None` for the default of the operator.
    pub lifetime: Option<Duration>,
    /// Whether a file is shown alone, without the rest of its directory.
    pub only_file: bool,
    /// Delivery that sends the link; empty for none.
    pub delivery_id: String,
}

/// The preview of a link, and where it is recorded.
#[derive(Clone, Debug)]
pub(crate) struct FoundPreview {
    pub(crate) preview: v1::Preview,
    pub(crate) tenant: TenantId,
    /// Whether an audit event of the preview is not stored yet.
    pub(crate) has_unreported: bool,
    sandbox: v1::SandboxRef,
    pub(crate) key: PreviewKey,
}

impl PreviewService {
    /// Makes the service. No record is read yet.
    pub fn new(system: PreviewSystem) -> Self {
        Self {
            inner: Arc::new(ServiceParts {
                records: PreviewRecordStore::new(&system.bus),
                auditor: PreviewAuditor::new(system.bus.clone(), system.clock.clone()),
                opened: Mutex::default(),
                responses: Arc::new(Semaphore::new(MAX_RESPONSES)),
                renderings: Semaphore::new(MAX_RENDERINGS),
                system,
            }),
        }
    }

    /// Makes a link to a path that exists and that the policy permits. A file is shown with its directory.
    ///
    /// # Errors
    ///
    /// Failures of the sandbox or the path, [`PreviewError::TooMany`], [`PreviewError::NotConfigured`], and a record or
    /// an audit event that cannot be stored. After an error no link exists.
    pub async fn create(
        &self,
        meta: &Meta,
        request: NewPreview,
    ) -> Result<v1::CreatedPreview, PreviewError> {
        let system = &self.inner.system;
        let mut preview = self.describe(meta, &request).await?;
        let base = system.config.base_url(&preview.preview_id, system.address);
        let base = base.ok_or(PreviewError::NotConfigured)?;
        let key = key_of(&meta.tenant, &request.sandbox)?;
        let token = PreviewToken::mint(key);
        let now_ms = system.clock.now_ms();
        let max_lifetime = system.config.max_lifetime.as_duration();
        let lifetime = request
            .lifetime
            .unwrap_or_else(|| system.config.lifetime.as_duration());
        preview.created_at_ms = now_ms;
        let lifetime_ms = whole_millis(lifetime.min(max_lifetime));
        preview.expires_at_ms = now_ms.saturating_add(lifetime_ms);
        let record = v1::PreviewRecord {
            preview: Some(preview.clone()),
            secret_sha256: token.secret_sha256().as_bytes().to_vec(),
            ..v1::PreviewRecord::default()
        };
        let is_delivered = !preview.delivery_id.is_empty();
        let max_open = system.config.max_open_of(is_delivered);
        let add = |records: &mut v1::PreviewRecords| {
            let open = records.records.iter();
            let open = open.filter_map(|record| open_preview(record, now_ms));
            let all_open = open.clone().count();
            let open = open.filter(|open| open.delivery_id.is_empty() != is_delivered);
            if open.count() >= max_open as usize {
                return Err(PreviewError::TooMany(max_open));
            }
            meta.tenant.as_str().clone_into(&mut records.tenant);
            records.sandbox = Some(request.sandbox.clone());
            records.records.push(record.clone());
            remove_ended(records, now_ms);
            if !has_room(records, now_ms) {
                return Err(PreviewError::TooMany(
                    u32::try_from(all_open).unwrap_or(u32::MAX),
                ));
            }
            Ok(())
        };
        // The record decides about the quota, also between concurrent callers, so it is written before the event: a
        // refused preview has no event. Until the event is stored, no caller has the link.
        self.inner.records.change(key, add).await?;
        let audited = self
            .inner
            .auditor
            .record(meta, PreviewAction::Created, &preview)
            .await;
        if let Err(error) = audited {
            self.withdraw(key, &preview.preview_id).await;
            return Err(error);
        }
        system.metrics.changed(PreviewAction::Created.name());
        let file = Location::of_name(&preview.file);
        Ok(v1::CreatedPreview {
            url: format!("{base}/v/{}/{}", token.text(), file.url_part()),
            preview: Some(preview),
        })
    }

    /// Removes the record of a preview whose link no caller got. A preview that cannot be removed counts against the
    /// quota until it ends.
    async fn withdraw(&self, key: PreviewKey, preview_id: &str) {
        let remove = |records: &mut v1::PreviewRecords| {
            records.records.retain(|record| id_of(record) != preview_id);
            Ok(())
        };
        if let Err(error) = self.inner.records.change(key, remove).await {
            tracing::warn!(%error, preview = preview_id, "the record of a preview without an event stays");
        }
    }

    /// Describes the preview of a path as it is now, without times.
    async fn describe(
        &self,
        meta: &Meta,
        request: &NewPreview,
    ) -> Result<v1::Preview, PreviewError> {
        let source = &self.inner.system.source;
        if request.delivery_id.len() > MAX_DELIVERY_ID_BYTES {
            return Err(PreviewError::Invalid("the id of the delivery is too long"));
        }
        let opened = source.open(&meta.tenant, &request.sandbox).await;
        let opened = opened.map_err(|fault| PreviewError::Opening(Box::new(fault)))?;
        let path = expand(&request.path, &opened.places)?;
        let found = opened.engine.pin(&opened.policy, &path).await?.metadata;
        let (directory, file) = match found.kind {
            FileKind::Directory => (found.real_path, Vec::new()),
            FileKind::File => (found.real_path.parent(), found.real_path.name().to_vec()),
            kind => {
                let kind =
                    dray_sandbox::Error::new(dray_sandbox::ErrorKind::NotRegular, kind.as_str());
                return Err(kind.into());
            }
        };
        let handle = opened.engine.handle();
        let session = match &request.sandbox.sandbox {
            Some(v1::sandbox_ref::Sandbox::Session(session)) => session.clone(),
            _ => String::new(),
        };
        Ok(v1::Preview {
            preview_id: format!("{:0width$x}", rand::random::<u64>(), width = ID_DIGITS),
            handle: Some(v1::SandboxHandle {
                backend: handle.address.backend.clone(),
                name: handle.address.name.clone(),
                incarnation: handle.incarnation.clone(),
            }),
            session,
            directory: directory.as_bytes().to_vec(),
            only_file: request.only_file && !file.is_empty(),
            delivery_id: request.delivery_id.clone(),
            file,
            ..v1::Preview::default()
        })
    }

    /// The open previews of a reference, newest first. With a delivery, all previews of that delivery, including ended
    /// ones.
    ///
    /// # Errors
    ///
    /// The reference names no sandbox, or the records cannot be read.
    pub async fn list(
        &self,
        tenant: &TenantId,
        sandbox: &v1::SandboxRef,
        delivery_id: &str,
    ) -> Result<Vec<v1::Preview>, PreviewError> {
        let key = key_of(tenant, sandbox)?;
        let records = self.inner.records.load(key).await?;
        let now_ms = self.inner.system.clock.now_ms();
        let newest_first = records.records.iter().rev();
        let selected = newest_first.filter_map(|record| {
            if delivery_id.is_empty() {
                return open_preview(record, now_ms);
            }
            let preview = record.preview.as_ref();
            preview.filter(|preview| preview.delivery_id == delivery_id)
        });
        Ok(selected.cloned().collect())
    }

    /// Ends a preview: its next request is refused, and responses that are being sent break off after at most
    /// 5 s or 16 MiB, whichever comes first.
    ///
    /// # Errors
    ///
    /// [`PreviewError::Unknown`], also for a preview of another tenant; failures of the records or of the audit event.
    /// After [`PreviewError::Audit`] the preview has ended, and another call reports it.
    pub async fn revoke(
        &self,
        meta: &Meta,
        sandbox: &v1::SandboxRef,
        preview_id: &str,
    ) -> Result<v1::Preview, PreviewError> {
        let key = key_of(&meta.tenant, sandbox)?;
        let now_ms = self.inner.system.clock.now_ms();
        let mark_revoked = |records: &mut v1::PreviewRecords| {
            let can_be_revoked = |record: &&mut v1::PreviewRecord| {
                // After a failed audit event, the same call reports the revocation.
                let is_open = open_preview(record, now_ms).is_some();
                (is_open || is_unreported(record, PreviewAction::Revoked))
                    && id_of(record) == preview_id
            };
            let record = records.records.iter_mut().find(can_be_revoked);
            let record = record.ok_or(PreviewError::Unknown)?;
            add_unreported(record, PreviewAction::Revoked);
            let preview = record.preview.as_mut().ok_or(PreviewError::Unknown)?;
            if preview.revoked_at_ms == 0 {
                preview.revoked_at_ms = now_ms;
            }
            let revoked = preview.clone();
            remove_ended(records, now_ms);
            Ok(revoked)
        };
        let revoked = self.inner.records.change(key, mark_revoked).await?;
        self.inner
            .system
            .metrics
            .changed(PreviewAction::Revoked.name());
        // The audit event comes after the record is written: an audit trail that cannot be written must not keep a link
        // open.
        self.inner
            .auditor
            .record(meta, PreviewAction::Revoked, &revoked)
            .await?;
        self.clear_unreported(key, preview_id, PreviewAction::Revoked)
            .await;
        Ok(revoked)
    }

    /// The open preview of a token, when `host` may show it.
    pub(crate) async fn find(
        &self,
        token: &PreviewToken,
        host: Option<&str>,
    ) -> Result<FoundPreview, PreviewError> {
        let records = self.inner.records.load(token.key()).await?;
        let system = &self.inner.system;
        let now_ms = system.clock.now_ms();
        let record = records.records.iter().find(|record| token.opens(record));
        let preview = record.and_then(|record| open_preview(record, now_ms));
        let preview = preview.ok_or(PreviewError::Unknown)?.clone();
        let has_unreported = record.is_some_and(|record| !record.unreported.is_empty());
        if !system.config.admits_host(&preview.preview_id, host) {
            return Err(PreviewError::Unknown);
        }
        let (Ok(tenant), Some(sandbox)) = (TenantId::new(&records.tenant), records.sandbox) else {
            return Err(PreviewError::Unknown);
        };
        Ok(FoundPreview {
            preview,
            tenant,
            has_unreported,
            sandbox,
            key: token.key(),
        })
    }

    /// Opens the sandbox of a preview, which must be the incarnation for which it was made.
    pub(crate) async fn open(&self, found: &FoundPreview) -> Result<OpenSandbox, PreviewError> {
        let id = format!("{:?} {}", found.key, found.preview.preview_id);
        {
            let mut cached = self.cached();
            cached.retain(|_, (_, until)| *until > Instant::now());
            if let Some((opened, _)) = cached.get(&id) {
                return Ok(opened.clone());
            }
        }
        let source = &self.inner.system.source;
        let opened = source.open(&found.tenant, &found.sandbox).await;
        let opened = opened.map_err(|fault| PreviewError::Opening(Box::new(fault)))?;
        if !is_incarnation(opened.engine.handle(), found.preview.handle.as_ref()) {
            return Err(PreviewError::SandboxGone);
        }
        let mut cached = self.cached();
        if cached.len() < MAX_CACHED_SANDBOXES {
            cached.insert(id, (opened.clone(), Instant::now() + OPEN_SANDBOX_TTL));
        }
        Ok(opened)
    }

    /// Removes an open sandbox from the cache, after a failure that means that the sandbox is gone or was replaced.
    pub(crate) fn remove_cached(&self, found: &FoundPreview) {
        let id = format!("{:?} {}", found.key, found.preview.preview_id);
        self.cached().remove(&id);
    }

    fn cached(&self) -> std::sync::MutexGuard<'_, HashMap<String, (OpenSandbox, Instant)>> {
        self.inner
            .opened
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

impl FoundPreview {
    /// Whether a location may be viewed.
    pub(crate) fn admits(&self, location: &Location) -> bool {
        !self.preview.only_file || *location == Location::of_name(&self.preview.file)
    }

    /// Whether no person has viewed it yet.
    pub(crate) const fn is_unopened(&self) -> bool {
        self.preview.opened_at_ms == 0
    }

    /// The directory that the preview shows.
    pub(crate) fn directory(&self) -> Result<SandboxPath, PreviewError> {
        Ok(SandboxPath::new(&self.preview.directory)?)
    }
}

fn key_of(tenant: &TenantId, sandbox: &v1::SandboxRef) -> Result<PreviewKey, PreviewError> {
    let key = PreviewKey::of_reference(tenant, sandbox);
    key.ok_or(PreviewError::Invalid("the request names no sandbox"))
}

fn is_incarnation(handle: &Handle, recorded: Option<&v1::SandboxHandle>) -> bool {
    recorded.is_some_and(|recorded| {
        (
            &handle.address.backend,
            &handle.address.name,
            &handle.incarnation,
        ) == (&recorded.backend, &recorded.name, &recorded.incarnation)
    })
}
