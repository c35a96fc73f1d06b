//! Downloads: valid URLs work, and every modified URL is refused.

use std::time::Duration;

use dray_types::{Claim, OperationId};
use http::{Method, StatusCode};

use super::super::{TestStore, tenant};
use super::send;
use crate::{ArtifactLabel, Store, StoreOptions};

const ONE_HOUR: Duration = Duration::from_hours(1);

async fn put(fixture: &TestStore, media_type: &str, name: &str) -> Claim {
    let label = ArtifactLabel::new(media_type, name);
    let operation = OperationId::mint();
    fixture
        .store
        .put(&tenant("acme"), &operation, "<b>hello</b>".into(), label)
        .await
        .unwrap()
}

#[tokio::test]
async fn a_link_downloads_the_bytes_as_an_attachment_that_no_browser_runs() {
    let fixture = TestStore::new().await;
    let to = fixture.endpoint.address();
    let claim = put(&fixture, "text/html", "naïve.html").await;
    let link = fixture
        .store
        .presign_get(&tenant("acme"), &claim, ONE_HOUR)
        .await
        .unwrap();
    let answer = send(to, Method::GET, link.url.expose(), &[], "").await;
    assert_eq!(answer.status, StatusCode::OK);
    assert_eq!(answer.body, "<b>hello</b>");
    assert_eq!(answer.header("content-type"), "application/octet-stream");
    assert_eq!(
        answer.header("content-disposition"),
        "attachment; filename*=UTF-8''na%C3%AFve.html"
    );

    let claim = put(&fixture, "image/png", "").await;
    let link = fixture
        .store
        .presign_get(&tenant("acme"), &claim, ONE_HOUR)
        .await
        .unwrap();
    let range = [("range", "bytes=3-7")];
    let answer = send(to, Method::GET, link.url.expose(), &range, "").await;
    assert_eq!(answer.status, StatusCode::PARTIAL_CONTENT);
    assert_eq!(
        (answer.body.as_ref(), answer.header("content-range")),
        (&b"hello"[..], "bytes 3-7/12")
    );
    assert_eq!(answer.header("content-type"), "image/png");
}

#[tokio::test]
async fn a_link_is_valid_only_for_its_method_host_key_and_query() {
    let fixture = TestStore::new().await;
    let to = fixture.endpoint.address();
    let claim = put(&fixture, "text/html", "a.html").await;
    let other = fixture.put(&tenant("rival"), "other").await;
    let link = fixture
        .store
        .presign_get(&tenant("acme"), &claim, ONE_HOUR)
        .await
        .unwrap();
    let url = link.url.expose();
    let unsigned = url.split('?').next().unwrap();

    for method in [Method::HEAD, Method::PUT, Method::DELETE] {
        let answer = send(to, method.clone(), url, &[], "").await;
        assert_eq!(answer.status, StatusCode::FORBIDDEN, "{method}");
    }
    for host in ["localhost", "127.0.0.1:1", "store.example"] {
        let answer = send(to, Method::GET, url, &[("host", host)], "").await;
        assert_eq!(answer.status, StatusCode::FORBIDDEN, "{host}");
    }
    let longer = url.replace("X-Amz-Expires=3600", "X-Amz-Expires=604800");
    let inline = url.replace("attachment", "inline");
    let html = url.replace("application%2Foctet-stream", "text%2Fhtml");
    let foreign = url.replace(&claim.artifact.key(), &other.artifact.key());
    let listing = url.replace(&format!("/{}", claim.artifact.key()), "");
    for bent in [&longer, &inline, &html, &foreign, &listing, unsigned] {
        assert_ne!(bent, url);
        let answer = send(to, Method::GET, bent, &[], "").await;
        assert_eq!(answer.status, StatusCode::FORBIDDEN, "{bent}");
        assert!(!String::from_utf8_lossy(&answer.body).contains("hello"));
    }
    assert_eq!(
        fixture.read(&tenant("acme"), &claim).await.unwrap(),
        "<b>hello</b>"
    );
}

#[tokio::test]
async fn links_contain_the_host_that_clients_use() {
    let fixture = TestStore::new().await;
    let to = fixture.endpoint.address();
    let claim = put(&fixture, "text/plain", "a.txt").await;
    let options = StoreOptions {
        public_endpoint: "https://files.example".to_owned(),
        ..fixture.options.clone()
    };
    let store = Store::open(&options, fixture.clock.clone()).await.unwrap();
    let link = store
        .presign_get(&tenant("acme"), &claim, ONE_HOUR)
        .await
        .unwrap();
    let url = link.url.expose();
    assert!(
        url.starts_with("https://files.example/drayage/cas/acme/"),
        "{url}"
    );
    // The request has the form in which a reverse proxy that keeps the host would forward it.
    let answer = send(to, Method::GET, url, &[], "").await;
    assert_eq!(answer.status, StatusCode::OK);
    let inside = fixture.endpoint.address().to_string();
    let answer = send(to, Method::GET, url, &[("host", &inside)], "").await;
    assert_eq!(answer.status, StatusCode::FORBIDDEN);
}

#[tokio::test]
async fn debug_texts_do_not_contain_links_or_secrets() {
    let fixture = TestStore::new().await;
    let claim = put(&fixture, "text/plain", "a.txt").await;
    let link = fixture
        .store
        .presign_get(&tenant("acme"), &claim, ONE_HOUR)
        .await
        .unwrap();
    assert!(link.url.expose().contains("X-Amz-Signature="));
    let printed = format!("{link:?} {:?} {:?}", fixture.store, fixture.options);
    for secret in [
        "X-Amz",
        "http://127.0.0.1:0",
        fixture.options.secret_key.expose(),
    ] {
        assert!(!printed.contains(secret), "{printed}");
    }
}
