//! Connections about which a person is asked.

use std::time::Duration;

use dray_bus::Meta;
use dray_types::{Deadline, Fault};

use super::*;

const POLICY_TEXT: &str = r#"
[[role]]
name = "sandboxes"
tenants = ["acme"]
[[role.rule]]
name = "others"
outcome = "ask"
"#;

struct AskedProxy {
    proxy: ProxyFixture,
    directory: tempfile::TempDir,
}

impl AskedProxy {
    async fn start() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("policy.toml");
        std::fs::write(&path, POLICY_TEXT).unwrap();
        let set = [
            ("/policy_path", path.to_str().unwrap()),
            ("plain_ports", "443"),
        ];
        Self {
            proxy: ProxyFixture::start(&set).await,
            directory,
        }
    }

    fn meta(&self) -> Meta {
        let cx = self.proxy.service.running.context();
        let deadline = Deadline::after(cx.clock.now_ms(), Duration::from_secs(10));
        Meta::new(TenantId::new("acme").unwrap(), deadline)
    }

    async fn questions(&self) -> Vec<v1::EgressQuestion> {
        let bus = &self.proxy.service.running.context().bus;
        let request = v1::ListEgressQuestionsRequest::default();
        bus.call(&self.meta(), &request).await.unwrap().questions
    }

    async fn answer(&self, id: &str, answer: v1::EgressAnswer, valid_ms: u64) -> Result<(), Fault> {
        let mut request = v1::AnswerEgressQuestionRequest {
            id: id.to_owned(),
            valid_ms,
            principal: "ops".to_owned(),
            ..v1::AnswerEgressQuestionRequest::default()
        };
        request.set_answer(answer);
        let bus = &self.proxy.service.running.context().bus;
        let answered = bus.call(&self.meta(), &request).await;
        answered.map(drop).map_err(Fault::from)
    }
}

/// The id in the body of a refusal.
fn question_in(response: &str) -> &str {
    let mut words = response.split_whitespace();
    let id = words.find(|word| word.starts_with("egq_"));
    id.unwrap_or_else(|| panic!("no question in {response}"))
}

#[tokio::test]
async fn a_refusal_names_the_question_and_a_later_request_passes_until_the_answer_ends() {
    let AskedProxy {
        mut proxy,
        directory,
    } = AskedProxy::start().await;
    let url = format!("http://{TARGET_HOST}/");
    let refused = proxy.get(&url).await;
    assert_eq!(status_of(&refused), 403);
    assert!(
        code_of(&refused).starts_with("approval_required\n"),
        "{refused}"
    );
    assert!(refused.contains("\r\nRetry-After: 30\r\n"), "{refused}");
    let id = question_in(&refused).to_owned();
    let event = proxy.event().await;
    assert_eq!(
        (
            event.proxy_stage.as_str(),
            event.code.as_str(),
            event.rule.as_str()
        ),
        ("refused", "approval_required", "policy_rules")
    );
    assert_eq!(event.question_id, id);
    assert_eq!(event.decided_by, "sandboxes/others (policy.toml:5)");
    assert_eq!(proxy.fake_network.dialled(), Vec::<String>::new());
    // The repeated request creates no new question.
    assert_eq!(question_in(&proxy.get(&url).await), id);
    proxy.event().await;

    let asked = AskedProxy { proxy, directory };
    let [question] = &asked.questions().await[..] else {
        panic!("there must be one question")
    };
    assert_eq!(
        (question.id.as_str(), question.session.as_str()),
        (id.as_str(), "chat-1")
    );
    assert_eq!((question.host.as_str(), question.port), (TARGET_HOST, 80));
    asked.answer(&id, v1::EgressAnswer::Allow, 0).await.unwrap();
    let mut proxy = asked.proxy;
    assert_eq!(status_of(&proxy.get(&url).await), 200);
    let opened = proxy.event().await;
    assert_eq!(
        (opened.proxy_stage.as_str(), opened.question_id.as_str()),
        ("opened", id.as_str())
    );
    proxy.event().await;
    // Another session has to ask for itself, and another port is another question.
    let other = proxy.token_of("chat-2", None);
    let request = format!(
        "GET {url} HTTP/1.1\r\nHost: {TARGET_HOST}\r\nProxy-Authorization: Bearer {other}\r\n\r\n"
    );
    assert_ne!(question_in(&proxy.exchange(request).await), id);
    let (_, tunnel) = proxy.tunnel(&format!("{TARGET_HOST}:443")).await;
    assert_eq!(status_of(&tunnel), 403);
}

#[tokio::test]
async fn a_denial_is_a_refusal_and_a_tunnel_ends_with_its_answer() {
    let fixture = AskedProxy::start().await;
    let authority = format!("{TARGET_HOST}:443");
    let mut ends = fixture.proxy.be_server(PUBLIC_ADDRESS, 443);
    let (mut client, head) = fixture.proxy.tunnel(&authority).await;
    let body = read_all(&mut client).await;
    assert_eq!(status_of(&head), 403);
    let id = question_in(&body);
    fixture.answer(id, v1::EgressAnswer::Deny, 0).await.unwrap();
    let (mut client, head) = fixture.proxy.tunnel(&authority).await;
    assert_eq!(status_of(&head), 403);
    assert_eq!(read_all(&mut client).await, "policy_denied\n");

    fixture
        .answer(id, v1::EgressAnswer::Allow, 300)
        .await
        .unwrap();
    let (mut client, head) = fixture.proxy.tunnel(&authority).await;
    assert_eq!(status_of(&head), 200);
    let _server = ends.recv().await.unwrap();
    // Neither end closes the tunnel itself.
    assert_eq!(read_all(&mut client).await, "");
    let (mut client, head) = fixture.proxy.tunnel(&authority).await;
    assert_eq!(status_of(&head), 403);
    assert_ne!(question_in(&read_all(&mut client).await), id);
}

#[tokio::test]
async fn an_answer_that_is_taken_back_ends_its_tunnel() {
    let mut fixture = AskedProxy::start().await;
    let authority = format!("{TARGET_HOST}:443");
    let mut ends = fixture.proxy.be_server(PUBLIC_ADDRESS, 443);
    let (mut client, _) = fixture.proxy.tunnel(&authority).await;
    let refused = read_all(&mut client).await;
    let id = question_in(&refused);
    assert_eq!(fixture.proxy.event().await.code, "approval_required");
    fixture
        .answer(id, v1::EgressAnswer::Allow, 0)
        .await
        .unwrap();
    let (mut client, head) = fixture.proxy.tunnel(&authority).await;
    assert_eq!(status_of(&head), 200);
    let _server = ends.recv().await.unwrap();
    assert_eq!(fixture.proxy.event().await.proxy_stage, "opened");
    fixture.answer(id, v1::EgressAnswer::Deny, 0).await.unwrap();
    // Neither end closes the tunnel itself.
    assert_eq!(read_all(&mut client).await, "");
    let closed = fixture.proxy.event().await;
    assert_eq!(
        (closed.proxy_stage.as_str(), closed.code.as_str()),
        ("closed", "policy_denied")
    );
    assert_eq!(closed.question_id, id);
}

#[tokio::test]
async fn a_port_that_the_proxy_never_opens_causes_no_question() {
    let fixture = AskedProxy::start().await;
    let (_, head) = fixture.proxy.tunnel(&format!("{TARGET_HOST}:80")).await;
    assert_eq!(status_of(&head), 403);
    let gone = fixture.answer("egq_1", v1::EgressAnswer::Allow, 0).await;
    assert_eq!(gone.unwrap_err().detail, "question_gone");
    assert_eq!(fixture.questions().await, Vec::new());
}
