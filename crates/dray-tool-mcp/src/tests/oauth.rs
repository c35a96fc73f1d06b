//! Tests of sign-ins to remote servers: a server that is its own authorization server, or names another one.

mod call_renewal;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use dray_agent::caller::Caller;
use dray_dial::signin::SignIn;
use dray_http::HttpClient;
use dray_http::fake_server::{
    self, ConnectionClosed, FakeServer, FormData, ReceivedRequest, Reply, SharedState,
};
use dray_tool::ToolsetResult;
use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use serde_json::{Value, json};
use tokio::sync::watch;

use super::support::{call, mcp, messages, named, options};
use crate::{
    McpOptions, McpToolset, PendingSignIn, RenewalLease, SignInKeeper, SignInOwner, SignInPage,
    SignInPort, SignInStoreError, connect_set,
};

const REDIRECT_URI: &str = "https://drayage.example/callback";

/// A server of 2026-07-28 that takes tokens, and the place that issues them.
#[derive(Debug, Default)]
pub(super) struct ProtectedServer {
    /// The issuer that it names; its own URL if absent.
    issuer: Option<String>,
    /// The scope that a call and a list of resources need beyond the first one.
    call_scope: Option<&'static str>,
    /// Scopes of the tokens `token-1`, `token-2` and so on.
    granted: Vec<String>,
    /// Tokens that are no longer accepted.
    pub(super) revoked: usize,
    /// Forms that the token endpoint got.
    pub(super) exchanges: Vec<Vec<(String, String)>>,
    /// Scopes of the pages that were opened.
    pages: Vec<String>,
    /// The refresh token that is accepted, if there are any: each of them can be used once.
    refresh: Option<String>,
    /// Paths whose next request ends with the connection instead of a response.
    pub(super) closing: Vec<&'static str>,
    /// Renewals happen immediately, and their responses wait for this.
    held: Option<watch::Receiver<bool>>,
}

pub(super) async fn protected(state: ProtectedServer) -> FakeServer<ProtectedServer> {
    let answer = |shared: Arc<SharedState<ProtectedServer>>,
                  request: ReceivedRequest|
     -> BoxFuture<'static, Result<Reply, ConnectionClosed>> {
        answer(shared, request).boxed()
    };
    FakeServer::start(state, answer).await.unwrap()
}

async fn answer(
    shared: Arc<SharedState<ProtectedServer>>,
    request: ReceivedRequest,
) -> Result<Reply, ConnectionClosed> {
    let url = shared.url();
    let ok = |value: Value| Ok(fake_server::json_reply(200, &value));
    {
        let closing = &mut shared.lock().closing;
        if let Some(index) = closing.iter().position(|path| *path == request.path) {
            closing.remove(index);
            return Err(ConnectionClosed);
        }
    }
    match request.path.as_str() {
        "/mcp" => message(&shared, request).await,
        "/.well-known/oauth-protected-resource/mcp" => {
            let issuer = shared.lock().issuer.clone().unwrap_or_else(|| url.clone());
            ok(json!({"resource": format!("{url}/mcp"), "authorization_servers": [issuer]}))
        }
        "/.well-known/oauth-authorization-server" => ok(json!({
            "issuer": url,
            "authorization_endpoint": format!("{url}/authorize"),
            "token_endpoint": format!("{url}/token"),
            "response_types_supported": ["code"],
            "code_challenge_methods_supported": ["S256"],
            "token_endpoint_auth_methods_supported": ["client_secret_post"],
        })),
        "/authorize" => {
            let scope = request.parameter("scope").unwrap_or_default();
            let state = request.parameter("state").unwrap_or_default();
            shared.lock().pages.push(scope.clone());
            let reply = fake_server::json_reply(302, &json!({}));
            let code = scope.replace(' ', "+");
            let target = format!("{REDIRECT_URI}?code={code}&state={state}");
            Ok(fake_server::with_header(reply, "location", &target))
        }
        "/token" => {
            let form = request.form().await?;
            let is_renewal = form.field("grant_type") == "refresh_token";
            let reply = issue_token(&mut shared.lock(), form);
            let held_renewal = shared.lock().held.clone().filter(|_| is_renewal);
            if let Some(mut held_renewal) = held_renewal {
                held_renewal.wait_for(|is_open| *is_open).await.unwrap();
            }
            Ok(reply)
        }
        _ => Ok(fake_server::json_reply(404, &json!({}))),
    }
}

