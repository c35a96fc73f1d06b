//! Tests with the API service of Podman, which is compatible with that of the Docker Engine.

use dray_sandbox::{ErrorKind, Integrity, Transport};
use dray_testkit::docker::{ContainerOptions, DockerEngine};

use super::fixture::{ContainerFixture, kind, path};
use super::transfers::round_trip;

async fn podman_fixture(options: ContainerOptions) -> ContainerFixture {
    ContainerFixture::on(DockerEngine::shared_podman(), options).await
}

fn agent() -> ContainerOptions {
    ContainerOptions {
        user: "agent".into(),
        ..ContainerOptions::default()
    }
}

#[tokio::test]
async fn a_running_container_of_podman_proves_what_was_moved() {
    let fixture = podman_fixture(agent()).await;
    let (put, got) = round_trip(&fixture, "/workspace").await;
    assert_eq!(put.transport, Some(Transport::ExecRaw));
    assert_eq!(put.atomic, Some(true));
    assert!(got.integrity >= Some(Integrity::Sha256Beside), "{got:?}");
    let listed = fixture
        .container
        .sh("cd /workspace; ls -A; stat -c '%u %a' report.bin");
    assert_eq!(listed, b"report.bin\nreport_2.bin\n1000 644\n");
}

#[tokio::test]
async fn a_stopped_container_of_podman_is_reached_by_the_archive_calls() {
    let fixture = podman_fixture(agent()).await;
    fixture.container.stop();
    let (put, got) = round_trip(&fixture, "/workspace").await;
    assert_eq!(put.transport, Some(Transport::Archive));
    assert_eq!(put.atomic, Some(false));
    assert_eq!(got.transport, Some(Transport::Archive));
    assert_eq!(got.integrity, Some(Integrity::SizeMtime));
}

#[tokio::test]
async fn a_file_of_a_podman_container_that_stopped_meanwhile_is_still_read() {
    let fixture = podman_fixture(agent()).await;
    fixture.container.sh("echo hello >/workspace/x");
    let file = fixture.stat("/workspace/x").await.unwrap();
    fixture.container.stop();
    let body = fixture.open_as(&file).await.unwrap();
    assert_eq!(body.read_all(100).await.unwrap(), b"hello\n");
}

#[tokio::test]
async fn a_container_of_podman_without_a_shell_is_reached_by_the_archive_calls() {
    let fixture = podman_fixture(ContainerOptions {
        user: "1000:1000".into(),
        shell_less: true,
        ..ContainerOptions::default()
    })
    .await;
    let listed = fixture.sandbox.list(&path("/workspace"), 1, 9).await;
    assert!(listed.unwrap().entries.is_empty());
    // A container that ran no command offers only the archive calls.
    assert_eq!(
        fixture.sandbox.transports(&path("/workspace/file")),
        [Transport::Archive]
    );
    let (put, got) = round_trip(&fixture, "/workspace").await;
    assert_eq!(put.transport, Some(Transport::Archive));
    assert_eq!(got.transport, Some(Transport::Archive));
}

#[tokio::test]
async fn a_removed_container_of_podman_is_gone() {
    let fixture = podman_fixture(agent()).await;
    fixture.container.sh("echo hello >/workspace/x");
    fixture.container.remove();
    assert_eq!(
        kind(fixture.stat("/workspace/x").await),
        ErrorKind::SandboxGone
    );
}
