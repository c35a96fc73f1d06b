//! Tests of the distributed mode without containers: each service is a process with the environment that Compose would
//! set, with a nats-server that has the shipped accounts, and a store.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use dray_store::embedded::{AccessKey, EmbeddedS3};
use dray_testkit::eventually;
use dray_types::Secret;
use serde_json::{Value, json};
use tempfile::TempDir;

use super::accounts::server::{AccountsServer, password};
use super::{compose, read};
use crate::support;

/// Bus and store with the shipped permissions, and the environment of every container.
pub(super) struct DistributedSystem {
    /// `None` while it is unavailable.
    pub(super) server: Option<AccountsServer>,
    /// The address on which the server listens, or listened before.
    bus: SocketAddr,
    /// `None` while it is unavailable.
    pub(super) store: Option<EmbeddedS3>,
    options: dray_store::StoreOptions,
    containers: Value,
    directory: TempDir,
    /// Configuration file of an operator in addition to the shipped environment.
    configuration: Option<PathBuf>,
}

impl DistributedSystem {
    /// Starts the bus and the store, without streams and consumers.
    async fn without_topology() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let (store, options) = EmbeddedS3::with_keys(&directory.path().join("store"), &keys())
            .await
            .unwrap();
        let server = AccountsServer::start();
        Self {
            bus: server.address(),
            server: Some(server),
            store: Some(store),
            options,
            containers: compose::effective()["services"].take(),
            directory,
            configuration: None,
        }
    }

    pub(super) async fn start() -> Self {
        let system = Self::without_topology().await;
        system.provision();
        system
    }

    /// Starts the store again, on its former address.
    async fn start_store(&mut self) {
        let directory = self.directory.path().join("store");
        let (store, options) = EmbeddedS3::with_keys(&directory, &keys()).await.unwrap();
        assert_eq!(options.endpoint, self.options.endpoint);
        self.store = Some(store);
    }

    /// Waits until a log contains these words.
    async fn wait_for_log(&self, log: &Path, words: &str) {
        eventually(words, async || {
            let text = std::fs::read_to_string(log).unwrap();
            text.contains(words).then_some(())
        })
        .await;
    }

    /// Creates streams and consumers as the container `topology` does.
    fn provision(&self) {
        let applied = self.run("topology", &["topology", "apply"]);
        assert!(applied.status.success(), "{applied:?}");
    }

    /// The address of the bus.
    pub(super) fn url(&self) -> String {
        format!("nats://{}", self.bus)
    }

    /// A directory of the test.
    pub(super) fn directory(&self) -> &Path {
        self.directory.path()
    }

    /// Adds an operator's configuration file for every service.
    pub(super) fn configure(&mut self, text: &str) {
        let path = self.directory.path().join("dray.toml");
        std::fs::write(&path, text).unwrap();
        self.configuration = Some(path);
    }

    /// The environment of a container, with the addresses and secrets of this machine.
    fn environment(&self, container: &str) -> BTreeMap<String, String> {
        let variables = self.containers[container]["environment"]
            .as_object()
            .unwrap_or_else(|| panic!("no container {container}"));
        let mut environment: BTreeMap<String, String> = variables
            .iter()
            .map(|(name, value)| (name.clone(), value.as_str().unwrap().to_owned()))
            .collect();
        let user = environment["DRAY_BUS__NATS__USER"].clone();
        let replacements = self.local_environment(&user);
        environment.retain(|name, _| name != "DRAY_STORE__S3__PUBLIC_ENDPOINT");
        for (name, value) in &mut environment {
            if let Some(replaced) = replacements.get(name.as_str()) {
                value.clone_from(replaced);
            }
        }
        if let Some(path) = &self.configuration {
            environment.insert("DRAY_CONFIG".to_owned(), path.display().to_string());
            // No test of this file runs a DIAL Core.
            environment.remove("DIAL_URL");
        }
        environment
    }

    /// The variables whose values differ between a container and a process on this machine.
    fn local_environment(&self, user: &str) -> BTreeMap<&'static str, String> {
        let free = || "127.0.0.1:0".to_owned();
        BTreeMap::from([
            ("DRAY_HTTP__LISTEN", free()),
            ("DRAY_GRPC__LISTEN", free()),
            ("DRAY_BUS__NATS__SERVERS", self.url()),
            ("DRAY_BUS__NATS__PASSWORD", password(user)),
            ("DRAY_ORCHESTRATOR__LISTEN", free()),
            ("DRAY_STORE__S3__ENDPOINT", self.options.endpoint.clone()),
            ("DRAY_STORE__S3__BUCKET", self.options.bucket.clone()),
            ("DRAY_STORE__S3__ACCESS_KEY", user.to_owned()),
            ("DRAY_STORE__S3__SECRET_KEY", secret_key(user)),
            ("EXTERNAL_URL_FETCH_ENABLED", "true".to_owned()),
        ])
    }

    /// Runs the binary to its end, as in a container.
    fn run(&self, container: &str, arguments: &[&str]) -> Output {
        command(&self.environment(container))
            .args(arguments)
            .output()
            .unwrap()
    }

    /// Runs the binary to its end, as a person at a terminal does, with the identity `command-line`.
    pub(super) fn ask(&self, arguments: &[&str]) -> Output {
        self.ask_as("command-line", arguments)
    }

    /// Like [`Self::ask`] with another identity.
    pub(super) fn ask_as(&self, user: &str, arguments: &[&str]) -> Output {
        self.command_as(user, arguments).output().unwrap()
    }

    /// A command of a person at a terminal with this identity.
    pub(super) fn command_as(&self, user: &str, arguments: &[&str]) -> Command {
        let mut environment = self.local_environment(user);
        for name in [
            "EXTERNAL_URL_FETCH_ENABLED",
            "DRAY_ORCHESTRATOR__LISTEN",
            "DRAY_HTTP__LISTEN",
            "DRAY_GRPC__LISTEN",
        ] {
            environment.remove(name);
        }
        environment.insert("DRAY_BUS__MODE", "nats".to_owned());
        environment.insert("DRAY_BUS__NATS__NAME", user.to_owned());
        environment.insert("DRAY_BUS__NATS__USER", user.to_owned());
        environment.insert("DRAY_STORE__MODE", "s3".to_owned());
        let environment = environment
            .into_iter()
            .map(|(name, value)| (name.to_owned(), value))
            .collect();
        let mut local_command = command(&environment);
        local_command.current_dir(self.directory()).args(arguments);
        local_command
    }

    /// Starts a service and waits until it is ready.
    async fn service(&self, name: &str) -> ServiceProcess {
        self.replica(name, 0).await
    }

    /// Starts one of several replicas of a service and waits until it is ready.
    pub(super) async fn replica(&self, name: &str, number: u32) -> ServiceProcess {
        let log = self.directory.path().join(format!("{name}-{number}.log"));
        Self::ready(name, self.spawn(name, &log), log).await
    }

    /// Starts a service as its container does.
    fn spawn(&self, name: &str, log: &Path) -> Child {
        command(&self.environment(name))
            .args(super::strings(&self.containers[name]["command"]))
            .arg("--json")
            .stdout(Stdio::piped())
            .stderr(File::create(log).unwrap())
            .spawn()
            .unwrap()
    }

    /// Waits until a service that was started is ready.
    async fn ready(name: &str, mut process: Child, log: PathBuf) -> ServiceProcess {
        let mut line = String::new();
        let mut stdout = BufReader::new(process.stdout.take().unwrap());
        stdout.read_line(&mut line).unwrap();
        let ready: Value = serde_json::from_str(&line).unwrap_or_else(|_| {
            let log_text = std::fs::read_to_string(&log).unwrap_or_default();
            panic!("{name}: {line}{log_text}")
        });
        assert_eq!(ready["services"], json!([name]));
        let health = ready["http"].as_str().unwrap().parse().unwrap();
        let address = |listener: &str| ready[listener].as_str().map(str::to_owned);
        let service = ServiceProcess {
            process,
            health,
            chat: address("chat"),
            grpc: address("grpc"),
            log,
        };
        eventually("readiness", async || service.is("ready").then_some(())).await;
        service
    }
}

