//! Calls of one request of an agent load a file once; other calls load it again.

use bytes::Bytes;

use dray_proto::convert::ContentSource;
use dray_proto::v1;

use super::fixture::{ResolverFixture, fetched, noise, request};

const FILE_URL: &str = "https://h.example/a";

/// A call of the request with this name; a call with an empty name shares nothing.
fn of(name: &str, arguments: &str) -> v1::ResolveRequest {
    v1::ResolveRequest {
        options: Some(v1::ResolveOptions {
            request: name.to_owned(),
            ..v1::ResolveOptions::default()
        }),
        ..request(arguments)
    }
}

fn gets(fixture: &ResolverFixture) -> usize {
    let requests = fixture.core.requests();
    requests
        .iter()
        .filter(|request| request.starts_with("GET /v1/files/"))
        .count()
}

#[tokio::test]
async fn parallel_and_later_calls_of_one_request_load_each_file_once() {
    let fixture = ResolverFixture::new().await;
    for (name, bytes) in [
        ("empty", Vec::new()),
        ("small", noise(10)),
        ("large", noise(200_000)),
    ] {
        fixture.core.put(format!("b/{name}"), bytes, "image/x");
    }
    fixture.egress.answer(
        FILE_URL,
        Ok(fetched(ContentSource::Inline(Bytes::new()), b"")),
    );
    let arguments = format!(
        r#"{{"a":"file:base64::files/b/empty","b":"file:base64::files/b/small","c":"file:base64::files/b/large","d":"file:text::{FILE_URL}"}}"#
    );
    let (one, two) = tokio::join!(
        fixture.resolved(of("turn", &arguments)),
        fixture.resolved(of("turn", &arguments)),
    );
    let later = fixture.resolved(of("turn", &arguments)).await;
    assert_eq!(one, two);
    assert_eq!(one, later);
    assert_eq!((gets(&fixture), fixture.egress.asked().len()), (3, 1));
}

#[tokio::test]
async fn another_request_credential_policy_or_limit_loads_by_itself() {
    let fixture = ResolverFixture::new().await;
    fixture.core.add_key("other", "b");
    fixture.core.put("b/a", noise(10), "image/x");
    fixture.egress.answer(
        FILE_URL,
        Ok(fetched(ContentSource::Inline(Bytes::new()), b"")),
    );
    let arguments = format!(r#"{{"a":"file:base64::files/b/a","b":"file:text::{FILE_URL}"}}"#);
    let first = of("one", &arguments);
    let mut limited = first.clone();
    limited.options.as_mut().unwrap().size_limit_bytes = 100;
    let mut other_key = first.clone();
    other_key.credentials.as_mut().unwrap().api_key = "other".to_owned();
    let mut judged = first.clone();
    judged.options.as_mut().unwrap().external_url_fetch = Some(v1::AppPolicy {
        enabled: Some(true),
        host_allowlist: None,
    });
    let requests = [
        first.clone(),
        of("two", &arguments),
        of("", &arguments),
        of("", &arguments),
        limited,
        other_key,
        judged,
        first,
    ];
    for request in requests {
        fixture.resolved(request).await;
    }
    // The last request loads nothing. The one with a policy loads nothing from DIAL, and the one with another key
    // nothing from the fetcher.
    assert_eq!((gets(&fixture), fixture.egress.asked().len()), (6, 6));
}

#[tokio::test]
async fn a_caller_that_may_not_read_a_file_gets_nothing_from_one_that_may() {
    let fixture = ResolverFixture::new().await;
    fixture.core.put("b/a", noise(10), "image/x");
    let arguments = r#"{"a":"file:base64::files/b/a"}"#;
    fixture.resolved(of("turn", arguments)).await;
    let mut stranger = of("turn", arguments);
    stranger.credentials.as_mut().unwrap().api_key = "wrong".to_owned();
    assert!(fixture.ask(stranger).await.is_err());
}

#[tokio::test]
async fn a_file_that_the_store_deleted_is_loaded_again() {
    let fixture = ResolverFixture::new().await;
    fixture.core.put("b/large", noise(200_000), "image/x");
    let arguments = r#"{"a":"file:base64::files/b/large"}"#;
    let first = fixture.resolved(of("turn", arguments)).await;
    for path in fixture.stored().await {
        std::fs::remove_file(path).unwrap();
    }
    let repeated = fixture.resolved(of("turn", arguments)).await;
    assert_eq!(first, repeated);
    assert_eq!(gets(&fixture), 2);
}

#[tokio::test]
async fn without_a_lifetime_every_call_loads() {
    let fixture = ResolverFixture::with(&[("file-resolver.download_lifetime", "0s")]).await;
    fixture.core.put("b/a", noise(10), "image/x");
    for _ in 0..2 {
        fixture
            .resolved(of("turn", r#"{"a":"file:base64::files/b/a"}"#))
            .await;
    }
    assert_eq!(gets(&fixture), 2);
}
