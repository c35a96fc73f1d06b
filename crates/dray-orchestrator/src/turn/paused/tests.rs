//! Tests of paused turns: their records, the ids of calls that name records, and the restored conversations.

use dray_agent::message::{FunctionCall, ToolCall};
use dray_bus::test_bus;
use dray_proto::v1::{ApprovalChoice, DecideInChatReply, DecideInChatRequest};
use dray_store::embedded::EmbeddedS3;
use dray_tool::{QuestionMap, ToolQuestion, UserQuestion};
use dray_types::Period;
use serde_json::{Map, json};
use tokio_util::task::TaskTracker;

use super::*;
use crate::approvals::{
    ApprovalAudits, ApprovalDecision, AskedChat, ChatState, NewApproval, QuestionCheckpoint,
    USED_CODE,
};
use crate::http::ApprovalForm;
use crate::records::CallerRecords;
use crate::turn::approval_policy::ApprovalPolicy;
use crate::turn::chat_approvals::ChatApprovals;
use crate::turn::chat_calls::ChatGate;
use crate::turn::settle::Settlement;
use crate::turn::tool_sources::ToolSources;
use crate::turn::waiting::{PausedQuestion, WaitingCall};

mod leases;
mod lost_decisions;
mod lost_responses;

struct RecordFixture {
    turns: PausedTurns,
    now_ms: u64,
    clock: Clock,
    store: Store,
    records: CallerRecords,
    approvals: ApprovalStore,
    _s3: EmbeddedS3,
    _directory: tempfile::TempDir,
}

impl RecordFixture {
    async fn start() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let (s3, options) = EmbeddedS3::start(directory.path()).await.unwrap();
        let clock = Clock::system();
        let now_ms = clock.now_ms();
        let store = Store::open(&options, clock).await.unwrap();
        let clock = Clock::manual(now_ms);
        let test_clock = clock.clone();
        let bus = test_bus::in_process(&clock).await;
        let tenant = TenantId::default();
        let records = CallerRecords::new(&bus, store.clone(), tenant.clone(), clock.clone());
        let audits = ApprovalAudits::new(bus, tenant, clock);
        Self {
            records: records.clone(),
            approvals: ApprovalStore::new(
                records,
                audits,
                (Duration::from_mins(1), Period::secs(40)),
                TaskTracker::new(),
            ),
            turns: turns(&store, now_ms),
            now_ms,
            clock: test_clock,
            store,
            _s3: s3,
            _directory: directory,
        }
    }
}

fn turns(store: &Store, now_ms: u64) -> PausedTurns {
    PausedTurns::new(
        store.clone(),
        TenantId::default(),
        Clock::manual(now_ms),
        Duration::from_mins(1),
    )
}

fn call(id: &str, name: &str) -> ToolCall {
    ToolCall {
        id: id.to_owned(),
        kind: "function".to_owned(),
        function: FunctionCall {
            name: name.to_owned(),
            arguments: "{}".to_owned(),
            rest: Map::new(),
        },
        rest: Map::new(),
    }
}

fn assistant_message(calls: Vec<ToolCall>) -> Message {
    Message {
        tool_calls: Some(calls),
        ..Message::new(Role::Assistant, "asks")
    }
}

fn result(id: &str, text: &str) -> Message {
    Message {
        tool_call_id: Some(id.to_owned()),
        ..Message::new(Role::Tool, text)
    }
}

fn record(now_ms: u64) -> PausedTurn {
    let round = [
        call("m0", "own"),
        call("m1", "theirs"),
        call("m2", "theirs"),
    ];
    PausedTurn {
        created_ms: now_ms,
        state: json!({"dray_session": "c-1"}),
        round: assistant_message(round.to_vec()),
        results: vec![result("m0", "done")],
        pending: vec!["m1".to_owned(), "m2".to_owned()],
        approvals: Vec::new(),
        later: Vec::new(),
        repeated: Vec::new(),
        replaces: None,
    }
}

/// Saves the record, and returns the ids for the client.
async fn save_record(fixture: &RecordFixture) -> Vec<String> {
    let record = record(fixture.now_ms);
    let token = fixture.turns.save("client:a", &record).await.unwrap();
    (0..2).map(|number| call_id(&token, number)).collect()
}

fn continued_messages(ids: &[String]) -> Vec<Message> {
    let calls = ids.iter().map(|id| call(id, "theirs")).collect();
    let mut messages = vec![Message::new(Role::User, "go"), assistant_message(calls)];
    messages.extend(ids.iter().map(|id| result(id, &format!("of {id}"))));
    messages
}

