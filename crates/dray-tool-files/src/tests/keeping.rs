//! Tests of references, and of files that are stored.

use dray_agent::manifest::feature::{ExternalUrlFetch, Features};
use dray_proto::convert::ContentSource;
use dray_proto::v1::{self, resolve_reply};
use dray_tool::{ArgumentResolver as _, FileStorage as _, ToolFailure, UrlClass};
use dray_types::{Fault, FaultCode, Period, Sha256Digest};
use serde_json::json;

use super::fixture::{FilesFixture, lock, object};
use crate::{Config, TurnStart};

#[tokio::test]
async fn arguments_without_references_send_no_request() {
    let fixture = FilesFixture::new().await;
    let arguments = object(json!({"a": "see file:text::x", "b": [1, {"c": "file:text::x"}]}));
    let resolved = fixture
        .turn()
        .resolver()
        .resolve("tool", arguments.clone())
        .await
        .unwrap();
    assert_eq!(resolved, arguments);
}

#[tokio::test]
async fn references_are_sent_with_credentials_and_limits_and_content_is_returned_by_claim() {
    let mut fixture = FilesFixture::with(Config {
        nested: true,
        ..Config::default()
    })
    .await;
    let long = "x".repeat(200_000);
    let claim = fixture
        .put("", json!({ "doc": long }).to_string().as_bytes())
        .await;
    let requests = fixture
        .serve(move |_: &v1::ResolveRequest| {
            let resolved = v1::ResolvedArguments {
                arguments: Some(ContentSource::Claim(claim.clone()).into()),
                ..v1::ResolvedArguments::default()
            };
            Ok(v1::ResolveReply {
                outcome: Some(resolve_reply::Outcome::Resolved(resolved)),
            })
        })
        .await;
    let features = Features {
        external_url_fetch: ExternalUrlFetch {
            enabled: Some(true),
            host_allowlist: Some(vec!["e.example".to_owned()]),
        },
        ..Features::default()
    };
    let files = fixture.opened(TurnStart {
        features,
        ..TurnStart::default()
    });
    let arguments = object(json!({"doc": {"deep": "file:text::files/b/a.txt"}}));
    let resolved = files.resolver().resolve("tool", arguments).await.unwrap();
    assert_eq!(resolved["doc"].as_str().map(str::len), Some(200_000));
    let requests = lock(&requests);
    let (meta, request) = &requests[0];
    assert_eq!(meta.session.as_ref().unwrap().as_str(), "s");
    assert_eq!(request.credentials.as_ref().unwrap().api_key, "key");
    let options = request.options.as_ref().unwrap();
    assert!(options.nested);
    assert_eq!(options.size_limit_bytes, 10 << 20);
    let policy = options.external_url_fetch.as_ref().unwrap();
    assert_eq!(
        policy.host_allowlist.as_ref().unwrap().patterns,
        ["e.example"]
    );
}

#[tokio::test]
async fn arguments_above_the_inline_limit_go_as_a_claim() {
    let mut fixture = FilesFixture::new().await;
    let requests = fixture
        .serve(|_: &v1::ResolveRequest| Err(Fault::new(FaultCode::Denied, "DIAL refuses the key.")))
        .await;
    let arguments = object(json!({"a": "file:text::files/b/a.txt", "b": "y".repeat(100_000)}));
    let failure = fixture
        .turn()
        .resolver()
        .resolve("tool", arguments.clone())
        .await
        .unwrap_err();
    assert_eq!(failure.to_string(), "DIAL refuses the key.");
    assert!(matches!(failure, ToolFailure::Failed(_)));
    let content = lock(&requests)[0].1.arguments.clone().unwrap();
    let ContentSource::Claim(claim) = ContentSource::try_from(content).unwrap() else {
        panic!("the content must be a claim")
    };
    let sent = fixture.read(&claim).await;
    assert_eq!(sent, serde_json::to_vec(&arguments).unwrap());
}

