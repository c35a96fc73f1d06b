//! Tests of the examination of files that may have changed.

use std::fs;
use std::path::PathBuf;

use rcgen::{CertificateParams, KeyPair};

use super::*;

/// A watcher of a certificate and its key in a directory of their own.
async fn open_watcher() -> (ClientTlsWatcher, [PathBuf; 2], tempfile::TempDir) {
    let directory = tempfile::tempdir().unwrap();
    let paths = ["own.pem", "own.key"].map(|name| directory.path().join(name));
    write_pair(&paths);
    let settings = ClientTlsSettings {
        certificate: paths[0].clone(),
        private_key: paths[1].clone(),
        client_authorities: None,
        revocation_lists: None,
        http1_only: false,
        requires_certificate: false,
        clients: Vec::new(),
    };
    let metrics = ProxyMetrics::new(&opentelemetry::global::meter("test"));
    let watcher = ClientTlsWatcher::open(settings, metrics).await.unwrap();
    (watcher, paths, directory)
}

fn write_pair(paths: &[PathBuf; 2]) {
    let key = KeyPair::generate().unwrap();
    let params = CertificateParams::new(vec!["proxy.example.org".to_owned()]).unwrap();
    fs::write(&paths[0], params.self_signed(&key).unwrap().pem()).unwrap();
    fs::write(&paths[1], key.serialize_pem()).unwrap();
}

#[tokio::test]
async fn files_are_read_until_two_reads_agree_and_then_only_after_a_change() {
    let (mut watcher, paths, _directory) = open_watcher().await;
    let first = *watcher.state.in_force();
    // The start has read them once.
    assert!(watcher.reload_changed().await);
    assert!(!watcher.reload_changed().await);
    write_pair(&paths);
    for is_read in [true, true, false] {
        assert_eq!(watcher.reload_changed().await, is_read);
    }
    assert_ne!(*watcher.state.in_force(), first);
}

#[tokio::test]
async fn a_replaced_file_of_the_same_size_and_time_is_read() {
    let (mut watcher, paths, directory) = open_watcher().await;
    watcher.reload_changed().await;
    let modified = fs::metadata(&paths[0]).unwrap().modified().unwrap();
    let copy = directory.path().join("copy.pem");
    fs::copy(&paths[0], &copy).unwrap();
    let file = fs::File::options().write(true).open(&copy).unwrap();
    file.set_modified(modified).unwrap();
    fs::rename(&copy, &paths[0]).unwrap();
    assert!(watcher.reload_changed().await);
}

#[tokio::test]
async fn files_that_cannot_be_used_are_not_read_again_and_a_missing_file_is_looked_for() {
    let (mut watcher, paths, _directory) = open_watcher().await;
    let good = fs::read(&paths[0]).unwrap();
    fs::write(&paths[0], "no certificate").unwrap();
    for is_read in [true, true, false] {
        assert_eq!(watcher.reload_changed().await, is_read);
    }
    assert!(watcher.state.is_rejected());
    fs::remove_file(&paths[0]).unwrap();
    for _ in 0..4 {
        assert!(watcher.reload_changed().await);
    }
    fs::write(&paths[0], good).unwrap();
    for is_read in [true, true, false] {
        assert_eq!(watcher.reload_changed().await, is_read);
    }
    assert!(!watcher.state.is_rejected());
}
