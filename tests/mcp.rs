//! Tests of `dray mcp` with the client of the official `mcp` package, over stdio and HTTP, in two versions of the
//! protocol.

use std::fmt::Write as _;
use std::io::{BufRead as _, BufReader};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use dray_testkit::python;
use serde_json::{Value, json};

use crate::support::{self, up::UpServer};

mod advisories;
mod agents;
mod cache_hints;
mod conformance;
mod egress;
mod listings;
mod other_clients;
mod resources;
mod schemas;

/// Protocol versions: `legacy` begins with `initialize`, the other one has no handshake.
const PROTOCOL_ERAS: [(&str, &str); 2] = [("legacy", "2025-11-25"), ("2026-07-28", "2026-07-28")];
/// Token of the tests over HTTP.
const TEST_TOKEN: &str = "a-token-for-these-tests";
/// Most tokens of a result, estimated as in docs/mcp-server.md.
const MAX_RESULT_TOKENS: u64 = 20_000;
/// A picture of one pixel.
const ONE_PIXEL_PNG: &[u8] = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\0\0\x01\0\0\0\x01\x08\x06\0\0\0\x1f\x15\xc4\x89\0\0\0\rIDATx\xdac\
\xf8\xcf\xc0P\x0f\0\x04\x85\x01\x80\x84\xa9\x8c!\0\0\0\0IEND\xaeB`\x82";

/// A home, and a root with documents beside files that must stay out of reach.
struct McpFixture {
    directory: tempfile::TempDir,
}

impl McpFixture {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let path = |name: &str| directory.path().join(name);
        for name in ["home", "data", "data-old", "box", "out"] {
            std::fs::create_dir(path(name)).unwrap();
        }
        std::fs::write(path("secret.txt"), "secret").unwrap();
        std::fs::write(path("data-old/secret.txt"), "secret").unwrap();
        symlink("../secret.txt", path("data/link")).unwrap();
        std::fs::write(path("data/notes.txt"), "The answer is 42.\n").unwrap();
        std::fs::write(path("data/big.txt"), big_text()).unwrap();
        std::fs::write(path("data/dot.png"), ONE_PIXEL_PNG).unwrap();
        std::fs::write(
            path("data/data.bin"),
            b"\x7fELF\x02\x01\x01\0\x80\xff".repeat(400),
        )
        .unwrap();
        let report = support::root().join("tests/documents/corpus/pdf/report.pdf");
        std::fs::copy(report, path("data/report.pdf")).unwrap();
        Self { directory }
    }

    fn path(&self, name: &str) -> String {
        self.directory
            .path()
            .join(name)
            .to_str()
            .unwrap()
            .to_owned()
    }

    /// Runs a job of the client with a server over stdio, and returns the client's report.
    fn over_stdio(&self, era: &str, job: &str, options: &[String]) -> Value {
        let root = self.path("data");
        let mut client = self.client();
        client.args([era, &root, job]).arg(support::dray());
        client.args(["mcp", "--root", &root]).args(options);
        serde_json::from_str(&support::stdout(&mut client)).unwrap()
    }

    /// Runs the client with a server over HTTP, and returns the client's report.
    fn over_http(&self, era: &str, url: &str) -> Value {
        let mut client = self.client();
        client.args([era, &self.path("data"), "http", url, TEST_TOKEN]);
        serde_json::from_str(&support::stdout(&mut client)).unwrap()
    }

    fn client(&self) -> Command {
        let script = support::root().join("tests/python/mcp_client.py");
        let mut client = Command::new(python::interpreter("mcp"));
        client.arg(script).env("HOME", self.path("home"));
        client
    }
}

/// Text that needs several results, with characters of two bytes that a boundary could split.
fn big_text() -> String {
    let mut text = String::new();
    for line in 0..12_000 {
        writeln!(text, "строка {line}").unwrap();
    }
    text
}

#[test]
fn documents_are_read_within_the_budget_in_both_eras() {
    let fixture = McpFixture::new();
    for (era, version) in PROTOCOL_ERAS {
        let client_report = fixture.over_stdio(era, "read", &[]);
        assert_eq!(client_report["version"], version);
        let expected_tools = json!([
            "read",
            "fetch",
            "list",
            "get",
            "receipts",
            "resolve_file_arguments",
            "policy_check"
        ]);
        assert_eq!(client_report["tools"], expected_tools);
        assert_eq!(
            client_report["prompts"],
            json!(["read_document", "fetch_page"])
        );
        assert_eq!(client_report["templates"].as_array().unwrap().len(), 3);
        assert!(text_of(&client_report["notes"]).contains("The answer is 42."));
        assert!(
            text_of(&client_report["pdf"]).contains("Ostermoor"),
            "{}",
            client_report["pdf"]
        );
        let big = &client_report["big"];
        assert!(
            big["tokens"].as_u64().unwrap() <= MAX_RESULT_TOKENS,
            "{}",
            big["tokens"]
        );
        assert_eq!(big["structured"]["next"]["tool"], "read");
        // The parts join exactly: no line and no half of a character is lost between them. Line ends are ignored,
        // because each frame adds one. The message has only a length, because the text is long.
        let parts = client_report["parts"]["text"]
            .as_str()
            .unwrap()
            .replace('\n', "");
        assert!(
            parts == big_text().replace('\n', ""),
            "{} characters",
            parts.len()
        );
        assert_eq!(client_report["picture"]["kinds"], json!(["text", "image"]));
        assert_eq!(
            client_report["binary"]["kinds"],
            json!(["text", "resource_link"])
        );
        assert_eq!(
            client_report["resolved"]["error"], false,
            "{}",
            client_report["resolved"]
        );
    }
}

#[test]
fn a_call_that_is_not_allowed_is_refused_with_advice() {
    let fixture = McpFixture::new();
    let client_report = fixture.over_stdio("2026-07-28", "read", &[]);
    for refused in client_report["outside"].as_array().unwrap() {
        assert_eq!(refused["error"], true, "{refused}");
        assert!(!refused.to_string().contains("secret\\n"), "{refused}");
    }
    assert!(
        text_of(&client_report["fetch"]).contains("egress-fetcher.enabled=true"),
        "{}",
        client_report["fetch"]
    );
    assert!(
        text_of(&client_report["other"]).contains("session is not known"),
        "{}",
        client_report["other"]
    );
    assert!(
        text_of(&client_report["to"]).contains("--allow-write"),
        "{}",
        client_report["to"]
    );
    assert!(
        text_of(&client_report["wrong"]).contains("`file`"),
        "{}",
        client_report["wrong"]
    );
    for name in ["fetch", "other", "to", "wrong"] {
        assert_eq!(client_report[name]["error"], true, "{name}");
    }
}

#[test]
fn files_are_put_read_and_sent_with_proof_when_options_allow_it() {
    let fixture = McpFixture::new();
    let (sandbox, out) = (fixture.path("box"), fixture.path("out"));
    let options = [
        "--allow-write".to_owned(),
        "--allow-send".to_owned(),
        format!("--sandbox=local:{sandbox}"),
        format!("--to=cli:{out}"),
    ];
    let client_report = fixture.over_stdio("2026-07-28", "write", &options);
    assert_eq!(client_report["tools"].as_array().unwrap().len(), 9);
    let copy = PathBuf::from(fixture.path("data/copy.txt"));
    assert_eq!(
        std::fs::read_to_string(copy).unwrap(),
        "The answer is 42.\n"
    );
    assert!(
        text_of(&client_report["again"]).contains("never replaced"),
        "{}",
        client_report["again"]
    );
    assert_eq!(
        client_report["put"]["structured"]["integrity"],
        "sha256_after"
    );
    assert!(!client_report["steps"].as_array().unwrap().is_empty());
    assert_eq!(
        client_report["listed"]["structured"]["entries"][0]["name"],
        "notes.txt"
    );
    assert!(text_of(&client_report["read"]).contains("The answer is 42."));
    assert_eq!(
        client_report["sent"]["structured"]["success"], true,
        "{}",
        client_report["sent"]
    );
    // The same id means the same delivery.
    assert_eq!(client_report["sent_again"], client_report["sent"]);
    assert_eq!(std::fs::read_dir(&out).unwrap().count(), 2);
    let deliveries = &client_report["receipts"]["structured"]["deliveries"];
    assert_eq!(deliveries.as_array().unwrap().len(), 1);
    assert_eq!(client_report["receipt"], true);
    assert_eq!(
        client_report["resource"],
        json!(["The answer is 42.\n", "text/plain"])
    );
    assert_eq!(client_report["sandbox"], "The answer is 42.\n");
    for name in ["outside", "unsent"] {
        assert_eq!(
            client_report[name]["error"], true,
            "{name}: {}",
            client_report[name]
        );
    }
    assert!(!PathBuf::from(fixture.path("escaped.txt")).exists());
}

/// A server over HTTP, until it is dropped.
struct HttpServer {
    process: Child,
    url: String,
}

impl HttpServer {
    fn start(fixture: &McpFixture) -> Self {
        std::fs::write(fixture.path("token"), TEST_TOKEN).unwrap();
        Self::start_with(fixture, &["--token-file", &fixture.path("token")])
    }

    fn start_with(fixture: &McpFixture, options: &[&str]) -> Self {
        let mut process = Command::new(support::dray())
            .args(["mcp", "--http", "127.0.0.1:0"])
            .args(["--root", &fixture.path("data")])
            .args(options)
            .env("HOME", fixture.path("home"))
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut line = String::new();
        BufReader::new(process.stderr.take().unwrap())
            .read_line(&mut line)
            .unwrap();
        let url = line.trim().strip_prefix("MCP: ").unwrap().to_owned();
        Self { process, url }
    }
}

impl Drop for HttpServer {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

#[test]
fn http_refuses_other_hosts_origins_and_tokens() {
    let fixture = McpFixture::new();
    let server = HttpServer::start(&fixture);
    for (era, version) in PROTOCOL_ERAS {
        let client_report = fixture.over_http(era, &server.url);
        assert_eq!(client_report["version"], version);
        assert!(text_of(&client_report["notes"]).contains("The answer is 42."));
        let statuses = &client_report["statuses"];
        for name in ["none", "wrong", "basic"] {
            assert_eq!(statuses[name], 401, "{name}");
        }
        for name in ["host", "origin", "null", "port"] {
            assert_eq!(statuses[name], 403, "{name}");
        }
        // The server admits the connection; the protocol decides about the request.
        let own = statuses["own"].as_u64().unwrap();
        assert!(own != 401 && own != 403, "{own}");
    }
}

#[test]
fn an_auth_file_gives_each_token_its_tenant_and_scopes() {
    let fixture = McpFixture::new();
    let digest = "0c3b4d5c1a1d6c8f".repeat(4);
    let file = fixture.path("auth.toml");
    std::fs::write(fixture.path("reader.token"), TEST_TOKEN).unwrap();
    let text = format!(
        "[[token]]\nname = 'reader'\nfile = 'reader.token'\nscopes = ['read']\nsession = 's1'\n\
         [[token]]\nname = 'other'\nsha256 = '{digest}'\nscopes = ['send']\nsession = 's2'\ntenant = 'acme'\n"
    );
    std::fs::write(&file, text).unwrap();
    let server = HttpServer::start_with(&fixture, &["--auth-file", &file]);
    for (era, version) in PROTOCOL_ERAS {
        let client_report = fixture.over_http(era, &server.url);
        assert_eq!(client_report["version"], version);
        assert!(text_of(&client_report["notes"]).contains("The answer is 42."));
        assert_eq!(client_report["statuses"]["none"], 401);
        assert_eq!(client_report["statuses"]["wrong"], 401);
    }
    std::fs::write(
        &file,
        "[[token]]\nname = 'x'\nscopes = ['all']\nsession = 's1'\n",
    )
    .unwrap();
    let refused = Command::new(support::dray())
        .args(["mcp", "--http", "127.0.0.1:0", "--auth-file", &file])
        .env("HOME", fixture.path("home"))
        .output()
        .unwrap();
    assert_eq!(refused.status.code(), Some(2), "{refused:?}");
    let stderr_text = String::from_utf8_lossy(&refused.stderr);
    assert!(
        stderr_text.contains("--auth-file: token `x`:"),
        "{stderr_text}"
    );
}

/// Starts `dray up` with the MCP endpoint on a free port.
fn start_up(fixture: &McpFixture, options: &[&str]) -> UpServer {
    let options = [&["--mcp", "127.0.0.1:0"], options].concat();
    UpServer::start(Path::new(&fixture.path("home")), &options, "MCP: ")
}

#[test]
fn dray_up_serves_the_same_server_beside_its_other_endpoints() {
    let fixture = McpFixture::new();
    std::fs::write(fixture.path("token"), TEST_TOKEN).unwrap();
    let (root, token) = (fixture.path("data"), fixture.path("token"));
    let server = start_up(&fixture, &["--mcp-root", &root, "--mcp-token-file", &token]);
    for (era, version) in PROTOCOL_ERAS {
        let client_report = fixture.over_http(era, &server.url);
        assert_eq!(client_report["version"], version);
        assert!(text_of(&client_report["notes"]).contains("The answer is 42."));
        assert_eq!(client_report["statuses"]["none"], 401);
        assert_eq!(client_report["statuses"]["origin"], 403);
    }
    server.end();
}

#[test]
fn dray_up_serves_no_directory_unless_an_option_names_one() {
    let fixture = McpFixture::new();
    let server = start_up(&fixture, &[]);
    let client_report = fixture.over_http("legacy", &server.url);
    assert_eq!(client_report["notes"]["error"], true);
    assert!(
        text_of(&client_report["notes"]).contains("no directory"),
        "{}",
        client_report["notes"]
    );
    server.end();
    let refused = Command::new(support::dray())
        .args(["up", "--mcp", "0.0.0.0:0"])
        .env("HOME", fixture.path("home"))
        .output()
        .unwrap();
    assert_eq!(refused.status.code(), Some(2), "{refused:?}");
    let stderr_text = String::from_utf8_lossy(&refused.stderr);
    assert!(stderr_text.contains("--mcp-token-file"), "{stderr_text}");
}

#[test]
fn dray_up_binds_the_sandbox_of_its_options_before_the_first_request() {
    let fixture = McpFixture::new();
    let sandbox = fixture.path("bound");
    std::fs::create_dir(&sandbox).unwrap();
    std::fs::write(Path::new(&sandbox).join("a.txt"), "bound by an option\n").unwrap();
    let (address, roots) = (
        format!("local:{sandbox}"),
        format!("sandbox-transfer.local.roots={sandbox}"),
    );
    let server = start_up(&fixture, &["--mcp-sandbox", &address, "--set", &roots]);
    let body = json!({
        "jsonrpc": "2.0", "id": 1, "method": "tools/call",
        "params": {
            "name": "read",
            "arguments": {"path": "sandbox:a.txt"},
            "_meta": {
                "io.modelcontextprotocol/protocolVersion": "2026-07-28",
                "io.modelcontextprotocol/clientInfo": {"name": "test", "version": "1"},
                "io.modelcontextprotocol/clientCapabilities": {},
            },
        },
    });
    let body = body.to_string();
    let mut curl = Command::new("curl");
    curl.args([
        "--silent",
        "--show-error",
        "--max-time",
        "60",
        "--data",
        &body,
    ]);
    for field in [
        "content-type: application/json",
        "accept: application/json, text/event-stream",
        "mcp-protocol-version: 2026-07-28",
        "mcp-method: tools/call",
        "mcp-name: read",
    ] {
        curl.args(["--header", field]);
    }
    let response = support::stdout(curl.arg(&server.url));
    assert!(response.contains("bound by an option"), "{response}");
    server.end();
}

#[test]
fn an_address_that_others_reach_needs_a_token() {
    let fixture = McpFixture::new();
    let refused = Command::new(support::dray())
        .args(["mcp", "--http", "0.0.0.0:0"])
        .env("HOME", fixture.path("home"))
        .output()
        .unwrap();
    assert_eq!(refused.status.code(), Some(2), "{refused:?}");
    let stderr_text = String::from_utf8_lossy(&refused.stderr);
    assert!(stderr_text.contains("--token-file"), "{stderr_text}");
}

#[test]
fn an_empty_or_relative_directory_of_configurations_counts_as_unset() {
    for directory in ["", "configurations"] {
        let fixture = McpFixture::new();
        let mut install = Command::new(support::dray());
        install
            .args(["mcp", "install", "goose"])
            .current_dir(fixture.path(""))
            .env("HOME", fixture.path("home"))
            // The XDG specification has the default for both (section "Environment variables").
            .env("XDG_CONFIG_HOME", directory)
            .env("APPDATA", directory);
        support::stdout(&mut install);
        let path = fixture.path("home/.config/goose/config.yaml");
        let entry = std::fs::read_to_string(path).unwrap();
        assert!(entry.contains("drayage"), "{entry}");
    }
}

#[test]
fn an_entry_for_another_program_is_removed_only_when_its_program_is_named() {
    let fixture = McpFixture::new();
    let run = |options: &[&str]| {
        let mut install = Command::new(support::dray());
        install
            .args(["mcp", "install", "cursor"])
            .args(options)
            .env("HOME", fixture.path("home"));
        install
    };
    support::stdout(&mut run(&["--command", "/opt/wrapper"]));
    let refused = run(&["--remove"]).output().unwrap();
    assert_eq!(refused.status.code(), Some(1), "{refused:?}");
    let stderr_text = String::from_utf8_lossy(&refused.stderr);
    for words in ["starts the program `/opt/wrapper`", "--command"] {
        assert!(stderr_text.contains(words), "{stderr_text}");
    }
    support::stdout(&mut run(&["--remove", "--command", "/opt/wrapper"]));
    assert!(!Path::new(&fixture.path("home/.cursor/mcp.json")).exists());
}

fn text_of(result: &Value) -> &str {
    result["text"].as_str().unwrap_or_default()
}
