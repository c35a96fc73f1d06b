//! Tests of responses.

use std::sync::Arc;
use std::time::Duration;

use dray_agent::event::{Event, StageStatus};
use dray_http::{FailureKind, HttpClient};
use dray_tool::pipeline::{CompletedCall, RequestEnd};
use serde_json::{Value, json};
use tokio::sync::Semaphore;

use super::fixture::{FakeAction, MemoryStorage, RestFixture, files, text};

const PNG_BYTES: &[u8] = b"\x89PNG\r\n\x1a\n\0\xff\xfe abcd";

async fn get(fixture: &RestFixture) -> CompletedCall {
    let set = fixture.set("get", "/x", &json!({}));
    fixture.call(set, json!({})).await.unwrap()
}

async fn get_as(fixture: &RestFixture, rules: Value) -> CompletedCall {
    let mut set = fixture.set("get", "/x", &json!({}));
    set["response_as_attachment"] = rules;
    fixture.call(set, json!({})).await.unwrap()
}

#[tokio::test]
async fn text_is_the_content_with_the_type_of_the_header() {
    let latin = FakeAction::Bytes(
        200,
        "text/csv; charset=iso-8859-1",
        b"a,b\n\xe9,2\n".to_vec(),
    );
    let fixture = RestFixture::new([latin]).await;
    let ran = get(&fixture).await;
    assert_eq!(text(&ran), "a,b\né,2\n");
    assert_eq!(ran.content_type, "text/csv; charset=iso-8859-1");
    assert_eq!(ran.message.custom_content, None);
    assert!(
        fixture
            .stage_text()
            .ends_with("| a | b |\n| --- | --- |\n| é | 2 |\n")
    );
}

#[tokio::test]
async fn r_9_a_file_is_kept_byte_for_byte_under_a_separate_name() {
    let fixture = RestFixture::new([FakeAction::Bytes(200, "image/png", PNG_BYTES.to_vec())]).await;
    let ran = get_as(
        &fixture,
        json!({"enabled": true, "content_types": ["image/png"]}),
    )
    .await;
    let title = "order-2026-11-20T21_08_07.123000.png";
    assert_eq!(text(&ran), format!("See attached file: {title}"));
    assert_eq!(ran.propagate, files(&ran));
    assert_eq!(
        files(&ran)[0].url.as_deref(),
        Some(&*format!("files/B/{title}"))
    );
    let stored = fixture.storage.files.lock().unwrap();
    assert_eq!(
        stored[0],
        (title.to_owned(), "image/png".to_owned(), PNG_BYTES.into())
    );
}

#[tokio::test]
async fn r_9_text_that_looks_like_base64_is_kept_as_it_is() {
    let fixture = RestFixture::new([
        FakeAction::Bytes(200, "text/plain", b"abcd".to_vec()),
        FakeAction::Bytes(200, "text/plain", b"abcd".to_vec()),
    ])
    .await;
    let rules = json!({"enabled": true, "content_types": ["text/plain"]});
    assert_eq!(text(&get_as(&fixture, rules).await), "abcd");
    let rules =
        json!({"enabled": true, "content_types": ["text/plain"], "include_body_as_content": false});
    let ran = get_as(&fixture, rules).await;
    assert!(text(&ran).starts_with("See attached file: order-"));
    for (_, _, bytes) in fixture.storage.files.lock().unwrap().iter() {
        assert_eq!(bytes.as_ref(), b"abcd");
    }
}

#[tokio::test]
async fn binary_bytes_become_a_file_without_a_rule() {
    let fixture = RestFixture::new([
        FakeAction::Bytes(200, "application/octet-stream", PNG_BYTES.to_vec()),
        FakeAction::Bytes(200, "text/plain", b"a\0\xff".to_vec()),
    ])
    .await;
    for _ in 0..2 {
        let ran = get(&fixture).await;
        assert!(
            text(&ran).starts_with("See attached file: order-"),
            "{ran:?}"
        );
    }
    let files = fixture.storage.files.lock().unwrap();
    assert_eq!(files[0].2.as_ref(), PNG_BYTES);
    assert_eq!(files[1].2.as_ref(), b"a\0\xff");
}

#[tokio::test]
async fn a_small_file_that_cannot_be_stored_is_in_the_message() {
    let big = vec![0_u8; 300 << 10];
    let mut fixture = RestFixture::new([
        FakeAction::Bytes(200, "image/png", PNG_BYTES.to_vec()),
        FakeAction::Bytes(200, "text/plain", b"abcd".to_vec()),
        FakeAction::Bytes(200, "image/png", big),
        FakeAction::Bytes(200, "text/plain", vec![b'a'; 300 << 10]),
    ])
    .await;
    fixture.storage = Arc::new(MemoryStorage {
        fails: true,
        ..MemoryStorage::default()
    });
    let rules = json!({"enabled": true});
    let ran = get_as(&fixture, rules.clone()).await;
    assert_eq!(
        files(&ran)[0].data.as_deref(),
        Some("iVBORw0KGgoA//4gYWJjZA==")
    );
    let ran = get_as(&fixture, rules.clone()).await;
    assert_eq!(files(&ran)[0].data.as_deref(), Some("abcd"));
    let ran = get_as(&fixture, rules.clone()).await;
    assert!(ran.failed && text(&ran).contains("307200 bytes, which could not be stored"));
    assert!(text(&ran).contains("The request was made."));
    let ran = get_as(&fixture, rules).await;
    assert_eq!((ran.failed, text(&ran).len()), (false, 300 << 10));
    assert!(!fixture.stage_text().contains("iVBOR"));
    let events = fixture.events.lock().unwrap();
    assert!(
        !events
            .iter()
            .any(|event| matches!(event, Event::StageAttachment { .. }))
    );
}

