//! Copies for the command line, which never overwrite a file and are never partial.

use std::sync::Arc;

use dray_platform::Platform as _;
use dray_proto::v1;

use super::fixture::{DeliveryFixture, states};
use crate::accounts::{AccountRegistry, PlatformAccount};
use crate::cli::CliAccount;
use crate::delivery_service::DeliveryService;
use crate::machine::DeliveryStep;
use crate::record::{DeliveryStart, FileState};

fn with_cli(fixture: &mut DeliveryFixture, fallbacks: Vec<std::path::PathBuf>) {
    let cx = dray_service::ServiceContext::new(
        fixture.bus.clone(),
        fixture.store.clone(),
        fixture.clock.clone(),
    );
    let accounts = AccountRegistry::new([PlatformAccount::new(
        "cli",
        Arc::new(CliAccount::new(fallbacks)),
    )]);
    fixture.replica = Arc::new(DeliveryService::new(
        fixture.replica.inbound.config.get().as_ref().clone(),
        accounts,
        &cx,
    ));
}

fn to_directory(work: DeliveryStart, directory: &std::path::Path) -> DeliveryStart {
    DeliveryStart {
        target: Some(v1::ChatTarget {
            platform: "cli".to_owned(),
            chat: directory.to_string_lossy().into_owned(),
            ..v1::ChatTarget::default()
        }),
        ..work
    }
}

fn names(directory: &std::path::Path) -> Vec<String> {
    let mut names: Vec<_> = std::fs::read_dir(directory)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned())
        .collect();
    names.sort();
    names
}

#[tokio::test]
async fn a_copy_is_readable_by_its_user_alone() {
    use std::os::unix::fs::PermissionsExt as _;

    let mut fixture = DeliveryFixture::new().await;
    with_cli(&mut fixture, Vec::new());
    let directory = fixture.directory().join("here");
    std::fs::create_dir(&directory).unwrap();
    let work = to_directory(fixture.files("d", &[("a.txt", b"a")]).await, &directory);
    fixture.delivered(&work).await;
    let copy = std::fs::metadata(directory.join("a.txt")).unwrap();
    assert_eq!(copy.permissions().mode() & 0o777, 0o600);
}

#[tokio::test]
async fn a_copy_gets_a_free_name_and_leaves_no_other_file() {
    let mut fixture = DeliveryFixture::new().await;
    with_cli(&mut fixture, Vec::new());
    let directory = fixture.directory().join("here");
    std::fs::create_dir(&directory).unwrap();
    std::fs::write(directory.join("report.pdf"), "mine").unwrap();
    let files: [(&str, &[u8]); 2] = [("report.pdf", b"new"), ("none.txt", b"")];
    let work = to_directory(fixture.files("d", &files).await, &directory);
    let report = fixture.delivered(&work).await;
    assert_eq!(states(&report), [FileState::Copied, FileState::Copied]);
    assert_eq!(
        names(&directory),
        ["none.txt", "report (2).pdf", "report.pdf"]
    );
    assert_eq!(
        std::fs::read(directory.join("report.pdf")).unwrap(),
        b"mine"
    );
    assert_eq!(
        std::fs::read(directory.join("report (2).pdf")).unwrap(),
        b"new"
    );
    let file = &report.files[0];
    assert_eq!(file.platform_message_id, "report (2).pdf");
    assert!(file.platform_file_id.ends_with("/here/report (2).pdf"));
    assert!(
        !report.result_json.contains("here"),
        "no host path for the agent"
    );
}

#[tokio::test]
async fn names_are_cleaned_and_stay_in_the_directory() {
    let mut fixture = DeliveryFixture::new().await;
    with_cli(&mut fixture, Vec::new());
    let directory = fixture.directory().join("here");
    std::fs::create_dir(&directory).unwrap();
    let files: [(&str, &[u8]); 1] = [("../\u{1b}[31m\u{202e}evil.sh", b"x")];
    let work = to_directory(fixture.files("d", &files).await, &directory);
    fixture.delivered(&work).await;
    let names = names(&directory);
    assert_eq!(names.len(), 1);
    assert!(
        !names[0]
            .chars()
            .any(|character| character.is_control() || character == '\u{202e}'),
        "{names:?}"
    );
}

#[tokio::test]
async fn a_directory_that_cannot_be_written_is_skipped_or_the_copy_fails() {
    let mut fixture = DeliveryFixture::new().await;
    let fallback = fixture.directory().join("downloads");
    std::fs::create_dir(&fallback).unwrap();
    with_cli(&mut fixture, vec![fallback.clone()]);
    let missing = fixture.directory().join("missing");
    let work = to_directory(fixture.files("d1", &[("a.txt", b"a")]).await, &missing);
    assert_eq!(states(&fixture.delivered(&work).await), [FileState::Copied]);
    assert_eq!(names(&fallback), ["a.txt"]);
    with_cli(&mut fixture, Vec::new());
    let work = to_directory(fixture.files("d2", &[("a.txt", b"a")]).await, &missing);
    assert_eq!(
        states(&fixture.delivered(&work).await),
        [FileState::Rejected]
    );
    let relative = to_directory(
        fixture.files("d3", &[("a.txt", b"a")]).await,
        std::path::Path::new("x"),
    );
    assert_eq!(
        states(&fixture.delivered(&relative).await),
        [FileState::Rejected]
    );
}

#[tokio::test]
async fn a_copy_whose_record_was_lost_is_found_again() {
    let mut fixture = DeliveryFixture::new().await;
    with_cli(&mut fixture, Vec::new());
    let directory = fixture.directory().join("here");
    std::fs::create_dir(&directory).unwrap();
    let work = to_directory(fixture.files("d", &[("a.txt", b"a")]).await, &directory);
    fixture.delivered(&work).await;
    // The record gets the state that it has after a crash between the copy and its record.
    let meta = fixture.meta("d");
    let key = crate::records::record_key(&meta.tenant, &meta.operation);
    let mut stored = fixture
        .replica
        .receipts
        .log
        .records
        .read(&key)
        .await
        .unwrap()
        .unwrap();
    stored.record.finished = false;
    stored.record.files[0].state = FileState::Sending;
    let DeliveryStep::Done(step) = stored.record.steps.remove(0) else {
        panic!("the file must have been copied");
    };
    stored
        .record
        .steps
        .insert(0, step.deny().begin(fixture.clock.now_ms()).into());
    fixture
        .replica
        .receipts
        .log
        .records
        .write(&key, stored.record, stored.revision)
        .await
        .unwrap();
    let report = fixture.delivered(&work).await;
    assert_eq!(states(&report), [FileState::Copied]);
    assert_eq!(names(&directory), ["a.txt"]);
    assert_eq!(CliAccount::default().name(), "cli");
}
