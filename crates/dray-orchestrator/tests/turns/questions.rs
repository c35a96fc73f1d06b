//! Tests of questions that MCP servers ask the user during a call: as text, as calls of the client, in `/v1/responses`,
//! over restarts and replicas; and of every answer that must not count.

use dray_orchestrator::Config;
use dray_types::{Period, Secret};
use serde_json::{Value, json};

use crate::bank::{ASKING_PROGRAM, Bank};
use crate::client_tools::{CountingEndpoint, kept, tool_result, user};
use crate::fixture::{ChatResult, TurnFixture, manifest, rest};
use crate::responses::{create, output_text};

/// The model pays and calls the shop in one round; `both` pays and signs.
const BANK_SCRIPT: &str = r#"{"rules": [
    {"when": {"last_user_contains": "what"}, "reply": {"say": "Something else."}},
    {"when": {"tool_result_of": "bank_sign"}, "reply": {"say": "Signed: {result}."}},
    {"when": {"tool_result_of": "bank_nag"}, "reply": {"say": "Nagged: {result}."}},
    {"when": {"tool_result_of": "bank_insist"}, "reply": {"say": "Insisted: {result}"}},
    {"when": {"tool_result_of": "bank_pay"}, "reply": {"say": "Got {result}."}},
    {"when": {"tool_result_of": "shop_a"}, "reply": {"say": "Shopped: {result}."}},
    {"when": {"last_user_contains": "both"}, "reply": {"call": [
        {"name": "bank_pay", "arguments": {"sum": 1}}, {"name": "bank_sign", "arguments": {}}]}},
    {"when": {"last_user_contains": "insist"}, "reply": {"call": [{"name": "bank_insist", "arguments": {}}]}},
    {"when": {"last_user_contains": "nag"}, "reply": {"call": [{"name": "bank_nag", "arguments": {}}]}},
    {"reply": {"say": "Let me pay.", "call": [
        {"name": "shop_a", "arguments": {"q": "free"}}, {"name": "bank_pay", "arguments": {"sum": 1}}]}}]}"#;

struct Setup {
    bank: Bank,
    shop: CountingEndpoint,
    fixture: TurnFixture,
}

async fn setup(change: impl FnOnce(&mut Config)) -> Setup {
    let (bank, shop) = (Bank::start().await, CountingEndpoint::start().await);
    let agent = manifest(json!([bank.set(), rest(&shop.url(), &["a"])]));
    let fixture = TurnFixture::with(&agent, BANK_SCRIPT, change).await;
    Setup {
        bank,
        shop,
        fixture,
    }
}

/// The messages of a conversation in which questions in text are answered. Clients of `OpenAI`'s API keep the text
/// alone.
fn history(first: &str, rounds: &[(&ChatResult, &str)]) -> Value {
    let mut messages = vec![user(first)];
    for (question, answer) in rounds {
        messages.push(json!({"role": "assistant", "content": question.text()}));
        messages.push(user(answer));
    }
    json!(messages)
}

fn code(seen: &ChatResult) -> (u16, String) {
    let code = seen.error()["code"].as_str().unwrap_or_default().to_owned();
    (seen.status, code)
}

