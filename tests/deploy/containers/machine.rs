//! The machine of an operator: a Docker Engine with its own network, a copy of the repository, and a shell in it that
//! finds the programs which `deploy/README.md` names.

use std::fs::{self, File};
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use dray_testkit::docker::{DockerEngine, OUTSIDE_ADDRESS, command_in_network_of};
use dray_testkit::eventually_within;
use serde_json::Value;
use tempfile::TempDir;

use super::images;
use crate::deploy::read;
use crate::support;

/// Time for images, containers and health checks on a busy machine.
const START_TIMEOUT: Duration = Duration::from_mins(4);

const SYSTEM_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// Files that an operator and the build of the image read.
const REPOSITORY_FILES: [&str; 11] = [
    ".cargo",
    ".dockerignore",
    "Cargo.lock",
    "Cargo.toml",
    "bench",
    "crates",
    "deploy",
    "docker-compose.yml",
    "examples",
    "tests",
    "xtask",
];

/// `docker` where compose is a separate program.
const DOCKER_SCRIPT: &str = r#"#!/bin/sh
if [ "${1:-}" = compose ]; then
    shift
    exec docker-compose "$@"
fi
PATH=${PATH#*:}
exec docker "$@"
"#;

/// A Docker Engine with its images, and the operator's copy of the repository.
pub(super) struct OperatorMachine {
    pub(super) engine: DockerEngine,
    directory: TempDir,
}

/// `docker compose up` in the foreground, with its output in a file.
pub(super) struct ComposeUp {
    process: Child,
    log: PathBuf,
}

impl OperatorMachine {
    /// Starts the engine and imports all images.
    pub(super) fn start() -> Self {
        let directory = tempfile::tempdir().unwrap();
        for name in ["home", "programs", "drayage"] {
            fs::create_dir(directory.path().join(name)).unwrap();
        }
        let mut copy = Command::new("cp");
        let copy = copy
            .arg("-a")
            .args(REPOSITORY_FILES)
            .arg("--target-directory");
        let copy = copy.arg(directory.path().join("drayage"));
        support::stdout(copy.current_dir(support::root()));
        let programs = directory.path().join("programs");
        symlink(support::dray(), programs.join("dray")).unwrap();
        let has_plugin = Command::new("docker").args(["compose", "version"]).output();
        if !has_plugin.is_ok_and(|output| output.status.success()) {
            fs::write(programs.join("docker"), DOCKER_SCRIPT).unwrap();
            let executable = fs::Permissions::from_mode(0o755);
            fs::set_permissions(programs.join("docker"), executable).unwrap();
        }
        let engine = DockerEngine::start_with_network();
        let machine = Self { engine, directory };
        images::import_all(&|| machine.command("docker"));
        machine
    }

    /// A command in the copy of the repository, with the environment of the operator's login.
    fn command(&self, program: &str) -> Command {
        let directory = self.directory.path();
        let python = support::python();
        let mut command = self.engine.network().machine_command(program);
        let path = format!(
            "{}:{}:{SYSTEM_PATH}",
            directory.join("programs").display(),
            python.parent().unwrap().display()
        );
        command
            .env_clear()
            .env("PATH", path)
            .env("HOME", directory.join("home"))
            .env("PYTHONDONTWRITEBYTECODE", "1")
            .env(
                "DOCKER_HOST",
                format!("unix://{}", self.engine.socket().display()),
            )
            .current_dir(directory.join("drayage"))
            .stdin(Stdio::null());
        command
    }

    /// Runs lines in a shell in the copy of the repository.
    pub(super) fn shell(&self, lines: &str) -> Command {
        let mut command = self.command("sh");
        command.args(["-euc", lines]);
        command
    }

    /// The output of the lines, which must succeed.
    #[track_caller]
    pub(super) fn run(&self, lines: &str) -> String {
        support::stdout(&mut self.shell(lines))
    }

    /// Adds a line to `.env`.
    pub(super) fn set(&self, line: &str) {
        self.run(&format!("echo '{line}' >> .env"));
    }

    /// Starts a command that does not end by itself, such as `docker compose up`.
    pub(super) fn start_in_foreground(&self, lines: &str, log: &str) -> ComposeUp {
        let log = self.directory.path().join(log);
        let file = File::create(&log).unwrap();
        let mut command = self.shell(lines);
        command
            .stdout(file.try_clone().unwrap())
            .stderr(file)
            .process_group(0);
        let process = command.spawn().unwrap();
        ComposeUp { process, log }
    }

    /// All containers, running or not, as the engine lists them.
    pub(super) fn containers(&self) -> Vec<Value> {
        let listed = self.engine.get("/containers/json?all=1");
        listed.as_array().unwrap().clone()
    }

    /// The only container of a service of Compose, inspected.
    #[track_caller]
    pub(super) fn container(&self, service: &str) -> Value {
        let mut containers = self.containers();
        containers.retain(|container| service_of(container) == service);
        assert_eq!(containers.len(), 1, "{service}: {containers:?}");
        let id = containers[0]["Id"].as_str().unwrap();
        self.engine.get(&format!("/containers/{id}/json"))
    }

    /// The first process of a running container.
    #[track_caller]
    pub(super) fn process_id(&self, service: &str) -> u64 {
        let container = self.container(service);
        let process_id = container["State"]["Pid"].as_u64();
        process_id.filter(|process_id| *process_id > 0).unwrap()
    }

    /// Waits until every one of these services is healthy.
    pub(super) async fn wait_until_healthy(&self, up: &mut ComposeUp, services: &[&str]) {
        eventually_within(START_TIMEOUT, "health of all services", async || {
            up.check_running();
            let containers = self.containers();
            let is_healthy = |service: &&str| {
                containers.iter().any(|container| {
                    let status = container["Status"].as_str().unwrap_or_default();
                    service_of(container) == *service && status.contains("(healthy)")
                })
            };
            services.iter().all(is_healthy).then_some(())
        })
        .await;
    }

    /// A `BusyBox` program in the network of a service, which has the addresses, routes and name of its container.
    pub(super) fn in_network_of(&self, service: &str, arguments: &[&str]) -> Command {
        let mut command = command_in_network_of(self.process_id(service), "/bin/busybox");
        command.args(arguments).stdin(Stdio::null());
        command
    }

    /// Whether a service can connect to a server on a public address.
    pub(super) fn reaches_outside(&self, service: &str) -> bool {
        let address = OUTSIDE_ADDRESS.to_string();
        let mut attempt = self.in_network_of(service, &["nc", "-w", "3", &address, "80"]);
        attempt.output().unwrap().status.success()
    }
}

/// The service of Compose that a listed container belongs to.
fn service_of(container: &Value) -> &str {
    let service = &container["Labels"]["com.docker.compose.service"];
    service.as_str().unwrap_or_default()
}

impl ComposeUp {
    /// The output so far.
    pub(super) fn log(&self) -> String {
        fs::read_to_string(&self.log).unwrap_or_default()
    }

    #[track_caller]
    fn check_running(&mut self) {
        let status = self.process.try_wait().unwrap();
        assert!(
            status.is_none(),
            "docker compose up ended ({status:?}):\n{}",
            self.log()
        );
    }

    /// Sends the signal of Ctrl-C, and waits for the end.
    pub(super) fn interrupt(mut self) {
        self.check_running();
        assert!(self.signal("INT"));
        self.process.wait().unwrap();
    }

    /// Signals the whole process group, as a terminal does. Returns whether the signal was sent.
    fn signal(&self, signal: &str) -> bool {
        let kill = format!("kill -s {signal} -- -{}", self.process.id());
        let kill_status = Command::new("sh").args(["-c", &kill]).status();
        kill_status.is_ok_and(|status| status.success())
    }
}

impl Drop for ComposeUp {
    fn drop(&mut self) {
        if matches!(self.process.try_wait(), Ok(None)) {
            self.signal("KILL");
            let _ = self.process.wait();
        }
        if std::thread::panicking() {
            println!("{}:\n{}", self.log.display(), self.log());
        }
    }
}

/// The commands of `deploy/README.md` for one machine, one text for each fenced block.
pub(super) fn operator_commands() -> Vec<String> {
    fenced_blocks("sh")
}

/// The override file of `deploy/README.md`, with which a service takes its secrets from files.
pub(super) fn override_file() -> String {
    let [file] = fenced_blocks("yaml").try_into().unwrap();
    file
}

/// The fenced blocks of one language in the section about one machine.
fn fenced_blocks(language: &str) -> Vec<String> {
    let text = read("deploy/README.md");
    let (_, section) = text
        .split_once("\n## On one machine, with containers\n")
        .expect("the section about one machine");
    let section = section.split("\n## ").next().unwrap();
    let opening = format!("```{language}\n");
    let blocks = section.split(&opening).skip(1);
    blocks
        .map(|block| block.split("```").next().unwrap().to_owned())
        .collect()
}
