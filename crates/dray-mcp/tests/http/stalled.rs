//! Clients that stop in the middle of a request, or never send one.

use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use crate::fixture::{HttpFixture, STATIC_TOKEN};

/// Time limit of a test: longer than every timeout of the listener. The clock is paused and advances when all tasks
/// wait.
const TEST_TIMEOUT: Duration = Duration::from_hours(1);

#[tokio::test]
async fn a_client_that_stalls_in_its_request_loses_its_connection() {
    let fixture = HttpFixture::new().await;
    let address = fixture.address;
    let head = format!(
        "POST /mcp HTTP/1.1\r\nHost: {address}\r\nAuthorization: Bearer {STATIC_TOKEN}\r\n\
         Accept: application/json, text/event-stream\r\nContent-Type: application/json\r\nContent-Length: 99\r\n"
    );
    let starts = [
        // No bytes, a partial head, and a complete head with a partial body.
        String::new(),
        head.clone(),
        format!("{head}\r\n{{\"jsonrpc\""),
    ];
    tokio::time::pause();
    for start in starts {
        #[expect(clippy::disallowed_methods, reason = "a client of this test")]
        let mut client = TcpStream::connect(address).await.unwrap();
        client.write_all(start.as_bytes()).await.unwrap();
        let mut response = String::new();
        let read = client.read_to_string(&mut response);
        let read = tokio::time::timeout(TEST_TIMEOUT, read).await;
        read.expect("the server closes the connection").unwrap();
        assert!(!response.contains(" 200 "), "{start:?}: {response}");
    }
}
