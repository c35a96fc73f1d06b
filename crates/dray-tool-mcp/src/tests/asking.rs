//! Tests of servers that ask the user during a call, and of servers whose calls become tasks.

use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use dray_agent::caller::Caller;
use dray_http::fake_server::{
    self, ConnectionClosed, FakeServer, ReceivedRequest, Reply, SharedState,
};
use dray_tool::{
    AnsweredQuestion, StageWriter, Tool, ToolCall, ToolFailure, ToolOutput, ToolQuestion, Turn,
    UserAnswer, UserQuestion,
};
use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use serde_json::{Map, Value, json};
use tokio::time::Instant;

use super::support::{MemoryStorage, messages, named, options, streamable};
use crate::{McpOptions, McpToolset, QuestionPort, connect_set};

/// A server of 2026-07-28 with one tool, which asks for an account before it pays.
#[derive(Debug, Default)]
struct AskingServer {
    /// Whether the call becomes a task that asks.
    is_task: bool,
    /// Questions and state in place of the one form, for a call or a task that exceeds the limits.
    excess: Option<(Value, String)>,
    /// How often the state of the task was requested.
    polls: usize,
    /// Statuses with which the next polls are refused, the last one first.
    refused_polls: Vec<u16>,
    /// Answers that the task got.
    updates: Vec<Value>,
    cancelled: Vec<Value>,
    calls: Vec<Value>,
}

impl AskingServer {
    /// The questions of the server, and its state for them.
    fn asked(&self) -> (Value, String) {
        let usual = || (account_form(), "sealed".to_owned());
        self.excess.clone().unwrap_or_else(usual)
    }

    fn polled_task(&mut self) -> Value {
        self.polls += 1;
        match self.updates.last() {
            Some(given) => {
                let mut over = task("completed");
                over["result"] = paid(given);
                over
            }
            // The first poll is too early.
            None if self.polls > 1 => {
                let mut waiting = task("input_required");
                waiting["inputRequests"] = self.asked().0;
                waiting
            }
            None => task("working"),
        }
    }
}

/// The result of a call with these answers.
fn paid(given: &Value) -> Value {
    json!({"resultType": "complete", "content": [{"type": "text", "text": given.to_string()}]})
}

async fn asking(is_task: bool) -> FakeServer<AskingServer> {
    let answer = |shared: Arc<SharedState<AskingServer>>,
                  request: ReceivedRequest|
     -> BoxFuture<'static, Result<Reply, ConnectionClosed>> {
        answer(shared, request).boxed()
    };
    let state = AskingServer {
        is_task,
        ..AskingServer::default()
    };
    FakeServer::start(state, answer).await.unwrap()
}

fn account_form() -> Value {
    json!({"account": {
        "method": "elicitation/create",
        "params": {"mode": "form", "message": "Which account?", "requestedSchema": {
            "type": "object", "required": ["account"],
            "properties": {"account": {"type": "string"}, "note": {"type": "string", "default": "none"}},
        }},
    }})
}

pub(super) fn task(status: &str) -> Value {
    json!({
        "resultType": "complete", "taskId": "t1", "status": status, "createdAt": "2026-11-26T00:00:00Z",
        "lastUpdatedAt": "2026-11-26T00:00:00Z", "ttlMs": null, "pollIntervalMs": 100,
    })
}

async fn answer(
    shared: Arc<SharedState<AskingServer>>,
    request: ReceivedRequest,
) -> Result<Reply, ConnectionClosed> {
    let message = request.json().await?;
    let params = &message["params"];
    let mut state = shared.lock();
    if message["method"] == "tasks/get"
        && let Some(status) = state.refused_polls.pop()
    {
        return Ok(fake_server::json_reply(status, &json!({})));
    }
    let result = match message["method"].as_str().unwrap_or_default() {
        "server/discover" => json!({
            "resultType": "complete", "supportedVersions": ["2026-07-28"], "ttlMs": 0, "cacheScope": "private",
            "capabilities": {"tools": {}, "extensions": {"io.modelcontextprotocol/tasks": {}}},
        }),
        "tools/list" => json!({
            "resultType": "complete", "ttlMs": 0, "cacheScope": "private",
            "tools": [{"name": "pay", "inputSchema": {"type": "object"}}],
        }),
        "tools/call" => {
            state.calls.push(params.clone());
            let mut created = task("working");
            created["resultType"] = json!("task");
            match params.get("inputResponses") {
                _ if state.is_task => created,
                Some(given) if params["requestState"] == "sealed" => paid(given),
                Some(_) => paid(&json!("a wrong state")),
                None => {
                    let (questions, sealed) = state.asked();
                    json!({
                        "resultType": "input_required", "requestState": sealed, "inputRequests": questions,
                    })
                }
            }
        }
        "tasks/get" => state.polled_task(),
        "tasks/update" => {
            state.updates.push(params["inputResponses"].clone());
            json!({"resultType": "complete"})
        }
        "tasks/cancel" => {
            state.cancelled.push(params["taskId"].clone());
            json!({"resultType": "complete"})
        }
        _ => json!({}),
    };
    let body = json!({"jsonrpc": "2.0", "id": message["id"], "result": result});
    Ok(fake_server::json_reply(200, &body))
}

