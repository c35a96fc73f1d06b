//! Tests that no file outside the directory is reached, with any path, any link, and any change during a call.

use std::os::unix::fs::symlink;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use dray_sandbox::backend::{Backend as _, Follow, Read, Sandbox, Write};
use dray_sandbox::body::Body;
use dray_sandbox::error::{Error, ErrorKind};
use dray_sandbox::handle::Address;
use dray_sandbox::metadata::{FileKind, Metadata, Transport};
use dray_sandbox::path::SandboxPath;
use dray_sandbox_conformance::Fixture as _;

use super::{DirectoryFixture, NEW_KERNEL, OLD_KERNEL};
use crate::root::Root;
use crate::{LocalBackend, LocalOptions};

pub(super) async fn read(sandbox: &dyn Sandbox, file: &Metadata) -> Result<Vec<u8>, Error> {
    let read = Read {
        transport: Transport::Direct,
        file,
        offset: 0,
    };
    sandbox.read(read).await?.read_all(1 << 20).await
}

pub(super) async fn write(
    sandbox: &dyn Sandbox,
    path: &SandboxPath,
    bytes: &'static [u8],
) -> Result<(), Error> {
    let write = Write {
        transport: Transport::Direct,
        path,
        size: bytes.len() as u64,
        offset: 0,
        mode: 0o644,
    };
    sandbox.write(write, Body::from_bytes(bytes)).await
}

#[tokio::test]
async fn links_that_lead_out_are_outside_for_every_operation() {
    for kernel in [NEW_KERNEL, OLD_KERNEL] {
        let fixture = DirectoryFixture::new(kernel);
        let root = fixture.root();
        std::fs::write(fixture.outside().join("secret"), "secret").unwrap();
        std::fs::create_dir(fixture.outside().join("beside")).unwrap();
        symlink("/etc/passwd", root.join("absolute")).unwrap();
        symlink("../secret", root.join("relative")).unwrap();
        symlink("../../../../../../../etc/passwd", root.join("high")).unwrap();
        symlink("..", root.join("up")).unwrap();
        symlink("../beside", root.join("beside")).unwrap();
        symlink("/proc/self/root/etc/passwd", root.join("magic")).unwrap();
        let sandbox = fixture.open().await;
        for name in [
            "absolute",
            "relative",
            "high",
            "up",
            "beside",
            "magic",
            "up/secret",
            "up/box/up/secret",
        ] {
            let path = fixture.path(name);
            let followed = sandbox.stat(&path, Follow::Yes).await.unwrap_err();
            assert_eq!(followed.kind(), ErrorKind::OutsideRoot, "{name}");
            let digest = sandbox.fingerprint(&path).await.unwrap_err();
            assert_eq!(digest.kind(), ErrorKind::OutsideRoot, "{name}");
        }
        for name in ["beside/new", "up/new"] {
            let path = fixture.path(name);
            for refused in [
                write(&*sandbox, &path, b"x").await.unwrap_err(),
                sandbox.make_directory(&path).await.unwrap_err(),
                sandbox.remove(&path, true).await.unwrap_err(),
                sandbox
                    .rename(&fixture.path("high"), &path, true)
                    .await
                    .unwrap_err(),
                sandbox.list(&path.parent(), 1, 10).await.unwrap_err(),
            ] {
                assert_eq!(refused.kind(), ErrorKind::OutsideRoot, "{name}");
            }
        }
        assert_eq!(std::fs::read_dir(fixture.outside()).unwrap().count(), 3);
    }
}

#[tokio::test]
async fn paths_of_the_host_that_lie_elsewhere_are_outside() {
    let fixture = DirectoryFixture::new(NEW_KERNEL);
    let sandbox = fixture.open().await;
    for path in ["/etc/passwd", "/", "/proc/self/environ"] {
        let path = SandboxPath::new(path).unwrap();
        let error = sandbox.stat(&path, Follow::No).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::OutsideRoot);
    }
    // A name that only begins like the directory.
    let beside = format!("{}-beside", fixture.root().display());
    std::fs::write(&beside, "x").unwrap();
    let beside = SandboxPath::new(beside).unwrap();
    let error = sandbox.stat(&beside, Follow::Yes).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::OutsideRoot);
}

