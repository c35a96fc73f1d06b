//! Durable pull consumers.

use std::time::Duration;

use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::{BusFixture, on_both, outgoing_message, small_topology};
use crate::backend::{AckAction, PulledMessage, Puller};
use crate::topology::{ADVISORY_STREAM, ConsumerSpec, SWEEPER_ADVISORY, WORK_STREAM};

on_both!(
    an_unacknowledged_message_is_redelivered,
    a_returned_message_is_redelivered_after_its_delay,
    a_heartbeat_prevents_a_redelivery,
    acknowledged_and_terminated_messages_are_not_redelivered,
    no_more_messages_are_delivered_than_may_be_pending,
    a_message_at_its_delivery_limit_is_not_redelivered_and_reported_once,
    workers_of_one_durable_share_its_messages,
    a_pull_ends_with_the_first_message_or_its_timeout,
    a_stop_ends_a_pull,
    a_filter_keeps_other_areas_out,
    an_absent_durable_is_an_error,
    the_time_of_the_last_delivery_is_known,
);

const PULL_TIMEOUT: Duration = Duration::from_secs(5);
const SHORT_TIMEOUT: Duration = Duration::from_millis(100);
const ACK_WAIT: Duration = Duration::from_millis(500);

async fn provision_consumer(fixture: &BusFixture, change: impl Fn(&mut ConsumerSpec)) -> Puller {
    let topology = small_topology(|topology| {
        for consumer in &mut topology.consumers {
            consumer.ack_wait = ACK_WAIT;
            if consumer.durable == "file-resolver" {
                change(consumer);
            }
        }
    });
    assert_eq!(fixture.bus.apply_topology(&topology).await.unwrap(), []);
    standard_puller(fixture).await
}

async fn standard_puller(fixture: &BusFixture) -> Puller {
    fixture
        .backend()
        .puller(WORK_STREAM, "file-resolver")
        .await
        .unwrap()
}

async fn publish_messages(fixture: &BusFixture, count: usize) {
    for number in 0..count {
        let message = outgoing_message(
            "dray.work.toolcall.v1.resolve.acme",
            &number.to_string(),
            number.to_string(),
        );
        fixture
            .backend()
            .store(&message, PULL_TIMEOUT)
            .await
            .unwrap();
    }
}

async fn fetch_messages(puller: &mut Puller, count: usize, wait: Duration) -> Vec<PulledMessage> {
    puller
        .fetch(count, wait, &CancellationToken::new())
        .await
        .unwrap()
}

async fn fetch_one(puller: &mut Puller) -> PulledMessage {
    fetch_messages(puller, 1, PULL_TIMEOUT)
        .await
        .pop()
        .expect("a message")
}

async fn an_unacknowledged_message_is_redelivered(fixture: BusFixture) {
    let mut puller = provision_consumer(&fixture, |_| {}).await;
    let started = Instant::now();
    publish_messages(&fixture, 1).await;
    let first = fetch_one(&mut puller).await;
    let second = fetch_one(&mut puller).await;
    assert_eq!((first.delivered, second.delivered), (1, 2));
    assert_eq!(first.message.sequence, second.message.sequence);
    assert!(started.elapsed() >= ACK_WAIT);
    assert_eq!(puller.ack_wait(), ACK_WAIT);
}

async fn a_returned_message_is_redelivered_after_its_delay(fixture: BusFixture) {
    let mut puller =
        provision_consumer(&fixture, |consumer| consumer.ack_wait = PULL_TIMEOUT * 4).await;
    publish_messages(&fixture, 1).await;
    fetch_one(&mut puller)
        .await
        .acker
        .send(AckAction::Redeliver(Duration::ZERO))
        .await
        .unwrap();
    let second = fetch_one(&mut puller).await;
    let started = Instant::now();
    second
        .acker
        .send(AckAction::Redeliver(SHORT_TIMEOUT * 3))
        .await
        .unwrap();
    let third = fetch_one(&mut puller).await;
    assert_eq!(third.delivered, 3);
    assert!(started.elapsed() >= SHORT_TIMEOUT * 2);
}

