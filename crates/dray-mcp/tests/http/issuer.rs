//! A fake authorization server: it signs tokens with its own keys, renews them, and responds as a test requires.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::{SystemTime, UNIX_EPOCH};

use dray_bus::Bus;
use dray_jwt::fake_issuer::{self, SigningKey};
use dray_proto::v1;
use dray_types::{Fault, FaultCode};
use serde_json::{Value, json};
use tokio::task::JoinSet;

/// The issuer identifier.
pub(crate) const ISSUER_URL: &str = "https://login.example.org/";
/// The audience of its tokens for the server under test.
pub(crate) const RESOURCE_URL: &str = "https://files.example.org/mcp";
/// URL of its keys.
pub(crate) const JWKS_URL: &str = "https://login.example.org/keys";

/// How the server responds to a request for its keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum KeysAnswer {
    /// Responds with the JSON Web Key Set.
    Keys,
    /// Responds with a text that is not a key set.
    Garbage,
    /// Responds with status 500.
    Failure,
    /// The fetch of the keys is refused by the policy.
    Refused,
    /// Never responds.
    Stall,
}

/// The outcome of a fetch of another URL.
type OtherFetch = dyn Fn(&v1::FetchRequest) -> Result<v1::FetchReply, Fault> + Send + Sync;

struct IssuerState {
    keys: BTreeMap<String, SigningKey>,
    answer: KeysAnswer,
    requests: u32,
    other_fetch: Option<Arc<OtherFetch>>,
}

/// The server. Its keys are fetched through a fake egress-fetcher on the bus.
#[derive(Clone)]
pub(crate) struct FakeIssuer {
    state: Arc<Mutex<IssuerState>>,
}

impl FakeIssuer {
    pub(crate) fn new() -> Self {
        let keys = BTreeMap::from([("k1".to_owned(), SigningKey::generate_curve())]);
        Self {
            state: Arc::new(Mutex::new(IssuerState {
                keys,
                answer: KeysAnswer::Keys,
                requests: 0,
                other_fetch: None,
            })),
        }
    }

    /// Serves the keys over the bus, until the tasks are dropped.
    pub(crate) async fn serve(&self, bus: &Bus, tasks: &mut JoinSet<()>) {
        let mut service = bus
            .respond_to("dray.egress.v1.fetch", "egress-fetcher")
            .await
            .unwrap();
        let issuer = self.clone();
        tasks.spawn(async move {
            let mut stalled = Vec::new();
            while let Some(request) = service.next().await {
                let fetch: v1::FetchRequest = request.decode().unwrap();
                let other_fetch = issuer.state.lock().unwrap().other_fetch.clone();
                if let (Some(other_fetch), true) = (other_fetch, fetch.url != JWKS_URL) {
                    request.answer(other_fetch(&fetch)).await;
                    continue;
                }
                assert_eq!(fetch.url, JWKS_URL);
                assert!(
                    fetch.revalidate,
                    "keys come from the issuer, not from a cache"
                );
                match issuer.answer() {
                    Some(result) => request.answer(result).await,
                    None => stalled.push(request),
                }
            }
        });
    }

    fn answer(&self) -> Option<Result<v1::FetchReply, Fault>> {
        let document = self.key_set().to_string();
        let mut state = self.state.lock().unwrap();
        state.requests += 1;
        let (status, text) = match state.answer {
            KeysAnswer::Keys => (200, document),
            KeysAnswer::Garbage => (200, "<html>".to_owned()),
            KeysAnswer::Failure => (500, document),
            KeysAnswer::Refused => {
                return Some(Err(Fault::new(FaultCode::Denied, "Fetching is off.")));
            }
            KeysAnswer::Stall => return None,
        };
        Some(Ok(v1::FetchReply {
            content: Some(v1::Content {
                body: Some(v1::content::Body::Inline(text.into())),
            }),
            http_status: status,
            ..v1::FetchReply::default()
        }))
    }

    /// Answers fetches of other URLs in this way.
    pub(crate) fn serve_fetches(
        &self,
        other: impl Fn(&v1::FetchRequest) -> Result<v1::FetchReply, Fault> + Send + Sync + 'static,
    ) {
        self.state.lock().unwrap().other_fetch = Some(Arc::new(other));
    }

    pub(crate) fn set_answer(&self, answer: KeysAnswer) {
        self.state.lock().unwrap().answer = answer;
    }

    /// Number of fetches of the keys.
    pub(crate) fn requests(&self) -> u32 {
        self.state.lock().unwrap().requests
    }

    /// Replaces all keys by one with this id.
    pub(crate) fn rotate(&self, id: &str) {
        let keys = BTreeMap::from([(id.to_owned(), SigningKey::generate_curve())]);
        self.state.lock().unwrap().keys = keys;
    }

    pub(crate) fn key_set(&self) -> Value {
        let state = self.state.lock().unwrap();
        let keys = state.keys.iter().map(|(id, key)| key.to_jwk(id));
        json!({"keys": keys.collect::<Vec<_>>()})
    }

    /// The public point of the first key.
    pub(crate) fn public_key(&self) -> Vec<u8> {
        let state = self.state.lock().unwrap();
        state.keys.values().next().unwrap().public_bytes().to_vec()
    }

    /// A token with these claims in addition to the required ones; `null` removes one.
    pub(crate) fn token(&self, claims: &Value) -> String {
        let id = self.state.lock().unwrap().keys.keys().next().cloned();
        self.signed(&json!({"alg": "ES256", "typ": "at+jwt", "kid": id}), claims)
    }

    /// Like [`Self::token`], with this header, signed by the first key.
    pub(crate) fn signed(&self, header: &Value, claims: &Value) -> String {
        let state = self.state.lock().unwrap();
        let key = state.keys.values().next().unwrap();
        key.sign_token(header, &all_claims(claims))
    }
}

/// Header and claims of a token, as they are signed.
pub(crate) fn signing_input(header: &Value, claims: &Value) -> String {
    fake_issuer::signing_input(header, &all_claims(claims))
}

/// The required claims with these changes; `null` removes one.
fn all_claims(claims: &Value) -> Value {
    let mut payload = json!({
        "iss": ISSUER_URL, "aud": RESOURCE_URL, "sub": "user-1", "exp": seconds_from_now(600),
        "scope": "read fetch", "tenant": "acme",
    });
    for (name, value) in claims.as_object().unwrap() {
        payload[name] = value.clone();
    }
    payload
        .as_object_mut()
        .unwrap()
        .retain(|_, value| !value.is_null());
    payload
}

/// A time of a claim.
pub(crate) fn seconds_from_now(seconds: i64) -> i64 {
    #[expect(
        clippy::disallowed_methods,
        reason = "tokens are checked against the real time"
    )]
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    i64::try_from(now.as_secs()).unwrap() + seconds
}