/// The token endpoint. Tokens that can be renewed expire immediately, except those of a renewal whose response is held.
fn issue_token(state: &mut ProtectedServer, form: FormData) -> Reply {
    let used = form.field("refresh_token").to_owned();
    let is_renewal = form.field("grant_type") == "refresh_token";
    let scope = match form.field("grant_type") {
        "client_credentials" | "urn:ietf:params:oauth:grant-type:jwt-bearer" => {
            form.field("scope").to_owned()
        }
        "refresh_token" => "files".to_owned(),
        _ => form.field("code").to_owned(),
    };
    state.exchanges.push(form.fields);
    if is_renewal && state.refresh.as_ref() != Some(&used) {
        return fake_server::json_reply(400, &json!({"error": "invalid_grant"}));
    }
    state.granted.push(scope.clone());
    let number = state.granted.len();
    let mut tokens = json!({"access_token": format!("token-{number}"), "token_type": "Bearer", "scope": scope,
        "expires_in": 3600});
    if let Some(refresh) = &mut state.refresh {
        *refresh = format!("again-{number}");
        tokens["refresh_token"] = json!(refresh);
        if state.held.is_none() {
            tokens["expires_in"] = json!(1);
        }
    }
    fake_server::json_reply(200, &tokens)
}

/// Scopes of the token of a request; `None` without a valid token.
fn scopes(state: &ProtectedServer, request: &ReceivedRequest) -> Option<String> {
    let number = request
        .header("authorization")?
        .strip_prefix("Bearer token-")?;
    let number: usize = number.parse().ok()?;
    (number > state.revoked).then(|| state.granted.get(number - 1).cloned())?
}

async fn message(
    shared: &SharedState<ProtectedServer>,
    request: ReceivedRequest,
) -> Result<Reply, ConnectionClosed> {
    let metadata = format!("{}/.well-known/oauth-protected-resource/mcp", shared.url());
    let refused = |status: u16, rest: &str| {
        let header = format!("Bearer resource_metadata=\"{metadata}\", {rest}");
        let reply = fake_server::json_reply(status, &json!({}));
        Ok(fake_server::with_header(reply, "www-authenticate", &header))
    };
    let (scopes, call_scope) = {
        let state = shared.lock();
        (scopes(&state, &request), state.call_scope)
    };
    let Some(scopes) = scopes else {
        return refused(401, "scope=\"files\"");
    };
    let message = request.json().await?;
    let method = message["method"].as_str().unwrap_or_default();
    if let Some(needed) = call_scope.filter(|_| matches!(method, "tools/call" | "resources/list"))
        && !scopes.split(' ').any(|scope| scope == needed)
    {
        return refused(
            403,
            &format!("error=\"insufficient_scope\", scope=\"{needed}\""),
        );
    }
    let result = match method {
        "server/discover" => json!({
            "resultType": "complete", "supportedVersions": ["2026-07-28"],
            "capabilities": {"tools": {}, "resources": {}}, "ttlMs": 0, "cacheScope": "private",
        }),
        "resources/list" => json!({
            "resultType": "complete", "ttlMs": 0, "cacheScope": "private",
            "resources": [{"uri": "notes://1", "name": "one"}],
        }),
        "tools/list" => json!({
            "resultType": "complete", "ttlMs": 0, "cacheScope": "private",
            "tools": [{"name": "echo", "inputSchema": {"type": "object"}}],
        }),
        _ => json!({"resultType": "complete", "content": [{"type": "text", "text": scopes}]}),
    };
    let body = json!({"jsonrpc": "2.0", "id": message["id"], "result": result});
    Ok(fake_server::json_reply(200, &body))
}

