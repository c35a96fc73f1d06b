//! Tests of the rules that withhold files from the web from chats, and of attempts to avoid the rules.

use dray_bus::EventFilter;
use dray_platform::{DuplicateProtection, ErrorKind};
use dray_proto::v1;
use dray_store::{ArtifactLabel, WebOrigin};
use dray_types::{Claim, Fault, OperationId, Sha256Digest};

use super::fixture::{DeliveryFixture, chat, states, tenant};
use super::path::{QueueWorkers, finished_record, request};
use crate::config::{WebFileOutcome, WebFileRule};
use crate::link::LinkPolicy;
use crate::record::{FileRecord, FileState};

/// Content that a known fetch brought.
const FETCHED_CONTENT: &[u8] = b"1;2";
/// Content of no known fetch.
const OWN_CONTENT: &[u8] = b"3;4";

/// Withholds files from the web from all chats except `7`.
fn rules() -> Vec<WebFileRule> {
    let staff = WebFileRule {
        name: "staff".to_owned(),
        targets: vec!["telegram:7".to_owned()],
        outcome: WebFileOutcome::Allow,
        ..WebFileRule::default()
    };
    let outside = WebFileRule {
        name: "outside".to_owned(),
        ..WebFileRule::default()
    };
    vec![staff, outside]
}

async fn fixture_with(rules: Vec<WebFileRule>) -> DeliveryFixture {
    let fixture = DeliveryFixture::with(DuplicateProtection::Unknown, |config| {
        config.web_files = rules;
        config.preview_links = LinkPolicy::Always;
    })
    .await;
    record_fetch(
        &fixture,
        FETCHED_CONTENT,
        &["moved.example.org", "files.example.org"],
    )
    .await;
    fixture
}

async fn record_fetch(fixture: &DeliveryFixture, bytes: &[u8], hosts: &[&str]) {
    let origin = WebOrigin {
        hosts: hosts.iter().map(|host| (*host).to_owned()).collect(),
        fetched_at_ms: 1,
        policy_digest: String::new(),
        rules_digest: String::new(),
        media_type: "text/csv".to_owned(),
    };
    let recorded = fixture
        .store
        .record_origin(&tenant(), Sha256Digest::of(bytes), &origin, None)
        .await;
    recorded.unwrap();
}

/// The audit events of files so far.
async fn audit_lines(fixture: &DeliveryFixture) -> Vec<v1::DeliveryAudit> {
    use futures_util::FutureExt as _;
    let filter = EventFilter::new("dray.audit.delivery.v1.recorded.>").from_start();
    let mut events = fixture.bus.events(filter).await.unwrap();
    let mut lines = Vec::new();
    while let Some(Ok(event)) = events.next().now_or_never() {
        lines.push(event.decode().unwrap());
    }
    lines
}

#[tokio::test]
async fn a_file_from_the_web_is_kept_from_the_chat_and_the_rest_is_sent() {
    let fixture = fixture_with(rules()).await;
    // Name and type come from the caller, so they do not matter.
    let files = [("holiday.jpg", FETCHED_CONTENT), ("own.csv", OWN_CONTENT)];
    let report = fixture.delivered(&fixture.files("d", &files).await).await;
    assert_eq!(states(&report), [FileState::Rejected, FileState::Delivered]);
    let file = &report.files[0];
    assert_eq!(file.error_kind, Some(ErrorKind::Forbidden.into()));
    assert_eq!(
        file.error_message,
        "Policy keeps files from the web out of this chat (rule `outside`)."
    );
    // The agent gets the rule but not the host, which may be an address.
    assert!(report.result_json.contains("rule `outside`"));
    assert!(!report.result_json.contains("example.org"));
    let messages = fixture.fake.visible_messages();
    assert!(
        messages
            .iter()
            .all(|message| message.bytes != FETCHED_CONTENT)
    );
    assert!(messages[0].bytes == OWN_CONTENT, "{messages:?}");

    let lines = audit_lines(&fixture).await;
    assert_eq!(lines[0].refused_by, "outside");
    assert_eq!(
        lines[0].web_hosts,
        ["moved.example.org", "files.example.org"]
    );
    assert_eq!(lines[0].state_code, v1::FileState::Rejected as i32);
    assert!(lines[1].refused_by.is_empty() && lines[1].web_hosts.is_empty());
    // The record has it for `dray receipts`.
    assert_eq!(fixture.record("d").await.files[0].web, file.web);
}

#[tokio::test]
async fn the_same_file_goes_to_a_chat_that_a_rule_allows() {
    let fixture = fixture_with(rules()).await;
    let mut work = fixture.files("d", &[("a.csv", FETCHED_CONTENT)]).await;
    work.target = Some(chat("7"));
    let report = fixture.delivered(&work).await;
    assert_eq!(states(&report), [FileState::Delivered]);
    assert_eq!(report.files[0].web.hosts.len(), 2);
    // Without rules for the chat, nothing is looked up.
    let fixture = fixture_with(Vec::new()).await;
    let work = fixture.files("d", &[("a.csv", FETCHED_CONTENT)]).await;
    let report = fixture.delivered(&work).await;
    assert_eq!(states(&report), [FileState::Delivered]);
    assert!(report.files[0].web.hosts.is_empty());
}

