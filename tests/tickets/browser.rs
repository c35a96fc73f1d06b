//! Tests of the page of an upload ticket in Chromium, as a person uses it.

use std::process::Command;

use dray_testkit::eventually;
use serde_json::Value;

use super::{TicketFixture, content};
use crate::support::{self, up::UpServer};

impl TicketFixture {
    /// Opens a ticket as a person does, sends a file if there is one, and returns the visible texts of the page.
    fn browse(&self, server: &UpServer, mode: &str, ticket: &str, file: Option<&str>) -> Value {
        let mut browser = Command::new("python3");
        browser
            .arg(support::root().join("tests/python/drop_page.py"))
            .args([mode, &format!("{}{ticket}", server.url)])
            .args(file)
            .env("HOME", self.directory.path());
        let browser_report: Value = serde_json::from_str(&support::stdout(&mut browser)).unwrap();
        assert_eq!(
            browser_report["violations"],
            serde_json::json!([]),
            "{browser_report}"
        );
        browser_report
    }
}

#[test]
fn a_person_sends_a_file_with_and_without_script() {
    let fixture = TicketFixture::new();
    let server = fixture.start();
    // The script sends a file of this size in three parts.
    let bytes = content(17_000_000);
    let file = fixture.write("Übung.bin", &bytes);
    let sha256 = dray_types::Sha256Digest::of(&bytes).to_hex();
    for mode in ["script", "plain"] {
        let ticket = fixture.ticket(&server, &["upload", "--max-size", "20MiB"]);
        let browser_report = fixture.browse(&server, mode, &ticket, Some(&file));
        assert_eq!(
            browser_report["state"], "received",
            "{mode}: {browser_report}"
        );
        assert!(
            browser_report["text"].as_str().unwrap().contains(&sha256),
            "{browser_report}"
        );
        let progress = u64::from(mode == "script");
        assert_eq!(
            browser_report["progress"], progress,
            "{mode}: {browser_report}"
        );
        let state = fixture.curl(&server, &ticket, &[]).json();
        assert_eq!(state["state"], "complete", "{state}");
        assert_eq!(state["content"]["name"], "Übung.bin", "{state}");
        assert_eq!(state["content"]["sha256"], sha256, "{state}");
    }
    server.end();
}

#[test]
fn a_person_learns_why_a_file_is_refused() {
    let fixture = TicketFixture::new();
    let server = fixture.start();
    let file = fixture.write("notes.txt", b"no picture");
    for mode in ["script", "plain"] {
        let ticket = fixture.ticket(&server, &["upload", "--media-type", "image/*"]);
        let browser_report = fixture.browse(&server, mode, &ticket, Some(&file));
        assert_eq!(
            browser_report["state"], "refused",
            "{mode}: {browser_report}"
        );
        let text = browser_report["text"].as_str().unwrap();
        assert!(
            text.contains("the ticket is for `image/*`"),
            "{browser_report}"
        );
        assert!(
            browser_report["limits"]
                .as_str()
                .unwrap()
                .contains("image/*"),
            "{browser_report}"
        );
    }
    server.end();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_person_learns_that_a_ticket_has_expired() {
    let fixture = TicketFixture::new();
    let server = fixture.start();
    let ticket = fixture.ticket(&server, &["upload", "--expires", "1"]);
    eventually("the expiry of the ticket", async || {
        let response = fixture.curl(&server, &ticket, &[]);
        response.head.contains(" 410 ").then_some(())
    })
    .await;
    let browser_report = fixture.browse(&server, "script", &ticket, None);
    assert_eq!(browser_report["state"], "refused", "{browser_report}");
    assert_eq!(
        browser_report["text"], "the ticket has expired.",
        "{browser_report}"
    );
    server.end();
}
