//! One path of a preview, opened for one request.

use std::time::Duration;

use dray_bus::Meta;
use dray_presentation::name::shown_text;
use dray_sandbox::{Error, ErrorKind, FileKind, SandboxPath};
use dray_transfer_engine::PinnedPath;
use dray_types::Deadline;

use crate::error::PreviewError;
use crate::location::{Location, MAX_SHOWN_CHARACTERS};
use crate::metrics::PreviewMetrics;
use crate::service::{FoundPreview, PreviewService};
use crate::source::OpenSandbox;
use crate::token::PreviewToken;

/// A path of a preview.
#[derive(Clone, Debug)]
pub(crate) struct SandboxView {
    pub(crate) service: PreviewService,
    pub(crate) token: PreviewToken,
    pub(crate) found: FoundPreview,
    pub(crate) opened: OpenSandbox,
    pub(crate) location: Location,
    pub(crate) path: SandboxPath,
    /// The entry at the path.
    pub(crate) pinned: PinnedPath,
}

impl SandboxView {
    /// Opens a location of a preview. The sandbox resolves the path, and the result must be in the directory of the
    /// preview.
    pub(crate) async fn open(
        service: &PreviewService,
        token: &PreviewToken,
        found: &FoundPreview,
        location: Location,
    ) -> Result<Self, PreviewError> {
        let opened = service.open(found).await?;
        let path = location.beneath(&found.directory()?)?;
        let view = Self {
            service: service.clone(),
            token: token.clone(),
            found: found.clone(),
            pinned: stat_path(service, found, &opened, &path).await?,
            opened,
            location,
            path,
        };
        // File systems do the same: the name of a file with a slash after it leads nowhere.
        if view.location.is_directory && view.kind() != FileKind::Directory {
            let error = "part of the path is not a directory";
            return Err(Error::new(ErrorKind::NotDirectory, error).into());
        }
        Ok(view)
    }

    /// Reads the state of the entry again.
    pub(crate) async fn pin_again(&self) -> Result<PinnedPath, PreviewError> {
        stat_path(&self.service, &self.found, &self.opened, &self.path).await
    }

    /// Another location of the same preview.
    pub(crate) async fn at(&self, location: Location) -> Result<Self, PreviewError> {
        Self::open(&self.service, &self.token, &self.found, location).await
    }

    pub(crate) fn kind(&self) -> FileKind {
        self.pinned.metadata.kind
    }

    /// The name of the file, or of the directory of the preview, as it is apart from invalid UTF-8.
    pub(crate) fn name(&self) -> String {
        String::from_utf8_lossy(self.raw_name()).into_owned()
    }

    /// The name for people, without characters that change how it reads.
    pub(crate) fn shown_name(&self) -> String {
        shown_text(self.raw_name(), MAX_SHOWN_CHARACTERS)
    }

    fn raw_name(&self) -> &[u8] {
        self.location.name().unwrap_or_else(|| self.path.name())
    }

    /// Envelope of a call for this request, with this timeout.
    pub(crate) fn meta(&self, timeout: Duration) -> Meta {
        let now_ms = self.service.inner.system.clock.now_ms();
        let deadline = Deadline::after(now_ms, timeout);
        Meta::new(self.found.tenant.clone(), deadline)
    }

    pub(crate) fn metrics(&self) -> &PreviewMetrics {
        &self.service.inner.system.metrics
    }

    /// Path of a URL for a location of this preview. `area` is `p`, `v`, `d` or `z`.
    pub(crate) fn url_path(&self, area: &str, location: &Location) -> String {
        format!("/{area}/{}/{}", self.token.text(), location.url_part())
    }
}

async fn stat_path(
    service: &PreviewService,
    found: &FoundPreview,
    opened: &OpenSandbox,
    path: &SandboxPath,
) -> Result<PinnedPath, PreviewError> {
    let pinned = opened.engine.pin(&opened.policy, path).await;
    let pinned = pinned.inspect_err(|error| {
        let is_unusable = matches!(
            error.kind(),
            ErrorKind::SandboxGone
                | ErrorKind::SandboxStopped
                | ErrorKind::SandboxPaused
                | ErrorKind::Auth
        );
        if is_unusable {
            service.remove_cached(found);
        }
    })?;
    // A link in the directory may lead to another permitted path; this preview does not show it.
    if !pinned.metadata.real_path.is_beneath(&found.directory()?) {
        let outside = "the path leads out of the directory of the preview";
        return Err(Error::new(ErrorKind::OutsideRoot, outside).into());
    }
    Ok(pinned)
}
