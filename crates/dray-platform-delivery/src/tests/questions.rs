//! Questions in chats that end without a press, and questions about hosts.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use dray_bus::IncomingRequest;
use dray_platform::{ButtonPress, DuplicateProtection, ErrorKind};
use dray_proto::contract::call_subject;
use dray_proto::v1::{self, EgressAnswer};
use dray_testkit::eventually;
use dray_types::{Fault, FaultCode, Period};
use tokio::task::JoinSet;

use super::fake::SeenQuestion;
use super::fixture::{DeliveryFixture, NOW_MS, serve};
use super::replicas::other;
use crate::config::QuestionChat;
use crate::delivery_service::DeliveryService;

mod crashes;
mod ended;
mod limits;
mod presses;
mod tools;
mod webhooks;

const HOST_ID: &str = "egq_00000000000000000000000000000000000000ff";
const CALL_ID: &str = "apr_1";
/// The chat of the people who answer.
const OPS_CHAT: &str = "42";
/// Id of the user who may answer in the chat.
const APPROVER_ID: &str = "7";
/// Milliseconds of an hour.
const HOUR_MS: u64 = 3_600_000;

/// State of the fake egress-fetcher and the fake orchestrator.
#[derive(Default)]
struct Deciders {
    hosts: Vec<v1::EgressQuestion>,
    answers: Vec<v1::AnswerEgressQuestionRequest>,
    /// Outcome of the call.
    call_outcome: String,
    /// Requests for the outcome of the call.
    outcome_requests: Vec<v1::DecideInChatRequest>,
    /// Duration of each decision.
    decision_time: Duration,
    /// The next request is kept here, and has no reply.
    unanswered: Option<Vec<IncomingRequest>>,
    /// Whether answers about hosts fail.
    is_failing: bool,
    /// Whether a list has one question, and names the next part.
    lists_in_parts: bool,
}

struct QuestionFixture {
    fixture: DeliveryFixture,
    deciders: Arc<Mutex<Deciders>>,
    _tasks: JoinSet<()>,
}

impl QuestionFixture {
    async fn new() -> Self {
        let fixture = DeliveryFixture::with(DuplicateProtection::Unknown, |config| {
            let ops = QuestionChat {
                chat: format!("telegram:{OPS_CHAT}"),
                people: vec![APPROVER_ID.to_owned()],
                host_questions: true,
                tool_questions: false,
                host_answer_time: Period::secs(1800),
            };
            let calls = QuestionChat {
                chat: "telegram:43".to_owned(),
                host_questions: false,
                tool_questions: true,
                ..ops.clone()
            };
            config.question_chats = [("ops".to_owned(), ops), ("calls".to_owned(), calls)].into();
        })
        .await;
        let deciders = Arc::new(Mutex::new(Deciders::default()));
        let mut tasks = JoinSet::new();
        let (bus, known) = (&fixture.bus, Arc::clone(&deciders));
        serve(
            bus,
            &mut tasks,
            move |request: v1::ListEgressQuestionsRequest| {
                assert!(request.include_answered);
                Ok(limits::list_hosts(&known.lock().unwrap(), &request))
            },
        )
        .await;
        let (known, clock) = (Arc::clone(&deciders), fixture.clock.clone());
        serve(
            bus,
            &mut tasks,
            move |request: v1::AnswerEgressQuestionRequest| {
                answer_host(&mut known.lock().unwrap(), &request, clock.now_ms())
            },
        )
        .await;
        let (known, clock) = (Arc::clone(&deciders), fixture.clock.clone());
        let subject = call_subject::<v1::DecideInChatRequest>();
        let mut requests = bus.respond_to(&subject, "orchestrator").await.unwrap();
        tasks.spawn(async move {
            while let Some(incoming) = requests.next().await {
                ended::decide(&known, &clock, incoming).await;
            }
        });
        Self {
            fixture,
            deciders,
            _tasks: tasks,
        }
    }

    /// Lets a session ask about a host.
    fn asks_about_host(&self) {
        self.deciders.lock().unwrap().hosts = vec![v1::EgressQuestion {
            id: HOST_ID.to_owned(),
            session: "chat-1".to_owned(),
            host: "files.example.org".to_owned(),
            port: 443,
            rule: "web/ask (a.toml:3)".to_owned(),
            asked_at_ms: NOW_MS,
            expires_at_ms: NOW_MS + HOUR_MS,
            ..v1::EgressQuestion::default()
        }];
    }

