//! Tests of fetches from hosts about which the rules ask a person.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use dray_guard::ruleset::PolicyText;
use dray_guard::{Caller, RuleSet};
use dray_testkit::http::{ResponseScript, ResponseStep};
use futures_util::future::BoxFuture;

use super::fake_network::*;
use crate::fetch::{
    FetchJob, Fetcher, HeldAnswer, HostAnswer, HostApprovals, HostQuestion, QuestionId,
};
use crate::record::FetchRecord;

const POLICY_TEXT: &str = r#"
[[deny]]
name = "paste"
hosts = ["pastebin.com"]
[[role]]
name = "acme"
[[role.rule]]
name = "known"
outcome = "allow"
hosts = ["files.example.org"]
[[role.rule]]
name = "others"
outcome = "ask"
"#;

/// Allows the hosts of a list, and lets every other question wait.
#[derive(Default)]
struct FakeApprovals {
    allowed: Mutex<Vec<&'static str>>,
    asked: Mutex<Vec<String>>,
    /// When an answer is taken back; `None` for never.
    withdrawn_after: Mutex<Option<Duration>>,
}

impl HostApprovals for FakeApprovals {
    fn consult<'a>(&'a self, question: &'a HostQuestion) -> BoxFuture<'a, HostAnswer> {
        let id = QuestionId::new([1; 12], 2);
        let target = format!("{}:{}", question.host, question.port);
        let is_allowed = self.allowed.lock().unwrap().contains(&target.as_str());
        let answer = match (is_allowed, question.may_ask) {
            (true, _) => HostAnswer::Allowed {
                id,
                valid_for: Duration::from_mins(1),
            },
            (false, true) => HostAnswer::Waiting(id),
            (false, false) => HostAnswer::NotAsked,
        };
        if question.may_ask {
            self.asked.lock().unwrap().push(target);
        }
        Box::pin(std::future::ready(answer))
    }

    fn withdrawal<'a>(&'a self, _answer: &'a HeldAnswer) -> BoxFuture<'a, ()> {
        let delay = *self.withdrawn_after.lock().unwrap();
        Box::pin(async move {
            match delay {
                Some(delay) => tokio::time::sleep(delay).await, // paused clock
                None => std::future::pending().await,
            }
        })
    }
}

/// A fetcher with the rules, and the answers of people.
fn fetcher_with_approvals(fixture: &FetcherFixture) -> (Fetcher, Arc<FakeApprovals>) {
    let approvals = Arc::new(FakeApprovals::default());
    let fetcher = fixture.fetcher().with_approvals(approvals.clone());
    set_rules(&fetcher);
    (fetcher, approvals)
}

fn set_rules(fetcher: &Fetcher) {
    let rules = RuleSet::parse(&[PolicyText::new("policy.toml", POLICY_TEXT)]).unwrap();
    fetcher.set_rules(Arc::new(rules));
}

fn job_in(session: &str, url: &str) -> FetchJob {
    FetchJob {
        caller: Caller {
            tenant: "acme".to_owned(),
            session: session.to_owned(),
            ..Caller::default()
        },
        ..request(url)
    }
}

fn with_other_host(body: &str) -> FetcherFixture {
    let fixture = FetcherFixture::default();
    fixture
        .fake_network
        .name("other.example.org", &[OTHER_PUBLIC_ADDRESS]);
    fixture
        .fake_network
        .serve(OTHER_PUBLIC_ADDRESS, ResponseScript::ok(body));
    fixture
}

#[tokio::test(start_paused = true)]
async fn a_fetch_fails_with_the_question_until_a_person_allows_the_host() {
    let fixture = with_other_host("hello");
    let (fetcher, approvals) = fetcher_with_approvals(&fixture);
    let job = job_in("chat-1", "http://other.example.org/a");
    let waiting = run(&fetcher, &job).await;
    assert_eq!(waiting.end(), ("approval_required", "policy"));
    let fault = waiting.result.as_ref().unwrap_err().fault.clone();
    let id = QuestionId::new([1; 12], 2);
    assert!(
        fault
            .message
            .ends_with(&format!("Question {id} waits for an answer.")),
        "{fault:?}"
    );
    assert!(fault.is_retryable());
    assert_eq!(fixture.fake_network.queried_names(), Vec::<String>::new());

    approvals
        .allowed
        .lock()
        .unwrap()
        .push("other.example.org:80");
    let allowed = run(&fetcher, &job).await;
    assert_eq!(allowed.code(), "ok");
    let record = allowed.record;
    assert_eq!(record.question, Some(id));
    assert_eq!(record.decision.unwrap().rule.name, "acme/others");
    // The record has only the steps and hops of the judgement with the answer.
    assert_eq!(record.hops.len(), 1);
    let steps = record.steps.steps().iter();
    assert_eq!(
        steps
            .filter(|step| step.step == dray_guard::PolicyStep::Url)
            .count(),
        1
    );
}

