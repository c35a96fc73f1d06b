//! Tests of faults of files and hosts (sandbox-transfer 5.2, 5.5).

use std::time::Duration;

use dray_sandbox::{
    Backend as _, Body, Error, ErrorKind, FileKind, Fingerprint, Follow, Metadata, Read, Transport,
    Write,
};
use dray_sandbox_ssh::{Config, SshBackend};
use dray_testkit::sshd::SshdOptions;
use dray_types::{Period, Sha256Digest};
use futures_util::stream;

use crate::{SshFixture, begin_read, kind, open, read, write};

/// The metadata that `stat` would have returned for a regular file at this path.
fn as_file(found: Metadata) -> Metadata {
    Metadata {
        kind: FileKind::File,
        ..found
    }
}

#[tokio::test]
async fn r_2_reading_a_fifo_or_a_directory_fails_without_blocking() {
    let host = SshFixture::start(&SshdOptions::default());
    let sandbox = host.open().await;
    let exit_status = std::process::Command::new("mkfifo")
        .arg(host.session().join("pipe"))
        .status();
    assert!(exit_status.unwrap().success());
    std::fs::create_dir(host.session().join("directory")).unwrap();
    for (name, expected) in [
        ("pipe", ErrorKind::NotRegular),
        ("directory", ErrorKind::IsDirectory),
    ] {
        let found = sandbox.stat(&host.path(name), Follow::Yes).await.unwrap();
        assert_ne!(found.kind, FileKind::File);
        let file = as_file(found);
        let read = Read {
            transport: Transport::Sftp,
            file: &file,
            offset: 0,
        };
        assert_eq!(kind(sandbox.read(read).await), expected);
    }
    let path = host.make("file", "text");
    assert_eq!(read(&*sandbox, &path).await.unwrap(), b"text");
}

#[tokio::test]
async fn a_link_that_took_the_place_of_a_file_is_not_followed() {
    let host = SshFixture::start(&SshdOptions::default());
    let sandbox = host.open().await;
    let path = host.make("file", "text");
    host.make("other", "text");
    let file = sandbox.stat(&path, Follow::Yes).await.unwrap();
    std::fs::remove_file(host.session().join("file")).unwrap();
    std::os::unix::fs::symlink("other", host.session().join("file")).unwrap();
    let read = Read {
        transport: Transport::Sftp,
        file: &file,
        offset: 0,
    };
    assert_eq!(
        kind(sandbox.read(read).await),
        ErrorKind::ChangedDuringTransfer
    );
}

#[tokio::test]
async fn a_rename_claims_or_replaces_a_name_atomically() {
    let host = SshFixture::start(&SshdOptions::default());
    let sandbox = host.open().await;
    let (from, to) = (host.make("from", "new"), host.make("to", "old"));
    assert_eq!(
        kind(sandbox.rename(&from, &to, false).await),
        ErrorKind::Exists
    );
    assert_eq!(read(&*sandbox, &to).await.unwrap(), b"old");
    assert!(sandbox.rename(&from, &to, true).await.unwrap());
    assert_eq!(read(&*sandbox, &to).await.unwrap(), b"new");
    assert_eq!(
        kind(sandbox.stat(&from, Follow::No).await),
        ErrorKind::NotFound
    );
    assert_eq!(
        kind(sandbox.rename(&from, &to, true).await),
        ErrorKind::NotFound
    );
    std::fs::create_dir(host.session().join("directory")).unwrap();
    let directory = host.path("directory");
    assert_eq!(
        kind(sandbox.rename(&to, &directory, true).await),
        ErrorKind::IsDirectory
    );
    assert_eq!(
        kind(sandbox.rename(&to, &directory, false).await),
        ErrorKind::Exists
    );
}

