//! Tests of full and read-only file systems. The tests mount small ones, and pass without a check where mounting is not
//! permitted.

use std::path::{Path, PathBuf};
use std::process::Command;

use dray_sandbox::{Body, ErrorKind, Sandbox, SandboxPath, Transport, Write};
use dray_testkit::sshd::SshdOptions;

use crate::{SshFixture, kind, write};

/// A file system in memory.
struct MemoryMount(PathBuf);

impl MemoryMount {
    /// Mounts the file system; `None` when this user or this machine may not mount.
    fn new(at: &Path, options: &str) -> Option<Self> {
        std::fs::create_dir(at).unwrap();
        let done = Command::new("mount")
            .args(["-t", "tmpfs", "-o", options, "tmpfs"])
            .arg(at)
            .output();
        done.is_ok_and(|done| done.status.success())
            .then(|| Self(at.to_owned()))
    }
}

impl Drop for MemoryMount {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg("-l").arg(&self.0).status();
    }
}

async fn put(sandbox: &dyn Sandbox, path: &SandboxPath, bytes: &[u8]) -> ErrorKind {
    let size = bytes.len() as u64;
    let write = Write {
        transport: Transport::Sftp,
        path,
        size,
        offset: 0,
        mode: 0o644,
    };
    kind(sandbox.write(write, Body::from_bytes(bytes.to_vec())).await)
}

#[tokio::test]
async fn a_full_disk_is_reported_before_and_while_writing() {
    let host = SshFixture::start(&SshdOptions::default());
    let sandbox = host.open().await;
    let small = host.session().join("small");
    let Some(_mount) = MemoryMount::new(&small, "size=1m") else {
        return;
    };
    let path = host.path("small").join("file").unwrap();
    assert_eq!(
        put(&*sandbox, &path, &vec![1; 2 << 20]).await,
        ErrorKind::NoSpace
    );
    assert!(!small.join("file").exists(), "no file was created");
    // The disk fills up during the write.
    let filler = small.join("filler");
    let chunks = futures_util::stream::unfold(0, move |index| {
        if index == 1 {
            std::fs::write(&filler, vec![0; 700 << 10]).unwrap();
        }
        let chunk = Ok(bytes::Bytes::from(vec![2; 256 << 10]));
        std::future::ready((index < 2).then_some((chunk, index + 1)))
    });
    let write = Write {
        transport: Transport::Sftp,
        path: &path,
        size: 512 << 10,
        offset: 0,
        mode: 0o644,
    };
    let full = sandbox.write(write, Body::new(chunks)).await;
    assert_eq!(kind(full), ErrorKind::NoSpace);
    sandbox.remove(&path, false).await.unwrap();
}

#[tokio::test]
async fn a_read_only_file_system_is_reported() {
    let host = SshFixture::start(&SshdOptions::default());
    let sandbox = host.open().await;
    let Some(_mount) = MemoryMount::new(&host.session().join("fixed"), "ro") else {
        return;
    };
    let fixed = host.path("fixed");
    let path = fixed.join("file").unwrap();
    assert_eq!(
        kind(write(&*sandbox, &path, b"x").await),
        ErrorKind::ReadOnly
    );
    assert_eq!(
        kind(sandbox.make_directory(&path).await),
        ErrorKind::ReadOnly
    );
}
