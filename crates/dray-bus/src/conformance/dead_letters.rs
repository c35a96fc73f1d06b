//! Conformance tests of work that is given up: dead letters, poison messages, restarts.

use std::time::Duration;

use dray_proto::v1::TerminalState;
use dray_types::{FaultCode, TenantId};
use prost::Message as _;

use super::at_work::{
    EVENT_SUBJECTS, at_work, foreign_message, ledger_record, next_rejection, nothing_pending,
    submit_work, wait_until_reported, work_settings,
};
use super::{
    BusFixture, ScriptedHandler, TestWorker, on_both, outgoing_message, tool_call, wait_soon,
};
use crate::dead::{LetterError, LetterFilter, LetterState};
use crate::{WorkSettings, headers};

on_both!(
    work_that_keeps_failing_is_dead_lettered_after_its_attempts,
    a_handler_that_panics_twice_is_poison,
    poison_messages_are_dead_lettered_and_reported,
    a_dead_letter_can_be_shown_and_redriven_once,
    dead_letters_are_found_by_tenant_code_and_state,
    a_dead_letter_is_resolved_when_its_redriven_work_succeeds,
    a_dead_letter_is_open_again_when_its_restart_ends_without_a_letter,
    a_dead_letter_without_an_envelope_cannot_be_redriven,
);

async fn work_that_keeps_failing_is_dead_lettered_after_its_attempts(fixture: BusFixture) {
    let (script, worker) = at_work(&fixture).await;
    let mut events = fixture.events(EVENT_SUBJECTS).await;
    let meta = submit_work(&fixture, "op", "always-passing").await;
    let rejected = next_rejection(&mut events).await;
    assert_eq!(rejected.state(), TerminalState::DeadLettered);
    assert_eq!(
        wait_until_reported(&fixture, &meta).await.terminal(),
        TerminalState::DeadLettered
    );
    nothing_pending(&fixture).await;
    worker.stop().await;
    assert_eq!(script.runs("op"), 2);
    assert_eq!(script.last_attempts(), [false, true]);
    let letters = fixture.bus.dead_letters().list(1, 10).await.unwrap();
    assert_eq!(letters.len(), 1);
    let letter = &letters[0];
    assert_eq!((letter.operation.as_str(), letter.attempts), ("op", 2));
    assert_eq!(letter.fault.code, dray_types::FaultCode::Unavailable);
    assert!(letter.complete && letter.first_error_ms <= letter.last_error_ms);
}

async fn a_handler_that_panics_twice_is_poison(fixture: BusFixture) {
    fixture.provision(Duration::from_secs(30)).await;
    let script = ScriptedHandler::default();
    let five_attempts = WorkSettings {
        attempts: 5,
        ..work_settings()
    };
    let worker = TestWorker::start(&fixture.bus, five_attempts, script.clone());
    let mut events = fixture.events(EVENT_SUBJECTS).await;
    submit_work(&fixture, "op", "panics").await;
    let rejected = next_rejection(&mut events).await;
    assert_eq!(rejected.state(), TerminalState::DeadLettered);
    assert_eq!(rejected.fault.unwrap().detail, "panic");
    worker.stop().await;
    assert_eq!(script.runs("op"), 2);
}

async fn poison_messages_are_dead_lettered_and_reported(fixture: BusFixture) {
    let (script, worker) = at_work(&fixture).await;
    let mut events = fixture.events(EVENT_SUBJECTS).await;
    let valid = |operation: &str| foreign_message(&fixture.meta(operation), &tool_call("works"), 0);
    let mut undecodable = valid("one");
    undecodable.payload = bytes::Bytes::from_static(b"\xff\xff\xff");
    let mut unsupported = valid("two");
    unsupported
        .headers
        .set(headers::SCHEMA_HEADER, "dray.v2.ToolCallRequested/1");
    let mut forged = valid("three");
    forged.headers.set(headers::TENANT_HEADER, "other");
    let mut steering = valid("four");
    steering.headers.append("Nats-Rollup-X", "all");
    steering.headers.append("nats-expected-nothing", "all");
    let mut bare = valid("five");
    bare.headers = crate::MessageHeaders::new();
    let poison = [undecodable, unsupported, forged, steering, bare];
    let count = poison.len();
    for message in poison {
        fixture
            .backend()
            .store(&message, Duration::from_secs(5))
            .await
            .unwrap();
        let event = wait_soon("the end", events.next()).await.unwrap();
        assert_eq!(event.subject, "dray.event.toolcall.v1.dead-lettered.acme");
    }
    nothing_pending(&fixture).await;
    worker.stop().await;
    let letters = fixture.bus.dead_letters().list(1, 10).await.unwrap();
    let details: Vec<_> = letters
        .iter()
        .map(|letter| letter.fault.detail.as_str())
        .collect();
    assert_eq!(
        details,
        [
            "undecodable",
            "schema_unsupported",
            "tenant_mismatch",
            "invalid_envelope",
            "invalid_envelope"
        ]
    );
    assert_eq!(letters.len(), count);
    assert_eq!(script.runs("one") + script.runs("three"), 0);
}