/// The conversation that the model gets.
fn expected_messages(ids: &[String]) -> Vec<Message> {
    let PausedTurn {
        mut round, state, ..
    } = record(0);
    round.custom_content.get_or_insert_default().state = Some(state);
    vec![
        Message::new(Role::User, "go"),
        round,
        result("m0", "done"),
        result("m1", &format!("of {}", ids[0])),
        result("m2", &format!("of {}", ids[1])),
    ]
}

#[tokio::test]
async fn every_replica_restores_the_results_of_the_server_from_the_ids_of_calls() {
    let fixture = RecordFixture::start().await;
    let ids = save_record(&fixture).await;
    let is_portable_id = |id: &String| {
        id.len() < 90
            && id
                .bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || b"_-".contains(&byte))
    };
    assert!(ids.iter().all(is_portable_id), "{ids:?}");
    let other = turns(&fixture.store, fixture.now_ms + 1000);
    let mut messages = continued_messages(&ids);
    other
        .restore("client:a", &mut messages, &fixture.approvals)
        .await
        .unwrap();
    assert_eq!(messages, expected_messages(&ids));
    // A repeated request restores the same messages.
    let mut repeated = continued_messages(&ids);
    other
        .restore("client:a", &mut repeated, &fixture.approvals)
        .await
        .unwrap();
    assert_eq!(repeated, messages);
}

#[tokio::test]
async fn split_calls_and_results_in_another_order_are_restored_as_one_round() {
    let fixture = RecordFixture::start().await;
    let ids = save_record(&fixture).await;
    let result_of = |at: usize| result(&ids[at], &format!("of {}", ids[at]));
    let mut split_messages = vec![
        Message::new(Role::User, "go"),
        assistant_message(vec![call(&ids[1], "theirs")]),
        result_of(1),
        assistant_message(vec![call(&ids[0], "theirs")]),
        result_of(0),
    ];
    fixture
        .turns
        .restore("client:a", &mut split_messages, &fixture.approvals)
        .await
        .unwrap();
    assert_eq!(split_messages, expected_messages(&ids));
    let mut one_result = continued_messages(&ids[..1]);
    fixture
        .turns
        .restore("client:a", &mut one_result, &fixture.approvals)
        .await
        .unwrap();
    assert_eq!(one_result[4], result("m2", MISSING_RESULT));
}

#[tokio::test]
async fn a_record_is_restored_only_for_its_principal_and_before_it_expires() {
    let fixture = RecordFixture::start().await;
    let ids = save_record(&fixture).await;
    let late = turns(&fixture.store, fixture.now_ms + 60_001);
    for (turns, principal) in [(&fixture.turns, "client:b"), (&late, "client:a")] {
        let failure = turns
            .restore(principal, &mut continued_messages(&ids), &fixture.approvals)
            .await
            .unwrap_err();
        assert_eq!(
            (failure.status, failure.code.as_deref()),
            (400, Some(EXPIRED_CODE))
        );
    }
    let forged = format!("{}x_0", &ids[0][..ids[0].len() - 3]);
    let failure = fixture
        .turns
        .restore(
            "client:a",
            &mut continued_messages(&[forged]),
            &fixture.approvals,
        )
        .await;
    assert_eq!(failure.unwrap_err().status, 400);
}

#[tokio::test]
async fn an_expired_record_of_an_earlier_round_does_not_stop_the_conversation() {
    let fixture = RecordFixture::start().await;
    let ids = save_record(&fixture).await;
    let late = turns(&fixture.store, fixture.now_ms + 60_001);
    let mut messages = continued_messages(&ids);
    messages.push(Message::new(Role::User, "and now?"));
    late.restore("client:a", &mut messages, &fixture.approvals)
        .await
        .unwrap();
    assert_eq!(messages.len(), 5);
    let call_ids: Vec<_> = messages[1].calls().iter().map(|call| &call.id).collect();
    assert!(call_ids.iter().all(|id| id.len() <= 40), "{call_ids:?}");
    assert_eq!(messages[2].tool_call_id.as_ref(), Some(call_ids[0]));
    assert_eq!(messages[3].tool_call_id.as_ref(), Some(call_ids[1]));
}