/// The access keys that `deploy/minio/setup.sh` creates, each with the policy that the script attaches.
fn keys() -> Vec<AccessKey> {
    let script = read("deploy/minio/setup.sh");
    let users = script
        .lines()
        .filter_map(|line| line.strip_prefix("grant "))
        .filter_map(|line| line.split(' ').next());
    users
        .map(|user| AccessKey {
            access_key: user.to_owned(),
            secret_key: Secret::new(secret_key(user)),
            policy: serde_json::from_str(&read(&format!("deploy/minio/policies/{user}.json")))
                .unwrap(),
        })
        .collect()
}

/// The secret of an access key in these tests.
fn secret_key(user: &str) -> String {
    format!("store-secret-of-{user}")
}

/// The binary with this environment and no other.
pub(super) fn command(environment: &BTreeMap<String, String>) -> Command {
    let mut command = Command::new(support::dray());
    command.env_clear().envs(environment).stdin(Stdio::null());
    command
}

/// A running service. Dropping it kills the process unless [`Self::end`] was called.
pub(super) struct ServiceProcess {
    process: Child,
    health: SocketAddr,
    /// Address for chats; `None` for a service without chats.
    pub(super) chat: Option<String>,
    /// Address for gRPC; `None` where the configuration has none.
    pub(super) grpc: Option<String>,
    log: PathBuf,
}

impl ServiceProcess {
    /// The log so far.
    pub(super) fn log(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap()
    }

    /// Whether a probe (`live`, `started` or `ready`) responds with 200.
    pub(super) fn is(&self, probe: &str) -> bool {
        self.page(probe).starts_with("HTTP/1.1 200")
    }

