//! A fake identity provider on loopback: it signs ID tokens with its own keys, and fails as a test requires.

use std::collections::HashMap;
use std::time::{SystemTime, UNIX_EPOCH};

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use bytes::Bytes;
use dray_http::fake_server::{
    ConnectionClosed, FakeServer, ReceivedRequest, Reply, SharedState, bytes_reply, cut_reply,
    json_reply, with_header,
};
use dray_jwt::fake_issuer::SigningKey;
use dray_types::{Secret, Sha256Digest};
use serde_json::{Value, json};
use std::sync::Arc;

use crate::OidcSettings;

/// Id of the console at the provider.
pub(super) const CLIENT_ID: &str = "console";
/// Secret of the console at the provider. It contains characters that must be encoded.
pub(super) const CLIENT_SECRET: &str = "s3cret of:the+console";

// Paths of the endpoints of the provider.
pub(super) const DISCOVERY_PATH: &str = "/team/.well-known/openid-configuration";
pub(super) const TOKEN_PATH: &str = "/team/token";
pub(super) const KEYS_PATH: &str = "/team/keys";
pub(super) const USERINFO_PATH: &str = "/team/me";

/// The access token of every login.
const ACCESS_TOKEN: &str = "access-1";

/// How an endpoint of the provider fails.
#[derive(Clone, Copy, Debug)]
pub(super) enum ProviderFault {
    /// Responds with this HTTP status and no body.
    Status(u16),
    /// Responds with a text that is not JSON.
    Garbage,
    /// Responds with more bytes than any limit.
    Huge,
    /// Cuts the response off.
    Cut,
    /// Does not respond.
    Stall,
    /// Responds with a redirect to itself, which a client must not follow with a secret.
    Redirect,
}

/// A code that was issued and not used yet.
struct IssuedCode {
    nonce: String,
    code_challenge: String,
    redirect_uri: String,
}

/// The state that tests set and inspect.
pub(super) struct ProviderState {
    /// Keys by id; the first one signs.
    pub(super) keys: Vec<(String, SigningKey)>,
    codes: HashMap<String, IssuedCode>,
    /// Changed fields of the discovery document; `null` removes one.
    pub(super) discovery: Value,
    /// Changed claims; `null` removes one.
    pub(super) claims: Value,
    /// The response of the userinfo endpoint.
    pub(super) userinfo: Value,
    /// Header of tokens; by default that of the first key.
    pub(super) header: Option<Value>,
    /// Changes a token before it is sent.
    pub(super) tamper: fn(String) -> String,
    pub(super) faults: HashMap<&'static str, ProviderFault>,
    /// Requests by path.
    pub(super) requests: HashMap<String, u32>,
    /// `Authorization` of the last token request, and its form.
    pub(super) last_token_request: (String, Vec<(String, String)>),
}

/// An OpenID provider on loopback that signs its own tokens.
pub(super) struct FakeProvider(FakeServer<ProviderState>);

impl FakeProvider {
    pub(super) async fn start() -> Self {
        let state = ProviderState {
            keys: vec![("k1".to_owned(), SigningKey::generate_curve())],
            codes: HashMap::new(),
            discovery: json!({}),
            claims: json!({}),
            userinfo: json!({"sub": "u-1", "name": "Ada of the userinfo", "groups": ["staff"]}),
            header: None,
            tamper: |token| token,
            faults: HashMap::new(),
            requests: HashMap::new(),
            last_token_request: (String::new(), Vec::new()),
        };
        let server = FakeServer::start(state, |shared, request| {
            let response: futures_util::future::BoxFuture<'static, _> =
                Box::pin(respond(shared, request));
            response
        });
        Self(server.await.unwrap())
    }

    /// The issuer identifier, a URL.
    pub(super) fn issuer(&self) -> String {
        format!("{}/team", self.0.shared().url())
    }

    pub(super) fn state(&self) -> std::sync::MutexGuard<'_, ProviderState> {
        self.0.shared().lock()
    }

    /// Settings of a console in which the group `staff` may read and `ops` may act.
    pub(super) fn settings(&self) -> OidcSettings {
        OidcSettings {
            issuer: self.issuer(),
            client_id: CLIENT_ID.to_owned(),
            client_secret: Some(Secret::new(CLIENT_SECRET)),
            look_values: vec!["staff".to_owned()],
            act_values: vec!["ops".to_owned()],
            ..OidcSettings::default()
        }
    }

    /// Logs in the person whose browser was redirected to this URL, and returns the code.
    pub(super) fn issue_code(&self, parameters: &HashMap<String, String>) -> String {
        assert_eq!(parameters["response_type"], "code");
        assert_eq!(parameters["client_id"], CLIENT_ID);
        assert_eq!(parameters["scope"], "openid profile");
        assert_eq!(parameters["code_challenge_method"], "S256");
        let mut state = self.state();
        let code = format!("code-{}", rand::random::<u64>());
        let issued = IssuedCode {
            nonce: parameters["nonce"].clone(),
            code_challenge: parameters["code_challenge"].clone(),
            redirect_uri: parameters["redirect_uri"].clone(),
        };
        state.codes.insert(code.clone(), issued);
        code
    }

    /// Forgets all codes, as if they had expired.
    pub(super) fn expire_codes(&self) {
        self.state().codes.clear();
    }

    pub(super) fn requests(&self, path: &str) -> u32 {
        self.state().requests.get(path).copied().unwrap_or(0)
    }
}

