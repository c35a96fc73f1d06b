//! Questions about hosts to the person at the client, as `input_required` of 2026-07-28: who may answer, and for what.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use dray_mcp::{KeyLocation, ServerOptions};
use dray_proto::contract::call_subject;
use dray_proto::v1::{self, EgressAnswer};
use dray_types::{Fault, FaultCode};
use serde_json::{Value, json};
use tokio::task::JoinSet;

use crate::client::call_with;
use crate::fixture::HttpFixture;
use crate::issuer::JWKS_URL;

/// Questions of the tenant, as the egress-fetcher keeps them. Every host is asked about once.
#[derive(Clone, Default)]
struct FakeQuestions(Arc<Mutex<QuestionState>>);

#[derive(Default)]
struct QuestionState {
    questions: Vec<v1::EgressQuestion>,
    answers: Vec<v1::AnswerEgressQuestionRequest>,
    /// Hosts to which the fetch leads, in order; the last one has the file.
    chain: Vec<&'static str>,
}

impl QuestionState {
    /// Asks about a host, and returns the id of the question.
    fn ask_about(&mut self, host: &str) -> String {
        let id = format!("egq_{:040x}", self.questions.len() + 1);
        self.questions.push(v1::EgressQuestion {
            id: id.clone(),
            session: "s7".to_owned(),
            host: host.to_owned(),
            port: 443,
            rule: "web/ask (a.toml:3)".to_owned(),
            ..v1::EgressQuestion::default()
        });
        id
    }
}

