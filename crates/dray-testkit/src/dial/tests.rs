//! Tests of the fake server over plain sockets. The crates that use the server test its injected faults.

use serde_json::Value;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use super::*;

/// Status and body of one request on a separate connection.
#[expect(
    clippy::disallowed_methods,
    reason = "the fake server's own address on loopback"
)]
async fn ask(core: &DialCore, head: &str, body: &str) -> (u16, String) {
    let mut stream = tokio::net::TcpStream::connect(core.address())
        .await
        .unwrap();
    let length = body.len();
    let request =
        format!("{head}\r\nHost: x\r\nConnection: close\r\nContent-Length: {length}\r\n\r\n{body}");
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    (status, body.to_owned())
}

async fn core() -> DialCore {
    let core = DialCore::start().await.unwrap();
    core.add_key("k", "b");
    core
}

async fn check(core: &DialCore, head: &str, status: u16) {
    assert_eq!(ask(core, head, "").await.0, status, "{head}");
}

/// Uploads a text to `target`.
async fn put(core: &DialCore, target: &str, headers: &str, text: &str) -> (u16, String) {
    let head = format!(
        "PUT {target} HTTP/1.1\r\nApi-Key: k\r\nContent-Type: multipart/form-data; boundary=cut{headers}"
    );
    let body = format!(
        "--cut\r\nContent-Disposition: form-data; name=\"file\"; filename=\"x\"\r\nContent-Type: text/plain\r\n\r\n{text}\r\n--cut--\r\n"
    );
    ask(core, &head, &body).await
}

#[tokio::test]
async fn keys_may_read_only_their_own_bucket_and_shared_files() {
    let core = core().await;
    core.put("other/a", "theirs", "text/plain");
    core.put("other/b", "shared", "text/plain");
    core.share("k", "other/b");
    let (status, body) = ask(&core, "GET /v1/bucket HTTP/1.1\r\nApi-Key: k", "").await;
    assert_eq!((status, body.as_str()), (200, "{\"bucket\":\"b\"}"));
    check(&core, "GET /v1/bucket HTTP/1.1", 401).await;
    check(&core, "GET /v1/files/b/a HTTP/1.1\r\nApi-Key: wrong", 401).await;
    check(&core, "GET /v1/files/other/a HTTP/1.1\r\nApi-Key: k", 403).await;
    check(&core, "GET /v1/files/other/b HTTP/1.1\r\nApi-Key: k", 200).await;
    check(&core, "GET /v1/files/b/none HTTP/1.1\r\nApi-Key: k", 404).await;
    check(&core, "GET /v2/anything HTTP/1.1\r\nApi-Key: k", 404).await;
    check(&core, "POST /v1/files/b/a HTTP/1.1\r\nApi-Key: k", 405).await;
}

#[tokio::test]
async fn uploads_are_read_back_with_their_metadata() {
    let core = core().await;
    let (status, stored) = put(&core, "/v1/files/b/f/%C3%A4%20b.txt", "", "line\r\n").await;
    assert_eq!(status, 200);
    let stored: Value = serde_json::from_str(&stored).unwrap();
    assert_eq!(stored["name"], "ä b.txt");
    assert_eq!(stored["parentPath"], "f");
    assert_eq!(stored["url"], "files/b/f/%C3%A4%20b%2Etxt");
    assert_eq!(stored["contentLength"], 6);
    assert_eq!(stored["contentType"], "text/plain");
    let head = "GET /v1/metadata/files/b/f/%C3%A4%20b.txt HTTP/1.1\r\nApi-Key: k";
    let (_, metadata) = ask(&core, head, "").await;
    assert_eq!(serde_json::from_str::<Value>(&metadata).unwrap(), stored);
    let (_, content) = ask(
        &core,
        "GET /v1/files/b/f/%C3%A4%20b.txt HTTP/1.1\r\nApi-Key: k",
        "",
    )
    .await;
    assert_eq!(content, "line\r\n");
    assert_eq!(core.file("b/f/ä b.txt").unwrap(), "line\r\n");
    check(
        &core,
        "DELETE /v1/files/b/f/%C3%A4%20b.txt HTTP/1.1\r\nApi-Key: k",
        200,
    )
    .await;
    check(
        &core,
        "DELETE /v1/files/b/f/%C3%A4%20b.txt HTTP/1.1\r\nApi-Key: k",
        404,
    )
    .await;
}

#[tokio::test]
async fn uploads_are_refused_as_dial_refuses_them() {
    let core = core().await;
    let (_, stored) = put(&core, "/v1/files/b/a", "\r\nIf-None-Match: *", "one").await;
    let etag = serde_json::from_str::<Value>(&stored).unwrap()["etag"]
        .as_str()
        .unwrap()
        .to_owned();
    for (target, headers, status) in [
        ("/v1/files/b/a", "\r\nIf-None-Match: *".to_owned(), 412),
        ("/v1/files/b/a", "\r\nIf-Match: other".to_owned(), 412),
        ("/v1/files/b/none", format!("\r\nIf-Match: {etag}"), 412),
        ("/v1/files/b/a.", String::new(), 400),
        ("/v1/files/other/a", String::new(), 403),
        ("/v1/files/b/a", format!("\r\nIf-Match: {etag}"), 200),
    ] {
        assert_eq!(
            put(&core, target, &headers, "two").await.0,
            status,
            "{target}{headers}"
        );
    }
    check(&core, "PUT /v1/files/b/a HTTP/1.1\r\nApi-Key: k", 400).await;
}

#[tokio::test]
async fn directories_list_their_children_once() {
    let core = core().await;
    for path in ["b/f/a", "b/f/g/1", "b/f/g/2", "b/other"] {
        core.put(path, "x", "text/plain");
    }
    let (status, listing) = ask(
        &core,
        "GET /v1/metadata/files/b/f/ HTTP/1.1\r\nApi-Key: k",
        "",
    )
    .await;
    let listing: Value = serde_json::from_str(&listing).unwrap();
    let names: Vec<_> = listing["items"]
        .as_array()
        .unwrap()
        .iter()
        .map(|item| {
            (
                item["name"].as_str().unwrap(),
                item["nodeType"].as_str().unwrap(),
            )
        })
        .collect();
    assert_eq!((status, names), (200, vec![("a", "ITEM"), ("g", "FOLDER")]));
    assert_eq!(core.requests(), ["GET /v1/metadata/files/b/f/"]);
}