#[tokio::test]
async fn a_rename_on_a_server_without_extensions_reports_that_it_is_not_atomic() {
    let host = SshFixture::start(&crate::conformance::without_extensions());
    let sandbox = host.open().await;
    let (from, to) = (host.make("from", "new"), host.make("to", "old"));
    assert_eq!(
        kind(sandbox.rename(&from, &to, false).await),
        ErrorKind::Exists
    );
    assert!(
        !sandbox.rename(&from, &to, true).await.unwrap(),
        "not atomic"
    );
    assert_eq!(read(&*sandbox, &to).await.unwrap(), b"new");
    assert_eq!(
        kind(sandbox.rename(&from, &to, true).await),
        ErrorKind::NotFound
    );
    assert_eq!(
        read(&*sandbox, &to).await.unwrap(),
        b"new",
        "nothing was lost"
    );
    assert_eq!(sandbox.probe().await.unwrap().free, None);
}

#[tokio::test]
async fn a_host_that_is_killed_during_a_transfer_is_unavailable_until_it_runs_again() {
    let mut host = SshFixture::start(&SshdOptions::default());
    let sandbox = host.open().await;
    let bytes: Vec<u8> = (0..=250).cycle().take(32 << 20).collect();
    let path = host.make("large", &bytes);
    let mut body = begin_read(&*sandbox, &path, Transport::Sftp).await.unwrap();
    body.next().await.unwrap().unwrap();
    let target = host.path("written");
    let write = Write {
        transport: Transport::Sftp,
        path: &target,
        size: 1 << 30,
        offset: 0,
        mode: 0o644,
    };
    // The server is killed during the write.
    let chunks = (0..64).map(|_| Ok(bytes::Bytes::from(vec![3; 1 << 20])));
    let endless = futures_util::StreamExt::chain(stream::iter(chunks), stream::pending());
    let writing = sandbox.write(write, Body::new(endless));
    let killing = async {
        dray_testkit::eventually("bytes", async || {
            let found = std::fs::metadata(host.session().join("written")).ok()?;
            (found.len() > 0).then_some(())
        })
        .await;
        host.server.cut();
    };
    tokio::select! {
        written = writing => assert_eq!(kind(written), ErrorKind::Unavailable),
        () = async { killing.await; std::future::pending().await } => {}
    }
    assert_eq!(kind(body.read_all(256 << 20).await), ErrorKind::Unavailable);
    host.server.kill9();
    assert_eq!(kind(read(&*sandbox, &path).await), ErrorKind::Unavailable);
    host.server.restart();
    assert!(read(&*sandbox, &path).await.unwrap() == bytes);
}

#[tokio::test]
async fn a_body_that_fails_leaves_a_partial_file_and_an_error() {
    let host = SshFixture::start(&SshdOptions::default());
    let sandbox = host.open().await;
    let path = host.path("part");
    let chunks = [
        Ok(bytes::Bytes::from(vec![3; 1 << 20])),
        Err(Error::new(ErrorKind::Corrupted, "the source broke")),
    ];
    let write = Write {
        transport: Transport::Sftp,
        path: &path,
        size: 2 << 20,
        offset: 0,
        mode: 0o644,
    };
    let broken = sandbox.write(write, Body::new(stream::iter(chunks))).await;
    assert_eq!(kind(broken), ErrorKind::Corrupted);
    sandbox.remove(&path, false).await.unwrap();
}

#[tokio::test]
async fn a_loop_or_a_file_in_a_path_is_distinguished_from_a_missing_entry() {
    let host = SshFixture::start(&SshdOptions::default());
    let sandbox = host.open().await;
    host.make("file", "text");
    let link = |target: &str, name: &str| {
        std::os::unix::fs::symlink(target, host.session().join(name)).unwrap();
    };
    link("one", "two");
    link("two", "one");
    link("nowhere", "dangling");
    link("file", "to-file");
    for (name, expected) in [
        ("one", ErrorKind::Loop),
        ("one/x", ErrorKind::Loop),
        ("file/x", ErrorKind::NotDirectory),
        ("to-file/x", ErrorKind::NotDirectory),
        ("dangling", ErrorKind::NotFound),
        ("missing/x", ErrorKind::NotFound),
    ] {
        let path = name
            .split('/')
            .fold(host.root(), |path, part| path.join(part).unwrap());
        let found = sandbox.stat(&path, Follow::Yes).await;
        assert_eq!(kind(found), expected, "{name}");
    }
}

