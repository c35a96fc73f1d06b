//! Tests of guardrails: each event with each verdict, and what a blocked answer, call or result must not reach.

use std::collections::VecDeque;
use std::sync::Arc;

use dray_http::fake_server::{
    self, ConnectionClosed, FakeServer, ReceivedRequest, Reply, SharedState,
};
use futures_util::FutureExt as _;
use serde_json::{Value, json};

use crate::client_tools::CountingEndpoint;
use crate::fixture::{TurnFixture, manifest, rest};
use crate::responses::{create, thinking_model};

/// The tool that judges: it keeps what it is asked, and answers with its replies in order, then with `allow`.
pub(crate) struct Judge(FakeServer<JudgeState>);

#[derive(Default)]
pub(crate) struct JudgeState {
    asked: Vec<Value>,
    replies: VecDeque<Value>,
}

async fn judge_reply(
    shared: Arc<SharedState<JudgeState>>,
    received: ReceivedRequest,
) -> Result<Reply, ConnectionClosed> {
    let asked = received.json().await?;
    let reply = {
        let mut state = shared.lock();
        state.asked.push(asked);
        state.replies.pop_front()
    };
    let reply = reply.unwrap_or_else(|| json!({"verdict": "allow"}));
    if reply == "hang" {
        std::future::pending::<()>().await;
    }
    let status = if reply == "fail" { 500 } else { 200 };
    Ok(fake_server::json_reply(status, &reply))
}

impl Judge {
    pub(crate) async fn start(replies: impl IntoIterator<Item = Value>) -> Self {
        let state = JudgeState {
            asked: Vec::new(),
            replies: replies.into_iter().collect(),
        };
        let server = FakeServer::start(state, |shared, received| {
            judge_reply(shared, received).boxed()
        });
        Self(server.await.unwrap())
    }

    /// What it was asked so far.
    pub(crate) fn asked(&self) -> Vec<Value> {
        self.0.shared().lock().asked.clone()
    }

    /// The judge's tool set, which the model does not see.
    pub(crate) fn set(&self) -> Value {
        let names = [
            "event",
            "messages",
            "new_from",
            "text",
            "tool_calls",
            "reasoning",
            "refusal",
            "tool",
            "arguments",
            "result",
        ];
        let parameter = |name: &str| {
            let kind = match name {
                "messages" | "tool_calls" => "array",
                "arguments" => "object",
                "new_from" => "integer",
                _ => "string",
            };
            let parameter = json!({"type": kind, "parameter_info": {"type": "body", "key": name}});
            (name.to_owned(), parameter)
        };
        let properties: serde_json::Map<_, _> = names.into_iter().map(parameter).collect();
        json!({"type": "rest-api", "name": "guard", "tools": [{
            "type": "restapi-tool", "hidden_from_model": true, "timeout_seconds": 30,
            "open_ai_tool": {"function": {"name": "judge", "parameters": {"properties": properties}}},
            "rest_api_method_info": {"method_url": self.0.shared().url(), "method_type": "post"},
        }]})
    }
}

pub(crate) fn block(reason: &str) -> Value {
    json!({"verdict": "block", "reason": reason})
}

/// A guardrail entry with the judge's tool.
#[expect(clippy::needless_pass_by_value, reason = "callers make it in place")]
pub(crate) fn guardrail(event: &str, more: Value) -> Value {
    let mut entry = json!({"event": event, "tool": "guard_judge"});
    let members = entry.as_object_mut().unwrap();
    members.extend(more.as_object().unwrap().clone());
    entry
}

/// An agent with the judge's tool, further sets and guardrails.
fn guarded_agent(judge: &Judge, sets: Vec<Value>, guardrails: Value) -> Value {
    let mut all = vec![judge.set()];
    all.extend(sets);
    let mut agent = manifest(Value::from(all));
    agent["guardrails"] = guardrails;
    agent
}

const SECRET_SCRIPT: &str = r#"{"rules": [{"reply": {"say": "The secret is 4711.", "piece": 3}}]}"#;
const CALL_SCRIPT: &str = r#"{"rules": [
    {"when": {"tool_result_of": "shop_a"}, "reply": {"say": "Got {result}"}},
    {"reply": {"say": "Looking.", "call": [{"name": "shop_a", "arguments": {"q": "one"}}]}}]}"#;

