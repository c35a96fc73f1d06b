//! Tests of directories that are walked file by file.

use std::os::unix::fs::symlink;
use std::sync::Arc;

use dray_sandbox::backend::{Backend as _, Sandbox};
use dray_sandbox::error::{Error, ErrorKind};
use dray_sandbox::handle::Address;
use dray_sandbox::path::SandboxPath;
use dray_sandbox_local::{LocalBackend, LocalOptions};

use super::all;
use crate::{Limits, Members as _, SkipReason, Walk};

struct WalkFixture {
    directory: tempfile::TempDir,
    sandbox: Arc<dyn Sandbox>,
    root: SandboxPath,
}

async fn start_fixture() -> WalkFixture {
    let directory = tempfile::tempdir().unwrap();
    let real = directory.path().canonicalize().unwrap();
    let address = Address {
        backend: "local".to_owned(),
        name: real.to_str().unwrap().to_owned(),
    };
    let backend = LocalBackend::new(LocalOptions { roots: vec![real] });
    let handle = backend.resolve(&address).await.unwrap();
    let sandbox = backend.open(&handle).await.unwrap();
    let root = SandboxPath::new(address.name).unwrap();
    WalkFixture {
        directory,
        sandbox,
        root,
    }
}

impl WalkFixture {
    async fn walk(&self, limits: Limits) -> Result<Walk, Error> {
        Walk::open(Arc::clone(&self.sandbox), self.root.clone(), limits).await
    }
}

#[tokio::test]
async fn a_walk_yields_the_same_members_as_a_tar() {
    let fixture = start_fixture().await;
    let root = fixture.directory.path();
    std::fs::create_dir_all(root.join("d/e")).unwrap();
    std::fs::write(root.join("d/e/deep"), "deep").unwrap();
    std::fs::write(root.join("a"), "first").unwrap();
    std::fs::write(root.join("empty"), "").unwrap();
    std::fs::write(root.join("README"), "1").unwrap();
    std::fs::write(root.join("readme"), "2").unwrap();
    symlink("a", root.join("link")).unwrap();
    rustix::fs::mknodat(
        rustix::fs::CWD,
        root.join("pipe"),
        rustix::fs::FileType::Fifo,
        0o600.into(),
        0,
    )
    .unwrap();
    let mut walk = fixture.walk(Limits::default()).await.unwrap();
    let found = all(&mut walk).await.unwrap();
    let expected = [
        ("README", "1"),
        ("a", "first"),
        ("d/", ""),
        ("d/e/", ""),
        ("d/e/deep", "deep"),
        ("empty", ""),
        ("readme_2", "2"),
    ];
    let expected = expected.map(|(name, text)| (name.to_owned(), text.as_bytes().to_vec()));
    assert_eq!(found, expected);
    let reasons: Vec<_> = walk
        .report()
        .skipped()
        .into_iter()
        .map(|entry| entry.reason)
        .collect();
    assert_eq!(reasons, [SkipReason::Link, SkipReason::Special]);
}

#[tokio::test]
async fn a_walk_has_the_limits_of_a_tar() {
    let fixture = start_fixture().await;
    let root = fixture.directory.path();
    std::fs::create_dir_all(root.join("d/e")).unwrap();
    for name in ["a", "b", "d/c", "d/e/f"] {
        std::fs::write(root.join(name), [0; 100]).unwrap();
    }
    std::fs::write(root.join("large"), [0; 200]).unwrap();
    let limits = Limits {
        entries: 7,
        total: 400,
        file: 150,
        depth: 2,
        names: 100,
    };
    let mut walk = fixture.walk(limits).await.unwrap();
    let found = all(&mut walk).await.unwrap();
    let names: Vec<_> = found.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["a", "b", "d/", "d/c", "d/e/"]);
    let reasons: Vec<_> = walk
        .report()
        .skipped()
        .into_iter()
        .map(|entry| entry.reason)
        .collect();
    assert_eq!(reasons, [SkipReason::TooDeep, SkipReason::TooLarge]);

    let fewer = Limits {
        entries: 6,
        ..limits
    };
    let error = fixture.walk(fewer).await.unwrap_err();
    assert_eq!(error.numbers(), Some((7, 6)));
    assert!(error.counts_entries());
    let less = Limits {
        total: 299,
        ..limits
    };
    let error = all(&mut fixture.walk(less).await.unwrap())
        .await
        .unwrap_err();
    assert_eq!(error.numbers(), Some((300, 299)));
    let shorter = Limits { names: 5, ..limits };
    let error = all(&mut fixture.walk(shorter).await.unwrap())
        .await
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::TooLarge);
}

#[tokio::test]
async fn files_that_vanish_before_their_turn_are_reported() {
    let fixture = start_fixture().await;
    let root = fixture.directory.path();
    for name in ["a", "b", "c"] {
        std::fs::write(root.join(name), name).unwrap();
    }
    let filter = |name: &[u8]| name != b"c";
    let walk = fixture.walk(Limits::default()).await.unwrap();
    let mut walk = walk.filtered(Box::new(filter));
    walk.next().await.unwrap().unwrap();
    std::fs::remove_file(root.join("b")).unwrap();
    assert_eq!(all(&mut walk).await.unwrap(), []);
    let reasons: Vec<_> = walk
        .report()
        .skipped()
        .into_iter()
        .map(|entry| entry.reason)
        .collect();
    assert_eq!(reasons, [SkipReason::Unreadable, SkipReason::Denied]);
}

#[tokio::test]
async fn a_directory_that_cannot_be_read_is_reported_and_an_empty_one_is_kept() {
    let fixture = start_fixture().await;
    let root = fixture.directory.path();
    for name in ["empty", "gone"] {
        std::fs::create_dir(root.join(name)).unwrap();
    }
    let mut walk = fixture.walk(Limits::default()).await.unwrap();
    // Root can read every directory, so this one is gone before it is read.
    std::fs::remove_dir(root.join("gone")).unwrap();
    assert_eq!(
        all(&mut walk).await.unwrap(),
        [("empty/".to_owned(), Vec::<u8>::new())]
    );
    let skipped = walk.report().skipped();
    assert_eq!(
        (skipped[0].name.as_str(), skipped[0].reason),
        ("gone", SkipReason::Unreadable)
    );
}
