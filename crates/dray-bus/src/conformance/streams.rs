//! Streams: deduplication, limits, reading.

use std::time::Duration;

use dray_proto::v1;
use dray_testkit::eventually;

use super::{BusFixture, on_both, outgoing_message, small_topology};
use crate::backend::{OutgoingMessage, StreamAck};
use crate::topology::{EVENT_STREAM, WORK_STREAM};
use crate::{EventFilter, Meta, TransportError};

on_both!(
    messages_with_the_same_id_are_stored_once_even_with_another_body,
    an_id_is_forgotten_after_the_window,
    publishing_to_a_subject_without_a_stream_fails_immediately,
    a_full_stream_refuses_new_messages_immediately,
    a_stream_that_drops_the_oldest_never_refuses,
    a_message_over_the_streams_limit_is_refused,
    a_message_over_the_servers_limit_is_refused,
    messages_are_read_in_order_from_any_sequence,
    a_reader_of_new_messages_sees_no_old_ones,
    headers_and_payload_are_read_back_unchanged,
    a_line_break_in_a_header_never_reaches_the_wire,
    events_are_cloud_events_and_other_messages_are_not,
);

const EVENT_SUBJECT: &str = "dray.event.toolcall.v1.resolved.acme";
const ONE_SECOND: Duration = Duration::from_secs(1);

async fn store_message(
    fixture: &BusFixture,
    message: OutgoingMessage,
) -> Result<StreamAck, TransportError> {
    fixture.backend().store(&message, 5 * ONE_SECOND).await
}

async fn provision_changed(fixture: &BusFixture, change: impl FnOnce(&mut crate::Topology)) {
    fixture
        .bus
        .apply_topology(&small_topology(change))
        .await
        .unwrap();
}

async fn messages_with_the_same_id_are_stored_once_even_with_another_body(fixture: BusFixture) {
    provision_changed(&fixture, |_| {}).await;
    let first = store_message(&fixture, outgoing_message(EVENT_SUBJECT, "a", "one"))
        .await
        .unwrap();
    assert!(!first.duplicate && first.stream == EVENT_STREAM);
    for (subject, body) in [
        (EVENT_SUBJECT, "one"),
        (EVENT_SUBJECT, "other"),
        ("dray.event.file.v1.resolved.other", "one"),
    ] {
        let repeated = store_message(&fixture, outgoing_message(subject, "a", body))
            .await
            .unwrap();
        assert!(
            repeated.duplicate && repeated.sequence == first.sequence,
            "{subject} {body}"
        );
    }
    let other = store_message(&fixture, outgoing_message(EVENT_SUBJECT, "b", "one"))
        .await
        .unwrap();
    assert!(!other.duplicate);
    assert_eq!(
        fixture
            .backend()
            .stream(EVENT_STREAM)
            .await
            .unwrap()
            .unwrap()
            .messages,
        2
    );
    let elsewhere = store_message(
        &fixture,
        outgoing_message("dray.work.toolcall.v1.resolve.acme", "a", ""),
    )
    .await;
    assert!(
        !elsewhere.unwrap().duplicate,
        "each stream deduplicates separately"
    );
}

async fn an_id_is_forgotten_after_the_window(fixture: BusFixture) {
    provision_changed(&fixture, |topology| {
        for stream in &mut topology.streams {
            // Long enough for both messages on a busy machine.
            stream.duplicate_window = Duration::from_secs(5);
        }
    })
    .await;
    store_message(&fixture, outgoing_message(EVENT_SUBJECT, "a", ""))
        .await
        .unwrap();
    assert!(
        store_message(&fixture, outgoing_message(EVENT_SUBJECT, "a", ""))
            .await
            .unwrap()
            .duplicate
    );
    let fixture = &fixture;
    eventually("the window to end", async || {
        let repeated = store_message(fixture, outgoing_message(EVENT_SUBJECT, "a", ""))
            .await
            .unwrap();
        (!repeated.duplicate).then_some(())
    })
    .await;
}

async fn publishing_to_a_subject_without_a_stream_fails_immediately(fixture: BusFixture) {
    let error = store_message(&fixture, outgoing_message(EVENT_SUBJECT, "a", ""))
        .await
        .unwrap_err();
    assert!(
        matches!(error, TransportError::NotProvisioned(_)),
        "{error}"
    );
}

