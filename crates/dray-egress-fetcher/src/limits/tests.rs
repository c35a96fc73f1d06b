//! Places: who waits for whom, and that every place comes back.

use futures_util::FutureExt as _;

use super::*;

fn sizes() -> Sizes {
    Sizes {
        global: 3,
        per_host: 2,
        per_address: 1,
        per_app: 2,
        queue: 2,
    }
}

#[tokio::test]
async fn section_15_each_host_has_its_own_places_within_those_of_the_process() {
    let limits = Limits::new(sizes());
    let first = limits.hop("a").await.unwrap();
    let _second = limits.hop("a").await.unwrap();
    assert!(limits.hop("a").now_or_never().is_none(), "the host is full");
    let _third = limits.hop("b").await.unwrap();
    assert!(
        limits.hop("c").now_or_never().is_none(),
        "the process is full"
    );
    drop(first);
    assert!(limits.hop("a").now_or_never().is_some());
}

#[tokio::test]
async fn section_15_waiting_for_a_host_holds_no_place_of_the_process() {
    let limits = Limits::new(sizes());
    let held = [
        limits.hop("a").await.unwrap(),
        limits.hop("a").await.unwrap(),
    ];
    let mut waiting = Box::pin(limits.hop("a"));
    assert!(waiting.as_mut().now_or_never().is_none());
    assert!(limits.hop("b").now_or_never().is_some());
    drop(held);
    assert!(waiting.await.is_ok());
}

#[tokio::test]
async fn section_15_a_full_queue_refuses_at_once() {
    let limits = Limits::new(sizes());
    let _held = [
        limits.app("x").await.unwrap(),
        limits.app("x").await.unwrap(),
    ];
    let mut queue: Vec<_> = (0..2).map(|_| Box::pin(limits.app("x"))).collect();
    for waiting in &mut queue {
        assert!(waiting.as_mut().now_or_never().is_none());
    }
    assert_eq!(limits.waiting(), 2);
    assert!(matches!(
        limits.app("x").now_or_never(),
        Some(Err(QueueFull))
    ));
    assert_eq!(limits.waiting(), 2);
    queue.clear();
    assert_eq!(limits.waiting(), 0, "who gives up leaves the queue");
    assert!(limits.app("x").now_or_never().is_none());
}

#[tokio::test]
async fn section_15_addresses_have_places_too() {
    let limits = Limits::new(sizes());
    let address = IpAddr::from([1, 1, 1, 1]);
    let held = limits.address(address).await;
    assert!(limits.address(address).now_or_never().is_none());
    drop(held);
    assert!(limits.address(address).now_or_never().is_some());
}

#[tokio::test]
async fn keys_that_nobody_uses_are_forgotten() {
    let limits = Limits::new(sizes());
    let held = [
        limits.app("x").await.unwrap(),
        limits.app("x").await.unwrap(),
    ];
    let mut waiting = Box::pin(limits.app("x"));
    assert!(waiting.as_mut().now_or_never().is_none());
    drop(held);
    drop(waiting);
    drop(limits.hop("a").await.unwrap());
    assert!(limits.apps.slots.lock().unwrap().is_empty());
    assert!(limits.hosts.slots.lock().unwrap().is_empty());
    assert!(limits.global.slots.lock().unwrap().is_empty());
}