#[tokio::test(flavor = "multi_thread")]
async fn the_next_message_answers_and_the_call_continues_once_at_another_replica() {
    let Setup {
        bank,
        shop,
        mut fixture,
    } = setup(|_| {}).await;
    let question = fixture.send_text("pay").await;
    assert_eq!((question.reason().as_str(), question.done), ("stop", true));
    let text = question.text();
    assert!(text.starts_with("Let me pay."), "{text}");
    assert!(
        text.contains("`bank_pay` of `bank`") && text.contains("> Which account?"),
        "{text}"
    );
    // The client must not get the state of the server.
    assert!(!format!("{:?}", question.chunks).contains("sealed"));
    let messages = history("pay", &[(&question, " first ")]);
    fixture.url = fixture.start_replica().await;
    let done = fixture.ask(messages.clone()).await;
    assert_eq!(done.text(), "Got paid from first.", "{done:?}");
    assert_eq!(bank.calls(), ["pay begin", "pay accept"]);
    // No call of the same round was made twice.
    assert_eq!(shop.called(), ["free"]);
    let model_request = fixture.asked().pop().unwrap();
    let roles: Vec<_> = model_request["messages"]
        .as_array()
        .unwrap()
        .iter()
        .map(|message| message["role"].clone())
        .collect();
    assert_eq!(
        roles[roles.len() - 3..],
        ["assistant", "tool", "tool"],
        "{roles:?}"
    );
    assert!(!model_request.to_string().contains("apr_"));
    let repeated = fixture.ask(messages.clone()).await;
    assert_eq!(repeated.text(), done.text(), "{repeated:?}");
    assert_eq!(bank.calls(), ["pay begin", "pay accept"]);
    // The conversation continues with the result, from the text alone.
    let mut later = messages.as_array().unwrap().clone();
    later.push(json!({"role": "assistant", "content": done.text()}));
    later.push(user("what now"));
    assert_eq!(fixture.ask(json!(later)).await.text(), "Something else.");
    let contents = fixture.asked().pop().unwrap()["messages"].to_string();
    assert!(contents.contains("paid from first"), "{contents}");
    assert_eq!(bank.calls().len(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn declining_and_cancelling_reach_the_server() {
    let Setup { bank, fixture, .. } = setup(|_| {}).await;
    for (answer, text) in [
        ("decline", "Got decline null."),
        ("cancel", "Got cancel null."),
    ] {
        let question = fixture.send_text("pay").await;
        let done = fixture.ask(history("pay", &[(&question, answer)])).await;
        assert_eq!(done.text(), text);
        // Such an answer may be repeated.
        let repeated = fixture.ask(history("pay", &[(&question, answer)])).await;
        assert_eq!(repeated.text(), text);
    }
    // A message that is not an answer cancels the question, and is answered itself.
    let question = fixture.send_text("both").await;
    let signing = fixture.ask(history("both", &[(&question, "first")])).await;
    let other = fixture
        .ask(history(
            "both",
            &[(&question, "first"), (&signing, "what does it cost?")],
        ))
        .await;
    assert_eq!(other.text(), "Something else.");
    let expected = [
        "pay begin",
        "pay decline",
        "pay begin",
        "pay cancel",
        "pay begin",
        "sign begin",
        "pay accept",
        "sign cancel",
    ];
    let mut calls = bank.calls();
    // The two calls of one round run concurrently.
    calls[4..6].sort();
    assert_eq!(calls, expected);
}

#[tokio::test(flavor = "multi_thread")]
async fn two_questions_of_a_round_come_one_after_the_other_even_after_a_restart() {
    let Setup {
        bank, mut fixture, ..
    } = setup(|_| {}).await;
    let first = fixture.send_text("both").await;
    assert!(first.text().contains("> Which account?"), "{first:?}");
    let second = fixture.ask(history("both", &[(&first, "first")])).await;
    assert!(second.text().contains("> Sign it?"), "{second:?}");
    let model_calls = fixture.asked().len();
    fixture.url = fixture.start_replica().await;
    let done = fixture
        .ask(history("both", &[(&first, "first"), (&second, "yes")]))
        .await;
    assert_eq!(done.text(), "Signed: accept {\"ok\":true}.", "{done:?}");
    // The model was not called in between, and sees one round with both results.
    assert_eq!(fixture.asked().len(), model_calls + 1);
    let model_request = fixture.asked().pop().unwrap()["messages"]
        .as_array()
        .unwrap()
        .clone();
    let with_calls = model_request
        .iter()
        .filter(|message| message["tool_calls"].to_string().contains("bank_"))
        .count();
    assert_eq!(with_calls, 1, "{model_request:?}");
    assert!(json!(model_request).to_string().contains("paid from first"));
    let mut calls = bank.calls();
    calls[..2].sort();
    assert_eq!(
        calls,
        ["pay begin", "sign begin", "pay accept", "sign accept"]
    );
    // Answers to the first question do not count a second time.
    let repeated = fixture.ask(history("both", &[(&first, "first")])).await;
    assert_eq!(code(&repeated), (400, "approval_used".to_owned()));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_asks_without_end_is_cancelled() {
    let Setup { bank, fixture, .. } = setup(|_| {}).await;
    let mut rounds = vec![fixture.send_text("nag").await];
    let done = loop {
        let pairs: Vec<_> = rounds.iter().map(|round| (round, "yes")).collect();
        let next = fixture.ask(history("nag", &pairs)).await;
        if !next.text().contains("> More?") {
            break next;
        }
        rounds.push(next);
    };
    assert_eq!(done.text(), "Nagged: cancel null.", "{done:?}");
    assert_eq!(rounds.len(), 10);
    assert_eq!(bank.calls().last().unwrap(), "nag cancel");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_whose_server_asks_again_after_cancel_is_reported_once_and_as_failed() {
    let Setup { bank, fixture, .. } = setup(|_| {}).await;
    let (_, first) = create(&fixture, &json!({"input": "insist"})).await;
    let next = json!({"input": "cancel", "previous_response_id": first["id"]});
    let (status, done) = create(&fixture, &next).await;
    assert_eq!(status, 200, "{done}");
    assert_eq!(
        output_text(&done),
        "Insisted: The tool asks the user, who cannot be asked here. It did not continue."
    );
    let output = done["output"].as_array().unwrap();
    let calls: Vec<_> = output
        .iter()
        .filter(|item| item["type"] == "mcp_call")
        .map(|item| (&item["name"], &item["status"]))
        .collect();
    assert_eq!(calls, [(&json!("bank_insist"), &json!("failed"))]);
    assert_eq!(
        bank.calls(),
        ["insist begin", "insist cancel", "insist cancel"]
    );
}

fn input_tool() -> Value {
    json!({"type": "function", "function": {"name": "request_input", "parameters": {"type": "object"}}})
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_declares_request_input_gets_all_questions_as_calls() {
    let Setup { bank, fixture, .. } = setup(|_| {}).await;
    let tools = json!([input_tool()]);
    let chat = |messages: Value| fixture.chat(json!({"messages": messages, "tools": tools}));
    let question = chat(json!([user("both")])).await;
    assert_eq!(question.reason(), "tool_calls");
    let calls = question.calls();
    assert_eq!(calls.len(), 2);
    assert!(
        !fixture.asked()[0]["tools"]
            .to_string()
            .contains("request_input")
    );
    let shown: Value =
        serde_json::from_str(calls[0]["function"]["arguments"].as_str().unwrap()).unwrap();
    assert_eq!(
        (&shown["source"], &shown["tool"]),
        (&json!("bank"), &json!("bank_pay"))
    );
    assert_eq!(
        shown["questions"]["q"]["schema"]["required"],
        json!(["account"])
    );
    let answer = |first: &Value, second: &Value, third: &Value| {
        let mut said = kept(&question);
        said["tool_calls"][0] = first.clone();
        chat(json!([
            user("both"),
            said,
            tool_result(&calls[0], &second.to_string()),
            tool_result(&calls[1], &third.to_string())
        ]))
    };
    let (account, signs) = (
        json!({"action": "accept", "content": {"account": "first"}}),
        json!({"action": "decline"}),
    );
    // A text that is not an answer, and a changed question, have no effect; the questions still wait.
    for wrong in [
        json!("first"),
        json!({"action": "accept"}),
        json!({"action": "accept", "content": {"iban": "x"}}),
    ] {
        let response = answer(&calls[0], &wrong, &signs).await;
        assert_eq!(
            code(&response),
            (400, "invalid_answer".to_owned()),
            "{wrong}"
        );
    }
    let mut changed = shown.clone();
    changed["questions"]["q"]["message"] = json!("Which one?");
    let mut echo = calls[0].clone();
    echo["function"]["arguments"] = json!(changed.to_string());
    let response = answer(&echo, &account, &signs).await;
    assert_eq!(code(&response), (400, "approval_mismatch".to_owned()));
    assert_eq!(bank.calls().len(), 2);
    let done = answer(&calls[0], &account, &signs).await;
    assert_eq!(done.text(), "Signed: decline null.", "{done:?}");
    let repeated = answer(&calls[0], &account, &signs).await;
    assert_eq!(repeated.text(), done.text(), "{repeated:?}");
    assert_eq!(bank.calls().len(), 4);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_openai_package_answers_what_a_server_asks() {
    let Setup { bank, fixture, .. } = setup(|_| {}).await;
    let arguments = [fixture.url.as_str()];
    let report = dray_testkit::python::run_script("question_client.py", "openai", &arguments).await;
    let done = "Signed: decline null.";
    assert_eq!(
        report,
        json!({
            "answers": {
                "names": ["request_input", "request_input"], "finish": "tool_calls", "text": done, "again": "accepted",
                "asks": [["bank", "bank_pay", "form"], ["bank", "bank_sign", "form"]],
            },
            "streams": done,
            "refused": ["invalid_answer", "Got paid from first."],
            "responds": [true, "Got paid from first."],
        })
    );
    let calls = bank.calls();
    let paid = calls.iter().filter(|call| *call == "pay accept").count();
    assert_eq!(
        (paid, calls.len()),
        (4, 12),
        "once for each answer: {calls:?}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn calls_of_the_client_come_before_a_question_in_text() {
    let bank = Bank::start().await;
    let script = r#"{"rules": [
        {"when": {"tool_result_of": "bank_pay"}, "reply": {"say": "Got {result}."}},
        {"when": {"tool_result_of": "theirs"}, "reply": {"say": "Too early."}},
        {"reply": {"call": [{"name": "bank_pay", "arguments": {}}, {"name": "theirs", "arguments": {}}]}}]}"#;
    let fixture = TurnFixture::plain(&manifest(json!([bank.set()])), script).await;
    let tools = json!([{"type": "function", "function": {"name": "theirs", "parameters": {"type": "object"}}}]);
    let chat = |messages: &Value| fixture.chat(json!({"messages": messages, "tools": tools}));
    let first = chat(&json!([user("go")])).await;
    let call = first.calls().pop().unwrap();
    assert_eq!((first.text().as_str(), first.calls().len()), ("", 1));
    let mut messages = vec![
        user("go"),
        kept(&first),
        tool_result(&call, "of the client"),
    ];
    let question = chat(&json!(messages)).await;
    assert!(question.text().contains("> Which account?"), "{question:?}");
    messages.extend([
        json!({"role": "assistant", "content": question.text()}),
        user("first"),
    ]);
    let done = chat(&json!(messages)).await;
    assert_eq!(done.text(), "Got paid from first.", "{done:?}");
    let model_request = fixture.asked().pop().unwrap().to_string();
    assert_eq!(
        model_request.matches("of the client").count(),
        1,
        "{model_request}"
    );
    assert_eq!(fixture.asked().len(), 2);
    assert_eq!(bank.calls(), ["pay begin", "pay accept"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn answers_that_are_late_or_of_another_caller_are_refused_and_concurrent_ones_count_once() {
    let keys = |config: &mut Config| {
        config.clients = [("one", "k-1"), ("two", "k-2")]
            .map(|(name, key)| (name.to_owned(), Secret::new(key)))
            .into();
    };
    let Setup { bank, fixture, .. } = setup(keys).await;
    let ask = |key: &'static str, messages: Value| {
        let body = json!({"model": "agent", "messages": messages, "stream": true});
        let url = format!("{}/v1/chat/completions", fixture.url);
        let request = fixture
            .client
            .post(&url)
            .authorization("Bearer", &Secret::new(key));
        fixture.send(request.json(&body))
    };
    let question = ask("k-1", json!([user("pay")])).await;
    let other = ask("k-2", history("pay", &[(&question, "decline")])).await;
    assert_eq!(code(&other), (400, "approval_expired".to_owned()));
    // A text that is not clearly an answer is a message to the other caller's agent, and does not reach a server.
    ask("k-2", history("pay", &[(&question, "what")])).await;
    assert_eq!(bank.calls(), ["pay begin"]);
    let both = [(); 2].map(|()| ask("k-1", history("pay", &[(&question, "first")])));
    let [one, other] = both;
    let (one, other) = tokio::join!(one, other);
    let (done, refused): (Vec<_>, Vec<_>) = [&one, &other]
        .into_iter()
        .partition(|seen| seen.text() == "Got paid from first.");
    assert!(!done.is_empty(), "{one:?} {other:?}");
    for seen in refused {
        assert_eq!(seen.error()["code"], "approval_used", "{seen:?}");
    }
    assert_eq!(bank.calls(), ["pay begin", "pay accept"]);
    let late = setup(|config| config.approval_timeout = Period::millis(1)).await;
    let question = late.fixture.send_text("pay").await;
    // A whole turn takes longer than the timeout of the question.
    late.fixture.send_text("what").await;
    let seen = late
        .fixture
        .ask(history("pay", &[(&question, "first")]))
        .await;
    assert_eq!(code(&seen), (400, "approval_expired".to_owned()));
    assert_eq!(late.bank.calls(), ["pay begin"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn responses_ask_in_their_text_or_with_function_calls() {
    let Setup { bank, fixture, .. } = setup(|_| {}).await;
    let (status, first) = create(&fixture, &json!({"input": "pay"})).await;
    assert_eq!((status, &first["status"]), (200, &json!("completed")));
    let next = json!({"input": "first", "previous_response_id": first["id"]});
    let (status, done) = create(&fixture, &next).await;
    assert_eq!(status, 200, "{done}");
    assert_eq!(output_text(&done), "Got paid from first.");
    let (status, repeated) = create(&fixture, &next).await;
    assert_eq!(
        (status, output_text(&repeated)),
        (200, "Got paid from first.")
    );
    let tool = json!({"type": "function", "name": "request_input", "parameters": {"type": "object"}, "strict": false});
    let (_, first) = create(&fixture, &json!({"input": "pay", "tools": [tool]})).await;
    let call = first["output"].as_array().unwrap().last().unwrap();
    assert_eq!(
        (&call["type"], &call["name"]),
        (&json!("function_call"), &json!("request_input"))
    );
    let answer = json!({"action": "accept", "content": {"account": "second"}}).to_string();
    let output =
        json!({"type": "function_call_output", "call_id": call["call_id"], "output": answer});
    let next = json!({"input": [output], "previous_response_id": first["id"], "tools": [tool]});
    let (status, done) = create(&fixture, &next).await;
    assert_eq!(status, 200, "{done}");
    assert_eq!(output_text(&done), "Got paid from second.");
    assert_eq!(
        bank.calls(),
        ["pay begin", "pay accept", "pay begin", "pay accept"]
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn an_approved_call_that_asks_waits_again_and_a_hook_is_cancelled() {
    let bank = Bank::start().await;
    let mut agent = manifest(json!([bank.set()]));
    agent["require_approval"] = json!([{"tools": ["bank_pay"]}]);
    agent["hooks"] = json!([{"type": "tool", "event": "on_request_start", "tool": "bank_sign"}]);
    let script = r#"{"rules": [
        {"when": {"tool_result_of": "bank_pay"}, "reply": {"say": "Got {result}."}},
        {"reply": {"call": [{"name": "bank_pay", "arguments": {"sum": 1}}]}}]}"#;
    let fixture = TurnFixture::with(&agent, script, |config| config.preview = true).await;
    let approval = fixture.send_text("pay").await;
    assert_eq!(bank.calls(), ["sign begin", "sign cancel"]);
    assert!(
        approval.text().contains("approval to call `bank_pay`"),
        "{approval:?}"
    );
    let question = fixture.ask(history("pay", &[(&approval, "yes")])).await;
    assert!(question.text().contains("> Which account?"), "{question:?}");
    let done = fixture
        .ask(history("pay", &[(&approval, "yes"), (&question, "first")]))
        .await;
    assert_eq!(done.text(), "Got paid from first.", "{done:?}");
    assert_eq!(bank.calls()[2..], ["pay begin", "pay accept"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_program_of_2025_11_25_gets_every_answer() {
    let set = json!({"type": "mcp", "name": "bank", "mcp_server_info": {"url": "stdio:bank", "protocol": "stdio"}});
    let script = r#"{"rules": [
        {"when": {"tool_result_of": "bank_pay"}, "reply": {"say": "Got {result}."}},
        {"reply": {"call": [{"name": "bank_pay", "arguments": {}}]}}]}"#;
    let fixture = TurnFixture::with(&manifest(json!([set])), script, |config| {
        let program = json!({"command": "/bin/sh", "args": ["-c", ASKING_PROGRAM]});
        config.mcp_servers = serde_json::from_value(json!({"bank": program})).unwrap();
    })
    .await;
    for (answer, text) in [
        ("yes", "Got paid."),
        ("decline", "Got declined."),
        ("cancel", "Got not paid."),
    ] {
        let question = fixture.send_text("pay").await;
        assert!(question.text().contains("> Really?"), "{question:?}");
        let done = fixture.ask(history("pay", &[(&question, answer)])).await;
        assert_eq!(done.text(), text);
    }
}
