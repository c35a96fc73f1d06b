//! Subscriptions of clients of MCP 2026-07-28: events of a response that stays open.

use std::io::{BufRead as _, BufReader, Write as _};
use std::net::TcpStream;
use std::sync::{Arc, Mutex};

use dray_mcp::ServerOptions;
use dray_proto::v1;
use serde_json::{Value, json};
use tokio::task::JoinSet;

use crate::client::exchange;
use crate::deliveries::{SendingFixture, TEST_TIMEOUT, answer, send_claims};
use crate::issuer::seconds_from_now;

/// The events of a response that stays open.
struct EventReader {
    lines: std::io::Lines<BufReader<TcpStream>>,
}

impl EventReader {
    fn open(fixture: &SendingFixture, token: &str, uris: &[String]) -> Self {
        let address = fixture.http.address;
        let mut stream = TcpStream::connect(address).unwrap();
        stream.set_read_timeout(Some(TEST_TIMEOUT)).unwrap();
        let request = listen_request(&format!("Host: {address}"), token, uris);
        stream.write_all(request.as_bytes()).unwrap();
        Self {
            lines: BufReader::new(stream).lines(),
        }
    }

    /// The next message; `None` at the end of the response.
    fn next(&mut self) -> Option<Value> {
        loop {
            let line = self.lines.next()?.unwrap();
            let message = line
                .strip_prefix("data: ")
                .and_then(|text| serde_json::from_str(text).ok());
            if message.is_some() {
                return message;
            }
        }
    }
}