/// A user whose browser follows the page to its end.
#[derive(Debug)]
struct FakeUser {
    browser: HttpClient,
    outcome: Result<(), SignIn>,
    asked: AtomicUsize,
}

#[async_trait]
impl SignInPort for FakeUser {
    fn redirect_uri(&self) -> &str {
        REDIRECT_URI
    }

    async fn authorize(&self, _: &Caller, page: &SignInPage) -> Result<String, SignIn> {
        self.asked.fetch_add(1, Ordering::Relaxed);
        self.outcome?;
        let opened = self.browser.get(&page.url).send(&|_| {}).await.unwrap();
        Ok(opened.header("location").unwrap().to_owned())
    }
}

fn user(outcome: Result<(), SignIn>) -> Arc<FakeUser> {
    Arc::new(FakeUser {
        browser: options().client,
        outcome,
        asked: AtomicUsize::new(0),
    })
}

fn with_user(user: &Arc<FakeUser>) -> McpOptions {
    let mut options = options();
    options.oauth.port = Some(Arc::<FakeUser>::clone(user));
    options
}

pub(super) async fn connected(
    server: &FakeServer<ProtectedServer>,
    authorization: &Value,
    options: &McpOptions,
) -> ToolsetResult {
    let url = format!("{}/mcp", server.shared().url());
    let mut client = json!({"type": "oauth"});
    for (key, value) in authorization.as_object().unwrap() {
        client[key] = value.clone();
    }
    let info = json!({"url": url, "protocol": "streamable_http", "authorization": client});
    let set = mcp(json!({"name": "s", "mcp_server_info": info}));
    connect_set(McpToolset::Mcp(&set), &Caller::default(), options).await
}

#[tokio::test]
async fn a_user_signs_in_with_pkce_and_only_for_this_server() {
    let server = protected(ProtectedServer::default()).await;
    let user = user(Ok(()));
    let built = connected(&server, &json!({"client_id": "c"}), &with_user(&user)).await;
    assert_eq!(messages(&built), [""; 0]);
    let output = call(&named(&built, "s_echo"), json!({})).await.unwrap();
    assert_eq!(output.content, "files");
    let state = server.shared().lock();
    let [form] = &state.exchanges[..] else {
        panic!("{:?}", state.exchanges);
    };
    let field = |name: &str| {
        form.iter()
            .find(|(key, _)| key == name)
            .map(|(_, value)| value)
    };
    assert!(field("code_verifier").is_some_and(|verifier| verifier.len() >= 43));
    assert_eq!(
        field("resource"),
        Some(&format!("{}/mcp", server.shared().url()))
    );
    assert_eq!(field("client_id").map(String::as_str), Some("c"));
}

#[tokio::test]
async fn a_call_that_needs_further_scopes_asks_the_user_once_more() {
    let server = protected(ProtectedServer {
        call_scope: Some("write"),
        ..ProtectedServer::default()
    })
    .await;
    let user = user(Ok(()));
    let built = connected(&server, &json!({"client_id": "c"}), &with_user(&user)).await;
    let output = call(&named(&built, "s_echo"), json!({})).await.unwrap();
    assert_eq!(output.content, "files write");
    assert_eq!(server.shared().lock().pages, ["files", "files write"]);
}

