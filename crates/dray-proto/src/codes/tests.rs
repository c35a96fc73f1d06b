//! Tests of the order in which codes and names are read, and of codes of newer peers.

#![expect(deprecated, reason = "the tests write the fields of earlier versions")]

use super::*;
use crate::v1::{
    BackendState, SandboxCommandStage, SandboxCommandState, TurnCallError, TurnCallOutcome,
    TurnCause, TurnOutcome,
};

#[test]
fn a_code_is_read_before_its_name_and_a_name_where_there_is_no_code() {
    let mut file = v1::DeliveredFile::default();
    assert_eq!(file.file_state(), FileState::Queued);
    file.state = "delivered".to_owned();
    assert_eq!(file.file_state(), FileState::Delivered);
    file.set_file_state(FileState::Failed);
    assert_eq!(
        (file.file_state(), file.state.as_str()),
        (FileState::Failed, "failed")
    );
    file.state = "delivered".to_owned();
    assert_eq!(file.file_state(), FileState::Failed);
}

#[test]
fn codes_of_a_newer_peer_are_unknown_and_never_a_success() {
    let file = v1::DeliveredFile {
        state_code: 99,
        state: "delivered".to_owned(),
        route_code: 99,
        error_code: 99,
        ..v1::DeliveredFile::default()
    };
    assert_eq!(file.file_state(), FileState::Unknown);
    assert!(!file.file_state().is_shown());
    assert_eq!((file.route_taken(), file.route_name()), (None, "unknown"));
    assert_eq!(file.failure(), Some(DeliveryErrorKind::Unknown));
    let named = v1::DeliveredFile {
        state: "beamed".to_owned(),
        ..v1::DeliveredFile::default()
    };
    assert_eq!(named.file_state(), FileState::Unknown);
    let step = v1::DeliveryStep {
        state_code: 99,
        route_code: 99,
        ..v1::DeliveryStep::default()
    };
    assert_eq!(step.step_state(), StepState::Sending);
    let error = step.planned_route().unwrap_err();
    assert_eq!(
        error.to_string(),
        "DeliveryRoute 99 is not known to this version"
    );
    let entry = v1::SandboxEntry {
        kind_code: 99,
        kind: "file".to_owned(),
        ..v1::SandboxEntry::default()
    };
    assert_eq!(entry.entry_kind(), SandboxEntryKind::Other);
}

#[test]
fn every_code_has_a_unique_name_that_parses_to_the_code() {
    fn check<E: NamedCode + std::fmt::Debug>(last: i32) {
        let mut names = Vec::new();
        for number in 0..=last {
            let code = E::try_from(number).ok().unwrap();
            assert_eq!(E::from_name(code.name()), Some(code));
            assert!(!names.contains(&code.name()), "{code:?}");
            names.push(code.name());
        }
        assert!(E::try_from(last + 1).is_err(), "a code is not checked");
    }
    check::<ConsoleAction>(14);
    check::<CredentialState>(4);
    check::<FilePermission>(3);
    check::<BackendState>(3);
    check::<PreviewAction>(4);
    check::<SandboxCommandState>(5);
    check::<SandboxCommandStage>(3);
    check::<ConsoleStage>(3);
    check::<FileState>(9);
    check::<DeliveryRoute>(14);
    check::<DeliveryErrorKind>(17);
    check::<WaitingReason>(3);
    check::<DeliveryStage>(7);
    check::<StepState>(5);
    check::<SandboxEntryKind>(8);
    check::<TicketAction>(4);
    check::<TicketDirection>(2);
    check::<TicketState>(7);
    check::<PreviewLinkState>(3);
    check::<PolicyStep>(14);
    check::<StepVerdict>(3);
    check::<TurnCause>(3);
    check::<TurnOutcome>(7);
    check::<TurnCallOutcome>(4);
    check::<TurnCallError>(3);
}

#[test]
fn the_set_fields_of_earlier_work_determine_its_task() {
    let work = v1::DeliverFiles::default();
    assert_eq!(work.delivery_task(), DeliveryTask::Continue);
    let notice = v1::DeliverFiles {
        message: "m".to_owned(),
        ..work.clone()
    };
    let task = DeliveryTask::Notice("m".to_owned());
    assert_eq!(notice.delivery_task(), task);
    let new = v1::NewDelivery {
        message: "m".to_owned(),
        files: vec![v1::DeliveredFile::default()],
        turn: "t".to_owned(),
        ..v1::NewDelivery::default()
    };
    let files = v1::DeliverFiles {
        message: "m".to_owned(),
        files: new.files.clone(),
        turn: "t".to_owned(),
        ..work.clone()
    };
    assert_eq!(files.delivery_task(), DeliveryTask::New(new.clone()));
    for task in [task, DeliveryTask::New(new), DeliveryTask::Continue] {
        let written = work.clone().with_task(task.clone());
        assert_eq!(written.delivery_task(), task);
        let old = v1::DeliverFiles {
            task: None,
            ..written
        };
        assert_eq!(
            old.delivery_task(),
            task,
            "a worker of an earlier version does the same"
        );
    }
}
