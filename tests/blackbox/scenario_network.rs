//! A separate network for each scenario: two namespaces and a veth pair, servers on both ends, counters that are proved
//! to count, and the verdict at the end of the scenario.

use std::collections::BTreeMap;
use std::fs;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use serde_json::{Value, json};
use tempfile::TempDir;

use crate::certificate::CertificateFiles;
use crate::counter::{self, AllowedTraffic, CableSide};
use crate::expect::{self, FetchExpectation};
use crate::explanation::CheckedFetch;
use crate::fetch::{FetchCommand, FetchOutcome};
use crate::internet::FakeInternet;
use crate::machine;
use crate::namespace::{self, NetworkNamespace};
use crate::range::{BLOCKED_RANGES, LOOPBACK_RANGES, UNANSWERED_RANGES};
use crate::veth::{
    self, INNER_NAME_SERVER, NAME_SERVER, NAME_SERVER_6, PUBLIC_ADDRESS, SYSTEM_NAME_SERVER,
};

/// Number of concurrent runs; each is a process with its own store.
const CONCURRENT_RUNS: usize = 4;

const PROBE_SCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/blackbox/probe.py");

/// Settings of the network of a scenario.
#[derive(Debug, Default)]
pub(crate) struct ScenarioSetup {
    /// Names that the name servers resolve; see `internet.py`.
    pub(crate) zone: Value,
    /// Ranges that the counters do not watch.
    pub(crate) openings: AllowedTraffic,
}

/// The network of a scenario while it runs.
#[derive(Debug)]
pub(crate) struct ScenarioNetwork {
    binary: PathBuf,
    /// The scripted servers on the far side of the veth pair.
    pub(crate) internet: FakeInternet,
    /// Servers on the binary's own host, to which it must not connect.
    decoy: FakeInternet,
    near: NetworkNamespace,
    far: NetworkNamespace,
    certificates: CertificateFiles,
    findings: Mutex<Vec<String>>,
    /// Fetches that were judged, for [`Self::explain`].
    judged: Mutex<Vec<CheckedFetch>>,
    own_addresses: Mutex<Vec<String>>,
    runs: AtomicUsize,
    directory: TempDir,
}

/// Creates a network, proves that its counters work, runs the scenario, and fails if anything forbidden was sent.
pub(crate) fn run(name: &str, plan: &ScenarioSetup, scenario: impl FnOnce(&ScenarioNetwork)) {
    let findings = collect_findings(name, plan, scenario);
    assert!(
        findings.is_empty(),
        "{} findings:\n\n{}\n",
        findings.len(),
        findings.join("\n\n")
    );
}

/// Like [`run`], for a scenario that expects findings.
pub(crate) fn collect_findings(
    name: &str,
    plan: &ScenarioSetup,
    scenario: impl FnOnce(&ScenarioNetwork),
) -> Vec<String> {
    let binary = machine::require();
    namespace::sweep();
    let scenario_network = ScenarioNetwork::new(binary, name, plan);
    scenario_network.prove();
    scenario(&scenario_network);
    scenario_network.demand_silence();
    let mut findings = scenario_network.findings.lock().unwrap().clone();
    let judged = scenario_network.judged.lock().unwrap().clone();
    let own_addresses = scenario_network.own_addresses.lock().unwrap().clone();
    // The names of the zone begin again with their first answers. The first network stays, because fetches name its
    // files.
    let binary = scenario_network.binary;
    let explained = ScenarioNetwork::new(binary, &format!("{name}-again"), plan);
    for address in own_addresses {
        explained.add_own_address(&address);
    }
    explained.explain(&judged);
    explained.demand_silence();
    findings.extend(explained.findings.lock().unwrap().drain(..));
    findings
}

