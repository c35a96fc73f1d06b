//! Decides what a worker may do with an entry: pure functions over the states of messaging-reliability 7.1.

use std::time::Duration;

use dray_proto::v1::{self, LedgerState, TerminalState};
use dray_types::{Fault, whole_millis};

/// Who claims, when, and for how long.
#[derive(Clone, Copy, Debug)]
pub struct ClaimRequest<'a> {
    /// Name of the worker and of this delivery in it.
    pub owner: &'a str,
    /// Local clock of the claimant, Unix milliseconds.
    pub now_ms: u64,
    /// How long the claim excludes others without a renewal.
    pub lease: Duration,
    /// Real attempts after which no further one is made.
    pub attempts: u32,
    /// The message's count of deliberate restarts.
    pub redrives: u32,
    /// How long a lease that ran out is still respected, because the bus was unavailable and its owner could not renew
    /// it.
    pub grace: Duration,
}

/// The decision about a delivered message.
#[derive(Clone, Debug, PartialEq)]
pub enum ClaimDecision {
    /// Write this entry; the worker whose write succeeds does the work.
    Work(Box<v1::LedgerRecord>),
    /// Another worker has the lease, for this much longer.
    Held(Duration),
    /// All attempts are used up.
    Exhausted,
    /// A visible send was interrupted, and its outcome is unknown.
    Ambiguous,
    /// The work has ended; its event is not published yet.
    Report,
    /// The work has ended and its event was published.
    Finish,
}

/// Decides what the claimant may do, by the entry as it was read.
pub fn decide_claim(
    found: Option<&v1::LedgerRecord>,
    claimant: &ClaimRequest<'_>,
) -> ClaimDecision {
    let Some(record) = found else {
        return ClaimDecision::Work(Box::new(claimed_record(
            v1::LedgerRecord::default(),
            claimant,
            1,
        )));
    };
    // The message of an earlier start; a later one does the work now.
    if claimant.redrives < record.redrives {
        return ClaimDecision::Finish;
    }
    let lease = lease_left(record, claimant.now_ms);
    // Ended entries have no lease to wait for.
    let is_running = matches!(record.state(), LedgerState::Claimed | LedgerState::Sending);
    if is_running && !lease.is_zero() {
        return ClaimDecision::Held(lease);
    }
    // A lease of 0 was given back and needs no grace.
    if is_running && record.lease_until_ms > 0 && !claimant.grace.is_zero() {
        return ClaimDecision::Held(claimant.grace);
    }
    if claimant.redrives > record.redrives && may_restart(record) {
        return ClaimDecision::Work(Box::new(restarted_record(record, claimant)));
    }
    match record.state() {
        LedgerState::Claimed | LedgerState::Unspecified if record.attempts >= claimant.attempts => {
            ClaimDecision::Exhausted
        }
        LedgerState::Claimed | LedgerState::Unspecified => ClaimDecision::Work(Box::new(
            claimed_record(record.clone(), claimant, record.attempts + 1),
        )),
        // The lease has run out in the middle of a send: repeating it could deliver twice (G-4).
        LedgerState::Sending => ClaimDecision::Ambiguous,
        LedgerState::EffectDone | LedgerState::Failed | LedgerState::Unknown => {
            ClaimDecision::Report
        }
        LedgerState::Reported => ClaimDecision::Finish,
    }
}

/// Time left on the lease.
pub fn lease_left(record: &v1::LedgerRecord, now_ms: u64) -> Duration {
    Duration::from_millis(record.lease_until_ms.saturating_sub(now_ms))
}

/// Whether a message with this count of restarts is obsolete: its work ended and its outcome was published, or a later
/// restart replaced it.
pub fn is_over(record: &v1::LedgerRecord, redrives: u32) -> bool {
    if redrives > record.redrives && may_restart(record) {
        return false;
    }
    redrives < record.redrives || record.state() == LedgerState::Reported
}

