//! The distributed mode without containers: each service a process with the environment that Compose would give it,
//! on a nats-server with the shipped accounts and a store of its own.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use dray_store::embedded::EmbeddedS3;
use dray_testkit::eventually;
use serde_json::{Value, json};
use tempfile::TempDir;

use super::accounts::server::{Server, password};
use super::compose;
use crate::support;

/// Bus and store, and the environment of every container.
struct System {
    server: Server,
    store: EmbeddedS3,
    options: dray_store::Options,
    containers: Value,
    folder: TempDir,
}

impl System {
    async fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let (store, options) = EmbeddedS3::start(folder.path()).await.unwrap();
        let system = Self {
            server: Server::start(),
            store,
            options,
            containers: compose::effective()["services"].take(),
            folder,
        };
        let applied = system.run("topology", &["topology", "apply"]);
        assert!(applied.status.success(), "{applied:?}");
        system
    }

    /// What a container finds in its environment, with this machine's addresses and secrets.
    fn environment(&self, container: &str) -> BTreeMap<String, String> {
        let variables = self.containers[container]["environment"]
            .as_object()
            .unwrap_or_else(|| panic!("no container {container}"));
        let mut environment: BTreeMap<String, String> = variables
            .iter()
            .map(|(name, value)| (name.clone(), value.as_str().unwrap().to_owned()))
            .collect();
        let user = environment["DRAY_BUS__NATS__USER"].clone();
        let here = self.here(&user);
        environment.retain(|name, _| name != "DRAY_STORE__S3__PUBLIC_ENDPOINT");
        for (name, value) in &mut environment {
            if let Some(replaced) = here.get(name.as_str()) {
                value.clone_from(replaced);
            }
        }
        environment
    }

    /// Everything that differs between a container and a process on this machine.
    fn here(&self, user: &str) -> BTreeMap<&'static str, String> {
        let free = || "127.0.0.1:0".to_owned();
        BTreeMap::from([
            ("DRAY_HTTP__LISTEN", free()),
            ("DRAY_GRPC__LISTEN", free()),
            (
                "DRAY_BUS__NATS__SERVERS",
                format!("nats://{}", self.server.address()),
            ),
            ("DRAY_BUS__NATS__PASSWORD", password(user)),
            ("DRAY_STORE__S3__ENDPOINT", self.options.endpoint.clone()),
            ("DRAY_STORE__S3__BUCKET", self.options.bucket.clone()),
            (
                "DRAY_STORE__S3__ACCESS_KEY",
                self.options.access_key.expose().to_owned(),
            ),
            (
                "DRAY_STORE__S3__SECRET_KEY",
                self.options.secret_key.expose().to_owned(),
            ),
            ("EXTERNAL_URL_FETCH_ENABLED", "true".to_owned()),
        ])
    }

    /// Runs the binary to its end as a container would.
    fn run(&self, container: &str, arguments: &[&str]) -> Output {
        command(&self.environment(container))
            .args(arguments)
            .output()
            .unwrap()
    }

    /// Runs the binary as somebody at a terminal would, with the identity for that.
    fn ask(&self, arguments: &[&str]) -> Output {
        let mut environment = self.here("command-line");
        environment.remove("EXTERNAL_URL_FETCH_ENABLED");
        environment.insert("DRAY_BUS__MODE", "nats".to_owned());
        environment.insert("DRAY_BUS__NATS__NAME", "command-line".to_owned());
        environment.insert("DRAY_BUS__NATS__USER", "command-line".to_owned());
        environment.insert("DRAY_STORE__MODE", "s3".to_owned());
        let environment = environment
            .into_iter()
            .map(|(name, value)| (name.to_owned(), value))
            .collect();
        command(&environment).args(arguments).output().unwrap()
    }

    /// Starts a service and waits until it is ready.
    async fn service(&self, name: &str) -> Service {
        let arguments = &self.containers[name]["command"];
        let log = self.folder.path().join(format!("{name}.log"));
        let mut process = command(&self.environment(name))
            .args(super::strings(arguments))
            .arg("--json")
            .stdout(Stdio::piped())
            .stderr(File::create(&log).unwrap())
            .spawn()
            .unwrap();
        let mut line = String::new();
        let mut stdout = BufReader::new(process.stdout.take().unwrap());
        stdout.read_line(&mut line).unwrap();
        let told: Value = serde_json::from_str(&line).unwrap_or_else(|_| panic!("{name}: {line}"));
        assert_eq!(told["services"], json!([name]));
        let health = told["http"].as_str().unwrap().parse().unwrap();
        let service = Service {
            process,
            health,
            log,
        };
        eventually("readiness", async || service.is("ready").then_some(())).await;
        service
    }
}

