//! The charges of one record that are not recorded yet.

use std::sync::{Mutex, MutexGuard, PoisonError};

use dray_agent::budget::BudgetUse;

/// A record to which calls of this process add charges.
#[derive(Debug, Default)]
pub(super) struct OpenRecord {
    charges: Mutex<Charges>,
    /// Held by the one call that writes the record.
    pub(super) writer: tokio::sync::Mutex<()>,
}

#[derive(Debug, Default)]
struct Charges {
    /// Not written.
    waiting: Change,
    /// Written, and the outcome is not known yet.
    written: Option<WrittenChange>,
    /// Number of charges that were added.
    added: u64,
    /// Number of those for which a write has ended.
    attempted: u64,
    /// Number of those that are recorded.
    recorded: u64,
    /// The usage after the last write.
    used: BudgetUse,
}

/// A sum of charges, and of earlier charges that they replace.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Change {
    added: BudgetUse,
    removed: BudgetUse,
}

#[derive(Debug)]
struct WrittenChange {
    change: Change,
    /// Revision of the record that it replaces; 0 for a new one.
    replaced: u64,
    /// The usage with the change.
    used: BudgetUse,
    /// Number of charges that are recorded with it.
    number: u64,
}

impl Change {
    fn plus(self, more: Self) -> Self {
        Self {
            added: self.added.plus(more.added),
            removed: self.removed.plus(more.removed),
        }
    }

    /// What is removed was added before, so the sum comes first: a subtraction must not stop at zero too early.
    const fn apply(self, used: BudgetUse) -> BudgetUse {
        used.plus(self.added).minus(self.removed)
    }
}

impl OpenRecord {
    fn charges(&self) -> MutexGuard<'_, Charges> {
        self.charges.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a charge, and returns its number, from 1 on.
    pub(super) fn add(&self, before: BudgetUse, after: BudgetUse) -> u64 {
        let mut charges = self.charges();
        let change = Change {
            added: after,
            removed: before,
        };
        charges.waiting = charges.waiting.plus(change);
        charges.added += 1;
        charges.added
    }

    /// The usage with all charges, recorded or not.
    pub(super) fn add_to(&self, used: BudgetUse) -> BudgetUse {
        let charges = self.charges();
        let written = charges.written.as_ref().map(|written| written.change);
        let change = written.unwrap_or_default().plus(charges.waiting);
        change.apply(used)
    }

    /// The outcome of the last write, if it contained this charge: the usage, `None` within for a failure.
    #[expect(
        clippy::option_option,
        reason = "no outcome and a failure are different"
    )]
    pub(super) fn outcome(&self, number: u64) -> Option<Option<BudgetUse>> {
        let charges = self.charges();
        if number <= charges.recorded {
            return Some(Some(charges.used));
        }
        (number <= charges.attempted).then_some(None)
    }

    /// Begins to write all charges over a record of this revision and usage. Returns the usage to write.
    pub(super) fn begin_write(&self, revision: u64, used: BudgetUse) -> BudgetUse {
        let mut charges = self.charges();
        if let Some(written) = charges.written.take() {
            // The response to the last write was lost: the record shows whether it was applied.
            if revision != written.replaced && used == written.used {
                charges.recorded = written.number;
            } else {
                charges.waiting = charges.waiting.plus(written.change);
            }
        }
        let change = std::mem::take(&mut charges.waiting);
        let next = change.apply(used);
        charges.written = Some(WrittenChange {
            change,
            replaced: revision,
            used: next,
            number: charges.added,
        });
        next
    }

    /// The write was applied.
    pub(super) fn note_written(&self, used: BudgetUse) {
        let mut charges = self.charges();
        if let Some(written) = charges.written.take() {
            charges.recorded = written.number;
            charges.attempted = charges.attempted.max(written.number);
        }
        charges.used = used;
    }

    /// The write was not applied: another replica has changed the record.
    pub(super) fn note_refused(&self) {
        let mut charges = self.charges();
        if let Some(written) = charges.written.take() {
            charges.waiting = charges.waiting.plus(written.change);
        }
    }

    /// The bus fails: calls that wait do not try again, and their charges stay.
    pub(super) fn note_failure(&self) {
        let mut charges = self.charges();
        charges.attempted = charges.added;
    }

    /// Whether nothing waits.
    pub(super) fn is_recorded(&self) -> bool {
        let charges = self.charges();
        charges.waiting == Change::default() && charges.written.is_none()
    }
}
