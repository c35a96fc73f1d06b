//! Durable pull consumers.

use std::time::Duration;

use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::{World, on_both, outgoing, small};
use crate::backend::{Ack, Pulled, Puller};
use crate::topology::{ADVISORY, ConsumerSpec, SWEEPER_ADVISORY, WORK};

on_both!(
    a_message_comes_again_when_nobody_acknowledges_it,
    a_message_given_back_comes_again_after_its_delay,
    a_heartbeat_keeps_a_message_with_its_worker,
    what_is_acknowledged_or_terminated_never_comes_again,
    no_more_is_handed_out_than_may_be_pending,
    a_message_that_ran_out_of_deliveries_is_seen_no_more_and_told_once,
    workers_of_one_durable_share_its_messages,
    a_pull_ends_with_the_first_message_or_its_time,
    a_stop_ends_a_pull,
    a_filter_keeps_other_areas_out,
    an_absent_durable_is_an_error,
);

const WAIT: Duration = Duration::from_secs(5);
const SHORT: Duration = Duration::from_millis(100);
const ACK_WAIT: Duration = Duration::from_millis(500);

async fn provision(world: &World, change: impl Fn(&mut ConsumerSpec)) -> Puller {
    let topology = small(|topology| {
        for consumer in &mut topology.consumers {
            consumer.ack_wait = ACK_WAIT;
            if consumer.durable == "file-resolver" {
                change(consumer);
            }
        }
    });
    assert_eq!(world.bus.apply_topology(&topology).await.unwrap(), []);
    puller(world).await
}

async fn puller(world: &World) -> Puller {
    world.backend().puller(WORK, "file-resolver").await.unwrap()
}

async fn publish(world: &World, count: usize) {
    for number in 0..count {
        let message = outgoing(
            "dray.work.toolcall.v1.resolve.acme",
            &number.to_string(),
            number.to_string(),
        );
        world.backend().store(&message, WAIT).await.unwrap();
    }
}

async fn fetch(puller: &mut Puller, count: usize, wait: Duration) -> Vec<Pulled> {
    puller
        .fetch(count, wait, &CancellationToken::new())
        .await
        .unwrap()
}

async fn one(puller: &mut Puller) -> Pulled {
    fetch(puller, 1, WAIT).await.pop().expect("a message")
}

async fn a_message_comes_again_when_nobody_acknowledges_it(world: World) {
    let mut puller = provision(&world, |_| {}).await;
    publish(&world, 1).await;
    let first = one(&mut puller).await;
    let begun = Instant::now();
    let second = one(&mut puller).await;
    assert_eq!((first.delivered, second.delivered), (1, 2));
    assert_eq!(first.message.sequence, second.message.sequence);
    assert!(begun.elapsed() > ACK_WAIT / 2);
    assert_eq!(puller.ack_wait(), ACK_WAIT);
}

async fn a_message_given_back_comes_again_after_its_delay(world: World) {
    let mut puller = provision(&world, |consumer| consumer.ack_wait = WAIT * 4).await;
    publish(&world, 1).await;
    one(&mut puller)
        .await
        .acker
        .send(Ack::Again(Duration::ZERO))
        .await
        .unwrap();
    let second = one(&mut puller).await;
    let begun = Instant::now();
    second.acker.send(Ack::Again(SHORT * 3)).await.unwrap();
    let third = one(&mut puller).await;
    assert_eq!(third.delivered, 3);
    assert!(begun.elapsed() >= SHORT * 2);
}

async fn a_heartbeat_keeps_a_message_with_its_worker(world: World) {
    let mut puller = provision(&world, |_| {}).await;
    publish(&world, 1).await;
    let held = one(&mut puller).await;
    let until = Instant::now() + ACK_WAIT * 3;
    while Instant::now() < until {
        held.acker.send(Ack::Progress).await.unwrap();
        assert!(fetch(&mut puller, 1, SHORT).await.is_empty());
    }
    assert_eq!(
        one(&mut puller).await.delivered,
        2,
        "and without it comes again"
    );
}

async fn what_is_acknowledged_or_terminated_never_comes_again(world: World) {
    let mut puller = provision(&world, |_| {}).await;
    publish(&world, 2).await;
    let first = one(&mut puller).await;
    let second = one(&mut puller).await;
    first.acker.confirm(Ack::Done, WAIT).await.unwrap();
    second.acker.confirm(Ack::Term, WAIT).await.unwrap();
    first.acker.confirm(Ack::Done, WAIT).await.unwrap();
    assert!(fetch(&mut puller, 2, ACK_WAIT * 2).await.is_empty());
    let state = world
        .backend()
        .consumer(WORK, "file-resolver")
        .await
        .unwrap()
        .unwrap();
    assert_eq!(
        (state.pending, state.ack_pending, state.ack_floor),
        (0, 0, 2)
    );
    let kept = world.backend().stream(WORK).await.unwrap().unwrap();
    assert_eq!(kept.messages, 2, "the stream keeps what was acknowledged");
}

