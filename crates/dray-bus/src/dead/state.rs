//! The state of the work of a dead letter, and the filter of lists of dead letters.

use dray_proto::v1::{self, TerminalState};
use dray_types::{Fault, FaultCode, TenantId};

/// The state of the work that a dead letter is about, by the ledger.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum LetterState {
    /// The work failed and was not restarted, or the restart ended without a letter: the deadline came first, or the
    /// failure was permanent.
    Open,
    /// The work was started again. If it became a dead letter once more, a later letter reports that.
    Restarted,
    /// The work is done.
    Resolved,
    /// The ledger has forgotten the work, three days after its last change; or the original was never work.
    Unknown,
}

/// One line about a dead letter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeadLetterSummary {
    /// The dead letter's sequence in the dead-letter stream: the argument of `show` and `redrive`.
    pub sequence: u64,
    /// Subject of the original.
    pub subject: String,
    /// Operation id of the original, as sent; empty if it had none.
    pub operation: String,
    /// The reason why it was given up.
    pub fault: Fault,
    /// Real attempts: redeliveries that did no work are not counted.
    pub attempts: u32,
    /// How often the server delivered the original.
    pub delivered: u64,
    /// Unix milliseconds of the first failure.
    pub first_error_ms: u64,
    /// Unix milliseconds at which it was given up.
    pub last_error_ms: u64,
    /// Whether the letter contains the complete original.
    pub complete: bool,
    /// The present state of the work.
    pub state: LetterState,
}

impl LetterState {
    /// Every state, in the order in which the command line lists them.
    pub const ALL_STATES: [Self; 4] = [Self::Open, Self::Restarted, Self::Resolved, Self::Unknown];

    /// The name used on the command line and in JSON.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Open => "open",
            Self::Restarted => "restarted",
            Self::Resolved => "resolved",
            Self::Unknown => "unknown",
        }
    }

    /// The state of a letter about the `redrives`-th restart (0: the first start), from the ledger entry of its work.
    pub(super) fn of(redrives: u32, record: Option<&v1::LedgerRecord>) -> Self {
        match record {
            None => Self::Unknown,
            // This comes before the count, which is also higher after a later restart that succeeded.
            Some(record) if record.terminal() == TerminalState::Done => Self::Resolved,
            // A restart that ends like this writes no letter, so this one is the last that an operator sees.
            Some(record)
                if matches!(
                    record.terminal(),
                    TerminalState::Failed | TerminalState::Expired
                ) =>
            {
                Self::Open
            }
            Some(record) if record.redrives > redrives => Self::Restarted,
            Some(_) => Self::Open,
        }
    }
}

/// A selection of letters. The default selects all of them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LetterFilter {
    /// Only letters of this tenant.
    pub tenant: Option<TenantId>,
    /// Only letters of this area of work, for example `toolcall`.
    pub area: Option<String>,
    /// Only letters that failed with this code.
    pub code: Option<FaultCode>,
    /// Only letters that failed with this detail, for example `no_responder`.
    pub detail: Option<String>,
    /// Only letters in one of these states; empty for every state.
    pub states: Vec<LetterState>,
    /// Only letters that were given up at or after this instant, in Unix milliseconds.
    pub from_ms: Option<u64>,
    /// Only letters that were given up before this instant, in Unix milliseconds.
    pub until_ms: Option<u64>,
}

impl LetterFilter {
    /// The narrowest subject filter that covers all selected letters.
    pub(super) fn subject(&self) -> String {
        let area = self
            .area
            .as_deref()
            // An area with wildcards or dots would match other subjects, so it gets no subject filter. `admits` then
            // compares the text and selects no letter.
            .filter(|area| dray_types::id::is_subject_token(area))
            .unwrap_or("*");
        let tenant = self.tenant.as_ref().map(TenantId::token);
        format!("dray.dead.{area}.v1.*.{}", tenant.as_deref().unwrap_or("*"))
    }

