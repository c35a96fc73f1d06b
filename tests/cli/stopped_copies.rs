//! Copies out of a container that runs no commands.

use dray_testkit::docker::{ContainerOptions, DockerEngine};

use super::{CliHome, line};

#[test]
fn a_copy_from_a_stopped_container_into_another_sandbox_can_be_repeated() {
    let engine = DockerEngine::shared();
    let container = engine.container(ContainerOptions::default());
    container.sh("printf content >/tmp/file && chmod 644 /tmp/file");
    container.stop();
    let home = CliHome::new();
    let directory = home.0.path().join("box");
    std::fs::create_dir(&directory).unwrap();
    let host = format!("unix://{}", engine.socket().display());
    let from = format!("docker:{}:/tmp/file", container.name());
    let to = format!("local:{}:./copy", directory.display());
    // The second copy finds a file of the same size, and the container computes no digest of its own.
    for _ in 0..2 {
        let mut command = home.dray(&["sandbox", "cp", "--json", &from, &to]);
        let copied = command.env("DOCKER_HOST", &host).output().unwrap();
        assert!(copied.status.success(), "{copied:?}");
        assert_eq!(line(&copied)["files"].as_array().unwrap().len(), 1);
    }
    let content = std::fs::read(directory.join("copy")).unwrap();
    assert_eq!(content, b"content");
}