/// A user who answers every question in the same way.
#[derive(Debug)]
struct FakeUser {
    answer: UserAnswer,
    asked: Mutex<Vec<UserQuestion>>,
}

#[async_trait]
impl QuestionPort for FakeUser {
    async fn ask(&self, toolset: &str, question: &UserQuestion, _: &Caller) -> UserAnswer {
        assert_eq!(toolset, "s");
        self.asked.lock().unwrap().push(question.clone());
        self.answer.clone()
    }
}

fn values(value: &Value) -> Map<String, Value> {
    value.as_object().unwrap().clone()
}

async fn tool(server: &FakeServer<AskingServer>, options: &McpOptions) -> Arc<dyn Tool> {
    let set = streamable(&server.shared().url());
    let built = connect_set(McpToolset::Mcp(&set), &Caller::default(), options).await;
    assert_eq!(messages(&built), [""; 0]);
    named(&built, "s_pay")
}

/// A call from its beginning.
async fn call(tool: &Arc<dyn Tool>, arguments: Value) -> Result<ToolOutput, ToolFailure> {
    tool.call(tool_call(&arguments), &turn()).await
}

/// The same call with an answer of the user.
async fn resume(
    tool: &Arc<dyn Tool>,
    arguments: Value,
    answered: AnsweredQuestion,
) -> Result<ToolOutput, ToolFailure> {
    tool.resume(tool_call(&arguments), answered, &turn()).await
}

fn turn() -> Turn {
    let storage = Arc::<MemoryStorage>::default();
    Turn::new(Caller::default(), "session", Vec::new(), storage, 1 << 20)
}

fn tool_call(arguments: &Value) -> ToolCall {
    let arguments = values(arguments);
    ToolCall {
        id: "1".to_owned(),
        written: arguments.clone(),
        arguments,
        stage: StageWriter::hidden(),
        deadline: Instant::now() + std::time::Duration::from_mins(1),
    }
}

/// The question of a call.
fn question(output: &ToolOutput) -> ToolQuestion {
    output.question.clone().unwrap()
}

/// The response that the server gets for this account.
fn accepted_response(account: &str) -> Value {
    let content = json!({"account": account, "note": "none"});
    json!({"account": {"action": "accept", "content": content}})
}

#[tokio::test]
async fn a_call_that_asks_continues_with_the_answer_in_any_process() {
    for is_task in [false, true] {
        let server = asking(is_task).await;
        let output_with_question = {
            let tool = tool(&server, &options()).await;
            call(&tool, json!({"sum": 1})).await.unwrap()
        };
        let question = question(&output_with_question);
        assert!(!question.is_over);
        assert_eq!(question.questions["account"].message(), "Which account?");
        // Another process has its own tools.
        let tool = tool(&server, &options()).await;
        let answer = UserAnswer::Accepted(values(&json!({"account": "first"})));
        let output = resume(&tool, json!({"sum": 1}), question.answered(&answer))
            .await
            .unwrap();
        assert_eq!(output.content, accepted_response("first").to_string());
        assert_eq!(output.question, None);
        let state = server.shared().lock();
        let arguments: Vec<_> = state.calls.iter().map(|call| &call["arguments"]).collect();
        // A task continues without another call.
        let expected = vec![json!({"sum": 1}); if is_task { 1 } else { 2 }];
        assert_eq!(arguments, expected.iter().collect::<Vec<_>>());
        assert!(state.cancelled.is_empty());
    }
}

#[tokio::test]
async fn a_server_is_informed_that_the_user_declined_or_cancelled() {
    for is_task in [false, true] {
        for (answer, action) in [
            (UserAnswer::Declined, "decline"),
            (UserAnswer::Cancelled, "cancel"),
        ] {
            let server = asking(is_task).await;
            let tool = tool(&server, &options()).await;
            let output_with_question = call(&tool, json!({})).await.unwrap();
            let answered = question(&output_with_question).answered(&answer);
            let output = resume(&tool, json!({}), answered).await.unwrap();
            let expected = json!({"account": {"action": action}});
            assert_eq!(output.content, expected.to_string());
        }
    }
}