/// Whether an operator may restart the work: not if it succeeded or may have succeeded.
fn may_restart(record: &v1::LedgerRecord) -> bool {
    match record.state() {
        LedgerState::Claimed | LedgerState::Unspecified => true,
        LedgerState::Failed | LedgerState::Reported => !matches!(
            record.terminal(),
            TerminalState::Done | TerminalState::Unknown
        ),
        LedgerState::EffectDone | LedgerState::Sending | LedgerState::Unknown => false,
    }
}

fn claimed_record(
    record: v1::LedgerRecord,
    claimant: &ClaimRequest<'_>,
    attempts: u32,
) -> v1::LedgerRecord {
    let first_seen_ms = match record.first_seen_ms {
        0 => claimant.now_ms,
        seen => seen,
    };
    v1::LedgerRecord {
        state: LedgerState::Claimed.into(),
        epoch: record.epoch + 1,
        owner: claimant.owner.to_owned(),
        lease_until_ms: lease_end(claimant.now_ms, claimant.lease),
        attempts,
        first_seen_ms,
        redrives: claimant.redrives,
        ..record
    }
}

fn restarted_record(record: &v1::LedgerRecord, claimant: &ClaimRequest<'_>) -> v1::LedgerRecord {
    let reset = v1::LedgerRecord {
        // The epoch continues, so that staging keys of the earlier start are never used again.
        epoch: record.epoch,
        first_seen_ms: record.first_seen_ms,
        ..v1::LedgerRecord::default()
    };
    claimed_record(reset, claimant, 1)
}

/// The entry with the same claim and a lease that begins at `now_ms`.
pub fn renewed_record(record: &v1::LedgerRecord, now_ms: u64, lease: Duration) -> v1::LedgerRecord {
    v1::LedgerRecord {
        lease_until_ms: lease_end(now_ms, lease),
        ..record.clone()
    }
}

/// The entry after its claim was released: the next worker may start immediately. `counted` is whether this was a real
/// attempt.
pub fn released_record(
    record: &v1::LedgerRecord,
    fault: Option<&Fault>,
    now_ms: u64,
    counted: bool,
) -> v1::LedgerRecord {
    let mut record = match fault {
        Some(fault) => failing_record(record, fault, now_ms),
        None => record.clone(),
    };
    record.lease_until_ms = 0;
    if !counted {
        // The claim has counted it already.
        record.attempts = record.attempts.saturating_sub(1);
    }
    record
}

/// The entry after the end of the work; `event` is to be published.
pub fn ended_record(
    record: &v1::LedgerRecord,
    terminal: TerminalState,
    event: v1::RecordedEvent,
    fault: Option<&Fault>,
    now_ms: u64,
) -> v1::LedgerRecord {
    let state = match terminal {
        TerminalState::Done => LedgerState::EffectDone,
        TerminalState::Unknown => LedgerState::Unknown,
        TerminalState::Failed
        | TerminalState::Expired
        | TerminalState::DeadLettered
        // An enum of the wire format has this value for readers of older entries; no caller passes it.
        | TerminalState::Unspecified => LedgerState::Failed,
    };
    let record = match fault {
        Some(fault) => failing_record(record, fault, now_ms),
        None => record.clone(),
    };
    v1::LedgerRecord {
        state: state.into(),
        terminal: terminal.into(),
        result: Some(event),
        lease_until_ms: 0,
        ..record
    }
}

/// The entry after the event of the work was published. It is kept for days, and the ledger is sized for such entries,
/// so it has only what outcomes are queried by: no worker claims it, and its event is not published again.
pub fn reported_record(record: &v1::LedgerRecord) -> v1::LedgerRecord {
    let mut record = record.clone();
    record.state = LedgerState::Reported.into();
    record.owner.clear();
    if let Some(event) = &mut record.result {
        event.subject.clear();
        event.message_id.clear();
    }
    record
}

fn failing_record(record: &v1::LedgerRecord, fault: &Fault, now_ms: u64) -> v1::LedgerRecord {
    v1::LedgerRecord {
        last_error: Some(fault.clone().into()),
        first_error_ms: match record.first_error_ms {
            0 => now_ms,
            first => first,
        },
        ..record.clone()
    }
}

