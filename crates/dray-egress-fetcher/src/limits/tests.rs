//! Tests of slots: which hop waits for which, and that every slot is returned.

use std::net::IpAddr;
use std::pin::Pin;

use futures_util::FutureExt as _;

use super::*;

fn sizes() -> AdmissionLimits {
    AdmissionLimits {
        global: 8,
        per_tenant: usize::MAX,
        per_host: 2,
        per_address: 1,
        shares_targets: false,
        per_app: 3,
        queue: 3,
    }
}

type PendingSlot = Pin<Box<dyn Future<Output = Result<FetchSlot, QueueFull>>>>;

/// Asks for a slot; the second value is the slot, or nothing while it waits.
fn ask(
    limits: &FetchAdmission,
    tenant: &str,
    app: &str,
    host: &str,
) -> (PendingSlot, Option<FetchSlot>) {
    let (limits, turn) = (limits.clone(), limits.next_turn());
    let request = request(turn, tenant, app, host);
    let mut asking: PendingSlot = Box::pin(async move { limits.slot(request).await });
    let now = asking.as_mut().now_or_never().map(Result::unwrap);
    (asking, now)
}

fn request(turn: u64, tenant: &str, app: &str, host: &str) -> SlotRequest {
    SlotRequest {
        tenant: tenant.to_owned(),
        app: app.to_owned(),
        host: host.to_owned(),
        turn,
        continues: false,
    }
}

fn is_granted(waiting: &mut PendingSlot) -> Option<FetchSlot> {
    waiting.as_mut().now_or_never().map(Result::unwrap)
}

#[tokio::test]
async fn section_15_each_host_and_each_app_has_its_own_limit() {
    let limits = FetchAdmission::new(sizes());
    let (_, first) = ask(&limits, "t", "a", "h");
    let (_, _second) = ask(&limits, "t", "a", "h");
    let (mut third, none) = ask(&limits, "t", "a", "h");
    assert!(none.is_none(), "the host is full");
    let (_, other) = ask(&limits, "t", "a", "i");
    assert!(other.is_some());
    let (_, none) = ask(&limits, "t", "a", "j");
    assert!(none.is_none(), "the app is full");
    drop(first);
    assert!(is_granted(&mut third).is_some());
}

#[tokio::test]
async fn section_15_a_hop_that_waits_for_its_host_holds_no_slot_of_the_process() {
    let limits = FetchAdmission::new(AdmissionLimits {
        per_host: 1,
        ..sizes()
    });
    let (_, _held) = ask(&limits, "slow", "a", "h");
    let mut queue: Vec<_> = (0..3).map(|_| ask(&limits, "slow", "a", "h").0).collect();
    assert_eq!(limits.waiting(), 3);
    for host in ["i", "j", "k"] {
        assert!(ask(&limits, "quick", "a", host).1.is_some(), "{host}");
    }
    queue.clear();
    assert_eq!(limits.waiting(), 0, "a hop that gives up leaves the queue");
}

#[tokio::test]
async fn section_15_a_tenant_never_occupies_the_last_free_slot() {
    let limits = FetchAdmission::new(sizes());
    let take = |tenant: &str| {
        (0..8)
            .map_while(|index| ask(&limits, tenant, &format!("a{index}"), &index.to_string()).1)
            .collect::<Vec<_>>()
    };
    let (first, second) = (take("a"), take("b"));
    assert_eq!((first.len(), second.len()), (4, 2));
    assert!(ask(&limits, "c", "a", "z").1.is_some());
}

#[tokio::test]
async fn section_15_the_tenant_then_the_app_then_the_host_that_runs_least_is_next() {
    let limits = FetchAdmission::new(AdmissionLimits {
        global: 100,
        per_host: 3,
        per_app: 10,
        queue: 10,
        ..sizes()
    });
    let (_, held) = ask(&limits, "a", "x", "h");
    let (_, _more) = ask(&limits, "a", "x", "h");
    let (_, _most) = ask(&limits, "a", "y", "h");
    let mut same_app = ask(&limits, "a", "x", "h").0;
    let mut same_tenant = ask(&limits, "a", "z", "h").0;
    let mut other = ask(&limits, "b", "x", "h").0;
    drop(held);
    let second = is_granted(&mut other);
    assert!(second.is_some(), "another tenant first");
    assert!(is_granted(&mut same_tenant).is_none());
    drop(second);
    let third = is_granted(&mut same_tenant);
    assert!(third.is_some(), "then another app");
    assert!(is_granted(&mut same_app).is_none());
    drop(third);
    assert!(is_granted(&mut same_app).is_some());
}

#[tokio::test]
async fn section_15_equal_tenants_alternate_with_any_number_of_waiters() {
    let limits = FetchAdmission::new(AdmissionLimits {
        global: 1,
        queue: 10,
        ..sizes()
    });
    let (_, held) = ask(&limits, "a", "x", "h");
    let mut many: Vec<_> = (0..4).map(|_| ask(&limits, "a", "x", "h").0).collect();
    let mut one = ask(&limits, "b", "x", "h").0;
    drop(held);
    let granted = is_granted(&mut one);
    assert!(granted.is_some(), "one that waits alone is next");
    drop(granted);
    assert!(is_granted(&mut many[0]).is_some());
}

