//! Tests of the permissions of files that the endpoint writes.

use std::fs::{self, Permissions};
use std::io::ErrorKind;
use std::os::unix::fs::{PermissionsExt as _, chown};
use std::path::Path;

use super::{TestStore, noise, tenant};
use crate::embedded::{EmbeddedS3, prepare_parent};

/// Every path below, with its permissions.
fn modes(directory: &Path) -> Vec<(String, bool, u32)> {
    let mut modes = Vec::new();
    for entry in fs::read_dir(directory).unwrap() {
        let path = entry.unwrap().path();
        let attributes = fs::symlink_metadata(&path).unwrap();
        let mode = attributes.permissions().mode() & 0o777;
        modes.push((path.display().to_string(), attributes.is_dir(), mode));
        if attributes.is_dir() {
            modes.extend(self::modes(&path));
        }
    }
    modes
}

#[track_caller]
fn assert_private(directory: &Path) {
    let all = modes(directory);
    assert!(all.len() > 5);
    for (path, is_directory, mode) in all {
        let expected = if is_directory { 0o700 } else { 0o600 };
        assert_eq!(mode, expected, "{path} has mode {mode:o}");
    }
    let mode = fs::metadata(directory).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode, 0o700, "the directory itself");
}

fn widen(directory: &Path) {
    for (path, is_directory, _) in modes(directory) {
        let mode = if is_directory { 0o755 } else { 0o644 };
        fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
    }
    fs::set_permissions(directory, Permissions::from_mode(0o755)).unwrap();
}

/// One small object, one in parts, and a part of an upload that is never completed.
async fn fill(fixture: &TestStore) {
    fixture.put(&tenant("t"), "small").await;
    fixture.put(&tenant("t"), noise(10 << 20, 1)).await;
    let client = &fixture.store.inner.clients.inside;
    let (bucket, key) = (&fixture.options.bucket, "other/key");
    let started = client.create_multipart_upload().bucket(bucket).key(key);
    let started = started.send().await.unwrap();
    let part = client.upload_part().bucket(bucket).key(key).part_number(1);
    let part = part.upload_id(started.upload_id().unwrap());
    part.body(noise(1 << 10, 2).into()).send().await.unwrap();
}

#[tokio::test]
async fn creates_every_file_and_directory_only_for_its_owner() {
    let fixture = TestStore::new().await;
    fill(&fixture).await;
    assert_private(fixture.directory.path());
}

#[tokio::test]
async fn restricts_a_directory_that_an_earlier_version_left_readable() {
    let fixture = TestStore::new().await;
    fill(&fixture).await;
    let TestStore {
        endpoint,
        directory,
        ..
    } = fixture;
    endpoint.stop().await;
    widen(directory.path());
    let (_endpoint, _) = EmbeddedS3::start(directory.path()).await.unwrap();
    assert_private(directory.path());
}

#[tokio::test]
async fn refuses_a_directory_of_another_user_with_advice() {
    let directory = tempfile::tempdir().unwrap();
    // Only the superuser can give a directory away; other users cannot create such a directory for the test.
    if chown(directory.path(), Some(12_345), None).is_err() {
        return;
    }
    let error = EmbeddedS3::start(directory.path()).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::PermissionDenied);
    let text = error.to_string();
    assert!(text.contains("12345") && text.contains("`chown`"), "{text}");
}

#[test]
fn restricts_a_state_directory_that_contains_nothing_else() {
    let directory = tempfile::tempdir().unwrap();
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    let missing = directory.path().join("a/state");
    prepare_parent(&missing, &["store"]).unwrap();
    assert_eq!(
        (mode(&missing), mode(missing.parent().unwrap())),
        (0o700, 0o700)
    );

    fs::create_dir(missing.join("store")).unwrap();
    fs::set_permissions(&missing, Permissions::from_mode(0o755)).unwrap();
    prepare_parent(&missing, &["store"]).unwrap();
    assert_eq!(mode(&missing), 0o700);

    // The directory is like a home directory or a project: access to its other files must not change.
    fs::write(missing.join("notes.txt"), "").unwrap();
    fs::set_permissions(&missing, Permissions::from_mode(0o755)).unwrap();
    prepare_parent(&missing, &["store"]).unwrap();
    assert_eq!(mode(&missing), 0o755);
}

#[test]
fn refuses_a_state_directory_that_every_user_may_write_to() {
    let directory = tempfile::tempdir().unwrap();
    fs::write(directory.path().join("notes.txt"), "").unwrap();
    fs::set_permissions(directory.path(), Permissions::from_mode(0o777)).unwrap();
    let error = prepare_parent(directory.path(), &["store"]).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::PermissionDenied);
    assert!(error.to_string().contains("chmod go-w"), "{error}");
    // The sticky bit of a directory such as /tmp keeps users from each other's entries.
    fs::set_permissions(directory.path(), Permissions::from_mode(0o1777)).unwrap();
    prepare_parent(directory.path(), &["store"]).unwrap();
}
