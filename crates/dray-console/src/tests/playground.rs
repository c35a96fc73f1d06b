//! Tests of the playground with a fake orchestrator: the requests that it gets, and the pages with its responses.

mod forms;

use std::sync::{Arc, Mutex};

use axum::Router;
use axum::body::Body;
use axum::extract::{Request, State};
use axum::response::Response;
use axum::routing::{get, post};
use dray_http_server::{ConnectionLimits, serve};
use dray_proto::v1::{ConsoleAction, ConsoleStage};
use dray_types::Secret;
use futures_util::stream;
use serde_json::{Value, json};
use tokio::sync::mpsc;

use super::acts::AuditTrail;
use super::*;

/// Key of the console's client.
const CLIENT_KEY: &str = "client-5ec2e7";

/// A request to the orchestrator: path, `Authorization` and body.
type SentRequest = (String, String, String);

/// An orchestrator whose responses the test writes.
#[derive(Clone, Default)]
struct FakeOrchestrator {
    sent: Arc<Mutex<Vec<SentRequest>>>,
    /// The prepared responses, in the order of the requests that get them.
    responses: Arc<Mutex<Vec<mpsc::UnboundedReceiver<Bytes>>>>,
    /// The tenant that it names; `None` for an orchestrator of an earlier version.
    tenant: Arc<Mutex<Option<&'static str>>>,
    /// Agents beside those that it always lists.
    further_agents: Arc<Mutex<usize>>,
}

/// The response to one request, which the test sends in parts.
struct ResponseWriter(mpsc::UnboundedSender<Bytes>);

impl ResponseWriter {
    fn delta(&self, delta: &Value) {
        self.chunk(&json!({ "choices": [{ "index": 0, "delta": delta }] }));
    }

    fn chunk(&self, chunk: &Value) {
        self.0.send(format!("data: {chunk}\n\n").into()).unwrap();
    }

    /// Ends the response.
    fn end(self) {
        self.chunk(&json!({
            "choices": [{ "index": 0, "delta": {}, "finish_reason": "stop" }],
            "usage": { "prompt_tokens": 7, "completion_tokens": 9 },
        }));
        self.0
            .send(Bytes::from_static(b"data: [DONE]\n\n"))
            .unwrap();
    }
}

impl FakeOrchestrator {
    async fn start(&self, tasks: &mut JoinSet<()>) -> String {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let router = Router::new()
            .route("/v1/models", get(list_models))
            .route("/v1/files", post(store_file))
            .route("/v1/chat/completions", post(respond_to_chat))
            .with_state(self.clone());
        let serving = serve(
            listener,
            router,
            ConnectionLimits::default(),
            CancellationToken::new(),
        );
        tasks.spawn(async move {
            let _outcome = serving.await;
        });
        format!("http://{address}")
    }

    /// Prepares the response to the next request.
    fn expect_request(&self) -> ResponseWriter {
        let (writer, reader) = mpsc::unbounded_channel();
        self.responses.lock().unwrap().push(reader);
        ResponseWriter(writer)
    }

    fn chats(&self) -> Vec<Value> {
        let sent = self.sent.lock().unwrap();
        let chats = sent
            .iter()
            .filter(|(path, ..)| path.ends_with("completions"));
        chats
            .map(|(.., body)| serde_json::from_str(body).unwrap())
            .collect()
    }
}

async fn record_request(fake: &FakeOrchestrator, request: Request) {
    let path = request.uri().path().to_owned();
    let key = request.headers().get("authorization");
    let key = key.map_or("", |key| key.to_str().unwrap()).to_owned();
    let body = axum::body::to_bytes(request.into_body(), 32 << 20).await;
    let body = String::from_utf8_lossy(&body.unwrap()).into_owned();
    fake.sent.lock().unwrap().push((path, key, body));
}

async fn list_models(State(fake): State<FakeOrchestrator>, request: Request) -> Response {
    record_request(&fake, request).await;
    let mut agents = vec![json!({ "id": "clerk" }), json!({ "id": "<b>bold</b>" })];
    let further = 0..*fake.further_agents.lock().unwrap();
    agents.extend(further.map(|number| json!({ "id": format!("agent-{number}") })));
    let list = json!({ "data": agents });
    let mut response = Response::new(Body::from(list.to_string()));
    if let Some(tenant) = *fake.tenant.lock().unwrap() {
        let tenant = http::HeaderValue::from_static(tenant);
        response.headers_mut().insert("dray-tenant", tenant);
    }
    response
}

