//! Tests with clients by other authors: tus in Python and JavaScript, curl and rclone.

use std::process::Command;

use dray_testkit::python;
use serde_json::Value;

use super::{TicketFixture, content};
use crate::support::{self, node, up::UpServer};

/// Version of `tus-js-client` on npm.
const TUS_JS_CLIENT: &str = "tus-js-client@4.3.1";

impl TicketFixture {
    /// The URL of a new upload ticket of exactly the file's size.
    fn upload_url(&self, server: &UpServer, size: usize) -> String {
        let ticket = self.ticket(server, &["upload", "--size", &size.to_string()]);
        format!("{}{ticket}", server.url)
    }

    /// Checks that the file of a ticket arrived completely.
    #[track_caller]
    fn check_arrived(&self, url: &str, bytes: &[u8], name: &str) {
        let state = self.curl_url(url, &[]).json();
        assert_eq!(state["state"], "complete", "{state}");
        let sha256 = dray_types::Sha256Digest::of(bytes).to_hex();
        assert_eq!(state["content"]["sha256"], sha256, "{state}");
        assert_eq!(state["content"]["name"], name, "{state}");
    }
}

#[test]
fn tuspy_uploads_in_parts_and_continues() {
    let fixture = TicketFixture::new();
    let server = fixture.start();
    let bytes = content(5_000_000);
    let file = fixture.write("part.bin", &bytes);
    let url = fixture.upload_url(&server, bytes.len());
    let mut client = Command::new(python::interpreter("tusclient"));
    client
        .arg(support::root().join("tests/python/tus_client.py"))
        .args([&url, &file]);
    let client_report: Value = serde_json::from_str(&support::stdout(&mut client)).unwrap();
    assert_eq!(client_report["continued_at"], 2_000_000, "{client_report}");
    assert_eq!(client_report["offset"], 5_000_000, "{client_report}");
    fixture.check_arrived(&url, &bytes, "part.bin");
    server.end();
}

#[test]
fn tus_js_client_uploads_in_parts_and_continues() {
    let fixture = TicketFixture::new();
    let server = fixture.start();
    let bytes = content(5_000_000);
    let file = fixture.write("part.bin", &bytes);
    let url = fixture.upload_url(&server, bytes.len());
    let mut client = Command::new("node");
    client
        .arg(support::root().join("tests/tickets/tus_client.cjs"))
        .args([&url, &file])
        .current_dir(node::packages("node-tickets", &[TUS_JS_CLIENT]));
    let client_report: Value = serde_json::from_str(&support::stdout(&mut client)).unwrap();
    assert_eq!(client_report["continued_at"], 2_000_000, "{client_report}");
    fixture.check_arrived(&url, &bytes, "part.bin");
    server.end();
}

#[test]
fn rclone_downloads_through_a_ticket() {
    let fixture = TicketFixture::new();
    let server = fixture.start();
    let bytes = content(5_000_000);
    let file = fixture.write("file", &bytes);
    let url = fixture.upload_url(&server, bytes.len());
    fixture
        .curl_url(&url, &["--upload-file", &file])
        .check_status(201);
    let sha256 = dray_types::Sha256Digest::of(&bytes).to_hex();
    let download = fixture.ticket(&server, &["download", &sha256, "--name", "out.bin"]);
    let mut rclone = Command::new("rclone");
    rclone
        .args(["copyurl", "--retries", "1", "--config", ""])
        .arg(format!("{}{download}", server.url))
        .arg(fixture.path("copied"));
    support::stdout(&mut rclone);
    assert!(std::fs::read(fixture.path("copied")).unwrap() == bytes);
    server.end();
}
