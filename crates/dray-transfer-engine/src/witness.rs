//! The evidence that is collected before a copy, to prove the copy later (sandbox-transfer 12).
//!
//! A digest needs another read of the file, by a program in the sandbox. A file that was not written for a while needs
//! no such read: a write changes its times, which no process in the sandbox can set back. If the states before and
//! after a transfer are equal, and the transport loses nothing, the received bytes are the content of the file.

use dray_sandbox::error::{Error, ErrorKind};
use dray_sandbox::metadata::{FileKind, FileState, Fingerprint, Metadata, Transport};
use dray_sandbox::path::SandboxPath;

use super::engine::Engine;

/// Nanoseconds in a second.
const SECOND_NS: i128 = 1_000_000_000;

/// Evidence from the sandbox, taken before the copy.
pub(super) enum IntegrityBaseline {
    /// A digest that is computed while the copy runs.
    Pending,
    /// A known digest; `None` if none could be computed, or none was requested.
    Digest(Option<Fingerprint>),
    /// The state of a file that has settled; an equal state afterwards proves that it did not change.
    Unchanged(FileState),
    /// The state of a settled file, with a digest that is computed while the copy runs.
    UnchangedWithDigest(FileState, Option<Fingerprint>),
}

impl IntegrityBaseline {
    /// Whether a digest has to be computed beside the copy.
    pub(super) const fn wants_digest(&self) -> bool {
        matches!(self, Self::Pending | Self::UnchangedWithDigest(_, None))
    }

    /// Records the digest that was computed beside the copy. `None`, whether for a failure or for a missing program,
    /// proves nothing; the digest afterwards decides.
    pub(super) fn set_digest(&mut self, computed: Option<Fingerprint>) {
        match self {
            Self::Pending => *self = Self::Digest(computed),
            Self::UnchangedWithDigest(_, digest) => *digest = computed,
            Self::Digest(_) | Self::Unchanged(_) => {}
        }
    }

    /// Stops relying on times alone, because the next bytes arrive over a transport that may lose something.
    pub(super) fn require_digest(&mut self) {
        if let Self::Unchanged(state) = self {
            *self = Self::UnchangedWithDigest(state.clone(), None);
        }
    }
}

impl Engine {
    /// Chooses the evidence for a get: the cheapest sufficient kind. Bytes of an earlier transfer (`continued`) are
    /// proved only by a digest.
    ///
    /// # Errors
    ///
    /// Failures that forbid reading the file, and failures of the requests.
    pub(super) async fn take_baseline(
        &self,
        file: &Metadata,
        transport: Transport,
        continued: bool,
    ) -> Result<IntegrityBaseline, Error> {
        let times_suffice = !continued && self.times_suffice(file.size, transport);
        if times_suffice || self.prefers_states(file.size) {
            match self.settled_state(file).await? {
                Some(state) if times_suffice => return Ok(IntegrityBaseline::Unchanged(state)),
                Some(state) => return Ok(IntegrityBaseline::UnchangedWithDigest(state, None)),
                None => {}
            }
        }
        // Large files: the digest after the copy is enough evidence; another full read would cost too much.
        if file.size > self.options.digest_before_up_to {
            return Ok(IntegrityBaseline::Digest(None));
        }
        if self.options.digest_while_reading {
            return Ok(IntegrityBaseline::Pending);
        }
        let fingerprint = self.fingerprint(&file.real_path, file.size).await?;
        Ok(IntegrityBaseline::Digest(fingerprint))
    }

    /// Whether times are enough evidence for a file of this size over this transport.
    pub(super) const fn times_suffice(&self, size: u64, transport: Transport) -> bool {
        size > self.options.digest_always_up_to && transport.is_sound()
    }

    /// Whether one digest beside the copy and two states cost less than two digests.
    const fn prefers_states(&self, size: u64) -> bool {
        self.options.digest_while_reading && size > self.options.digest_twice_up_to
    }

    /// The state of the file with this metadata, if it has settled.
    async fn settled_state(&self, file: &Metadata) -> Result<Option<FileState>, Error> {
        let state = match self
            .with_response_timeout(self.sandbox.state(&file.real_path))
            .await
        {
            Ok(state) => state,
            Err(error) if error.kind() == ErrorKind::PermissionDenied => return Err(error),
            // The cause affects digests as well, and they report separate errors.
            Err(_) => return Ok(None),
        };
        Ok(Some(state).filter(|state| state.is_settled() && describes(state, file)))
    }

    /// Whether the state of a file is still the same.
    ///
    /// # Errors
    ///
    /// The failure of the request; the state is then unknown.
    pub(super) async fn unchanged(
        &self,
        path: &SandboxPath,
        before: &FileState,
    ) -> Result<bool, Error> {
        let after = self.with_response_timeout(self.sandbox.state(path)).await?;
        Ok(before.is_same(&after))
    }

    /// Whether a written file is complete, by its size; `None` where only a digest can decide.
    pub(super) async fn is_complete(&self, path: &SandboxPath, size: u64) -> Option<bool> {
        let state = self
            .with_response_timeout(self.sandbox.state(path))
            .await
            .ok()?;
        Some(state.kind == FileKind::File && state.size == size)
    }
}

/// Whether the state belongs to the file with this metadata. Backends without fractions of a second report zero.
fn describes(state: &FileState, file: &Metadata) -> bool {
    let same_time = |modified: i128| {
        let exact = modified.rem_euclid(SECOND_NS) != 0;
        let unit = if exact { 1 } else { SECOND_NS };
        modified.div_euclid(unit) == state.modified_ns.div_euclid(unit)
    };
    state.kind == FileKind::File
        && state.size == file.size
        && file
            .identity
            .is_none_or(|identity| identity == state.identity)
        && file.mtime_ns.is_none_or(same_time)
}
