//! Decides when files that are read again and again have changed, for the policy files and those of TLS with clients.
//!
//! A change counts once two reads in a row give the same content, so that a file that is being written, or a directory whose
//! links are being replaced, does not count. It does no I/O.

use dray_types::Sha256Digest;

/// A state of the files: the digest of their content, or the reason why they cannot be read.
pub(crate) type ReadState = Result<Sha256Digest, String>;

/// The content in force, and what was read since.
#[derive(Debug)]
pub(crate) struct ReloadState {
    in_force: Sha256Digest,
    /// The last state that was read and is not the one in force.
    last: Option<ReadState>,
    /// Whether `last` was found invalid, which is reported once.
    is_rejected: bool,
}

/// The consequence of a read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReloadStep {
    /// The files are those in force. `was_rejected`: after others that were invalid.
    InForce {
        /// Whether the state before was invalid.
        was_rejected: bool,
    },
    /// Nothing to do: the change is too new, or known to be invalid.
    Wait,
    /// The files are to be applied, and the result is to be noted.
    Apply,
}

impl ReloadState {
    /// Begins with the content that was read at the start.
    pub(crate) const fn new(in_force: Sha256Digest) -> Self {
        Self {
            in_force,
            last: None,
            is_rejected: false,
        }
    }

    /// Notes what was read.
    pub(crate) fn note(&mut self, state: ReadState) -> ReloadStep {
        if state.as_ref() == Ok(&self.in_force) {
            let was_rejected = std::mem::take(&mut self.is_rejected);
            self.last = None;
            return ReloadStep::InForce { was_rejected };
        }
        if self.last.as_ref() != Some(&state) {
            (self.last, self.is_rejected) = (Some(state), false);
            return ReloadStep::Wait;
        }
        if self.is_rejected {
            return ReloadStep::Wait;
        }
        ReloadStep::Apply
    }

    /// The files with this content are in force now.
    pub(crate) fn applied(&mut self, in_force: Sha256Digest) {
        *self = Self::new(in_force);
    }

    /// Whether another read of the same state would change nothing.
    pub(crate) const fn is_settled(&self) -> bool {
        self.last.is_none() || self.is_rejected
    }

    /// The content in force.
    #[cfg(test)]
    pub(crate) const fn in_force(&self) -> Sha256Digest {
        self.in_force
    }

    /// Whether the last state was found invalid.
    #[cfg(test)]
    pub(crate) const fn is_rejected(&self) -> bool {
        self.is_rejected
    }

    /// The last state is invalid: it is not applied again, and not reported again.
    pub(crate) const fn rejected(&mut self) {
        self.is_rejected = true;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_counts_after_two_equal_reads_and_an_invalid_one_is_reported_once() {
        let content = |text: &str| Ok(Sha256Digest::of(text.as_bytes()));
        let mut state = ReloadState::new(Sha256Digest::of(b"old"));
        let in_force = |was_rejected| ReloadStep::InForce { was_rejected };
        assert_eq!(state.note(content("old")), in_force(false));
        assert_eq!(state.note(content("hal")), ReloadStep::Wait);
        assert_eq!(state.note(content("half")), ReloadStep::Wait);
        assert_eq!(state.note(content("half")), ReloadStep::Apply);
        state.rejected();
        assert_eq!(state.note(content("half")), ReloadStep::Wait);
        assert_eq!(state.note(content("old")), in_force(true));
        assert_eq!(state.note(content("old")), in_force(false));
        let missing = || Err("not found".to_owned());
        assert_eq!(state.note(missing()), ReloadStep::Wait);
        assert_eq!(state.note(missing()), ReloadStep::Apply);
        state.rejected();
        assert_eq!(state.note(content("new")), ReloadStep::Wait);
        assert_eq!(state.note(content("new")), ReloadStep::Apply);
        state.applied(Sha256Digest::of(b"new"));
        assert_eq!(state.note(content("new")), in_force(false));
    }
}