    /// A page of the health endpoint; empty without a response.
    pub(super) fn page(&self, path: &str) -> String {
        let mut response = String::new();
        let Ok(mut stream) = TcpStream::connect(self.health) else {
            return response;
        };
        stream
            .set_read_timeout(Some(Duration::from_secs(10)))
            .unwrap();
        let request = format!("GET /{path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).unwrap();
        // The connection may be reset at its end, after the response.
        let _ = stream.read_to_string(&mut response);
        response
    }

    /// Stops the process as Kubernetes and Compose do, with SIGTERM, and checks that it succeeds.
    #[track_caller]
    pub(super) fn end(mut self) {
        // The `kill` that is built into the shell: minimal systems have no program of this name.
        let kill = format!("kill -TERM {}", self.process.id());
        let kill_status = Command::new("sh").args(["-c", &kill]).status().unwrap();
        assert!(kill_status.success());
        let status = self.process.wait().unwrap();
        assert!(status.success(), "{status}");
    }
}

impl Drop for ServiceProcess {
    fn drop(&mut self) {
        // The process may have ended already.
        let _ = self.process.kill();
        let _ = self.process.wait();
        if std::thread::panicking() {
            let log = std::fs::read_to_string(&self.log).unwrap_or_default();
            println!("{}:\n{log}", self.log.display());
        }
    }
}

/// Standard output as one JSON document.
#[track_caller]
pub(super) fn printed(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{output:?}"))
}

#[tokio::test(flavor = "multi_thread")]
async fn three_processes_are_one_system_and_end_in_order() {
    let system = DistributedSystem::start().await;
    let fetcher = system.service("egress-fetcher").await;
    let resolver = system.service("file-resolver").await;
    let sweeper = system.service("sweeper").await;
    for service in [&fetcher, &resolver, &sweeper] {
        assert!(service.is("live") && service.is("started"));
        assert!(service.page("metrics").contains("dray_"));
    }

    let resolved = system.ask(&[
        "resolve",
        "--arguments",
        r#"{"plain": "text", "link": "file:url::https://example.org/a"}"#,
    ]);
    assert!(resolved.status.success(), "{resolved:?}");
    assert_eq!(
        printed(&resolved),
        json!({"plain": "text", "link": "https://example.org/a"})
    );

    for url in [
        "http://169.254.169.254/",
        "http://2130706433/",
        "http://[::1]/",
    ] {
        let refused = system.ask(&["fetch", url, "--json"]);
        assert!(!refused.status.success());
        let verdict = printed(&refused);
        assert_eq!(verdict["verdict"], "deny", "{url}: {verdict}");
    }
    for service in [fetcher, resolver, sweeper] {
        service.end();
    }
    system.store.unwrap().stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_topology_no_process_is_ready_and_the_reason_is_reported() {
    let system = DistributedSystem::without_topology().await;
    let mut environment = system.environment("egress-fetcher");
    environment.insert("DRAY_BUS__WAIT_FOR_TOPOLOGY".to_owned(), "0s".to_owned());
    let output = command(&environment)
        .args(["up", "--only", "egress-fetcher"])
        .output()
        .unwrap();
    assert!(!output.status.success());
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(stderr.contains("dray topology apply"), "{stderr}");
}

#[test]
fn every_container_has_a_valid_configuration_and_a_typo_is_found() {
    let services = compose::effective()["services"].take();
    for name in compose::SERVICE_NAMES.into_iter().chain(["topology"]) {
        let environment: BTreeMap<String, String> = services[name]["environment"]
            .as_object()
            .unwrap()
            .iter()
            .map(|(name, value)| (name.clone(), value.as_str().unwrap().to_owned()))
            .collect();
        let check = |environment| command(environment).args(["config", "check"]).output();
        let valid = check(&environment).unwrap();
        assert!(valid.status.success(), "{name}: {valid:?}");
        let mut misspelled = environment.clone();
        misspelled.insert("DRAY_BUS__NATS__SERVER".to_owned(), "nats://x".to_owned());
        let refused = check(&misspelled).unwrap();
        assert_eq!(refused.status.code(), Some(78), "{name}: {refused:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_service_that_starts_before_the_bus_and_the_store_waits_for_both() {
    // The system was started and stopped, so that the addresses are known.
    let mut system = DistributedSystem::start().await;
    system.server = None;
    system.store.take().unwrap().stop().await;

    let log = system.directory.path().join("early.log");
    let mut process = system.spawn("file-resolver", &log);
    system.wait_for_log(&log, "waiting for the bus").await;
    assert!(process.try_wait().unwrap().is_none(), "the process ended");
    system.server = Some(AccountsServer::start_on(&system.bus.to_string()));
    system.provision();
    system
        .wait_for_log(&log, "waiting for the object store")
        .await;
    assert!(process.try_wait().unwrap().is_none(), "the process ended");
    system.start_store().await;
    DistributedSystem::ready("file-resolver", process, log)
        .await
        .end();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_service_without_start_wait_ends_and_names_the_missing_peer() {
    let mut system = DistributedSystem::start().await;
    system.server = None;
    let mut environment = system.environment("file-resolver");
    environment.insert("DRAY_BUS__WAIT_FOR_SERVER".to_owned(), "0s".to_owned());
    let output = command(&environment)
        .args(["up", "--only", "file-resolver"])
        .output()
        .unwrap();
    assert!(!output.status.success());
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(stderr.contains("cannot connect to the bus"), "{stderr}");
}
