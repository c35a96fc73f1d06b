//! Downloads of a file in a sandbox: the ticket pins the file as it was, and fails when the file changes.
//!
//! The content is copied into the store when the ticket is made, so that a download never mixes two states of the file.
//! The file's size, modification time and change marker (`ctime` and inode, if the sandbox reports them) are compared
//! before the first byte of a response and before its last bytes are sent.

use std::time::Duration;

use dray_bus::{Bus, Meta};
use dray_proto::v1;
use dray_store::ArtifactLabel;
use dray_types::{Claim, Deadline, Fault, FaultCode, OperationId};
use serde::{Deserialize, Serialize};

use crate::destination::session_sandbox;
use crate::issue::{IssuedTicket, TicketRequest};
use crate::problem::TicketProblem;
use crate::record::{StoredContent, TicketRecord};
use crate::{Principal, TicketService};

/// Longest time for a copy out of a sandbox.
const GET_TIMEOUT: Duration = Duration::from_mins(10);
/// Time limit for reading the metadata of the file.
const STAT_TIMEOUT: Duration = Duration::from_secs(30);
/// Longest path, in bytes.
const MAX_PATH_BYTES: usize = 4_096;

/// A file of the sandbox as it was when its ticket was made.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct PinnedFile {
    /// The path as the maker of the ticket wrote it.
    pub(crate) path: String,
    /// The path after links were resolved, as lossy text, which is only compared.
    pub(crate) real_path: String,
    pub(crate) size: u64,
    /// Nanoseconds since the epoch; `None` if the sandbox does not report it.
    pub(crate) mtime_ns: Option<i64>,
    /// Text of `ctime` and inode from the sandbox; empty if it reports neither.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub(crate) change_marker: String,
}

impl PinnedFile {
    fn new(path: &str, entry: &v1::SandboxEntry) -> Self {
        Self {
            path: path.to_owned(),
            real_path: String::from_utf8_lossy(&entry.real_path).into_owned(),
            size: entry.size,
            mtime_ns: entry.mtime_ns,
            change_marker: entry.change_marker.clone(),
        }
    }

    fn is_same(&self, entry: &v1::SandboxEntry) -> bool {
        *self == Self::new(&self.path, entry)
    }
}

impl TicketService {
    /// Copies a file of the session's sandbox into the store and makes a ticket for it, in its present state. `request`
    /// sets properties of the ticket, for example its name and its lifetime.
    ///
    /// # Errors
    ///
    /// The file cannot be copied, this endpoint reaches no sandboxes, or [`Self::issue`] fails.
    pub async fn issue_sandbox_download(
        &self,
        principal: &Principal,
        path: &str,
        request: impl FnOnce(TicketRequest) -> TicketRequest,
    ) -> Result<IssuedTicket, TicketProblem> {
        if path.is_empty() || path.len() > MAX_PATH_BYTES || path.contains('\0') {
            return Err(TicketProblem::Invalid("the path is not valid"));
        }
        let copied = self.copy_pinned(principal, path).await;
        let (pinned, claim) =
            copied.map_err(|fault| TicketProblem::SourceFailed(Box::new(fault)))?;
        let artifact = &claim.artifact;
        let content = StoredContent {
            sha256: artifact.sha256.to_hex(),
            size: artifact.size,
            media_type: artifact.media_type.clone(),
            name: artifact.name.clone(),
        };
        let name = content.name.clone();
        let pinned = TicketRequest::download(content).name(name).pinned(pinned);
        self.issue(principal, request(pinned)).await
    }