impl FakeQuestions {
    async fn serve(http: &HttpFixture, chain: &[&'static str], tasks: &mut JoinSet<()>) -> Self {
        let fake = Self::default();
        fake.0.lock().unwrap().chain = chain.to_vec();
        let handle = fake.clone();
        http.issuer.serve_fetches(move |_| Err(handle.fetch()));
        let handle = fake.clone();
        let subject = call_subject::<v1::ListEgressQuestionsRequest>();
        let mut lists = http.bus.respond_to(&subject, "fake").await.unwrap();
        tasks.spawn(async move {
            while let Some(request) = lists.next().await {
                let questions = handle.0.lock().unwrap().questions.clone();
                let waiting = questions.into_iter();
                let waiting =
                    waiting.filter(|question| question.answer() == EgressAnswer::Unspecified);
                let reply = v1::ListEgressQuestionsReply {
                    questions: waiting.collect(),
                    truncated: false,
                    ..v1::ListEgressQuestionsReply::default()
                };
                request.answer(Ok(reply)).await;
            }
        });
        let handle = fake.clone();
        let subject = call_subject::<v1::AnswerEgressQuestionRequest>();
        let mut answers = http.bus.respond_to(&subject, "fake").await.unwrap();
        tasks.spawn(async move {
            while let Some(request) = answers.next().await {
                let answer: v1::AnswerEgressQuestionRequest = request.decode().unwrap();
                request.answer(handle.record(answer)).await;
            }
        });
        fake
    }

    /// The fault of a fetch: the question about the first host that is not allowed, or that of the server.
    fn fetch(&self) -> Fault {
        let mut state = self.0.lock().unwrap();
        for host in state.chain.clone() {
            let known = state
                .questions
                .iter()
                .find(|question| question.host == host);
            let answer = known.map(v1::EgressQuestion::answer);
            match answer {
                Some(EgressAnswer::Allow) => {}
                Some(EgressAnswer::Deny) => {
                    return Fault::new(FaultCode::Denied, "No.").detail("policy_denied");
                }
                _ => {
                    let id = match known {
                        Some(question) => question.id.clone(),
                        None => state.ask_about(host),
                    };
                    let message = format!("A person is asked. Question {id} waits for an answer.");
                    return Fault::new(FaultCode::Denied, message).detail("approval_required");
                }
            }
        }
        Fault::new(FaultCode::NotFound, "The server has no such file.").detail("http_status")
    }

    fn record(
        &self,
        answer: v1::AnswerEgressQuestionRequest,
    ) -> Result<v1::AnswerEgressQuestionReply, Fault> {
        let mut state = self.0.lock().unwrap();
        let mut questions = state.questions.iter_mut();
        let question = questions.find(|question| question.id == answer.id);
        let question = question.ok_or_else(|| Fault::new(FaultCode::NotFound, "Gone."))?;
        question.set_answer(answer.answer());
        let question = question.clone();
        state.answers.push(answer);
        Ok(v1::AnswerEgressQuestionReply {
            question: Some(question),
        })
    }

    fn answers(&self) -> Vec<v1::AnswerEgressQuestionRequest> {
        self.0.lock().unwrap().answers.clone()
    }
}

struct AskingFixture {
    http: HttpFixture,
    fake: FakeQuestions,
    token: String,
    _tasks: JoinSet<()>,
}

impl AskingFixture {
    async fn new(approve_hosts: Option<Duration>, scope: &str, chain: &[&'static str]) -> Self {
        let options = ServerOptions {
            approve_hosts,
            ..ServerOptions::default()
        };
        let http = HttpFixture::with(KeyLocation::Url(JWKS_URL.to_owned()), options).await;
        let mut tasks = JoinSet::new();
        let fake = FakeQuestions::serve(&http, chain, &mut tasks).await;
        let claims = json!({"scope": scope, "tenant": "own", "session": "s7"});
        let token = http.issuer.token(&claims);
        Self {
            http,
            fake,
            token,
            _tasks: tasks,
        }
    }

    async fn call_as(&self, token: &str, further: &Value, capabilities: Value) -> Value {
        let mut params = json!({"name": "fetch", "arguments": {"url": "https://a.example/x"}});
        for (name, value) in further.as_object().unwrap() {
            params[name] = value.clone();
        }
        let address = self.http.address;
        call_with(address, Some(token), "tools/call", params, capabilities)
            .await
            .message()
    }

    /// A call of a client that can ask a person.
    async fn call(&self, further: Value) -> Value {
        let capabilities = json!({
            "elicitation": {"form": {}}, "extensions": {"io.modelcontextprotocol/tasks": {}},
        });
        self.call_as(&self.token, &further, capabilities).await
    }
}

const APPROVAL_PERIOD: Option<Duration> = Some(Duration::from_mins(15));

fn answer_question(asked: &Value, is_allowed: bool) -> Value {
    json!({
        "inputResponses": {"allow_host": {"action": "accept", "content": {"allow_host": is_allowed}}},
        "requestState": asked["result"]["requestState"],
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn each_host_of_a_chain_is_asked_about_and_the_fetch_runs_after_the_answers() {
    let chain = ["a.example", "b.example"];
    let fixture = AskingFixture::new(APPROVAL_PERIOD, "read fetch approve", &chain).await;
    let first_reply = fixture.call(json!({})).await;
    assert_eq!(
        first_reply["result"]["resultType"], "input_required",
        "{first_reply}"
    );
    let text = first_reply["result"]["inputRequests"]["allow_host"]["params"]["message"].clone();
    let text = text.as_str().unwrap();
    assert!(text.contains("s7 reach a.example on port 443"), "{text}");
    assert!(
        text.contains("web/ask (a.toml:3)") && text.contains("15m"),
        "{text}"
    );
    // The answer about the first host does not count for the second one.
    let second = fixture.call(answer_question(&first_reply, true)).await;
    let question = &second["result"]["inputRequests"]["allow_host"]["params"]["message"];
    assert!(question.as_str().unwrap().contains("b.example"), "{second}");
    let replayed = fixture.call(answer_question(&first_reply, true)).await;
    assert_eq!(replayed["error"]["code"], -32_602, "{replayed}");
    assert_eq!(fixture.fake.answers().len(), 1);
    let fetched = fixture.call(answer_question(&second, true)).await;
    assert!(fetched.to_string().contains("no such file"), "{fetched}");
    let answers = fixture.fake.answers();
    assert_eq!(answers.len(), 2);
    for answer in answers {
        assert_eq!(answer.answer(), EgressAnswer::Allow);
        assert_eq!(answer.valid_ms, 900_000);
        // Subjects of an issuer are digests.
        assert!(
            answer.principal.starts_with("mcp oauth:"),
            "{}",
            answer.principal
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_counts_only_for_its_caller_and_call() {
    let fixture = AskingFixture::new(APPROVAL_PERIOD, "read fetch approve", &["a.example"]).await;
    let response = fixture.call(json!({})).await;
    let own = answer_question(&response, true);
    let with = |name: &str, value: Value| {
        let mut changed = own.clone();
        changed[name] = value;
        changed
    };
    let state = own["requestState"].as_str().unwrap();
    let unclear = json!({"allow_host": {"action": "accept", "content": {"allow_host": "yes"}}});
    for (further, expected) in [
        // An answer without a state, with a changed state, to a call with another URL, and two that do not decide.
        (with("requestState", Value::Null), "input_required"),
        (with("requestState", json!(format!("{state}x"))), "-32602"),
        (
            with("arguments", json!({"url": "https://a.example/y"})),
            "-32602",
        ),
        (with("inputResponses", unclear), "waits for an answer"),
        (
            with(
                "inputResponses",
                json!({"allow_host": {"action": "cancel"}}),
            ),
            "waits for an answer",
        ),
    ] {
        let reply = fixture.call(further.clone()).await;
        assert!(reply.to_string().contains(expected), "{further}: {reply}");
    }
    // Another person of the same session.
    let claims = json!({
        "scope": "read fetch approve", "tenant": "own", "session": "s7", "sub": "user-2",
    });
    let other = fixture.http.issuer.token(&claims);
    let asking = json!({"elicitation": {"form": {}}});
    let reply = fixture.call_as(&other, &own, asking).await;
    assert!(reply.to_string().contains("-32602"), "{reply}");
    assert!(fixture.fake.answers().is_empty());
    // A refusal is an answer: the host is not asked about again.
    let refused = fixture.call(answer_question(&response, false)).await;
    assert!(refused.to_string().contains("policy_denied"), "{refused}");
    assert_eq!(fixture.fake.answers()[0].answer(), EgressAnswer::Deny);
}

#[tokio::test(flavor = "multi_thread")]
async fn without_the_setting_the_scope_or_elicitation_the_caller_is_referred_to_an_approver() {
    let asking = json!({"elicitation": {"form": {}}});
    for (setting, scope, capabilities) in [
        (None, "read fetch approve", asking.clone()),
        (APPROVAL_PERIOD, "read fetch", asking),
        (APPROVAL_PERIOD, "read fetch approve", json!({})),
    ] {
        let fixture = AskingFixture::new(setting, scope, &["a.example"]).await;
        let reply = fixture
            .call_as(&fixture.token, &json!({}), capabilities)
            .await;
        let id = format!("egq_{:040x}", 1);
        assert!(reply.to_string().contains(&id), "{reply}");
        assert!(reply.to_string().contains("approval_required"), "{reply}");
        assert!(fixture.fake.answers().is_empty());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_question_of_another_session_is_not_put_to_this_person() {
    let fixture = AskingFixture::new(APPROVAL_PERIOD, "read fetch approve", &["a.example"]).await;
    let claims = json!({"scope": "read fetch approve", "tenant": "own", "session": "s8"});
    let other = fixture.http.issuer.token(&claims);
    let asking = json!({"elicitation": {"form": {}}});
    let reply = fixture.call_as(&other, &json!({}), asking).await;
    assert!(reply.to_string().contains("waits for an answer"), "{reply}");
    assert!(reply["result"]["resultType"] != "input_required", "{reply}");
}
