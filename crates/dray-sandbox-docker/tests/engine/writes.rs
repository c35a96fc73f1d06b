//! Tests of files that are written into containers.

use bytes::Bytes;
use dray_sandbox::{Body, Error, ErrorKind, Transport, Write};
use dray_testkit::docker::ContainerOptions;
use futures_util::{StreamExt as _, stream};

use super::fixture::{ContainerFixture, NOW_S, kind, path};

#[tokio::test]
async fn a_written_file_belongs_to_the_user_and_has_the_current_time() {
    for (user, owner) in [
        ("agent", "1000 1000"),
        ("4711:4712", "4711 4712"),
        ("", "0 0"),
    ] {
        let fixture = ContainerFixture::of(ContainerOptions {
            user: user.into(),
            ..ContainerOptions::default()
        })
        .await;
        fixture.write("/workspace/file", b"data").await.unwrap();
        let output = fixture
            .container
            .sh("stat -c '%u %g %a %Y %s' /workspace/file");
        let expected = format!("{owner} 644 {NOW_S} 4\n");
        assert_eq!(String::from_utf8(output).unwrap(), expected);
    }
}

#[tokio::test]
async fn a_written_file_has_no_set_id_bits_and_no_write_permission_for_others() {
    let fixture = ContainerFixture::agent().await;
    let at = path("/workspace/file");
    let write = Write {
        transport: Transport::Archive,
        path: &at,
        size: 1,
        offset: 0,
        mode: 0o6777,
    };
    let body = Body::from_bytes(&b"x"[..]);
    fixture.sandbox.write(write, body).await.unwrap();
    let output = fixture.container.sh("stat -c %a /workspace/file");
    assert_eq!(output, b"775\n");
}

#[tokio::test]
async fn existing_objects_are_never_replaced() {
    let fixture = ContainerFixture::agent().await;
    fixture
        .container
        .sh("cd /workspace; echo kept > file; ln -s file link; ln -s nowhere dangling; mkdir folder; mkfifo pipe");
    for name in ["file", "link", "dangling", "folder", "pipe"] {
        let at = format!("/workspace/{name}");
        assert_eq!(
            kind(fixture.write(&at, b"new").await),
            ErrorKind::Exists,
            "{name}"
        );
    }
    assert_eq!(fixture.cat("/workspace/file"), b"kept\n");
}

#[tokio::test]
async fn r_15_a_full_disk_is_reported_as_no_space_without_a_path_of_the_host() {
    let engine = dray_testkit::docker::DockerEngine::shared();
    let volume = engine.small_volume(1 << 20);
    let fixture = ContainerFixture::on(
        engine,
        ContainerOptions {
            user: "agent".into(),
            volumes: vec![format!("{}:/small", volume.name())],
            ..ContainerOptions::default()
        },
    )
    .await;
    for transport in fixture.sandbox.transports(&path("/small/file")) {
        let at = format!("/small/{}", transport.as_str());
        let error = fixture
            .write_by(transport, &at, &vec![1; 8 << 20])
            .await
            .unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NoSpace, "{transport:?} {error:?}");
        assert!(!error.to_string().contains("docker"), "{error}");
        fixture.container.sh("rm -f /small/*");
    }
}

#[tokio::test]
async fn a_source_that_breaks_leaves_no_file_that_looks_complete() {
    let fixture = ContainerFixture::agent().await;
    let at = path("/workspace/file");
    let write = Write {
        transport: Transport::Archive,
        path: &at,
        size: 10 << 20,
        offset: 0,
        mode: 0o644,
    };
    let chunks = stream::iter((0..5).map(|_| Ok(Bytes::from(vec![7; 1 << 20]))));
    let broken = stream::iter([Err(Error::new(ErrorKind::Corrupted, "the source broke"))]);
    let written = fixture
        .sandbox
        .write(write, Body::new(chunks.chain(broken)));
    assert_eq!(kind(written.await), ErrorKind::Corrupted);
    // A partial file is shorter than announced and can be removed.
    if let Ok(file) = fixture.stat("/workspace/file").await {
        assert!(file.size < 10 << 20);
        fixture.sandbox.remove(&at, false).await.unwrap();
    }
}

#[tokio::test]
async fn a_parent_must_be_a_directory() {
    let fixture = ContainerFixture::agent().await;
    fixture.container.sh("echo x > /workspace/file");
    assert_eq!(
        kind(fixture.write("/workspace/missing/file", b"x").await),
        ErrorKind::NotFound
    );
    let below = kind(fixture.write("/workspace/file/below", b"x").await);
    assert!(matches!(
        below,
        ErrorKind::NotDirectory | ErrorKind::NotFound
    ));
    assert_eq!(kind(fixture.write("/", b"x").await), ErrorKind::IsDirectory);
}

#[tokio::test]
async fn sizes_around_the_blocks_arrive_whole() {
    let fixture = ContainerFixture::agent().await;
    for size in [0, 1, 511, 512, 513, 262_143, 262_145, 3_000_001] {
        let at = format!("/workspace/{size}");
        let bytes: Vec<u8> = (0..=255).cycle().take(size).collect();
        fixture.write(&at, &bytes).await.unwrap();
        assert_eq!(fixture.read(&at).await.unwrap(), bytes);
        assert_eq!(fixture.cat(&at), bytes);
    }
}