async fn a_dead_letter_can_be_shown_and_redriven_once(fixture: BusFixture) {
    let (script, worker) = at_work(&fixture).await;
    let mut events = fixture.events(EVENT_SUBJECTS).await;
    let meta = submit_work(&fixture, "op", "always-passing").await;
    next_rejection(&mut events).await;
    let letters = fixture.bus.dead_letters();
    let sequence = letters.list(1, 10).await.unwrap()[0].sequence;
    let letter = letters.show(sequence).await.unwrap().letter;
    assert_eq!(letter.subject, "dray.work.toolcall.v1.resolve.acme");
    assert_eq!(letter.payload, tool_call("always-passing").encode_to_vec());
    assert!(
        letter
            .headers
            .iter()
            .any(|header| header.name == headers::OPERATION_HEADER)
    );

    wait_until_reported(&fixture, &meta).await;
    let first = letters.redrive(sequence, None).await.unwrap();
    assert!(!first.duplicate);
    let rejected = next_rejection(&mut events).await;
    assert_eq!(rejected.state(), TerminalState::DeadLettered);
    let repeated = letters.redrive(sequence, None).await.unwrap_err();
    assert!(
        matches!(repeated, LetterError::AlreadyRestarted(_)),
        "{repeated}"
    );
    nothing_pending(&fixture).await;
    worker.stop().await;
    assert_eq!(script.runs("op"), 4, "two attempts each time");
    let all = letters.list(1, 10).await.unwrap();
    assert_eq!(all.len(), 2, "the second letter is not a duplicate");
    let states: Vec<_> = all.iter().map(|letter| letter.state).collect();
    assert_eq!(states, [LetterState::Restarted, LetterState::Open]);
    let record = ledger_record(&fixture, &meta).await.unwrap();
    assert_eq!((record.redrives, record.attempts), (1, 2));
}

async fn dead_letters_are_found_by_tenant_code_and_state(fixture: BusFixture) {
    let (_, worker) = at_work(&fixture).await;
    let mut events = fixture.events(EVENT_SUBJECTS).await;
    submit_work(&fixture, "passing", "always-passing").await;
    next_rejection(&mut events).await;
    submit_work(&fixture, "panics", "panics").await;
    next_rejection(&mut events).await;
    worker.stop().await;
    let letters = fixture.bus.dead_letters();
    let find = async |change: fn(&mut LetterFilter)| {
        let mut filter = LetterFilter::default();
        change(&mut filter);
        let found = letters.find(&filter, 1, 10).await.unwrap();
        let operations: Vec<_> = found.into_iter().map(|letter| letter.operation).collect();
        operations.join(" ")
    };
    assert_eq!(find(|_| {}).await, "passing panics");
    assert_eq!(
        find(|filter| filter.code = Some(FaultCode::Unavailable)).await,
        "passing"
    );
    assert_eq!(
        find(|filter| filter.detail = Some("panic".to_owned())).await,
        "panics"
    );
    assert_eq!(
        find(|filter| filter.tenant = TenantId::new("other").ok()).await,
        ""
    );
    assert_eq!(
        find(|filter| filter.states = vec![LetterState::Resolved]).await,
        ""
    );
    // A search that examines one letter at a time finds them all, and learns where the stream ends.
    let resolved = LetterFilter {
        states: vec![LetterState::Resolved],
        ..LetterFilter::default()
    };
    let mut parts = Vec::new();
    let mut from = Some(1);
    while let Some(next) = from {
        let open = letters
            .find_part(&LetterFilter::default(), next, 10, 1)
            .await;
        let none = letters.find_part(&resolved, next, 10, 1).await.unwrap();
        let open = open.unwrap();
        assert!(none.letters.is_empty());
        assert_eq!(none.next, open.next);
        parts.push(open.letters.len());
        from = open.next;
    }
    assert_eq!(parts, [1, 1, 0]);
}