async fn a_heartbeat_prevents_a_redelivery(fixture: BusFixture) {
    // Several times the pause between two heartbeats, which a busy machine extends.
    let ack_wait = SHORT_TIMEOUT * 20;
    let mut puller = provision_consumer(&fixture, |consumer| consumer.ack_wait = ack_wait).await;
    publish_messages(&fixture, 1).await;
    let delivered = fetch_one(&mut puller).await;
    let until = Instant::now() + ack_wait * 2;
    while Instant::now() < until {
        delivered.acker.send(AckAction::Progress).await.unwrap();
        assert!(
            fetch_messages(&mut puller, 1, SHORT_TIMEOUT)
                .await
                .is_empty()
        );
    }
    assert_eq!(
        fetch_one(&mut puller).await.delivered,
        2,
        "the message is redelivered after the last heartbeat"
    );
}

async fn acknowledged_and_terminated_messages_are_not_redelivered(fixture: BusFixture) {
    let mut puller = provision_consumer(&fixture, |_| {}).await;
    publish_messages(&fixture, 2).await;
    let first = fetch_one(&mut puller).await;
    let second = fetch_one(&mut puller).await;
    first
        .acker
        .confirm(AckAction::Done, PULL_TIMEOUT)
        .await
        .unwrap();
    second
        .acker
        .confirm(AckAction::Term, PULL_TIMEOUT)
        .await
        .unwrap();
    first
        .acker
        .confirm(AckAction::Done, PULL_TIMEOUT)
        .await
        .unwrap();
    assert!(
        fetch_messages(&mut puller, 2, ACK_WAIT * 2)
            .await
            .is_empty()
    );
    let state = fixture
        .backend()
        .consumer(WORK_STREAM, "file-resolver")
        .await
        .unwrap()
        .unwrap();
    assert_eq!(
        (state.pending, state.ack_pending, state.ack_floor),
        (0, 0, 2)
    );
    let stream_state = fixture
        .backend()
        .stream(WORK_STREAM)
        .await
        .unwrap()
        .unwrap();
    assert_eq!(
        stream_state.messages, 2,
        "the stream keeps acknowledged messages"
    );
}

async fn no_more_messages_are_delivered_than_may_be_pending(fixture: BusFixture) {
    let mut puller = provision_consumer(&fixture, |consumer| {
        consumer.max_ack_pending = 3;
        consumer.ack_wait = PULL_TIMEOUT * 4;
    })
    .await;
    publish_messages(&fixture, 10).await;
    let delivered = fetch_messages(&mut puller, 10, PULL_TIMEOUT).await;
    assert_eq!(delivered.len(), 3);
    assert!(
        fetch_messages(&mut puller, 10, SHORT_TIMEOUT)
            .await
            .is_empty()
    );
    delivered[0]
        .acker
        .confirm(AckAction::Done, PULL_TIMEOUT)
        .await
        .unwrap();
    assert_eq!(fetch_messages(&mut puller, 10, PULL_TIMEOUT).await.len(), 1);
}

async fn a_message_at_its_delivery_limit_is_not_redelivered_and_reported_once(fixture: BusFixture) {
    let mut puller = provision_consumer(&fixture, |consumer| consumer.max_deliver = 2).await;
    publish_messages(&fixture, 1).await;
    for delivered in 1..=2 {
        let pulled = fetch_one(&mut puller).await;
        assert_eq!(pulled.delivered, delivered);
        pulled
            .acker
            .send(AckAction::Redeliver(Duration::ZERO))
            .await
            .unwrap();
    }
    assert!(
        fetch_messages(&mut puller, 1, ACK_WAIT * 2)
            .await
            .is_empty()
    );
    let mut advisories = fixture
        .backend()
        .puller(ADVISORY_STREAM, SWEEPER_ADVISORY)
        .await
        .unwrap();
    let advisory = fetch_one(&mut advisories).await;
    let body: serde_json::Value = serde_json::from_slice(&advisory.message.payload).unwrap();
    assert_eq!(body["type"], "io.nats.jetstream.advisory.v1.max_deliver");
    assert_eq!(
        (&body["stream"], &body["stream_seq"]),
        (&WORK_STREAM.into(), &1.into())
    );
    advisory
        .acker
        .confirm(AckAction::Done, PULL_TIMEOUT)
        .await
        .unwrap();
    assert!(
        fetch_messages(&mut advisories, 1, SHORT_TIMEOUT)
            .await
            .is_empty()
    );
    assert_eq!(
        fixture
            .backend()
            .stream(WORK_STREAM)
            .await
            .unwrap()
            .unwrap()
            .messages,
        1
    );
}

