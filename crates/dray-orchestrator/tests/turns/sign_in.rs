//! Tests of users who sign in to an MCP server between two turns: the page, the code, and attempts of other people to
//! use them.

use std::sync::Arc;

use dray_http::fake_server::{
    self, ConnectionClosed, FakeServer, ReceivedRequest, Reply, SharedState,
};
use dray_orchestrator::Config;
use dray_types::Secret;
use futures_util::FutureExt as _;
use serde_json::{Value, json};

use crate::fixture::{ChatResult, TurnFixture, manifest};

/// An MCP server of 2026-07-28 that is its own authorization server (RFC 9207 included).
#[derive(Debug, Default)]
struct ProtectedServer {
    /// Forms that the token endpoint took.
    exchanges: Vec<Vec<(String, String)>>,
    /// Codes that were issued, with the challenge (RFC 7636) and the redirect URI of their page.
    codes: Vec<(String, String)>,
    /// Tokens that are accepted.
    tokens: Vec<String>,
    /// Lifetime of tokens, in seconds.
    expires_in: u64,
    /// The refresh token that is accepted, where each of them works once and a second use ends the sign-in (RFC 9700
    /// section 4.14.2).
    rotated: Option<String>,
}

async fn answer(
    shared: Arc<SharedState<ProtectedServer>>,
    request: ReceivedRequest,
) -> Result<Reply, ConnectionClosed> {
    let url = shared.url();
    let ok = |value: Value| Ok(fake_server::json_reply(200, &value));
    match request.path.as_str() {
        "/mcp" => message(&shared, request).await,
        "/.well-known/oauth-protected-resource/mcp" => {
            ok(json!({"resource": format!("{url}/mcp"), "authorization_servers": [url]}))
        }
        "/.well-known/oauth-authorization-server" => ok(json!({
            "issuer": url,
            "authorization_endpoint": format!("{url}/authorize"),
            "token_endpoint": format!("{url}/token"),
            "response_types_supported": ["code"],
            "code_challenge_methods_supported": ["S256"],
            "authorization_response_iss_parameter_supported": true,
        })),
        "/authorize" => {
            let value = |name: &str| request.parameter(name).unwrap_or_default();
            assert_eq!(value("code_challenge_method"), "S256");
            assert_eq!(value("resource"), format!("{url}/mcp"));
            let redirect = value("redirect_uri");
            let number = {
                let mut state = shared.lock();
                state
                    .codes
                    .push((value("code_challenge"), redirect.clone()));
                state.codes.len()
            };
            let reply = fake_server::json_reply(302, &json!({}));
            let target = format!(
                "{redirect}?code=code-{number}&state={}&iss={url}",
                value("state")
            );
            Ok(fake_server::with_header(reply, "location", &target))
        }
        "/token" => exchange(&shared, request).await,
        _ => Ok(fake_server::json_reply(404, &json!({}))),
    }
}

/// The token endpoint.
async fn exchange(
    shared: &SharedState<ProtectedServer>,
    request: ReceivedRequest,
) -> Result<Reply, ConnectionClosed> {
    let url = shared.url();
    let form = request.form().await?;
    let mut state = shared.lock();
    let is_refresh = form.field("grant_type") == "refresh_token";
    if !is_refresh {
        let (challenge, redirect) = state.codes[0].clone();
        assert_eq!(form.field("redirect_uri"), redirect);
        assert_eq!(s256(form.field("code_verifier")), challenge);
    }
    assert_eq!(form.field("resource"), format!("{url}/mcp"));
    let used = form.field("refresh_token").to_owned();
    state.exchanges.push(form.fields);
    if is_refresh && state.rotated.as_ref().is_some_and(|valid| *valid != used) {
        state.rotated = Some("none".to_owned());
        state.tokens.clear();
        return Ok(fake_server::json_reply(
            400,
            &json!({"error": "invalid_grant"}),
        ));
    }
    let number = state.exchanges.len();
    let (token, refresh) = (format!("token-{number}"), format!("again-{number}"));
    if let Some(valid) = &mut state.rotated {
        valid.clone_from(&refresh);
    }
    state.tokens.push(token.clone());
    let tokens = json!({"access_token": token, "token_type": "Bearer", "refresh_token": refresh,
        "expires_in": state.expires_in});
    Ok(fake_server::json_reply(200, &tokens))
}

