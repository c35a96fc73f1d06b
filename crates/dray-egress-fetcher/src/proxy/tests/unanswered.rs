//! Requests that end before a response of their target: the client gets one that says why.

use super::intercepted::{InterceptingProxy, POLICY_TEXT};
use super::persistent::{PersistentServer, ask, path_table, rest_of};
use super::*;

/// Bytes of a request body that is more than the quota, and is read before it is sent.
const BODY_BYTES: usize = 48 * 1024;
/// A limit of bytes that exceeds two handshakes with the target and is below the body.
const LIMITS_TEXT: &str = "[role.limits]\nbytes_per_hour = 32768\n";

/// The number of seconds in `Retry-After`.
fn retry_after(response: &str) -> u64 {
    let lower = response.to_ascii_lowercase();
    let value = lower.split_once("\r\nretry-after: ").unwrap().1;
    value.split("\r\n").next().unwrap().parse().unwrap()
}

fn assert_quota(response: &str, context: &str) {
    let fields = (status_of(response), code_of(response));
    assert_eq!(fields, (429, "quota_exceeded"), "{context}: {response}");
    assert!((1..=3601).contains(&retry_after(response)), "{response}");
}

#[tokio::test]
async fn a_quota_that_ends_a_request_before_its_response_gives_the_client_429() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("policy.toml");
    std::fs::write(&path, format!("{POLICY_TEXT}{LIMITS_TEXT}")).unwrap();
    for earlier_requests in [0, 1] {
        let set = [("/policy_path", path.to_str().unwrap())];
        let mut fixture = InterceptingProxy::start(&set).await;
        let _server = PersistentServer::start(&fixture, path_table);
        let mut client = fixture.client().await;
        for _ in 0..earlier_requests {
            let (head, _) = ask(&mut client, "GET /tables/first", "").await;
            assert_eq!(status_of(&head), 200);
            let _ = fixture.events().await;
        }
        let request = format!(
            "POST /tables/a HTTP/1.1\r\nHost: {TARGET_HOST}\r\nContent-Length: {BODY_BYTES}\r\n\r\n{}",
            "x".repeat(BODY_BYTES)
        );
        client.write_all(request.as_bytes()).await.unwrap();
        assert_quota(&rest_of(&mut client).await, &earlier_requests.to_string());
        let (_, closed) = fixture.events().await;
        assert_eq!(closed.code, "quota_exceeded");
    }
}

#[tokio::test]
async fn a_quota_that_ends_a_plain_request_before_its_response_gives_the_client_429() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("policy.toml");
    let text = format!("default = \"allow\"\n[[role]]\nname = \"a\"\n{LIMITS_TEXT}");
    std::fs::write(&path, text).unwrap();
    let mut proxy = ProxyFixture::start(&[("/policy_path", path.to_str().unwrap())]).await;
    let mut ends = proxy.be_server(PUBLIC_ADDRESS, 80);
    let request = format!(
        "POST http://{TARGET_HOST}/ HTTP/1.1\r\nHost: {TARGET_HOST}\r\nContent-Length: {BODY_BYTES}\r\n{}\r\n{}",
        proxy.auth(),
        "x".repeat(BODY_BYTES)
    );
    let (response, ()) = tokio::join!(proxy.exchange(request), async {
        let mut server = ends.recv().await.unwrap();
        // The read ends with the connection.
        let _ = server.read_to_end(&mut Vec::new()).await;
    });
    assert_quota(&response, "plain");
    let (_, closed) = (proxy.event().await, proxy.event().await);
    assert_eq!(closed.code, "quota_exceeded");
}

#[tokio::test]
async fn a_silent_target_gives_the_client_504() {
    let set = [("idle_timeout", "3s")];
    let mut fixture = InterceptingProxy::start(&set).await;
    let mut ends = fixture.proxy.be_server(PUBLIC_ADDRESS, 443);
    let acceptor = fixture.origin.acceptor(TARGET_HOST).unwrap();
    let mut client = fixture.client().await;
    let request = format!("GET /tables/a HTTP/1.1\r\nHost: {TARGET_HOST}\r\n\r\n");
    client.write_all(request.as_bytes()).await.unwrap();
    let end = ends.recv().await.unwrap();
    // Open until the end of the test.
    let (_server, response) = tokio::join!(acceptor.accept(end), rest_of(&mut client));
    assert_eq!((status_of(&response), code_of(&response)), (504, "timeout"));
    let (_, closed) = fixture.events().await;
    assert_eq!(closed.code, "idle_timeout");

    let mut proxy = ProxyFixture::start(&set).await;
    let mut ends = proxy.be_server(PUBLIC_ADDRESS, 80);
    let url = format!("http://{TARGET_HOST}/");
    let (response, _server) = tokio::join!(proxy.get(&url), ends.recv());
    assert_eq!((status_of(&response), code_of(&response)), (504, "timeout"));
    let (_, closed) = (proxy.event().await, proxy.event().await);
    assert_eq!(closed.code, "idle_timeout");
}
