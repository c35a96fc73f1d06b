//! Tests of faults of a real disk.

use std::io::Write as _;
use std::os::unix::fs::MetadataExt as _;
use std::time::Duration;

use dray_sandbox::backend::{Backend as _, BackendCheck, Follow, Read, Write};
use dray_sandbox::body::Body;
use dray_sandbox::error::{Error, ErrorKind};
use dray_sandbox::handle::Address;
use dray_sandbox::metadata::{FileKind, Transport};
use dray_sandbox::path::SandboxPath;

use super::beneath::{read, write};
use super::{DirectoryFixture, NEW_KERNEL, OLD_KERNEL};
use crate::file_stat::FileStat;
use crate::read::is_foreign_link;
use crate::{LocalBackend, LocalOptions};

#[tokio::test]
async fn r_4_hard_links_to_files_of_others_are_refused() {
    let stat = |links, uid| FileStat {
        kind: FileKind::File,
        size: 0,
        mode: 0o600,
        uid,
        gid: 0,
        links,
        mtime_ns: 0,
        ctime_ns: 0,
        born_ns: None,
        identity: (1, 1),
    };
    assert!(is_foreign_link(&stat(2, 0), 1000));
    assert!(!is_foreign_link(&stat(1, 0), 1000));
    assert!(!is_foreign_link(&stat(2, 1000), 1000));

    let fixture = DirectoryFixture::new(NEW_KERNEL);
    let root = fixture.root();
    std::fs::write(fixture.outside().join("other"), "other").unwrap();
    std::fs::hard_link(fixture.outside().join("other"), root.join("link")).unwrap();
    let sandbox = fixture.open().await;
    let ours = sandbox
        .stat(&fixture.path("link"), Follow::Yes)
        .await
        .unwrap();
    assert_eq!(ours.links, Some(2));
    assert_eq!(read(&*sandbox, &ours).await.unwrap(), b"other");
    if !rustix::process::geteuid().is_root() {
        return;
    }
    // Only root can make a file of another user.
    std::os::unix::fs::chown(root.join("link"), Some(65_534), Some(65_534)).unwrap();
    let theirs = sandbox
        .stat(&fixture.path("link"), Follow::Yes)
        .await
        .unwrap();
    let refused = read(&*sandbox, &theirs).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::DeniedPath);
    let refused = sandbox
        .fingerprint(&fixture.path("link"))
        .await
        .unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::DeniedPath);
}

#[tokio::test]
async fn files_belong_to_the_owner_of_the_directory() {
    let fixture = DirectoryFixture::new(NEW_KERNEL);
    if rustix::process::geteuid().is_root() {
        std::os::unix::fs::chown(fixture.root(), Some(65_534), Some(65_533)).unwrap();
    }
    let owner = std::fs::metadata(fixture.root()).unwrap();
    let sandbox = fixture.open().await;
    let path = fixture.path("made/file");
    sandbox.make_directory(&path.parent()).await.unwrap();
    write(&*sandbox, &path, b"x").await.unwrap();
    for created in ["made", "made/file"] {
        let created = std::fs::metadata(fixture.root().join(created)).unwrap();
        assert_eq!((created.uid(), created.gid()), (owner.uid(), owner.gid()));
    }
    let probe = sandbox.probe().await.unwrap();
    assert_eq!((probe.uid, probe.gid), (owner.uid(), owner.gid()));
}

#[tokio::test]
async fn r_2_pseudo_files_are_refused_although_they_report_to_be_regular() {
    let backend = LocalBackend::new(LocalOptions {
        roots: vec!["/proc".into()],
    });
    let own = format!("/proc/{}", std::process::id());
    let address = Address {
        backend: "local".to_owned(),
        name: own.clone(),
    };
    let handle = backend.resolve(&address).await.unwrap();
    let sandbox = backend.open(&handle).await.unwrap();
    let path = SandboxPath::new(format!("{own}/status")).unwrap();
    let file = sandbox.stat(&path, Follow::Yes).await.unwrap();
    assert_eq!((file.kind, file.size), (FileKind::File, 0));
    let refused = read(&*sandbox, &file).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::NotRegular);
    // `/proc/PID/root` is a magic link: the kernel follows it without resolving a path (proc(5)).
    let exe = SandboxPath::new(format!("{own}/root/etc/passwd")).unwrap();
    let refused = sandbox.stat(&exe, Follow::Yes).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::OutsideRoot);
}