impl ScenarioNetwork {
    fn new(binary: PathBuf, name: &str, plan: &ScenarioSetup) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let certificates = CertificateFiles::new(directory.path());
        let near = NetworkNamespace::new(&format!("{name}-near"));
        let far = NetworkNamespace::new(&format!("{name}-far"));
        veth::connect(&near, &far);
        near.overlay(
            "resolv.conf",
            &format!("search corp.example svc.cluster.example\noptions ndots:5\nnameserver {SYSTEM_NAME_SERVER}\n"),
        );
        near.overlay(
            "hosts",
            &format!("127.0.0.1 localhost\n{PUBLIC_ADDRESS} listed.example.com\n"),
        );
        let servers = [
            NAME_SERVER,
            NAME_SERVER_6,
            SYSTEM_NAME_SERVER,
            INNER_NAME_SERVER,
        ];
        let internet = json!({
            "dns": servers, "zone": plan.zone, "plain": [80, 8080, 8081, 3128], "tls": [443, 8443],
            "tls_directory": certificates.served,
        });
        let internet = FakeInternet::start(&far, directory.path(), "internet", &internet);
        let decoy = FakeInternet::start(
            &near,
            directory.path(),
            "decoy",
            &json!({"plain": [80, 443, 8000, 8080, 8443, 3128]}),
        );
        let addresses = servers.map(|server| server.parse::<IpAddr>().unwrap());
        counter::install(&near, CableSide::Sent, &plan.openings, &addresses);
        counter::install(&far, CableSide::Arrived, &plan.openings, &addresses);
        Self {
            binary,
            internet,
            decoy,
            near,
            far,
            certificates,
            findings: Mutex::default(),
            judged: Mutex::default(),
            own_addresses: Mutex::default(),
            runs: AtomicUsize::new(0),
            directory,
        }
    }

    /// Path of the CA bundle with the authority of the scripted servers.
    pub(crate) fn bundle(&self) -> &str {
        self.certificates.bundle.to_str().unwrap()
    }

    /// Adds an address to the interface that the binary sends from.
    pub(crate) fn add_own_address(&self, address: &str) {
        self.near.ip(&format!("addr add {address} dev near"));
        self.own_addresses.lock().unwrap().push(address.to_owned());
    }

    /// Runs all fetches, several concurrently, and records what is not as expected.
    pub(crate) fn check(&self, cases: &[(FetchCommand, FetchExpectation)]) {
        for_each_concurrently(cases, |(fetch, expect)| {
            self.check_one(fetch, expect);
        });
    }

    /// Has the binary explain all of these fetches, and records where an explanation differs from its fetch.
    fn explain(&self, judged: &[CheckedFetch]) {
        for_each_concurrently(judged, |checked| {
            let fetch = &checked.fetch;
            let explained = self.run_with(|directory, environment| {
                fetch.explain(&self.binary, &self.near, directory, environment)
            });
            if let Err(reason) = checked.compare(&explained) {
                self.note(format!(
                    "{fetch:?}\n  fetched: {}\n  but: {reason}",
                    checked.line
                ));
            }
        });
    }

    /// Runs one fetch and records what is not as expected. Returns its output.
    pub(crate) fn check_one(&self, fetch: &FetchCommand, expect: &FetchExpectation) -> Value {
        let outcome = self.fetch(fetch);
        self.judged
            .lock()
            .unwrap()
            .extend(CheckedFetch::of(fetch, &outcome));
        if let Err(reason) = expect::judge(fetch, expect, &outcome) {
            self.note(format!(
                "{fetch:?}\n  expected: {expect:?}\n  but: {reason}\n  {}\n  stdout: {}\n  stderr: {}",
                outcome.status,
                outcome.stdout.trim_end(),
                tail(&outcome.stderr)
            ));
        }
        serde_json::from_str(&outcome.stdout).unwrap_or_default()
    }

    /// Records a finding unless the condition holds.
    pub(crate) fn demand(&self, holds: bool, otherwise: impl FnOnce() -> String) {
        if !holds {
            self.note(otherwise());
        }
    }

    fn note(&self, finding: String) {
        self.findings.lock().unwrap().push(finding);
    }

    /// One fetch in the usual environment.
    fn fetch(&self, fetch: &FetchCommand) -> FetchOutcome {
        self.run_with(|directory, environment| {
            fetch.run(&self.binary, &self.near, directory, environment)
        })
    }

    /// One run in the usual environment, with a directory that is removed afterwards.
    fn run_with(&self, run: impl FnOnce(&Path, &[(&str, &str)]) -> FetchOutcome) -> FetchOutcome {
        let number = self.runs.fetch_add(1, Ordering::Relaxed);
        let directory = self.directory.path().join(format!("run-{number}"));
        fs::create_dir(&directory).unwrap();
        let environment = [
            ("EXTERNAL_URL_FETCH_ENABLED", "true"),
            ("EXTERNAL_URL_FETCH_DNS_SERVERS", NAME_SERVER),
        ];
        let outcome = run(&directory, &environment);
        fs::remove_dir_all(&directory).unwrap();
        outcome
    }

    /// Sends packets to every watched range: every counter must increase, and every reachable server must respond. Then
    /// resets the counters.
    fn prove(&self) {
        let mut probes: Vec<Value> = BLOCKED_RANGES
            .iter()
            .map(|range| json!({"name": range.name, "address": range.probe()}))
            .collect();
        for (name, address) in [
            ("isatap", "2606:2800:220:1:0:5efe:127.0.0.1"),
            ("own_address", "151.101.1.2"),
            ("kubernetes", "34.118.224.1"),
            ("extra", "20.33.0.1"),
            ("proxy", "198.41.0.4"),
        ] {
            probes.push(json!({"name": name, "address": address}));
        }
        let output = machine::feed(
            self.near.command("python3").args([PROBE_SCRIPT, "near"]),
            &Value::from(probes).to_string(),
        );
        let output: BTreeMap<String, String> = serde_json::from_slice(&output).unwrap();
        let (near, far) = (counter::read(&self.near), counter::read(&self.far));
        for (name, probe) in &output {
            assert!(
                near[name] > 0,
                "the counter {name} does not count; the probe was {probe}"
            );
            let stays_local = LOOPBACK_RANGES.contains(&name.as_str()) || name == "own_address";
            let is_answered = !UNANSWERED_RANGES.contains(&name.as_str());
            assert!(
                stays_local || !is_answered || far[name] > 0,
                "the counter {name} on the far side does not count"
            );
            assert_eq!(
                probe == "answered",
                is_answered,
                "{name}: the probe was {probe}"
            );
        }
        counter::reset(&self.near);
        counter::reset(&self.far);
        self.internet.forget();
        self.decoy.forget();
    }

    /// I-1: after the scenario every counter is zero on both sides, and no decoy server got a request.
    fn demand_silence(&self) {
        for (side, namespace) in [("sent", &self.near), ("arrived", &self.far)] {
            for (name, packets) in counter::read(namespace) {
                let expected = packets == 0 || name == "allowed" || name == "opened";
                self.demand(expected, || format!("{packets} packets {side} for {name}"));
            }
        }
        let connections = self.decoy.connections();
        self.demand(connections.is_empty(), || {
            format!("connections to servers on the own host: {connections:?}")
        });
    }

    /// The number of packets that the binary sent to the networks that the scenario opened.
    pub(crate) fn opened(&self) -> u64 {
        counter::read(&self.near)["opened"]
    }

    /// The number of connection attempts of the binary to allowed ports, at all addresses.
    pub(crate) fn attempts(&self) -> u64 {
        counter::read(&self.near)["allowed"]
    }
}

/// Handles all items, [`CONCURRENT_RUNS`] at a time.
fn for_each_concurrently<T: Sync>(items: &[T], handle: impl Fn(&T) + Sync) {
    let next = AtomicUsize::new(0);
    thread::scope(|scope| {
        for _ in 0..CONCURRENT_RUNS {
            scope.spawn(|| {
                while let Some(item) = items.get(next.fetch_add(1, Ordering::Relaxed)) {
                    handle(item);
                }
            });
        }
    });
}

/// Returns at most the last 1,501 characters of a text, without trailing white space.
fn tail(text: &str) -> &str {
    let start = text
        .char_indices()
        .rev()
        .nth(1500)
        .map_or(0, |(index, _)| index);
    text.get(start..).unwrap_or(text).trim_end()
}