#[tokio::test]
async fn section_15_the_queue_accepts_as_many_as_configured_and_refuses_the_next() {
    let limits = FetchAdmission::new(sizes());
    let (_, _one) = ask(&limits, "t", "a", "h");
    let (_, _two) = ask(&limits, "t", "a", "h");
    let queue: Vec<_> = (0..3).map(|_| ask(&limits, "t", "a", "h").0).collect();
    assert_eq!(limits.waiting(), 3);
    let refused = limits.slot(request(limits.next_turn(), "t", "a", "h"));
    assert!(matches!(refused.now_or_never(), Some(Err(QueueFull))));
    assert_eq!(limits.waiting(), 3);
    drop(queue);
    assert!(ask(&limits, "t", "a", "h").1.is_none());
}

#[tokio::test]
async fn section_15_in_a_full_queue_a_tenant_that_waits_less_displaces_the_newest_of_the_one_that_waits_most()
 {
    let limits = FetchAdmission::new(sizes());
    let (_, _one) = ask(&limits, "t", "a", "h");
    let (_, _two) = ask(&limits, "t", "a", "h");
    let mut queue: Vec<_> = (0..3).map(|_| ask(&limits, "t", "a", "h").0).collect();
    let (mut other, none) = ask(&limits, "u", "a", "h");
    assert!(none.is_none());
    assert_eq!(limits.waiting(), 3);
    let newest = queue.pop().unwrap().now_or_never();
    assert!(matches!(newest, Some(Err(QueueFull))));
    assert!(
        queue
            .iter_mut()
            .all(|waiting| is_granted(waiting).is_none())
    );
    assert!(is_granted(&mut other).is_none());
    let next = limits.slot(request(limits.next_turn(), "u", "a", "h"));
    assert!(
        matches!(next.now_or_never(), Some(Err(QueueFull))),
        "two against one is fair already"
    );
}

#[tokio::test]
async fn section_15_a_continuing_fetch_waits_even_when_the_queue_is_full() {
    let limits = FetchAdmission::new(sizes());
    let (_, _one) = ask(&limits, "t", "a", "h");
    let (_, held) = ask(&limits, "t", "a", "h");
    let turn = limits.next_turn();
    let _queue: Vec<_> = (0..3).map(|_| ask(&limits, "t", "a", "h").0).collect();
    let continues = SlotRequest {
        continues: true,
        ..request(turn, "t", "a", "h")
    };
    let mut waiting = Box::pin(limits.slot(continues));
    assert!(waiting.as_mut().now_or_never().is_none());
    drop(held);
    assert!(
        matches!(waiting.now_or_never(), Some(Ok(_))),
        "it arrived before the others"
    );
}

#[tokio::test]
async fn section_15_where_tenants_share_targets_none_of_them_holds_all_of_one() {
    let limits = FetchAdmission::new(AdmissionLimits {
        global: 100,
        per_host: 8,
        per_address: 8,
        shares_targets: true,
        per_app: 100,
        ..sizes()
    });
    let mut held = Vec::new();
    let mut take_all = |tenant: &str, host: &str| {
        let before = held.len();
        while let (_, Some(slot)) = ask(&limits, tenant, "a", host) {
            held.push(slot);
        }
        held.len() - before
    };
    assert_eq!([take_all("t", "h"), take_all("t", "i")], [4, 4]);
    // The next tenants find room, each as long as it holds fewer than are free.
    assert_eq!([take_all("u", "h"), take_all("v", "h")], [2, 1]);
    let address = IpAddr::from([1, 1, 1, 1]);
    let mut connections = Vec::new();
    let mut connect_all = |tenant: &str| {
        let before = connections.len();
        while let Some(slot) = limits.try_address(address, tenant) {
            connections.push(slot);
        }
        connections.len() - before
    };
    assert_eq!([connect_all("t"), connect_all("u")], [4, 2]);
    drop((held, connections));
    assert!(limits.is_empty());
}

#[tokio::test]
async fn section_15_a_hop_that_waits_for_its_address_holds_no_slot_either() {
    let limits = FetchAdmission::new(AdmissionLimits {
        global: 2,
        ..sizes()
    });
    let address = IpAddr::from([1, 1, 1, 1]);
    let address_slot = limits.try_address(address, "t").unwrap();
    assert!(limits.try_address(address, "t").is_none());
    let turn = limits.next_turn();
    let mut waiting = Box::pin(limits.slot_with_address(request(turn, "t", "a", "h"), address));
    assert!(waiting.as_mut().now_or_never().is_none());
    let (_, other) = ask(&limits, "t", "a", "h");
    assert!(other.is_some());
    drop(other);
    drop(address_slot);
    let granted = waiting.now_or_never();
    assert!(matches!(granted, Some(Ok(_))));
    assert!(limits.try_address(address, "t").is_none());
    drop(granted);
    assert!(limits.try_address(address, "t").is_some());
}

#[tokio::test]
async fn keys_without_users_are_removed() {
    let limits = FetchAdmission::new(sizes());
    let permits = [
        ask(&limits, "t", "a", "h").1.unwrap(),
        ask(&limits, "t", "a", "h").1.unwrap(),
    ];
    let (waiting, none) = ask(&limits, "t", "a", "h");
    assert!(none.is_none());
    // The address is granted before the waiter is polled again, and then given up.
    drop(permits);
    drop(waiting);
    drop(limits.try_address(IpAddr::from([1, 1, 1, 1]), "t"));
    assert!(limits.is_empty());
}

#[test]
fn section_15_concurrent_commands_are_bounded() {
    let limits = FetchAdmission::new(sizes());
    let permits: Vec<_> = (0..22).map(|_| limits.enter().unwrap()).collect();
    assert!(limits.enter().is_err());
    drop(permits);
    assert!(limits.enter().is_ok());
}
