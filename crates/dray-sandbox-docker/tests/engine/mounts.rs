//! Tests of mounts that the archive calls do not see, or may not write to.

use dray_sandbox::{ErrorKind, FileKind, Follow, Transport};
use dray_testkit::docker::{ContainerOptions, DockerEngine};

use super::fixture::{ContainerFixture, kind, path};

async fn with_memory(at: &str) -> ContainerFixture {
    ContainerFixture::of(ContainerOptions {
        user: "agent".into(),
        tmpfs: vec![(at.to_owned(), "mode=1777".to_owned())],
        ..ContainerOptions::default()
    })
    .await
}

#[tokio::test]
async fn r_6_files_written_to_a_memory_mount_are_visible_to_processes() {
    let fixture = with_memory("/memory").await;
    let at = path("/memory/file");
    let transports = fixture.sandbox.transports(&at);
    assert!(!transports.contains(&Transport::Archive));
    for transport in transports {
        let at = format!("/memory/{}", transport.as_str());
        fixture.write_by(transport, &at, b"data").await.unwrap();
        assert_eq!(fixture.cat(&at), b"data");
        let file = fixture.stat(&at).await.unwrap();
        assert_eq!((file.kind, file.size), (FileKind::File, 4));
    }
    // The engine would report success and write the file beneath the mount.
    assert_eq!(
        kind(fixture.write("/memory/lost", b"data").await),
        ErrorKind::ToolMissing
    );
}

#[tokio::test]
async fn r_6_a_mount_point_behind_a_link_is_found() {
    // `/alias` is a link to `/workspace`, so the mount point lies beneath `/workspace`.
    let fixture = with_memory("/alias/memory").await;
    fixture.container.sh("echo data > /workspace/memory/file");
    for mounted_path in ["/workspace/memory/file", "/alias/memory/file"] {
        let file = fixture.stat(mounted_path).await.unwrap();
        assert_eq!(file.real_path, path("/workspace/memory/file"));
        assert_eq!(file.size, 5);
        let transports = fixture.sandbox.transports(&file.real_path);
        assert!(!transports.contains(&Transport::Archive), "{mounted_path}");
    }
}

#[tokio::test]
async fn read_only_mounts_are_reported_as_read_only() {
    let engine = DockerEngine::shared();
    let volumes = [engine.small_volume(1 << 20), engine.small_volume(1 << 20)];
    let fixture = ContainerFixture::on(
        engine,
        ContainerOptions {
            volumes: vec![
                format!("{}:/closed:ro", volumes[0].name()),
                format!("{}:/open", volumes[1].name()),
            ],
            read_only: true,
            ..ContainerOptions::default()
        },
    )
    .await;
    for transport in [Transport::Archive, Transport::ExecRaw] {
        for at in ["/workspace/file", "/closed/file"] {
            let written = fixture.write_by(transport, at, b"x").await;
            assert_eq!(kind(written), ErrorKind::ReadOnly, "{at}");
        }
    }
    fixture.write("/open/file", b"data").await.unwrap();
    assert_eq!(fixture.cat("/open/file"), b"data");
    assert_eq!(fixture.read("/open/file").await.unwrap(), b"data");
}

#[tokio::test]
async fn a_host_directory_is_read_without_following_its_links_on_the_host() {
    let directory = tempfile::tempdir().unwrap();
    std::fs::write(directory.path().join("file"), "data").unwrap();
    std::os::unix::fs::symlink("/etc/hostname", directory.path().join("link")).unwrap();
    std::os::unix::fs::symlink("/no-such-place", directory.path().join("lost")).unwrap();
    let fixture = ContainerFixture::of(ContainerOptions {
        volumes: vec![format!("{}:/host:ro", directory.path().display())],
        ..ContainerOptions::default()
    })
    .await;
    assert_eq!(fixture.read("/host/file").await.unwrap(), b"data");
    let link = fixture.stat("/host/link").await.unwrap();
    assert_eq!(link.real_path, path("/etc/hostname"));
    assert_eq!(
        fixture.read("/host/link").await.unwrap(),
        fixture.cat("/etc/hostname")
    );
    let lost = fixture.sandbox.stat(&path("/host/lost"), Follow::Yes).await;
    assert_eq!(kind(lost), ErrorKind::NotFound);
}
