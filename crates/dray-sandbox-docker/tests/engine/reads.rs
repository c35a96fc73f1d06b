//! Tests of files that are read from containers.

use std::os::unix::net::UnixListener;

use dray_sandbox::{ErrorKind, FileKind, Follow, Read, Transport};
use dray_testkit::docker::ContainerOptions;
use sha2::{Digest as _, Sha256};

use super::fixture::{ContainerFixture, kind, path};

#[tokio::test]
async fn holes_are_read_as_zeros() {
    let fixture = ContainerFixture::agent().await;
    fixture
        .container
        .sh("cd /workspace; dd if=/dev/null of=sparse bs=1 seek=100000000; printf end >> sparse");
    let mut body = fixture.open("/workspace/sparse").await.unwrap();
    let (mut digest, mut size, mut last) = (Sha256::new(), 0, Vec::new());
    while let Some(chunk) = body.next().await {
        let chunk = chunk.unwrap();
        digest.update(&chunk);
        size += chunk.len();
        last.extend_from_slice(&chunk);
        last.drain(..last.len().saturating_sub(4));
    }
    assert_eq!((size, last.as_slice()), (100_000_003, &b"\0end"[..]));
    let output = fixture.container.sh("sha256sum /workspace/sparse");
    assert!(output.starts_with(format!("{:x}", digest.finalize()).as_bytes()));
}

#[tokio::test]
async fn r_5_a_file_that_shrinks_while_it_is_read_is_truncated() {
    let fixture = ContainerFixture::agent().await;
    fixture
        .container
        .sh("head -c 50000000 /dev/zero > /workspace/log; chmod 666 /workspace/log");
    let mut body = fixture.open("/workspace/log").await.unwrap();
    assert!(body.next().await.unwrap().is_ok());
    let cut = fixture.container.inside(1000, "/workspace", ": > log");
    assert_eq!(cut.status, 0);
    let error = body.read_all(100 << 20).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Truncated);
}

#[tokio::test]
async fn r_2_a_socket_is_not_read_as_a_file() {
    let directory = tempfile::tempdir().unwrap();
    let _listener = UnixListener::bind(directory.path().join("socket")).unwrap();
    let fixture = ContainerFixture::of(ContainerOptions {
        volumes: vec![format!("{}:/host", directory.path().display())],
        ..ContainerOptions::default()
    })
    .await;
    let mut socket = fixture.stat("/host/socket").await.unwrap();
    assert_eq!(socket.kind, FileKind::Socket);
    assert_eq!(kind(fixture.open_as(&socket).await), ErrorKind::NotRegular);
    socket.kind = FileKind::File;
    assert_eq!(kind(fixture.open_as(&socket).await), ErrorKind::NotRegular);
}

#[tokio::test]
async fn r_2_only_the_examined_file_is_opened() {
    let fixture = ContainerFixture::agent().await;
    fixture
        .container
        .sh("cd /workspace; echo one > file; mkfifo pipe; mkdir folder; ln -s file link");
    let file = fixture.stat("/workspace/file").await.unwrap();
    fixture.container.sh("cd /workspace; echo two > file");
    assert_eq!(
        kind(fixture.open_as(&file).await),
        ErrorKind::ChangedDuringTransfer
    );
    for (name, expected) in [
        ("pipe", ErrorKind::NotRegular),
        ("link", ErrorKind::NotRegular),
        ("folder", ErrorKind::IsDirectory),
        ("missing", ErrorKind::NotFound),
    ] {
        let mut swapped = file.clone();
        swapped.real_path = path(format!("/workspace/{name}"));
        assert_eq!(kind(fixture.open_as(&swapped).await), expected, "{name}");
    }
}

#[tokio::test]
async fn the_engine_reads_files_that_the_user_may_not_read() {
    // The policy decides what may be read; the archive calls ignore the permissions of the user.
    let fixture = ContainerFixture::agent().await;
    fixture
        .container
        .sh("cd /workspace; echo secret > closed; chown 0:0 closed; chmod 600 closed");
    assert_eq!(
        fixture.read("/workspace/closed").await.unwrap(),
        b"secret\n"
    );
    let file = fixture.stat("/workspace/closed").await.unwrap();
    let read = Read {
        transport: Transport::ExecRaw,
        file: &file,
        offset: 0,
    };
    let read = match fixture.sandbox.read(read).await {
        Ok(body) => body.read_all(100).await,
        Err(error) => Err(error),
    };
    assert_eq!(kind(read), ErrorKind::PermissionDenied);
    let digest = fixture.sandbox.fingerprint(&file.real_path).await;
    assert_eq!(kind(digest), ErrorKind::PermissionDenied);
}

#[tokio::test]
async fn r_7_dropping_a_read_frees_the_container() {
    let fixture = ContainerFixture::agent().await;
    fixture
        .container
        .sh("head -c 50000000 /dev/zero > /workspace/big");
    assert!(fixture.sandbox.must_drain(Transport::Archive));
    assert!(!fixture.sandbox.must_drain(Transport::ExecRaw));
    assert_eq!(fixture.sandbox.parallel(), 1);
    let mut body = fixture.open("/workspace/big").await.unwrap();
    assert!(body.next().await.unwrap().is_ok());
    drop(body);
    // Both calls wait while the engine locks the container.
    assert!(fixture.stat("/workspace/big").await.is_ok());
    assert!(!fixture.cat("/etc/passwd").is_empty());
}

#[tokio::test]
async fn paths_of_kernel_file_systems_are_read_by_commands_only() {
    let fixture = ContainerFixture::agent().await;
    for at in ["/proc/self/status", "/dev/null", "/sys/kernel"] {
        let transports = fixture.sandbox.transports(&path(at));
        assert!(!transports.contains(&Transport::Archive), "{at}");
    }
    let device = fixture.stat("/dev/null").await.unwrap();
    assert_eq!(device.kind, FileKind::CharDevice);
}

#[tokio::test]
async fn names_of_any_bytes_are_read() {
    let fixture = ContainerFixture::agent().await;
    let long = "n".repeat(251);
    fixture.container.sh(&format!(
        r#"cd /workspace; for n in "$(printf 'a\377b')" "$(printf 'two\nlines')" "? #&+%41" "{long}.txt"; do printf %s "$n" > "$n"; done"#
    ));
    for name in [
        &b"a\xffb"[..],
        b"two\nlines",
        b"? #&+%41",
        format!("{long}.txt").as_bytes(),
    ] {
        let at = path([b"/workspace/", name].concat());
        let file = fixture.sandbox.stat(&at, Follow::Yes).await.unwrap();
        assert_eq!(file.size, name.len() as u64);
        let transports = fixture.sandbox.transports(&at);
        for transport in &transports {
            let read = Read {
                transport: *transport,
                file: &file,
                offset: 0,
            };
            let body = fixture.sandbox.read(read).await.unwrap();
            assert_eq!(body.read_all(300).await.unwrap(), name);
        }
        // The engine creates no archive for a name that its JSON cannot hold.
        let archived = transports.contains(&Transport::Archive);
        assert_eq!(archived, str::from_utf8(name).is_ok());
    }
}
