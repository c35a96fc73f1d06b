//! Decides when settings that are read again and again have changed.
//!
//! A change counts once two reads in a row give the same content, so that a file that is being written, or a directory
//! whose links are being replaced, does not count. The module does no I/O.

/// The content in force, and what was read since. `T` is the content, or its digest.
#[derive(Debug)]
pub struct ReloadState<T> {
    in_force: T,
    /// The last state that was read and is not the one in force: the content, or the reason why it cannot be read.
    last: Option<Result<T, String>>,
    /// Whether `last` was found invalid, which is reported once.
    is_rejected: bool,
}

/// The consequence of a read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReloadStep {
    /// The content is the one in force.
    InForce {
        /// Whether the state before was invalid.
        was_rejected: bool,
    },
    /// Nothing to do: the change is too new, or known to be invalid.
    Wait,
    /// The content is to be applied, and the result is to be noted.
    Apply,
}

impl<T: PartialEq> ReloadState<T> {
    /// Begins with the content that was read at the start.
    pub const fn new(in_force: T) -> Self {
        Self {
            in_force,
            last: None,
            is_rejected: false,
        }
    }

    /// Notes what was read: the content, or the reason why it cannot be read.
    pub fn note(&mut self, state: Result<T, String>) -> ReloadStep {
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

    /// This content is in force now.
    pub fn applied(&mut self, in_force: T) {
        *self = Self::new(in_force);
    }

    /// Whether another read of the same state would change nothing.
    pub const fn is_settled(&self) -> bool {
        self.last.is_none() || self.is_rejected
    }

    /// The content in force.
    pub const fn in_force(&self) -> &T {
        &self.in_force
    }

    /// Whether the last state was found invalid.
    pub const fn is_rejected(&self) -> bool {
        self.is_rejected
    }

    /// The last state is invalid: it is not applied again, and not reported again.
    pub const fn rejected(&mut self) {
        self.is_rejected = true;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_counts_after_two_equal_reads_and_an_invalid_one_is_reported_once() {
        let in_force = |was_rejected| ReloadStep::InForce { was_rejected };
        let mut state = ReloadState::new("old");
        assert_eq!(state.note(Ok("old")), in_force(false));
        assert_eq!(state.note(Ok("hal")), ReloadStep::Wait);
        assert_eq!(state.note(Ok("half")), ReloadStep::Wait);
        assert_eq!(state.note(Ok("half")), ReloadStep::Apply);
        state.rejected();
        assert_eq!(state.note(Ok("half")), ReloadStep::Wait);
        assert_eq!(state.note(Ok("old")), in_force(true));
        assert_eq!(state.note(Ok("old")), in_force(false));
        let missing = || Err("not found".to_owned());
        assert_eq!(state.note(missing()), ReloadStep::Wait);
        assert_eq!(state.note(missing()), ReloadStep::Apply);
        state.rejected();
        assert_eq!(state.note(Ok("new")), ReloadStep::Wait);
        assert_eq!(state.note(Ok("new")), ReloadStep::Apply);
        state.applied("new");
        assert_eq!(state.note(Ok("new")), in_force(false));
    }
}