    /// Answers the host's question as another approver does.
    fn answer_elsewhere(&self) {
        let mut request = v1::AnswerEgressQuestionRequest {
            id: HOST_ID.to_owned(),
            valid_ms: HOUR_MS,
            principal: "console login 1".to_owned(),
            ..v1::AnswerEgressQuestionRequest::default()
        };
        request.set_answer(EgressAnswer::Deny);
        let now_ms = self.fixture.clock.now_ms();
        answer_host(&mut self.deciders.lock().unwrap(), &request, now_ms).unwrap();
    }

    /// One round of each replica, concurrently.
    async fn reconcile(&self, replicas: &[&DeliveryService]) {
        let rounds = replicas
            .iter()
            .map(|replica| ended::run_round(&replica.inbound.questions));
        futures_util::future::join_all(rounds).await;
    }

    async fn reconcile_one(&self) {
        self.reconcile(&[&self.fixture.replica]).await;
    }

    fn question(&self) -> SeenQuestion {
        let questions = self.fixture.fake.seen_questions();
        let [question] = questions.as_slice() else {
            panic!("{questions:?}");
        };
        question.clone()
    }

    /// A person presses a button with this data; the notice to the person.
    async fn press(&self, chat: &str, person: &str, data: &str) -> String {
        let fixture = &self.fixture;
        let account = fixture.replica.inbound.accounts.named("bot").unwrap();
        let press = press_of(chat, person, data);
        let questions = &fixture.replica.inbound.questions;
        questions.take_press(&account, &press).await;
        fixture.fake.notices().pop().unwrap_or_default()
    }

    fn answers(&self) -> Vec<v1::AnswerEgressQuestionRequest> {
        self.deciders.lock().unwrap().answers.clone()
    }

    /// Shows a call that expires in an hour.
    async fn ask_about_call(&self) -> Result<v1::AskInChatReply, Fault> {
        self.ask_about(CALL_ID).await
    }

    async fn ask_about(&self, id: &str) -> Result<v1::AskInChatReply, Fault> {
        let request = v1::AskInChatRequest {
            chat: "calls".to_owned(),
            question_id: id.to_owned(),
            text: "May it?".to_owned(),
            detail: "{}".to_owned(),
            expires_at_ms: NOW_MS + HOUR_MS,
            options: Vec::new(),
        };
        let meta = self.fixture.meta("ask");
        let questions = &self.fixture.replica.inbound.questions;
        questions.ask(&meta, &request).await
    }

    fn advance(&self, millis: u64) {
        self.fixture.clock.advance(Duration::from_millis(millis));
    }
}

fn press_of(chat: &str, person: &str, data: &str) -> ButtonPress {
    ButtonPress {
        target: format!("telegram:{chat}").parse().unwrap(),
        message_id: "q1".to_owned(),
        text: String::new(),
        sender: person.to_owned(),
        sender_name: "Ada".to_owned(),
        data: data.to_owned(),
        reference: String::new(),
    }
}

/// The rules of the egress-fetcher.
fn answer_host(
    known: &mut Deciders,
    request: &v1::AnswerEgressQuestionRequest,
    now_ms: u64,
) -> Result<v1::AnswerEgressQuestionReply, Fault> {
    if known.is_failing {
        return Err(Fault::new(FaultCode::Unavailable, "It fails."));
    }
    let mut hosts = known.hosts.iter_mut();
    let found = hosts.find(|question| question.id == request.id);
    let question = found.ok_or_else(|| Fault::new(FaultCode::NotFound, "It does not exist."))?;
    if request.only_waiting && question.answer() != EgressAnswer::Unspecified {
        let fault = Fault::new(FaultCode::InvalidArgument, "It has an answer.");
        return Err(fault.detail("question_answered"));
    }
    question.set_answer(request.answer());
    question.answered_by.clone_from(&request.principal);
    question.answered_at_ms = now_ms;
    question.expires_at_ms = now_ms + request.valid_ms;
    let question = question.clone();
    known.answers.push(request.clone());
    Ok(v1::AnswerEgressQuestionReply {
        question: Some(question),
    })
}

