//! `Resolve` with files of DIAL.

use ::base64::Engine as _;
use ::base64::engine::general_purpose::STANDARD;
use proptest::prelude::*;

use dray_proto::convert::Content;
use dray_proto::v1;
use dray_testkit::dial::Trouble;
use dray_types::{FaultCode, Sha256Digest};

use super::world::{World, noise, request};

fn gets(world: &World) -> Vec<String> {
    let requests = world.core.requests();
    requests
        .into_iter()
        .filter(|line| line.starts_with("GET /v1/files/"))
        .collect()
}

#[tokio::test]
async fn every_form_is_put_in_the_place_of_its_reference() {
    let world = World::new().await;
    world
        .core
        .put("b/note.txt", "Grüße \"du\"\n\u{1f600}", "text/plain");
    let arguments = r#"{ "a" :"file:base64::files/b/note.txt","n":1e400,
  "list":["x", "//FILE:text::/files/b/note.txt", 12345678901234567890.10], "u":"file:url::files/b/a?x=1 " }"#;
    let (resolved, files) = world.resolve(arguments).await;
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
            ("/list/1", "text", "/files/b/note.txt", 17, "text/plain"),
            ("/u", "url", "files/b/a", 0, ""),
        ]
    );
    let digest = Sha256Digest::of("Grüße \"du\"\n\u{1f600}".as_bytes());
    assert_eq!(files[0].sha256, digest.as_bytes());
}

#[tokio::test]
async fn arguments_without_references_come_back_byte_for_byte() {
    let world = World::new().await;
    for arguments in [
        "{}",
        " {\"n\":1.0e+007 , \"n2\":0.1000,\"o\":{\"k\":1,\"k\":2},\"s\":\"\\u0041\\/file:text::x\"}\n",
        r#"{"big":123456789012345678901234567890,"t":"file:","x":null}"#,
    ] {
        assert_eq!(
            world.resolve(arguments).await,
            (arguments.to_owned(), Vec::new())
        );
    }
    assert_eq!(world.core.requests(), Vec::<String>::new());
}