async fn a_dead_letter_is_resolved_when_its_redriven_work_succeeds(fixture: BusFixture) {
    fixture.provision(Duration::from_secs(30)).await;
    let script = ScriptedHandler::default();
    let one_attempt = WorkSettings {
        attempts: 1,
        ..work_settings()
    };
    let worker = TestWorker::start(&fixture.bus, one_attempt, script.clone());
    let mut events = fixture.events(EVENT_SUBJECTS).await;
    let meta = submit_work(&fixture, "op", "fails-once").await;
    next_rejection(&mut events).await;
    wait_until_reported(&fixture, &meta).await;
    let letters = fixture.bus.dead_letters();
    let sequence = letters.list(1, 10).await.unwrap()[0].sequence;
    letters.redrive(sequence, None).await.unwrap();
    wait_soon("the result", events.next()).await.unwrap();
    wait_until_reported(&fixture, &meta).await;
    worker.stop().await;
    let state = letters.show(sequence).await.unwrap().summary.state;
    assert_eq!(state, LetterState::Resolved);
    let repeated = letters.redrive(sequence, None).await.unwrap_err();
    assert!(
        matches!(repeated, LetterError::AlreadyResolved(_)),
        "{repeated}"
    );
    assert_eq!(script.runs("op"), 2);
}

async fn a_dead_letter_is_open_again_when_its_restart_ends_without_a_letter(fixture: BusFixture) {
    fixture.provision(Duration::from_secs(30)).await;
    let script = ScriptedHandler::default();
    let one_attempt = WorkSettings {
        attempts: 1,
        ..work_settings()
    };
    let worker = TestWorker::start(&fixture.bus, one_attempt, script.clone());
    let mut events = fixture.events(EVENT_SUBJECTS).await;
    let meta = submit_work(&fixture, "op", "passing-then-fails-once").await;
    next_rejection(&mut events).await;
    wait_until_reported(&fixture, &meta).await;
    let letters = fixture.bus.dead_letters();
    let sequence = letters.list(1, 10).await.unwrap()[0].sequence;
    letters.redrive(sequence, None).await.unwrap();
    let rejected = next_rejection(&mut events).await;
    assert_eq!(rejected.state(), TerminalState::Failed);
    wait_until_reported(&fixture, &meta).await;
    let all = letters.list(1, 10).await.unwrap();
    assert_eq!(all.len(), 1, "a permanent failure has no letter");
    assert_eq!(all[0].state, LetterState::Open);
    let again = letters.redrive(sequence, None).await.unwrap();
    assert!(!again.duplicate, "the id of the first restart is used up");
    wait_soon("the result", events.next()).await.unwrap();
    assert_eq!(wait_until_reported(&fixture, &meta).await.redrives, 2);
    worker.stop().await;
    assert_eq!(script.runs("op"), 3);
    let state = letters.show(sequence).await.unwrap().summary.state;
    assert_eq!(state, LetterState::Resolved);
}

async fn a_dead_letter_without_an_envelope_cannot_be_redriven(fixture: BusFixture) {
    let (_, worker) = at_work(&fixture).await;
    let mut events = fixture.events(EVENT_SUBJECTS).await;
    let bare = outgoing_message("dray.work.toolcall.v1.resolve.acme", "", "x");
    fixture
        .backend()
        .store(&bare, Duration::from_secs(5))
        .await
        .unwrap();
    wait_soon("the end", events.next()).await.unwrap();
    let letters = fixture.bus.dead_letters();
    let sequence = letters.list(1, 10).await.unwrap()[0].sequence;
    let error = letters.redrive(sequence, None).await.unwrap_err();
    assert!(matches!(error, LetterError::NotWork(_)), "{error}");
    let error = letters.show(sequence + 9).await.unwrap_err();
    assert!(matches!(error, LetterError::NotFound(_)), "{error}");
    worker.stop().await;
}