/// The challenge of a verifier (RFC 7636 section 4.2).
fn s256(verifier: &str) -> String {
    use base64::Engine as _;
    let digest = dray_types::Sha256Digest::of(verifier.as_bytes());
    base64::engine::general_purpose::URL_SAFE_NO_PAD.encode(digest.as_bytes())
}

async fn message(
    shared: &SharedState<ProtectedServer>,
    request: ReceivedRequest,
) -> Result<Reply, ConnectionClosed> {
    let token = request.header("authorization").unwrap_or_default();
    let token = token.trim_start_matches("Bearer ").to_owned();
    if !shared.lock().tokens.contains(&token) {
        let metadata = format!("{}/.well-known/oauth-protected-resource/mcp", shared.url());
        let reply = fake_server::json_reply(401, &json!({}));
        let header = format!("Bearer resource_metadata=\"{metadata}\"");
        return Ok(fake_server::with_header(reply, "www-authenticate", &header));
    }
    let message = request.json().await?;
    let result = match message["method"].as_str().unwrap_or_default() {
        "server/discover" => json!({"resultType": "complete", "supportedVersions": ["2026-07-28"],
            "capabilities": {"tools": {}}, "ttlMs": 0, "cacheScope": "private"}),
        "tools/list" => json!({"resultType": "complete", "ttlMs": 0, "cacheScope": "private",
            "tools": [{"name": "whoami", "inputSchema": {"type": "object"}}]}),
        _ => json!({"resultType": "complete", "content": [{"type": "text", "text": token}]}),
    };
    let body = json!({"jsonrpc": "2.0", "id": message["id"], "result": result});
    Ok(fake_server::json_reply(200, &body))
}

const MODEL_SCRIPT: &str = r#"{"rules": [
    {"when": {"tool_result_of": "files_whoami"}, "reply": {"say": "Done."}},
    {"when": {"last_user_contains": "-"}, "reply": {"call": [{"name": "files_whoami", "arguments": {}}]}},
    {"reply": {"say": "Hello."}}]}"#;

/// An orchestrator with two clients, and the server.
pub(crate) struct SignInFixture {
    pub(crate) fixture: TurnFixture,
    server: FakeServer<ProtectedServer>,
}

impl SignInFixture {
    pub(crate) async fn new(expires_in: u64) -> Self {
        Self::with(expires_in, |_| {}).await
    }

    pub(crate) async fn with(expires_in: u64, change: impl FnOnce(&mut Config)) -> Self {
        let state = ProtectedServer {
            expires_in,
            ..ProtectedServer::default()
        };
        let server = FakeServer::start(state, |shared, request| answer(shared, request).boxed());
        let server = server.await.unwrap();
        let url = format!("{}/mcp", server.shared().url());
        let set = json!({"type": "mcp", "name": "files", "mcp_server_info": {"url": url,
            "protocol": "streamable_http", "authorization": {"type": "oauth", "client_id": "drayage"}}});
        let manifest = manifest(json!([set]));
        let fixture = TurnFixture::with(&manifest, MODEL_SCRIPT, |config| {
            for name in ["alice", "bob", "portal"] {
                config.clients.insert(name.to_owned(), Secret::new(name));
            }
            change(config);
        });
        Self {
            fixture: fixture.await,
            server,
        }
    }

    pub(crate) async fn ask(&self, client: &str, messages: Value) -> ChatResult {
        self.ask_at(&self.fixture.url, client, messages).await
    }

    async fn ask_at(&self, base: &str, client: &str, messages: Value) -> ChatResult {
        // `portal/x-user=ann` is the client `portal` with this header.
        let (client, header) = client.split_once('/').unwrap_or((client, ""));
        let url = format!("{base}/v1/chat/completions");
        let request = self.fixture.client.post(&url);
        let request = request.header("authorization", &format!("Bearer {client}"));
        let request = match header.split_once('=') {
            Some((name, value)) => request.header(name, value),
            None => request,
        };
        let body = json!({"model": "agent", "stream": true, "messages": messages});
        self.fixture.send(request.json(&body)).await
    }

    /// A client without state sends the conversation, with `text` as its last message.
    pub(crate) async fn reply(&self, client: &str, text: &str) -> ChatResult {
        let messages = json!([{"role": "user", "content": "hi"}, {"role": "assistant", "content": "x"},
            {"role": "user", "content": text}]);
        self.ask(client, messages).await
    }

