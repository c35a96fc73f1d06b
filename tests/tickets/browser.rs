//! Tests of the page of an upload ticket in Chromium, as a person uses it.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::process::Command;
use std::thread;

use dray_testkit::eventually;
use serde_json::Value;

use super::{TicketFixture, content};
use crate::support::{self, up::UpServer};

impl TicketFixture {
    /// Opens a ticket as a person does, sends a file if there is one, and returns the visible texts of the page.
    fn browse(&self, server: &UpServer, mode: &str, ticket: &str, file: Option<&str>) -> Value {
        self.browse_url(mode, &format!("{}{ticket}", server.url), file)
    }

    fn browse_url(&self, mode: &str, url: &str, file: Option<&str>) -> Value {
        let mut browser = Command::new("python3");
        browser
            .arg(support::root().join("tests/python/drop_page.py"))
            .args([mode, url])
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

/// Response to the first `POST` through a [`FailingProxy`], instead of that of the endpoint.
#[derive(Clone, Copy, Debug)]
enum FirstPost {
    /// `503`, as a proxy sends it while the endpoint restarts.
    Unavailable,
    /// The connection ends.
    Closed,
}

/// A proxy with one request in each connection, which fails the first `POST`. Its threads end with the test.
struct FailingProxy;

impl FailingProxy {
    fn start(target: SocketAddr, first_post: FirstPost) -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        thread::spawn(move || {
            let mut has_failed = false;
            for client in listener.incoming() {
                let Ok(mut client) = client else { return };
                let Some((head, rest)) = read_head(&mut client) else {
                    continue;
                };
                if head.starts_with("POST ") && !has_failed {
                    has_failed = true;
                    if let FirstPost::Unavailable = first_post {
                        let response = b"HTTP/1.1 503 Service Unavailable\r\ncontent-length: 0\r\nconnection: close\r\n\r\n";
                        client.write_all(response).unwrap();
                    }
                    continue;
                }
                thread::spawn(move || forward_request(client, target, &head, &rest));
            }
        });
        address
    }
}

/// The head of a request, and the bytes that came with it; `None` for a connection that ends before.
fn read_head(client: &mut TcpStream) -> Option<(String, Vec<u8>)> {
    let (mut received, mut buffer) = (Vec::new(), [0; 4096]);
    loop {
        let end = received.windows(4).position(|bytes| bytes == b"\r\n\r\n");
        if let Some(end) = end {
            let rest = received.split_off(end + 4);
            received.truncate(end);
            return Some((String::from_utf8(received).ok()?, rest));
        }
        match client.read(&mut buffer) {
            Ok(0) | Err(_) => return None,
            Ok(count) => received.extend_from_slice(&buffer[..count]),
        }
    }
}

/// Sends a request to the endpoint, which ends the connection after its response.
fn forward_request(client: TcpStream, target: SocketAddr, head: &str, rest: &[u8]) {
    let mut server = TcpStream::connect(target).unwrap();
    let lines = head.split("\r\n");
    let fields: Vec<&str> = lines
        .filter(|line| !line.to_ascii_lowercase().starts_with("connection:"))
        .collect();
    let head = format!("{}\r\nconnection: close\r\n\r\n", fields.join("\r\n"));
    let (mut requests, mut request_target) =
        (client.try_clone().unwrap(), server.try_clone().unwrap());
    thread::spawn(move || std::io::copy(&mut requests, &mut request_target));
    let mut client = client;
    let sent = server
        .write_all(head.as_bytes())
        .and_then(|()| server.write_all(rest));
    if sent.is_ok() {
        let _ = std::io::copy(&mut server, &mut client);
    }
    let _ = client.shutdown(std::net::Shutdown::Both);
}

#[test]
fn a_person_whose_first_request_is_lost_still_sends_the_file() {
    let fixture = TicketFixture::new();
    let server = fixture.start();
    let target = server.url.strip_prefix("http://").unwrap().parse().unwrap();
    for (first_post, size) in [
        (FirstPost::Unavailable, 1_000),
        (FirstPost::Closed, 1_000),
        (FirstPost::Closed, 0),
    ] {
        let bytes = content(size);
        let file = fixture.write("lost.bin", &bytes);
        let ticket = fixture.ticket(&server, &["upload", "--max-size", "1MiB"]);
        let proxy = FailingProxy::start(target, first_post);
        let report = fixture.browse_url("script", &format!("http://{proxy}{ticket}"), Some(&file));
        assert_eq!(report["state"], "received", "{first_post:?}: {report}");
        let sha256 = dray_types::Sha256Digest::of(&bytes).to_hex();
        assert!(
            report["text"].as_str().unwrap().contains(&sha256),
            "{report}"
        );
        let state = fixture.curl(&server, &ticket, &[]).json();
        assert_eq!(state["state"], "complete", "{state}");
        assert_eq!(state["content"]["name"], "lost.bin", "{state}");
    }
    server.end();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_file_is_not_joined_to_an_earlier_one_whose_request_hangs() {
    let fixture = TicketFixture::new();
    let server = fixture.start();
    let ticket = fixture.ticket(&server, &["upload", "--max-size", "1MiB"]);
    let mut hanging = TcpStream::connect(server.url.strip_prefix("http://").unwrap()).unwrap();
    let head = format!("PUT {ticket} HTTP/1.1\r\nhost: test\r\ncontent-length: 1000\r\n\r\n");
    hanging.write_all(head.as_bytes()).unwrap();
    hanging.write_all(&[b'A'; 400]).unwrap();
    eventually("the first request", async || {
        let state = fixture.curl(&server, &ticket, &[]).json();
        (state["state"] == "active").then_some(())
    })
    .await;
    let bytes = content(1_000);
    let file = fixture.write("second.bin", &bytes);
    let report = fixture.browse(&server, "script", &ticket, Some(&file));
    assert_eq!(report["state"], "received", "{report}");
    let state = fixture.curl(&server, &ticket, &[]).json();
    let sha256 = dray_types::Sha256Digest::of(&bytes).to_hex();
    assert_eq!(state["content"]["sha256"], sha256, "{state}");
    drop(hanging);
    server.end();
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