#[tokio::test]
async fn a_conversation_without_records_stays_as_it_is() {
    let fixture = RecordFixture::start().await;
    let messages = vec![
        Message::new(Role::User, "go"),
        assistant_message(vec![call("call_1", "t")]),
        result("call_1", "r"),
    ];
    let mut same = messages.clone();
    fixture
        .turns
        .restore("client:a", &mut same, &fixture.approvals)
        .await
        .unwrap();
    assert_eq!(same, messages);
}

#[tokio::test]
async fn a_record_that_is_too_large_is_refused() {
    let fixture = RecordFixture::start().await;
    let mut large = record(fixture.now_ms);
    large.results = vec![result("m0", &"x".repeat(MAX_RECORD_BYTES as usize))];
    let failure = fixture.turns.save("client:a", &large).await.unwrap_err();
    assert_eq!(failure.status, 500);
    assert!(failure.message.contains("32MiB"), "{}", failure.message);
}

/// A call that waits for an answer to its tool's question, with an open record.
async fn asking_call(fixture: &RecordFixture) -> PausedApproval {
    let question = UserQuestion::Form {
        message: "Really?".to_owned(),
        schema: json!({"type": "object", "properties": {"ok": {"type": "boolean"}}}),
    };
    let questions = QuestionMap::from([("q".to_owned(), question)]);
    let mut approval = NewApproval::new("own", &Sha256Digest::of(b"own"));
    approval.questions = Some(questions.clone());
    let (store, expires_ms) = (&fixture.approvals, fixture.now_ms + 60_000);
    let opened = store.open(
        "client:a",
        "token",
        std::slice::from_ref(&approval),
        expires_ms,
    );
    opened.await.unwrap();
    let mut waiting = WaitingCall::in_chat(call("m0", "own"), approval.clone());
    waiting.question = Some(PausedQuestion {
        asked: ToolQuestion {
            questions,
            resume: Value::Null,
            is_over: false,
        },
        result: Message::new(Role::Tool, ""),
        round: 1,
        not_in_chat: None,
    });
    PausedApproval { approval, waiting }
}

#[tokio::test]
async fn a_request_that_waits_for_a_chat_does_not_continue_a_call_that_the_caller_declined_elsewhere()
 {
    let fixture = RecordFixture::start().await;
    let store = &fixture.approvals;
    let policy = ApprovalPolicy::new(&[], None, ToolSources::default(), ApprovalForm::Text);
    for decision in [ApprovalDecision::Declined, ApprovalDecision::Cancelled] {
        let paused = asking_call(&fixture).await;
        let id = &paused.approval.id;
        let mut record = store.get("client:a", id).await.unwrap().unwrap();
        let decided = store.decide("client:a", id, &mut record, decision);
        decided.await.unwrap();
        let chats = ChatApprovals {
            store,
            principal: "client:a",
            policy: &policy,
            max_wait: Duration::ZERO,
            response: None,
        };
        let gate = ChatGate::new(Duration::ZERO, false);
        let settled = chats.settle(&[&paused.waiting], &gate).await;
        let failure = settled.unwrap_err();
        assert_eq!(failure.code.as_deref(), Some(USED_CODE));
    }
}

#[tokio::test]
async fn a_call_that_a_chat_declined_or_cancelled_is_used_once() {
    let fixture = RecordFixture::start().await;
    let store = &fixture.approvals;
    for decision in [ApprovalDecision::Declined, ApprovalDecision::Cancelled] {
        let paused = asking_call(&fixture).await;
        let id = paused.approval.id.clone();
        let mut record = store.get("client:a", &id).await.unwrap().unwrap();
        let decided = store.decide("client:a", &id, &mut record, decision.clone());
        decided.await.unwrap();
        let state = store.chat_state("client:a", &id).await.unwrap();
        assert!(matches!(state, ChatState::Decided(_)), "{state:?}");
        let decided = || DecidedCall {
            paused: paused.clone(),
            record: record.clone(),
            decision: decision.clone(),
            answers: None,
        };
        let settlement = Settlement {
            approvals: store,
            principal: "client:a",
        };
        let due = settlement.record(vec![decided()], &mut []).await.unwrap();
        assert_eq!(due.len(), 1);
        let state = store.chat_state("client:a", &id).await.unwrap();
        assert!(matches!(state, ChatState::Used), "{state:?}");
        // A second request that read the record before the first one used it.
        let repeated = settlement.record(vec![decided()], &mut []).await;
        assert!(repeated.is_err(), "{repeated:?}");
    }
}

/// Asks in a chat about a call of a request that is still running. Returns the id of the question.
async fn ask_chat(fixture: &RecordFixture) -> String {
    ask_chat_from(fixture, None).await
}