#[tokio::test]
async fn r_12_a_refusal_is_returned_shown_and_fails_the_stage() {
    let fixture = RestFixture::new([FakeAction::Json(422, json!({"error": "no stock"}))]).await;
    let ran = get(&fixture).await;
    assert!(ran.failed);
    assert_eq!(
        text(&ran),
        r#"The tool call failed with an error: The server answered with status 422: {"error":"no stock"}"#
    );
    let body = "> ##### Status Code:\n422\n> ##### Response:\n```json\n{\n    \"error\": \"no stock\"\n}\n```\n";
    assert_eq!(fixture.stage_text(), body);
    let events = fixture.events.lock().unwrap();
    let status = StageStatus::Failed;
    assert_eq!(
        events.last(),
        Some(&Event::StageClosed { stage: 0, status })
    );
}

#[tokio::test]
async fn a_strategy_on_a_status_ends_the_request() {
    let fixture = RestFixture::new([FakeAction::Json(401, json!({}))]).await;
    let mut set = fixture.set("get", "/x", &json!({}));
    set["tools"][0]["fallback_configuration"] = json!({"strategies": [
        {"type": "stop", "trigger_on": {"type": "contains", "value": "401"}},
    ]});
    let ended = fixture.call(set, json!({})).await;
    assert!(
        matches!(ended, Err(RequestEnd::Stopped { .. })),
        "{ended:?}"
    );
}

#[tokio::test]
async fn a_redirect_is_reported_and_not_followed() {
    let url = "http://127.0.0.1:1/elsewhere?token=abc";
    let fixture = RestFixture::new([FakeAction::With(302, "location", url)]).await;
    let ran = get(&fixture).await;
    assert!(text(&ran).contains("status 302") && text(&ran).contains("redirects are not followed"));
    assert!(!text(&ran).contains("elsewhere"));
    assert_eq!(fixture.requests().len(), 1);
}

#[tokio::test]
async fn an_answer_over_the_limit_is_refused_and_one_at_it_is_not() {
    let at = |size: usize| FakeAction::Bytes(200, "text/plain", vec![b'a'; size]);
    let mut fixture = RestFixture::new([at(1000), at(1001)]).await;
    fixture.options.max_response_bytes = 1000;
    assert_eq!(text(&get(&fixture).await).len(), 1000);
    let ran = get(&fixture).await;
    assert!(ran.failed);
    assert!(
        text(&ran).ends_with("The answer of the server is longer than the limit of 1000 bytes.")
    );
}

#[tokio::test]
async fn a_broken_connection_is_reported_without_an_address() {
    let whole = br#"{"a": "0123456789"}"#.to_vec();
    let fixture = RestFixture::new([FakeAction::Cut(whole, 8), FakeAction::Close]).await;
    for _ in 0..2 {
        let ran = get(&fixture).await;
        assert!(ran.failed);
        assert!(
            text(&ran).contains("broke before its answer was complete"),
            "{ran:?}"
        );
        assert!(!text(&ran).contains("127.0.0.1") && !fixture.stage_text().contains("127.0.0.1"));
    }
    assert_eq!(fixture.requests().len(), 2, "nothing is tried twice");
    let mut set = fixture.set("get", "/x", &json!({}));
    set["tools"][0]["rest_api_method_info"]["method_url"] = json!("http://127.0.0.1:1/x?k=secret");
    let ran = fixture.call(set, json!({})).await.unwrap();
    assert!(
        text(&ran).ends_with("The server cannot be reached."),
        "{ran:?}"
    );
    assert!(
        fixture
            .stage_text()
            .contains("> ##### Error:\n ConnectionError The server cannot be reached")
    );
}

#[tokio::test]
async fn only_the_limit_of_the_call_ends_a_silent_response() {
    let resumed = Arc::new(Semaphore::new(0));
    let pauses = (0..4).map(|_| FakeAction::Pause(Arc::clone(&resumed)));
    let mut fixture = RestFixture::new(pauses).await;
    fixture.timeouts.idle = Duration::from_millis(1);
    let client = HttpClient::new(fixture.timeouts, None).unwrap();
    // The timeouts of these requests show that the silence is over for the call, which began before.
    let waiting = async {
        for _ in 0..3 {
            let request = client.get(&format!("{}/x", fixture.url()));
            let response = request.send(&|_| {}).await.unwrap();
            let error = response.bytes(100).await.unwrap_err();
            assert!(matches!(error.failure, FailureKind::Idle(_)), "{error}");
        }
        resumed.add_permits(1);
    };
    let (ran, ()) = tokio::join!(Box::pin(get(&fixture)), Box::pin(waiting));
    assert_eq!(text(&ran), "one two");
}

#[tokio::test]
async fn a_response_compressed_without_request_is_refused() {
    let fixture = RestFixture::new([FakeAction::With(200, "content-encoding", "gzip")]).await;
    let ran = get(&fixture).await;
    assert!(ran.failed && text(&ran).contains("compressed"));
}

#[tokio::test]
async fn an_empty_answer_is_empty_text() {
    let fixture = RestFixture::new([FakeAction::Bytes(204, "application/json", Vec::new())]).await;
    let ran = get(&fixture).await;
    assert!(!ran.failed);
    assert_eq!((text(&ran), files(&ran).len()), ("", 0));
}
