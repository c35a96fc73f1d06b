//! The question about a host, as `elicitation/create` of 2025-11-25.

use std::sync::Mutex;

use dray_bus::Responder;
use dray_proto::v1::EgressAnswer;
use rmcp::model::{
    ClientCapabilities, ClientConfig, ElicitRequestParams, ElicitResult, ElicitationAction,
};

use super::*;

const QUESTION_ID: &str = "egq_0000000000000000000000000000000000000001";

/// A client whose user gives this answer to every question.
#[derive(Debug)]
struct AnsweringClient(ElicitResult);

impl ClientHandler for AnsweringClient {
    fn get_info(&self) -> ClientConfig {
        let mut info = ClientConfig::default();
        info.capabilities = ClientCapabilities::builder().enable_elicitation().build();
        info
    }

    async fn create_elicitation(
        &self,
        request: ElicitRequestParams,
        _context: RequestContext<RoleClient>,
    ) -> Result<ElicitResult, ErrorData> {
        let request_text = serde_json::to_string(&request).unwrap();
        assert!(
            request_text.contains("a.example on port 443"),
            "{request_text}"
        );
        Ok(self.0.clone())
    }
}

fn question() -> v1::EgressQuestion {
    v1::EgressQuestion {
        id: QUESTION_ID.to_owned(),
        session: "s1".to_owned(),
        host: "a.example".to_owned(),
        port: 443,
        ..v1::EgressQuestion::default()
    }
}

/// An egress-fetcher that asks about one host, and the answers that hold. An operator gives the answer `meanwhile` after
/// the question was listed.
async fn serve_questions(
    bus: &Bus,
    meanwhile: Option<EgressAnswer>,
) -> (JoinSet<()>, Arc<Mutex<Vec<EgressAnswer>>>) {
    let answers: Arc<Mutex<Vec<EgressAnswer>>> = Arc::default();
    let mut tasks = JoinSet::new();
    let subject = call_subject::<v1::FetchRequest>();
    let mut fetches = bus.respond_to(&subject, "egress-fetcher").await.unwrap();
    let known = answers.clone();
    tasks.spawn(async move {
        while let Some(request) = fetches.next().await {
            let last = known.lock().unwrap().last().copied();
            let fault = match last {
                None => {
                    let message = format!("Question {QUESTION_ID} waits for an answer.");
                    Fault::new(FaultCode::Denied, message).detail("approval_required")
                }
                Some(EgressAnswer::Allow) => {
                    Fault::new(FaultCode::NotFound, "No such file.").detail("http_status")
                }
                Some(_) => Fault::new(FaultCode::Denied, "No.").detail("policy_denied"),
            };
            request.answer::<v1::FetchReply>(Err(fault)).await;
        }
    });
    let subject = call_subject::<v1::ListEgressQuestionsRequest>();
    let mut lists = bus.respond_to(&subject, "egress-fetcher").await.unwrap();
    let answered = answers.clone();
    tasks.spawn(async move {
        while let Some(request) = lists.next().await {
            answered.lock().unwrap().extend(meanwhile);
            let reply = v1::ListEgressQuestionsReply {
                questions: vec![question()],
                truncated: false,
                ..v1::ListEgressQuestionsReply::default()
            };
            request.answer(Ok(reply)).await;
        }
    });
    let subject = call_subject::<v1::AnswerEgressQuestionRequest>();
    let service = bus.respond_to(&subject, "egress-fetcher").await.unwrap();
    tasks.spawn(serve_answers(service, answers.clone()));
    (tasks, answers)
}

/// Records answers, and refuses those to an answered question if they are only for an open one.
async fn serve_answers(mut service: Responder, given: Arc<Mutex<Vec<EgressAnswer>>>) {
    while let Some(request) = service.next().await {
        let answer: v1::AnswerEgressQuestionRequest = request.decode().unwrap();
        assert_eq!(
            (
                answer.id.as_str(),
                answer.principal.as_str(),
                answer.valid_ms
            ),
            (QUESTION_ID, "mcp operator", 60_000)
        );
        let is_refused = answer.only_waiting && !given.lock().unwrap().is_empty();
        if is_refused {
            let fault = Fault::new(FaultCode::InvalidArgument, "Answered.");
            let fault = fault.detail("question_answered");
            let refused = Err(fault);
            request
                .answer::<v1::AnswerEgressQuestionReply>(refused)
                .await;
            continue;
        }
        given.lock().unwrap().push(answer.answer());
        request
            .answer(Ok(v1::AnswerEgressQuestionReply::default()))
            .await;
    }
}

#[tokio::test]
async fn a_person_of_an_earlier_version_answers_during_the_call() {
    let accepted = |allow: Value| {
        ElicitResult::new(ElicitationAction::Accept).with_content(json!({"allow_host": allow}))
    };
    for (reply, expected, given) in [
        (
            accepted(json!(true)),
            "No such file",
            vec![EgressAnswer::Allow],
        ),
        (
            accepted(json!(false)),
            "policy_denied",
            vec![EgressAnswer::Deny],
        ),
        (accepted(json!("true")), "waits for an answer", Vec::new()),
        (
            ElicitResult::new(ElicitationAction::Cancel),
            "waits for an answer",
            Vec::new(),
        ),
    ] {
        let options = ServerOptions {
            approve_hosts: Some(Duration::from_mins(1)),
            ..ServerOptions::default()
        };
        let client = AnsweringClient(reply);
        let fixture = Box::pin(ServerFixture::with_client(options, client)).await;
        let (_tasks, answers) = serve_questions(&fixture.bus, None).await;
        let result = fixture
            .call("fetch", json!({"url": "https://a.example/x"}))
            .await;
        let shown = serde_json::to_string(&result).unwrap();
        assert!(shown.contains(expected), "{expected}: {shown}");
        assert_eq!(*answers.lock().unwrap(), given);
    }
}

#[tokio::test]
async fn the_answer_of_an_operator_holds_against_a_later_one_of_the_person_at_the_client() {
    for (meanwhile, expected) in [
        (EgressAnswer::Deny, "policy_denied"),
        (EgressAnswer::Allow, "No such file"),
    ] {
        let options = ServerOptions {
            approve_hosts: Some(Duration::from_mins(1)),
            ..ServerOptions::default()
        };
        let is_allowed = meanwhile == EgressAnswer::Deny;
        let opposite = ElicitResult::new(ElicitationAction::Accept)
            .with_content(json!({"allow_host": is_allowed}));
        let client = AnsweringClient(opposite);
        let fixture = Box::pin(ServerFixture::with_client(options, client)).await;
        let (_tasks, answers) = serve_questions(&fixture.bus, Some(meanwhile)).await;
        let result = fixture
            .call("fetch", json!({"url": "https://a.example/x"}))
            .await;
        let shown = serde_json::to_string(&result).unwrap();
        assert!(shown.contains(expected), "{expected}: {shown}");
        assert_eq!(*answers.lock().unwrap(), [meanwhile]);
    }
}
