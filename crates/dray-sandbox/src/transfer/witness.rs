//! What is asked of the sandbox before a copy, so that it can vouch for what came (sandbox-transfer 12).
//!
//! Digests need the file to be read once more, by a tool that the sandbox has. A file that was left alone for a
//! while needs none: a write shows in its times, which no process in the sandbox can set back. A transfer that reads
//! the same file between two equal states has read what was there, if nothing can get lost on the way.

use super::engine::Engine;
use crate::error::{Error, ErrorKind};
use crate::metadata::{FileKind, Fingerprint, Metadata, State, Transport};
use crate::path::SandboxPath;

/// Nanoseconds of a second.
const SECOND_NS: i128 = 1_000_000_000;

/// What the sandbox said before the copy.
pub(super) enum Before {
    /// A digest, to be asked for while the copy runs.
    Due,
    /// A digest; nothing where there could be none, or none was asked for.
    Known(Option<Fingerprint>),
    /// That the file has been left alone, and how a change is detected.
    Settled(State),
    /// The same, with a digest to be computed while the copy runs.
    Watched(State, Option<Fingerprint>),
}

impl Before {
    /// Whether a digest is to be computed beside the copy.
    pub(super) const fn wants_digest(&self) -> bool {
        matches!(self, Self::Due | Self::Watched(_, None))
    }

    /// Takes the digest that was computed beside the copy. None says nothing; what is asked afterwards decides.
    pub(super) fn set_digest(&mut self, computed: Option<Fingerprint>) {
        match self {
            Self::Due => *self = Self::Known(computed),
            Self::Watched(_, digest) => *digest = computed,
            Self::Known(_) | Self::Settled(_) => {}
        }
    }

    pub(super) const fn known(&self) -> Option<&Fingerprint> {
        match self {
            Self::Known(print) => print.as_ref(),
            Self::Due | Self::Settled(_) | Self::Watched(..) => None,
        }
    }
}

impl Engine {
    /// Chooses the evidence for a get: the cheapest that is enough. Bytes that an earlier transfer left (`continued`)
    /// are proved by a digest only.
    ///
    /// # Errors
    ///
    /// What forbids reading the file, and failures to ask.
    pub(super) async fn before(
        &self,
        file: &Metadata,
        transport: Transport,
        continued: bool,
    ) -> Result<Before, Error> {
        let times_suffice = !continued && self.times_suffice(file.size, transport);
        if times_suffice || self.watches(file.size) {
            match self.settled(file).await? {
                Some(state) if times_suffice => return Ok(Before::Settled(state)),
                Some(state) => return Ok(Before::Watched(state, None)),
                None => {}
            }
        }
        if file.size > self.options.digest_before_up_to {
            return Ok(Before::Known(None));
        }
        if self.options.digest_while_reading {
            return Ok(Before::Due);
        }
        let print = self.print(&file.real_path, file.size).await?;
        Ok(Before::Known(print))
    }

    /// Whether times are evidence enough for a file of this size over this transport.
    pub(super) const fn times_suffice(&self, size: u64, transport: Transport) -> bool {
        size > self.options.digest_always_up_to && transport.is_sound()
    }

    /// Whether one digest beside the copy and two looks at the state cost less than two digests.
    const fn watches(&self, size: u64) -> bool {
        self.options.digest_while_reading && size > self.options.digest_twice_up_to
    }

    /// The state of a file that is the one that was looked at, and has been left alone.
    async fn settled(&self, file: &Metadata) -> Result<Option<State>, Error> {
        let state = match self.answer(self.sandbox.state(&file.real_path)).await {
            Ok(state) => state,
            Err(error) if error.kind() == ErrorKind::PermissionDenied => return Err(error),
            // The cause also affects digests.
            Err(_) => return Ok(None),
        };
        Ok(Some(state).filter(|state| state.is_settled() && is_of(state, file)))
    }

    /// Whether the state of a file is still the same.
    ///
    /// # Errors
    ///
    /// The failure of asking; then the state is unknown.
    pub(super) async fn unchanged(
        &self,
        path: &SandboxPath,
        before: &State,
    ) -> Result<bool, Error> {
        let after = self.answer(self.sandbox.state(path)).await?;
        Ok(before.is_same(&after))
    }

    /// Whether all of a written file is there, by its size; nothing where only a digest can tell.
    pub(super) async fn arrived(&self, path: &SandboxPath, size: u64) -> Option<bool> {
        let state = self.answer(self.sandbox.state(path)).await.ok()?;
        Some(state.kind == FileKind::File && state.size == size)
    }
}

/// Whether it is the state of what was looked at. Backends that tell no fractions of a second tell zero.
fn is_of(state: &State, file: &Metadata) -> bool {
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