#[tokio::test]
async fn a_sign_in_is_kept_for_its_principal_and_for_no_other() {
    let server = protected(ProtectedServer::default()).await;
    let user = user(Ok(()));
    let of = |principal: &str| McpOptions {
        principal: Some(principal.to_owned()),
        ..with_user(&user)
    };
    let (ann, bob) = (of("ann"), of("bob"));
    // The same sign-ins, as the options of a service have them.
    let bob = McpOptions {
        oauth: ann.oauth.clone(),
        ..bob
    };
    let client = json!({"client_id": "c"});
    for (options, asked) in [(&ann, 1), (&ann, 1), (&bob, 2), (&ann, 2)] {
        assert_eq!(connected(&server, &client, options).await.tools.len(), 1);
        assert_eq!(user.asked.load(Ordering::Relaxed), asked);
    }
    server.shared().lock().revoked = 2;
    assert_eq!(connected(&server, &client, &ann).await.tools.len(), 1);
    assert_eq!(user.asked.load(Ordering::Relaxed), 3);
}

/// Stores tokens in memory, as a store that replicas share.
#[derive(Debug, Default)]
struct MemoryKeeper(Mutex<Option<String>>);

#[async_trait]
impl SignInKeeper for MemoryKeeper {
    fn redirect_uri(&self) -> &str {
        REDIRECT_URI
    }

    async fn keep_pending(
        &self,
        _: &SignInOwner,
        _: &str,
        _: &PendingSignIn,
    ) -> Result<(), SignInStoreError> {
        Err(SignInStoreError)
    }

    async fn load_tokens(&self, _: &SignInOwner) -> Result<Option<String>, SignInStoreError> {
        Ok(self.0.lock().unwrap().clone())
    }

    async fn save_tokens(
        &self,
        _: &SignInOwner,
        tokens: Option<&str>,
    ) -> Result<(), SignInStoreError> {
        *self.0.lock().unwrap() = tokens.map(str::to_owned);
        Ok(())
    }

    async fn begin_renewal(&self, _: &SignInOwner) -> Result<RenewalLease, SignInStoreError> {
        Ok(RenewalLease { revision: 1 })
    }

    async fn end_renewal(&self, _: &SignInOwner, _: RenewalLease) {}
}

#[tokio::test]
async fn a_request_that_is_cancelled_during_a_renewal_loses_no_token() {
    let server = protected(ProtectedServer {
        refresh: Some(String::new()),
        ..ProtectedServer::default()
    })
    .await;
    let user = user(Ok(()));
    let mut options = with_user(&user);
    options.principal = Some("ann".to_owned());
    options.oauth.keeper = Some(Arc::new(MemoryKeeper::default()));
    let client = json!({"client_id": "c"});
    assert_eq!(connected(&server, &client, &options).await.tools.len(), 1);
    let before = server.shared().lock().exchanges.len();
    let (release, held) = watch::channel(false);
    server.shared().lock().held = Some(held);
    {
        let cancelled = connected(&server, &client, &options);
        let renewed = async {
            while server.shared().lock().exchanges.len() == before {
                tokio::task::yield_now().await;
            }
        };
        tokio::select! {
            _ = cancelled => panic!("the call must wait for the response of the renewal"),
            () = renewed => {}
        }
    }
    release.send(true).unwrap();
    assert_eq!(connected(&server, &client, &options).await.tools.len(), 1);
    // The renewed tokens are valid: there is no second renewal, and no second page.
    assert_eq!(server.shared().lock().exchanges.len(), before + 1);
    assert_eq!(user.asked.load(Ordering::Relaxed), 1);
}

#[tokio::test]
async fn a_client_with_a_secret_signs_in_without_a_user() {
    let server = protected(ProtectedServer::default()).await;
    let client = json!({
        "client_id": "c", "client_secret": "s", "grant": "client_credentials", "scope": "files",
    });
    let built = connected(&server, &client, &options()).await;
    assert_eq!(messages(&built), [""; 0]);
    let state = server.shared().lock();
    let form: Vec<_> = state.exchanges.iter().flatten().collect();
    assert!(
        form.contains(&&("client_secret".to_owned(), "s".to_owned())),
        "{form:?}"
    );
}

