//! Requests with several approvals of one round, during which the bus fails.

use super::*;
use crate::records::{RecordFault, RecordKind};

const CALLER: &str = "client:a";

/// Two calls of one round that wait for their approvals.
async fn open_approvals(fixture: &RecordFixture) -> Vec<PausedApproval> {
    let approvals: Vec<_> = ["m1", "m2"]
        .map(|id| NewApproval::new("own", &Sha256Digest::of(id.as_bytes())))
        .into();
    let store = &fixture.approvals;
    let opened = store.open(CALLER, "token", &approvals, fixture.now_ms + 60_000);
    opened.await.unwrap();
    approvals
        .into_iter()
        .zip(["m1", "m2"])
        .map(|(approval, id)| PausedApproval {
            approval,
            waiting: WaitingCall::approval(call(id, "own")),
        })
        .collect()
}

/// Handles a request that approves both calls; returns the number of calls that are made.
async fn approve(
    fixture: &RecordFixture,
    paused: &[PausedApproval],
) -> Result<usize, Option<RequestFailure>> {
    let mut decided = Vec::new();
    for one in paused {
        let record = fixture.approvals.waiting(CALLER, &one.approval).await;
        decided.push(DecidedCall {
            paused: one.clone(),
            record: record.map_err(Some)?,
            decision: ApprovalDecision::Approved,
            answers: None,
        });
    }
    let settlement = Settlement {
        approvals: &fixture.approvals,
        principal: CALLER,
    };
    let due = settlement.record(decided, &mut []).await;
    due.map(|due| due.len()).map_err(|_| None)
}

#[tokio::test]
async fn a_request_during_which_the_bus_failed_makes_all_calls_once_when_it_is_repeated() {
    let fixture = RecordFixture::start().await;
    let faults = fixture.records.faults();
    for successes in 0..4 {
        for fault in [RecordFault::LoseRequest, RecordFault::LoseResponse] {
            let paused = open_approvals(&fixture).await;
            faults.add(RecordKind::Approval, successes, RecordFault::None);
            faults.add(RecordKind::Approval, 1, fault.clone());
            let first = approve(&fixture, &paused).await;
            faults.clear();
            let made = match first {
                Ok(made) => Ok(made),
                Err(_) => approve(&fixture, &paused).await,
            };
            assert!(matches!(made, Ok(2)), "{successes} {fault:?}: {made:?}");
            let again = approve(&fixture, &paused).await;
            let Err(Some(failure)) = again else {
                panic!("{successes} {fault:?}: {again:?}");
            };
            assert_eq!(failure.code.as_deref(), Some(USED_CODE));
        }
    }
}

#[tokio::test]
async fn approvals_of_a_request_that_could_not_use_all_of_them_can_be_used_again() {
    let fixture = RecordFixture::start().await;
    let faults = fixture.records.faults();
    let paused = open_approvals(&fixture).await;
    // Both decisions and one use are recorded.
    faults.add(RecordKind::Approval, 3, RecordFault::None);
    faults.add(RecordKind::Approval, 3, RecordFault::LoseRequest);
    let first = approve(&fixture, &paused).await;
    assert!(matches!(first, Err(None)), "{first:?}");
    let repeated = approve(&fixture, &paused).await;
    assert!(matches!(repeated, Ok(2)), "{repeated:?}");
}