async fn a_full_stream_refuses_new_messages_immediately(fixture: BusFixture) {
    provision_changed(&fixture, |topology| {
        for stream in &mut topology.streams {
            stream.max_bytes = 4096;
        }
    })
    .await;
    let work = "dray.work.toolcall.v1.resolve.acme";
    let mut accepted = 0;
    let error = loop {
        match store_message(&fixture, outgoing_message(work, "", vec![0; 1000])).await {
            Ok(_) => accepted += 1,
            Err(error) => break error,
        }
    };
    assert!(matches!(error, TransportError::Full), "{error}");
    assert!((2..=4).contains(&accepted), "{accepted}");
    assert!(
        store_message(&fixture, outgoing_message(EVENT_SUBJECT, "", vec![0; 1000]))
            .await
            .is_ok(),
        "other streams still accept messages"
    );
}

async fn a_stream_that_drops_the_oldest_never_refuses(fixture: BusFixture) {
    provision_changed(&fixture, |topology| {
        for stream in &mut topology.streams {
            stream.max_bytes = 4096;
        }
    })
    .await;
    for _ in 0..10 {
        store_message(&fixture, outgoing_message(EVENT_SUBJECT, "", vec![0; 1000]))
            .await
            .unwrap();
    }
    let state = fixture
        .backend()
        .stream(EVENT_STREAM)
        .await
        .unwrap()
        .unwrap();
    assert!(
        (2..=4).contains(&state.messages) && state.last_sequence == 10,
        "{state:?}"
    );
    assert_eq!(state.first_sequence, 11 - state.messages);
}

async fn a_message_over_the_streams_limit_is_refused(fixture: BusFixture) {
    provision_changed(&fixture, |_| {}).await;
    let limit = 256 * 1024;
    let at = outgoing_message(EVENT_SUBJECT, "", vec![0; limit]);
    assert!(store_message(&fixture, at).await.is_ok());
    let over = outgoing_message(EVENT_SUBJECT, "", vec![0; limit + 1]);
    let error = store_message(&fixture, over).await.unwrap_err();
    // The server does not name its limit; then the error must not name another one.
    assert!(
        matches!(error, TransportError::TooLarge { size, limit: named }
            if size > limit && named.is_none_or(|named| named == limit)),
        "{error}"
    );
}

async fn a_message_over_the_servers_limit_is_refused(fixture: BusFixture) {
    let limit = fixture.backend().max_payload();
    assert_eq!(limit, 1024 * 1024);
    let error = fixture
        .backend()
        .publish(None, &outgoing_message("a", "", vec![0; limit + 1]))
        .await
        .unwrap_err();
    assert!(matches!(error, TransportError::TooLarge { .. }), "{error}");
}

async fn messages_are_read_in_order_from_any_sequence(fixture: BusFixture) {
    provision_changed(&fixture, |_| {}).await;
    for (id, subject) in [
        ("1", EVENT_SUBJECT),
        ("2", "dray.event.file.v1.x.acme"),
        ("3", EVENT_SUBJECT),
    ] {
        store_message(&fixture, outgoing_message(subject, id, id.to_owned()))
            .await
            .unwrap();
    }
    let backend = fixture.backend();
    let next = |from| backend.read_next(EVENT_STREAM, "dray.event.toolcall.>", from);
    assert_eq!(next(1).await.unwrap().unwrap().payload, "1");
    assert_eq!(next(2).await.unwrap().unwrap().payload, "3");
    assert!(next(4).await.unwrap().is_none());
    assert_eq!(
        backend
            .read_at(EVENT_STREAM, 2)
            .await
            .unwrap()
            .unwrap()
            .payload,
        "2"
    );
    assert!(backend.read_at(EVENT_STREAM, 9).await.unwrap().is_none());
    assert!(backend.read_at("NOWHERE", 1).await.is_err());

    let filter = EventFilter::new("dray.event.>").from_sequence(2);
    let mut events = fixture.bus.events(filter).await.unwrap();
    let read = [events.next().await.unwrap(), events.next().await.unwrap()];
    assert_eq!(read.map(|event| event.sequence), [2, 3]);
}