async fn store_file(State(fake): State<FakeOrchestrator>, request: Request) -> String {
    record_request(&fake, request).await;
    json!({ "id": "file-1" }).to_string()
}

async fn respond_to_chat(State(fake): State<FakeOrchestrator>, request: Request) -> Response {
    record_request(&fake, request).await;
    let reader = {
        let mut responses = fake.responses.lock().unwrap();
        (!responses.is_empty()).then(|| responses.remove(0))
    };
    let Some(reader) = reader else {
        let refusal = json!({ "error": { "message": "The model '<i>x</i>' does not exist" } });
        let mut response = Response::new(Body::from(refusal.to_string()));
        *response.status_mut() = http::StatusCode::NOT_FOUND;
        return response;
    };
    let chunks = stream::unfold(reader, async |mut reader| {
        let chunk = reader.recv().await?;
        Some((Ok::<_, std::io::Error>(chunk), reader))
    });
    Response::new(Body::from_stream(chunks))
}

/// A console with its orchestrator.
struct Playground {
    console: ConsoleFixture,
    fake: FakeOrchestrator,
    _tasks: JoinSet<()>,
}

impl Playground {
    async fn new() -> Self {
        Self::start_on(empty_bus().await).await
    }

    async fn start_on(bus: Bus) -> Self {
        let fake = FakeOrchestrator::default();
        let mut tasks = JoinSet::new();
        let agents = AgentEndpoint {
            url: fake.start(&mut tasks).await,
            key: Some(Secret::new(CLIENT_KEY)),
        };
        let settings = ConsoleFixture::acting();
        let console = ConsoleFixture::start_with_agents(bus, settings, Some(agents)).await;
        Self {
            console,
            fake,
            _tasks: tasks,
        }
    }

    /// Sends the first message; returns the path of the conversation.
    async fn begin(&self, login: &Login, message: &str, files: &[(&str, &str)]) -> String {
        let begun = self
            .send_message("/playground", login, message, files)
            .await;
        assert_eq!(begun.status, 303, "{begun:?}");
        begun.header("location").unwrap().to_owned()
    }

    async fn send_message(
        &self,
        path: &str,
        login: &Login,
        message: &str,
        files: &[(&str, &str)],
    ) -> TestResponse {
        let operation = OperationId::mint();
        let form = message_form(login, &operation, message, files);
        self.console.post_multipart(path, login, &form).await
    }
}

/// The form of a message, as the page has it.
fn message_form(
    login: &Login,
    operation: &OperationId,
    message: &str,
    files: &[(&str, &str)],
) -> String {
    let operation = operation.to_string();
    let fields = [
        ("csrf", login.form_token.as_str()),
        ("operation", &operation),
        ("agent", "clerk"),
        ("message", message),
    ];
    multipart_form(&fields, files)
}

/// Checks that a turn is recorded before and after it.
async fn check_audit(trail: &mut AuditTrail) {
    let (begun_by, begun) = trail.next().await;
    let (done_by, done) = trail.next().await;
    assert_eq!(begun_by, done_by);
    assert_eq!(
        (begun.action(), begun.stage(), begun.target.as_str()),
        (
            ConsoleAction::PlaygroundTurn,
            ConsoleStage::Begun,
            "agent clerk"
        )
    );
    assert_eq!(done.stage(), ConsoleStage::Done);
}

/// Checks that every request has the key, the file is uploaded unchanged, and the message refers to it.
fn check_sent(fake: &FakeOrchestrator) {
    let sent = fake.sent.lock().unwrap().clone();
    assert!(
        sent.iter()
            .all(|(_, key, _)| *key == format!("Bearer {CLIENT_KEY}")),
        "{sent:?}"
    );
    let (_, _, upload) = sent.iter().find(|(path, ..)| path == "/v1/files").unwrap();
    assert!(upload.contains("a,b\n1,2\n") && upload.contains("päge.csv"));
    let request = &fake.chats()[0];
    assert_eq!(
        request["messages"][0]["content"],
        json!([
            { "type": "text", "text": "What is in it?" },
            { "type": "file", "file": { "file_id": "file-1" } },
        ])
    );
}

