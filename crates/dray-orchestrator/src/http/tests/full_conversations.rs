//! Tests of conversations that have as many responses or bytes as they may have.

use dray_types::ByteSize;
use http::Method;
use serde_json::{Value, json};

use super::responses::{RESPONSES_PATH, get, post, request};
use super::scripted::{TestSurface, keys, read, text_step};
use super::sweeps::{records, write};

/// Bytes of a large item; five of them are more than one conversation may have.
const LARGE_ITEM_BYTES: usize = 13 << 20;

async fn start() -> TestSurface {
    TestSurface::with(vec![text_step("Hello.")], |options| {
        options.clients = keys(&["one"]);
        options.max_body = ByteSize::mib(16);
    })
    .await
}

/// Makes a conversation with this many documents of one item of this text. Returns its path and its id.
async fn conversation(fixture: &TestSurface, documents: usize, text: &str) -> (String, Value) {
    let items = json!({"items": [{"role": "user", "content": text}]});
    let (status, created) = post(fixture, "/v1/conversations", &items).await;
    assert_eq!(status, 200, "{created}");
    let stored = records(fixture, "conversation").await.pop().unwrap();
    let mut record: Value = serde_json::from_slice(&stored.value).unwrap();
    let entry = record["history"][0].clone();
    record["history"] = vec![entry; documents].into();
    write(fixture, stored, &record.to_string()).await;
    let path = format!("/v1/conversations/{}", created["id"].as_str().unwrap());
    (path, created["id"].clone())
}

#[tokio::test]
async fn a_response_for_a_conversation_without_room_is_refused_before_its_turn() {
    let fixture = start().await;
    let (path, id) = conversation(&fixture, 1_000, "hi").await;
    let body = request(&json!({"conversation": id}));
    let (status, refused) = post(&fixture, RESPONSES_PATH, &body).await;
    assert_eq!(
        (status, &refused["error"]["param"]),
        (400, &json!("conversation")),
        "{refused}"
    );
    assert_eq!(fixture.agent.asked.lock().await.len(), 0);
    let (status, items) = get(&fixture, &format!("{path}/items?limit=1")).await;
    assert_eq!(status, 200, "{items}");
    let (_, id) = conversation(&fixture, 999, "hi").await;
    let body = request(&json!({"conversation": id}));
    let (status, response) = post(&fixture, RESPONSES_PATH, &body).await;
    assert_eq!(status, 200, "{response}");
}

#[tokio::test]
async fn a_conversation_is_created_while_slow_uploads_take_all_places() {
    let fixture = TestSurface::with(Vec::new(), |options| {
        options.clients = keys(&["one"]);
        options.chat_wait = std::time::Duration::from_millis(1);
    })
    .await;
    let mut uploads = Vec::new();
    for caller in ["client:one", "client:two"] {
        while let Ok(place) = fixture.surface.upload_place(caller).await {
            uploads.push(place);
        }
    }
    let (status, created) = post(&fixture, "/v1/conversations", &json!({})).await;
    assert_eq!(status, 200, "{created}");
}

#[tokio::test]
async fn items_that_a_conversation_has_no_room_for_are_refused() {
    let fixture = start().await;
    let text = "x".repeat(LARGE_ITEM_BYTES);
    let (path, _) = conversation(&fixture, 4, &text).await;
    let item = json!({"items": [{"role": "user", "content": text}]});
    let (status, refused) = post(&fixture, &format!("{path}/items"), &item).await;
    assert_eq!(status, 413, "{refused}");
    let item = json!({"items": [{"role": "user", "content": "small"}]});
    let (status, added) = post(&fixture, &format!("{path}/items"), &item).await;
    assert_eq!(status, 200, "{added}");
}

#[tokio::test]
async fn items_of_a_conversation_that_is_too_large_are_listed_and_deleted() {
    let fixture = start().await;
    let text = "x".repeat(LARGE_ITEM_BYTES);
    let (path, id) = conversation(&fixture, 5, &text).await;
    let body = request(&json!({"conversation": id}));
    let (status, refused) = post(&fixture, RESPONSES_PATH, &body).await;
    assert_eq!(status, 400, "{refused}");
    let listing = fixture
        .request(Method::GET, &format!("{path}/items?limit=1"))
        .header("authorization", "Bearer one");
    let listed = listing.send(&|_| ()).await.unwrap();
    assert_eq!(listed.status(), 200);
    let listed = listed.bytes(2 * LARGE_ITEM_BYTES).await.unwrap();
    let items: Value = serde_json::from_slice(&listed).unwrap();
    let item = items["first_id"].as_str().unwrap();
    let deleted = fixture
        .request(Method::DELETE, &format!("{path}/items/{item}"))
        .header("authorization", "Bearer one");
    let (status, body) = read(deleted.send(&|_| ()).await.unwrap()).await;
    assert_eq!(status, 200, "{body}");
    let (status, response) = post(
        &fixture,
        RESPONSES_PATH,
        &request(&json!({"conversation": id})),
    )
    .await;
    assert_eq!(status, 200, "{response}");
}
