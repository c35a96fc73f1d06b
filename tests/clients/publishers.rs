//! Tests the publishers of the Python and the TypeScript client while services are killed. Each service has two
//! replicas. Each round kills a random replica with `kill -9` and starts it again: a few rounds in the default suite,
//! dozens in the soak.
//!
//! For every tool call, the publisher must get the right outcome, and the stream and the publisher's durable consumer
//! must have this outcome once.

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::thread::JoinHandle;
use std::time::Duration;

use base64::Engine as _;
use dray_testkit::dial::InjectedFault;
use dray_testkit::{node, python};
use dray_types::Sha256Digest;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom as _;
use rand::{Rng as _, SeedableRng as _};
use serde_json::{Value, json};

use super::machine::ProcessFixture;
use crate::support;
use crate::support::leases;
use crate::support::service_process::ServiceProcess;

const REPLICA_COUNT: usize = 2;
/// Most time between the publication of calls and the kill, in milliseconds: about what a call takes.
const MAX_KILL_DELAY_MS: u64 = 300;
/// Longest time until all outcomes have arrived after the last kill: two leases and redeliveries, on a busy machine.
const OUTCOME_TIMEOUT: Duration = Duration::from_mins(6);
/// A file whose content does not arrive until the first replicas have been killed.
const STALLED_FILE: &str = "acme/stalled.txt";
/// Path of a file that is larger than a message when it is resolved.
const LARGE_FILE: &str = "acme/large.bin";
/// Size of [`LARGE_FILE`] in bytes.
const LARGE_FILE_BYTES: usize = 100_000;

/// The parameters of a run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PublisherRun {
    /// The services that run and are killed; one is `file-resolver`.
    pub(crate) services: &'static [&'static str],
    /// Random kills, after those of both resolvers in the first round.
    pub(crate) kills: usize,
    /// Tool calls that each client publishes before each kill, and in the first round.
    pub(crate) calls: usize,
    /// Seed of all random choices.
    pub(crate) seed: u64,
    /// Whether the test ends the leases of killed processes after the last kill; otherwise the test waits until they
    /// expire.
    pub(crate) expires_leases: bool,
}

/// A program that publishes the requested calls, and its output.
struct PublisherProcess {
    child: Child,
    input: Option<ChildStdin>,
    output: Option<JoinHandle<Vec<Value>>>,
    /// The expected outcome of each operation, as its line of output.
    expected: BTreeMap<String, Value>,
}

impl PublisherProcess {
    fn spawn(command: &mut Command, machine: &ProcessFixture, tenant: &str) -> Self {
        let scenario = json!({"servers": machine.nats.url(), "tenant": tenant});
        let mut child = command
            .env("DRAYAGE_SCENARIO", scenario.to_string())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let output = BufReader::new(child.stdout.take().unwrap());
        // A separate thread reads the output, because a program with a full pipe would block.
        let output = std::thread::spawn(move || {
            let lines = output.lines().map_while(Result::ok);
            lines
                .map(|line| serde_json::from_str(&line).unwrap())
                .collect()
        });
        Self {
            input: child.stdin.take(),
            child,
            output: Some(output),
            expected: BTreeMap::new(),
        }
    }

    /// Asks the program to publish a call.
    fn publish(&mut self, operation: &str, arguments: &Value, mut expected: Value) {
        expected["operation"] = operation.into();
        self.expected.insert(operation.to_owned(), expected);
        // The arguments are text, which is passed on unchanged: each language writes JSON with other spaces.
        let call = json!({"operation": operation, "arguments": arguments.to_string()});
        writeln!(self.input.as_mut().unwrap(), "{call}").unwrap();
    }

    /// Waits until the program has all outcomes and has ended.
    async fn end(&mut self) -> Vec<Value> {
        drop(self.input.take());
        let output = self.output.take().unwrap();
        let joined = tokio::task::spawn_blocking(|| output.join().unwrap());
        let lines = tokio::time::timeout(OUTCOME_TIMEOUT, joined)
            .await
            .unwrap_or_else(|_| panic!("outcomes are missing after {OUTCOME_TIMEOUT:?}"))
            .unwrap();
        assert!(self.child.wait().unwrap().success());
        lines
    }