#[tokio::test]
async fn stored_arguments_are_read_and_stay_stored() {
    let world = World::new().await;
    world.core.put("b/a", "text", "text/plain");
    let padding = "x".repeat(100_000);
    let plain = world.put("acme", format!(r#"{{"p":"{padding}"}}"#)).await;
    let asked = v1::ResolveRequest {
        arguments: Some(Content::Claim(plain.clone()).into()),
        ..request("")
    };
    let reply = world.ask(asked.clone()).await.unwrap();
    let Some(v1::resolve_reply::Outcome::Resolved(resolved)) = reply.outcome else {
        panic!("not resolved");
    };
    assert_eq!(resolved.arguments, Some(Content::Claim(plain).into()));
    let with_reference = world
        .put(
            "acme",
            format!(r#"{{"p":"{padding}","f":"file:text::files/b/a"}}"#),
        )
        .await;
    let asked = v1::ResolveRequest {
        arguments: Some(Content::Claim(with_reference).into()),
        ..asked
    };
    let (text, _) = world.resolved(asked).await;
    assert_eq!(text, format!(r#"{{"p":"{padding}","f":"text"}}"#));
}

#[tokio::test]
async fn claims_of_other_tenants_are_refused() {
    let world = World::new().await;
    let foreign = world.put("other", "{}").await;
    let asked = v1::ResolveRequest {
        arguments: Some(Content::Claim(foreign).into()),
        ..request("")
    };
    let fault = world.ask(asked).await.unwrap_err();
    assert_eq!(
        (fault.code, fault.detail.as_str()),
        (FaultCode::Denied, "foreign_tenant")
    );
}

#[tokio::test]
async fn arguments_that_cannot_be_read_are_a_fault() {
    let world = World::with(&[("file-resolver.max_arguments", "1000B")]).await;
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
        let fault = world.fault(arguments).await;
        assert_eq!(fault.detail, detail);
        assert!(!fault.is_retryable(), "{fault:?}");
    }
    let fault = world.ask(v1::ResolveRequest::default()).await.unwrap_err();
    assert_eq!(
        fault.message,
        "The request is not valid: field `arguments` is missing."
    );
}

#[tokio::test]
async fn too_many_references_are_a_fault() {
    let world = World::with(&[("file-resolver.max_references", "2")]).await;
    let fault = world
        .fault(r#"{"a":["file:url::1","file:url::2","file:url::3"]}"#)
        .await;
    assert_eq!(
        (fault.code, fault.detail.as_str()),
        (FaultCode::TooLarge, "too_many_references")
    );
}

#[tokio::test]
async fn a_missing_prefix_is_an_invalid_parameter() {
    let world = World::new().await;
    let rows = [
        "file:///etc/passwd",
        "file:bytes::x",
        "file:base64:x",
        "file:base64::",
        "file:text",
    ];
    for value in rows {
        let invalid = world.invalid(&format!(r#"{{"doc":["{value}"]}}"#)).await;
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
async fn what_names_no_file_is_an_invalid_parameter_that_names_it() {
    let world = World::new().await;
    for (named, message) in [
        (
            "report.pdf",
            "Unsupported file URL report.pdf. Pass `files/{bucket}/{path}` or an http(s) URL.",
        ),
        (
            "ftp://h/a?secret",
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
        let invalid = world
            .invalid(&format!(r#"{{"f":"file:text::{named}"}}"#))
            .await;
        let fault = invalid.fault.unwrap();
        assert_eq!(
            (fault.message.as_str(), fault.detail.as_str()),
            (message, "unsupported_url")
        );
    }
    assert_eq!(world.core.requests(), Vec::<String>::new());
}

#[tokio::test]
async fn r3_a_file_above_the_limit_takes_the_retry_path() {
    let world = World::new().await;
    world.core.put("b/a", vec![b'x'; 101], "text/plain");
    let limited = |size_limit_bytes| v1::ResolveRequest {
        options: Some(v1::ResolveOptions {
            size_limit_bytes,
            ..v1::ResolveOptions::default()
        }),
        ..request(r#"{"f":"file:text::files/b/a"}"#)
    };
    let (text, _) = world.resolved(limited(101)).await;
    assert_eq!(text.len(), 101 + 8);
    for trouble in [None, Some(Trouble::NoLength), Some(Trouble::Endless)] {
        if let Some(trouble) = trouble {
            world.core.misbehave("b/a", trouble);
        }
        let reply = world.ask(limited(100)).await.unwrap();
        let Some(v1::resolve_reply::Outcome::Invalid(invalid)) = reply.outcome else {
            panic!("not invalid: {reply:?}");
        };
        assert_eq!(
            invalid.tool_message,
            "Parameter f is invalid, try to call the tool again with fixed exception: \
             File size 101 exceeds the limit of 100 bytes."
        );
    }
}

#[tokio::test]
async fn r3_the_operators_ceiling_bounds_what_an_app_may_ask_for() {
    let world = World::with(&[
        ("file-resolver.default_size_limit", "10B"),
        ("file-resolver.max_size_limit", "20B"),
    ])
    .await;
    world.core.put("b/a", vec![b'x'; 21], "text/plain");
    for (asked, limit) in [(0, 10), (15, 15), (1 << 40, 20)] {
        let reply = world
            .ask(v1::ResolveRequest {
                options: Some(v1::ResolveOptions {
                    size_limit_bytes: asked,
                    ..v1::ResolveOptions::default()
                }),
                ..request(r#"{"f":"file:text::files/b/a"}"#)
            })
            .await
            .unwrap();
        let Some(v1::resolve_reply::Outcome::Invalid(invalid)) = reply.outcome else {
            panic!("not invalid: {reply:?}");
        };
        let expected = format!("File size 21 exceeds the limit of {limit} bytes.");
        assert_eq!(invalid.fault.unwrap().message, expected);
    }
}

#[tokio::test]
async fn r4_two_spellings_load_once() {
    let world = World::new().await;
    world.core.put("b/ä.txt", "once", "text/plain");
    let absolute = format!("{}/v1/files/b/%C3%A4.txt", world.core.url());
    let arguments = format!(
        r#"{{"a":"file:text::files/b/ä.txt","b":"file:base64::/files/b/%c3%a4.txt","c":"file:text::{absolute}"}}"#
    );
    let (text, _) = world.resolve(&arguments).await;
    assert_eq!(text, r#"{"a":"once","b":"b25jZQ==","c":"once"}"#);
    assert_eq!(gets(&world), ["GET /v1/files/b/%C3%A4.txt"]);
}

#[tokio::test]
async fn r4_a_large_file_that_is_used_twice_loads_once() {
    let world = World::new().await;
    let content = noise(300_000);
    world.core.put("b/a", content.clone(), "image/x");
    let (text, files) = world
        .resolve(r#"{"a":"file:base64::files/b/a","b":"file:base64::files/b/a"}"#)
        .await;
    let encoded = STANDARD.encode(&content);
    assert_eq!(text, format!(r#"{{"a":"{encoded}","b":"{encoded}"}}"#));
    assert_eq!(gets(&world).len(), 1);
    assert_eq!(files[0].sha256, files[1].sha256);
    assert_eq!(files[1].media_type, "image/x");
}

#[tokio::test]
async fn r4_zero_byte_files_load_once() {
    let world = World::new().await;
    world.core.put("b/empty", "", "text/plain");
    let (text, files) = world
        .resolve(r#"{"a":["file:text::files/b/empty","file:base64::files/b/empty"]}"#)
        .await;
    assert_eq!(text, r#"{"a":["",""]}"#);
    assert_eq!((files[0].size, gets(&world).len()), (0, 1));
}

#[tokio::test]
async fn r4_a_failed_load_is_tried_again_on_the_next_call() {
    let world = World::new().await;
    world.core.put("b/a", "text", "text/plain");
    world.core.misbehave("b/a", Trouble::Status(404));
    let arguments = r#"{"a":["file:text::files/b/a","file:text::files/b/a"]}"#;
    let invalid = world.invalid(arguments).await;
    assert_eq!(invalid.pointer, "/a/0");
    world.core.behave("b/a");
    assert_eq!(world.resolve(arguments).await.0, r#"{"a":["text","text"]}"#);
}

#[tokio::test]
async fn r5_nested_values_are_resolved_when_switched_on() {
    let world = World::new().await;
    world.core.put("b/a", "text", "text/plain");
    let arguments = r#"{"o":{"k":["file:text::files/b/a"]},"t":"file:text::files/b/a"}"#;
    assert_eq!(
        world.resolve(arguments).await.0,
        r#"{"o":{"k":["file:text::files/b/a"]},"t":"text"}"#
    );
    let nested = v1::ResolveRequest {
        options: Some(v1::ResolveOptions {
            nested: true,
            ..v1::ResolveOptions::default()
        }),
        ..request(arguments)
    };
    let (text, files) = world.resolved(nested).await;
    assert_eq!(text, r#"{"o":{"k":["text"]},"t":"text"}"#);
    assert_eq!(files[0].pointer, "/o/k/0");
}

#[tokio::test]
async fn r6_binary_files_are_refused_as_text_and_utf16_is_decoded() {
    let world = World::new().await;
    world.core.put("b/x.pdf", "%PDF-1.7", "text/plain");
    world.core.put("b/x.bin", "a\0b", "text/plain");
    world
        .core
        .put("b/utf16", vec![0xff, 0xfe, b'h', 0, 0xe9, 0], "text/plain");
    for (path, name) in [("b/x.pdf", "PDF document"), ("b/x.bin", "NUL bytes")] {
        let invalid = world
            .invalid(&format!(r#"{{"f":"file:text::files/{path}?s=1"}}"#))
            .await;
        assert_eq!(
            invalid.fault.unwrap().message,
            format!(
                "File at files/{path} appears to be binary ({name}). Use `file:base64::...` or `file:URL::...` instead of \
                 `file:text::...`."
            )
        );
    }
    assert_eq!(
        world.resolve(r#"{"f":"file:text::files/b/utf16"}"#).await.0,
        r#"{"f":"hé"}"#
    );
}

#[tokio::test]
async fn r6_binary_found_late_leaves_nothing_behind() {
    let world = World::new().await;
    let mut content = vec![b'a'; 7 << 20];
    content.push(0);
    world.core.put("b/late", content, "text/plain");
    let invalid = world.invalid(r#"{"f":"file:text::files/b/late"}"#).await;
    assert_eq!(invalid.fault.unwrap().detail, "binary");
    assert_eq!(world.stored().await, Vec::<std::path::PathBuf>::new());
}

#[tokio::test]
async fn r7_large_results_go_to_the_store_and_come_with_a_link_on_request() {
    let world = World::new().await;
    let content = noise(6 << 20);
    world.core.put("b/large", content.clone(), "image/x");
    let arguments = r#"{"f":"file:base64::files/b/large","g":1}"#;
    let expected = format!(r#"{{"f":"{}","g":1}}"#, STANDARD.encode(&content));
    for presign in [false, true] {
        let reply = world
            .ask(v1::ResolveRequest {
                presign,
                ..request(arguments)
            })
            .await
            .unwrap();
        let Some(v1::resolve_reply::Outcome::Resolved(resolved)) = reply.outcome else {
            panic!("not resolved: {reply:?}");
        };
        assert_eq!(
            resolved.files[0].sha256,
            Sha256Digest::of(&content).as_bytes()
        );
        let Content::Claim(claim) = resolved.arguments.unwrap().try_into().unwrap() else {
            panic!("not a claim");
        };
        assert_eq!(claim.artifact.media_type, "application/json");
        assert!(
            world.read_claim(&claim).await == expected.as_bytes(),
            "other bytes"
        );
        assert_eq!(resolved.url.is_some(), presign);
        if let Some(url) = resolved.url {
            let got = world.download(&url.url).await;
            assert!(got == expected.as_bytes(), "other bytes behind the link");
        }
    }
    assert_eq!(
        world.stored().await.len(),
        1,
        "the same result is one object"
    );
}

#[tokio::test]
async fn the_first_failure_ends_the_call() {
    let world = World::new().await;
    world.core.put("b/a", noise(200_000), "image/x");
    let invalid = world
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
        world
            .core
            .requests()
            .iter()
            .all(|line| !line.ends_with("/z"))
    );
    assert_eq!(world.stored().await, Vec::<std::path::PathBuf>::new());
}

#[tokio::test]
async fn what_the_model_cannot_correct_is_a_fault() {
    let world = World::new().await;
    world.core.put("b/a", "text", "text/plain");
    let arguments = r#"{"f":"file:text::files/b/a"}"#;
    world.core.misbehave("b/a", Trouble::Status(401));
    let fault = world.fault(arguments).await;
    assert_eq!(
        (fault.code, fault.is_retryable()),
        (FaultCode::Denied, false)
    );
    world.core.misbehave("b/a", Trouble::Truncated);
    let fault = world.fault(arguments).await;
    assert_eq!(
        (fault.detail.as_str(), fault.is_retryable()),
        ("dial_interrupted", true)
    );
    let unkeyed = v1::ResolveRequest {
        credentials: None,
        ..request(arguments)
    };
    world.core.behave("b/a");
    assert_eq!(
        world.ask(unkeyed).await.unwrap_err().detail,
        "dial_unauthorized"
    );
}

#[tokio::test]
async fn a_tool_that_runs_out_of_time_is_told_so() {
    let world = World::new().await;
    world.core.put("b/a", "text", "text/plain");
    world.core.misbehave("b/a", Trouble::Silent);
    let request = v1::ResolveRequest {
        options: Some(v1::ResolveOptions {
            tool_timeout_ms: 100,
            ..v1::ResolveOptions::default()
        }),
        ..request(r#"{"f":"file:text::files/b/a"}"#)
    };
    let fault = world.ask(request).await.unwrap_err();
    assert_eq!(
        (fault.code, fault.detail.as_str()),
        (FaultCode::Timeout, "tool_timeout")
    );
}

#[tokio::test]
async fn without_a_dial_only_its_files_are_refused() {
    let world = World::without_dial().await;
    let fault = world.fault(r#"{"f":"file:text::files/b/a"}"#).await;
    assert_eq!(
        (fault.detail.as_str(), fault.is_retryable()),
        ("no_dial", false)
    );
    let (text, _) = world.resolve(r#"{"f":"file:url::files/b/a"}"#).await;
    assert_eq!(text, r#"{"f":"files/b/a"}"#);
}

#[tokio::test]
async fn answers_are_the_same_for_the_same_question() {
    let world = World::new().await;
    world.core.put("b/a", "text", "text/plain");
    let asked = request(r#"{"f":"file:text::files/b/a"}"#);
    let first = world.ask(asked.clone()).await.unwrap();
    assert_eq!(world.ask(asked).await.unwrap(), first);
    let meta = world.meta();
    let broken = request(r#"{"f":"file:text::files/b/none"}"#);
    let first = world.bus.call(&meta, &broken).await.unwrap();
    assert_eq!(world.bus.call(&meta, &broken).await.unwrap(), first);
}

#[tokio::test]
async fn concurrent_loads_of_one_file_run_once() {
    let world = World::new().await;
    world.core.put("b/a", noise(200_000), "image/x");
    let loader = world.loader();
    let target = crate::classify::classify("files/b/a", None).unwrap();
    let loads = (0..20).map(|_| loader.load(&target));
    let loaded = futures_util::future::join_all(loads).await;
    assert!(
        loaded
            .iter()
            .all(|load| load.as_ref().unwrap().size == 200_000)
    );
    assert_eq!(gets(&world).len(), 1);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn ordinary_arguments_come_back_byte_for_byte(text in "[^\\x00-\\x1f\"\\\\]{0,40}", number in any::<f64>(), pretty: bool) {
        prop_assume!(!text.trim_start_matches('/').to_ascii_lowercase().starts_with("file:"));
        let value = serde_json::json!({ "text": text, "list": [text, number, { "file": text }] });
        let arguments = if pretty { serde_json::to_string_pretty(&value) } else { serde_json::to_string(&value) }.unwrap();
        let slots = crate::arguments::slots(arguments.as_bytes(), crate::arguments::Reach::Nested).unwrap();
        prop_assert_eq!(slots, Vec::new());
    }
}
