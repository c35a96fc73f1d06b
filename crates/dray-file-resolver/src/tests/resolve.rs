//! `Resolve` with files of DIAL.

use ::base64::Engine as _;
use ::base64::engine::general_purpose::STANDARD;
use proptest::prelude::*;

use dray_proto::convert::ContentSource;
use dray_proto::v1;
use dray_testkit::dial::InjectedFault;
use dray_types::{FaultCode, Sha256Digest};

use super::fixture::{ResolverFixture, noise, request};

#[tokio::test]
async fn every_form_is_put_in_the_place_of_its_reference() {
    let fixture = ResolverFixture::new().await;
    fixture
        .core
        .put("b/note.txt", "Grüße \"du\"\n\u{1f600}", "text/plain");
    let arguments = r#"{ "a" :"file:base64::files/b/note.txt","n":1e400,
  "list":["x", "//FILE:text::/files/b/note.txt", 12345678901234567890.10], "u":"file:url::files/b/a?x=1 " }"#;
    let (resolved, files) = fixture.resolve(arguments).await;
    let encoded = STANDARD.encode("Grüße \"du\"\n\u{1f600}");
    assert_eq!(
        resolved,
        format!(
            "{{ \"a\" :\"{encoded}\",\"n\":1e400,\n  \"list\":[\"x\", \"Grüße \\\"du\\\"\\n\u{1f600}\", \
             12345678901234567890.10], \"u\":\"files/b/a?x=1 \" }}"
        )
    );
    let shown: Vec<_> = files
        .iter()
        .map(|file| {
            (
                file.pointer.as_str(),
                file.form.as_str(),
                file.reference.as_str(),
                file.size,
                file.media_type.as_str(),
            )
        })
        .collect();
    assert_eq!(
        shown,
        [
            ("/a", "base64", "files/b/note.txt", 17, "text/plain"),
            ("/list/1", "text", "files/b/note.txt", 17, "text/plain"),
            ("/u", "url", "files/b/a", 0, ""),
        ]
    );
    let digest = Sha256Digest::of("Grüße \"du\"\n\u{1f600}".as_bytes());
    assert_eq!(files[0].sha256, digest.as_bytes());
}

#[tokio::test]
async fn arguments_without_references_come_back_byte_for_byte() {
    let fixture = ResolverFixture::new().await;
    for arguments in [
        "{}",
        " {\"n\":1.0e+007 , \"n2\":0.1000,\"o\":{\"k\":1,\"k\":2},\"s\":\"\\u0041\\/file:text::x\"}\n",
        r#"{"big":123456789012345678901234567890,"t":"file:","x":null}"#,
    ] {
        assert_eq!(
            fixture.resolve(arguments).await,
            (arguments.to_owned(), Vec::new())
        );
    }
    assert_eq!(fixture.core.requests(), Vec::<String>::new());
}