#[tokio::test]
async fn an_answer_is_sent_to_no_other_server() {
    let (server, other) = (asking(false).await, asking(false).await);
    let output_with_question = call(&tool(&server, &options()).await, json!({})).await;
    let answer = UserAnswer::Accepted(values(&json!({"account": "first"})));
    let answered = question(&output_with_question.unwrap()).answered(&answer);
    let tool = tool(&other, &options()).await;
    let refused = resume(&tool, json!({}), answered).await.unwrap_err();
    assert!(refused.to_string().contains("was replaced"), "{refused}");
    assert!(other.shared().lock().calls.is_empty());
}

#[tokio::test]
async fn a_port_answers_while_the_call_waits() {
    for is_task in [false, true] {
        let server = asking(is_task).await;
        let user = Arc::new(FakeUser {
            answer: UserAnswer::Accepted(values(&json!({"account": "second"}))),
            asked: Mutex::default(),
        });
        let mut options = options();
        options.questions = Some(Arc::<FakeUser>::clone(&user));
        let tool = tool(&server, &options).await;
        let output = call(&tool, json!({})).await.unwrap();
        assert_eq!(output.content, accepted_response("second").to_string());
        assert_eq!(user.asked.lock().unwrap().len(), 1);
    }
}

#[tokio::test]
async fn a_server_that_asks_too_much_is_refused_and_its_task_cancelled() {
    let form = |message: &str| {
        let mut form = account_form()["account"].clone();
        form["params"]["message"] = json!(message);
        form
    };
    let many: Map<_, _> = (0..9)
        .map(|key| (key.to_string(), form("Which?")))
        .collect();
    let long = json!({"account": form(&"x".repeat(300 << 10))});
    let sealed = || "sealed".to_owned();
    for (excess, is_task, text) in [
        ((json!(many), sealed()), false, "more questions"),
        ((json!(many), sealed()), true, "more questions"),
        ((long.clone(), sealed()), false, "too long"),
        ((long, sealed()), true, "too long"),
        ((account_form(), "x".repeat(300 << 10)), false, "too long"),
    ] {
        let server = asking(is_task).await;
        server.shared().lock().excess = Some(excess);
        let tool = tool(&server, &options()).await;
        let refused = call(&tool, json!({})).await.unwrap_err();
        assert!(refused.to_string().contains(text), "{refused}");
        if is_task {
            let cancelled = async || (server.shared().lock().cancelled == ["t1"]).then_some(());
            dray_testkit::eventually("the end of the task", cancelled).await;
        }
    }
}

#[tokio::test]
async fn a_task_whose_caller_is_gone_is_cancelled() {
    let server = asking(true).await;
    let tool = tool(&server, &options()).await;
    {
        let calling = call(&tool, json!({}));
        let polled = async || (server.shared().lock().polls > 0).then_some(());
        tokio::select! {
            biased;
            () = dray_testkit::eventually("a look at the task", polled) => {}
            outcome = calling => panic!("{outcome:?}"),
        }
    }
    let cancelled = async || (server.shared().lock().cancelled == ["t1"]).then_some(());
    dray_testkit::eventually("the end of the task", cancelled).await;
}

#[tokio::test]
async fn a_task_is_polled_again_when_its_server_fails_for_a_moment() {
    let server = asking(true).await;
    let tool = tool(&server, &options()).await;
    server.shared().lock().refused_polls = vec![503, 429];
    let output = call(&tool, json!({})).await.unwrap();
    assert_eq!(
        question(&output).questions["account"].message(),
        "Which account?"
    );
    let state = server.shared().lock();
    assert_eq!((state.calls.len(), state.refused_polls.len()), (1, 0));
    assert!(state.cancelled.is_empty());
}

#[tokio::test]
async fn a_call_that_became_a_task_is_not_made_again_when_the_task_is_lost() {
    let server = asking(true).await;
    let tool = tool(&server, &options()).await;
    server.shared().lock().refused_polls = vec![404];
    let failed = call(&tool, json!({})).await.unwrap_err();
    assert!(failed.to_string().contains("became a task"), "{failed}");
    assert_eq!(server.shared().lock().calls.len(), 1);
}

/// A program of 2025-11-25 that asks during the call.
const ASKING_PROGRAM: &str = include_str!("../../../../tests/programs/asking_mcp_server.sh");

#[tokio::test]
async fn a_call_of_2025_11_25_is_sent_again_with_the_answer() {
    let mut options = options();
    let command = crate::ProgramCommand {
        command: "/bin/sh".to_owned(),
        args: vec!["-c".to_owned(), ASKING_PROGRAM.to_owned()],
        ..crate::ProgramCommand::default()
    };
    options.stdio.insert("local".to_owned(), command);
    let set = streamable("stdio:local");
    let built = connect_set(McpToolset::Mcp(&set), &Caller::default(), &options).await;
    let tool = named(&built, "s_pay");
    let output_with_question = call(&tool, json!({})).await.unwrap();
    let question = question(&output_with_question);
    assert_eq!(question.questions["question_1"].message(), "Really?");
    // The server got `cancel`, since its call could not wait.
    assert!(question.is_over);
    assert_eq!(output_with_question.content, "not paid");
    let answer = UserAnswer::Accepted(values(&json!({"ok": true})));
    let output = resume(&tool, json!({}), question.answered(&answer)).await;
    assert_eq!(output.unwrap().content, "paid");
}

