//! Questions of MCP servers during calls, in chats: from the question of a server to buttons in Telegram, and back to
//! the call.

use dray_bus::EventFilter;
use dray_platform_telegram::fake_server::StoredMessage;
use dray_proto::v1::{ApprovalAudit, ApprovalChoice};
use dray_testkit::eventually;
use futures_util::FutureExt as _;
use futures_util::future::join;
use serde_json::{Value, json};

use super::approvals::{APPROVER_ID, OPS_CHAT, OpsFixture, STRANGER_ID, messages_after};
use super::asking_server::{AskingServer, setup};
use super::fixture::user;

/// A program of 2025-11-25 that asks during the call, and waits for the answer.
const ASKING_PROGRAM: &str = r#"
while read -r line; do
  id=$(printf '%s' "$line" | sed -n 's/.*"id":\([0-9]*\).*/\1/p')
  case "$line" in
    *'"initialize"'*) result='{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"s","version":"1"}}';;
    *'"tools/list"'*) result='{"tools":[{"name":"pay","inputSchema":{"type":"object"}}]}';;
    *'"tools/call"'*) called=$id
      printf '{"jsonrpc":"2.0","id":900,"method":"elicitation/create","params":{"message":"Really?","requestedSchema":{"type":"object","properties":{"ok":{"type":"boolean"}},"required":["ok"]}}}\n'
      continue;;
    *'"action":"accept"'*) id=$called; result='{"content":[{"type":"text","text":"paid"}]}';;
    *'"action":"decline"'*) id=$called; result='{"content":[{"type":"text","text":"declined"}]}';;
    *'"action"'*) id=$called; result='{"content":[{"type":"text","text":"not paid"}]}';;
    *'"server/discover"'*)
      printf '{"jsonrpc":"2.0","id":%s,"error":{"code":-32601,"message":"unknown"}}\n' "$id"
      continue;;
    *) continue;;
  esac
  printf '{"jsonrpc":"2.0","id":%s,"result":%s}\n' "$id" "$result"
done
"#;

/// The decisions in the audit stream.
async fn audits(ops: &OpsFixture) -> Vec<ApprovalAudit> {
    let filter = EventFilter::new("dray.audit.approval.v1.decided.>".to_owned()).from_start();
    let mut events = ops.fixture.bus().events(filter).await.unwrap();
    let mut audits = Vec::new();
    while let Some(Ok(event)) = events.next().now_or_never() {
        audits.push(event.decode().unwrap());
    }
    audits
}

