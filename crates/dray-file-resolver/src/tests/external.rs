//! `Resolve` with external files from a fake fetcher without a network.

use bytes::Bytes;

use dray_proto::convert::ContentSource;
use dray_proto::v1;
use dray_testkit::eventually;
use dray_testkit::http::{FakeHttpServer, ResponseScript, ScriptedResponder};
use dray_types::{Fault, FaultCode, Sha256Digest, TenantId};
use std::time::Duration;

use super::fixture::{ResolverFixture, fetched, noise, request};

const SECRET_URL: &str = "https://h.example/a?secret=1";

fn inline(bytes: &'static [u8]) -> v1::FetchReply {
    fetched(ContentSource::Inline(Bytes::from_static(bytes)), bytes)
}

#[tokio::test]
async fn external_files_come_from_the_fetcher_inline_or_by_claim() {
    let fixture = ResolverFixture::new().await;
    let large = noise(200_000);
    let claim = fixture.put("acme", large.clone()).await;
    fixture
        .egress
        .answer(SECRET_URL, Ok(inline("täxt".as_bytes())));
    fixture.egress.answer(
        "https://h.example/large",
        Ok(fetched(ContentSource::Claim(claim), &large)),
    );
    let arguments =
        format!(r#"{{"a":"file:text::{SECRET_URL}","b":"file:base64::https://h.example/large"}}"#);
    let (text, files) = fixture.resolve(&arguments).await;
    let resolved: serde_json::Value = serde_json::from_str(&text).unwrap();
    assert_eq!(resolved["a"], "täxt");
    let encoded = ::base64::Engine::encode(&::base64::engine::general_purpose::STANDARD, &large);
    assert!(resolved["b"] == encoded, "other bytes");
    assert_eq!(files[0].reference, "https://h.example/a");
    assert_eq!((files[0].size, files[1].size), (5, 200_000));
    assert_eq!(files[0].media_type, "text/plain");
}

#[tokio::test]
async fn the_fetcher_gets_url_policy_limit_and_envelope_and_no_credentials() {
    let fixture = ResolverFixture::new().await;
    fixture.egress.answer(SECRET_URL, Ok(inline(b"text")));
    let policy = v1::AppPolicy {
        enabled: Some(true),
        host_allowlist: Some(v1::HostAllowlist {
            patterns: Vec::new(),
        }),
    };
    let resolve_request = v1::ResolveRequest {
        options: Some(v1::ResolveOptions {
            size_limit_bytes: 1234,
            external_url_fetch: Some(policy.clone()),
            tool_timeout_ms: 5000,
            ..v1::ResolveOptions::default()
        }),
        ..request(&format!(r#"{{"a":"file:text::  {SECRET_URL}"}}"#))
    };
    let meta = fixture.meta();
    fixture.bus.call(&meta, &resolve_request).await.unwrap();
    let (envelope, fetch) = fixture.egress.asked().remove(0);
    assert_eq!(
        (&envelope.operation, &envelope.tenant),
        (&meta.operation, &meta.tenant)
    );
    assert!(
        envelope.deadline < meta.deadline,
        "the tool's own time is shorter"
    );
    assert_eq!(
        fetch,
        v1::FetchRequest {
            url: SECRET_URL.to_owned(),
            app_policy: Some(policy),
            size_limit_bytes: 1234,
            tool_timeout_ms: 5000,
            sink: v1::Sink::Unspecified.into(),
            revalidate: false,
        }
    );
}

#[tokio::test]
async fn r1_the_resolver_opens_no_connection_to_an_external_url() {
    let fixture = ResolverFixture::new().await;
    let server = FakeHttpServer::start(ScriptedResponder::always(ResponseScript::ok("inside")))
        .await
        .unwrap();
    let url = format!("http://{}/a", server.address());
    let refused = Fault::new(
        FaultCode::Denied,
        "External URL resolves to a blocked address.",
    );
    fixture
        .egress
        .answer(&url, Err(refused.detail("ssrf_blocked")));
    let invalid = fixture
        .invalid(&format!(r#"{{"a":"file:text::{url}"}}"#))
        .await;
    assert_eq!(invalid.fault.unwrap().detail, "ssrf_blocked");
    assert_eq!(
        (fixture.egress.asked().len(), server.received_requests()),
        (1, Vec::new())
    );
}

#[tokio::test]
async fn r2_the_dial_host_on_another_port_or_scheme_goes_to_the_fetcher_without_the_key() {
    let fixture = ResolverFixture::new().await;
    let port = fixture.core.address().port();
    for url in [
        format!(
            "http://127.0.0.1:{}/v1/files/b/a",
            port.wrapping_add(1).max(1)
        ),
        format!("https://127.0.0.1:{port}/v1/files/b/a"),
        format!("http://localhost:{port}/v1/files/b/a"),
    ] {
        fixture.egress.answer(&url, Ok(inline(b"outside")));
        let (text, _) = fixture
            .resolve(&format!(r#"{{"a":"file:text::{url}"}}"#))
            .await;
        assert_eq!(text, r#"{"a":"outside"}"#);
    }
    assert_eq!(fixture.core.requests(), Vec::<String>::new());
}

#[tokio::test]
async fn policy_refusals_carry_the_advice_of_section_34() {
    let fixture = ResolverFixture::new().await;
    for (detail, sentence) in [
        (
            "disabled_by_admin",
            "External URL fetching is disabled by operator policy (EXTERNAL_URL_FETCH_ENABLED).",
        ),
        (
            "disabled_by_app",
            "External URL fetching is disabled by this app (features.external_url_fetch.enabled=false).",
        ),
        (
            "host_not_in_admin_allowlist",
            "External URL host is not in the operator allowlist (EXTERNAL_URL_FETCH_HOST_ALLOWLIST).",
        ),
        (
            "host_not_in_app_allowlist",
            "External URL host is not in this app's allowlist (features.external_url_fetch.host_allowlist).",
        ),
    ] {
        fixture.egress.answer(
            SECRET_URL,
            Err(Fault::new(FaultCode::Denied, sentence).detail(detail)),
        );
        let invalid = fixture
            .invalid(&format!(r#"{{"doc":"file:text::{SECRET_URL}"}}"#))
            .await;
        assert_eq!(
            invalid.tool_message,
            format!(
                "Parameter doc is invalid, try to call the tool again with fixed exception: {sentence} Upload the file to \
                 DIAL and pass `files/...` instead, or use a deployment that supports url_attachments. URL: \
                 https://h.example/a"
            )
        );
    }
}

#[tokio::test]
async fn failures_of_the_other_server_are_reported_in_exact_sentences() {
    let fixture = ResolverFixture::new().await;
    for (code, detail, sentence) in [
        (
            FaultCode::NotFound,
            "http_status",
            "External URL https://h.example/a could not be fetched. The server answered HTTP status 404.",
        ),
        (
            FaultCode::Timeout,
            "timeout",
            "External URL https://h.example/a timed out.",
        ),
        (
            FaultCode::TooLarge,
            "too_large",
            "External URL https://h.example/a exceeds the configured file-size limit.",
        ),
    ] {
        let fault = Fault::new(code, sentence)
            .detail(detail)
            .trace_id("0".repeat(32));
        fixture.egress.answer(SECRET_URL, Err(fault));
        let invalid = fixture
            .invalid(&format!(r#"{{"a":"file:text::{SECRET_URL}"}}"#))
            .await;
        let fault = Fault::from(invalid.fault.unwrap());
        assert_eq!(
            (fault.code, fault.message.as_str(), fault.detail.as_str()),
            (code, sentence, detail)
        );
        assert_eq!(fault.trace_id, "", "the same question has the same answer");
    }
}

#[tokio::test]
async fn a_fetcher_in_trouble_is_not_the_models_mistake() {
    let fixture = ResolverFixture::new().await;
    for detail in ["internal", "sink_failed", "config_invalid"] {
        let fault = Fault::new(FaultCode::Internal, "broken").detail(detail);
        fixture.egress.answer(SECRET_URL, Err(fault));
        let fault = fixture
            .fault(&format!(r#"{{"a":"file:text::{SECRET_URL}"}}"#))
            .await;
        assert_eq!(fault.detail, detail);
    }
    let busy = Fault::new(
        FaultCode::RateLimited,
        "External URL fetching is busy; try again shortly.",
    )
    .detail("overloaded")
    .retry_after(Duration::from_millis(1));
    fixture.egress.answer(SECRET_URL, Err(busy));
    let fault = fixture
        .fault(&format!(r#"{{"a":"file:text::{SECRET_URL}"}}"#))
        .await;
    assert_eq!(
        (fault.code, fault.is_retryable()),
        (FaultCode::RateLimited, true)
    );
}

#[tokio::test]
async fn an_answer_that_contradicts_itself_is_not_handed_over() {
    let fixture = ResolverFixture::new().await;
    let foreign = fixture.put("other", "theirs").await;
    let wrong_digest = v1::FetchReply {
        sha256: Sha256Digest::of(b"else").as_bytes().to_vec(),
        ..inline(b"text")
    };
    let wrong_size = v1::FetchReply {
        size: 5,
        ..inline(b"text")
    };
    let nothing = v1::FetchReply {
        content: None,
        ..inline(b"text")
    };
    let no_digest = v1::FetchReply {
        sha256: Vec::new(),
        ..inline(b"text")
    };
    for broken in [wrong_digest, wrong_size, nothing, no_digest] {
        fixture.egress.answer(SECRET_URL, Ok(broken));
        let fault = fixture
            .fault(&format!(r#"{{"a":"file:text::{SECRET_URL}"}}"#))
            .await;
        assert_eq!(
            (fault.code, fault.detail.as_str()),
            (FaultCode::Internal, "egress_answer")
        );
    }
    fixture.egress.answer(
        SECRET_URL,
        Ok(fetched(ContentSource::Claim(foreign), b"theirs")),
    );
    let fault = fixture
        .fault(&format!(r#"{{"a":"file:text::{SECRET_URL}"}}"#))
        .await;
    assert_eq!(
        (fault.code, fault.detail.as_str()),
        (FaultCode::Denied, "foreign_tenant")
    );
}

#[tokio::test]
async fn r3_more_than_was_asked_for_is_refused() {
    let fixture = ResolverFixture::new().await;
    fixture.egress.answer(SECRET_URL, Ok(inline(b"too long")));
    let resolve_request = v1::ResolveRequest {
        options: Some(v1::ResolveOptions {
            size_limit_bytes: 7,
            ..v1::ResolveOptions::default()
        }),
        ..request(&format!(r#"{{"a":"file:text::{SECRET_URL}"}}"#))
    };
    assert_eq!(
        fixture.ask(resolve_request).await.unwrap_err().detail,
        "egress_answer"
    );
}

#[tokio::test]
async fn a_url_that_is_used_twice_is_fetched_once() {
    let fixture = ResolverFixture::new().await;
    fixture.egress.answer(SECRET_URL, Ok(inline(b"")));
    let (text, _) = fixture
        .resolve(&format!(
            r#"{{"a":"file:text::{SECRET_URL}","b":"file:base64::{SECRET_URL}","c":"file:url::{SECRET_URL}"}}"#
        ))
        .await;
    assert_eq!(text, format!(r#"{{"a":"","b":"","c":"{SECRET_URL}"}}"#));
    assert_eq!(fixture.egress.asked().len(), 1);
}

#[tokio::test]
async fn url_references_are_never_fetched_nor_judged() {
    let fixture = ResolverFixture::new().await;
    let (text, files) = fixture
        .resolve(
            r#"{"a":"file:url::http://169.254.169.254/?k=1","b":"file:url::file:///etc/passwd"}"#,
        )
        .await;
    assert_eq!(
        text,
        r#"{"a":"http://169.254.169.254/?k=1","b":"file:///etc/passwd"}"#
    );
    assert_eq!(files[0].reference, "http://169.254.169.254/");
    assert!(fixture.egress.asked().is_empty());
}

#[tokio::test]
async fn calls_that_wait_for_the_fetcher_do_not_delay_other_tenants() {
    let limits = [("limits.calls", "2"), ("limits.calls_per_tenant", "1")];
    let fixture = ResolverFixture::with(&limits).await;
    fixture.egress.stall(SECRET_URL);
    let mut waiting = tokio::task::JoinSet::new();
    for tenant in ["one", "two", "three"] {
        let mut meta = fixture.meta();
        meta.tenant = TenantId::new(tenant).unwrap();
        let (bus, resolve) = (
            fixture.bus.clone(),
            request(&format!(r#"{{"a":"file:text::{SECRET_URL}"}}"#)),
        );
        waiting.spawn(async move { bus.call(&meta, &resolve).await });
    }
    eventually("all three wait for the fetcher", async || {
        (fixture.egress.asked().len() == 3).then_some(())
    })
    .await;
    assert_eq!(fixture.resolve(r#"{"a":1}"#).await.0, r#"{"a":1}"#);
}