#[tokio::test]
async fn more_than_the_disk_holds_is_refused_before_the_first_byte() {
    let fixture = DirectoryFixture::new(NEW_KERNEL);
    let sandbox = fixture.open().await;
    let path = fixture.path("huge");
    let huge = Write {
        transport: Transport::Direct,
        path: &path,
        size: u64::MAX / 2,
        offset: 0,
        mode: 0o644,
    };
    let refused = sandbox.write(huge, Body::from_bytes(&b"x"[..])).await;
    assert_eq!(refused.unwrap_err().kind(), ErrorKind::NoSpace);
    assert_eq!(std::fs::read_dir(fixture.root()).unwrap().count(), 0);
}

#[tokio::test]
async fn a_full_disk_has_its_own_error_kind() {
    use rustix::fs::{CWD, OFlags};
    // `/dev/full` can be opened, and every write to it fails with ENOSPC (full(4)).
    let full = rustix::fs::openat(CWD, "/dev/full", OFlags::WRONLY, rustix::fs::Mode::empty());
    let error = rustix::io::write(full.unwrap(), b"x").unwrap_err();
    let error = crate::errno::failed("write a file")(error);
    assert_eq!(error.kind(), ErrorKind::NoSpace);
    assert!(std::error::Error::source(&error).is_some());
}

#[tokio::test]
async fn a_partial_file_that_is_not_the_one_expected_is_not_continued() {
    let fixture = DirectoryFixture::new(NEW_KERNEL);
    let sandbox = fixture.open().await;
    let path = fixture.path("partial");
    write(&*sandbox, &path, b"12345").await.unwrap();
    std::os::unix::fs::symlink("partial", fixture.root().join("link")).unwrap();
    let resume = |path, offset| Write {
        transport: Transport::Direct,
        path,
        size: 10,
        offset,
        mode: 0o644,
    };
    for offset in [4, 6] {
        let write = resume(&path, offset);
        let refused = sandbox.write(write, Body::from_bytes(&b"67890"[..])).await;
        let kind = refused.unwrap_err().kind();
        assert_eq!(kind, ErrorKind::ChangedDuringTransfer, "{offset}");
    }
    let link = fixture.path("link");
    let refused = sandbox.write(resume(&link, 5), Body::from_bytes(&b"67890"[..]));
    assert_eq!(refused.await.unwrap_err().kind(), ErrorKind::NotRegular);
    let wrong = sandbox.write(resume(&path, 5), Body::from_bytes(&b"678"[..]));
    assert_eq!(wrong.await.unwrap_err().kind(), ErrorKind::Truncated);
}

#[tokio::test]
async fn a_file_of_another_size_than_announced_is_not_read() {
    let fixture = DirectoryFixture::new(NEW_KERNEL);
    let sandbox = fixture.open().await;
    let path = fixture.path("file");
    write(&*sandbox, &path, b"12345").await.unwrap();
    let mut file = sandbox.stat(&path, Follow::Yes).await.unwrap();
    file.size = 4;
    let refused = read(&*sandbox, &file).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::ChangedDuringTransfer);
}

/// Reads the first chunk of a file of 3 MiB, lets `change` change the file, and reads the rest.
async fn read_across(change: impl FnOnce(&std::fs::File)) -> Error {
    let fixture = DirectoryFixture::new(NEW_KERNEL);
    let sandbox = fixture.open().await;
    let path = fixture.path("file");
    std::fs::write(fixture.root().join("file"), vec![1; 3 << 20]).unwrap();
    let file = sandbox.stat(&path, Follow::Yes).await.unwrap();
    let read = Read {
        transport: Transport::Direct,
        file: &file,
        offset: 0,
    };
    let mut body = sandbox.read(read).await.unwrap();
    body.next().await.unwrap().unwrap();
    let mut writer = std::fs::OpenOptions::new();
    change(
        &writer
            .write(true)
            .open(fixture.root().join("file"))
            .unwrap(),
    );
    body.read_all(4 << 20).await.unwrap_err()
}

#[tokio::test]
async fn a_file_rewritten_with_the_same_size_is_noticed_at_its_end() {
    let error = read_across(|mut file| {
        file.write_all(&vec![2; 3 << 20]).unwrap();
        // Two writes within one tick of the kernel's clock may leave the same time.
        let later = file.metadata().unwrap().modified().unwrap() + Duration::from_secs(1);
        file.set_modified(later).unwrap();
    });
    assert_eq!(error.await.kind(), ErrorKind::ChangedDuringTransfer);
}

#[tokio::test]
async fn a_file_that_becomes_shorter_while_it_is_read_changed() {
    let error = read_across(|file| file.set_len(1 << 20).unwrap());
    assert_eq!(error.await.kind(), ErrorKind::ChangedDuringTransfer);
}