#[tokio::test(start_paused = true)]
async fn a_fetch_ends_when_the_answer_that_allows_it_is_taken_back() {
    let fixture = with_other_host("");
    let head = "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhe";
    let script = ResponseScript::raw(head).then(ResponseStep::Hold);
    fixture.fake_network.serve(OTHER_PUBLIC_ADDRESS, script);
    let target = ResponseScript::redirect(302, "http://other.example.org/x");
    fixture.fake_network.serve(PUBLIC_ADDRESS, target);
    let (fetcher, approvals) = fetcher_with_approvals(&fixture);
    approvals
        .allowed
        .lock()
        .unwrap()
        .push("other.example.org:80");
    *approvals.withdrawn_after.lock().unwrap() = Some(Duration::from_secs(3));
    for url in ["http://other.example.org/a", "http://files.example.org/"] {
        let outcome = run(&fetcher, &job_in("chat-1", url)).await;
        assert_eq!(outcome.end(), ("policy_denied", "policy"), "{url}");
    }
}

#[tokio::test(start_paused = true)]
async fn without_a_session_or_anyone_to_ask_the_host_is_refused() {
    let fixture = with_other_host("hello");
    let (fetcher, approvals) = fetcher_with_approvals(&fixture);
    let outcome = run(&fetcher, &job_in("", "http://other.example.org/")).await;
    assert_eq!(outcome.end(), ("policy_denied", "policy"));
    let outcome = run(&fetcher, &job_in("chat-1", "http://pastebin.com/")).await;
    assert_eq!(outcome.end(), ("policy_denied", "policy"));
    assert_eq!(*approvals.asked.lock().unwrap(), Vec::<String>::new());
    let without_approvals = fixture.fetcher();
    set_rules(&without_approvals);
    let outcome = run(
        &without_approvals,
        &job_in("chat-1", "http://other.example.org/"),
    )
    .await;
    assert_eq!(outcome.end(), ("policy_denied", "policy"));
}

#[tokio::test(start_paused = true)]
async fn x_5_the_target_of_a_redirect_needs_an_answer_of_its_own() {
    let fixture = with_other_host("hello");
    let target = ResponseScript::redirect(302, "http://other.example.org/x");
    fixture.fake_network.serve(PUBLIC_ADDRESS, target);
    let (fetcher, approvals) = fetcher_with_approvals(&fixture);
    let job = job_in("chat-1", "http://files.example.org/");
    let waiting = run(&fetcher, &job).await;
    assert_eq!(waiting.end(), ("approval_required", "policy"));
    let message = waiting.result.unwrap_err().fault.message;
    assert!(!message.contains("other.example.org"), "X-6: {message}");
    assert_eq!(*approvals.asked.lock().unwrap(), ["other.example.org:80"]);
    approvals
        .allowed
        .lock()
        .unwrap()
        .push("other.example.org:80");
    let allowed = run(&fetcher, &job).await;
    assert_eq!(allowed.code(), "ok");
    let hops: Vec<u32> = allowed.record.hops.iter().map(|hop| hop.index).collect();
    assert_eq!(hops, [0, 1]);
}

#[tokio::test(start_paused = true)]
async fn i_5_an_answer_opens_no_address_that_is_closed() {
    let fixture = FetcherFixture::default();
    fixture
        .fake_network
        .name("inside.example.org", &["10.0.0.1"]);
    let (fetcher, approvals) = fetcher_with_approvals(&fixture);
    approvals
        .allowed
        .lock()
        .unwrap()
        .push("inside.example.org:80");
    let outcome = run(&fetcher, &job_in("chat-1", "http://inside.example.org/")).await;
    assert_eq!(outcome.code(), "ssrf_blocked");
}

#[tokio::test(start_paused = true)]
async fn an_explanation_asks_nothing_and_knows_an_answer() {
    let fixture = with_other_host("hello");
    let (fetcher, approvals) = fetcher_with_approvals(&fixture);
    let job = job_in("chat-1", "http://other.example.org/");
    let mut record = FetchRecord::default();
    let explanation = fetcher.explain(&job, false, &mut record).await;
    assert_eq!(
        explanation.refusal.unwrap().code,
        dray_guard::Code::ApprovalRequired
    );
    assert_eq!(*approvals.asked.lock().unwrap(), Vec::<String>::new());
    approvals
        .allowed
        .lock()
        .unwrap()
        .push("other.example.org:80");
    let mut record = FetchRecord::default();
    let explanation = fetcher.explain(&job, false, &mut record).await;
    assert_eq!(explanation.refusal, None);
}