#[tokio::test]
async fn the_next_message_returns_the_state_and_its_request_is_shown_without_the_key() {
    let playground = Playground::new().await;
    let (console, fake) = (&playground.console, &playground.fake);
    let login = console.log_in(ConsoleRole::Act).await;
    let writer = fake.expect_request();
    let path = playground.begin(&login, "one", &[]).await;
    writer.delta(&json!({ "custom_content": { "state": { "k": 1 } } }));
    writer.end();
    console
        .wait_for(&path, &login, "data-ending=\"done\"")
        .await;
    // The next message returns the state that the agent stored at its client.
    fake.expect_request().end();
    let second = playground
        .send_message(&path, &login, "And now?", &[])
        .await;
    assert_eq!(second.status, 303, "{second:?}");
    console.wait_for(&path, &login, "Message 2").await;
    console.wait_for(&path, &login, "data-turn=\"1\"").await;
    let request = loop {
        match fake.chats().get(1) {
            Some(request) => break request.clone(),
            None => tokio::task::yield_now().await,
        }
    };
    assert_eq!(request["messages"][1]["custom_content"]["state"]["k"], 1);
    let curl = console
        .get(&format!("{path}/requests/1?fragment=1"), Some(&login))
        .await;
    assert!(curl.body.contains("/v1/chat/completions"), "{curl:?}");
    assert!(curl.body.contains("$DRAY_API_KEY") && !curl.body.contains(CLIENT_KEY));
}

#[tokio::test]
async fn a_page_shows_the_stages_text_files_and_end_of_a_response() {
    let playground = Playground::new().await;
    let (console, fake) = (&playground.console, &playground.fake);
    let mut trail = AuditTrail::open(console).await;
    let login = console.log_in(ConsoleRole::Act).await;
    let page = console.get("/playground", Some(&login)).await;
    assert!(page.body.contains("<option value=\"clerk\">"), "{page:?}");
    assert!(!page.body.contains("<b>bold"), "{page:?}");
    let writer = fake.expect_request();
    let path = playground
        .begin(&login, "What is in it?", &[("päge.csv", "a,b\n1,2\n")])
        .await;
    writer.delta(&json!({ "custom_content": { "stages": [
        { "index": 0, "name": "Read <b>it</b>" },
    ] } }));
    writer.delta(&json!({ "content": "Two columns" }));
    let running = console.wait_for(&path, &login, "Two columns").await;
    assert!(
        running.body.contains("<details open>") && running.body.contains("&lt;b&gt;it"),
        "{running:?}"
    );
    assert!(running.body.contains("Cancel the answer"), "{running:?}");
    let (_, source) = running.body.split_once("data-source=\"").unwrap();
    let source = source.split('"').next().unwrap().replace("&amp;", "&");
    writer.delta(&json!({ "custom_content": {
        "stages": [{ "index": 0, "content": "2 rows", "status": "completed" }],
        "attachments": [
            { "title": "out.html", "type": "text/html", "data": "<script>1</script>" },
            { "title": "web", "url": "https://files.example/x" },
            { "title": "evil", "url": "javascript:alert(1)" },
        ],
        "state": { "k": 1 },
    } }));
    writer.delta(&json!({ "content": " and\nmore." }));
    writer.end();
    // The stream does not repeat what the page shows already, and ends with the response.
    let events = console.get(&source, Some(&login)).await;
    assert!(
        events.body.contains("event: text\ndata: \" and\\nmore.\""),
        "{events:?}"
    );
    assert!(
        events.body.contains("event: stage") && events.body.contains("2 rows"),
        "{events:?}"
    );
    assert!(events.body.contains("data-ending=\"done\""), "{events:?}");
    let ended = console.get(&path, Some(&login)).await.body;
    assert!(ended.contains("7 tokens in and 9 out"), "{ended}");
    assert!(ended.contains("https://files.example/x") && !ended.contains("href=\"javascript"));
    let file = console
        .get(&format!("{path}/files/0/0"), Some(&login))
        .await;
    assert_eq!(file.body, "<script>1</script>");
    assert_eq!(
        file.header("content-security-policy"),
        Some("default-src 'none'; sandbox")
    );
    check_audit(&mut trail).await;
    check_sent(fake);
}

