//! A target of connections in a network namespace behind a pair of interfaces, because the guard never opens addresses
//! of this machine.

use std::io::{BufRead as _, BufReader, Lines};
use std::net::Ipv4Addr;
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::sync::{Arc, Mutex};

use dray_testkit::tls::Authority;
use serde_json::Value;

use crate::support;

/// Host name that the resolver of the test knows.
pub(crate) const TARGET_NAME: &str = "files.example.org";

/// The reports of the target, each with the port of a connection: `received` at its first byte, `ended` at its end.
type Reports = Arc<Mutex<Vec<(u16, String)>>>;

/// The target, its namespace and its reports.
pub(crate) struct EgressTarget {
    /// The address on which it listens.
    pub(crate) address: Ipv4Addr,
    /// The address of its name server. It differs from that of the target, because the guard protects name servers.
    pub(crate) name_server: Ipv4Addr,
    namespace: String,
    reports: Reports,
    process: Child,
}

impl EgressTarget {
    /// Creates the namespace and starts the target, whose certificate `authority` signs. Files go into `directory`.
    pub(crate) fn start(authority: &Authority, directory: &Path) -> Self {
        let id = std::process::id();
        // Tests run concurrently, so each has a separate network.
        let [_, _, third, fourth] = id.to_be_bytes();
        let [near, address, name_server] =
            [1, 2, 3].map(|last| Ipv4Addr::new(10, 128 | third, fourth, last));
        let namespace = format!("dray-egress-{id}");
        for line in [
            format!("netns add {namespace}"),
            format!("link add den{id} type veth peer name def{id} netns {namespace}"),
            format!("addr add {near}/29 dev den{id}"),
            format!("link set den{id} up"),
            format!("-n {namespace} addr add {address}/29 dev def{id}"),
            format!("-n {namespace} addr add {name_server}/29 dev def{id}"),
            format!("-n {namespace} link set def{id} up"),
        ] {
            support::stdout(Command::new("ip").args(line.split(' ')));
        }
        let issued = authority.issue(&[TARGET_NAME], false).unwrap();
        let (certificate, key) = (directory.join("target.pem"), directory.join("target.key"));
        std::fs::write(&certificate, issued.certificate).unwrap();
        std::fs::write(&key, issued.private_key).unwrap();
        let mut command = Command::new("ip");
        command
            .args(["netns", "exec", &namespace, "python3"])
            .arg(support::root().join("tests/python/egress_target.py"))
            .args([&address.to_string(), &name_server.to_string(), TARGET_NAME])
            .args([certificate, key])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        let mut process = command.spawn().unwrap();
        let mut lines = BufReader::new(process.stdout.take().unwrap()).lines();
        let ready = lines.next().unwrap().unwrap();
        assert_eq!(ready, "ready");
        let reports = Reports::default();
        let shared = Arc::clone(&reports);
        // The thread ends with the process.
        std::thread::spawn(move || read_reports(lines, &shared));
        Self {
            address,
            name_server,
            namespace,
            reports,
            process,
        }
    }

    /// The remote ports of connections that have received a byte. A port may be in the list several times.
    pub(crate) fn received_ports(&self) -> Vec<u16> {
        self.ports("received")
    }

    /// The number of connections that have received a byte and have not ended.
    pub(crate) fn open_count(&self) -> usize {
        // A report `ended` without a byte belongs to a connection that the proxy opened and then refused.
        let ended = self.ports("ended");
        let mut open = self.received_ports();
        for port in ended {
            if let Some(index) = open.iter().position(|open_port| *open_port == port) {
                open.swap_remove(index);
            }
        }
        open.len()
    }

    fn ports(&self, description: &str) -> Vec<u16> {
        let reports = self.reports.lock().unwrap();
        reports
            .iter()
            .filter(|(_, reported)| reported == description)
            .map(|(port, _)| *port)
            .collect()
    }
}

impl Drop for EgressTarget {
    fn drop(&mut self) {
        // The process may have ended already.
        let _ = self.process.kill();
        let _ = self.process.wait();
        let _ = Command::new("ip")
            .args(["netns", "delete", &self.namespace])
            .output();
    }
}

fn read_reports(lines: Lines<BufReader<ChildStdout>>, reports: &Reports) {
    for line in lines.map_while(Result::ok) {
        let report: Value = serde_json::from_str(&line).unwrap();
        let port = u16::try_from(report["port"].as_u64().unwrap()).unwrap();
        let description = report["what"].as_str().unwrap().to_owned();
        reports.lock().unwrap().push((port, description));
    }
}

/// Creates the authority of the proxy as `docs/egress-proxy.md` says.
pub(crate) fn create_proxy_authority(home: &Path) {
    let mut openssl = Command::new("openssl");
    openssl
        .args(["req", "-x509", "-newkey", "ec", "-pkeyopt"])
        .args(["ec_paramgen_curve:P-256", "-nodes", "-days", "2"])
        .args(["-subj", "/CN=Egress proxy"])
        .args(["-addext", "keyUsage=critical,keyCertSign,cRLSign"])
        .arg("-keyout")
        .arg(home.join("proxy-ca.key"))
        .arg("-out")
        .arg(home.join("proxy-ca.pem"));
    support::stdout(&mut openssl);
}