#[tokio::test]
async fn a_client_with_a_secret_gets_further_scopes_without_a_user() {
    let server = protected(ProtectedServer {
        call_scope: Some("write"),
        ..ProtectedServer::default()
    })
    .await;
    let client = json!({
        "client_id": "c", "client_secret": "s", "grant": "client_credentials", "scope": "files",
    });
    let user = user(Ok(()));
    let built = connected(&server, &client, &with_user(&user)).await;
    let output = call(&named(&built, "s_echo"), json!({})).await.unwrap();
    assert_eq!(output.content, "files write");
    assert_eq!(user.asked.load(Ordering::Relaxed), 0);
    assert_eq!(server.shared().lock().exchanges.len(), 2);
}

#[tokio::test]
async fn a_list_of_resources_that_needs_further_scopes_asks_the_user_too() {
    let server = protected(ProtectedServer {
        call_scope: Some("write"),
        ..ProtectedServer::default()
    })
    .await;
    let info = json!({
        "url": format!("{}/mcp", server.shared().url()), "protocol": "streamable_http",
        "authorization": {"type": "oauth", "client_id": "c"},
    });
    let set = mcp(json!({"name": "s", "mcp_server_info": info, "resources": true}));
    let options = with_user(&user(Ok(())));
    let built = connect_set(McpToolset::Mcp(&set), &Caller::default(), &options).await;
    let listing = named(&built, "s_list_resources");
    let listed = call(&listing, json!({})).await.unwrap();
    assert!(listed.content.contains("notes://1"), "{}", listed.content);
    assert_eq!(server.shared().lock().pages, ["files", "files write"]);
}

#[tokio::test]
async fn a_sign_in_that_fails_is_an_issue_with_its_reason() {
    let client = json!({"client_id": "c"});
    for (outcome, text) in [
        (SignIn::Denied, "Sign-in was denied for toolset 's'"),
        (SignIn::TimedOut, "Sign-in timed out for toolset 's'"),
        (SignIn::Failed, "Sign-in failed for toolset 's'"),
    ] {
        let server = protected(ProtectedServer::default()).await;
        let built = connected(&server, &client, &with_user(&user(Err(outcome)))).await;
        assert_eq!(messages(&built), [text]);
    }
    let server = protected(ProtectedServer::default()).await;
    let built = connected(&server, &client, &options()).await;
    assert_eq!(
        messages(&built),
        ["Toolset 's' requires sign-in, but no client channel is available"]
    );
}

#[tokio::test]
async fn an_authorization_server_that_the_manifest_does_not_name_is_never_contacted() {
    let issuer = protected(ProtectedServer::default()).await;
    let server = protected(ProtectedServer {
        issuer: Some(issuer.shared().url()),
        ..ProtectedServer::default()
    })
    .await;
    let user = user(Ok(()));
    let built = connected(&server, &json!({"client_id": "c"}), &with_user(&user)).await;
    assert_eq!(
        messages(&built),
        [
            "Toolset 's' names the authorization server '127.0.0.1', which is not among the `authorization_servers` of \
             its manifest"
        ]
    );
    assert_eq!(issuer.shared().received(), 0);
    let trusting = json!({"client_id": "c", "authorization_servers": [issuer.shared().url()]});
    // The server does not accept tokens of this issuer, so the sign-in gives no tools; but the sign-in happened there.
    connected(&server, &trusting, &with_user(&user)).await;
    assert!(!issuer.shared().lock().exchanges.is_empty());
}

#[tokio::test]
async fn a_server_that_never_accepts_a_token_is_given_up() {
    let server = protected(ProtectedServer {
        revoked: usize::MAX,
        ..ProtectedServer::default()
    })
    .await;
    let user = user(Ok(()));
    let built = connected(&server, &json!({"client_id": "c"}), &with_user(&user)).await;
    assert_eq!(
        messages(&built),
        ["Authentication required for toolset 's'"]
    );
    assert_eq!(user.asked.load(Ordering::Relaxed), 3);
}