#[tokio::test]
async fn stored_arguments_are_read_and_stay_stored() {
    let fixture = ResolverFixture::new().await;
    fixture.core.put("b/a", "text", "text/plain");
    let padding = "x".repeat(100_000);
    let plain = fixture.put("acme", format!(r#"{{"p":"{padding}"}}"#)).await;
    let resolve_request = v1::ResolveRequest {
        arguments: Some(ContentSource::Claim(plain.clone()).into()),
        ..request("")
    };
    let reply = fixture.ask(resolve_request.clone()).await.unwrap();
    let Some(v1::resolve_reply::Outcome::Resolved(resolved)) = reply.outcome else {
        panic!("the call must be resolved");
    };
    assert_eq!(resolved.arguments, Some(ContentSource::Claim(plain).into()));
    let with_reference = fixture
        .put(
            "acme",
            format!(r#"{{"p":"{padding}","f":"file:text::files/b/a"}}"#),
        )
        .await;
    let resolve_request = v1::ResolveRequest {
        arguments: Some(ContentSource::Claim(with_reference).into()),
        ..resolve_request
    };
    let (text, _) = fixture.resolved(resolve_request).await;
    assert_eq!(text, format!(r#"{{"p":"{padding}","f":"text"}}"#));
}

#[tokio::test]
async fn claims_of_other_tenants_are_refused() {
    let fixture = ResolverFixture::new().await;
    let foreign = fixture.put("other", "{}").await;
    let resolve_request = v1::ResolveRequest {
        arguments: Some(ContentSource::Claim(foreign).into()),
        ..request("")
    };
    let fault = fixture.ask(resolve_request).await.unwrap_err();
    assert_eq!(
        (fault.code, fault.detail.as_str()),
        (FaultCode::Denied, "foreign_tenant")
    );
}

#[tokio::test]
async fn arguments_that_cannot_be_read_are_a_fault() {
    let fixture = ResolverFixture::with(&[("file-resolver.max_arguments", "1000B")]).await;
    for (arguments, detail) in [
        ("{\"a\":", "invalid_json"),
        ("[]", "not_an_object"),
        ("{\"a\":1,\"a\":2}", "duplicate_member"),
        (
            &format!("{{\"a\":{}1{}}}", "[".repeat(200), "]".repeat(200)),
            "too_deep",
        ),
        (
            &format!("{{\"a\":\"{}\"}}", "x".repeat(1000)),
            "arguments_too_large",
        ),
    ] {
        let fault = fixture.fault(arguments).await;
        assert_eq!(fault.detail, detail);
        assert!(!fault.is_retryable(), "{fault:?}");
    }
    let fault = fixture
        .ask(v1::ResolveRequest::default())
        .await
        .unwrap_err();
    assert_eq!(
        fault.message,
        "The request is not valid: field `arguments` is missing."
    );
}

#[tokio::test]
async fn too_many_references_are_a_fault() {
    let fixture = ResolverFixture::with(&[("file-resolver.max_references", "2")]).await;
    let fault = fixture
        .fault(r#"{"a":["file:url::1","file:url::2","file:url::3"]}"#)
        .await;
    assert_eq!(
        (fault.code, fault.detail.as_str()),
        (FaultCode::TooLarge, "too_many_references")
    );
}

#[tokio::test]
async fn a_missing_prefix_is_an_invalid_parameter() {
    let fixture = ResolverFixture::new().await;
    let rows = [
        "file:///etc/passwd",
        "file:bytes::x",
        "file:base64:x",
        "file:base64::",
        "file:text",
    ];
    for value in rows {
        let invalid = fixture.invalid(&format!(r#"{{"doc":["{value}"]}}"#)).await;
        assert_eq!(
            (invalid.parameter.as_str(), invalid.pointer.as_str()),
            ("doc", "/doc/0")
        );
        assert_eq!(
            invalid.tool_message,
            "Parameter doc is invalid, try to call the tool again with fixed exception: \
             Missing required file prefix (base64::, url::, text::)"
        );
        assert_eq!(invalid.fault.unwrap().detail, "missing_prefix");
    }
}

#[tokio::test]
async fn a_reference_without_a_file_is_an_invalid_parameter_with_its_text() {
    let fixture = ResolverFixture::new().await;
    for (named, message) in [
        (
            "report.pdf",
            "Unsupported file URL report.pdf. Pass `files/{bucket}/{path}` or an http(s) URL.",
        ),
        (
            "ftp://h/a?secret",
            "Unsupported file URL ftp://h/a?secret. Pass `files/{bucket}/{path}` or an http(s) URL.",
        ),
        (
            "mailto:ada@h.example?subject=a",
            "Unsupported file URL mailto:ada@h.example?subject=a. Pass `files/{bucket}/{path}` or an http(s) URL.",
        ),
        (
            "ftp://u:p@h/a",
            "Unsupported file URL ftp://h/a. Pass `files/{bucket}/{path}` or an http(s) URL.",
        ),
        (
            "files/b/",
            "Unsupported file URL files/b/. It names a folder; pass the path of a file.",
        ),
        (
            "files/b/../a",
            "Unsupported file URL files/b/../a. Its path must not contain empty, `.` or `..` segments.",
        ),
    ] {
        let invalid = fixture
            .invalid(&format!(r#"{{"f":"file:text::{named}"}}"#))
            .await;
        let fault = invalid.fault.unwrap();
        assert_eq!(
            (fault.message.as_str(), fault.detail.as_str()),
            (message, "unsupported_url")
        );
    }
    assert_eq!(fixture.core.requests(), Vec::<String>::new());
}

#[tokio::test]
async fn the_first_failure_ends_the_call() {
    let fixture = ResolverFixture::new().await;
    fixture.core.put("b/a", noise(200_000), "image/x");
    let invalid = fixture
        .invalid(r#"{"a":"file:base64::files/b/a","x":"file:text::files/b/none","z":"file:base64::files/b/z","y":"file:nothing"}"#)
        .await;
    assert_eq!(invalid.parameter, "x");
    let fault = invalid.fault.unwrap();
    assert_eq!(
        (fault.message.as_str(), fault.code()),
        (
            "File files/b/none could not be loaded: it does not exist.",
            v1::FaultCode::NotFound
        )
    );
    assert!(
        fixture
            .core
            .requests()
            .iter()
            .all(|line| !line.ends_with("/z"))
    );
    assert_eq!(fixture.stored().await, Vec::<std::path::PathBuf>::new());
}

#[tokio::test]
async fn failures_that_the_model_cannot_correct_are_faults() {
    let fixture = ResolverFixture::new().await;
    fixture.core.put("b/a", "text", "text/plain");
    let arguments = r#"{"f":"file:text::files/b/a"}"#;
    fixture
        .core
        .inject_file_fault("b/a", InjectedFault::Status(401));
    let fault = fixture.fault(arguments).await;
    assert_eq!(
        (fault.code, fault.is_retryable()),
        (FaultCode::Denied, false)
    );
    fixture
        .core
        .inject_file_fault("b/a", InjectedFault::Truncated);
    let fault = fixture.fault(arguments).await;
    assert_eq!(
        (fault.detail.as_str(), fault.is_retryable()),
        ("dial_interrupted", true)
    );
    let unkeyed = v1::ResolveRequest {
        credentials: None,
        ..request(arguments)
    };
    fixture.core.clear_file_fault("b/a");
    assert_eq!(
        fixture.ask(unkeyed).await.unwrap_err().detail,
        "dial_unauthorized"
    );
}

#[tokio::test]
async fn a_tool_that_runs_out_of_time_is_reported() {
    let fixture = ResolverFixture::new().await;
    fixture.core.put("b/a", "text", "text/plain");
    fixture.core.inject_file_fault("b/a", InjectedFault::Silent);
    let request = v1::ResolveRequest {
        options: Some(v1::ResolveOptions {
            tool_timeout_ms: 100,
            ..v1::ResolveOptions::default()
        }),
        ..request(r#"{"f":"file:text::files/b/a"}"#)
    };
    let fault = fixture.ask(request).await.unwrap_err();
    assert_eq!(
        (fault.code, fault.detail.as_str()),
        (FaultCode::Timeout, "tool_timeout")
    );
}

#[tokio::test]
async fn without_a_dial_only_its_files_are_refused() {
    let fixture = ResolverFixture::without_dial().await;
    let fault = fixture.fault(r#"{"f":"file:text::files/b/a"}"#).await;
    assert_eq!(
        (fault.detail.as_str(), fault.is_retryable()),
        ("no_dial", false)
    );
    let (text, _) = fixture.resolve(r#"{"f":"file:url::files/b/a"}"#).await;
    assert_eq!(text, r#"{"f":"files/b/a"}"#);
}

#[tokio::test]
async fn answers_are_the_same_for_the_same_question() {
    let fixture = ResolverFixture::new().await;
    fixture.core.put("b/a", "text", "text/plain");
    let asked = request(r#"{"f":"file:text::files/b/a"}"#);
    let first = fixture.ask(asked.clone()).await.unwrap();
    assert_eq!(fixture.ask(asked).await.unwrap(), first);
    let meta = fixture.meta();
    let broken = request(r#"{"f":"file:text::files/b/none"}"#);
    let first = fixture.bus.call(&meta, &broken).await.unwrap();
    assert_eq!(fixture.bus.call(&meta, &broken).await.unwrap(), first);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn ordinary_arguments_come_back_byte_for_byte(text in "[^\\x00-\\x1f\"\\\\]{0,40}", number in any::<f64>(), pretty: bool) {
        prop_assume!(!text.trim_start_matches('/').to_ascii_lowercase().starts_with("file:"));
        let value = serde_json::json!({ "text": text, "list": [text, number, { "file": text }] });
        let arguments = if pretty { serde_json::to_string_pretty(&value) } else { serde_json::to_string(&value) }.unwrap();
        let slots = crate::arguments::find_slots(arguments.as_bytes(), crate::arguments::ReferenceScope::Nested).unwrap();
        prop_assert_eq!(slots, Vec::new());
    }
}
