//! Tests of `dray up --tickets` and `dray ticket`, with curl as the client.

use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use dray_testkit::eventually;
use serde_json::Value;

use crate::support::{self, up::UpServer};

mod browser;
mod clients;
mod interrupted_uploads;
mod tools;

/// A home for the system with its endpoint of tickets, and for files.
struct TicketFixture {
    directory: tempfile::TempDir,
}

/// A response that curl received.
struct CurlResponse {
    /// The heads of all responses, with status line and fields.
    head: String,
    body: Vec<u8>,
}

impl CurlResponse {
    #[track_caller]
    fn check_status(&self, status: u16) {
        let line = format!("HTTP/1.1 {status}");
        let last = self.head.rsplit("\r\n\r\n").find(|head| !head.is_empty());
        assert!(
            last.is_some_and(|head| head.starts_with(&line)),
            "{status} expected: {}{}",
            self.head,
            String::from_utf8_lossy(&self.body)
        );
    }

    fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap()
    }
}

impl TicketFixture {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        Self { directory }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    fn write(&self, name: &str, content: &[u8]) -> String {
        std::fs::write(self.path(name), content).unwrap();
        self.path(name).to_string_lossy().into_owned()
    }

    fn start(&self) -> UpServer {
        let options = ["--tickets", "127.0.0.1:0"];
        UpServer::start(self.directory.path(), &options, "tickets: ")
    }

    /// Creates a ticket and returns its path at the endpoint, which stays the same when the endpoint's port changes.
    fn ticket(&self, server: &UpServer, arguments: &[&str]) -> String {
        let mut command = Command::new(support::dray());
        command
            .args(["ticket", "--json"])
            .args(arguments)
            .args(["--endpoint", &server.url])
            .env("HOME", self.directory.path());
        let receipt: Value = serde_json::from_str(&support::stdout(&mut command)).unwrap();
        let url = receipt["url"].as_str().unwrap();
        url.strip_prefix(&server.url).unwrap().to_owned()
    }

    fn curl(&self, server: &UpServer, ticket: &str, arguments: &[&str]) -> CurlResponse {
        self.curl_url(&format!("{}{ticket}", server.url), arguments)
    }

    fn curl_url(&self, url: &str, arguments: &[&str]) -> CurlResponse {
        let (head, body) = (self.path("head"), self.path("body"));
        // A response without a body would leave the body of the previous response in the file.
        std::fs::write(&body, "").unwrap();
        let status = Command::new("curl")
            .args(["--silent", "--show-error", "--max-time", "60"])
            .arg("--dump-header")
            .arg(&head)
            .arg("--output")
            .arg(&body)
            .args(arguments)
            .arg(url)
            .status()
            .unwrap();
        assert!(status.success(), "{status}");
        CurlResponse {
            head: std::fs::read_to_string(head).unwrap(),
            body: std::fs::read(body).unwrap(),
        }
    }
}

