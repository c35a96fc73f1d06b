//! A REST endpoint that records its requests, and the tool set that calls it.

use std::sync::Arc;

use dray_http::fake_server::{
    self, ConnectionClosed, FakeServer, ReceivedRequest, Reply, SharedState,
};
use futures_util::FutureExt as _;
use serde_json::{Value, json};

/// Bodies of the received requests, in order.
type Bodies = Vec<Value>;

/// The endpoint; it answers every POST with `taken`, and `/long` with a long text.
pub(crate) struct FakeEndpoint(FakeServer<Bodies>);

/// The text at the end of the long text, and nowhere else.
pub(crate) const LONG_TEXT_END: &str = "the very last line";

async fn answer(
    shared: Arc<SharedState<Bodies>>,
    received: ReceivedRequest,
) -> Result<Reply, ConnectionClosed> {
    if received.path == "/long" {
        let text = format!(
            "{}\n{LONG_TEXT_END}\n",
            "A line of a long result.\n".repeat(4000)
        );
        return Ok(fake_server::bytes_reply(200, "text/plain", text.into()));
    }
    let (mut reader, mut body) = (received.into_reader(), Vec::new());
    while let Some(chunk) = reader.next_chunk().await.map_err(|_| ConnectionClosed)? {
        body.extend_from_slice(&chunk);
    }
    let body = serde_json::from_slice(&body).map_err(|_| ConnectionClosed)?;
    shared.lock().push(body);
    Ok(fake_server::json_reply(200, &json!({"taken": true})))
}

/// A tool set with one tool, `shop_order`, which sends a request of this method to `URL/order`.
pub(super) fn order_tool_set(url: &str, method: &str) -> Value {
    let parameters = json!({"type": "object", "properties": {}});
    json!({"type": "rest-api", "name": "shop", "tools": [{
        "type": "restapi-tool",
        "open_ai_tool": {"type": "function", "function": {"name": "order", "parameters": parameters}},
        "rest_api_method_info": {"method_url": format!("{url}/order"), "method_type": method},
    }]})
}

impl FakeEndpoint {
    pub(crate) async fn start() -> Self {
        let server = FakeServer::start(Bodies::default(), |shared, received| {
            answer(shared, received).boxed()
        });
        Self(server.await.unwrap())
    }

    /// The bodies of all requests so far.
    pub(crate) fn bodies(&self) -> Bodies {
        self.0.shared().lock().clone()
    }

    /// Tools `shop_order`, with a text `doc` and an object `more` in its body, and `shop_long`.
    pub(crate) fn tools(&self) -> Value {
        let url = self.0.shared().url();
        let body = |name: &str, kind: &str| json!({"type": kind, "parameter_info": {"type": "body", "key": name}});
        json!({"type": "rest-api", "name": "shop", "tools": [
            {
                "type": "restapi-tool",
                "open_ai_tool": {"type": "function", "function": {"name": "order", "parameters": {
                    "type": "object",
                    "properties": {"doc": body("doc", "string"), "more": body("more", "object")},
                }}},
                "rest_api_method_info": {"method_url": format!("{url}/order"), "method_type": "post"},
            },
            {
                "type": "restapi-tool",
                "open_ai_tool": {"type": "function", "function": {"name": "long", "parameters": {
                    "type": "object", "properties": {},
                }}},
                "rest_api_method_info": {"method_url": format!("{url}/long"), "method_type": "get"},
            },
        ]})
    }
}
