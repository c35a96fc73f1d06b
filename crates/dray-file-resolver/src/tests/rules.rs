//! `Resolve` with files of DIAL, rule by rule (quickapps 44.4).

use ::base64::Engine as _;
use ::base64::engine::general_purpose::STANDARD;

use dray_proto::convert::ContentSource;
use dray_proto::v1;
use dray_testkit::dial::InjectedFault;
use dray_types::{Claim, Fault, FaultCode, Sha256Digest};

use super::fixture::{ResolverFixture, TEST_TENANT, noise, request};

fn gets(fixture: &ResolverFixture) -> Vec<String> {
    let requests = fixture.core.requests();
    requests
        .into_iter()
        .filter(|line| line.starts_with("GET /v1/files/"))
        .collect()
}

#[tokio::test]
async fn r3_a_file_above_the_limit_is_an_invalid_parameter() {
    let fixture = ResolverFixture::new().await;
    fixture.core.put("b/a", vec![b'x'; 101], "text/plain");
    let limited = |size_limit_bytes| v1::ResolveRequest {
        options: Some(v1::ResolveOptions {
            size_limit_bytes,
            ..v1::ResolveOptions::default()
        }),
        ..request(r#"{"f":"file:text::files/b/a"}"#)
    };
    let (text, _) = fixture.resolved(limited(101)).await;
    assert_eq!(text.len(), 101 + 8);
    for trouble in [
        None,
        Some(InjectedFault::NoLength),
        Some(InjectedFault::Endless),
    ] {
        if let Some(trouble) = trouble {
            fixture.core.inject_file_fault("b/a", trouble);
        }
        let reply = fixture.ask(limited(100)).await.unwrap();
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
async fn r3_an_app_cannot_raise_the_limit_above_that_of_the_operator() {
    let fixture = ResolverFixture::with(&[
        ("file-resolver.default_size_limit", "10B"),
        ("file-resolver.max_size_limit", "20B"),
    ])
    .await;
    fixture.core.put("b/a", vec![b'x'; 21], "text/plain");
    for (asked, limit) in [(0, 10), (15, 15), (1 << 40, 20)] {
        let reply = fixture
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
    let fixture = ResolverFixture::new().await;
    fixture.core.put("b/ä.txt", "once", "text/plain");
    let absolute = format!("{}/v1/files/b/%C3%A4.txt", fixture.core.url());
    let arguments = format!(
        r#"{{"a":"file:text::files/b/ä.txt","b":"file:base64::/files/b/%c3%a4.txt","c":"file:text::{absolute}"}}"#
    );
    let (text, _) = fixture.resolve(&arguments).await;
    assert_eq!(text, r#"{"a":"once","b":"b25jZQ==","c":"once"}"#);
    assert_eq!(gets(&fixture), ["GET /v1/files/b/%C3%A4.txt"]);
}

#[tokio::test]
async fn r4_a_large_file_that_is_used_twice_loads_once() {
    let fixture = ResolverFixture::new().await;
    let content = noise(300_000);
    fixture.core.put("b/a", content.clone(), "image/x");
    let (text, files) = fixture
        .resolve(r#"{"a":"file:base64::files/b/a","b":"file:base64::files/b/a"}"#)
        .await;
    let encoded = STANDARD.encode(&content);
    assert_eq!(text, format!(r#"{{"a":"{encoded}","b":"{encoded}"}}"#));
    assert_eq!(gets(&fixture).len(), 1);
    assert_eq!(files[0].sha256, files[1].sha256);
    assert_eq!(files[1].media_type, "image/x");
}

#[tokio::test]
async fn r4_zero_byte_files_load_once() {
    let fixture = ResolverFixture::new().await;
    fixture.core.put("b/empty", "", "text/plain");
    let (text, files) = fixture
        .resolve(r#"{"a":["file:text::files/b/empty","file:base64::files/b/empty"]}"#)
        .await;
    assert_eq!(text, r#"{"a":["",""]}"#);
    assert_eq!((files[0].size, gets(&fixture).len()), (0, 1));
}

#[tokio::test]
async fn r4_a_failed_load_is_tried_again_on_the_next_call() {
    let fixture = ResolverFixture::new().await;
    fixture.core.put("b/a", "text", "text/plain");
    fixture
        .core
        .inject_file_fault("b/a", InjectedFault::Status(404));
    let arguments = r#"{"a":["file:text::files/b/a","file:text::files/b/a"]}"#;
    let invalid = fixture.invalid(arguments).await;
    assert_eq!(invalid.pointer, "/a/0");
    fixture.core.clear_file_fault("b/a");
    assert_eq!(
        fixture.resolve(arguments).await.0,
        r#"{"a":["text","text"]}"#
    );
}

#[tokio::test]
async fn r5_nested_values_are_resolved_only_on_request() {
    let fixture = ResolverFixture::new().await;
    fixture.core.put("b/a", "text", "text/plain");
    let arguments = r#"{"o":{"k":["file:text::files/b/a"]},"t":"file:text::files/b/a"}"#;
    assert_eq!(
        fixture.resolve(arguments).await.0,
        r#"{"o":{"k":["file:text::files/b/a"]},"t":"text"}"#
    );
    let nested = v1::ResolveRequest {
        options: Some(v1::ResolveOptions {
            nested: true,
            ..v1::ResolveOptions::default()
        }),
        ..request(arguments)
    };
    let (text, files) = fixture.resolved(nested).await;
    assert_eq!(text, r#"{"o":{"k":["text"]},"t":"text"}"#);
    assert_eq!(files[0].pointer, "/o/k/0");
}

#[tokio::test]
async fn r6_binary_files_are_refused_as_text_and_utf16_is_decoded() {
    let fixture = ResolverFixture::new().await;
    fixture.core.put("b/x.pdf", "%PDF-1.7", "text/plain");
    fixture.core.put("b/x.bin", "a\0b", "text/plain");
    fixture
        .core
        .put("b/utf16", vec![0xff, 0xfe, b'h', 0, 0xe9, 0], "text/plain");
    for (path, name) in [("b/x.pdf", "PDF document"), ("b/x.bin", "NUL bytes")] {
        let invalid = fixture
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
        fixture
            .resolve(r#"{"f":"file:text::files/b/utf16"}"#)
            .await
            .0,
        r#"{"f":"hé"}"#
    );
}

#[tokio::test]
async fn r6_binary_content_that_appears_late_leaves_no_stored_bytes() {
    let fixture = ResolverFixture::new().await;
    let mut content = vec![b'a'; 7 << 20];
    content.push(0);
    fixture.core.put("b/late", content, "text/plain");
    let invalid = fixture.invalid(r#"{"f":"file:text::files/b/late"}"#).await;
    assert_eq!(invalid.fault.unwrap().detail, "binary");
    assert_eq!(fixture.stored().await, Vec::<std::path::PathBuf>::new());
}

#[tokio::test]
async fn r7_large_results_go_to_the_store_and_come_with_a_link_on_request() {
    let fixture = ResolverFixture::new().await;
    let content = noise(6 << 20);
    fixture.core.put("b/large", content.clone(), "image/x");
    let arguments = r#"{"f":"file:base64::files/b/large","g":1}"#;
    let expected = format!(r#"{{"f":"{}","g":1}}"#, STANDARD.encode(&content));
    for presign in [false, true] {
        let reply = fixture
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
        let ContentSource::Claim(claim) = resolved.arguments.unwrap().try_into().unwrap() else {
            panic!("the content must be a claim");
        };
        assert_eq!(claim.artifact.media_type, "application/json");
        assert!(
            fixture.read_claim(&claim).await == expected.as_bytes(),
            "other bytes"
        );
        assert_eq!(resolved.url.is_some(), presign);
        if let Some(url) = resolved.url {
            let result = fixture.download(&url.url).await;
            assert!(result == expected.as_bytes(), "other bytes behind the link");
        }
    }
    assert_eq!(
        fixture.stored().await.len(),
        1,
        "the same result is one object"
    );
}

#[tokio::test]
async fn a_stored_file_is_opened_for_its_own_tenant_only() {
    let fixture = ResolverFixture::new().await;
    let open = async |claim: Option<Claim>| {
        let claim = claim.map(Into::into);
        let request = v1::OpenArtifactRequest { claim };
        fixture
            .bus
            .call(&fixture.meta(), &request)
            .await
            .map_err(Fault::from)
    };
    let claim = fixture.put(TEST_TENANT, "stored").await;
    let opened = open(Some(claim)).await.unwrap();
    assert_eq!(fixture.download(&opened.url).await, "stored");
    let foreign = fixture.put("other", "private").await;
    let fault = open(Some(foreign)).await.unwrap_err();
    assert_eq!(fault.code, FaultCode::Denied);
    let fault = open(None).await.unwrap_err();
    assert_eq!(fault.code, FaultCode::InvalidArgument);
}

#[tokio::test]
async fn concurrent_loads_of_one_file_run_once() {
    let fixture = ResolverFixture::new().await;
    fixture.core.put("b/a", noise(200_000), "image/x");
    let loader = fixture.loader();
    let target = dray_dial::origin::classify_reference("files/b/a", None).unwrap();
    let loads = (0..20).map(|_| loader.load(&target));
    let loaded = futures_util::future::join_all(loads).await;
    assert!(
        loaded
            .iter()
            .all(|load| load.as_ref().unwrap().size == 200_000)
    );
    assert_eq!(gets(&fixture).len(), 1);
}

#[tokio::test]
async fn stored_files_are_listed_for_their_own_tenant_only() {
    let fixture = ResolverFixture::new().await;
    let own = fixture.put(TEST_TENANT, "stored").await;
    fixture.put("other", "private").await;
    let list = async |after: Vec<u8>| {
        let request = v1::ListArtifactsRequest { after, limit: 0 };
        let listed = fixture.bus.call(&fixture.meta(), &request).await;
        listed.map_err(Fault::from)
    };
    let reply = list(Vec::new()).await.unwrap();
    let [stored] = reply.artifacts.as_slice() else {
        panic!("{reply:?}");
    };
    assert_eq!(stored.sha256, own.artifact.sha256.as_bytes());
    assert_eq!((stored.size, reply.truncated), (6, false));
    let after_it = list(stored.sha256.clone()).await.unwrap();
    assert!(after_it.artifacts.is_empty(), "{after_it:?}");
    let fault = list(vec![1; 31]).await.unwrap_err();
    assert_eq!(fault.code, FaultCode::InvalidArgument);
}