#[tokio::test]
async fn absolute_and_relative_links_inside_are_followed() {
    for kernel in [NEW_KERNEL, OLD_KERNEL] {
        let fixture = DirectoryFixture::new(kernel);
        let root = fixture.root();
        std::fs::create_dir_all(root.join("a/b")).unwrap();
        std::fs::write(root.join("a/file"), "inside").unwrap();
        symlink(root.join("a"), root.join("whole")).unwrap();
        symlink("../../a/./b/../file", root.join("a/b/odd")).unwrap();
        symlink(root.join("whole/b"), root.join("twice")).unwrap();
        symlink(&root, root.join("a/top")).unwrap();
        let sandbox = fixture.open().await;
        for name in ["twice/odd", "a/top/whole/b/odd", "whole/top/a/file"] {
            let file = sandbox
                .stat(&fixture.path(name), Follow::Yes)
                .await
                .unwrap();
            assert_eq!(file.real_path, fixture.path("a/file"), "{name}");
            assert_eq!(read(&*sandbox, &file).await.unwrap(), b"inside");
        }
        let top = sandbox.stat(&fixture.path("a/top"), Follow::Yes).await;
        assert_eq!(top.unwrap().kind, FileKind::Directory);
        let error = sandbox.stat(&fixture.path("a/file/x"), Follow::Yes).await;
        assert_eq!(error.unwrap_err().kind(), ErrorKind::NotDirectory);
    }
}

#[tokio::test]
async fn a_path_that_is_swapped_continuously_never_shows_files_outside() {
    for kernel in [NEW_KERNEL, OLD_KERNEL] {
        let fixture = DirectoryFixture::new(kernel);
        let root = fixture.root();
        std::fs::create_dir(fixture.outside().join("secrets")).unwrap();
        std::fs::write(fixture.outside().join("secrets/file"), "secret").unwrap();
        std::fs::create_dir(root.join("door")).unwrap();
        std::fs::write(root.join("door/file"), "inside").unwrap();
        symlink(fixture.outside().join("secrets"), root.join("trap")).unwrap();
        let stop = Arc::new(AtomicBool::new(false));
        let swapper = {
            let (stop, root) = (Arc::clone(&stop), root.clone());
            std::thread::spawn(move || {
                let exchange = rustix::fs::RenameFlags::EXCHANGE;
                while !stop.load(Ordering::Relaxed) {
                    let (door, trap) = (root.join("door"), root.join("trap"));
                    rustix::fs::renameat_with(
                        rustix::fs::CWD,
                        &door,
                        rustix::fs::CWD,
                        &trap,
                        exchange,
                    )
                    .unwrap();
                }
            })
        };
        let sandbox = fixture.open().await;
        let path = fixture.path("door/file");
        let (mut read_inside, mut refused) = (0, 0);
        for _ in 0..20_000 {
            if read_inside >= 20 && refused >= 20 {
                break;
            }
            let stat = match sandbox.stat(&path, Follow::Yes).await {
                Ok(file) => read(&*sandbox, &file).await,
                Err(error) => Err(error),
            };
            match stat {
                Ok(bytes) => {
                    assert_eq!(bytes, b"inside");
                    read_inside += 1;
                }
                Err(error) => {
                    use ErrorKind::{ChangedDuringTransfer, Loop, NotDirectory, OutsideRoot};
                    let kinds = [ChangedDuringTransfer, Loop, NotDirectory, OutsideRoot];
                    assert!(kinds.contains(&error.kind()), "{error}");
                    refused += 1;
                }
            }
        }
        stop.store(true, Ordering::Relaxed);
        swapper.join().unwrap();
        assert!(
            read_inside >= 20 && refused >= 20,
            "{read_inside} {refused}"
        );
    }
}

