//! Tests of calls of tools with a peer that works longer than other calls may take.

use std::sync::Arc;
use std::time::Duration;

use dray_dial::{DialClient, DialOptions, DialPort, ErrorKind, InterpreterAction};
use dray_http::HttpTimeouts;
use dray_http::fake_server::{
    ConnectionClosed, FakeServer, ReceivedRequest, Reply, SharedState, bytes_reply, json_reply,
};
use futures_util::{FutureExt as _, TryStreamExt as _};
use serde_json::json;
use tokio::sync::Semaphore;

use super::caller;

/// Never responds about the bucket, and to other requests only with a permit of the semaphore.
async fn respond(
    shared: Arc<SharedState<Arc<Semaphore>>>,
    received: ReceivedRequest,
) -> Result<Reply, ConnectionClosed> {
    let path = received.path.clone();
    received.into_reader().all().await?;
    if path == "/v1/bucket" {
        return std::future::pending().await;
    }
    let released = shared.lock().clone();
    let permit = released.acquire().await.map_err(|_| ConnectionClosed)?;
    permit.forget();
    if path.ends_with("/chat/completions") {
        let choice = json!({"index": 0, "delta": {"content": "done"}, "finish_reason": "stop"});
        let chunk = json!({ "choices": [choice] });
        let events = format!("data: {chunk}\n\ndata: [DONE]\n\n");
        return Ok(bytes_reply(200, "text/event-stream", events.into()));
    }
    Ok(json_reply(200, &json!({"status": "SUCCESS"})))
}

#[tokio::test]
async fn code_and_deployments_may_work_longer_than_other_calls_may_take() {
    let released = Arc::new(Semaphore::new(0));
    let server = FakeServer::start(
        Arc::clone(&released),
        |shared: Arc<SharedState<Arc<Semaphore>>>, received: ReceivedRequest| {
            respond(shared, received).boxed()
        },
    )
    .await
    .unwrap();
    let mut options = DialOptions::new(server.shared().url(), "2025-01-01");
    let short_timeouts = HttpTimeouts {
        response: Duration::from_millis(1),
        ..HttpTimeouts::default()
    };
    (options.limits, options.chat) = (short_timeouts, short_timeouts);
    let core = DialClient::new(options).unwrap();
    let (me, code) = (caller("k"), json!({"code": "1"}));
    let running = core.interpreter(&me, InterpreterAction::ExecuteCode, &code);
    let answering = async {
        let chunks = DialPort::chat(&core, &me, "gpt", None, &json!({})).await?;
        chunks.try_collect::<Vec<_>>().await
    };
    // The timeouts of these calls show that the limit is over for the other two, which began before.
    let waiting = async {
        for _ in 0..2 {
            let error = core.bucket(&me).await.unwrap_err();
            assert_eq!(error.kind, ErrorKind::Timeout);
        }
        released.add_permits(2);
    };
    let (ran, answered, ()) =
        tokio::join!(Box::pin(running), Box::pin(answering), Box::pin(waiting));
    assert_eq!(ran.unwrap(), json!({"status": "SUCCESS"}));
    assert_eq!(answered.unwrap().len(), 1);
}