/// A request for a subscription. `names` are its fields `Host` and `Origin`.
fn listen_request(names: &str, token: &str, uris: &[String]) -> String {
    let body = json!({"jsonrpc": "2.0", "id": 9, "method": "subscriptions/listen", "params": {
        "_meta": crate::client::request_meta(&json!({})),
        "notifications": {"resourceSubscriptions": uris}}})
    .to_string();
    format!(
        "POST /mcp HTTP/1.1\r\n{names}\r\nConnection: close\r\n\
         Authorization: Bearer {token}\r\nContent-Type: application/json\r\n\
         Accept: application/json, text/event-stream\r\nMCP-Protocol-Version: 2026-07-28\r\n\
         Mcp-Method: subscriptions/listen\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    )
}

/// A server with a delivery that has not ended, and the id of the delivery.
async fn begun_delivery() -> (SendingFixture, String) {
    let fixture = SendingFixture::new(ServerOptions::default()).await;
    let sent = fixture.send(json!({}), json!({})).await;
    let id = sent["result"]["structuredContent"]["delivery_id"].as_str();
    let id = id.unwrap().to_owned();
    (fixture, id)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_listens_is_notified_of_the_end_of_a_delivery() {
    let (fixture, id) = Box::pin(begun_delivery()).await;
    let uri = format!("dray://receipt/{id}");
    let mut events = EventReader::open(&fixture, &fixture.token, std::slice::from_ref(&uri));
    let (delivery, watched) = (fixture.delivery.clone(), uri.clone());
    tokio::task::spawn_blocking(move || {
        let acknowledged = events.next().unwrap();
        let accepted = &acknowledged["params"]["notifications"]["resourceSubscriptions"];
        assert_eq!(accepted, &json!([watched]), "{acknowledged}");
        // The server has either read the receipt before the acknowledgement, or notices its end as a change.
        delivery.end(&id, |report| report.success = true);
        let updated = events.next().unwrap();
        assert_eq!(
            updated["method"], "notifications/resources/updated",
            "{updated}"
        );
        assert_eq!(updated["params"]["uri"], json!(watched), "{updated}");
    })
    .await
    .unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_subscription_ends_with_the_token_and_none_begins_for_another_session() {
    let (fixture, id) = Box::pin(begun_delivery()).await;
    let uris = [format!("dray://receipt/{id}")];
    // The server's clock is an hour ahead of the clock that checks tokens. So the request is accepted, and the
    // subscription, which ends with the token, ends immediately.
    let mut claims = send_claims();
    claims["exp"] = json!(seconds_from_now(600));
    let expiring = fixture.http.issuer.token(&claims);
    let mut events = EventReader::open(&fixture, &expiring, &uris);
    let ended = tokio::task::spawn_blocking(move || {
        let mut messages = std::iter::from_fn(|| events.next());
        messages.find(|message| message.get("result").is_some())
    });
    assert!(ended.await.unwrap().is_some());
    claims = send_claims();
    claims["session"] = json!("s8");
    let other_token = fixture.http.issuer.token(&claims);
    let mut events = EventReader::open(&fixture, &other_token, &uris);
    let refused = tokio::task::spawn_blocking(move || {
        let mut messages = std::iter::from_fn(|| events.next());
        messages.find(|message| message.get("error").is_some())
    });
    assert!(refused.await.unwrap().is_some());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_resource_that_does_not_exist_does_not_end_the_subscription_to_others() {
    let (fixture, id) = Box::pin(begun_delivery()).await;
    let uris = [
        "dray://receipt/unknown".to_owned(),
        format!("dray://receipt/{id}"),
    ];
    let asked = [&uris[..], &["https://example.org/".to_owned()]].concat();
    let mut events = EventReader::open(&fixture, &fixture.token, &asked);
    let delivery = fixture.delivery.clone();
    tokio::task::spawn_blocking(move || {
        let acknowledged = events.next().unwrap();
        let accepted = &acknowledged["params"]["notifications"]["resourceSubscriptions"];
        assert_eq!(accepted, &json!(uris), "{acknowledged}");
        delivery.end(&id, |report| report.success = true);
        let updated = events.next().unwrap();
        assert_eq!(updated["params"]["uri"], json!(uris[1]), "{updated}");
    })
    .await
    .unwrap();
}

/// A directory of a sandbox with one file, and the number of times that it was read.
#[derive(Clone, Debug, Default)]
struct FakeDirectory(Arc<Mutex<(&'static str, usize)>>);

impl FakeDirectory {
    fn list(&self) -> v1::ListSandboxReply {
        let mut state = self.0.lock().unwrap();
        state.1 += 1;
        let entry = v1::SandboxEntry {
            path: format!("/work/{}", state.0).into_bytes(),
            ..v1::SandboxEntry::default()
        };
        v1::ListSandboxReply {
            entries: vec![entry],
            ..v1::ListSandboxReply::default()
        }
    }
}

/// Answers listings of sandboxes with a directory, as long as the tasks exist.
async fn serve_directory(fixture: &SendingFixture) -> (FakeDirectory, JoinSet<()>) {
    let (directory, mut tasks) = (FakeDirectory::default(), JoinSet::new());
    let handle = directory.clone();
    answer(
        &fixture.http.bus,
        &mut tasks,
        move |_, _: v1::ListSandboxRequest| Ok(handle.list()),
    )
    .await;
    (directory, tasks)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_change_right_after_the_acknowledgement_is_announced() {
    let fixture = Box::pin(SendingFixture::new(ServerOptions::default())).await;
    let (directory, _tasks) = serve_directory(&fixture).await;
    let mut events = EventReader::open(&fixture, &fixture.token, &["sandbox:out".to_owned()]);
    tokio::task::spawn_blocking(move || {
        events.next().unwrap();
        {
            let mut state = directory.0.lock().unwrap();
            assert_eq!(
                state.1, 1,
                "the directory is read before the acknowledgement"
            );
            state.0 = "new.txt";
        }
        let updated = events.next().unwrap();
        assert_eq!(updated["params"]["uri"], "sandbox:out", "{updated}");
    })
    .await
    .unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_read_for_a_page_under_another_name_or_of_another_origin() {
    let fixture = Box::pin(SendingFixture::new(ServerOptions::default())).await;
    let (directory, _tasks) = serve_directory(&fixture).await;
    let address = fixture.http.address;
    for names in [
        "Host: evil.example".to_owned(),
        format!("Host: {address}\r\nOrigin: https://evil.example"),
    ] {
        let request = listen_request(&names, &fixture.token, &["sandbox:out".to_owned()]);
        let exchanged = tokio::task::spawn_blocking(move || exchange(address, &request));
        let refused = exchanged.await.unwrap();
        assert_eq!(refused.status, 403, "{names}: {refused:?}");
    }
    assert_eq!(directory.0.lock().unwrap().1, 0);
}