async fn resolve(roots: &[&std::path::Path], name: &str) -> Result<(), ErrorKind> {
    let backend = LocalBackend::new(LocalOptions {
        roots: roots.iter().map(|root| (*root).to_owned()).collect(),
    });
    let address = Address {
        backend: "local".to_owned(),
        name: name.to_owned(),
    };
    match backend.resolve(&address).await {
        Ok(handle) => {
            backend.open(&handle).await.unwrap();
            Ok(())
        }
        Err(error) => Err(error.kind()),
    }
}

#[tokio::test]
async fn only_allowed_directories_are_sandboxes() {
    let fixture = DirectoryFixture::new(NEW_KERNEL);
    let allowed = fixture.outside();
    let name = fixture.address().name;
    let other = tempfile::tempdir().unwrap();
    symlink(other.path(), allowed.join("out")).unwrap();
    symlink("box", allowed.join("in")).unwrap();
    std::fs::write(allowed.join("file"), "x").unwrap();
    let beneath = |part: &str| format!("{}/{part}", allowed.display());

    let outside = Err(ErrorKind::OutsideRoot);
    assert_eq!(resolve(&[], &name).await, outside);
    assert_eq!(resolve(&[other.path()], &name).await, outside);
    assert_eq!(resolve(&[allowed], &name).await, Ok(()));
    assert_eq!(
        resolve(&[other.path(), &fixture.root()], &name).await,
        Ok(())
    );
    assert_eq!(resolve(&[allowed], &beneath("in")).await, Ok(()));
    assert_eq!(resolve(&[allowed], &beneath("out")).await, outside);
    assert_eq!(resolve(&[allowed], &beneath("box/..")).await, outside);
    assert_eq!(resolve(&[allowed], "/etc").await, outside);
    assert_eq!(resolve(&[allowed], "/not/there").await, outside);
    for nothing in ["", ".", "relative"] {
        assert_eq!(resolve(&[nothing.as_ref()], &name).await, outside);
    }
    let gone = Err(ErrorKind::SandboxGone);
    assert_eq!(resolve(&[allowed], &beneath("missing")).await, gone);
    assert_eq!(resolve(&[allowed], &beneath("file")).await, gone);
    let invalid = Err(ErrorKind::InvalidName);
    assert_eq!(resolve(&[allowed], "box").await, invalid);
}

#[tokio::test]
async fn r_1_a_recreated_directory_is_another_sandbox() {
    let fixture = DirectoryFixture::new(NEW_KERNEL);
    let backend = fixture.backend();
    let before = backend.resolve(&fixture.address()).await.unwrap();
    let old = backend.open(&before).await.unwrap();
    // Some file systems reuse an inode number immediately.
    assert!(fixture.replace().await);
    let after = backend.resolve(&fixture.address()).await.unwrap();
    assert_ne!(before.incarnation, after.incarnation);
    let error = backend.open(&before).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::SandboxGone);
    let probe = old.probe().await.unwrap_err();
    assert_eq!(probe.kind(), ErrorKind::SandboxGone);
    backend.open(&after).await.unwrap();
}

#[test]
fn a_directory_above_that_becomes_a_link_after_the_check_is_not_followed() {
    for kernel in [NEW_KERNEL, OLD_KERNEL] {
        let fixture = DirectoryFixture::new(kernel);
        std::fs::create_dir(fixture.root().join("inner")).unwrap();
        let real = fixture.root().join("inner");
        Root::open_at(&real, &real, kernel).unwrap();
        std::fs::rename(fixture.root(), fixture.outside().join("moved")).unwrap();
        symlink("moved", fixture.root()).unwrap();
        assert!(real.is_dir());
        let refused = Root::open_at(&real, &real, kernel).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::SandboxGone);
    }
}