/// The same for a response in the background with a checkpoint.
async fn ask_chat_from(fixture: &RecordFixture, checkpoint: Option<&QuestionCheckpoint>) -> String {
    let store = &fixture.approvals;
    let mut approval = NewApproval::new("own", &Sha256Digest::of(b"own"));
    let expires_ms = store.expires_ms();
    approval.chat = Some(AskedChat {
        name: "ops".to_owned(),
        expires_ms,
    });
    let kept = store.keep_question("client:a", checkpoint, &approval, expires_ms);
    kept.await.unwrap();
    approval.id
}

/// The reply to a press with this choice. With `Unspecified` it is the state of the question.
async fn chat_reply(
    fixture: &RecordFixture,
    question_id: &str,
    choice: ApprovalChoice,
) -> DecideInChatReply {
    let mut press = DecideInChatRequest {
        question_id: question_id.to_owned(),
        chat: "ops".to_owned(),
        sender: "7".to_owned(),
        sender_name: "Ada".to_owned(),
        ..DecideInChatRequest::default()
    };
    press.set_choice(choice);
    fixture.approvals.decide_in_chat(&press).await.unwrap()
}

#[tokio::test]
async fn a_decision_that_no_request_uses_lapses_and_no_request_can_use_it_then() {
    let fixture = RecordFixture::start().await;
    let store = &fixture.approvals;
    // The process of the request has died during the wait.
    let id = ask_chat(&fixture).await;
    let reply = chat_reply(&fixture, &id, ApprovalChoice::Approved).await;
    assert!(reply.recorded && reply.outcome.is_empty(), "{reply:?}");
    assert!(reply.notice.contains("has not used the decision yet"));
    let state = store.chat_state("client:a", &id).await.unwrap();
    let ChatState::Decided(mut early) = state else {
        panic!("{state:?}");
    };
    fixture.clock.advance(Duration::from_secs(31));
    let ended = chat_reply(&fixture, &id, ApprovalChoice::Unspecified).await;
    assert!(
        ended.outcome.starts_with("Approved by Ada (7)")
            && ended.outcome.contains("the call is not made"),
        "{ended:?}"
    );
    // A request that read the decision before, and one that reads it now.
    let used = store.use_decision("client:a", &id, &mut early).await;
    assert_eq!(used.unwrap_err().code.as_deref(), Some(USED_CODE));
    let state = store.chat_state("client:a", &id).await.unwrap();
    assert!(matches!(state, ChatState::Expired(_)), "{state:?}");
    let repeated = chat_reply(&fixture, &id, ApprovalChoice::Approved).await;
    assert_eq!(
        (repeated.recorded, &repeated.outcome),
        (false, &ended.outcome)
    );
}

#[tokio::test]
async fn a_chat_learns_that_a_late_request_has_used_its_decision() {
    let fixture = RecordFixture::start().await;
    let store = &fixture.approvals;
    let id = ask_chat(&fixture).await;
    let reply = chat_reply(&fixture, &id, ApprovalChoice::Approved).await;
    assert!(reply.outcome.is_empty(), "{reply:?}");
    let waiting = store.wait_for_chat("client:a", &id, std::future::pending());
    let Ok(ChatState::Decided(mut record)) = waiting.await else {
        panic!("the chat must have a decision");
    };
    let used = store.use_decision("client:a", &id, &mut record);
    used.await.unwrap();
    let reply = chat_reply(&fixture, &id, ApprovalChoice::Unspecified).await;
    assert!(reply.outcome.starts_with("Approved by Ada (7)"));
    assert!(!reply.outcome.contains("not made"), "{reply:?}");
}

#[tokio::test]
async fn a_decision_lapses_immediately_when_its_request_withdraws_the_question() {
    let fixture = RecordFixture::start().await;
    let store = &fixture.approvals;
    let id = ask_chat(&fixture).await;
    let press = chat_reply(&fixture, &id, ApprovalChoice::Approved);
    let withdrawing = async {
        let waiting = store.wait_for_chat("client:a", &id, std::future::pending());
        waiting.await.unwrap();
        store.withdraw("client:a", &id).await;
    };
    let (reply, ()) = Box::pin(futures_util::future::join(press, withdrawing)).await;
    // The press may get its reply before the question is withdrawn.
    assert!(reply.recorded, "{reply:?}");
    let reply = chat_reply(&fixture, &id, ApprovalChoice::Unspecified).await;
    assert!(reply.outcome.contains("the call is not made"), "{reply:?}");
}