#[tokio::test]
async fn a_host_with_or_without_a_shell_gives_the_same_digest() {
    for options in [
        SshdOptions::default(),
        SshdOptions::default().without_shell(),
    ] {
        let host = SshFixture::start(&options);
        let sandbox = host.open().await;
        let path = host.make("file", "text");
        let found = sandbox.fingerprint(&path).await.unwrap();
        assert_eq!(found, Fingerprint::Sha256(Sha256Digest::of(b"text"), 4));
    }
}

#[tokio::test]
async fn slow_start_files_delay_commands_and_not_sftp() {
    // These requests wait for a file that only the end of the test creates.
    let host = SshFixture::start(&SshdOptions::default());
    let sandbox = host.open().await;
    let path = host.make("file", "text");
    let go = host.control.path().join("go");
    let text = format!("until [ -e {} ]; do sleep 0.05; done", go.display());
    std::fs::write(host.server.home().join(".bashrc"), text).unwrap();
    assert_eq!(read(&*sandbox, &path).await.unwrap(), b"text");
    // The shell that examined the host is open already.
    assert!(sandbox.fingerprint(&path).await.is_ok());
    // Base64 needs a separate command.
    let command = begin_read(&*sandbox, &path, Transport::ExecBase64);
    let waited = tokio::time::timeout(Duration::from_millis(300), command).await;
    assert!(waited.is_err());
    std::fs::write(go, "").unwrap();
    let command = begin_read(&*sandbox, &path, Transport::ExecBase64).await;
    assert_eq!(command.unwrap().read_all(10).await.unwrap(), b"text");
}

#[tokio::test]
async fn start_files_that_never_end_are_given_up_after_the_configured_time() {
    let host = SshFixture::start(&SshdOptions::default());
    let backend = SshBackend::new(Config {
        // The first shell starts within it, even on a busy machine.
        start_timeout: Period::secs(5),
        ..host.config()
    })
    .unwrap();
    let sandbox = open(&backend, &host.address()).await;
    let path = host.make("file", "text");
    let never = "until [ -e /nonexistent/file ]; do sleep 0.05; done";
    std::fs::write(host.server.home().join(".bashrc"), never).unwrap();
    // Base64 needs a separate command.
    let command = begin_read(&*sandbox, &path, Transport::ExecBase64);
    // With the default of a minute, the test would end here.
    let waited = tokio::time::timeout(Duration::from_secs(30), command).await;
    assert_eq!(kind(waited.expect("given up")), ErrorKind::Timeout);
}

#[tokio::test]
async fn an_existing_file_is_never_overwritten() {
    let host = SshFixture::start(&SshdOptions::default());
    let sandbox = host.open().await;
    let path = host.make("file", "text");
    assert_eq!(
        kind(write(&*sandbox, &path, b"new").await),
        ErrorKind::Exists
    );
    assert_eq!(read(&*sandbox, &path).await.unwrap(), b"text");
}

#[tokio::test]
async fn a_paused_host_is_given_up_and_used_again_when_it_continues() {
    let host = SshFixture::start(&SshdOptions::default());
    let backend = SshBackend::new(Config {
        // The host responds within it before it is paused, even on a busy machine.
        idle_timeout: Period::secs(3),
        ..host.config()
    })
    .unwrap();
    let sandbox = open(&backend, &host.address()).await;
    let path = host.make("large", vec![7; 64 << 20]);
    let mut body = begin_read(&*sandbox, &path, Transport::Sftp).await.unwrap();
    body.next().await.unwrap().unwrap();
    host.server.pause();
    assert_eq!(kind(body.read_all(256 << 20).await), ErrorKind::Timeout);
    host.server.resume();
    let path = host.make("file", "text");
    dray_testkit::eventually("the host", async || read(&*sandbox, &path).await.ok()).await;
}

#[tokio::test]
async fn a_port_without_an_ssh_server_is_unavailable() {
    let host = SshFixture::start(&SshdOptions::default());
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let backend = SshBackend::new(Config {
        connect_timeout: Period::secs(1),
        ..host.config()
    })
    .unwrap();
    let port = silent.local_addr().unwrap().port();
    let address = format!("ssh:nobody@127.0.0.1:{port}").parse().unwrap();
    assert_eq!(
        kind(backend.resolve(&address).await),
        ErrorKind::Unavailable
    );
}