#[tokio::test(start_paused = true)]
async fn a_question_about_a_host_is_shown_once_and_the_first_press_of_a_named_person_answers_it() {
    let question_fixture = QuestionFixture::new().await;
    let second = other(&question_fixture.fixture);
    question_fixture.asks_about_host();
    for _ in 0..2 {
        question_fixture
            .reconcile(&[&question_fixture.fixture.replica, &second])
            .await;
    }
    let question = question_fixture.question();
    assert_eq!(question.chat, OPS_CHAT);
    assert_eq!(question.detail, "files.example.org:443");
    assert!(question.text.contains("Session chat-1"), "{question:?}");
    let [allow, refuse] = question.buttons.as_slice() else {
        panic!("{question:?}");
    };
    let press_reply = question_fixture.press(OPS_CHAT, "8", allow).await;
    assert!(
        press_reply.contains("not one of the people"),
        "{press_reply}"
    );
    // Data that names another question, another chat, and a chat without questions about hosts.
    let forged = allow.replace("ff:", "00:");
    let press_reply = question_fixture.press(OPS_CHAT, APPROVER_ID, &forged).await;
    assert!(press_reply.contains("does not exist"), "{press_reply}");
    for chat in ["43", "44"] {
        let press_reply = question_fixture.press(chat, APPROVER_ID, allow).await;
        assert!(
            press_reply.contains("not answered in this chat"),
            "{press_reply}"
        );
    }
    assert!(question_fixture.answers().is_empty());
    let press_reply = question_fixture.press(OPS_CHAT, APPROVER_ID, allow).await;
    assert_eq!(press_reply, "Your answer is recorded.");
    let [answer] = &question_fixture.answers()[..] else {
        panic!("{:?}", question_fixture.answers());
    };
    assert_eq!(answer.answer(), EgressAnswer::Allow);
    assert_eq!(
        (answer.principal.as_str(), answer.valid_ms),
        ("chat ops:7", 1_800_000)
    );
    let outcome = "Allowed by Ada (7), 2026-11-20 00:00 UTC, until 2026-11-20 00:30 UTC.";
    assert_eq!(question_fixture.question().outcome, outcome);
    // A second press changes neither the answer nor the message.
    let press_reply = question_fixture.press(OPS_CHAT, APPROVER_ID, refuse).await;
    assert!(press_reply.contains("answered before"), "{press_reply}");
    question_fixture.advance(60_000);
    question_fixture
        .reconcile(&[&question_fixture.fixture.replica, &second])
        .await;
    assert_eq!(
        (
            question_fixture.answers().len(),
            question_fixture.question().edits
        ),
        (1, 1)
    );
}

#[tokio::test(start_paused = true)]
async fn a_host_that_is_answered_elsewhere_or_expires_ends_its_question_once_with_two_replicas() {
    for (expires, outcome) in [
        (
            false,
            "Refused by console login 1, 2026-11-20 00:00 UTC, until 2026-11-20 01:00 UTC.",
        ),
        (
            true,
            "Expired, 2026-11-20 01:00 UTC: the host stays refused.",
        ),
    ] {
        let question_fixture = QuestionFixture::new().await;
        question_fixture.asks_about_host();
        question_fixture.reconcile_one().await;
        let buttons = question_fixture.question().buttons;
        if expires {
            question_fixture.advance(HOUR_MS);
            question_fixture.deciders.lock().unwrap().hosts.clear();
        } else {
            question_fixture.answer_elsewhere();
        }
        // A replica that never saw the question, as after a restart.
        let second = other(&question_fixture.fixture);
        for _ in 0..3 {
            question_fixture
                .reconcile(&[&question_fixture.fixture.replica, &second])
                .await;
        }
        let ended = question_fixture.question();
        assert_eq!((ended.outcome.as_str(), ended.edits), (outcome, 1));
        assert!(ended.buttons.is_empty());
        let press_reply = question_fixture
            .press(OPS_CHAT, APPROVER_ID, &buttons[0])
            .await;
        assert!(press_reply.contains("changes nothing"), "{press_reply}");
        assert_eq!(question_fixture.question(), ended);
    }
}

#[tokio::test(start_paused = true)]
async fn a_question_that_a_platform_refuses_is_shown_later_by_any_replica() {
    let question_fixture = QuestionFixture::new().await;
    question_fixture.asks_about_host();
    question_fixture
        .fixture
        .fake
        .refuse_question(ErrorKind::Transient);
    let second = other(&question_fixture.fixture);
    question_fixture
        .reconcile(&[&question_fixture.fixture.replica, &second])
        .await;
    question_fixture
        .reconcile(&[&question_fixture.fixture.replica, &second])
        .await;
    assert!(question_fixture.fixture.fake.seen_questions().is_empty());
    question_fixture.advance(60_000);
    question_fixture.reconcile(&[&second]).await;
    assert_eq!(question_fixture.question().buttons.len(), 2);
}