/// Bytes in which no part repeats within 64 KiB.
fn content(length: u32) -> Vec<u8> {
    (0..length)
        .map(|index| index.wrapping_mul(2_654_435_761).to_be_bytes()[0])
        .collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_is_uploaded_and_downloaded_once() {
    let fixture = TicketFixture::new();
    let server = fixture.start();
    let bytes = content(3_000_000);
    let file = fixture.write("file", &bytes);
    let upload = fixture.ticket(&server, &["upload", "--max-size", "4MiB"]);
    let stored = fixture.curl(&server, &upload, &["--upload-file", &file]);
    stored.check_status(201);
    let stored = stored.json();
    assert_eq!(stored["size"], 3_000_000);
    let repeated = fixture.curl(&server, &upload, &["--upload-file", &file]);
    repeated.check_status(410);
    assert_eq!(repeated.json()["type"], "urn:drayage:problem:ticket-used");

    let sha256 = stored["sha256"].as_str().unwrap();
    let download = fixture.ticket(&server, &["download", sha256, "--name", "Übung.bin"]);
    let received = fixture.curl(&server, &download, &[]);
    received.check_status(200);
    assert!(received.body == bytes, "{} bytes", received.body.len());
    let head = received.head.to_ascii_lowercase();
    assert!(
        head.contains("filename*=utf-8''%c3%9cbung.bin"),
        "{}",
        received.head
    );
    // The server records the end after it has sent the last bytes. Until then it refuses another request as concurrent.
    let refused = eventually("the end of the download", async || {
        let response = fixture.curl(&server, &download, &[]);
        (!response.head.starts_with("HTTP/1.1 409")).then_some(response)
    })
    .await;
    refused.check_status(410);
    server.end();
}

#[test]
fn the_command_line_lists_shows_and_revokes_tickets_without_their_urls() {
    let fixture = TicketFixture::new();
    let server = fixture.start();
    let run = |arguments: &[&str]| {
        Command::new(support::dray())
            .args(["ticket", "--json"])
            .args(arguments)
            .args(["--endpoint", &server.url])
            .env("HOME", fixture.directory.path())
            .output()
            .unwrap()
    };
    let lines = |arguments: &[&str]| -> Vec<Value> {
        let output = run(arguments);
        assert!(output.status.success(), "{output:?}");
        let text = String::from_utf8(output.stdout).unwrap();
        assert!(!text.contains("/t/"), "{text}");
        text.lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect()
    };
    let ticket = fixture.ticket(
        &server,
        &["upload", "--max-size", "1MiB", "--name", "a.bin"],
    );
    let listed = lines(&["list"]);
    let [open] = &listed[..] else {
        panic!("{listed:?}");
    };
    assert_eq!(open["state"], "open");
    assert_eq!(open["max_bytes"], 1 << 20);
    let id = open["id"].as_str().unwrap();
    assert_eq!(lines(&["show", id]), listed);
    assert_eq!(lines(&["revoke", id])[0]["state"], "revoked");
    let file = fixture.write("file", b"abc");
    let refused = fixture.curl(&server, &ticket, &["--upload-file", &file]);
    refused.check_status(410);
    assert_eq!(refused.json()["type"], "urn:drayage:problem:ticket-revoked");
    assert!(lines(&["list"]).is_empty());
    // A second revocation and tickets of another tenant change nothing, and the exit code shows it.
    for arguments in [
        &["revoke", id][..],
        &["revoke", id, "--tenant", "other"],
        &["show", id, "--tenant", "other"],
    ] {
        let output = run(arguments);
        assert_eq!(output.status.code(), Some(1), "{output:?}");
        let fault: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(fault["fault"]["code"], "not_found", "{fault}");
    }
    server.end();
}

#[test]
fn an_upload_that_a_ticket_does_not_allow_is_refused_and_not_stored() {
    let fixture = TicketFixture::new();
    let server = fixture.start();
    let file = fixture.write("file", &content(2_000_000));
    let small = fixture.ticket(&server, &["upload", "--max-size", "1MiB"]);
    let refused = fixture.curl(&server, &small, &["--upload-file", &file]);
    refused.check_status(413);
    assert_eq!(
        refused.json()["type"],
        "urn:drayage:problem:content-too-large"
    );
    let page = fixture.write("page.html", b"<!doctype html><title>no picture</title>");
    let picture = fixture.ticket(&server, &["upload", "--media-type", "image/*"]);
    let options = [
        "--header",
        "Content-Type: image/png",
        "--upload-file",
        &page,
    ];
    fixture.curl(&server, &picture, &options).check_status(415);
    let digest = "0".repeat(64);
    let other = fixture.ticket(&server, &["upload", "--sha256", &digest]);
    fixture
        .curl(&server, &other, &["--upload-file", &page])
        .check_status(422);
    let (path, secret) = small.split_at("/t/".len());
    let first = if secret.starts_with('A') { "B" } else { "A" };
    let forged = format!("{path}{first}{}", &secret[1..]);
    for unknown in [forged.as_str(), "/t/unknown"] {
        let refused = fixture.curl(&server, unknown, &["--upload-file", &page]);
        refused.check_status(404);
        assert_eq!(refused.json()["type"], "urn:drayage:problem:ticket-unknown");
    }
    let absent = Command::new(support::dray())
        .args(["ticket", "download", &digest, "--endpoint", &server.url])
        .env("HOME", fixture.directory.path())
        .output()
        .unwrap();
    assert!(!absent.status.success(), "{absent:?}");
    server.end();
}

#[test]
fn an_upload_continues_after_the_system_was_killed() {
    let fixture = TicketFixture::new();
    let server = fixture.start();
    let bytes = content(9_000_000);
    let (first, second) = bytes.split_at(5_000_000);
    let (first, second) = (
        format!("@{}", fixture.write("first", first)),
        format!("@{}", fixture.write("second", second)),
    );
    let upload = fixture.ticket(&server, &["upload", "--size", "9000000"]);
    let patch = |server: &UpServer, offset: &str, part: &str| {
        let offset = format!("Upload-Offset: {offset}");
        let options = [
            ["--request", "PATCH", "--header", "Tus-Resumable: 1.0.0"],
            ["--header", &offset, "--data-binary", part],
        ];
        let kind = "Content-Type: application/offset+octet-stream";
        let options = [options.as_flattened(), &["--header", kind]].concat();
        fixture.curl(server, &upload, &options)
    };
    patch(&server, "0", &first).check_status(204);
    // Kills the process with SIGKILL, which it cannot handle.
    drop(server);

    let server = fixture.start();
    let options = ["--head", "--header", "Tus-Resumable: 1.0.0"];
    let state = fixture.curl(&server, &upload, &options);
    assert!(
        state.head.contains("upload-offset: 5000000\r\n"),
        "{}",
        state.head
    );
    patch(&server, "4000000", &second).check_status(409);
    patch(&server, "5000000", &second).check_status(204);
    let sha256 = dray_types::Sha256Digest::of(&bytes).to_hex();
    let download = fixture.ticket(&server, &["download", &sha256]);
    let received = fixture.curl(&server, &download, &[]);
    assert!(received.body == bytes, "{} bytes", received.body.len());
    server.end();
}

#[test]
fn an_upload_through_a_proxy_that_cuts_arrives_whole_with_few_bytes_sent_twice() {
    let upload = interrupted_uploads::CutUpload {
        size: 40_000_000,
        cut_bytes: 3_300_000,
        cut_time: Duration::from_secs(2),
    };
    interrupted_uploads::upload_through_cuts(&upload, 16 << 20);
}