    /// Whether the letter is selected by everything but its state, which costs a request to the ledger.
    pub(super) fn admits(&self, letter: &DeadLetterSummary) -> bool {
        let matches_area = |area: &String| {
            let work = format!("dray.work.{area}.");
            letter.subject.starts_with(&work)
        };
        self.area.as_ref().is_none_or(matches_area)
            && self.code.is_none_or(|code| letter.fault.code == code)
            && self
                .detail
                .as_ref()
                .is_none_or(|detail| letter.fault.detail == *detail)
            && self.from_ms.is_none_or(|from| letter.last_error_ms >= from)
            && self
                .until_ms
                .is_none_or(|until| letter.last_error_ms < until)
    }

    /// Whether letters in this state are selected.
    pub(super) fn admits_state(&self, state: LetterState) -> bool {
        self.states.is_empty() || self.states.contains(&state)
    }
}

#[cfg(test)]
mod tests {
    use dray_types::Fault;

    use super::*;

    fn record(terminal: TerminalState, redrives: u32) -> v1::LedgerRecord {
        v1::LedgerRecord {
            terminal: terminal.into(),
            redrives,
            ..v1::LedgerRecord::default()
        }
    }

    #[test]
    fn a_letter_is_open_until_its_work_was_started_again_or_done() {
        for (redrives, found, expected) in [
            (0, None, LetterState::Unknown),
            (
                0,
                Some(record(TerminalState::DeadLettered, 0)),
                LetterState::Open,
            ),
            (
                0,
                Some(record(TerminalState::Unspecified, 1)),
                LetterState::Restarted,
            ),
            (
                0,
                Some(record(TerminalState::DeadLettered, 1)),
                LetterState::Restarted,
            ),
            (
                1,
                Some(record(TerminalState::DeadLettered, 1)),
                LetterState::Open,
            ),
            // The restart was parked until its deadline, or failed permanently: it has no letter of its own.
            (0, Some(record(TerminalState::Failed, 1)), LetterState::Open),
            (
                0,
                Some(record(TerminalState::Expired, 1)),
                LetterState::Open,
            ),
            (
                0,
                Some(record(TerminalState::Unspecified, 2)),
                LetterState::Restarted,
            ),
            (
                0,
                Some(record(TerminalState::Done, 1)),
                LetterState::Resolved,
            ),
        ] {
            assert_eq!(
                LetterState::of(redrives, found.as_ref()),
                expected,
                "{redrives} {found:?}"
            );
        }
    }

    #[test]
    fn a_letter_has_to_match_every_field_of_a_filter() {
        let letter = DeadLetterSummary {
            sequence: 1,
            subject: "dray.work.toolcall.v1.resolve.acme".to_owned(),
            operation: "op".to_owned(),
            fault: Fault::new(FaultCode::Unavailable, "later").detail("no_responder"),
            attempts: 5,
            delivered: 5,
            first_error_ms: 10,
            last_error_ms: 20,
            complete: true,
            state: LetterState::Open,
        };
        let admits = |change: fn(&mut LetterFilter)| {
            let mut filter = LetterFilter::default();
            change(&mut filter);
            filter.admits(&letter)
        };
        assert!(admits(|_| {}));
        assert!(admits(|filter| filter.area = Some("toolcall".to_owned())));
        assert!(!admits(|filter| filter.area = Some("tool".to_owned())));
        assert!(admits(|filter| filter.code = Some(FaultCode::Unavailable)));
        assert!(!admits(|filter| filter.code = Some(FaultCode::Denied)));
        assert!(!admits(|filter| filter.detail = Some("panic".to_owned())));
        assert!(admits(|filter| filter.from_ms = Some(20)));
        assert!(!admits(|filter| filter.from_ms = Some(21)));
        assert!(!admits(|filter| filter.until_ms = Some(20)));
    }

    #[test]
    fn the_subject_filter_contains_no_wildcards_of_the_caller() {
        let filter = LetterFilter {
            tenant: Some(TenantId::new("acme").unwrap()),
            area: Some("toolcall".to_owned()),
            ..LetterFilter::default()
        };
        assert_eq!(filter.subject(), "dray.dead.toolcall.v1.*.acme");
        assert_eq!(LetterFilter::default().subject(), "dray.dead.*.v1.*.*");
        let hostile = LetterFilter {
            area: Some("x.>".to_owned()),
            ..LetterFilter::default()
        };
        assert_eq!(hostile.subject(), "dray.dead.*.v1.*.*");
    }
}