/// A program of 2025-11-25 that asks twice, and wants a page to be visited before its other tool works.
const DEMANDING_SCRIPT: &str = r#"
visits=0
while read -r line; do
  id=$(printf '%s' "$line" | sed -n 's/.*"id":\([0-9]*\).*/\1/p')
  case "$line" in
    *'"initialize"'*) result='{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"s","version":"1"}}';;
    *'"tools/list"'*) result='{"tools":[{"name":"pay","inputSchema":{"type":"object"}},{"name":"visit","inputSchema":{"type":"object"}}]}';;
    *'"tools/call"'*'"visit"'*)
      visits=$((visits + 1))
      if [ $visits = 1 ]; then
        printf '{"jsonrpc":"2.0","id":%s,"error":{"code":-32042,"message":"Sign in.","data":{"elicitations":[{"mode":"url","elicitationId":"e1","message":"Sign in.","url":"https://x.example/sign-in"}]}}}\n' "$id"
        continue
      fi
      result='{"content":[{"type":"text","text":"visited"}]}';;
    *'"tools/call"'*) called=$id
      printf '{"jsonrpc":"2.0","id":900,"method":"elicitation/create","params":{"message":"First?","requestedSchema":{"type":"object","properties":{"ok":{"type":"boolean"}},"required":["ok"]}}}\n'
      continue;;
    *'"id":900'*'"accept"'*)
      printf '{"jsonrpc":"2.0","id":901,"method":"elicitation/create","params":{"message":"Second?","requestedSchema":{"type":"object","properties":{"ok":{"type":"boolean"}},"required":["ok"]}}}\n'
      continue;;
    *'"id":901'*'"accept"'*) id=$called; result='{"content":[{"type":"text","text":"paid"}]}';;
    *'"action"'*) id=$called; result='{"content":[{"type":"text","text":"not paid"}]}';;
    *'"server/discover"'*)
      printf '{"jsonrpc":"2.0","id":%s,"error":{"code":-32601,"message":"unknown"}}\n' "$id"
      continue;;
    *) continue;;
  esac
  printf '{"jsonrpc":"2.0","id":%s,"result":%s}\n' "$id" "$result"
done
"#;

async fn start_asking_tool(name: &str) -> Arc<dyn Tool> {
    let mut options = options();
    options.conversation = Some("c".to_owned());
    let command = crate::ProgramCommand {
        command: "/bin/sh".to_owned(),
        args: vec!["-c".to_owned(), DEMANDING_SCRIPT.to_owned()],
        ..crate::ProgramCommand::default()
    };
    options.stdio.insert("local".to_owned(), command);
    let set = streamable("stdio:local");
    let built = connect_set(McpToolset::Mcp(&set), &Caller::default(), &options).await;
    named(&built, name)
}

#[tokio::test]
async fn a_second_question_of_2025_11_25_keeps_the_answer_to_the_first() {
    let tool = start_asking_tool("s_pay").await;
    let yes = UserAnswer::Accepted(values(&json!({"ok": true})));
    let first = question(&call(&tool, json!({})).await.unwrap());
    assert_eq!(first.questions["question_1"].message(), "First?");
    let second = resume(&tool, json!({}), first.answered(&yes)).await;
    let second = question(&second.unwrap());
    assert_eq!(second.questions["question_1"].message(), "Second?");
    assert_eq!(second.questions.len(), 1);
    let paid = resume(&tool, json!({}), second.answered(&yes)).await;
    assert_eq!(paid.unwrap().content, "paid");
}

#[tokio::test]
async fn a_call_that_needs_a_page_is_sent_again_when_the_user_agreed_to_visit_it() {
    let tool = start_asking_tool("s_visit").await;
    let page_question = question(&call(&tool, json!({})).await.unwrap());
    let UserQuestion::Url { url, .. } = &page_question.questions["question_1"] else {
        panic!("{page_question:?}");
    };
    assert_eq!(url, "https://x.example/sign-in");
    let declined = resume(
        &tool,
        json!({}),
        page_question.answered(&UserAnswer::Declined),
    )
    .await;
    assert!(
        declined
            .unwrap_err()
            .to_string()
            .contains("not called again")
    );
    let agreed = UserAnswer::Accepted(Map::new());
    let visited = resume(&tool, json!({}), page_question.answered(&agreed)).await;
    assert_eq!(visited.unwrap().content, "visited");
}
