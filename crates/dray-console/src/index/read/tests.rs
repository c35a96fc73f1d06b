//! Every kind of event as a row.

use dray_bus::MessageHeaders;
use dray_bus::topology::{SubjectKind, subject_contracts};

use super::*;

fn observed<M: Message + Name>(subject: &str, message: &M) -> ObservedEvent {
    let schema = schema_name::<M>();
    ObservedEvent {
        subject: subject.to_owned(),
        headers: [
            (SCHEMA_HEADER, schema.as_str()),
            (OPERATION_HEADER, "op-1"),
            (
                TRACEPARENT_HEADER,
                "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
            ),
        ]
        .into_iter()
        .collect::<MessageHeaders>(),
        payload: message.encode_to_vec().into(),
        sequence: 9,
        time_ms: 5,
    }
}

fn row<M: Message + Name>(subject: &str, message: &M) -> EventRow {
    read_row(&observed(subject, message), EventSource::Event)
}

#[test]
fn the_service_of_every_row_can_be_chosen_in_the_filter() {
    for (area, service) in [
        ("approval", "orchestrator"),
        ("console", "console"),
        ("delivery-slack", "platform-delivery"),
        ("egress", "egress-fetcher"),
        ("inbound", "platform-delivery"),
        ("preview", "sandbox-transfer"),
        ("question", "egress-fetcher"),
        ("sandbox", "sandbox-transfer"),
        ("ticket", "tickets"),
        ("toolcall", "file-resolver"),
        ("turn", "orchestrator"),
    ] {
        assert_eq!(service_of(area), service, "{area}");
        assert!(
            crate::index::EVENT_SERVICES.contains(&service),
            "{service} is not in the filter"
        );
    }
}

#[test]
fn every_event_of_the_contracts_has_a_service_and_a_row() {
    for contract in subject_contracts() {
        if !matches!(contract.kind, SubjectKind::Event | SubjectKind::Audit) {
            continue;
        }
        let mut event = observed(&contract.subject, &v1::TicketAudit::default());
        let schema = format!("{}/1", contract.message);
        event.headers = [(SCHEMA_HEADER, schema.as_str())].into_iter().collect();
        event.payload = bytes::Bytes::new();
        let row = read_row(&event, EventSource::Event);
        assert!(!row.service.is_empty(), "{}", contract.subject);
        let is_known = !row.summary.contains("does not know");
        assert!(is_known, "{}", contract.message);
    }
}

#[test]
fn a_policy_in_force_names_its_digest_and_a_refused_one_its_line_and_remedy() {
    let mut audit = v1::EgressPolicyAudit {
        instance: "i-1".to_owned(),
        outcome: v1::EgressPolicyOutcome::InForce.into(),
        rules_digest: "d1".to_owned(),
        revision: 7,
        rule_count: 3,
        ..v1::EgressPolicyAudit::default()
    };
    let subject = "dray.audit.policy.v1.checked.default";
    let in_force = row(subject, &audit);
    assert_eq!(in_force.outcome, RowOutcome::Done);
    assert_eq!(in_force.summary, "Policy in_force: 3 rules");
    assert_eq!(in_force.service, "egress-fetcher");
    let proofs = [
        ("replica", "i-1"),
        ("rules_digest", "d1"),
        ("revision", "7"),
    ];
    for (name, value) in proofs {
        assert!(
            in_force.proofs.contains(&(name, value.to_owned())),
            "{in_force:?}"
        );
    }
    audit.outcome = v1::EgressPolicyOutcome::Refused.into();
    audit.refused = Some(v1::EgressPolicyRefusal {
        file: "a.toml".to_owned(),
        line: 2,
        problem: "the outcome is unknown".to_owned(),
        remedy: "Use allow.".to_owned(),
        ..v1::EgressPolicyRefusal::default()
    });
    let refused = row(subject, &audit);
    assert_eq!(refused.outcome, RowOutcome::Refused);
    let expected = "Policy refused: a.toml:2: the outcome is unknown. Use allow.";
    assert_eq!(refused.summary, expected);
}

