//! A token that expires while a call runs.

use super::super::asking::task;
use super::*;

/// A server whose calls become tasks. A task ends when its state is requested with a newer token than that of the call.
async fn task_server() -> FakeServer<ProtectedServer> {
    let answer = |shared: Arc<SharedState<ProtectedServer>>,
                  request: ReceivedRequest|
     -> BoxFuture<'static, Result<Reply, ConnectionClosed>> {
        answer_with_task(shared, request).boxed()
    };
    let state = ProtectedServer {
        // Tokens expire immediately.
        refresh: Some(String::new()),
        ..ProtectedServer::default()
    };
    FakeServer::start(state, answer).await.unwrap()
}

async fn answer_with_task(
    shared: Arc<SharedState<ProtectedServer>>,
    request: ReceivedRequest,
) -> Result<Reply, ConnectionClosed> {
    let token = request.header("authorization").unwrap_or_default();
    let number = token.strip_prefix("Bearer token-").unwrap_or_default();
    let number: usize = number.parse().unwrap_or_default();
    let result = match request.header("mcp-method") {
        Some("tools/call") => {
            shared.lock().revoked = number;
            let mut created = task("working");
            created["resultType"] = json!("task");
            created
        }
        Some("tasks/get") if number <= shared.lock().revoked => task("working"),
        Some("tasks/get") => {
            let mut completed = task("completed");
            completed["result"] = json!({"content": [{"type": "text", "text": "done"}]});
            completed
        }
        _ => return answer(shared, request).await,
    };
    let message = request.json().await?;
    let body = json!({"jsonrpc": "2.0", "id": message["id"], "result": result});
    Ok(fake_server::json_reply(200, &body))
}

#[tokio::test]
async fn the_token_is_renewed_while_the_task_of_a_call_runs() {
    let server = task_server().await;
    let user = user(Ok(()));
    let built = connected(&server, &json!({"client_id": "c"}), &with_user(&user)).await;
    assert_eq!(messages(&built), [""; 0]);
    let output = call(&named(&built, "s_echo"), json!({})).await.unwrap();
    assert_eq!(output.content, "done");
    assert_eq!(user.asked.load(Ordering::Relaxed), 1);
}