/// An agent with one guardrail and a tool `shop_a` that counts.
async fn shop(judge: &Judge, entry: Value) -> (TurnFixture, CountingEndpoint) {
    let endpoint = CountingEndpoint::start().await;
    let sets = vec![rest(&endpoint.url(), &["a"])];
    let agent = guarded_agent(judge, sets, Value::Array(vec![entry]));
    (TurnFixture::plain(&agent, CALL_SCRIPT).await, endpoint)
}

#[tokio::test(flavor = "multi_thread")]
async fn before_model_sees_the_prompt_and_what_is_new_in_it_and_its_tool_is_hidden() {
    let judge = Judge::start([]).await;
    let (fixture, endpoint) = shop(&judge, guardrail("before_model", json!({}))).await;
    let answer = fixture.send_text("go").await;
    assert_eq!(answer.text(), "Looking.\n\nGot {\"own\":\"one\"}");
    assert_eq!(endpoint.called(), ["one"]);
    let model_requests = judge.asked();
    assert_eq!(model_requests.len(), 2);
    let first = model_requests[0]["messages"].as_array().unwrap();
    assert_eq!(model_requests[0]["event"], "before_model");
    assert_eq!(model_requests[0]["new_from"], 0);
    assert!(
        first.contains(&json!({"role": "user", "text": "go"})),
        "{first:?}"
    );
    let second = model_requests[1]["messages"].as_array().unwrap();
    assert_eq!(model_requests[1]["new_from"], first.len());
    assert_eq!(
        second.last().unwrap(),
        &json!({"role": "tool", "text": "{\"own\":\"one\"}"})
    );
    let requests = fixture.asked();
    assert!(!requests[0]["tools"].to_string().contains("guard_judge"));
    // Neither its calls nor its stages are in the conversation.
    assert!(!requests[1].to_string().contains("before_model"));
    assert_eq!(answer.stages().len(), 1, "{:?}", answer.stages());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_blocked_prompt_does_not_reach_the_model() {
    for (message, expected) in [
        (json!(null), "This request was not answered: no poetry"),
        (json!("Not here."), "Not here."),
    ] {
        let judge = Judge::start([block("no poetry")]).await;
        let (fixture, _) = shop(
            &judge,
            guardrail("before_model", json!({"message": message})),
        )
        .await;
        let answer = fixture.send_text("go").await;
        assert_eq!(answer.text(), expected);
        assert_eq!(
            (answer.reason().as_str(), answer.done),
            ("content_filter", true)
        );
        assert_eq!(fixture.asked().len(), 0);
    }
    let judge = Judge::start([block("no poetry")]).await;
    let (fixture, _) = shop(&judge, guardrail("before_model", json!({}))).await;
    let (status, response) = create(&fixture, &json!({"input": "go"})).await;
    assert_eq!((status, &response["status"]), (200, &json!("incomplete")));
    assert_eq!(response["incomplete_details"]["reason"], "content_filter");
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_of_a_blocked_answer_is_in_any_chunk() {
    let judge = Judge::start([block("a secret")]).await;
    let agent = guarded_agent(&judge, vec![], json!([guardrail("after_model", json!({}))]));
    let fixture = TurnFixture::plain(&agent, SECRET_SCRIPT).await;
    let answer = fixture.send_text("go").await;
    assert_eq!(answer.text(), "This request was not answered: a secret");
    assert_eq!(answer.reason(), "content_filter");
    let chunks = json!(answer.chunks).to_string();
    assert!(
        !chunks.contains("4711") && !chunks.contains("The"),
        "{chunks}"
    );
    assert_eq!(
        judge.asked(),
        [json!({"event": "after_model", "text": "The secret is 4711.", "tool_calls": []})]
    );
    // An answer that is allowed arrives in its parts.
    let answer = fixture.send_text("go").await;
    assert_eq!(answer.text(), "The secret is 4711.");
    assert_eq!(answer.reason(), "stop");
}

#[tokio::test(flavor = "multi_thread")]
async fn reasoning_refusal_and_probabilities_are_judged_and_held_back_as_well() {
    let model = thinking_model().await;
    for (verdict, shows) in [(block("never"), false), (json!({"verdict": "allow"}), true)] {
        let judge = Judge::start([verdict]).await;
        let agent = guarded_agent(&judge, vec![], json!([guardrail("after_model", json!({}))]));
        let url = format!("{}/v1", model.shared().url());
        let fixture = TurnFixture::with(&agent, SECRET_SCRIPT, |config| {
            config.model_url = Some(url);
        })
        .await;
        let answer = fixture.send_text("go").await;
        let chunks = json!(answer.chunks).to_string();
        for text in ["Let me ", "think.", "\"Hi\"", "No.", "\"logprob\""] {
            assert_eq!(chunks.contains(text), shows, "{text} {chunks}");
        }
        let judge_request = &judge.asked()[0];
        assert_eq!(
            (
                &judge_request["text"],
                &judge_request["reasoning"],
                &judge_request["refusal"]
            ),
            (&json!("Hi"), &json!("Let me think."), &json!("No."))
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_replaced_answer_is_what_the_client_gets_and_later_guardrails_judge() {
    let replies = [
        json!({"verdict": "replace", "text": "The secret is ****."}),
        json!({"verdict": "allow"}),
    ];
    let judge = Judge::start(replies).await;
    let both = [
        guardrail("after_model", json!({})),
        guardrail("after_model", json!({})),
    ];
    let fixture =
        TurnFixture::plain(&guarded_agent(&judge, vec![], json!(both)), SECRET_SCRIPT).await;
    let answer = fixture.send_text("go").await;
    assert_eq!(answer.text(), "The secret is ****.");
    assert_eq!(answer.reason(), "stop");
    assert!(!json!(answer.chunks).to_string().contains("4711"));
    assert_eq!(judge.asked()[1]["text"], "The secret is ****.");
}

#[tokio::test(flavor = "multi_thread")]
async fn calls_of_a_blocked_answer_are_not_made_and_such_an_answer_cannot_be_replaced() {
    for reply in [
        block("no shopping"),
        json!({"verdict": "replace", "text": "x"}),
    ] {
        let judge = Judge::start([reply]).await;
        let (fixture, endpoint) = shop(&judge, guardrail("after_model", json!({}))).await;
        let answer = fixture.send_text("go").await;
        assert!(answer.text().starts_with("This request was not answered: "));
        assert_eq!(answer.reason(), "content_filter");
        assert_eq!(endpoint.called(), [""; 0]);
        let judge_request = &judge.asked()[0];
        assert_eq!(
            judge_request["tool_calls"],
            json!([{"name": "shop_a", "arguments": {"q": "one"}}])
        );
        assert!(!answer.state().to_string().contains("shop_a"));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refused_call_is_not_made_and_the_model_learns_why() {
    let judge = Judge::start([block("too dear")]).await;
    let (fixture, endpoint) = shop(&judge, guardrail("before_tool", json!({}))).await;
    let answer = fixture.send_text("go").await;
    let refusal = "This call was refused, and it was not made: too dear";
    assert_eq!(answer.text(), format!("Looking.\n\nGot {refusal}"));
    assert_eq!(endpoint.called(), [""; 0]);
    assert_eq!(
        judge.asked(),
        [json!({"event": "before_tool", "tool": "shop_a", "arguments": {"q": "one"}})]
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn an_approval_is_about_the_arguments_that_replace_those_of_the_model() {
    let judge = Judge::start([json!({"verdict": "replace", "arguments": {"q": "other"}})]).await;
    let endpoint = CountingEndpoint::start().await;
    let sets = vec![rest(&endpoint.url(), &["a"])];
    let entries = json!([guardrail("before_tool", json!({"tools": ["shop_*"]}))]);
    let mut agent = guarded_agent(&judge, sets, entries);
    agent["require_approval"] = json!([{"tools": ["shop_a"], "arguments": {"q": "other"}}]);
    let fixture = TurnFixture::plain(&agent, CALL_SCRIPT).await;
    let question = fixture.send_text("go").await;
    let text = question.text();
    assert!(
        text.contains(r#"{"q":"other"}"#) && !text.contains(r#""one""#),
        "{text}"
    );
    let assistant_message = json!({"role": "assistant", "content": text});
    let done = fixture
        .ask(json!([{"role": "user", "content": "go"}, assistant_message, {"role": "user", "content": "yes"}]))
        .await;
    assert_eq!(done.text(), "Got {\"own\":\"other\"}", "{done:?}");
    assert_eq!(endpoint.called(), ["other"]);
    assert_eq!(judge.asked().len(), 1, "it was judged before the question");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_result_of_an_approved_call_is_judged_in_the_request_that_makes_it() {
    let judge = Judge::start([block("secret")]).await;
    let endpoint = CountingEndpoint::start().await;
    let sets = vec![rest(&endpoint.url(), &["a"])];
    let mut agent = guarded_agent(&judge, sets, json!([guardrail("after_tool", json!({}))]));
    agent["require_approval"] = json!([{"tools": ["shop_a"]}]);
    let fixture = TurnFixture::plain(&agent, CALL_SCRIPT).await;
    let question = fixture.send_text("go").await;
    assert_eq!(judge.asked().len(), 0);
    let assistant_message = json!({"role": "assistant", "content": question.text()});
    let done = fixture
        .ask(json!([{"role": "user", "content": "go"}, assistant_message, {"role": "user", "content": "yes"}]))
        .await;
    assert_eq!(endpoint.called(), ["one"]);
    assert_eq!(
        done.text(),
        "Got The result of this call is withheld: secret"
    );
    assert!(!done.state().to_string().contains(r#"\"own"#));
}

#[tokio::test(flavor = "multi_thread")]
async fn neither_text_nor_files_of_a_withheld_result_reach_anyone() {
    for (reply, expected) in [
        (
            block("secret"),
            "The result of this call is withheld: secret",
        ),
        (
            json!({"verdict": "replace", "text": "redacted"}),
            "redacted",
        ),
    ] {
        let judge = Judge::start([reply]).await;
        let endpoint = CountingEndpoint::start().await;
        let mut set = rest(&endpoint.url(), &["a"]);
        set["response_as_attachment"] =
            json!({"enabled": true, "content_types": ["application/json"]});
        set["tools"][0]["attachment"] = json!({"propagate_types_to_choice": ["application/json"]});
        let agent = guarded_agent(
            &judge,
            vec![set],
            json!([guardrail("after_tool", json!({}))]),
        );
        let fixture = TurnFixture::plain(&agent, CALL_SCRIPT).await;
        let answer = fixture.send_text("go").await;
        assert_eq!(answer.text(), format!("Looking.\n\nGot {expected}"));
        assert_eq!(endpoint.called(), ["one"]);
        assert!(
            answer.attachments().is_empty() && answer.stages().is_empty(),
            "{answer:?}"
        );
        let requests = json!(fixture.asked()).to_string();
        for shown in [json!(answer.chunks).to_string(), requests] {
            assert!(
                !shown.contains("\\\"own") && !shown.contains("artifact/"),
                "{shown}"
            );
        }
        let judge_request = &judge.asked()[0];
        assert_eq!(
            (&judge_request["tool"], &judge_request["arguments"]),
            (&json!("shop_a"), &json!({"q": "one"}))
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_result_of_a_hook_is_judged_as_well() {
    let judge = Judge::start([block("secret")]).await;
    let endpoint = CountingEndpoint::start().await;
    let sets = vec![rest(&endpoint.url(), &["a"])];
    let mut agent = guarded_agent(&judge, sets, json!([guardrail("after_tool", json!({}))]));
    agent["hooks"] = json!([{
        "type": "tool", "event": "on_request_start", "tool": "shop_a", "arguments": {"q": "hooked"},
    }]);
    let fixture = TurnFixture::with(&agent, SECRET_SCRIPT, |config| config.preview = true).await;
    let answer = fixture.send_text("go").await;
    assert_eq!(answer.text(), "The secret is 4711.");
    assert_eq!(endpoint.called(), ["hooked"]);
    let prompt = fixture.asked()[0].to_string();
    assert!(
        prompt.contains("The result of this call is withheld: secret"),
        "{prompt}"
    );
    assert!(!prompt.contains(r#"\"own"#), "{prompt}");
}

#[tokio::test(flavor = "multi_thread")]
async fn tools_that_no_pattern_names_are_not_judged() {
    let judge = Judge::start([block("never asked")]).await;
    let entry = guardrail("before_tool", json!({"tools": ["bank_*"]}));
    let (fixture, endpoint) = shop(&judge, entry).await;
    fixture.send_text("go").await;
    assert_eq!((endpoint.called().len(), judge.asked().len()), (1, 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_guardrail_without_a_verdict_blocks_unless_it_may_fail() {
    for reply in [json!("fail"), json!({"verdict": "perhaps"}), json!("hang")] {
        for (on_failure, blocks) in [("block", true), ("allow", false)] {
            let judge = Judge::start([reply.clone()]).await;
            let entry = guardrail("after_model", json!({"on_failure": on_failure}));
            let mut agent = guarded_agent(&judge, vec![], json!([entry]));
            if reply == "hang" {
                agent["tool_sets"][0]["tools"][0]["timeout_seconds"] = json!(0.2);
            }
            let fixture = TurnFixture::plain(&agent, SECRET_SCRIPT).await;
            let answer = fixture.send_text("go").await;
            let expected = if blocks {
                "This request was not answered: a check of this agent gave no verdict"
            } else {
                "The secret is 4711."
            };
            assert_eq!(answer.text(), expected, "{reply} {on_failure}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_text_that_looks_like_a_reference_is_judged_as_it_is() {
    let judge = Judge::start([]).await;
    let entry = guardrail("before_model", json!({"on_failure": "allow"}));
    let (fixture, _) = shop(&judge, entry).await;
    fixture.send_text("file:text::no/such/file").await;
    let first = &judge.asked()[0];
    assert!(
        first.to_string().contains("file:text::no/such/file"),
        "{first}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn the_model_cannot_call_the_tool_of_a_guardrail() {
    let judge = Judge::start([]).await;
    let script = r#"{"rules": [
        {"times": 1, "reply": {"call": [{"name": "guard_judge", "arguments": {"event": "mine"}}]}},
        {"reply": {"say": "Told {result}"}}]}"#;
    let entries = json!([guardrail("before_tool", json!({}))]);
    let fixture = TurnFixture::plain(&guarded_agent(&judge, vec![], entries), script).await;
    let answer = fixture.send_text("go").await;
    assert!(
        answer
            .text()
            .contains("The tool `guard_judge` does not exist."),
        "{answer:?}"
    );
    assert_eq!(judge.asked(), [Value::Null; 0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_agent_whose_guardrail_has_no_tool_answers_nothing() {
    let judge = Judge::start([]).await;
    let mut entry = guardrail("before_model", json!({"on_failure": "allow"}));
    entry["tool"] = json!("guard_gone");
    let (fixture, _) = shop(&judge, entry.clone()).await;
    let answer = fixture.send_text("go").await;
    assert_eq!(answer.status, 400);
    assert_eq!(
        answer.error()["message"],
        "The manifest is not valid:\nguardrails.0.tool: no tool of this agent has the name 'guard_gone'"
    );
    assert_eq!(fixture.asked().len(), 0);
    entry["enabled"] = json!(false);
    let (fixture, _) = shop(&judge, entry).await;
    assert_eq!(fixture.send_text("go").await.reason(), "stop");
    // A server that cannot be reached may come back.
    let unreachable_set = json!({"type": "mcp", "name": "gone", "mcp_server_info": {
        "url": "http://127.0.0.1:9/mcp", "protocol": "streamable_http"}});
    let mut agent = guarded_agent(
        &judge,
        vec![unreachable_set],
        json!([guardrail("after_model", json!({}))]),
    );
    agent["guardrails"][0]["tool"] = json!("gone_judge");
    let fixture = TurnFixture::plain(&agent, SECRET_SCRIPT).await;
    assert_eq!(fixture.send_text("go").await.status, 503);
    assert_eq!(fixture.asked().len(), 0);
}
