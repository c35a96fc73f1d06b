//! Tests of a directory that is served again after a restart, or by two processes.

use std::io::ErrorKind;
use std::os::unix::fs::PermissionsExt as _;

use dray_types::Clock;

use crate::Store;
use crate::embedded::{EmbeddedS3, is_long_lived, serving_options};

#[tokio::test]
async fn port_and_credentials_survive_a_restart_so_that_links_stay_valid() {
    let directory = tempfile::tempdir().unwrap();
    let (server, before) = EmbeddedS3::start(directory.path()).await.unwrap();
    server.stop().await;
    let (_server, after) = EmbeddedS3::start(directory.path()).await.unwrap();
    assert_eq!(after.endpoint, before.endpoint);
    assert_eq!(after.access_key, before.access_key);
    assert_eq!(after.secret_key, before.secret_key);
}

#[tokio::test]
async fn derived_keys_survive_a_restart_and_differ_by_purpose_and_credentials() {
    let directory = tempfile::tempdir().unwrap();
    let open = async |directory: &std::path::Path| {
        let (server, options) = EmbeddedS3::start(directory).await.unwrap();
        let store = Store::open(&options, Clock::system()).await.unwrap();
        let keys = (store.derive_keys("names"), store.derive_keys("other"));
        server.stop().await;
        keys
    };
    let before = open(directory.path()).await;
    assert_eq!(open(directory.path()).await, before);
    assert_ne!(before.0, before.1);
    let elsewhere = tempfile::tempdir().unwrap();
    assert_ne!(open(elsewhere.path()).await.0, before.0);
}

#[tokio::test]
async fn a_port_that_was_taken_meanwhile_is_replaced() {
    let directory = tempfile::tempdir().unwrap();
    let (server, before) = EmbeddedS3::start(directory.path()).await.unwrap();
    let address = server.address();
    server.stop().await;
    let _taken = std::net::TcpListener::bind(address).unwrap();
    let (_server, after) = EmbeddedS3::start(directory.path()).await.unwrap();
    assert_ne!(after.endpoint, before.endpoint);
}

#[tokio::test]
async fn a_second_process_reads_how_to_reach_the_first() {
    let directory = tempfile::tempdir().unwrap();
    let (_server, options) = EmbeddedS3::start(directory.path()).await.unwrap();
    let refused = EmbeddedS3::start(directory.path()).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::ResourceBusy);
    let of_first = serving_options(directory.path()).unwrap();
    assert_eq!(
        (&of_first.endpoint, &of_first.access_key),
        (&options.endpoint, &options.access_key)
    );
}

#[tokio::test]
async fn the_mark_of_a_long_lived_process_ends_with_it() {
    let directory = tempfile::tempdir().unwrap();
    let (server, before) = EmbeddedS3::start(directory.path()).await.unwrap();
    assert!(!is_long_lived(directory.path()));
    server.mark_long_lived().unwrap();
    assert!(is_long_lived(directory.path()));
    server.stop().await;
    assert!(!is_long_lived(directory.path()));
    // A killed process leaves its mark to the next one, which may be a short command.
    let (server, _) = EmbeddedS3::start(directory.path()).await.unwrap();
    server.mark_long_lived().unwrap();
    let file = directory.path().join("endpoint.json");
    let marked = std::fs::read(&file).unwrap();
    server.stop().await;
    std::fs::write(&file, marked).unwrap();
    let (_server, after) = EmbeddedS3::start(directory.path()).await.unwrap();
    assert!(!is_long_lived(directory.path()));
    assert_eq!(after.endpoint, before.endpoint);
}

#[tokio::test]
async fn credentials_are_readable_only_by_the_owner_and_damaged_ones_are_replaced() {
    let directory = tempfile::tempdir().unwrap();
    let (server, before) = EmbeddedS3::start(directory.path()).await.unwrap();
    server.stop().await;
    let file = directory.path().join("endpoint.json");
    assert_eq!(
        std::fs::metadata(&file).unwrap().permissions().mode() & 0o777,
        0o600
    );
    std::fs::write(&file, "{").unwrap();
    let (_server, after) = EmbeddedS3::start(directory.path()).await.unwrap();
    assert_ne!(after.access_key, before.access_key);
}
