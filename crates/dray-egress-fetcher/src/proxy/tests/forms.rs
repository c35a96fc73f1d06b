//! Methods that the body of a request names, for servers that obey them.

use std::fmt::Write as _;
use std::fs;

use super::intercepted::InterceptingProxy;
use super::persistent::{PersistentServer, field, read_head_of, table_with};
use super::*;

const FORM_FIELD: &str = "Content-Type: application/x-www-form-urlencoded\r\n";
const MULTIPART_FIELD: &str = "Content-Type: multipart/form-data; boundary=b\r\n";
/// A field that some servers read as `Content-Type`, and others ignore.
const NAMESAKE_FIELD: &str = "Content_Type: text/csv\r\n";
const JSON_FIELD: &str = "Content-Type: application/json\r\n";

/// Rules that allow some methods to one host, and every method to another one.
const POLICY_TEXT: &str = r#"
[[role]]
name = "sandboxes"
[[role.rule]]
name = "some"
outcome = "allow"
hosts = ["files.example.org"]
methods = ["GET", "POST"]
[[role.rule]]
name = "every"
outcome = "allow"
hosts = ["other.example.org"]
"#;

fn part(name: &str) -> String {
    format!("--b\r\nContent-Disposition: form-data; name=\"{name}\"\r\n\r\nDELETE\r\n--b--\r\n")
}

/// A request in absolute form with this body, and with a length or in chunks of a few bytes.
fn request(proxy: &ProxyFixture, host: &str, (fields, body): (&str, &str), chunk: usize) -> String {
    let auth = proxy.auth();
    let head = format!("POST http://{host}/ HTTP/1.1\r\nHost: {host}\r\n{auth}{fields}");
    if chunk == 0 {
        return format!("{head}Content-Length: {}\r\n\r\n{body}", body.len());
    }
    let mut chunks = String::new();
    for part in body.as_bytes().chunks(chunk) {
        let part = std::str::from_utf8(part).unwrap();
        let _ = write!(chunks, "{:x}\r\n{part}\r\n", part.len());
    }
    format!("{head}Transfer-Encoding: chunked\r\n\r\n{chunks}0\r\n\r\n")
}

#[tokio::test]
async fn a_form_that_names_another_method_is_broken_off_before_the_target_has_it() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("policy.toml");
    fs::write(&path, POLICY_TEXT).unwrap();
    let mut proxy = ProxyFixture::start(&[("/policy_path", path.to_str().unwrap())]).await;
    let mut ends = proxy.be_server(PUBLIC_ADDRESS, 80);
    let part = part("_method");
    for (form, chunk) in [
        ((FORM_FIELD, "a=1&_method=DELETE&b=2"), 0),
        ((FORM_FIELD, "a=1&_method=DELETE&b=2"), 5),
        (("", "_method=DELETE"), 0),
        ((MULTIPART_FIELD, part.as_str()), 0),
        ((MULTIPART_FIELD, part.as_str()), 3),
        ((JSON_FIELD, "{\"_method\": \"DELETE\"}"), 0),
    ] {
        let request = request(&proxy, TARGET_HOST, form, chunk);
        let (response, received) = tokio::join!(proxy.exchange(&request), async {
            let mut server = ends.recv().await.unwrap();
            let mut received = Vec::new();
            let _ = server.read_to_end(&mut received).await;
            String::from_utf8(received).unwrap()
        });
        let refused = (status_of(&response), code_of(&response));
        assert_eq!(refused, (403, "policy_denied"), "{request}: {response}");
        assert!(!received.contains("DELETE"), "{received}");
        assert!(!received.ends_with("\r\n0\r\n\r\n"), "{received}");
        let (opened, closed) = (proxy.event().await, proxy.event().await);
        assert_eq!(opened.proxy_stage, "opened");
        let fields = (closed.proxy_stage.as_str(), closed.code.as_str());
        assert_eq!(fields, ("closed", "policy_denied"));
        assert_eq!(closed.decided_by, "default");
    }
}