    /// The page that a client is shown.
    pub(crate) async fn page(&self, client: &str) -> String {
        let answer = self
            .ask(client, json!([{"role": "user", "content": "hi"}]))
            .await;
        let text = answer.text();
        assert!(
            text.starts_with("Toolset 'files' requires sign-in: open "),
            "{text}"
        );
        assert!(text.ends_with("Hello."), "{text}");
        text.split_whitespace()
            .find(|word| word.starts_with("http"))
            .unwrap()
            .to_owned()
    }

    /// Where the browser is sent back to after a page.
    pub(crate) async fn follow(&self, page: &str) -> String {
        let opened = self.fixture.client.get(page).send(&|_| {}).await.unwrap();
        opened.header("location").unwrap().to_owned()
    }

    /// Opens an address of the orchestrator as a browser does: the status and the page.
    async fn open(&self, url: &str) -> (u16, String) {
        let answer = self.fixture.client.get(url).send(&|_| {}).await.unwrap();
        let status = answer.status();
        assert_eq!(answer.header("cache-control"), Some("no-store"));
        assert_eq!(answer.header("referrer-policy"), Some("no-referrer"));
        let text = answer.bytes(1 << 16).await.unwrap();
        (status, String::from_utf8(text.to_vec()).unwrap())
    }

    /// The code that a page shows.
    pub(crate) async fn code(&self, url: &str) -> String {
        let (status, text) = self.open(url).await;
        assert_eq!(status, 200, "{text}");
        let (_, rest) = text.split_once("<strong>").unwrap();
        rest.split_once("</strong>").unwrap().0.to_owned()
    }

    pub(crate) fn exchanges(&self) -> usize {
        self.server.shared().lock().exchanges.len()
    }