/// Compares what the chat shows of a question with two choices.
fn check_question(question: &StoredMessage) {
    assert!(
        question
            .text
            .contains("bank_pay of bank asks during a call of the agent of local"),
        "{}",
        question.text
    );
    // Characters that hide text or change its direction are left out.
    let detail = "> Which account?\n\n- first\n- second\n- Decline to answer\n- Cancel the call\n\nArguments: {\"sum\":1}";
    assert_eq!(question.code, detail);
    let labels: Vec<_> = question
        .buttons
        .iter()
        .map(|button| button.text.as_str())
        .collect();
    assert_eq!(
        labels,
        ["first", "second", "Decline to answer", "Cancel the call"]
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_press_of_a_named_person_answers_a_server_and_every_other_press_changes_nothing() {
    let bank = AskingServer::start().await;
    let ops = bank.start_ops(|setup| setup).await;
    let answering = async {
        let question = ops.question().await;
        check_question(&question);
        let press_reply = ops.press(&question, STRANGER_ID, "first").await;
        assert!(
            press_reply.contains("not one of the people"),
            "{press_reply}"
        );
        // The buttons are forged: they name another question, an option that it does not have, or an approval.
        let data = question.buttons[0].data.strip_suffix(":1").unwrap();
        for (forged, notice) in [
            ("dray:apr_0:1".to_owned(), "does not exist"),
            (format!("{data}:5"), "does not answer"),
            (format!("{data}:y"), "does not answer"),
        ] {
            let press_reply = ops
                .press_data(question.message_id, APPROVER_ID, &forged)
                .await;
            assert!(press_reply.contains(notice), "{press_reply}");
        }
        assert_eq!(ops.newest_message().as_ref(), Some(&question));
        assert_eq!(bank.calls(), ["pay begin"]);
        let press_reply = ops.press(&question, APPROVER_ID, "second").await;
        assert_eq!(press_reply, "Your answer is recorded.");
        question
    };
    let (answer, question) = join(ops.ask(json!([user("pay")])), answering).await;
    let text = r#"Got accept {"account":"second"}."#;
    assert_eq!(answer.text(), text, "{answer:?}");
    assert_eq!(bank.calls(), ["pay begin", "pay accept"]);
    let ended = ops.shown_with("\n\nAnswered by Ada L (77), 20").await;
    assert!(ended.text.ends_with(": second.") && ended.buttons.is_empty());
    let press_reply = ops.press(&question, APPROVER_ID, "first").await;
    assert!(press_reply.contains("decided before"), "{press_reply}");
    assert_eq!(bank.calls().len(), 2);
    let audits = audits(&ops).await;
    let [audit] = audits.as_slice() else {
        panic!("{audits:?}");
    };
    assert_eq!(audit.choice(), ApprovalChoice::Approved);
    assert_eq!(
        (
            audit.tool.as_str(),
            audit.decided_by.as_str(),
            audit.option.as_str()
        ),
        ("bank_pay", "ops:77", "second")
    );
    ops.fixture.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn declining_cancelling_and_silence_reach_the_server() {
    let bank = AskingServer::start().await;
    let ops = bank.start_ops(|setup| setup).await;
    let mut earlier = None;
    for (label, text, outcome) in [
        (
            "Decline to answer",
            "Got decline null.",
            "Declined by Ada L (77), 20",
        ),
        (
            "Cancel the call",
            "Got cancel null.",
            "Cancelled by Ada L (77), 20",
        ),
    ] {
        let deciding = async {
            let question = match &earlier {
                None => ops.question().await,
                Some(earlier) => ops.next_question(earlier).await,
            };
            ops.press(&question, APPROVER_ID, label).await;
            question
        };
        let (answer, question) = join(ops.ask(json!([user("pay")])), deciding).await;
        assert_eq!(answer.text(), text, "{answer:?}");
        ops.shown_with(outcome).await;
        earlier = Some(question);
    }
    ops.fixture.stop().await;
    let ops = bank.start_ops(|setup| setup.set("orchestrator.approval_timeout", "5s"));
    let ops = ops.await;
    let (answer, question) = join(ops.ask(json!([user("pay")])), ops.question()).await;
    assert_eq!(answer.text(), "Got cancel null.", "{answer:?}");
    let ended = ops.shown_with("Expired, 20").await;
    assert!(
        ended.text.ends_with("the tool gets no answer."),
        "{}",
        ended.text
    );
    let press_reply = ops.press(&question, APPROVER_ID, "first").await;
    assert!(press_reply.contains("has expired"), "{press_reply}");
    let answers: Vec<_> = bank
        .calls()
        .into_iter()
        .filter(|call| call != "pay begin")
        .collect();
    assert_eq!(answers, ["pay decline", "pay cancel", "pay cancel"]);
    ops.fixture.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_first_answer_of_chat_or_client_holds() {
    let bank = AskingServer::start().await;
    let ops = bank
        .start_ops(|setup| setup.set("orchestrator.approval_wait", "0s"))
        .await;
    let paused = ops.ask(json!([user("pay")])).await;
    assert!(
        paused
            .text()
            .contains("The people of the chat `ops` are asked too"),
        "{paused:?}"
    );
    let question = ops.question().await;
    let waiting = ops.ask(messages_after(&paused, "continue")).await;
    assert!(
        waiting.text().contains("chat `ops` are asked too"),
        "{waiting:?}"
    );
    assert_eq!(
        ops.fixture.telegram.visible_messages(OPS_CHAT).len(),
        1,
        "asked once"
    );
    ops.press(&question, APPROVER_ID, "second").await;
    // The answer of the client comes after that of the chat, and changes nothing.
    let done = ops.ask(messages_after(&waiting, "first")).await;
    assert_eq!(
        done.text(),
        r#"Got accept {"account":"second"}."#,
        "{done:?}"
    );
    let repeated = ops.ask(messages_after(&waiting, "continue")).await;
    assert_eq!(repeated.text(), done.text(), "{repeated:?}");
    assert_eq!(bank.calls(), ["pay begin", "pay accept"]);
    // This time the client answers first.
    let paused = ops.ask(json!([user("pay")])).await;
    let question = ops.next_question(&question).await;
    let done = ops.ask(messages_after(&paused, "first")).await;
    assert_eq!(
        done.text(),
        r#"Got accept {"account":"first"}."#,
        "{done:?}"
    );
    let press_reply = ops.press(&question, APPROVER_ID, "second").await;
    assert!(press_reply.contains("decided before"), "{press_reply}");
    ops.shown_with("Answered by the caller, 20").await;
    assert_eq!(bank.calls().len(), 4);
    // A message that is not an answer cancels the question, and is answered itself.
    let paused = ops.ask(json!([user("pay")])).await;
    let question = ops.next_question(&question).await;
    let other = ops.ask(messages_after(&paused, "the weather?")).await;
    assert_eq!(other.text(), "It rains.", "{other:?}");
    let press_reply = ops.press(&question, APPROVER_ID, "second").await;
    assert!(press_reply.contains("decided before"), "{press_reply}");
    ops.shown_with("Cancelled by the caller, 20").await;
    assert_eq!(bank.calls()[4..], ["pay begin", "pay cancel"]);
    ops.fixture.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_response_has_one_item_of_a_call_that_a_chat_answers() {
    let bank = AskingServer::start().await;
    let ops = bank.start_ops(|setup| setup).await;
    let body = json!({"model": "agent", "input": "pay"});
    let response = async {
        let response = ops.fixture.post("/v1/responses").json(&body);
        let response = response.send(&|_| ()).await.unwrap();
        response.json::<Value>().await.unwrap()
    };
    let answering = async {
        let question = ops.question().await;
        ops.press(&question, APPROVER_ID, "first").await;
    };
    let (response, ()) = join(response, answering).await;
    let items = response["output"].as_array().unwrap().iter();
    let calls: Vec<_> = items.filter(|item| item["type"] == "mcp_call").collect();
    let [call] = calls.as_slice() else {
        panic!("{response}");
    };
    assert_eq!(call["status"], "completed");
    assert_eq!(call["output"], r#"accept {"account":"first"}"#);
    ops.fixture.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_asks_again_is_answered_again_in_the_same_request() {
    let bank = AskingServer::start().await;
    let ops = bank.start_ops(|setup| setup).await;
    let answering = async {
        let first = ops.question().await;
        ops.press(&first, APPROVER_ID, "first").await;
        let second = ops.next_question(&first).await;
        ops.press(&second, APPROVER_ID, "second").await;
    };
    let (answer, ()) = join(ops.ask(json!([user("twice")])), answering).await;
    assert_eq!(
        answer.text(),
        r#"Got accept {"account":"second"}."#,
        "{answer:?}"
    );
    assert_eq!(
        bank.calls(),
        ["twice begin", "twice accept", "twice accept"]
    );
    ops.fixture.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_question_without_a_single_choice_or_for_a_chat_without_tool_questions_waits_for_the_client()
 {
    let bank = AskingServer::start().await;
    let ops = bank.start_ops(|setup| setup).await;
    let asked = ops.ask(json!([user("note")])).await;
    let text = asked.text();
    let reason = "Only you can answer. The chat `ops` was not asked: the answer is not one choice.";
    assert!(text.contains(reason), "{text}");
    assert!(ops.newest_message().is_none());
    let conversation = json!([
        user("note"),
        {"role": "assistant", "content": text},
        user("bread"),
    ]);
    let done = ops.ask(conversation).await;
    assert_eq!(done.text(), r#"Got accept {"note":"bread"}."#, "{done:?}");
    ops.fixture.stop().await;
    let without = "platform-delivery.question_chats.ops.tool_questions";
    let ops = bank.start_ops(|setup| setup.set(without, "false")).await;
    let asked = ops.ask(json!([user("pay")])).await;
    let reason = "The chat `ops` was not asked: it does not take questions of tools.";
    assert!(asked.text().contains(reason), "{asked:?}");
    assert!(ops.newest_message().is_none());
    let done = ops.ask(messages_after(&asked, "first")).await;
    assert_eq!(
        done.text(),
        r#"Got accept {"account":"first"}."#,
        "{done:?}"
    );
    ops.fixture.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_program_of_2025_11_25_gets_the_answer_of_a_chat() {
    let info = json!({"url": "stdio:bank", "protocol": "stdio"});
    let server = json!({"type": "mcp", "name": "bank", "mcp_server_info": info});
    let ops = OpsFixture::start(|_| {
        setup(&server)
            .set("orchestrator.mcp_servers.bank.command", "/bin/sh")
            .set(
                "orchestrator.mcp_servers.bank.args",
                json!(["-c", ASKING_PROGRAM]).to_string(),
            )
    })
    .await;
    let answering = async {
        let question = ops.question().await;
        ops.press(&question, APPROVER_ID, "Yes").await;
    };
    let (answer, ()) = join(ops.ask(json!([user("pay")])), answering).await;
    assert_eq!(answer.text(), "Got paid.", "{answer:?}");
    ops.shown_with("Answered by Ada L (77), 20").await;
    ops.fixture.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_disconnects_during_the_wait_withdraws_the_question() {
    let bank = AskingServer::start().await;
    let ops = bank.start_ops(|setup| setup).await;
    let asking = Box::pin(ops.ask(json!([user("pay")])));
    let asked = Box::pin(ops.question());
    let question = match futures_util::future::select(asking, asked).await {
        futures_util::future::Either::Right((question, asking)) => {
            drop(asking);
            question
        }
        futures_util::future::Either::Left((answer, _)) => panic!("{answer:?}"),
    };
    eventually("a question that is taken back", async || {
        let audits = audits(&ops).await;
        let is_taken_back = |audit: &ApprovalAudit| audit.choice() == ApprovalChoice::Refused;
        audits.iter().any(is_taken_back).then_some(())
    })
    .await;
    let press_reply = ops.press(&question, APPROVER_ID, "first").await;
    assert!(press_reply.contains("changes nothing"), "{press_reply}");
    ops.shown_with("Taken back").await;
    assert_eq!(bank.calls(), ["pay begin"]);
    ops.fixture.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_result_is_kept_before_another_call_of_its_round_waits_for_a_chat() {
    let bank = AskingServer::start().await;
    let rules = r#"[{"tools": ["bank_balance", "bank_pay"]}]"#;
    let ops = bank.start_ops(|setup| setup.set("orchestrator.require_approval", rules));
    let ops = ops.await;
    let mut messages = messages_after(&ops.ask(json!([user("both")])).await, "yes");
    let asking = Box::pin(ops.ask(messages.clone()));
    match futures_util::future::select(asking, Box::pin(ops.question())).await {
        futures_util::future::Either::Right((_, asking)) => drop(asking),
        futures_util::future::Either::Left((answer, _)) => panic!("{answer:?}"),
    }
    let failed = json!({"role": "assistant", "content": "It failed."});
    let array = messages.as_array_mut().unwrap();
    array.extend([failed, user("the weather?")]);
    assert_eq!(ops.ask(messages).await.text(), "It rains.");
    let requests = ops.fixture.model.received_requests();
    let seen = ops.fixture.messages(requests.len() - 1);
    assert!(json!(seen).to_string().contains("12 pounds"), "{seen:?}");
    ops.fixture.stop().await;
}