#[tokio::test]
async fn a_form_passes_that_names_no_method_or_where_every_method_is_allowed() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("policy.toml");
    fs::write(&path, POLICY_TEXT).unwrap();
    let mut proxy = ProxyFixture::start(&[("/policy_path", path.to_str().unwrap())]).await;
    proxy
        .fake_network
        .name("other.example.org", &[PUBLIC_ADDRESS]);
    let mut ends = proxy.be_server(PUBLIC_ADDRESS, 80);
    let (part, own) = (part("file"), part("_method"));
    let large = format!("a={}", "b".repeat(200_000));
    for (host, form, chunk) in [
        (TARGET_HOST, (FORM_FIELD, "a=1&method=DELETE"), 0),
        (TARGET_HOST, (FORM_FIELD, large.as_str()), 0),
        (TARGET_HOST, (MULTIPART_FIELD, part.as_str()), 3),
        (TARGET_HOST, ("Content-Type: text/csv\r\n", "_method=1"), 0),
        ("other.example.org", (MULTIPART_FIELD, own.as_str()), 3),
    ] {
        let request = request(&proxy, host, form, chunk);
        let (response, ()) = tokio::join!(proxy.exchange(&request), async {
            let mut server = ends.recv().await.unwrap();
            let mut received = Vec::new();
            let length = form.1.len();
            let is_whole = |received: &[u8]| {
                let head = received.windows(4).position(|four| four == b"\r\n\r\n");
                match head {
                    Some(head) if chunk == 0 => received.len() == head + 4 + length,
                    _ => received.ends_with(b"\r\n0\r\n\r\n"),
                }
            };
            while !is_whole(&received) {
                assert_ne!(server.read_buf(&mut received).await.unwrap(), 0);
            }
            let response = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
            server.write_all(response).await.unwrap();
        });
        assert_eq!((status_of(&response), code_of(&response)), (200, "ok"));
        let (_, closed) = (proxy.event().await, proxy.event().await);
        assert_eq!(closed.code, "");
    }
    // A form that cannot be read is refused before anything is sent.
    let compressed = format!("{FORM_FIELD}Content-Encoding: gzip\r\n");
    for form in [
        (compressed.as_str(), "x"),
        (NAMESAKE_FIELD, "_method=DELETE"),
    ] {
        let request = request(&proxy, TARGET_HOST, form, 0);
        let response = proxy.exchange(&request).await;
        let refused = (status_of(&response), code_of(&response));
        assert_eq!(refused, (403, "policy_denied"), "{request}");
        assert_eq!(proxy.event().await.proxy_stage, "refused");
    }
}

#[tokio::test]
async fn the_type_by_which_a_body_is_judged_is_the_one_that_its_recipient_gets() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("policy.toml");
    fs::write(&path, POLICY_TEXT).unwrap();
    let proxy = ProxyFixture::start(&[("/policy_path", path.to_str().unwrap())]).await;
    let mut ends = proxy.be_server(PUBLIC_ADDRESS, 80);
    // Without a type, some servers would read this body as a form.
    let form = (
        "Connection: content-type\r\nContent-Type: text/plain\r\n",
        "_method=DELETE",
    );
    let request = request(&proxy, TARGET_HOST, form, 0);
    let (response, received) = tokio::join!(proxy.exchange(&request), async {
        let mut server = ends.recv().await.unwrap();
        let mut received = Vec::new();
        while !received.ends_with(form.1.as_bytes()) {
            assert_ne!(server.read_buf(&mut received).await.unwrap(), 0);
        }
        let response = b"HTTP/1.1 200 OK\r\nConnection: Content-Type\r\nContent-Type: text/csv\r\n\
            Content-Length: 3\r\n\r\n1;2";
        server.write_all(response).await.unwrap();
        String::from_utf8(received).unwrap().to_ascii_lowercase()
    });
    assert!(
        received.contains("\r\ncontent-type: text/plain\r\n"),
        "{received}"
    );
    let response = response.to_ascii_lowercase();
    assert!(
        response.contains("\r\ncontent-type: text/csv\r\n"),
        "{response}"
    );
}

#[tokio::test]
async fn a_short_form_in_a_tunnel_is_judged_by_the_method_that_it_names() {
    let mut fixture = InterceptingProxy::start(&[]).await;
    let server = PersistentServer::start(&fixture, |_| table_with("", "1;2"));
    let own = part("_method");
    for (number, (fields, body, status)) in [
        (FORM_FIELD, "a=1&_method=post", 200),
        (FORM_FIELD, "a=1&_method=DELETE", 403),
        (MULTIPART_FIELD, own.as_str(), 403),
        (JSON_FIELD, "{\"a\":{\"_method\":1}}", 200),
        (JSON_FIELD, "{\"\\u005fmethod\":\"DELETE\"}", 403),
    ]
    .into_iter()
    .enumerate()
    {
        let mut client = fixture.client().await;
        let length = body.len();
        let request = format!(
            "POST /tables/{number} HTTP/1.1\r\nHost: {TARGET_HOST}\r\n{fields}Content-Length: {length}\r\n\r\n{body}"
        );
        client.write_all(request.as_bytes()).await.unwrap();
        let head = read_head_of(&mut client).await.unwrap();
        assert_eq!(status_of(&head), status, "{body}: {head}");
        let length = field(&head, "content-length").map_or(0, |length| length.parse().unwrap());
        client.read_exact(&mut vec![0; length]).await.unwrap();
        drop(client);
        let (opened, ended) = fixture.events().await;
        assert_eq!(opened.proxy_stage, "opened");
        let code = if status == 200 { "" } else { "policy_denied" };
        assert_eq!(ended.code, code, "{body}");
    }
    let paths: Vec<String> = server.paths().into_iter().map(|(_, path)| path).collect();
    assert_eq!(paths, ["/tables/0", "/tables/3"]);
}