#[tokio::test]
async fn errors_that_the_model_can_correct_are_invalid_parameters() {
    let mut fixture = FilesFixture::new().await;
    fixture
        .serve(|_: &v1::ResolveRequest| {
            let invalid = v1::InvalidParameter {
                parameter: "a".to_owned(),
                fault: Some(v1::Fault {
                    message: "File size 11 exceeds the limit of 10 bytes.".to_owned(),
                    ..v1::Fault::default()
                }),
                ..v1::InvalidParameter::default()
            };
            Ok(v1::ResolveReply {
                outcome: Some(resolve_reply::Outcome::Invalid(invalid)),
            })
        })
        .await;
    let arguments = object(json!({"a": "file:text::files/b/a.txt"}));
    let failure = fixture
        .turn()
        .resolver()
        .resolve("tool", arguments)
        .await
        .unwrap_err();
    assert!(
        matches!(&failure, ToolFailure::Parameter { name, message }
            if name == "a" && message == "File size 11 exceeds the limit of 10 bytes."),
        "{failure}"
    );
}

#[tokio::test]
async fn a_resolver_that_is_down_is_reported_in_a_sentence() {
    let fixture = FilesFixture::with(Config {
        transfer_timeout: Period::secs(2),
        ..Config::default()
    })
    .await;
    let arguments = object(json!({"a": "file:text::files/b/a.txt"}));
    let failure = fixture
        .turn()
        .resolver()
        .resolve("tool", arguments)
        .await
        .unwrap_err();
    assert_eq!(
        failure.to_string(),
        "The service that reads files is not reachable at the moment; try again later."
    );
}

#[tokio::test]
async fn r_2_only_the_exact_origin_of_dial_is_dial() {
    let mut fixture = FilesFixture::new().await;
    fixture.drive();
    let files = fixture.turn();
    for (url, class) in [
        ("files/b/a.pdf", UrlClass::Dial),
        ("//Files/b/a.pdf", UrlClass::Dial),
        ("https://dial.example/v1/files/b/a.pdf", UrlClass::Dial),
        (
            "https://dial.example:8443/v1/files/b/a.pdf",
            UrlClass::External,
        ),
        ("http://dial.example/v1/files/b/a.pdf", UrlClass::External),
        (" https://e.example/x", UrlClass::External),
        ("DATA:,x", UrlClass::Data),
        ("", UrlClass::Unsupported),
        ("ftp://h/x", UrlClass::Unsupported),
        ("v1/files/b/a", UrlClass::Unsupported),
        ("//host/x", UrlClass::Unsupported),
        ("report.pdf", UrlClass::Unsupported),
    ] {
        assert_eq!(files.storage.classify(url), class, "{url:?}");
    }
}

#[tokio::test]
async fn an_unsupported_address_is_refused_without_its_secrets() {
    let fixture = FilesFixture::new().await;
    let failure = fixture
        .turn()
        .storage
        .durable("attachment_urls", "ftp://u:p@h/x?token=1")
        .await
        .unwrap_err();
    assert!(
        matches!(&failure, ToolFailure::Parameter { name, message } if name == "attachment_urls" && message
            == "URL scheme not supported: ftp://h/x. Only DIAL file paths (e.g. files/bucket/foo.pdf) and http(s) URLs are \
                accepted."),
        "{failure}"
    );
}

#[tokio::test]
async fn an_outside_file_is_promoted_once_even_under_concurrency() {
    let mut fixture = FilesFixture::new().await;
    let drive = fixture.drive();
    let requests = fixture.page(b"a,b\n", "text/csv").await;
    let files = fixture.turn();
    let url = "https://e.example/data/t%20able.csv?sig=1";
    let (one, two) = tokio::join!(
        files.storage.durable("p", url),
        files.storage.durable("p", url)
    );
    assert_eq!(one.as_ref().unwrap(), two.as_ref().unwrap());
    assert_eq!(lock(&requests).len(), 1);
    let attachment = one.unwrap();
    assert_eq!(
        attachment.url.as_deref(),
        Some("files/b/appdata/app/t-able.csv")
    );
    assert_eq!(attachment.kind.as_deref(), Some("text/csv"));
    assert_eq!(
        lock(&drive.files)["files/b/appdata/app/t-able.csv"],
        "a,b\n"
    );
}