#[test]
fn a_question_about_a_host_names_the_host_and_its_answer() {
    let mut audit = v1::EgressQuestionAudit {
        stage: EgressQuestionStage::Asked.into(),
        question: Some(v1::EgressQuestion {
            host: "files.example.org".to_owned(),
            port: 443,
            session: "s1".to_owned(),
            ..v1::EgressQuestion::default()
        }),
    };
    let subject = "dray.audit.question.v1.changed.default";
    let asked = row(subject, &audit);
    assert_eq!(asked.outcome, RowOutcome::Working);
    assert_eq!(asked.summary, "Host files.example.org:443 asked");
    assert_eq!(
        (asked.service, asked.session.as_str()),
        ("egress-fetcher", "s1")
    );
    audit.stage = EgressQuestionStage::Answered.into();
    let question = audit.question.as_mut().unwrap();
    question.answer = EgressAnswer::Deny.into();
    question.answered_by = "ana".to_owned();
    let answered = row(subject, &audit);
    assert_eq!(answered.outcome, RowOutcome::Refused);
    assert_eq!(
        answered.summary,
        "Host files.example.org:443 answered: deny by ana"
    );
}

#[test]
fn a_refused_fetch_names_its_reason_and_an_allowed_one_its_address() {
    let mut audit = v1::EgressAudit {
        url_scheme: "https".to_owned(),
        url_host: "example.com".to_owned(),
        url_port: 443,
        verdict: "deny".to_owned(),
        code: "ssrf_blocked".to_owned(),
        phase: "dns".to_owned(),
        duration_ms: 12,
        ..v1::EgressAudit::default()
    };
    let subject = "dray.audit.egress.v1.fetched.default";
    let refused = row(subject, &audit);
    assert_eq!(refused.outcome, RowOutcome::Refused);
    assert_eq!(
        refused.summary,
        "Fetch of https://example.com:443 deny: ssrf_blocked in dns"
    );
    assert_eq!(
        (refused.service, refused.duration_ms),
        ("egress-fetcher", Some(12))
    );
    assert_eq!(refused.kind, "egress.fetched");
    assert_eq!(refused.trace, "0af7651916cd43dd8448eb211c80319c");
    audit.verdict = "allow".to_owned();
    audit.code = String::new();
    audit.http_status = 200;
    audit.hops.push(v1::AuditHop {
        chosen_address: "203.0.113.7".to_owned(),
        dnssec: "authenticated".to_owned(),
        http_version: "HTTP/2.0".to_owned(),
        ..v1::AuditHop::default()
    });
    audit.decided_by = "analysts/packages (policy.toml:9)".to_owned();
    audit.reported_by = "trial/uploads (trial.toml:3)".to_owned();
    let allowed = row(subject, &audit);
    assert_eq!(allowed.outcome, RowOutcome::Done);
    for (name, value) in [
        ("pinned address", "203.0.113.7"),
        ("DNSSEC", "authenticated"),
        ("HTTP version", "HTTP/2.0"),
        ("decided by", "analysts/packages (policy.toml:9)"),
        ("reported by", "trial/uploads (trial.toml:3)"),
    ] {
        let proof = (name, value.to_owned());
        assert!(allowed.proofs.contains(&proof), "{name}: {allowed:?}");
    }
    let mut connection = audit.clone();
    connection.proxy_stage = "closed".to_owned();
    connection.down_bytes = 2048;
    let summary = row(subject, &connection).summary;
    assert!(summary.ends_with("allow, status 200, 2.0 KB"), "{summary}");
    audit.code = "timeout".to_owned();
    assert_eq!(row(subject, &audit).outcome, RowOutcome::Failed);
}

#[test]
fn a_delivery_with_a_file_of_unknown_outcome_is_not_done() {
    let delivery = |state| {
        let mut file = v1::DeliveredFile::default();
        file.set_file_state(state);
        v1::DeliveryDone {
            report: Some(v1::DeliveryReport {
                success: state == FileState::Delivered,
                session: "chat-1".to_owned(),
                begun_at_ms: 1_000,
                ended_at_ms: 3_500,
                files: vec![file],
                ..v1::DeliveryReport::default()
            }),
        }
    };
    let subject = "dray.event.delivery.v1.delivered.default";
    for (state, outcome) in [
        (FileState::Delivered, RowOutcome::Done),
        (FileState::Unknown, RowOutcome::Unknown),
        (FileState::Failed, RowOutcome::Failed),
    ] {
        let row = row(subject, &delivery(state));
        assert_eq!(row.outcome, outcome);
        assert_eq!(
            (row.session.as_str(), row.duration_ms),
            ("chat-1", Some(2_500))
        );
    }
}