async fn a_reader_of_new_messages_sees_no_old_ones(fixture: BusFixture) {
    provision_changed(&fixture, |_| {}).await;
    store_message(&fixture, outgoing_message(EVENT_SUBJECT, "1", "old"))
        .await
        .unwrap();
    let mut events = fixture
        .bus
        .events(EventFilter::new("dray.event.>"))
        .await
        .unwrap();
    store_message(&fixture, outgoing_message(EVENT_SUBJECT, "2", "new"))
        .await
        .unwrap();
    let event = super::wait_soon("the new event", events.next())
        .await
        .unwrap();
    assert_eq!(event.payload, "new");
    let error = fixture
        .bus
        .events(EventFilter::new("$JS.>"))
        .await
        .unwrap_err();
    assert!(matches!(error, crate::events::EventError::Filter(_)));
}

async fn headers_and_payload_are_read_back_unchanged(fixture: BusFixture) {
    provision_changed(&fixture, |_| {}).await;
    let mut message = outgoing_message(EVENT_SUBJECT, "1", vec![0, 255, 13, 10]);
    message.headers.append("Dray-Schema", "dray.v1.X/1");
    message.headers.append("Repeated", "a");
    message.headers.append("Repeated", "b: c");
    let before = fixture.clock.now_ms();
    store_message(&fixture, message.clone()).await.unwrap();
    let single = fixture
        .backend()
        .read_at(EVENT_STREAM, 1)
        .await
        .unwrap()
        .unwrap();
    assert_eq!((&single.payload, single.sequence), (&message.payload, 1));
    let stored = fixture.events("dray.event.>").await.next().await.unwrap();
    assert_eq!(stored.payload, message.payload);
    assert_eq!(stored.subject, EVENT_SUBJECT);
    assert!(stored.time_ms.abs_diff(before) < 60_000);
    let sorted = |headers: &crate::MessageHeaders| {
        let mut pairs: Vec<_> = headers
            .iter()
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .collect();
        pairs.sort();
        pairs
    };
    assert_eq!(sorted(&stored.headers), sorted(&message.headers));
}

async fn a_line_break_in_a_header_never_reaches_the_wire(fixture: BusFixture) {
    provision_changed(&fixture, |_| {}).await;
    let mut message = outgoing_message(EVENT_SUBJECT, "1", "");
    message.headers.append("Dray-App", "a\r\nNats-Rollup: all");
    let error = store_message(&fixture, message.clone()).await.unwrap_err();
    assert!(matches!(error, TransportError::Header(_)), "{error}");
    let error = fixture.backend().publish(None, &message).await.unwrap_err();
    assert!(matches!(error, TransportError::Header(_)), "{error}");
    assert_eq!(
        fixture
            .backend()
            .stream(WORK_STREAM)
            .await
            .unwrap()
            .unwrap()
            .messages,
        0
    );
}

async fn events_are_cloud_events_and_other_messages_are_not(fixture: BusFixture) {
    fixture.provision(ONE_SECOND).await;
    let meta = fixture.meta("a%b");
    let mut events = fixture.events("dray.event.>").await;
    let mut work = fixture.events("dray.work.>").await;
    let event = v1::ToolCallResolved::default();
    fixture.bus.publish_event(&meta, &event).await.unwrap();
    let call = v1::ToolCallRequested::default();
    fixture.bus.publish_work(&meta, &call).await.unwrap();

    let event = events.next().await.unwrap();
    let attribute = |name| event.headers.get(name);
    assert_eq!(attribute("ce-specversion"), Some("1.0"));
    assert_eq!(attribute("ce-type"), Some("dray.v1.ToolCallResolved"));
    let id = attribute(crate::headers::MESSAGE_ID).unwrap();
    assert_eq!(attribute("ce-id"), Some(id.replace('%', "%25").as_str()));
    // Headers and metadata that earlier readers use are unchanged.
    assert_eq!(attribute("Content-Type"), Some("application/x-protobuf"));
    assert_eq!(Meta::from_headers(&event.headers), Ok(meta));
    let work = work.next().await.unwrap();
    assert!(!work.headers.iter().any(|(name, _)| name.starts_with("ce-")));
}