    /// The result of the tool in the last request to the model.
    pub(crate) fn last_result(&self) -> Value {
        let requests = self.fixture.asked();
        let messages = requests.last().unwrap()["messages"]
            .as_array()
            .unwrap()
            .clone();
        messages.last().unwrap()["content"].clone()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_user_signs_in_between_two_turns_and_the_tokens_are_kept_for_later_ones() {
    let fixture = SignInFixture::new(3600).await;
    let page = fixture.page("alice").await;
    let returned = fixture.follow(&page).await;
    let callback = format!("{}/v1/sign-in/callback?", fixture.fixture.url);
    assert!(returned.starts_with(&callback), "{returned}");
    let code = fixture.code(&returned).await;
    // No code is exchanged before the user brings the code.
    assert_eq!(fixture.exchanges(), 0);
    let answer = fixture.reply("alice", &format!("My code: {code}")).await;
    assert_eq!((answer.text().as_str(), fixture.exchanges()), ("Done.", 1));
    assert_eq!(fixture.last_result(), "token-1");
    // Another conversation uses the same tokens without the code.
    let answer = fixture.ask(
        "alice",
        json!([{"role": "user", "content": "again - please"}]),
    );
    assert_eq!(
        (answer.await.text().as_str(), fixture.exchanges()),
        ("Done.", 1)
    );
    // Another replica, which never handled the user, has the tokens too.
    let replica = fixture.fixture.start_replica().await;
    let messages = json!([{"role": "user", "content": "again - please"}]);
    let answer = fixture.ask_at(&replica, "alice", messages).await;
    assert_eq!((answer.text().as_str(), fixture.exchanges()), ("Done.", 1));
    assert_eq!(fixture.last_result(), "token-1");
    // Another client of the same agent signs in by itself.
    fixture.page("bob").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn tokens_that_end_are_renewed_without_the_user() {
    let fixture = SignInFixture::new(1).await;
    let returned = fixture.follow(&fixture.page("alice").await).await;
    let code = fixture.code(&returned).await;
    let answer = fixture.reply("alice", &code).await;
    assert_eq!(answer.text(), "Done.");
    let grants = || {
        let state = fixture.server.shared().lock();
        let of = |form: &Vec<(String, String)>| {
            let found = form.iter().find(|(name, _)| name == "grant_type");
            found.unwrap().1.clone()
        };
        state.exchanges.iter().map(of).collect::<Vec<_>>()
    };
    assert_eq!(grants()[0], "authorization_code");
    let before = grants().len();
    let answer = fixture.ask(
        "alice",
        json!([{"role": "user", "content": "again - please"}]),
    );
    assert_eq!(answer.await.text(), "Done.");
    let grants = grants();
    assert!(grants.len() > before, "{grants:?}");
    assert!(
        grants[1..].iter().all(|grant| grant == "refresh_token"),
        "{grants:?}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn replicas_that_need_new_tokens_at_one_time_use_a_refresh_token_once() {
    let fixture = SignInFixture::new(1).await;
    // The lifetime counts from the exchange of the code.
    fixture.server.shared().lock().rotated = Some(String::new());
    let returned = fixture.follow(&fixture.page("alice").await).await;
    let code = fixture.code(&returned).await;
    assert_eq!(fixture.reply("alice", &code).await.text(), "Done.");
    let replicas = [
        fixture.fixture.start_replica().await,
        fixture.fixture.start_replica().await,
        fixture.fixture.start_replica().await,
    ];
    // The tokens expire soon; those of the next renewal last longer.
    fixture.server.shared().lock().expires_in = 3600;
    let before = fixture.exchanges();
    let repeated = json!([{"role": "user", "content": "again - please"}]);
    let asked = replicas
        .iter()
        .map(|replica| fixture.ask_at(replica, "alice", repeated.clone()));
    for answer in futures_util::future::join_all(asked).await {
        assert_eq!(answer.text(), "Done.");
    }
    assert_eq!(fixture.exchanges(), before + 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_page_that_was_passed_to_another_person_signs_no_one_in() {
    let fixture = SignInFixture::new(3600).await;
    // Bob sends his link to Alice, who signs in and writes the code in her own chat.
    let returned = fixture.follow(&fixture.page("bob").await).await;
    let code = fixture.code(&returned).await;
    let answer = fixture.reply("alice", &code).await;
    assert!(
        answer.text().contains("requires sign-in"),
        "{}",
        answer.text()
    );
    // Bob does not know the code. What he writes in another conversation does not count either.
    let answer = fixture.reply("bob", "ABCD-EFGH").await;
    assert!(
        answer.text().contains("requires sign-in"),
        "{}",
        answer.text()
    );
    let other = json!([{"role": "user", "content": format!("another one - {code}")}]);
    let answer = fixture.ask("bob", other).await;
    assert!(
        answer.text().contains("requires sign-in"),
        "{}",
        answer.text()
    );
    assert_eq!(fixture.exchanges(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_state_that_is_wrong_or_was_used_opens_nothing() {
    let fixture = SignInFixture::new(3600).await;
    let first = fixture.page("alice").await;
    let page = fixture.page("alice").await;
    // A conversation has one page for each server: the newer one.
    let (status, text) = fixture.open(&fixture.follow(&first).await).await;
    assert_eq!(status, 404, "{text}");
    let returned = fixture.follow(&page).await;
    let (base, query) = returned.split_once('?').unwrap();
    let changed = query.replace("state=", "state=x");
    for wrong in [
        format!("{base}?{changed}"),
        format!("{base}?code=code-1"),
        base.to_owned(),
    ] {
        let (status, text) = fixture.open(&wrong).await;
        assert_eq!(status, 404, "{wrong}: {text}");
    }
    let code = fixture.code(&returned).await;
    let (status, _) = fixture.open(&returned).await;
    assert_eq!(status, 404, "the address came twice");
    fixture.server.shared().lock().codes.remove(0);
    assert_eq!(fixture.reply("alice", &code).await.text(), "Done.");
    // The tokens are withdrawn, so a code would be needed again: each works only once.
    fixture.server.shared().lock().tokens.clear();
    let answer = fixture.reply("alice", &code).await;
    assert!(
        answer.text().contains("requires sign-in"),
        "{}",
        answer.text()
    );
    assert_eq!(fixture.exchanges(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_answer_of_another_authorization_server_is_refused_and_the_page_stays_open() {
    let fixture = SignInFixture::new(3600).await;
    let returned = fixture.follow(&fixture.page("alice").await).await;
    let (sound, _) = returned.split_once("&iss=").unwrap();
    for mixed_up in [
        format!("{sound}&iss=https://evil.example"),
        sound.to_owned(),
    ] {
        let (status, text) = fixture.open(&mixed_up).await;
        assert_eq!(status, 400, "{text}");
    }
    // A person who refuses ends it, with the right issuer.
    let code = fixture.code(&returned).await;
    assert_eq!(fixture.reply("alice", &code).await.text(), "Done.");

    let returned = fixture.follow(&fixture.page("bob").await).await;
    let denied = returned.replace("code=code-2", "error=access_denied");
    let (status, text) = fixture.open(&denied).await;
    assert!(
        status == 200 && text.contains("not signed in"),
        "{status} {text}"
    );
    assert_eq!(fixture.open(&returned).await.0, 404);
    assert_eq!(fixture.exchanges(), 1);
}
