//! Tests that the pipeline reaches every code of section 17, with exactly its sentence.

use std::time::Duration;

use dray_guard::{AppPolicy, MaxRedirects};
use dray_testkit::http::{ResponseScript, ResponseStep, ScriptedResponder};
use dray_testkit::tls::Authority;

use super::fake_network::*;
use crate::fetch::FetchJob;
use crate::resolve::DnsError;

const SECRET_URL: &str = "http://files.example.org/a.txt?q=secret#part";

/// Start of the sentences for transport failures.
const FAILURE_PREFIX: &str = "External URL http://files.example.org/a.txt could not be fetched.";

fn check(outcome: &FetchResult, code: &str, message: &str) {
    assert_eq!(outcome.code(), code);
    assert_eq!(outcome.message(), message, "{code}");
    let Err(denied) = &outcome.result else {
        panic!("{code} was not denied");
    };
    assert_eq!(denied.fault.detail, code);
}

/// Fetches `SECRET_URL` from a server that responds with `script`.
async fn fetch_from(script: ResponseScript) -> FetchResult {
    let fixture = FetcherFixture::default();
    fixture.fake_network.serve(PUBLIC_ADDRESS, script);
    fixture.fetch(SECRET_URL).await
}

#[tokio::test(start_paused = true)]
async fn section_17_policy_sentences() {
    let mut fixture = FetcherFixture::default();
    let hosts = |hosts: &[&str]| AppPolicy {
        enabled: None,
        host_allowlist: Some(hosts.iter().map(|host| (*host).to_owned()).collect()),
    };
    let off = AppPolicy {
        enabled: Some(false),
        host_allowlist: None,
    };
    check(
        &fixture.fetch_for(SECRET_URL, off).await,
        "disabled_by_app",
        "External URL fetching is disabled by this app (features.external_url_fetch.enabled=false).",
    );
    check(
        &fixture
            .fetch_for(SECRET_URL, hosts(&["a.example.org"]))
            .await,
        "host_not_in_app_allowlist",
        "External URL host is not in this app's allowlist (features.external_url_fetch.host_allowlist).",
    );
    check(
        &fixture.fetch_for(SECRET_URL, hosts(&["*"])).await,
        "policy_invalid",
        "This app's external fetch policy is invalid; ask the app owner to correct features.external_url_fetch.",
    );
    fixture.admin.host_allowlist =
        Some(dray_guard::HostPatterns::parse(["a.example.org"]).unwrap());
    check(
        &fixture.fetch(SECRET_URL).await,
        "host_not_in_admin_allowlist",
        "External URL host is not in the operator allowlist (EXTERNAL_URL_FETCH_HOST_ALLOWLIST).",
    );
    fixture.admin.enabled = false;
    check(
        &fixture.fetch(SECRET_URL).await,
        "disabled_by_admin",
        "External URL fetching is disabled by operator policy (EXTERNAL_URL_FETCH_ENABLED).",
    );
}

#[tokio::test(start_paused = true)]
async fn section_17_url_sentences() {
    let fixture = FetcherFixture::default();
    let rows = [
        (
            "http://",
            "invalid_url",
            "External URL http:// is not a valid absolute http(s) URL.",
        ),
        (
            "ftp://files.example.org/x",
            "unsupported_scheme",
            "External URL ftp://files.example.org/x uses a scheme that is not supported; use http or https.",
        ),
        (
            "http://user:secret@files.example.org/x",
            "url_credentials",
            "External URL http://files.example.org/x contains credentials, which are not accepted.",
        ),
        (
            "http://0x8.8.8.8/x",
            "ambiguous_host",
            "External URL http://0x8.8.8.8/x writes its host in an ambiguous form; \
             use a plain host name or a dotted-decimal address.",
        ),
        (
            "http://files.example.org:81/x",
            "port_not_allowed",
            "External URL http://files.example.org:81/x uses a port that is not allowed.",
        ),
        (
            "http://db.internal/x",
            "blocked_host",
            "External URL http://db.internal/x names a host that is never fetched (local, internal or reserved name).",
        ),
        (
            "http://127.0.0.1/x",
            "ssrf_blocked",
            "External URL http://127.0.0.1/x resolves to a blocked address \
             (loopback, private, link-local, or cloud-metadata).",
        ),
    ];
    for (url, code, message) in rows {
        check(&fixture.fetch(url).await, code, message);
    }
}

#[tokio::test(start_paused = true)]
async fn section_17_redirect_sentences() {
    let mut fixture = FetcherFixture::default();
    fixture.admin.max_redirects = MaxRedirects::new(0).unwrap();
    fixture
        .fake_network
        .serve(PUBLIC_ADDRESS, ResponseScript::redirect(302, "/again"));
    check(
        &fixture.fetch(SECRET_URL).await,
        "redirect_limit",
        "External URL http://files.example.org/a.txt exceeded the configured redirect limit.",
    );
    check(
        &fetch_from(ResponseScript::redirect(302, "http://")).await,
        "redirect_invalid",
        &format!("{FAILURE_PREFIX} It redirected to an invalid location."),
    );
    let authority = Authority::new().unwrap();
    let fixture = FetcherFixture {
        bundle: Some(authority.pem()),
        ..FetcherFixture::default()
    };
    let acceptor = authority.acceptor("files.example.org").unwrap();
    let down =
        ScriptedResponder::always(ResponseScript::redirect(302, "http://files.example.org/"));
    fixture
        .fake_network
        .peer(PUBLIC_ADDRESS, 443, FakePeer::Tls(acceptor, down));
    check(
        &fixture.fetch("https://files.example.org/a.txt").await,
        "redirect_downgrade",
        "External URL https://files.example.org/a.txt could not be fetched. \
         It redirected from https to http, which is not allowed.",
    );
}

