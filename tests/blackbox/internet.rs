//! The scripted servers (`internet.py`) as a process in a namespace, and the requests that they got.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};

use serde_json::Value;

use crate::namespace::NetworkNamespace;

const INTERNET_SCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/blackbox/internet.py");

/// Running servers. They end when this value is dropped, or with this process.
#[derive(Debug)]
pub(crate) struct FakeInternet {
    child: Child,
    log: PathBuf,
}

/// One question to the name server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct DnsQuestion {
    /// Lower case, without the root dot.
    pub(crate) name: String,
    /// `A`, `AAAA`, or a number.
    pub(crate) kind: String,
    /// Whether the request arrived over TCP.
    pub(crate) tcp: bool,
    /// Address of the name server that was asked.
    pub(crate) server: String,
}

/// One request to a web server.
#[derive(Clone, Debug)]
pub(crate) struct WebRequest {
    /// Address that it was sent to.
    pub(crate) to: String,
    /// Port that it was sent to.
    pub(crate) port: u64,
    /// Everything up to the empty line, as received.
    pub(crate) head: String,
}

impl WebRequest {
    /// Value of the `Host` field.
    pub(crate) fn host(&self) -> &str {
        self.head
            .lines()
            .find_map(|line| line.strip_prefix("Host: "))
            .unwrap_or_default()
    }
}

impl FakeInternet {
    /// Starts the servers with this script and waits until they listen. `name` is unique within the directory.
    pub(crate) fn start(
        namespace: &NetworkNamespace,
        directory: &Path,
        name: &str,
        script: &Value,
    ) -> Self {
        let plan = directory.join(format!("{name}.json"));
        let log = directory.join(format!("{name}.log"));
        fs::write(&plan, script.to_string()).unwrap();
        fs::write(&log, b"").unwrap();
        let mut child = namespace
            .command("python3")
            .arg(INTERNET_SCRIPT)
            .args([&plan, &log])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap())
            .read_line(&mut line)
            .unwrap();
        let servers = Self { child, log };
        assert_eq!(
            line.trim_end(),
            "ready",
            "the scripted servers `{name}` did not start"
        );
        servers
    }

    /// DNS questions that were received so far.
    pub(crate) fn questions(&self) -> Vec<DnsQuestion> {
        let text = |event: &Value, key: &str| event[key].as_str().unwrap().to_owned();
        let read = |event: Value| DnsQuestion {
            name: text(&event, "name"),
            kind: text(&event, "kind"),
            tcp: event["tcp"].as_bool().unwrap(),
            server: text(&event, "to"),
        };
        self.events("dns").map(read).collect()
    }

    /// HTTP requests that were received so far.
    pub(crate) fn requests(&self) -> Vec<WebRequest> {
        let read = |event: Value| WebRequest {
            to: event["to"].as_str().unwrap().to_owned(),
            port: event["port"].as_u64().unwrap(),
            head: event["head"].as_str().unwrap().to_owned(),
        };
        self.events("http").map(read).collect()
    }

    /// Accepted connections so far, as `address:port`.
    pub(crate) fn connections(&self) -> Vec<String> {
        let read = |event: Value| format!("{}:{}", event["to"].as_str().unwrap(), event["port"]);
        self.events("connect").map(read).collect()
    }

    /// Removes all events so far from the log.
    pub(crate) fn forget(&self) {
        // The servers append to the file: they continue at the new end.
        fs::write(&self.log, b"").unwrap();
    }

    fn events(&self, kind: &'static str) -> impl Iterator<Item = Value> {
        let text = fs::read_to_string(&self.log).unwrap();
        let events: Vec<Value> = text
            .lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect();
        events
            .into_iter()
            .filter(move |event| event["event"] == kind)
    }
}

impl Drop for FakeInternet {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