async fn no_more_is_handed_out_than_may_be_pending(world: World) {
    let mut puller = provision(&world, |consumer| {
        consumer.max_ack_pending = 3;
        consumer.ack_wait = WAIT * 4;
    })
    .await;
    publish(&world, 10).await;
    let held = fetch(&mut puller, 10, WAIT).await;
    assert_eq!(held.len(), 3);
    assert!(fetch(&mut puller, 10, SHORT).await.is_empty());
    held[0].acker.confirm(Ack::Done, WAIT).await.unwrap();
    assert_eq!(fetch(&mut puller, 10, WAIT).await.len(), 1);
}

async fn a_message_that_ran_out_of_deliveries_is_seen_no_more_and_told_once(world: World) {
    let mut puller = provision(&world, |consumer| consumer.max_deliver = 2).await;
    publish(&world, 1).await;
    for delivered in 1..=2 {
        let pulled = one(&mut puller).await;
        assert_eq!(pulled.delivered, delivered);
        pulled.acker.send(Ack::Again(Duration::ZERO)).await.unwrap();
    }
    assert!(fetch(&mut puller, 1, ACK_WAIT * 2).await.is_empty());
    let mut advisories = world
        .backend()
        .puller(ADVISORY, SWEEPER_ADVISORY)
        .await
        .unwrap();
    let told = one(&mut advisories).await;
    let body: serde_json::Value = serde_json::from_slice(&told.message.payload).unwrap();
    assert_eq!(body["type"], "io.nats.jetstream.advisory.v1.max_deliver");
    assert_eq!(
        (&body["stream"], &body["stream_seq"]),
        (&WORK.into(), &1.into())
    );
    told.acker.confirm(Ack::Done, WAIT).await.unwrap();
    assert!(fetch(&mut advisories, 1, SHORT).await.is_empty());
    assert_eq!(
        world
            .backend()
            .stream(WORK)
            .await
            .unwrap()
            .unwrap()
            .messages,
        1
    );
}

async fn workers_of_one_durable_share_its_messages(world: World) {
    let mut first = provision(&world, |_| {}).await;
    let other = world.another().await;
    let mut second = other
        .inner
        .backend
        .puller(WORK, "file-resolver")
        .await
        .unwrap();
    publish(&world, 6).await;
    let mut sequences: Vec<_> = fetch(&mut first, 3, WAIT)
        .await
        .into_iter()
        .chain(fetch(&mut second, 3, WAIT).await)
        .map(|pulled| pulled.message.sequence)
        .collect();
    sequences.sort_unstable();
    assert_eq!(sequences, [1, 2, 3, 4, 5, 6]);
}

async fn a_pull_ends_with_the_first_message_or_its_time(world: World) {
    let mut puller = provision(&world, |_| {}).await;
    let begun = Instant::now();
    assert!(fetch(&mut puller, 5, SHORT * 2).await.is_empty());
    assert!(begun.elapsed() >= SHORT && begun.elapsed() < WAIT);
    let (pulled, ()) = tokio::join!(fetch(&mut puller, 5, WAIT), publish(&world, 1));
    assert_eq!(pulled.len(), 1);
}

async fn a_stop_ends_a_pull(world: World) {
    let mut puller = provision(&world, |_| {}).await;
    let stop = CancellationToken::new();
    let begun = Instant::now();
    let (pulled, ()) = tokio::join!(puller.fetch(5, WAIT * 6, &stop), async { stop.cancel() });
    assert!(pulled.unwrap().is_empty());
    assert!(begun.elapsed() < WAIT);
}

async fn a_filter_keeps_other_areas_out(world: World) {
    let mut puller = provision(&world, |_| {}).await;
    let other = outgoing("dray.work.sandbox.v1.put.acme", "", "");
    world.backend().store(&other, WAIT).await.unwrap();
    publish(&world, 1).await;
    assert_eq!(one(&mut puller).await.message.sequence, 2);
    assert!(fetch(&mut puller, 1, SHORT).await.is_empty());
}

async fn an_absent_durable_is_an_error(world: World) {
    provision(&world, |_| {}).await;
    for (stream, durable) in [(WORK, "nobody"), ("NOWHERE", "file-resolver")] {
        let found = world.backend().consumer(stream, durable).await.unwrap();
        assert!(found.is_none());
        let error = world.backend().puller(stream, durable).await.unwrap_err();
        assert!(
            matches!(error, crate::TransportError::NotProvisioned(_)),
            "{error}"
        );
    }
}
