//! Tests of conversations from which very many items are deleted.

use dray_types::ByteSize;
use serde_json::{Value, json};

use super::responses::{RESPONSES_PATH, post, request};
use super::scripted::{TestSurface, keys, text_step};

const RESPONSE_OWNER: &str = "client:owner-of-one";

fn message(number: usize) -> Value {
    json!({"id": format!("msg_{number}"), "type": "message", "role": "user", "content": "secret"})
}

#[tokio::test]
async fn more_than_a_thousand_items_are_deleted_even_from_the_responses_that_continue_theirs() {
    const ITEM_COUNT: usize = 1_002;
    let fixture = TestSurface::with(vec![text_step("Hello.")], |options| {
        options.clients = keys(&["one"]);
        options.max_body = ByteSize::mib(1);
    })
    .await;
    let (_, conversation) = post(&fixture, "/v1/conversations", &json!({})).await;
    let id = conversation["id"].as_str().unwrap();
    let input: Vec<_> = (0..ITEM_COUNT).map(message).collect();
    let body = request(&json!({"conversation": id, "input": input}));
    let (status, response) = post(&fixture, RESPONSES_PATH, &body).await;
    assert_eq!(status, 200, "{response}");
    let store = fixture.shared.client_state().await.responses;
    for number in 1..ITEM_COUNT {
        let item = format!("msg_{number}");
        let deleted = store.delete_item(RESPONSE_OWNER, id, &item).await;
        assert!(deleted.is_ok(), "{item}: {deleted:?}");
    }
    let ids = |items: &[Value]| {
        items
            .iter()
            .map(|item| item["id"].clone())
            .collect::<Vec<_>>()
    };
    let left = store
        .conversation_history(RESPONSE_OWNER, id)
        .await
        .unwrap();
    assert_eq!(ids(&left.documents[0].input), ["msg_0"]);
    // A response names the items that it had, even after its conversation is gone.
    store.delete_conversation(RESPONSE_OWNER, id).await.unwrap();
    let response = response["id"].as_str().unwrap();
    let continued = store.history_after(RESPONSE_OWNER, response).await.unwrap();
    assert_eq!(ids(&continued.documents[0].input), ["msg_0"]);
}
