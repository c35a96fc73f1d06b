//! The login of the console in Chromium, through an independent identity provider.

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use serde_json::{Value, json};

use crate::support::{self, node, up::UpServer};

/// The provider (MIT). It is certified by the OpenID Foundation.
const PROVIDER_PACKAGES: [&str; 1] = ["oidc-provider@9.13.3"];
/// Id of the console at the provider.
const CLIENT_ID: &str = "console";
/// Secret of the console at the provider. It has characters that have to be encoded.
const CLIENT_SECRET: &str = "a secret+with:signs";

/// The provider as a process, until it is dropped.
struct ProviderProcess {
    process: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
    issuer: String,
}

impl ProviderProcess {
    fn start() -> Self {
        let mut process = Command::new("node")
            .arg(support::root().join("tests/console/provider.mjs"))
            .args([CLIENT_ID, CLIENT_SECRET])
            .current_dir(node::packages("node-oidc", &PROVIDER_PACKAGES))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let input = process.stdin.take().unwrap();
        let mut output = BufReader::new(process.stdout.take().unwrap());
        let issuer = read_line(&mut output);
        Self {
            process,
            input,
            output,
            issuer,
        }
    }

    /// Begins to serve, with this console as its client.
    fn serve(&mut self, console: &str) {
        writeln!(self.input, "{console}/login/return").unwrap();
        assert_eq!(read_line(&mut self.output), "serving");
    }
}

impl Drop for ProviderProcess {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

fn read_line(output: &mut BufReader<ChildStdout>) -> String {
    let mut line = String::new();
    output.read_line(&mut line).unwrap();
    line.trim().to_owned()
}

/// Logs in with a browser, and returns its observations.
fn walk(home: &Path, console: &str) -> Value {
    let mut walk = Command::new("node");
    walk.arg(support::root().join("tests/console/login.cjs"))
        .arg(console)
        .current_dir(node::packages("node-console", &node::BROWSER_PACKAGES))
        .env("HOME", home);
    serde_json::from_str(&support::stdout(&mut walk)).unwrap()
}

#[test]
fn a_person_logs_in_through_a_certified_provider_in_a_browser() {
    let directory = tempfile::tempdir().unwrap();
    let secret = directory.path().join("secret");
    std::fs::write(&secret, format!("{CLIENT_SECRET}\n")).unwrap();
    let mut provider = ProviderProcess::start();
    let secret = secret.to_string_lossy();
    let options = [
        ["--console", "127.0.0.1:0"],
        ["--oidc-issuer", provider.issuer.as_str()],
        ["--oidc-client-id", CLIENT_ID],
        ["--oidc-client-secret-file", &secret],
        ["--oidc-act", "ops"],
    ];
    let options = [options.as_flattened(), &["--oidc-logout-return"]].concat();
    let server = UpServer::start(directory.path(), &options, "console: ");
    let (console, _) = server.url.split_once("/login").unwrap();
    provider.serve(console);
    let browser_report = walk(directory.path(), console);
    let text = |name: &str| browser_report[name].as_str().unwrap().to_owned();
    let header = text("header");
    assert!(header.contains("Person ada may act"), "{browser_report}");
    let port = console.rsplit(':').next().unwrap();
    // The cookie of the login attempt was removed.
    assert_eq!(
        browser_report["cookies"],
        json!([{"name": format!("dray-console-{port}"), "httpOnly": true, "sameSite": "Strict"}])
    );
    assert!(text("logout").contains("may still be logged in at 127.0.0.1"));
    assert!(
        text("back").contains("You are back from 127.0.0.1"),
        "{browser_report}"
    );
    assert_eq!(text("afterLogout"), "Log in");
    assert_eq!(browser_report["asksAgain"], true, "{browser_report}");
    assert!(text("stranger").contains("Person eve"), "{browser_report}");
    assert!(
        text("stranger").contains("no role in this console"),
        "{browser_report}"
    );
    server.end();
}