#[tokio::test(start_paused = true)]
async fn section_17_network_sentences() {
    let fixture = FetcherFixture::default();
    let network = &fixture.fake_network;
    let fail_dns = |error| {
        network.set_dns_answers("files.example.org", vec![Err(error)]);
    };
    fail_dns(DnsError::NotFound);
    check(
        &fixture.fetch(SECRET_URL).await,
        "dns_not_found",
        &format!("{FAILURE_PREFIX} could not resolve host files.example.org."),
    );
    fail_dns(DnsError::Failure("SERVFAIL of 10.0.0.1".to_owned()));
    check(
        &fixture.fetch(SECRET_URL).await,
        "dns_failure",
        &format!("{FAILURE_PREFIX} Its host could not be resolved at the moment."),
    );
    network.name("files.example.org", &[PUBLIC_ADDRESS]);
    network.peer(PUBLIC_ADDRESS, 80, FakePeer::Refuses);
    check(
        &fixture.fetch(SECRET_URL).await,
        "connect_failed",
        &format!("{FAILURE_PREFIX} The server could not be reached."),
    );
    network.peer(PUBLIC_ADDRESS, 80, FakePeer::Mute);
    check(
        &fixture.fetch(SECRET_URL).await,
        "timeout",
        "External URL http://files.example.org/a.txt timed out.",
    );
    let expired = FetchJob {
        remaining: Duration::ZERO,
        ..request(SECRET_URL)
    };
    check(
        &run(&fixture.fetcher(), &expired).await,
        "deadline_expired",
        "External URL http://files.example.org/a.txt timed out. It was not fetched before its deadline.",
    );
    network.peer(PUBLIC_ADDRESS, 80, FakePeer::Panics);
    check(&fixture.fetch(SECRET_URL).await, "internal", FAILURE_PREFIX);
    network.peer(
        PUBLIC_ADDRESS,
        443,
        FakePeer::Tls(
            Authority::new()
                .unwrap()
                .acceptor("files.example.org")
                .unwrap(),
            ScriptedResponder::always(ResponseScript::ok("x")),
        ),
    );
    check(
        &fixture.fetch("https://files.example.org/a.txt").await,
        "tls_error",
        "External URL https://files.example.org/a.txt could not be fetched. The TLS or certificate check failed.",
    );
}

#[tokio::test(start_paused = true)]
async fn section_17_response_sentences() {
    let raw = |text: &str| ResponseScript::raw(text);
    let rows = [
        (
            raw(""),
            "connection_closed",
            "The server closed the connection without a response.",
        ),
        (
            raw("SSH-2.0\r\n\r\n"),
            "malformed_response",
            "The server sent an invalid HTTP response.",
        ),
        (
            ResponseScript::status(404),
            "http_status",
            "The server answered HTTP status 404.",
        ),
        (
            raw("HTTP/1.1 206 Part\r\n\r\nx"),
            "unexpected_partial",
            "The server sent only part of the file.",
        ),
        (
            raw("HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nx"),
            "truncated",
            "The transfer ended before the file was complete.",
        ),
        (
            ResponseScript::with_fields(&[("Content-Encoding", "compress")], "x"),
            "unsupported_encoding",
            "It uses a content encoding that is not supported.",
        ),
        (
            ResponseScript::with_fields(&[("Content-Encoding", "gzip")], "x"),
            "decode_error",
            "Its content could not be decompressed.",
        ),
    ];
    for (script, code, detail) in rows {
        check(
            &fetch_from(script).await,
            code,
            &format!("{FAILURE_PREFIX} {detail}"),
        );
    }
    let large = raw("HTTP/1.1 200 OK\r\nContent-Length: 99999999\r\n\r\n").then(ResponseStep::Hold);
    check(
        &fetch_from(large).await,
        "too_large",
        "External URL http://files.example.org/a.txt exceeds the configured file-size limit.",
    );
}

/// A sink whose store is down.
struct FailingSink;

impl crate::sink::ByteSink for FailingSink {
    async fn write(&mut self, _chunk: bytes::Bytes) -> Result<(), crate::sink::SinkError> {
        Err(crate::sink::SinkError::new("10.0.0.9 is down"))
    }
    async fn finish(
        &mut self,
        _labels: &crate::label::ResponseLabels,
    ) -> Result<crate::sink::StoredFile, crate::sink::SinkError> {
        Err(crate::sink::SinkError::new("10.0.0.9 is down"))
    }
    async fn discard(&mut self) {}
}

#[tokio::test(start_paused = true)]
async fn section_17_sink_sentence() {
    let fixture = FetcherFixture::default();
    let mut record = crate::record::FetchRecord::default();
    let fetcher = fixture.fetcher();
    let denied = fetcher
        .fetch(&request(SECRET_URL), &mut FailingSink, &mut record)
        .await
        .unwrap_err();
    assert_eq!(denied.code.as_str(), "sink_failed");
    assert_eq!(
        denied.fault.message,
        format!("{FAILURE_PREFIX} The file could not be stored; try again shortly.")
    );
}
