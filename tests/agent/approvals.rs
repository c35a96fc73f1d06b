//! Approvals by the people of a chat: from the call of a model to buttons in Telegram, and back to the turn.

use dray_platform_telegram::fake_server::{InjectedFault, StoredMessage};
use dray_testkit::eventually;
use futures_util::future::{Either, join, join_all, select};
use serde_json::{Value, json};

use super::chat_answer::AgentAnswer;
use super::fixture::{AgentFixture, AgentSetup, user};
use super::rest_endpoint::FakeEndpoint;

/// The first group of a fake server.
pub(super) const OPS_CHAT: i64 = -1_001_000_000_001;
/// The person who may answer.
pub(super) const APPROVER_ID: i64 = 77;
/// A person of the chat who may not answer.
pub(super) const STRANGER_ID: i64 = 5;

/// An agent whose tool `shop_order` needs the approval of the chat `ops`.
pub(super) struct OpsFixture {
    pub(super) fixture: AgentFixture,
    endpoint: FakeEndpoint,
}

/// An agent whose tool `shop_order` needs the approval of this person in this chat, named `ops`.
pub(super) fn ops_setup(endpoint: &FakeEndpoint, chat: &str, person: &str) -> AgentSetup {
    let rules = json!([
        {"when": {"last_user_contains": "weather"}, "reply": {"say": "It rains."}},
        {"when": {"tool_result_of": "shop_order"}, "reply": {"say": "Got {result}."}},
        {"reply": {"call": [{"name": "shop_order", "arguments": {"doc": "a *big*\u{202e} one"}}]}},
    ]);
    let ops = "platform-delivery.question_chats.ops";
    AgentSetup::new(json!([endpoint.tools()]), rules)
        .set(
            "orchestrator.require_approval",
            r#"[{"tools": ["shop_order"]}]"#,
        )
        .set("orchestrator.approval_chats", r#"[{"chat": "ops"}]"#)
        .set(&format!("{ops}.chat"), chat)
        .set(&format!("{ops}.people"), format!(r#"["{person}"]"#))
}

impl OpsFixture {
    pub(super) async fn start(change: impl FnOnce(AgentSetup) -> AgentSetup) -> Self {
        let endpoint = FakeEndpoint::start().await;
        let chat = format!("telegram:{OPS_CHAT}");
        let setup = ops_setup(&endpoint, &chat, &APPROVER_ID.to_string());
        let fixture = change(setup).start().await;
        assert_eq!(fixture.telegram.group(), OPS_CHAT);
        Self { fixture, endpoint }
    }

    /// The newest message of the chat.
    pub(super) fn newest_message(&self) -> Option<StoredMessage> {
        self.fixture.telegram.visible_messages(OPS_CHAT).pop()
    }

    /// The question, once the chat shows it.
    pub(super) async fn question(&self) -> StoredMessage {
        eventually("a question with buttons", async || {
            self.newest_message()
                .filter(|message| !message.buttons.is_empty())
        })
        .await
    }

    /// The question after `earlier`.
    pub(super) async fn next_question(&self, earlier: &StoredMessage) -> StoredMessage {
        eventually("another question", async || {
            self.newest_message()
                .filter(|message| message.message_id != earlier.message_id)
        })
        .await
    }

    /// The newest message, once it shows this outcome: the notice to the person comes before it.
    pub(super) async fn shown_with(&self, outcome: &str) -> StoredMessage {
        eventually(outcome, async || {
            self.newest_message()
                .filter(|message| message.text.contains(outcome))
        })
        .await
    }

    /// Waits until the message of the question was edited this many times.
    async fn wait_until_edited(&self, times: usize) {
        eventually("an edit of the question", async || {
            let requests = self.fixture.telegram.requests();
            let edits = requests.iter().filter(|name| name.contains("editMessage"));
            (edits.count() == times).then_some(())
        })
        .await;
    }

    /// A person presses the button with this label. Returns the notice to the person.
    pub(super) async fn press(&self, question: &StoredMessage, person: i64, label: &str) -> String {
        let button = question.buttons.iter().find(|button| button.text == label);
        let data = &button.unwrap().data;
        self.press_data(question.message_id, person, data).await
    }

    pub(super) async fn press_data(&self, message: i64, person: i64, data: &str) -> String {
        let telegram = &self.fixture.telegram;
        let before = telegram.notices().len();
        telegram.user_presses(OPS_CHAT, message, person, data);
        eventually("a notice about the press", async || {
            let notices = telegram.notices();
            notices.get(before).map(|notice| notice.text.clone())
        })
        .await
    }

    /// Settings of a process of platform-delivery that serves this chat.
    fn chat_settings(&self) -> [(&'static str, String); 4] {
        let telegram = &self.fixture.telegram;
        [
            (
                "platform-delivery.accounts.port.telegram.base_url",
                telegram.url(),
            ),
            (
                "platform-delivery.accounts.port.telegram.token",
                telegram.token().expose().to_owned(),
            ),
            (
                "platform-delivery.question_chats.ops.chat",
                format!("telegram:{OPS_CHAT}"),
            ),
            (
                "platform-delivery.question_chats.ops.people",
                format!(r#"["{APPROVER_ID}"]"#),
            ),
        ]
    }

    /// Sends these messages as a streamed request. Returns the status and the answer.
    pub(super) async fn ask(&self, messages: Value) -> AgentAnswer {
        let body = json!({"model": "agent", "messages": messages, "stream": true});
        let request = self.fixture.post("/v1/chat/completions");
        AgentAnswer::of(request.json(&body)).await
    }
}

/// The messages of a client of `OpenAI`'s API that continues after this answer, and keeps only its text.
pub(super) fn messages_after(answer: &AgentAnswer, next: &str) -> Value {
    let assistant_message = json!({"role": "assistant", "content": answer.text()});
    json!([user("order"), assistant_message, user(next)])
}

#[tokio::test(flavor = "multi_thread")]
async fn a_press_of_a_named_person_lets_the_waiting_request_continue_and_every_other_press_changes_nothing()
 {
    let ops = OpsFixture::start(|setup| setup).await;
    let deciding = async {
        let question = ops.question().await;
        assert!(
            question.text.contains("shop_order of shop"),
            "{}",
            question.text
        );
        // Invisible characters are escaped.
        assert_eq!(question.code, r#"{"doc":"a *big*\u202e one"}"#);
        let press_reply = ops.press(&question, STRANGER_ID, "Approve").await;
        assert!(
            press_reply.contains("not one of the people"),
            "{press_reply}"
        );
        // A forged button names a question that does not exist.
        let forged = ops.press_data(question.message_id, APPROVER_ID, "dray:apr_0:y");
        let press_reply = forged.await;
        assert!(press_reply.contains("does not exist"), "{press_reply}");
        assert_eq!(ops.newest_message().as_ref(), Some(&question));
        assert!(ops.endpoint.bodies().is_empty());
        let press_reply = ops.press(&question, APPROVER_ID, "Approve").await;
        assert_eq!(press_reply, "Your answer is recorded.");
        question
    };
    let (answer, question) = join(ops.ask(json!([user("order")])), deciding).await;
    assert_eq!(answer.text(), r#"Got {"taken":true}."#, "{answer:?}");
    assert_eq!(ops.endpoint.bodies().len(), 1);
    let ended = ops.shown_with("\n\nApproved by Ada L (77), 20").await;
    assert!(ended.buttons.is_empty());
    let press_reply = ops.press(&question, APPROVER_ID, "Refuse").await;
    assert!(
        press_reply.contains("decided before") && press_reply.contains("Approved by Ada L"),
        "{press_reply}"
    );
    ops.wait_until_edited(2).await;
    assert_eq!(ops.newest_message(), Some(ended));
    assert_eq!(ops.endpoint.bodies().len(), 1);
    ops.fixture.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_paused_turn_continues_after_the_decision_and_the_caller_cannot_decide_itself() {
    let ops = OpsFixture::start(|setup| setup.set("orchestrator.approval_wait", "0s")).await;
    let paused = ops.ask(json!([user("order")])).await;
    assert!(
        paused.text().contains("the people of the chat `ops`"),
        "{}",
        paused.text()
    );
    let question = ops.question().await;
    // No text of the caller approves the call, so the caller still waits.
    let mut waiting = paused;
    for word in ["yes", "continue"] {
        let repeated = ops.ask(messages_after(&waiting, word)).await;
        assert!(
            repeated.text().contains("the people of the chat `ops`"),
            "{repeated:?}"
        );
        waiting = repeated;
    }
    assert!(ops.endpoint.bodies().is_empty());
    // The repeated requests do not show the question a second time.
    assert_eq!(
        ops.fixture.telegram.visible_messages(OPS_CHAT).len(),
        1,
        "asked once"
    );
    ops.press(&question, APPROVER_ID, "Approve").await;
    assert!(ops.endpoint.bodies().is_empty(), "made by the turn alone");
    let messages = messages_after(&waiting, "continue");
    let both = [ops.ask(messages.clone()), ops.ask(messages.clone())];
    let answers = join_all(both).await;
    let used = |answer: &&AgentAnswer| {
        let error = answer.chunks.iter().find_map(|chunk| chunk.get("error"));
        error.is_some_and(|error| error["code"] == "approval_used")
    };
    // The second request is refused while the call runs; afterwards it gets the same result.
    assert!(answers.iter().filter(used).count() <= 1, "{answers:?}");
    let done = answers.iter().find(|answer| !used(answer)).unwrap();
    assert_eq!(done.text(), r#"Got {"taken":true}."#);
    assert_eq!(ops.endpoint.bodies().len(), 1);
    // The conversation continues with the result, from the text alone.
    let mut later = messages.as_array().unwrap().clone();
    later.extend([
        json!({"role": "assistant", "content": done.text()}),
        user("the weather?"),
    ]);
    assert_eq!(ops.ask(json!(later)).await.text(), "It rains.");
    let model_messages = ops
        .fixture
        .messages(ops.fixture.model.received_requests().len() - 1);
    assert!(
        json!(model_messages)
            .to_string()
            .contains(r#"{\"taken\":true}"#),
        "{model_messages:?}"
    );
    ops.fixture.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refusal_reaches_the_model_and_another_message_withdraws_the_question() {
    let ops = OpsFixture::start(|setup| setup.set("orchestrator.approval_wait", "0s")).await;
    let paused = ops.ask(json!([user("order")])).await;
    let question = ops.question().await;
    ops.press(&question, APPROVER_ID, "Refuse").await;
    ops.shown_with("Refused by Ada L (77)").await;
    let refused = ops.ask(messages_after(&paused, "continue")).await;
    assert!(refused.text().contains("refused this"), "{refused:?}");
    let paused = ops.ask(json!([user("order")])).await;
    let question = ops.question().await;
    assert_eq!(
        ops.ask(messages_after(&paused, "the weather?"))
            .await
            .text(),
        "It rains."
    );
    let press_reply = ops.press(&question, APPROVER_ID, "Approve").await;
    assert!(press_reply.contains("changes nothing"), "{press_reply}");
    ops.shown_with("Taken back").await;
    let late = ops.ask(messages_after(&paused, "continue")).await;
    assert!(late.text().contains("refused this"), "{late:?}");
    assert!(ops.endpoint.bodies().is_empty());
    ops.fixture.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_question_that_expires_shows_it_without_a_press_and_a_later_press_changes_nothing() {
    let ops = OpsFixture::start(|setup| setup.set("orchestrator.approval_timeout", "5s")).await;
    let (answer, question) = join(ops.ask(json!([user("order")])), ops.question()).await;
    assert!(
        answer.text().contains("was not approved in time"),
        "{answer:?}"
    );
    let ended = ops.shown_with("Expired, 20").await;
    assert_eq!(ended.message_id, question.message_id);
    assert_eq!((ended.buttons.len(), &ended.code), (0, &question.code));
    let press_reply = ops.press(&question, APPROVER_ID, "Approve").await;
    assert!(press_reply.contains("has expired"), "{press_reply}");
    assert!(ops.endpoint.bodies().is_empty());
    ops.fixture.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_press_after_a_kill_of_platform_delivery_is_handled_by_the_process_that_follows() {
    // The lease of the process that polls ends half a minute after its death.
    let ops = OpsFixture::start(|setup| {
        setup
            .distributed()
            .without("platform-delivery")
            .set("orchestrator.approval_wait", "5m")
    })
    .await;
    let telegram = &ops.fixture.telegram;
    let settings = ops.chat_settings();
    let first = ops.fixture.process("platform-delivery", &settings).await;
    let deciding = async {
        let question = ops.question().await;
        // The message is visible before the orchestrator knows that it was asked.
        eventually("the orchestrator has its reply", async || {
            let metrics = ops.fixture.metrics_of(&first).await;
            let is_reply =
                |line: &str| line.starts_with("dray_answer_total") && line.contains("\"ok\"");
            metrics.lines().any(is_reply).then_some(())
        })
        .await;
        first.kill9();
        let approve = &question.buttons[0].data;
        telegram.user_presses(OPS_CHAT, question.message_id, APPROVER_ID, approve);
        ops.fixture.process("platform-delivery", &settings).await
    };
    let (answer, second) = join(ops.ask(json!([user("order")])), deciding).await;
    assert_eq!(answer.text(), r#"Got {"taken":true}."#, "{answer:?}");
    let ended = ops.shown_with("Approved by Ada L (77), 20").await;
    assert!(ended.buttons.is_empty());
    assert_eq!(telegram.visible_messages(OPS_CHAT).len(), 1, "asked once");
    assert_eq!(ops.endpoint.bodies().len(), 1);
    drop(second);
    ops.fixture.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_press_counts_after_a_kill_of_platform_delivery_between_its_message_and_the_confirmation()
{
    let ops = OpsFixture::start(|setup| {
        setup
            .distributed()
            .without("platform-delivery")
            .set("orchestrator.approval_wait", "5m")
    })
    .await;
    let settings = ops.chat_settings();
    let first = ops.fixture.process("platform-delivery", &settings).await;
    // The message is visible, and the process never learns its id.
    ops.fixture.telegram.script(InjectedFault::NeverRespond);
    let deciding = async {
        let question = ops.question().await;
        first.kill9();
        let second = ops.fixture.process("platform-delivery", &settings).await;
        // The press is handled after the lease of the killed process ends, so the test does not wait for a notice.
        let approve = &question.buttons[0].data;
        let telegram = &ops.fixture.telegram;
        telegram.user_presses(OPS_CHAT, question.message_id, APPROVER_ID, approve);
        second
    };
    let (answer, second) = join(ops.ask(json!([user("order")])), deciding).await;
    assert_eq!(answer.text(), r#"Got {"taken":true}."#, "{answer:?}");
    let ended = ops.shown_with("Approved by Ada L (77), 20").await;
    assert!(ended.buttons.is_empty());
    assert_eq!(ops.endpoint.bodies().len(), 1);
    drop(second);
    ops.fixture.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_chat_that_cannot_be_asked_and_a_client_that_leaves_end_without_the_call() {
    let ops = OpsFixture::start(|setup| setup).await;
    let kicked = InjectedFault::Refuse(403, "bot was kicked from the supergroup chat".to_owned());
    // A refusal of the platform, which shows nothing.
    ops.fixture.telegram.script(kicked);
    let answer = ops.ask(json!([user("order")])).await;
    assert!(answer.text().contains("cannot be asked"), "{answer:?}");
    // The message may be there when the response to it is lost; an answer to it is not accepted.
    ops.fixture.telegram.script(InjectedFault::LoseResponse);
    let answer = ops.ask(json!([user("order")])).await;
    assert!(answer.text().contains("cannot be asked"), "{answer:?}");
    let question = ops.question().await;
    let press_reply = ops.press(&question, APPROVER_ID, "Approve").await;
    assert!(press_reply.contains("changes nothing"), "{press_reply}");
    // A client that leaves during the wait withdraws its question.
    let asking = Box::pin(ops.ask(json!([user("order")])));
    let asked = Box::pin(ops.next_question(&question));
    let question = match select(asking, asked).await {
        Either::Right((question, asking)) => {
            drop(asking);
            question
        }
        Either::Left((answer, _)) => panic!("{answer:?}"),
    };
    eventually("a question that is withdrawn", async || {
        let records = ops.fixture.bus().key_value("dray_client_state");
        let listing = records.list("approval", 100).await.unwrap();
        let is_open = |value: &[u8]| {
            let record: Value = serde_json::from_slice(value).unwrap();
            record["decision"].is_null()
        };
        let open = listing
            .entries
            .iter()
            .any(|(_, entry)| is_open(&entry.value));
        (!open).then_some(())
    })
    .await;
    let press_reply = ops.press(&question, APPROVER_ID, "Approve").await;
    assert!(press_reply.contains("changes nothing"), "{press_reply}");
    ops.shown_with("Taken back").await;
    assert!(ops.endpoint.bodies().is_empty());
    ops.fixture.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_response_in_the_background_waits_for_the_chat_and_completes() {
    let ops = OpsFixture::start(|setup| setup.set("orchestrator.approval_wait", "0s")).await;
    let body = json!({"model": "agent", "input": "order", "background": true});
    let background_response = ops.fixture.post("/v1/responses").json(&body);
    let background_response = background_response.send(&|_| ()).await.unwrap();
    let background_response: Value = background_response.json().await.unwrap();
    let question = ops.question().await;
    ops.press(&question, APPROVER_ID, "Approve").await;
    let path = format!(
        "/v1/responses/{}",
        background_response["id"].as_str().unwrap()
    );
    let done = eventually("the end of the response", async || {
        let response = ops.fixture.get(&path).send(&|_| ()).await.unwrap();
        let response: Value = response.json().await.unwrap();
        (response["status"] == "completed").then_some(response)
    })
    .await;
    let text = done["output"][0]["content"][0]["text"].as_str().unwrap();
    assert_eq!(text, r#"Got {"taken":true}."#, "{done}");
    assert_eq!(ops.endpoint.bodies().len(), 1);
    ops.fixture.stop().await;
}
