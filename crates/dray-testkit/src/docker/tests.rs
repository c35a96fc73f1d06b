//! Tests of the fixture: that it starts, and that it is removed completely.

use super::*;

fn is_alive(pid: &str) -> bool {
    Path::new("/proc").join(pid).exists()
}

#[test]
fn a_container_runs_commands_and_keeps_the_streams_apart() {
    let engine = DockerEngine::shared();
    let container = engine.container(ContainerOptions {
        user: "agent".into(),
        ..ContainerOptions::default()
    });
    let output = container.exec("", &["sh", "-c", "id -u; pwd; echo no >&2; exit 3"]);
    assert_eq!(
        output,
        Output {
            status: 3,
            stdout: b"1000\n/workspace\n".to_vec(),
            stderr: b"no\n".to_vec(),
        }
    );
}

#[test]
fn a_script_runs_in_a_container_without_the_engine() {
    let engine = DockerEngine::shared();
    let container = engine.container(ContainerOptions::default());
    container.sh("chown 1000 /tmp/.; echo seen > /tmp/file");
    let output = container.inside(1000, "/tmp", "id -u; cat file; pwd; exit 4");
    assert_eq!(output.status, 4);
    assert_eq!(output.stdout, b"1000\nseen\n/tmp\n");
}

#[test]
fn every_use_of_the_shared_engine_gets_the_same_engine() {
    let (one, other) = (DockerEngine::shared(), DockerEngine::shared());
    assert_eq!(one.socket(), other.socket());
    drop(one);
    assert!(engine_responds(&other.directory));
}

#[test]
fn a_separate_engine_is_removed_completely() {
    let engine = DockerEngine::start();
    let container = engine.container(ContainerOptions::default());
    let host_pid = std::fs::read_to_string(engine.directory.join("pid")).unwrap();
    let host_pid = host_pid.trim().to_owned();
    let directory = engine.directory.clone();
    drop(engine);
    assert!(!is_alive(&host_pid) && !directory.exists());
    let mounts = std::fs::read_to_string("/proc/self/mounts").unwrap();
    assert!(!mounts.contains(directory.to_str().unwrap()), "{mounts}");
    drop(container);
}

#[tokio::test]
async fn a_killed_engine_leaves_no_process() {
    let engine = DockerEngine::start();
    let container = engine.container(ContainerOptions::default());
    let directory = engine.directory.to_str().unwrap().to_owned();
    engine.kill9();
    drop(engine);
    let remaining = || -> Vec<String> {
        std::fs::read_dir("/proc")
            .unwrap()
            .flatten()
            .filter_map(|process| std::fs::read(process.path().join("cmdline")).ok())
            .map(|line| String::from_utf8_lossy(&line).into_owned())
            .filter(|line| line.contains(&directory) || line.contains(container.id()))
            .collect()
    };
    // The supervisor kills the processes, which may end a moment later.
    crate::eventually("the end of every process", async || {
        remaining().is_empty().then_some(())
    })
    .await;
    drop(container);
}

/// Whether a program can connect to [`OUTSIDE_ADDRESS`].
fn reaches_outside(mut from: Command) -> bool {
    let address = OUTSIDE_ADDRESS.to_string();
    let attempt = from.args(["nc", "-w", "10", &address, "80"]);
    let output = attempt.stdin(Stdio::null()).output().unwrap();
    output.status.success()
}

#[test]
fn an_engine_with_a_network_reaches_its_uplink_and_removes_its_namespace() {
    let engine = DockerEngine::start_with_network();
    let mut server = engine.network().outside_command("/bin/busybox");
    let server = server.args(["nc", "-ll", "-p", "80", "-e", "true"]);
    let mut server = server.spawn().unwrap();
    let listening = [
        "sh",
        "-c",
        "until nc 127.0.0.1 80 </dev/null; do :; done 2>/dev/null",
    ];
    let mut wait_command = engine.network().outside_command("/bin/busybox");
    assert!(wait_command.args(listening).status().unwrap().success());

    assert!(reaches_outside(
        engine.network().machine_command("/bin/busybox")
    ));
    let networks = engine.get("/networks");
    let names = networks.as_array().unwrap().iter();
    assert!(
        names
            .map(|network| &network["Name"])
            .any(|name| name == "bridge")
    );
    server.kill().unwrap();
    server.wait().unwrap();

    let namespace = PathBuf::from("/run/netns").join(engine.network().namespace());
    assert!(namespace.exists());
    drop(engine);
    assert!(!namespace.exists());
}

#[test]
fn a_small_volume_refuses_content_above_its_size() {
    let engine = DockerEngine::shared();
    let volume = engine.small_volume(65_536);
    let container = engine.container(ContainerOptions {
        volumes: vec![format!("{}:/small", volume.name())],
        ..ContainerOptions::default()
    });
    let output = container.exec(
        "",
        &["sh", "-c", "dd if=/dev/zero of=/small/x bs=1k count=100"],
    );
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(
        output.status != 0 && stderr.contains("No space left"),
        "{output:?}"
    );
}