#[tokio::test]
async fn a_tree_deeper_than_any_path_is_removed() {
    let fixture = DirectoryFixture::new(NEW_KERNEL);
    let sandbox = fixture.open().await;
    let deep = fixture.root().join("deep");
    std::fs::create_dir(&deep).unwrap();
    let name = "d".repeat(200);
    let mut here = rustix::fs::openat(
        rustix::fs::CWD,
        &deep,
        rustix::fs::OFlags::DIRECTORY,
        rustix::fs::Mode::empty(),
    )
    .unwrap();
    for _ in 0..300 {
        rustix::fs::mkdirat(&here, &name, 0o755.into()).unwrap();
        let flags = rustix::fs::OFlags::DIRECTORY;
        here = rustix::fs::openat(&here, &name, flags, rustix::fs::Mode::empty()).unwrap();
    }
    let listing = sandbox
        .list(&fixture.path("deep"), 1000, 1000)
        .await
        .unwrap();
    assert!(listing.truncated && listing.entries.len() > 10);
    sandbox.remove(&fixture.path("deep"), true).await.unwrap();
    assert_eq!(std::fs::read_dir(fixture.root()).unwrap().count(), 0);
    let itself = SandboxPath::new(fixture.address_name()).unwrap();
    let refused = sandbox.remove(&itself, true).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::OutsideRoot);
}

#[tokio::test]
async fn a_rename_without_renameat2_claims_the_name_too() {
    let fixture = DirectoryFixture::new(OLD_KERNEL);
    let sandbox = fixture.open().await;
    let (from, to) = (fixture.path("from"), fixture.path("to"));
    write(&*sandbox, &from, b"moved").await.unwrap();
    assert!(sandbox.rename(&from, &to, false).await.unwrap());
    let moved = std::fs::metadata(fixture.root().join("to")).unwrap();
    assert_eq!(moved.nlink(), 1);
    write(&*sandbox, &from, b"again").await.unwrap();
    let refused = sandbox.rename(&from, &to, false).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Exists);
}

#[tokio::test]
async fn r_15_agents_get_no_path_of_the_host() {
    let fixture = DirectoryFixture::new(NEW_KERNEL);
    let sandbox = fixture.open().await;
    let missing = sandbox.stat(&fixture.path("missing"), Follow::Yes).await;
    let error = missing.unwrap_err();
    let host = fixture.root().display().to_string();
    assert!(!error.kind().sentence().contains('/'));
    assert!(!error.to_string().contains(&host), "{error}");
}

#[tokio::test]
async fn a_file_whose_modification_time_is_set_back_has_another_change_marker() {
    let fixture = DirectoryFixture::new(NEW_KERNEL);
    let file = fixture.root().join("file");
    std::fs::write(&file, "one").unwrap();
    let modified = std::fs::metadata(&file).unwrap().modified().unwrap();
    let sandbox = fixture.open().await;
    let path = fixture.path("file");
    let before = sandbox.change_marker(&path).await.unwrap().unwrap();
    let repeated = sandbox.change_marker(&path).await.unwrap().unwrap();
    assert_eq!(before, repeated);
    // The clock of the file system ticks every few milliseconds: within a tick all changes have one time.
    let wait = async {
        loop {
            let mut written = std::fs::File::create(&file).unwrap();
            written.write_all(b"two").unwrap();
            written.set_modified(modified).unwrap();
            let after = sandbox.change_marker(&path).await.unwrap().unwrap();
            let stat = std::fs::metadata(&file).unwrap();
            assert_eq!((stat.len(), stat.modified().unwrap()), (3, modified));
            if after != before {
                break;
            }
        }
    };
    tokio::time::timeout(Duration::from_secs(30), wait)
        .await
        .unwrap();
    // A file that took the name of another has another inode.
    let before = sandbox.change_marker(&path).await.unwrap();
    std::fs::write(fixture.root().join("new"), "two").unwrap();
    std::fs::rename(fixture.root().join("new"), &file).unwrap();
    assert_ne!(sandbox.change_marker(&path).await.unwrap(), before);
}

#[tokio::test]
async fn a_check_counts_the_directories_that_can_be_read_and_names_no_path() {
    let directory = tempfile::tempdir().unwrap();
    let backend = |roots: Vec<std::path::PathBuf>| LocalBackend::new(LocalOptions { roots });
    let none = backend(Vec::new()).check().await.unwrap();
    assert!(matches!(none, BackendCheck::Unverified(_)), "{none:?}");
    let ready = backend(vec![directory.path().to_owned()])
        .check()
        .await
        .unwrap();
    assert!(matches!(ready, BackendCheck::Ready(_)), "{ready:?}");
    let gone = directory.path().join("gone");
    let failed = backend(vec![directory.path().to_owned(), gone])
        .check()
        .await;
    let failed = failed.unwrap_err();
    assert!(failed.context().contains("directory 2"), "{failed}");
    assert!(!failed.context().contains("gone"), "{failed}");
}
