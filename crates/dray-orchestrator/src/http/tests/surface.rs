//! Tests of everything of the surface but chats.

use http::Method;
use serde_json::{Value, json};

use super::scripted::{TEST_MANIFEST, TestSurface, ask, events, keys, read, text_step};
use crate::http::ManifestSource;
use crate::permissions::CallerIdentity;

const CHAT_PATH: &str = "/openai/deployments/quick_apps2/chat/completions";
const OPENAI_PATH: &str = "/v1/chat/completions";

async fn post(
    fixture: &TestSurface,
    path: &str,
    headers: &[(&'static str, &str)],
    body: &Value,
) -> (u16, Value) {
    let mut request = fixture.request(Method::POST, path);
    for (name, value) in headers {
        request = request.header(name, value);
    }
    read(request.json(body).send(&|_| ()).await.unwrap()).await
}

async fn source(headers: &[(&'static str, &str)]) -> ManifestSource {
    let fixture = TestSurface::start(Vec::new()).await;
    let mut all = vec![("api-key", "k")];
    all.extend(headers);
    let (status, body) = post(&fixture, CHAT_PATH, &all, &ask(false)).await;
    assert_eq!(status, 200, "{body}");
    fixture.agent.asked.lock().await.remove(0).manifest
}

#[tokio::test]
async fn the_key_is_required() {
    let fixture = TestSurface::start(Vec::new()).await;
    let (status, body) = post(&fixture, CHAT_PATH, &[], &ask(true)).await;
    assert_eq!(
        (status, body),
        (
            400,
            json!({"error": {"message": "Api-Key header is required", "type": "invalid_request_error", "code": "400"}})
        )
    );
}

#[tokio::test]
async fn a_key_of_dial_is_verified_before_the_body_is_read() {
    let fixture = TestSurface::with(Vec::new(), |options| options.dial = true).await;
    let headers = [("api-key", "unknown")];
    let (status, _) = post(&fixture, CHAT_PATH, &headers, &json!("not even a chat")).await;
    assert_eq!((status, fixture.agent.asked.lock().await.len()), (401, 0));
    let (status, _) = post(&fixture, CHAT_PATH, &[("api-key", "k")], &ask(false)).await;
    let identity = fixture.agent.asked.lock().await.remove(0).identity;
    assert_eq!(status, 200);
    assert_eq!(identity, CallerIdentity::Dial("bucket-of-k".to_owned()));
}

#[tokio::test]
async fn a_request_is_from_the_client_whose_key_it_shows() {
    let fixture = TestSurface::with(Vec::new(), |options| options.clients = keys(&["one"])).await;
    for headers in [
        [("api-key", "one"), ("x-a", "b")],
        [("api-key", "k"), ("authorization", "Bearer one")],
    ] {
        post(&fixture, CHAT_PATH, &headers, &ask(false)).await;
        let identity = fixture.agent.asked.lock().await.remove(0).identity;
        assert_eq!(identity, CallerIdentity::Client("owner-of-one".to_owned()));
    }
    let open = TestSurface::start(Vec::new()).await;
    post(&open, CHAT_PATH, &[("api-key", "k")], &ask(false)).await;
    assert_eq!(
        open.agent.asked.lock().await.remove(0).identity,
        CallerIdentity::Local
    );
}

#[tokio::test]
async fn the_manifest_is_found_by_the_headers() {
    let given = ("x-dial-application-properties", r#"{"a": 1}"#);
    let application = ("x-dial-application-id", "applications/b/app");
    assert_eq!(
        source(&[given, application]).await,
        ManifestSource::Given(json!({"a": 1}))
    );
    assert_eq!(
        source(&[application]).await,
        ManifestSource::Application("applications/b/app".to_owned())
    );
    assert_eq!(source(&[]).await, ManifestSource::Default);
}

#[tokio::test]
async fn headers_of_the_caller_come_along_without_our_own() {
    let fixture = TestSurface::start(Vec::new()).await;
    let headers = [
        ("api-key", "k"),
        ("authorization", "Bearer u"),
        ("x-tenant", "acme"),
        ("x-dial-application-id", "a"),
        ("x-dial-client-channel-id", "c"),
        ("accept-language", "de"),
        ("other", "o"),
    ];
    post(&fixture, CHAT_PATH, &headers, &ask(false)).await;
    let caller = fixture.agent.asked.lock().await.remove(0).caller;
    assert_eq!(caller.api_key.unwrap().expose(), "k");
    assert_eq!(caller.authorization.unwrap().expose(), "Bearer u");
    assert_eq!(
        caller.forwarded,
        [("x-tenant".to_owned(), "acme".to_owned())]
    );
    assert_eq!(
        (caller.channel.as_deref(), caller.language.as_deref()),
        (Some("c"), Some("de"))
    );
}

#[tokio::test]
async fn invalid_json_is_reported() {
    let fixture = TestSurface::start(Vec::new()).await;
    let request = fixture
        .request(Method::POST, CHAT_PATH)
        .header("api-key", "k");
    let (status, body) = read(
        request
            .bytes("application/json", "{\"messages\": [".into())
            .send(&|_| ())
            .await
            .unwrap(),
    )
    .await;
    let message = body["error"]["message"].as_str().unwrap();
    assert_eq!(status, 400);
    assert!(
        message.starts_with("The request body isn't valid JSON: "),
        "{message}"
    );
    let headers = [("api-key", "k"), ("x-dial-application-properties", "{")];
    let (status, body) = post(&fixture, CHAT_PATH, &headers, &ask(true)).await;
    let message = body["error"]["message"].as_str().unwrap();
    assert_eq!(status, 400);
    assert!(
        message.starts_with("The X-APPLICATION-PROPERTIES header isn't valid JSON: "),
        "{message}"
    );
}

#[tokio::test]
async fn a_body_that_is_too_long_is_refused_clearly() {
    let fixture = TestSurface::start(Vec::new()).await;
    let body = json!({"messages": [{"role": "user", "content": "x".repeat(100 << 10)}]});
    let (status, body) = post(&fixture, CHAT_PATH, &[("api-key", "k")], &body).await;
    assert_eq!(
        (status, &body["error"]["message"]),
        (413, &json!("The request body is larger than 64KiB"))
    );
    assert_eq!(
        body["error"]["display_message"],
        "The request payload is too large. Please reduce the size of your message or attachments."
    );
}

#[tokio::test]
async fn starters_rate_and_health_are_there_and_tokenize_is_not() {
    let fixture = TestSurface::start(Vec::new()).await;
    let path = "/openai/deployments/quick_apps2/configuration";
    let request = fixture.request(Method::GET, path).header("api-key", "k");
    let request = request.header(
        "x-dial-application-properties",
        &TEST_MANIFEST.replace('\n', ""),
    );
    let (status, body) = read(request.send(&|_| ()).await.unwrap()).await;
    assert_eq!(
        (status, &body["properties"]["starter"]["oneOf"][0]["title"]),
        (200, &json!("Hello"))
    );
    let (status, body) = fixture.get(path).await;
    assert_eq!(
        (status, &body["error"]["message"]),
        (500, &json!("Error while fetching application"))
    );
    let rate = post(
        &fixture,
        "/openai/deployments/quick_apps2/rate",
        &[],
        &json!({"rate": true}),
    )
    .await;
    assert_eq!(rate, (200, json!("")));
    assert_eq!(fixture.get("/health").await, (200, json!({"status": "ok"})));
    for path in ["tokenize", "truncate_prompt"] {
        let path = format!("/openai/deployments/quick_apps2/{path}");
        assert_eq!(
            post(&fixture, &path, &[("api-key", "k")], &json!({}))
                .await
                .0,
            404
        );
    }
    let (status, body) = post(
        &fixture,
        "/openai/deployments/none/chat/completions",
        &[("api-key", "k")],
        &ask(true),
    )
    .await;
    assert_eq!(
        (status, &body["error"]["code"]),
        (404, &json!("DeploymentNotFound"))
    );
    assert_eq!(fixture.get(CHAT_PATH).await.0, 405);
}

#[tokio::test]
async fn editors_find_schema_prompts_tools_and_templates() {
    let fixture = TestSurface::start(Vec::new()).await;
    for (path, status, expected) in [
        ("application-schema", 200, json!({"title": "Manifest"})),
        (
            "application-type",
            200,
            json!({"dial:applicationTypeDisplayName": "App"}),
        ),
        (
            "system-prompts",
            200,
            json!([{"prompt": "p", "allowed_models": ["gpt-4o"]}]),
        ),
        ("system-prompts/p", 200, json!("Be kind.")),
        (
            "system-prompts/q",
            404,
            json!({"detail": "Prompt 'q' not found."}),
        ),
        ("tool-sets", 200, json!(["s"])),
        ("tool-sets/s", 200, json!({"tools": [{"a": 1}]})),
        (
            "tool-sets/x",
            404,
            json!({"detail": "Toolset 'x' not found."}),
        ),
        ("tools", 200, json!(["t"])),
        ("tools/t", 200, json!({"a": 1})),
        ("tools/x", 404, json!({"detail": "Tool 'x' not found."})),
        (
            "template/gpt",
            200,
            json!({"deployment": "gpt", "key": "k"}),
        ),
    ] {
        let path = format!("/v1/configuration-support/{path}");
        assert_eq!(fixture.get(&path).await, (status, expected), "{path}");
    }
}

#[tokio::test]
async fn plain_clients_see_local_manifests_as_models() {
    let fixture = TestSurface::start(vec![text_step("hello")]).await;
    let (_, models) = fixture.get("/v1/models").await;
    assert_eq!(
        (&models["object"], &models["data"][0]["id"]),
        (&json!("list"), &json!("helper"))
    );
    assert_eq!(fixture.get("/v1/models/helper").await.1["object"], "model");
    assert_eq!(
        fixture.get("/v1/models/none").await.1["error"]["code"],
        "model_not_found"
    );
    let mut body = ask(true);
    body["model"] = json!("helper");
    let answer = fixture
        .request(Method::POST, OPENAI_PATH)
        .json(&body)
        .send(&|_| ())
        .await
        .unwrap();
    let events = events(answer).await;
    assert!(events.iter().all(|event| event["model"] == "helper"));
    let chat_request = fixture.agent.asked.lock().await.remove(0);
    assert_eq!(
        chat_request.manifest,
        ManifestSource::Named("helper".to_owned())
    );
    body["model"] = json!("none");
    let (status, body) = post(&fixture, OPENAI_PATH, &[], &body).await;
    assert_eq!(
        (status, &body["error"]["message"]),
        (404, &json!("The model 'none' does not exist"))
    );
}

#[tokio::test]
async fn a_request_that_names_no_model_lacks_a_parameter() {
    let fixture = TestSurface::start(Vec::new()).await;
    let mut chat = ask(false);
    chat.as_object_mut().unwrap().remove("model");
    let response = json!({"input": "hi"});
    for (path, body) in [(OPENAI_PATH, chat), ("/v1/responses", response)] {
        let (status, answer) = post(&fixture, path, &[], &body).await;
        let error = &answer["error"];
        assert_eq!(
            (status, &error["code"], &error["param"]),
            (400, &json!("missing_required_parameter"), &json!("model")),
            "{path}"
        );
    }
}

#[tokio::test]
async fn keys_of_clients_give_access_and_are_not_forwarded() {
    let fixture = TestSurface::with(vec![text_step("x")], |options| {
        options.clients = keys(&["one", "two"]);
    })
    .await;
    let mut body = ask(false);
    body["model"] = json!("helper");
    for (authorization, status) in [
        ("Bearer two", 200),
        ("bearer one", 200),
        ("Bearer on", 401),
        ("one", 401),
    ] {
        let (got, answer) = post(
            &fixture,
            OPENAI_PATH,
            &[("authorization", authorization)],
            &body,
        )
        .await;
        assert_eq!(got, status, "{authorization}: {answer}");
    }
    let (status, answer) = post(&fixture, OPENAI_PATH, &[], &body).await;
    assert_eq!(
        (status, &answer["error"]["code"]),
        (401, &json!("invalid_api_key"))
    );
    for (headers, status) in [
        (vec![("api-key", "one")], 200),
        (vec![("api-key", "x"), ("authorization", "Bearer two")], 200),
        (vec![("api-key", "x")], 401),
    ] {
        assert_eq!(
            post(&fixture, CHAT_PATH, &headers, &body).await.0,
            status,
            "{headers:?}"
        );
    }
    assert_eq!(fixture.get("/v1/configuration-support/tools").await.0, 401);
    let chat_request = fixture.agent.asked.lock().await;
    assert!(
        chat_request
            .iter()
            .all(|chat_request| chat_request.caller.authorization.is_none())
    );
}

#[tokio::test]
async fn behind_dial_plain_clients_need_a_configured_key() {
    let fixture = TestSurface::with(vec![text_step("x")], |options| {
        options.dial = true;
        options.loopback = false;
    })
    .await;
    let mut body = ask(false);
    body["model"] = json!("helper");
    assert_eq!(
        post(
            &fixture,
            OPENAI_PATH,
            &[("authorization", "Bearer any")],
            &body
        )
        .await
        .0,
        401
    );
    assert_eq!(
        post(&fixture, CHAT_PATH, &[("api-key", "of-dial")], &body)
            .await
            .0,
        200
    );
}

#[tokio::test]
async fn a_listener_without_keys_refuses_pages_of_other_hosts_and_origins() {
    let fixture = TestSurface::start(vec![text_step("x")]).await;
    let mut body = ask(false);
    body["model"] = json!("helper");
    for (name, value, status) in [
        ("host", "rebound.example", 421),
        ("host", "chat.internal:5000", 200),
        ("host", "[::1]:5000", 200),
        ("origin", "https://evil.example", 403),
        ("origin", "null", 403),
        ("origin", "http://localhost:3000", 200),
    ] {
        assert_eq!(
            post(&fixture, OPENAI_PATH, &[(name, value)], &body).await.0,
            status,
            "{value}"
        );
    }
}