/// The binary with this environment and no other.
pub(super) fn command(environment: &BTreeMap<String, String>) -> Command {
    let mut command = Command::new(support::dray());
    command.env_clear().envs(environment).stdin(Stdio::null());
    command
}

/// A running service; a process that was not ended in order is killed.
struct Service {
    process: Child,
    health: SocketAddr,
    log: PathBuf,
}

impl Service {
    /// What a probe says.
    fn is(&self, probe: &str) -> bool {
        self.page(probe).starts_with("HTTP/1.1 200")
    }

    /// A page of the health endpoint; empty when nobody answers.
    fn page(&self, path: &str) -> String {
        let mut answer = String::new();
        let Ok(mut stream) = TcpStream::connect(self.health) else {
            return answer;
        };
        stream
            .set_read_timeout(Some(Duration::from_secs(10)))
            .unwrap();
        let request = format!("GET /{path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
        stream.write_all(request.as_bytes()).unwrap();
        // What was read until an error is all there is.
        let _ = stream.read_to_string(&mut answer);
        answer
    }

    /// Ends it as Kubernetes and Compose do.
    #[track_caller]
    fn end(mut self) {
        // The shell's own: a small machine has no program of that name.
        let kill = format!("kill -TERM {}", self.process.id());
        let sent = Command::new("sh").args(["-c", &kill]).status().unwrap();
        assert!(sent.success());
        let status = self.process.wait().unwrap();
        assert!(status.success(), "{status}");
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        // Already ended is fine.
        let _ = self.process.kill();
        let _ = self.process.wait();
        if std::thread::panicking() {
            let said = std::fs::read_to_string(&self.log).unwrap_or_default();
            println!("{}:\n{said}", self.log.display());
        }
    }
}

/// Standard output as one JSON document.
#[track_caller]
fn printed(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{output:?}"))
}

#[tokio::test(flavor = "multi_thread")]
async fn three_processes_are_one_system_and_end_in_order() {
    let system = System::start().await;
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

    for inside in [
        "http://169.254.169.254/",
        "http://2130706433/",
        "http://[::1]/",
    ] {
        let refused = system.ask(&["fetch", inside, "--json"]);
        assert!(!refused.status.success());
        let verdict = printed(&refused);
        assert_eq!(verdict["verdict"], "deny", "{inside}: {verdict}");
    }
    for service in [fetcher, resolver, sweeper] {
        service.end();
    }
    system.store.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_topology_nothing_is_ready_and_the_reason_is_told() {
    let folder = tempfile::tempdir().unwrap();
    let (store, options) = EmbeddedS3::start(folder.path()).await.unwrap();
    let system = System {
        server: Server::start(),
        store,
        options,
        containers: compose::effective()["services"].take(),
        folder,
    };
    let mut environment = system.environment("egress-fetcher");
    environment.insert("DRAY_BUS__WAIT_FOR_TOPOLOGY".to_owned(), "0s".to_owned());
    let output = command(&environment)
        .args(["up", "--only", "egress-fetcher"])
        .output()
        .unwrap();
    assert!(!output.status.success());
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("dray topology apply"), "{said}");
}

#[test]
fn every_container_has_a_valid_configuration_and_a_typo_is_found() {
    let services = compose::effective()["services"].take();
    for name in ["topology", "egress-fetcher", "file-resolver", "sweeper"] {
        let environment: BTreeMap<String, String> = services[name]["environment"]
            .as_object()
            .unwrap()
            .iter()
            .map(|(name, value)| (name.clone(), value.as_str().unwrap().to_owned()))
            .collect();
        let check = |environment| command(environment).args(["config", "check"]).output();
        let right = check(&environment).unwrap();
        assert!(right.status.success(), "{name}: {right:?}");
        let mut wrong = environment.clone();
        wrong.insert("DRAY_BUS__NATS__SERVER".to_owned(), "nats://x".to_owned());
        let wrong = check(&wrong).unwrap();
        assert_eq!(wrong.status.code(), Some(78), "{name}: {wrong:?}");
    }
}