#[tokio::test]
async fn no_upload_cache_or_link_avoids_a_rule() {
    let fixture = fixture_with(rules()).await;
    // A person stored the same bytes before and after the fetch. That does not change where they were fetched from,
    // because an agent can store files too.
    let uploaded = fixture.claim("mine.csv", FETCHED_CONTENT).await;
    let mut writer = fixture.store.writer(&tenant(), &OperationId::mint(), 1);
    writer = writer.cached();
    writer.write(FETCHED_CONTENT.into()).await.unwrap();
    let cached = writer.finish(ArtifactLabel::default()).await.unwrap();
    // Too large for the chat, so it would be sent as a link.
    fixture.fake.limit(2);
    for (id, claim) in [("uploaded", uploaded), ("cached", cached)] {
        let mut work = fixture.files(id, &[]).await;
        work.files.push(FileRecord::stored(claim.into()));
        let report = fixture.delivered(&work).await;
        assert_eq!(states(&report), [FileState::Rejected], "{id}");
        assert_eq!(report.files[0].web.refused_by, "outside");
    }
    assert!(!fixture.fake.visible_texts().join("").contains("X-Amz"));
}

#[tokio::test]
async fn a_file_of_a_sandbox_is_known_while_its_bytes_are_the_same() {
    let strict = WebFileRule {
        sandbox_files: true,
        ..rules().remove(1)
    };
    for (rule, bytes, expected) in [
        (rules().remove(1), FETCHED_CONTENT, FileState::Rejected),
        // A file that a program changed is no longer known, unless the rule includes all files of sandboxes.
        (rules().remove(1), OWN_CONTENT, FileState::Delivered),
        (strict, OWN_CONTENT, FileState::Rejected),
    ] {
        let fixture = fixture_with(vec![rule]).await;
        fixture.sandbox.bind(chat("42"));
        let claim: Claim = fixture.claim("a.csv", bytes).await;
        fixture.sandbox.put("/w/a.csv", "file", Some(claim));
        let _workers = QueueWorkers::start(&fixture);
        let work = request(&["/w/a.csv"]);
        fixture
            .replica
            .intake
            .accept(&fixture.meta("d"), &work)
            .await
            .unwrap();
        let report = finished_record(&fixture, "d").await;
        assert_eq!(states(&report), [expected]);
    }
}

#[tokio::test]
async fn a_preview_is_refused_for_a_chat_whose_rule_needs_the_bytes() {
    let fixture = fixture_with(rules()).await;
    fixture.sandbox.bind(chat("42"));
    fixture.sandbox.put("/w/a.csv", "file", None);
    let _workers = QueueWorkers::start(&fixture);
    let work = v1::SendFileRequested {
        flags: Some(v1::DeliveryFlags {
            as_preview: true,
            ..v1::DeliveryFlags::default()
        }),
        ..request(&["/w/a.csv"])
    };
    fixture
        .replica
        .intake
        .accept(&fixture.meta("d"), &work)
        .await
        .unwrap();
    let report = finished_record(&fixture, "d").await;
    assert_eq!(states(&report), [FileState::Rejected]);
    assert_eq!(report.files[0].web.refused_by, "outside");
}

#[tokio::test]
async fn a_rule_in_test_mode_is_reported_and_the_file_is_sent() {
    let mut rules = rules();
    rules[1].outcome = WebFileOutcome::Report;
    let fixture = fixture_with(rules).await;
    let work = fixture.files("d", &[("a.csv", FETCHED_CONTENT)]).await;
    let report = fixture.delivered(&work).await;
    assert_eq!(states(&report), [FileState::Delivered]);
    let lines = audit_lines(&fixture).await;
    assert_eq!(lines[0].reported_by, "outside");
    assert_eq!(lines[0].refused_by, "");
}

#[tokio::test]
async fn without_the_store_nothing_is_sent_and_the_work_is_retried() {
    let fixture = fixture_with(rules()).await;
    let work = fixture.files("d", &[("a.csv", OWN_CONTENT)]).await;
    let origins = fixture.directory().join("s3");
    let moved = fixture.directory().join("away");
    std::fs::rename(&origins, &moved).unwrap();
    let error = fixture.deliver(&work).await.unwrap_err();
    assert!(Fault::from(error).is_retryable());
    assert_eq!(fixture.fake.requests(), 0);
    std::fs::rename(&moved, &origins).unwrap();
    let report = fixture.delivered(&work).await;
    assert_eq!(states(&report), [FileState::Delivered]);
}

#[tokio::test]
async fn a_fetch_after_the_first_delivery_counts_when_it_is_sent_again() {
    let fixture = fixture_with(rules()).await;
    let report = fixture
        .delivered(&fixture.files("d1", &[("a.csv", OWN_CONTENT)]).await)
        .await;
    assert_eq!(states(&report), [FileState::Delivered]);
    record_fetch(&fixture, OWN_CONTENT, &["files.example.org"]).await;
    let report = fixture
        .delivered(&fixture.files("d2", &[("a.csv", OWN_CONTENT)]).await)
        .await;
    assert_eq!(states(&report), [FileState::Rejected]);
}

#[tokio::test]
async fn a_file_from_many_hosts_is_checked_by_all_of_them_and_its_receipt_stays_small() {
    let partner = WebFileRule {
        name: "many".to_owned(),
        hosts: vec!["*.many.example".to_owned()],
        outcome: WebFileOutcome::Allow,
        ..WebFileRule::default()
    };
    let fixture = fixture_with(vec![partner, rules().remove(1)]).await;
    for number in 0..20 {
        let host = format!("h{number}.many.example");
        record_fetch(&fixture, OWN_CONTENT, &[&host]).await;
    }
    let report = fixture
        .delivered(&fixture.files("d1", &[("a.csv", OWN_CONTENT)]).await)
        .await;
    assert_eq!(states(&report), [FileState::Delivered]);
    assert_eq!(report.files[0].web.hosts.len(), 8);
    record_fetch(&fixture, OWN_CONTENT, &["other.example"]).await;
    let report = fixture
        .delivered(&fixture.files("d2", &[("a.csv", OWN_CONTENT)]).await)
        .await;
    assert_eq!(states(&report), [FileState::Rejected]);
}