    /// Returns the state of the file, and its copy in the store.
    async fn copy_pinned(
        &self,
        principal: &Principal,
        path: &str,
    ) -> Result<(PinnedFile, Claim), Fault> {
        let bus = self.inner.bus.as_ref().ok_or_else(|| {
            Fault::new(
                FaultCode::Unavailable,
                "This endpoint reaches no sandboxes.",
            )
            .detail("no_services")
        })?;
        // The state is read before and after the copy: a marker that is read only afterwards could belong to a later
        // state.
        let before = PinnedFile::new(path, &self.stat_source(bus, principal, path).await?);
        let copied = self.copy_from_sandbox(bus, principal, path).await?;
        let after = self.stat_source(bus, principal, path).await?;
        if !before.is_same(&after) {
            return Err(Fault::new(
                FaultCode::Unavailable,
                "The file changed while it was copied.",
            )
            .detail("changed_while_copied")
            .advice("Ask for the ticket again when nothing writes to the file."));
        }
        Ok((before, copied))
    }

    async fn stat_source(
        &self,
        bus: &Bus,
        principal: &Principal,
        path: &str,
    ) -> Result<v1::SandboxEntry, Fault> {
        let request = v1::StatSandboxRequest {
            sandbox: Some(session_sandbox(&principal.session)),
            path: path.as_bytes().to_vec(),
            follow: true,
            with_change_marker: true,
        };
        let meta = self.sandbox_meta(principal, STAT_TIMEOUT);
        Ok(bus.call(&meta, &request).await?)
    }

    async fn copy_from_sandbox(
        &self,
        bus: &Bus,
        principal: &Principal,
        path: &str,
    ) -> Result<Claim, Fault> {
        let request = v1::GetSandboxFileRequest {
            sandbox: Some(session_sandbox(&principal.session)),
            path: path.as_bytes().to_vec(),
            ..v1::GetSandboxFileRequest::default()
        };
        let meta = self.sandbox_meta(principal, GET_TIMEOUT);
        let file = bus.call_once(&meta, &request).await?;
        let claim = file.claim.ok_or_else(Fault::internal)?;
        let claim = Claim::try_from(claim).map_err(|_| Fault::internal())?;
        self.keep_content(principal, claim).await
    }

    /// Copies an object of the cache into the kept content: the cache may drop it while the ticket is open.
    async fn keep_content(&self, principal: &Principal, claim: Claim) -> Result<Claim, Fault> {
        if dray_store::cache_key(&claim).is_none() {
            return Ok(claim);
        }
        let store = &self.inner.store;
        let deadline = Deadline::after(self.inner.clock.now_ms(), GET_TIMEOUT);
        let mut reader = store.read(&principal.tenant, &claim, deadline).await?;
        let mut writer = store.writer(&principal.tenant, &OperationId::mint(), 1);
        while let Some(bytes) = reader.next().await? {
            writer.write(bytes).await?;
        }
        let label = ArtifactLabel::new(&claim.artifact.media_type, &claim.artifact.name);
        Ok(writer.finish(label).await?)
    }

    /// Checks that the file behind a download is unchanged.
    pub(crate) async fn check_source(&self, record: &TicketRecord) -> Result<(), TicketProblem> {
        let Some(pinned) = &record.pinned else {
            return Ok(());
        };
        let (Some(tenant), Ok(session), Some(bus)) = (
            record.tenant(),
            record.session.parse(),
            self.inner.bus.as_ref(),
        ) else {
            return Err(TicketProblem::SourceUnavailable);
        };
        let principal = Principal { tenant, session };
        match self.stat_source(bus, &principal, &pinned.path).await {
            Ok(entry) if pinned.is_same(&entry) => Ok(()),
            Ok(_) => Err(TicketProblem::SourceChanged),
            Err(fault) if fault.code == FaultCode::NotFound => Err(TicketProblem::SourceChanged),
            Err(fault) => {
                tracing::warn!(code = %fault.code, detail = %fault.detail, "could not ask a sandbox");
                Err(TicketProblem::SourceUnavailable)
            }
        }
    }

    fn sandbox_meta(&self, principal: &Principal, timeout: Duration) -> Meta {
        let deadline = Deadline::after(self.inner.clock.now_ms(), timeout);
        Meta::new(principal.tenant.clone(), deadline).with_session(principal.session.clone())
    }
}