#[test]
fn progress_is_shown_for_running_work() {
    let mut progress = v1::DeliveryProgressed {
        name: "a.pdf".to_owned(),
        bytes: 512,
        total: 1024,
        ..v1::DeliveryProgressed::default()
    };
    progress.set_stage_code(v1::DeliveryStage::Sending);
    let row = row("dray.event.delivery.v1.progressed.default", &progress);
    assert_eq!(row.outcome, RowOutcome::Working);
    assert!(
        row.summary.starts_with("Delivery sending a.pdf, "),
        "{row:?}"
    );
}

#[test]
fn a_failed_attempt_is_shown_with_its_cause_and_the_code_of_the_platform() {
    let mut progress = v1::DeliveryProgressed {
        name: "a.pdf".to_owned(),
        platform_code: "503".to_owned(),
        attempt: 2,
        ..v1::DeliveryProgressed::default()
    };
    progress.set_stage_code(v1::DeliveryStage::AttemptFailed);
    progress.set_error_code(v1::DeliveryErrorKind::Transient);
    let row = row("dray.event.delivery.v1.progressed.default", &progress);
    assert_eq!(row.outcome, RowOutcome::Working);
    assert_eq!(row.summary, "Delivery attempt 2 of a.pdf failed: transient");
    assert_eq!(row.proofs, [("code", "503".to_owned())]);
}

#[test]
fn a_denied_rejection_is_a_refusal_and_any_other_a_failure() {
    for (code, outcome) in [
        (v1::FaultCode::Denied, RowOutcome::Refused),
        (v1::FaultCode::Timeout, RowOutcome::Failed),
    ] {
        let rejected = v1::ToolCallRejected {
            tool: "send\u{1b}[31m".to_owned(),
            fault: Some(v1::Fault {
                code: code.into(),
                message: "It was\nrefused.".to_owned(),
                ..v1::Fault::default()
            }),
            ..v1::ToolCallRejected::default()
        };
        let row = row("dray.event.toolcall.v1.rejected.default", &rejected);
        assert_eq!(row.outcome, outcome);
        assert_eq!(row.summary, "Tool call send?[31m: It was?refused.");
    }
}

#[test]
fn an_event_that_cannot_be_decoded_is_shown_by_its_kind() {
    let mut event = observed(
        "dray.event.sandbox.v1.placed.default",
        &v1::UploadPlaced::default(),
    );
    event.payload = vec![0xff; 9].into();
    let row = read_row(&event, EventSource::Event);
    assert_eq!(row.outcome, RowOutcome::Unknown);
    assert_eq!(row.summary, "An event that this version does not know.");
    assert_eq!((row.kind.as_str(), row.sequence), ("sandbox.placed", 9));
    let long = v1::ConsoleAudit {
        target: "x".repeat(100_000),
        ..v1::ConsoleAudit::default()
    };
    let row = super::tests::row("dray.audit.console.v1.acted.default", &long);
    assert!(row.summary.chars().count() <= crate::text::MAX_SHOWN_CHARACTERS);
}

#[test]
fn a_ticket_proves_which_file_went_through_it() {
    let mut audit = v1::TicketAudit {
        ticket_id: "t-1".to_owned(),
        session: "chat-1".to_owned(),
        moved_bytes: 2048,
        sha256: vec![0xab; 32],
        ..v1::TicketAudit::default()
    };
    audit.set_action(TicketAction::Completed);
    let row = row("dray.audit.ticket.v1.changed.default", &audit);
    assert_eq!(
        (row.outcome, row.session.as_str()),
        (RowOutcome::Done, "chat-1")
    );
    assert!(row.proofs.contains(&("sha256", "ab".repeat(32))), "{row:?}");
}