    /// Compares the outcomes that the program printed with the expected ones.
    fn check(&self, mut lines: Vec<Value>) {
        let missed = lines.pop().expect("a last line");
        let mut missed: Vec<&str> = missed["missed"]
            .as_array()
            .expect("the last line has the missed outcomes")
            .iter()
            .map(|operation| operation.as_str().unwrap())
            .collect();
        missed.sort_unstable();
        let operations: Vec<&str> = self.expected.keys().map(String::as_str).collect();
        assert_eq!(missed, operations, "the consumer has each outcome once");
        assert_eq!(lines.len(), operations.len());
        for line in lines {
            let expected = &self.expected[line["operation"].as_str().unwrap()];
            assert_eq!(&line, expected);
        }
    }
}

impl Drop for PublisherProcess {
    fn drop(&mut self) {
        // The process may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The replicas of the services that run.
struct ReplicaSet<'a> {
    machine: &'a ProcessFixture,
    running: Vec<(&'static str, Option<ServiceProcess>)>,
}

impl<'a> ReplicaSet<'a> {
    async fn start(machine: &'a ProcessFixture, services: &[&'static str]) -> Self {
        let mut running = Vec::new();
        for &service in services {
            for _ in 0..REPLICA_COUNT {
                running.push((service, Some(machine.up(&[service]).await)));
            }
        }
        Self { machine, running }
    }

    fn kill(&mut self, index: usize) {
        self.running[index].1.take().unwrap().kill9();
    }

    /// Starts the killed replicas again.
    async fn restart(&mut self) {
        for (service, replica) in &mut self.running {
            if replica.is_none() {
                *replica = Some(self.machine.up(&[service]).await);
            }
        }
    }

    /// The indexes of the replicas of a service.
    fn replicas_of(&self, service: &str) -> Vec<usize> {
        let all = self.running.iter().enumerate();
        all.filter(|(_, (name, _))| *name == service)
            .map(|(index, _)| index)
            .collect()
    }
}

/// Publishes calls, kills a replica and starts it again, as often as `run` says, and then checks every outcome.
pub(crate) async fn publish_under_kills(run: PublisherRun) {
    println!("{run:?}");
    let fixture = ProcessFixture::start().await;
    fill_files(&fixture);
    let mut random = StdRng::seed_from_u64(run.seed);
    let mut publishers = [python_publisher(&fixture), typescript_publisher(&fixture)];
    let mut replicas = ReplicaSet::start(&fixture, run.services).await;

    // Both resolvers are killed while they process work, so that every run has work that another worker takes over.
    fixture
        .dial
        .inject_file_fault(STALLED_FILE, InjectedFault::Silent);
    publish(&mut publishers, 0, run.calls, &mut random);
    fixture.wait_until_asked(STALLED_FILE).await;
    for index in replicas.replicas_of("file-resolver") {
        replicas.kill(index);
    }
    fixture.dial.clear_file_fault(STALLED_FILE);
    replicas.restart().await;

    for kill in 1..=run.kills {
        publish(&mut publishers, kill, run.calls, &mut random);
        let delay = Duration::from_millis(random.random_range(0..=MAX_KILL_DELAY_MS));
        // The time of the kill is random on purpose, so there is no condition to wait for.
        tokio::time::timeout(delay, std::future::pending::<()>())
            .await
            .ok();
        let services: Vec<usize> = (0..replicas.running.len()).collect();
        replicas.kill(*services.choose(&mut random).unwrap());
        if run.expires_leases && kill == run.kills {
            leases::expire_leases(&fixture.bus).await;
        }
        replicas.restart().await;
        if kill % 10 == 0 {
            println!("{kill} of {} kills", run.kills);
        }
    }
    if run.expires_leases {
        fixture.provision(Some(Duration::from_secs(1))).await;
    }
    check(&fixture, publishers).await;
    let taken_over = leases::count_taken_over(&fixture.bus).await;
    println!("work was taken over {taken_over} times");
    assert!(taken_over > run.kills / 20, "{run:?}: {taken_over}");
}

fn fill_files(machine: &ProcessFixture) {
    machine.dial.put(STALLED_FILE, "arrived", "text/plain");
    machine.dial.put("acme/note.txt", "Grüße", "text/plain");
    let large = vec![0xa5; LARGE_FILE_BYTES];
    machine
        .dial
        .put(LARGE_FILE, large, "application/octet-stream");
}

fn python_publisher(machine: &ProcessFixture) -> PublisherProcess {
    let client = support::root().join("clients/python");
    let mut command = Command::new(python::interpreter("nats, grpc"));
    command
        .arg(client.join("tests/publish_many.py"))
        .env("PYTHONPATH", client.join("src"))
        .env("PYTHONDONTWRITEBYTECODE", "1");
    PublisherProcess::spawn(&mut command, machine, "python")
}

fn typescript_publisher(machine: &ProcessFixture) -> PublisherProcess {
    let mut command = Command::new("node");
    command
        .arg("test/publish_many.js")
        .current_dir(node::client_project());
    PublisherProcess::spawn(&mut command, machine, "typescript")
}

/// Lets each client publish calls of all kinds.
fn publish(publishers: &mut [PublisherProcess], round: usize, calls: usize, random: &mut StdRng) {
    for (client, publisher) in publishers.iter_mut().enumerate() {
        for number in 0..calls {
            let operation = format!("o-{client}-{round}-{number}");
            // The first round waits for a stalled file, so it has one.
            let kind = if round == 0 && number == 0 {
                0
            } else {
                random.random_range(0..5)
            };
            let (arguments, expected) = call_of(kind, &operation);
            publisher.publish(&operation, &arguments, expected);
        }
    }
}

/// The arguments of a call of this kind, and the members that its outcome must have.
fn call_of(kind: u32, operation: &str) -> (Value, Value) {
    match kind {
        0 => (
            json!({"f": format!("file:text::files/{STALLED_FILE}"), "id": operation}),
            json!({"arguments": {"f": "arrived", "id": operation}}),
        ),
        1 => {
            let content =
                base64::engine::general_purpose::STANDARD.encode(vec![0xa5; LARGE_FILE_BYTES]);
            let resolved = json!({"f": content}).to_string();
            (
                json!({"f": format!("file:base64::files/{LARGE_FILE}")}),
                json!({"sha256": Sha256Digest::of(resolved.as_bytes()).to_hex()}),
            )
        }
        2 => {
            let url = format!("http://127.0.0.1/{operation}");
            // The egress service judges the URL and refuses addresses of this machine.
            let refused = format!(
                "External URL {url} resolves to a blocked address (loopback, private, link-local, or cloud-metadata)."
            );
            (
                json!({"page": format!("file:text::{url}")}),
                json!({"rejected": correction_of("page") + &refused}),
            )
        }
        3 => (
            json!({"f": "file:text::files/acme/none.txt"}),
            json!({"rejected": format!(
                "{}File files/acme/none.txt could not be loaded: it does not exist.",
                correction_of("f")
            )}),
        ),
        _ => (
            json!({"f": "file:text::files/acme/note.txt", "id": operation}),
            json!({"arguments": {"f": "Grüße", "id": operation}}),
        ),
    }
}

/// The first words of the text that asks a model to correct a parameter.
fn correction_of(parameter: &str) -> String {
    format!("Parameter {parameter} is invalid, try to call the tool again with fixed exception: ")
}

async fn check(machine: &ProcessFixture, publishers: [PublisherProcess; 2]) {
    let mut operations = Vec::new();
    for mut publisher in publishers {
        let lines = publisher.end().await;
        publisher.check(lines);
        operations.extend(publisher.expected.keys().cloned());
    }
    let counts = machine.count_events().await;
    let expected = operations
        .into_iter()
        .map(|operation| (operation, 1))
        .collect();
    assert_eq!(counts, expected, "the stream has one end of each call");
}