#[tokio::test(start_paused = true)]
async fn the_message_shows_an_answer_whose_outcome_the_platform_refused_after_the_press() {
    let question_fixture = QuestionFixture::new().await;
    question_fixture.asks_about_host();
    question_fixture.reconcile_one().await;
    let buttons = question_fixture.question().buttons;
    question_fixture
        .fixture
        .fake
        .refuse_question(ErrorKind::Transient);
    question_fixture
        .press(OPS_CHAT, APPROVER_ID, &buttons[1])
        .await;
    assert_eq!(question_fixture.answers().len(), 1);
    // The process of the press may still show the outcome itself.
    question_fixture.advance(25_000);
    question_fixture.reconcile_one().await;
    assert_eq!(question_fixture.question().edits, 0);
    question_fixture.advance(5_000);
    question_fixture.reconcile_one().await;
    question_fixture.reconcile_one().await;
    let ended = question_fixture.question();
    assert!(
        ended.outcome.starts_with("Refused by chat ops:7, "),
        "{ended:?}"
    );
    assert_eq!(ended.edits, 1);
}

#[tokio::test(start_paused = true)]
async fn a_call_that_expires_without_a_press_shows_its_outcome_once_with_two_replicas() {
    let question_fixture = QuestionFixture::new().await;
    question_fixture.ask_about_call().await.unwrap();
    let second = other(&question_fixture.fixture);
    question_fixture
        .reconcile(&[&question_fixture.fixture.replica, &second])
        .await;
    assert_eq!(question_fixture.question().edits, 0);
    question_fixture.advance(HOUR_MS + 1_000);
    question_fixture.deciders.lock().unwrap().call_outcome = "Expired.".to_owned();
    question_fixture
        .fixture
        .fake
        .refuse_question(ErrorKind::Transient);
    question_fixture
        .reconcile(&[&question_fixture.fixture.replica, &second])
        .await;
    // The attempt that failed is made again after its time, and not before.
    question_fixture
        .reconcile(&[&question_fixture.fixture.replica, &second])
        .await;
    assert_eq!(question_fixture.question().edits, 0);
    question_fixture.advance(120_000);
    for _ in 0..2 {
        question_fixture
            .reconcile(&[&question_fixture.fixture.replica, &second])
            .await;
    }
    let ended = question_fixture.question();
    assert_eq!((ended.outcome.as_str(), ended.edits), ("Expired.", 1));
    let requests = question_fixture
        .deciders
        .lock()
        .unwrap()
        .outcome_requests
        .clone();
    assert_eq!(requests.len(), 2);
    // A request without a choice decides nothing.
    assert_eq!(requests[0].choice(), v1::ApprovalChoice::Unspecified);
    assert_eq!(
        (requests[0].chat.as_str(), requests[0].question_id.as_str()),
        ("calls", CALL_ID)
    );
}

#[tokio::test(start_paused = true)]
async fn a_call_that_was_pressed_or_not_shown_is_not_asked_about_at_its_expiry() {
    let question_fixture = QuestionFixture::new().await;
    question_fixture.deciders.lock().unwrap().call_outcome = "Approved.".to_owned();
    question_fixture.ask_about_call().await.unwrap();
    let data = question_fixture.question().buttons[0].clone();
    question_fixture.press("43", APPROVER_ID, &data).await;
    assert_eq!(question_fixture.question().edits, 1);
    question_fixture
        .fixture
        .fake
        .refuse_question(ErrorKind::NotFound);
    question_fixture.ask_about_call().await.unwrap_err();
    question_fixture.advance(HOUR_MS + 1_000);
    question_fixture.reconcile_one().await;
    assert_eq!(question_fixture.question().edits, 1);
    // Only the press sent a request.
    assert_eq!(
        question_fixture
            .deciders
            .lock()
            .unwrap()
            .outcome_requests
            .len(),
        1
    );
}

#[tokio::test(start_paused = true)]
async fn a_call_whose_outcome_stays_unknown_shows_after_an_hour_that_it_ended() {
    let fixture = QuestionFixture::new().await;
    fixture.ask_about_call().await.unwrap();
    fixture.advance(HOUR_MS + 1_000);
    fixture.reconcile_one().await;
    assert_eq!(fixture.question().edits, 0);
    fixture.advance(HOUR_MS);
    fixture.reconcile_one().await;
    assert_eq!(fixture.question().outcome, "Ended, 2026-11-20 01:00 UTC.");
}
