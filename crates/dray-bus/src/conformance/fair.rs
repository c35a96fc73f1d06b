//! Work of several tenants in one queue.

use std::time::Duration;

use dray_proto::v1::{LedgerState, TerminalState};
use dray_types::TenantId;

use super::at_work::{at_work, ledger_record, nothing_pending, wait_until_reported};
use super::{BusFixture, on_both, tool_call, wait_soon};
use crate::Meta;

on_both!(
    one_tenants_slow_backlog_does_not_delay_the_work_of_another,
    work_returned_in_favour_of_other_tenants_is_done_once,
    new_work_of_an_idle_tenant_starts_while_all_slots_of_another_are_taken,
);

/// Work of one tenant that waits in the queue. More than one pull, the slots and the held messages of a tenant
/// together.
const BACKLOG_MESSAGES: usize = 200;

async fn publish(fixture: &BusFixture, tenant: &str, operation: &str, tool: &str) -> Meta {
    let meta = Meta {
        tenant: TenantId::new(tenant).unwrap(),
        ..fixture.meta(operation)
    };
    fixture
        .bus
        .publish_work(&meta, &tool_call(tool))
        .await
        .unwrap();
    meta
}

async fn publish_backlog(fixture: &BusFixture) -> Vec<Meta> {
    let publishes = (0..BACKLOG_MESSAGES).map(|number| async move {
        publish(fixture, "greedy", &format!("slow-{number}"), "slow").await
    });
    futures_util::future::join_all(publishes).await
}

async fn one_tenants_slow_backlog_does_not_delay_the_work_of_another(fixture: BusFixture) {
    fixture.provision(Duration::from_secs(30)).await;
    let backlog = publish_backlog(&fixture).await;
    let last = publish(&fixture, "modest", "quick", "works").await;
    let (script, worker) = at_work(&fixture).await;
    let record = wait_soon(
        "the work of the other tenant",
        wait_until_reported(&fixture, &last),
    )
    .await;
    assert_eq!(record.terminal(), TerminalState::Done);
    for meta in &backlog {
        let state = ledger_record(&fixture, meta)
            .await
            .map(|record| record.state());
        assert!(
            matches!(state, None | Some(LedgerState::Claimed)),
            "{state:?} before the release"
        );
    }
    script.released.cancel();
    worker.stop().await;
}

async fn work_returned_in_favour_of_other_tenants_is_done_once(fixture: BusFixture) {
    fixture.provision(Duration::from_secs(30)).await;
    let backlog = publish_backlog(&fixture).await;
    let last = publish(&fixture, "modest", "quick", "works").await;
    let (script, worker) = at_work(&fixture).await;
    wait_until_reported(&fixture, &last).await;
    script.released.cancel();
    for meta in &backlog {
        let record = wait_until_reported(&fixture, meta).await;
        assert_eq!(
            (record.terminal(), record.attempts, record.epoch),
            (TerminalState::Done, 1, 1)
        );
        assert_eq!(script.runs(meta.operation.as_str()), 1);
    }
    nothing_pending(&fixture).await;
    worker.stop().await;
}

async fn new_work_of_an_idle_tenant_starts_while_all_slots_of_another_are_taken(
    fixture: BusFixture,
) {
    let (script, worker) = at_work(&fixture).await;
    publish_backlog(&fixture).await;
    wait_soon("the backlog to begin", script.started.cancelled()).await;
    for number in 0..3 {
        let tenant = format!("late-{number}");
        let meta = publish(&fixture, &tenant, "quick", "works").await;
        wait_soon("late work", wait_until_reported(&fixture, &meta)).await;
    }
    script.released.cancel();
    worker.stop().await;
}
