//! Tests of previews as people use them: links to real backends, and pages in Chromium.

mod archives;
mod backends;
mod browser;
mod documents;
mod escapes;
mod interruptions;

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use dray_testkit::sshd::Sshd;
use serde_json::Value;

use crate::support;

/// Settings with which this host is reached: its key, and sockets in `control`.
fn ssh_settings(server: &Sshd, control: &Path) -> Vec<String> {
    let settings = [
        ("control_directory", control.join("c").display().to_string()),
        ("host_keys", "accept-new".to_owned()),
        ("config_file", "none".to_owned()),
        ("identity_file", server.key().display().to_string()),
    ];
    let settings = settings.map(|(name, value)| format!("sandbox-transfer.ssh.{name}={value}"));
    settings.into()
}

/// `dray preview` until it is dropped.
struct PreviewProcess {
    process: Child,
    /// Address of the endpoint, such as `http://127.0.0.1:40001`.
    origin: String,
    /// The secret part of the link.
    token: String,
}

/// A response of the endpoint.
#[derive(Debug)]
struct CurlResponse {
    status: u16,
    body: String,
}

impl PreviewProcess {
    /// Starts a preview of this directory of a sandbox and waits for its link.
    fn start(directory: &str, settings: &[&str]) -> Self {
        let options: Vec<&str> = settings
            .iter()
            .flat_map(|setting| ["--set", setting])
            .collect();
        Self::start_with(directory, &options)
    }

    /// Like [`PreviewProcess::start`], with any options.
    fn start_with(directory: &str, options: &[&str]) -> Self {
        let mut process = Command::new(support::dray())
            .args(["--json", "preview", directory])
            .args(options)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(process.stdout.take().unwrap())
            .read_line(&mut line)
            .unwrap();
        let created: Value =
            serde_json::from_str(&line).unwrap_or_else(|_| panic!("no link: {line}"));
        let url = created["url"].as_str().unwrap();
        let (origin, rest) = url.split_once("/v/").unwrap();
        Self {
            process,
            origin: origin.to_owned(),
            token: rest.split('/').next().unwrap().to_owned(),
        }
    }

    /// Requests a path without normalization. `area` is the part of the endpoint, such as `p` for plain files.
    fn get(&self, area: &str, rest: &str) -> CurlResponse {
        self.get_with(area, rest, &[])
    }

    fn get_with(&self, area: &str, rest: &str, options: &[&str]) -> CurlResponse {
        let url = format!("{}/{area}/{}/{rest}", self.origin, self.token);
        let output = Command::new("curl")
            .args([
                "--silent",
                "--path-as-is",
                "--max-time",
                "30",
                "--write-out",
                "\n%{http_code}",
            ])
            .args(options)
            .arg(&url)
            .output()
            .unwrap();
        let text = String::from_utf8_lossy(&output.stdout);
        let (body, status) = text.rsplit_once('\n').unwrap();
        CurlResponse {
            status: status.parse().unwrap(),
            body: body.to_owned(),
        }
    }
}

impl Drop for PreviewProcess {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