/// Whether `found` is the claim that a worker knows as `known`, with a newer revision. This is so when an earlier
/// renewal was stored although its response was lost. `owner_suffix` is the end of this delivery's owner name.
pub fn is_own_claim(
    known: &v1::LedgerRecord,
    found: &v1::LedgerRecord,
    owner_suffix: &str,
) -> bool {
    known.owner.ends_with(owner_suffix)
        && found.owner == known.owner
        && found.epoch == known.epoch
        && found.state() == known.state()
        // A lease of 0 was released: its delivery has been handed back and may be with another worker.
        && found.lease_until_ms > 0
}

/// Whether the entry has the outcome of the work.
pub fn is_terminal(record: &v1::LedgerRecord) -> bool {
    record.terminal() != TerminalState::Unspecified
}

fn lease_end(now_ms: u64, lease: Duration) -> u64 {
    now_ms.saturating_add(whole_millis(lease))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn claimant(now_ms: u64) -> ClaimRequest<'static> {
        ClaimRequest {
            owner: "me",
            now_ms,
            lease: Duration::from_secs(45),
            attempts: 5,
            redrives: 0,
            grace: Duration::ZERO,
        }
    }

    fn work(decision: ClaimDecision) -> v1::LedgerRecord {
        match decision {
            ClaimDecision::Work(record) => *record,
            other => panic!("{other:?}"),
        }
    }

    fn first() -> v1::LedgerRecord {
        work(decide_claim(None, &claimant(1_000)))
    }

    #[test]
    fn the_first_claim_is_epoch_one_attempt_one() {
        let record = first();
        assert_eq!(
            (
                record.epoch,
                record.attempts,
                record.first_seen_ms,
                record.lease_until_ms
            ),
            (1, 1, 1_000, 46_000)
        );
        assert_eq!(record.owner, "me");
    }

    #[test]
    fn a_live_lease_excludes_others_and_an_expired_one_does_not() {
        let record = first();
        assert_eq!(
            decide_claim(Some(&record), &claimant(6_000)),
            ClaimDecision::Held(Duration::from_secs(40))
        );
        let next = work(decide_claim(Some(&record), &claimant(46_000)));
        assert_eq!(
            (next.epoch, next.attempts, next.first_seen_ms),
            (2, 2, 1_000)
        );
    }

    #[test]
    fn a_lease_that_expired_during_an_outage_is_respected_for_the_grace_period() {
        let restored = ClaimRequest {
            grace: Duration::from_secs(3),
            ..claimant(50_000)
        };
        let record = first();
        assert_eq!(
            decide_claim(Some(&record), &restored),
            ClaimDecision::Held(Duration::from_secs(3))
        );
        let returned = released_record(&record, None, 50_000, false);
        assert!(matches!(
            decide_claim(Some(&returned), &restored),
            ClaimDecision::Work(_)
        ));
    }

    #[test]
    fn the_sixth_attempt_is_refused() {
        let mut record = first();
        for attempt in 2..=5 {
            record = released_record(&record, Some(&Fault::internal()), 2_000, true);
            record = work(decide_claim(Some(&record), &claimant(3_000)));
            assert_eq!(record.attempts, attempt);
        }
        let record = released_record(&record, None, 4_000, true);
        assert_eq!(
            decide_claim(Some(&record), &claimant(5_000)),
            ClaimDecision::Exhausted
        );
    }

    #[test]
    fn waits_do_not_count_as_attempts() {
        let record = released_record(&first(), Some(&Fault::internal()), 2_000, false);
        assert_eq!(record.attempts, 0);
        assert_eq!(record.first_error_ms, 2_000);
        assert_eq!(
            work(decide_claim(Some(&record), &claimant(3_000))).attempts,
            1
        );
    }

    #[test]
    fn finished_work_is_reported_once_and_then_only_acknowledged() {
        for (terminal, state) in [
            (TerminalState::Done, LedgerState::EffectDone),
            (TerminalState::Failed, LedgerState::Failed),
            (TerminalState::Expired, LedgerState::Failed),
            (TerminalState::DeadLettered, LedgerState::Failed),
            (TerminalState::Unknown, LedgerState::Unknown),
        ] {
            let event = v1::RecordedEvent::default();
            let record = ended_record(&first(), terminal, event, None, 2_000);
            assert_eq!(record.state(), state);
            assert_eq!(
                decide_claim(Some(&record), &claimant(3_000)),
                ClaimDecision::Report
            );
            let record = reported_record(&record);
            assert_eq!(
                decide_claim(Some(&record), &claimant(3_000)),
                ClaimDecision::Finish
            );
            assert!(is_terminal(&record));
        }
    }

    #[test]
    fn a_reported_entry_keeps_only_what_its_outcome_is_read_from() {
        let event = v1::RecordedEvent {
            subject: "dray.event.toolcall.v1.resolved.acme".to_owned(),
            schema: "dray.v1.ToolCallResolved/1".to_owned(),
            message_id: "acme/op:toolcall.resolved:0".to_owned(),
            payload: vec![1, 2, 3],
        };
        let ended = ended_record(&first(), TerminalState::Done, event.clone(), None, 2_000);
        assert_eq!(ended.result.as_ref(), Some(&event), "not published yet");
        let reported = reported_record(&ended);
        let kept = v1::RecordedEvent {
            schema: event.schema,
            payload: event.payload,
            ..v1::RecordedEvent::default()
        };
        assert_eq!(reported.result, Some(kept));
        assert_eq!(
            (reported.owner.as_str(), reported.terminal()),
            ("", TerminalState::Done)
        );
        assert_eq!(
            (reported.epoch, reported.attempts, reported.first_seen_ms),
            (ended.epoch, ended.attempts, ended.first_seen_ms)
        );
    }

    #[test]
    fn an_interrupted_send_is_ambiguous() {
        let mut record = first();
        record.state = LedgerState::Sending.into();
        assert!(matches!(
            decide_claim(Some(&record), &claimant(2_000)),
            ClaimDecision::Held(_)
        ));
        assert_eq!(
            decide_claim(Some(&record), &claimant(99_000)),
            ClaimDecision::Ambiguous
        );
    }

    #[test]
    fn only_work_that_did_not_succeed_can_be_restarted() {
        let repeated = ClaimRequest {
            redrives: 1,
            ..claimant(90_000)
        };
        let end = |terminal| {
            reported_record(&ended_record(
                &first(),
                terminal,
                v1::RecordedEvent::default(),
                None,
                0,
            ))
        };
        for terminal in [
            TerminalState::Failed,
            TerminalState::Expired,
            TerminalState::DeadLettered,
        ] {
            let record = work(decide_claim(Some(&end(terminal)), &repeated));
            assert_eq!((record.epoch, record.attempts, record.redrives), (2, 1, 1));
            assert!(!is_terminal(&record) && record.result.is_none());
            assert_eq!(
                decide_claim(Some(&record), &claimant(90_000)),
                ClaimDecision::Finish,
                "the message of the first start is obsolete"
            );
        }
        for terminal in [TerminalState::Done, TerminalState::Unknown] {
            assert_eq!(
                decide_claim(Some(&end(terminal)), &repeated),
                ClaimDecision::Finish
            );
        }
        let live = first();
        let early = ClaimRequest {
            redrives: 1,
            ..claimant(2_000)
        };
        assert!(matches!(
            decide_claim(Some(&live), &early),
            ClaimDecision::Held(_)
        ));
    }

    #[test]
    fn a_restart_that_was_not_claimed_yet_is_not_over() {
        let end = |terminal| {
            let ended = ended_record(&first(), terminal, v1::RecordedEvent::default(), None, 0);
            reported_record(&ended)
        };
        assert!(is_over(&end(TerminalState::DeadLettered), 0));
        assert!(!is_over(&end(TerminalState::DeadLettered), 1));
        assert!(is_over(&end(TerminalState::Done), 1));
        assert!(!is_over(&first(), 0));
        let restarted = v1::LedgerRecord {
            redrives: 2,
            ..first()
        };
        assert!(is_over(&restarted, 1) && !is_over(&restarted, 2));
    }
}
