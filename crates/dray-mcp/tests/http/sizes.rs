//! Results that clients can take: some clients limit the size of one event.

use serde_json::{Value, json};

use crate::client::call;
use crate::fixture::{HttpFixture, STATIC_TOKEN};

/// Most bytes of an event that the client `mcp` of Python takes.
const MAX_EVENT_BYTES: usize = 1 << 20;

async fn read(fixture: &HttpFixture, name: &str, content: &[u8]) -> Value {
    std::fs::write(fixture.directory.path().join("data").join(name), content).unwrap();
    let response = fixture
        .tool(STATIC_TOKEN, "read", json!({"path": name}))
        .await;
    assert!(response.body.len() < MAX_EVENT_BYTES, "{name}");
    response.message()["result"].clone()
}

/// Bytes that count as a picture by their beginning.
fn picture(size: usize) -> Vec<u8> {
    let mut bytes = b"\x89PNG\r\n\x1a\n".to_vec();
    bytes.resize(size, 0);
    bytes
}

#[tokio::test(flavor = "multi_thread")]
async fn a_picture_that_is_too_large_for_one_event_is_a_link() {
    let fixture = HttpFixture::new().await;
    let small = read(&fixture, "small.png", &picture(760 << 10)).await;
    assert_eq!(small["content"][1]["type"], "image", "{small}");
    let large = read(&fixture, "large.png", &picture(900 << 10)).await;
    assert_eq!(large["content"][1]["type"], "resource_link");
    assert_eq!(large["structuredContent"]["outcome"], "link");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_resource_that_is_too_large_for_one_event_is_refused() {
    let fixture = HttpFixture::new().await;
    for (size, is_refused) in [(700 << 10, false), (760 << 10, true)] {
        let result = read(&fixture, &format!("{size}.png"), &picture(size)).await;
        let params = json!({"uri": result["structuredContent"]["handle"]});
        let response = call(
            fixture.address,
            Some(STATIC_TOKEN),
            "resources/read",
            params,
        )
        .await;
        assert!(response.body.len() < MAX_EVENT_BYTES, "{size}");
        let detail = &response.message()["error"]["data"]["detail"];
        assert_eq!(detail == "too_large", is_refused, "{size}: {detail}");
    }
}