/// The value of a claim with a time.
pub(super) fn seconds_from_now(seconds: i64) -> i64 {
    #[expect(
        clippy::disallowed_methods,
        reason = "tokens are compared with the real time"
    )]
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    i64::try_from(now.as_secs()).unwrap() + seconds
}

async fn respond(
    shared: Arc<SharedState<ProviderState>>,
    request: ReceivedRequest,
) -> Result<Reply, ConnectionClosed> {
    let path = request.path.clone();
    let fault = {
        let mut state = shared.lock();
        *state.requests.entry(path.clone()).or_default() += 1;
        state.faults.get(path.as_str()).copied()
    };
    match fault {
        Some(fault) => fail(fault, &path).await,
        None => Ok(match path.as_str() {
            DISCOVERY_PATH => json_reply(200, &discovery_document(&shared)),
            KEYS_PATH => json_reply(200, &key_set(&shared.lock())),
            USERINFO_PATH => respond_to_userinfo_request(&shared.lock(), &request),
            TOKEN_PATH => respond_to_token_request(&shared, request).await?,
            _ => json_reply(404, &json!({})),
        }),
    }
}

async fn fail(fault: ProviderFault, path: &str) -> Result<Reply, ConnectionClosed> {
    Ok(match fault {
        ProviderFault::Status(status) => json_reply(status, &json!({"error": "server_error"})),
        ProviderFault::Garbage => bytes_reply(200, "text/html", Bytes::from_static(b"<html>")),
        ProviderFault::Huge => bytes_reply(200, "application/json", vec![b' '; 1 << 20].into()),
        ProviderFault::Cut => cut_reply("application/json", &Bytes::from_static(b"{}    "), 2),
        ProviderFault::Stall => std::future::pending().await,
        ProviderFault::Redirect => with_header(json_reply(307, &json!({})), "location", path),
    })
}

fn merge(mut value: Value, changes: &Value) -> Value {
    for (name, change) in changes.as_object().unwrap() {
        value[name] = change.clone();
    }
    value
        .as_object_mut()
        .unwrap()
        .retain(|_, value| !value.is_null());
    value
}

fn discovery_document(shared: &SharedState<ProviderState>) -> Value {
    let base = shared.url();
    let document = json!({
        "issuer": format!("{base}/team"),
        "authorization_endpoint": format!("{base}/team/authorize?realm=team"),
        "token_endpoint": format!("{base}{TOKEN_PATH}"),
        "jwks_uri": format!("{base}{KEYS_PATH}"),
        "userinfo_endpoint": format!("{base}{USERINFO_PATH}"),
        "response_types_supported": ["code"],
        "authorization_response_iss_parameter_supported": true,
    });
    merge(document, &shared.lock().discovery)
}

fn key_set(state: &ProviderState) -> Value {
    let keys = state.keys.iter().map(|(id, key)| key.to_jwk(id));
    json!({"keys": keys.collect::<Vec<_>>()})
}

fn respond_to_userinfo_request(state: &ProviderState, request: &ReceivedRequest) -> Reply {
    let expected = format!("Bearer {ACCESS_TOKEN}");
    if request.header("authorization") == Some(expected.as_str()) {
        json_reply(200, &state.userinfo)
    } else {
        json_reply(401, &json!({"error": "invalid_token"}))
    }
}

/// The token endpoint: it checks the client, the code, the redirect URI and the code verifier.
async fn respond_to_token_request(
    shared: &SharedState<ProviderState>,
    request: ReceivedRequest,
) -> Result<Reply, ConnectionClosed> {
    let authorization = request
        .header("authorization")
        .unwrap_or_default()
        .to_owned();
    let body = request.into_reader().all().await?;
    let form: Vec<(String, String)> = url::form_urlencoded::parse(&body).into_owned().collect();
    let field = |name: &str| {
        let found = form.iter().find(|(key, _)| key == name);
        found.map_or("", |(_, value)| value.as_str())
    };
    let issuer = format!("{}/team", shared.url());
    let mut state = shared.lock();
    state.last_token_request = (authorization.clone(), form.clone());
    let basic = format!(
        "Basic {}",
        STANDARD.encode("console:s3cret+of%3Athe%2Bconsole")
    );
    let is_posted = field("client_id") == CLIENT_ID && field("client_secret") == CLIENT_SECRET;
    if authorization != basic && !is_posted {
        return Ok(json_reply(401, &json!({"error": "invalid_client"})));
    }
    let digest = Sha256Digest::of(field("code_verifier").as_bytes());
    let challenge = URL_SAFE_NO_PAD.encode(digest.as_bytes());
    // The code is removed, because a code is valid once.
    let issued = state.codes.remove(field("code")).filter(|issued| {
        issued.code_challenge == challenge && issued.redirect_uri == field("redirect_uri")
    });
    let Some(issued) = issued else {
        return Ok(json_reply(400, &json!({"error": "invalid_grant"})));
    };
    let claims = json!({
        "iss": issuer, "sub": "u-1", "aud": CLIENT_ID, "exp": seconds_from_now(300),
        "iat": seconds_from_now(0), "nonce": issued.nonce, "name": "Ada <Lovelace>",
        "groups": ["ops"],
    });
    let (id, key) = &state.keys[0];
    let header = json!({"alg": key.algorithm(), "kid": id});
    let header = state.header.clone().unwrap_or(header);
    let token = key.sign_token(&header, &merge(claims, &state.claims));
    let token = (state.tamper)(token);
    let reply = json!({"id_token": token, "access_token": ACCESS_TOKEN, "token_type": "Bearer"});
    Ok(json_reply(200, &reply))
}
