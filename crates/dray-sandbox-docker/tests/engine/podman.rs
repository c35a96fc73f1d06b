//! The service of Podman, which speaks the API of the Docker Engine.

use dray_sandbox::{ErrorKind, Integrity, Transport};
use dray_testkit::docker::{ContainerOptions, DockerEngine};

use super::transfers::there_and_back;
use super::world::{World, kind};

async fn podman_world(options: ContainerOptions) -> World {
    World::on(DockerEngine::shared_podman(), options).await
}

fn agent() -> ContainerOptions {
    ContainerOptions {
        user: "agent".into(),
        ..ContainerOptions::default()
    }
}

#[tokio::test]
async fn a_running_container_of_podman_proves_what_was_moved() {
    let world = podman_world(agent()).await;
    let (put, got) = there_and_back(&world, "/workspace").await;
    assert_eq!(put.transport, Some(Transport::ExecRaw));
    assert_eq!(put.atomic, Some(true));
    assert!(got.integrity >= Some(Integrity::Sha256Beside), "{got:?}");
    let listed = world
        .container
        .sh("cd /workspace; ls -A; stat -c '%u %a' report.bin");
    assert_eq!(listed, b"report.bin\nreport_2.bin\n1000 644\n");
}

#[tokio::test]
async fn a_stopped_container_of_podman_is_reached_by_the_archive_calls() {
    let world = podman_world(agent()).await;
    world.container.stop();
    let (put, got) = there_and_back(&world, "/workspace").await;
    assert_eq!(put.transport, Some(Transport::Archive));
    assert_eq!(put.atomic, Some(false));
    assert_eq!(got.transport, Some(Transport::Archive));
    assert_eq!(got.integrity, Some(Integrity::SizeMtime));
}

#[tokio::test]
async fn a_file_of_a_podman_container_that_stopped_meanwhile_is_still_read() {
    let world = podman_world(agent()).await;
    world.container.sh("echo hello >/workspace/x");
    let file = world.stat("/workspace/x").await.unwrap();
    world.container.stop();
    let body = world.open_as(&file).await.unwrap();
    assert_eq!(body.read_all(100).await.unwrap(), b"hello\n");
}

#[tokio::test]
async fn a_removed_container_of_podman_is_gone() {
    let world = podman_world(agent()).await;
    world.container.sh("echo hello >/workspace/x");
    world.container.remove();
    assert_eq!(
        kind(world.stat("/workspace/x").await),
        ErrorKind::SandboxGone
    );
}