#[tokio::test]
async fn a_failed_promotion_is_tried_again_and_a_refusal_comes_with_advice() {
    let mut fixture = FilesFixture::new().await;
    let requests = fixture
        .serve(|_: &v1::FetchRequest| {
            let sentence = "External URL fetching is disabled by this app (features.external_url_fetch.enabled=false).";
            Err(Fault::new(FaultCode::Denied, sentence).detail("disabled_by_app"))
        })
        .await;
    let files = fixture.turn();
    for _ in 0..2 {
        let failure = files
            .storage
            .durable("p", "https://u:pw@e.example/a?token=1")
            .await
            .unwrap_err();
        assert_eq!(
            failure.to_string(),
            "Parameter p is invalid: External URL fetching is disabled by this app \
             (features.external_url_fetch.enabled=false). Upload the file to DIAL and pass `files/...` instead, or use a \
             deployment that supports url_attachments. URL: https://e.example/a"
        );
    }
    assert_eq!(lock(&requests).len(), 2, "failures are not remembered");
}

#[tokio::test]
async fn r_9_files_of_one_name_never_overwrite_each_other() {
    let mut fixture = FilesFixture::new().await;
    let drive = fixture.drive();
    let files = fixture.turn();
    let mut urls = Vec::new();
    for text in ["1", "2", "3", "4", "5", "6", "7"] {
        let stored_file = files
            .storage
            .keep("plot.png", "image/png", text.into())
            .await
            .unwrap();
        urls.push(stored_file.url.unwrap());
    }
    assert_eq!(
        urls[..2],
        [
            "files/b/appdata/app/plot.png",
            "files/b/appdata/app/plot_2.png"
        ]
    );
    let stored = lock(&drive.files);
    assert_eq!(stored.len(), 7);
    for (url, text) in urls.iter().zip(["1", "2", "3", "4", "5", "6", "7"]) {
        assert_eq!(stored[url], text);
    }
}

#[tokio::test]
async fn a_storage_that_kept_fewer_bytes_than_it_got_is_a_failure() {
    let mut fixture = FilesFixture::new().await;
    let drive = fixture.drive();
    *lock(&drive.unreported_bytes) = 1;
    let failure = fixture
        .turn()
        .storage
        .keep("a.txt", "text/plain", "abc".into())
        .await
        .unwrap_err();
    assert_eq!(
        failure.to_string(),
        "The file storage has not kept the whole file; try again later."
    );
}

#[tokio::test]
async fn without_dial_a_kept_file_is_a_link_and_a_key_that_lasts() {
    let fixture = FilesFixture::new().await;
    let stored = fixture
        .turn()
        .storage
        .keep("a.txt", "text/plain", "abc".into())
        .await
        .unwrap();
    assert!(stored.url.unwrap().starts_with("http"));
    let key = format!("artifact/{}/3/", Sha256Digest::of(b"abc").to_hex());
    let name = stored.rest["key"].as_str().unwrap();
    assert_eq!(name.len(), key.len() + 32);
    assert!(name.starts_with(&key), "{name}");
}

#[tokio::test]
async fn inline_data_is_stored_once_and_its_limit_is_reported_exactly() {
    let mut fixture = FilesFixture::with(Config {
        size_limit: dray_types::ByteSize::bytes(3),
        ..Config::default()
    })
    .await;
    let drive = fixture.drive();
    let files = fixture.turn();
    let one = files
        .storage
        .durable("p", "data:text/csv,a%2Cb")
        .await
        .unwrap();
    let two = files
        .storage
        .durable("p", "data:text/csv;base64,YSxi")
        .await
        .unwrap();
    assert_eq!(one, two);
    assert_eq!(lock(&drive.files).len(), 1);
    assert_eq!(one.url.unwrap().rsplit('.').next(), Some("csv"));
    let failure = files.storage.durable("p", "data:,abcd").await.unwrap_err();
    assert_eq!(
        failure.to_string(),
        "Parameter p is invalid: Inline data: content for parameter `p` is 4 bytes, over the 3-byte file size limit. Upload \
         the file to DIAL and pass `files/...` instead."
    );
}
