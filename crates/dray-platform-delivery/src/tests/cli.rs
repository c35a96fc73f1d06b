//! Copies on the command line: never over a file, never half a file.

use std::sync::Arc;

use dray_platform::Platform as _;
use dray_proto::v1;

use super::world::{DeliveryFixture, states};
use crate::accounts::{AccountRegistry, PlatformAccount};
use crate::cli::CliAccount;
use crate::deliver::DeliveryService;
use crate::report::state;

fn with_cli(world: &mut DeliveryFixture, fallbacks: Vec<std::path::PathBuf>) {
    let cx = dray_service::ServiceContext::new(
        world.bus.clone(),
        world.store.clone(),
        world.clock.clone(),
    );
    let accounts = AccountRegistry::new([PlatformAccount::new(
        "cli",
        Arc::new(CliAccount::new(fallbacks)),
    )]);
    world.desk = Arc::new(DeliveryService::new(
        world.desk.config.clone(),
        accounts,
        &cx,
    ));
}

fn to(work: v1::DeliverFiles, folder: &std::path::Path) -> v1::DeliverFiles {
    v1::DeliverFiles {
        target: Some(v1::ChatTarget {
            platform: "cli".to_owned(),
            chat: folder.to_string_lossy().into_owned(),
            ..v1::ChatTarget::default()
        }),
        ..work
    }
}

fn names(folder: &std::path::Path) -> Vec<String> {
    let mut names: Vec<_> = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned())
        .collect();
    names.sort();
    names
}

#[tokio::test]
async fn a_copy_takes_a_free_name_and_leaves_nothing_else_behind() {
    let mut world = DeliveryFixture::new().await;
    with_cli(&mut world, Vec::new());
    let folder = world.folder().join("here");
    std::fs::create_dir(&folder).unwrap();
    std::fs::write(folder.join("report.pdf"), "mine").unwrap();
    let files: [(&str, &[u8]); 2] = [("report.pdf", b"new"), ("none.txt", b"")];
    let work = to(world.files("d", &files).await, &folder);
    let report = world.delivered(&work).await;
    assert_eq!(states(&report), [state::STATE_COPIED, state::STATE_COPIED]);
    assert_eq!(names(&folder), ["none.txt", "report (2).pdf", "report.pdf"]);
    assert_eq!(std::fs::read(folder.join("report.pdf")).unwrap(), b"mine");
    assert_eq!(
        std::fs::read(folder.join("report (2).pdf")).unwrap(),
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
async fn names_are_clean_and_stay_in_the_folder() {
    let mut world = DeliveryFixture::new().await;
    with_cli(&mut world, Vec::new());
    let folder = world.folder().join("here");
    std::fs::create_dir(&folder).unwrap();
    let files: [(&str, &[u8]); 1] = [("../\u{1b}[31m\u{202e}evil.sh", b"x")];
    let work = to(world.files("d", &files).await, &folder);
    world.delivered(&work).await;
    let names = names(&folder);
    assert_eq!(names.len(), 1);
    assert!(
        !names[0].chars().any(|c| c.is_control() || c == '\u{202e}'),
        "{names:?}"
    );
}

#[tokio::test]
async fn a_folder_that_cannot_be_written_gives_way_to_the_next_or_fails() {
    let mut world = DeliveryFixture::new().await;
    let fallback = world.folder().join("downloads");
    std::fs::create_dir(&fallback).unwrap();
    with_cli(&mut world, vec![fallback.clone()]);
    let missing = world.folder().join("missing");
    let work = to(world.files("d1", &[("a.txt", b"a")]).await, &missing);
    assert_eq!(states(&world.delivered(&work).await), [state::STATE_COPIED]);
    assert_eq!(names(&fallback), ["a.txt"]);
    with_cli(&mut world, Vec::new());
    let work = to(world.files("d2", &[("a.txt", b"a")]).await, &missing);
    assert_eq!(
        states(&world.delivered(&work).await),
        [state::STATE_REJECTED]
    );
    let relative = to(
        world.files("d3", &[("a.txt", b"a")]).await,
        std::path::Path::new("x"),
    );
    assert_eq!(
        states(&world.delivered(&relative).await),
        [state::STATE_REJECTED]
    );
}

#[tokio::test]
async fn a_copy_whose_answer_was_lost_is_found_again() {
    let mut world = DeliveryFixture::new().await;
    with_cli(&mut world, Vec::new());
    let folder = world.folder().join("here");
    std::fs::create_dir(&folder).unwrap();
    let work = to(world.files("d", &[("a.txt", b"a")]).await, &folder);
    world.delivered(&work).await;
    // As a crash between the copy and the record leaves it.
    let meta = world.meta("d");
    let key = crate::records::record_key(&meta.tenant, &meta.operation);
    let mut held = world.desk.records.read(&key).await.unwrap().unwrap();
    held.report.finished = false;
    held.report.files[0].state = state::STATE_SENDING.to_owned();
    held.report.steps[0].state = "sending".to_owned();
    held.report.steps[0].confirmed.clear();
    world
        .desk
        .records
        .write(&key, held.report, held.revision)
        .await
        .unwrap();
    let report = world.delivered(&work).await;
    assert_eq!(states(&report), [state::STATE_COPIED]);
    assert_eq!(names(&folder), ["a.txt"]);
    assert_eq!(CliAccount::default().name(), "cli");
}