async fn workers_of_one_durable_share_its_messages(fixture: BusFixture) {
    let mut first =
        provision_consumer(&fixture, |consumer| consumer.ack_wait = PULL_TIMEOUT * 4).await;
    let other = fixture.another().await;
    let mut second = other
        .inner
        .backend
        .puller(WORK_STREAM, "file-resolver")
        .await
        .unwrap();
    publish_messages(&fixture, 6).await;
    let mut sequences: Vec<_> = fetch_messages(&mut first, 3, PULL_TIMEOUT)
        .await
        .into_iter()
        .chain(fetch_messages(&mut second, 3, PULL_TIMEOUT).await)
        .map(|pulled| pulled.message.sequence)
        .collect();
    sequences.sort_unstable();
    assert_eq!(sequences, [1, 2, 3, 4, 5, 6]);
}

async fn a_pull_ends_with_the_first_message_or_its_timeout(fixture: BusFixture) {
    let mut puller = provision_consumer(&fixture, |_| {}).await;
    let started = Instant::now();
    assert!(
        fetch_messages(&mut puller, 5, SHORT_TIMEOUT * 2)
            .await
            .is_empty()
    );
    assert!(started.elapsed() >= SHORT_TIMEOUT && started.elapsed() < PULL_TIMEOUT);
    let (pulled, ()) = tokio::join!(
        fetch_messages(&mut puller, 5, PULL_TIMEOUT),
        publish_messages(&fixture, 1)
    );
    assert_eq!(pulled.len(), 1);
}

async fn a_stop_ends_a_pull(fixture: BusFixture) {
    let mut puller = provision_consumer(&fixture, |_| {}).await;
    let stop = CancellationToken::new();
    let started = Instant::now();
    let (pulled, ()) = tokio::join!(puller.fetch(5, PULL_TIMEOUT * 6, &stop), async {
        stop.cancel();
    });
    assert!(pulled.unwrap().is_empty());
    assert!(started.elapsed() < PULL_TIMEOUT);
}

async fn a_filter_keeps_other_areas_out(fixture: BusFixture) {
    let mut puller =
        provision_consumer(&fixture, |consumer| consumer.ack_wait = PULL_TIMEOUT * 4).await;
    let other = outgoing_message("dray.work.sandbox.v1.put.acme", "", "");
    fixture.backend().store(&other, PULL_TIMEOUT).await.unwrap();
    publish_messages(&fixture, 1).await;
    assert_eq!(fetch_one(&mut puller).await.message.sequence, 2);
    assert!(
        fetch_messages(&mut puller, 1, SHORT_TIMEOUT)
            .await
            .is_empty()
    );
}

async fn an_absent_durable_is_an_error(fixture: BusFixture) {
    provision_consumer(&fixture, |_| {}).await;
    for (stream, durable) in [(WORK_STREAM, "nobody"), ("NOWHERE", "file-resolver")] {
        let found = fixture.backend().consumer(stream, durable).await.unwrap();
        assert!(found.is_none());
        let error = fixture.backend().puller(stream, durable).await.unwrap_err();
        assert!(
            matches!(error, crate::TransportError::NotProvisioned(_)),
            "{error}"
        );
    }
}

async fn the_time_of_the_last_delivery_is_known(fixture: BusFixture) {
    let mut puller = provision_consumer(&fixture, |_| {}).await;
    let last_delivery = async || {
        let state = fixture.bus.consumer_state(WORK_STREAM, "file-resolver");
        state.await.unwrap().unwrap().last_delivery_ms
    };
    assert_eq!(last_delivery().await, None);
    publish_messages(&fixture, 1).await;
    let before = fixture.clock.now_ms();
    let first = fetch_one(&mut puller).await;
    let delivered = last_delivery().await.unwrap();
    assert!(delivered >= before, "{delivered} {before}");
    // A redelivery counts: the clock has moved when it is due.
    let return_later = AckAction::Redeliver(SHORT_TIMEOUT);
    first
        .acker
        .confirm(return_later, PULL_TIMEOUT)
        .await
        .unwrap();
    fetch_one(&mut puller).await;
    assert!(last_delivery().await.unwrap() > delivered);
}
