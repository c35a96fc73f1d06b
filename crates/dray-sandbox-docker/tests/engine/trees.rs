//! Tests of whole directories.

use dray_sandbox::{Body, ErrorKind, Transport};
use dray_sandbox_tree::{self as tree, Limits, Owner, Reader};
use dray_testkit::docker::ContainerOptions;

use super::fixture::{ContainerFixture, kind, path};

/// A directory as tar, and the transport that carried it.
async fn tar(fixture: &ContainerFixture, at: &str) -> (Vec<u8>, Transport) {
    let (body, transport) = fixture.sandbox.read_tree(&path(at)).await.unwrap();
    (body.read_all(10 << 20).await.unwrap(), transport)
}

/// The names that `tar` on this host lists for it.
fn names(tar: &[u8]) -> Vec<String> {
    let directory = tempfile::tempdir().unwrap();
    let file = directory.path().join("tar");
    std::fs::write(&file, tar).unwrap();
    let output = std::process::Command::new("tar")
        .arg("-tf")
        .arg(&file)
        .output()
        .unwrap();
    assert!(output.status.success(), "{output:?}");
    let mut names: Vec<_> = String::from_utf8(output.stdout)
        .unwrap()
        .lines()
        .map(|name| name.trim_matches(['.', '/']).to_owned())
        .filter(|name| !name.is_empty())
        .collect();
    names.sort();
    names
}

#[tokio::test]
async fn a_tree_is_written_back_under_another_name() {
    let fixture = ContainerFixture::agent().await;
    fixture.container.sh(
        "cd /workspace; mkdir -p one/deep; echo data > one/deep/file; echo long > one/$(printf '%0150d' 0); echo x > one/run; chmod 755 one/run; mkdir two; chown 1000:1000 two",
    );
    let (packed, _) = tar(&fixture, "/workspace/one").await;
    let long = "0".repeat(150);
    assert_eq!(names(&packed), [&long, "deep", "deep/file", "run"]);
    for stopped in [false, true] {
        if stopped {
            fixture.container.sh("rm -rf /workspace/two/*");
            fixture.container.stop();
        }
        let packed = Body::from_bytes(packed.clone());
        let owner = Owner {
            uid: 1000,
            gid: 1000,
        };
        let body = tree::tar(Reader::new(packed, Limits::default()), owner);
        let two = path("/workspace/two");
        let written = fixture.sandbox.write_tree(&two, body).await.unwrap();
        let expected = if stopped {
            Transport::Archive
        } else {
            Transport::ExecRaw
        };
        assert_eq!(written, expected);
        fixture.container.start();
        let output = fixture
            .container
            .sh("cd /workspace/two; cat deep/file 0*; stat -c '%u %g %a' deep/file run deep");
        let output = String::from_utf8(output).unwrap();
        assert_eq!(
            output,
            "data\nlong\n1000 1000 644\n1000 1000 755\n1000 1000 755\n"
        );
    }
}

#[tokio::test]
async fn r_6_a_tree_with_memory_in_it_is_packed_by_the_container() {
    let fixture = ContainerFixture::of(ContainerOptions {
        user: "agent".into(),
        tmpfs: vec![("/workspace/memory".into(), "mode=1777".into())],
        ..ContainerOptions::default()
    })
    .await;
    fixture
        .container
        .sh("cd /workspace; echo a > file; echo b > memory/file");
    let (packed, transport) = tar(&fixture, "/workspace").await;
    assert_eq!(transport, Transport::ExecRaw);
    assert_eq!(names(&packed), ["file", "memory", "memory/file"]);
    fixture.container.stop();
    // A directory without a tar is walked.
    let stopped = fixture.sandbox.read_tree(&path("/workspace")).await;
    assert_eq!(kind(stopped), ErrorKind::ToolMissing);
}

#[tokio::test]
async fn a_tree_is_read_with_the_rights_of_the_user_while_commands_run() {
    let fixture = ContainerFixture::agent().await;
    fixture
        .container
        .sh("cd /workspace; echo open > open; umask 077; echo closed > closed");
    let (body, transport) = fixture
        .sandbox
        .read_tree(&path("/workspace"))
        .await
        .unwrap();
    assert_eq!(transport, Transport::ExecRaw);
    let denied = body.read_all(10 << 20).await;
    assert_eq!(kind(denied), ErrorKind::PermissionDenied);
    fixture.container.stop();
    let (packed, transport) = tar(&fixture, "/workspace").await;
    assert_eq!(transport, Transport::Archive);
    assert_eq!(names(&packed), ["closed", "open"]);
    let root = ContainerFixture::of(ContainerOptions::default()).await;
    root.container.sh("echo x > /workspace/file");
    let (_, transport) = tar(&root, "/workspace").await;
    assert_eq!(transport, Transport::Archive);
}

#[tokio::test]
async fn only_a_directory_is_copied_as_a_tree() {
    let fixture = ContainerFixture::agent().await;
    fixture.container.sh("echo x > /workspace/file");
    for (at, expected) in [
        ("/workspace/file", ErrorKind::NotDirectory),
        ("/workspace/missing", ErrorKind::NotFound),
    ] {
        assert_eq!(kind(fixture.sandbox.read_tree(&path(at)).await), expected);
        let body = Body::from_bytes(vec![0; 1024]);
        let written = fixture.sandbox.write_tree(&path(at), body).await;
        assert_eq!(kind(written), expected);
    }
}