#[tokio::test]
async fn a_cancellation_or_a_logout_ends_a_response_and_its_request() {
    let playground = Playground::new().await;
    let (console, fake) = (&playground.console, &playground.fake);
    let mut trail = AuditTrail::open(console).await;
    for ends_by_logout in [false, true] {
        let login = console.log_in(ConsoleRole::Act).await;
        let writer = fake.expect_request();
        let path = playground.begin(&login, "Go on for ever", &[]).await;
        writer.delta(&json!({ "content": "on and on" }));
        console.wait_for(&path, &login, "on and on").await;
        let cancel = format!("{path}/cancel");
        let end = if ends_by_logout { "/logout" } else { &cancel };
        assert_eq!(console.post(end, &login, "").await.status, 303);
        // The orchestrator notices that its client disconnected.
        tokio::time::timeout(TEST_TIMEOUT, writer.0.closed())
            .await
            .unwrap();
        if !ends_by_logout {
            let page = console.wait_for(&path, &login, "was cancelled").await;
            assert!(page.body.contains("on and on"), "{page:?}");
        }
        assert_eq!(trail.next().await.1.stage(), ConsoleStage::Begun);
        let mut cancelled = trail.next().await.1;
        if cancelled.action() == ConsoleAction::Logout {
            cancelled = trail.next().await.1;
        }
        assert_eq!(cancelled.failure, "timeout/cancelled");
        let found = console.get(&path, Some(&login)).await;
        assert_eq!(found.status, if ends_by_logout { 401 } else { 200 });
    }
}

#[tokio::test]
async fn only_the_login_that_may_act_and_began_a_conversation_reaches_it() {
    let playground = Playground::new().await;
    let (console, fake) = (&playground.console, &playground.fake);
    let login = console.log_in(ConsoleRole::Act).await;
    fake.expect_request().end();
    let path = playground.begin(&login, "mine", &[]).await;
    let read_only_login = console.log_in(ConsoleRole::Look).await;
    let page = console.get("/playground", Some(&read_only_login)).await;
    assert!(page.body.contains("needs a login that may act"), "{page:?}");
    let refused = playground
        .send_message("/playground", &read_only_login, "x", &[])
        .await;
    assert_eq!(refused.status, 403);
    let other = console.log_in(ConsoleRole::Act).await;
    for place in ["", "/requests/0", "/events?turn=0", "/files/0/0"] {
        let place = format!("{path}{place}");
        assert_eq!(
            console.get(&place, Some(&read_only_login)).await.status,
            403,
            "{place}"
        );
        let page = console.get(&place, Some(&other)).await;
        assert!(!page.body.contains("mine"), "{place}: {page:?}");
    }
    playground.send_message(&path, &other, "x", &[]).await;
    console.post(&format!("{path}/end"), &other, "").await;
    let page = console.get(&path, Some(&login)).await;
    assert!(page.body.contains("mine"), "{page:?}");
    assert_eq!(fake.chats().len(), 1);
    // A form without the token of the session sends nothing either.
    let forged = multipart_form(&[("csrf", "x"), ("agent", "clerk"), ("message", "x")], &[]);
    let forged = console.post_multipart("/playground", &login, &forged).await;
    assert_eq!(forged.status, 403);
}

#[tokio::test]
async fn a_refusal_and_a_broken_response_are_shown_with_their_reason() {
    let playground = Playground::new().await;
    let (console, fake) = (&playground.console, &playground.fake);
    let login = console.log_in(ConsoleRole::Act).await;
    let path = playground.begin(&login, "one", &[]).await;
    let page = console.wait_for(&path, &login, "The answer failed.").await;
    assert!(page.body.contains("&lt;i&gt;x&lt;/i&gt;"), "{page:?}");
    let writer = fake.expect_request();
    writer.delta(&json!({ "content": "half" }));
    drop(writer);
    playground.send_message(&path, &login, "two", &[]).await;
    let page = console.wait_for(&path, &login, "answer_broken").await;
    assert!(page.body.contains("half"), "{page:?}");
    // Neither question is repeated in the next request.
    fake.expect_request().end();
    playground.send_message(&path, &login, "three", &[]).await;
    console
        .wait_for(&path, &login, "data-ending=\"done\"")
        .await;
    assert_eq!(fake.chats()[2]["messages"].as_array().unwrap().len(), 1);
    let large = "x".repeat((8 << 20) + 1);
    let refused = playground
        .send_message(&path, &login, "four", &[("a", &large)])
        .await;
    assert!(refused.body.contains("upload_too_large"), "{refused:?}");
}

#[tokio::test]
async fn a_turn_that_cannot_be_recorded_is_not_sent() {
    // Without streams no audit event can be stored.
    let playground = Playground::start_on(test_bus::without_streams(&Clock::system())).await;
    let login = playground.console.log_in(ConsoleRole::Act).await;
    let refused = playground
        .send_message("/playground", &login, "spend", &[])
        .await;
    assert!(refused.body.contains("Nothing was done"), "{refused:?}");
    assert!(playground.fake.chats().is_empty());
}
