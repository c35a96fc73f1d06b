//! The checks of a token, in their order: size, header, key, signature, claims.

use dray_types::Clock;
use jsonwebtoken::errors::ErrorKind;
use jsonwebtoken::{Algorithm, Validation};
use serde_json::{Map, Value};

use crate::claims::{ClaimRules, TokenClaims};
use crate::key_cache::{KeyCache, KeyError};
use crate::signature::install_provider;

/// Longest token that is checked, in bytes.
const MAX_TOKEN_BYTES: usize = 16 * 1024;
/// Longest `kid` that is looked up, in bytes.
const MAX_KEY_ID_BYTES: usize = 512;
/// Algorithms of tokens: those with a public key. With a shared secret (`HS256`) each party that verifies could sign.
const ALLOWED_ALGORITHMS: [Algorithm; 9] = [
    Algorithm::RS256,
    Algorithm::RS384,
    Algorithm::RS512,
    Algorithm::PS256,
    Algorithm::PS384,
    Algorithm::PS512,
    Algorithm::ES256,
    Algorithm::ES384,
    Algorithm::EdDSA,
];

/// The reason why a token is refused. The texts contain no part of the token.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TokenError {
    /// The token is not valid.
    #[error("{0}")]
    Invalid(&'static str),
    /// The token cannot be verified now.
    #[error("the keys of the authorization server are not available right now")]
    KeysUnavailable,
}

/// Checks tokens of one issuer.
#[derive(Debug)]
pub struct TokenVerifier {
    rules: ClaimRules,
    keys: KeyCache,
    clock: Clock,
}

impl TokenVerifier {
    /// A verifier with these rules and keys. Times in tokens are compared with `clock`.
    pub fn new(rules: ClaimRules, keys: KeyCache, clock: Clock) -> Self {
        install_provider();
        Self { rules, keys, clock }
    }

    /// The claims of a token. It waits for the key set when the key of the token is not known.
    ///
    /// # Errors
    ///
    /// [`TokenError`].
    pub async fn verify(&self, token: &str) -> Result<TokenClaims, TokenError> {
        if token.len() > MAX_TOKEN_BYTES {
            return Err(TokenError::Invalid("the token is too long"));
        }
        let header = jsonwebtoken::decode_header(token)
            .map_err(|_| TokenError::Invalid("the token is not a JWT with a known algorithm"))?;
        if !ALLOWED_ALGORITHMS.contains(&header.alg) {
            return Err(TokenError::Invalid(
                "the algorithm of the token is not accepted",
            ));
        }
        // RFC 7515 section 4.1.11: extensions that are not understood.
        if header.crit.is_some() {
            return Err(TokenError::Invalid(
                "the token needs an extension that is not known",
            ));
        }
        let id = header.kid.as_deref();
        if id.is_some_and(|id| id.len() > MAX_KEY_ID_BYTES) {
            return Err(TokenError::Invalid("the key id of the token is too long"));
        }
        // Only the id is used from the header, because the sender controls keys and URLs of keys in it (`jwk`, `jku`,
        // `x5u`).
        let key = self
            .keys
            .find_key(id, header.alg)
            .await
            .map_err(|error| match error {
                KeyError::Unknown => TokenError::Invalid("the key of the token is not known"),
                KeyError::Unavailable => TokenError::KeysUnavailable,
            })?;
        let payload = jsonwebtoken::decode::<Map<String, Value>>(
            token,
            &key,
            &signature_validation(header.alg),
        )
        .map_err(|error| TokenError::Invalid(refusal_text(&error)))?
        .claims;
        self.rules.check_claims(payload, self.clock.now_ms())
    }
}

/// The signature alone: the library compares times with the machine's clock, which tests cannot set.
fn signature_validation(algorithm: Algorithm) -> Validation {
    // Only one algorithm is set: the library requires that all of them belong to the family of the key.
    let mut validation = Validation::new(algorithm);
    validation.validate_exp = false;
    validation.validate_nbf = false;
    validation.validate_aud = false;
    validation.required_spec_claims.clear();
    validation
}

fn refusal_text(error: &jsonwebtoken::errors::Error) -> &'static str {
    match error.kind() {
        ErrorKind::InvalidSignature => "the signature of the token is not valid",
        _ => "the token is not valid",
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};
    use std::time::Duration;

    use futures_util::future::BoxFuture;
    use serde_json::json;

    use super::*;
    use crate::fake_issuer::{SigningKey, signing_input};
    use crate::key_cache::{KeySource, LoadCause};

    const START_MS: u64 = 1_800_000_000_000;

    /// A key set that tests replace.
    #[derive(Debug)]
    struct TestSource {
        text: Mutex<String>,
        loads: Mutex<u32>,
    }

    impl KeySource for TestSource {
        fn load_keys(&self) -> BoxFuture<'_, Result<String, LoadCause>> {
            *self.loads.lock().unwrap() += 1;
            let text = self.text.lock().unwrap().clone();
            Box::pin(std::future::ready(Ok(text)))
        }
    }

    struct VerifierFixture {
        source: Arc<TestSource>,
        verifier: TokenVerifier,
        clock: Clock,
    }

    fn key_set(keys: &[(&str, &SigningKey)]) -> String {
        let keys: Vec<_> = keys.iter().map(|(id, key)| key.to_jwk(id)).collect();
        json!({ "keys": keys }).to_string()
    }

    fn claims() -> Value {
        json!({"iss": "https://a.example", "sub": "u", "aud": "files", "exp": START_MS / 1_000 + 600})
    }

    impl VerifierFixture {
        fn new(keys: &[(&str, &SigningKey)]) -> Self {
            let source = Arc::new(TestSource {
                text: Mutex::new(key_set(keys)),
                loads: Mutex::default(),
            });
            let clock = Clock::manual(START_MS);
            let rules = ClaimRules {
                issuer: "https://a.example".to_owned(),
                audiences: vec!["files".to_owned()],
            };
            let keys = KeyCache::new(source.clone(), clock.clone());
            Self {
                source,
                verifier: TokenVerifier::new(rules, keys, clock.clone()),
                clock,
            }
        }

        async fn verify(&self, token: &str) -> Result<String, TokenError> {
            self.verifier
                .verify(token)
                .await
                .map(|claims| claims.subject)
        }

        fn loads(&self) -> u32 {
            *self.source.loads.lock().unwrap()
        }
    }

    fn token(key: &SigningKey, id: &str) -> String {
        key.sign_token(&json!({"alg": key.algorithm(), "kid": id}), &claims())
    }

    #[tokio::test]
    async fn tokens_by_curve_and_rsa_keys_are_accepted_and_changed_ones_refused() {
        let (curve, rsa) = (SigningKey::generate_curve(), SigningKey::test_rsa());
        let fixture = VerifierFixture::new(&[("c", &curve), ("r", &rsa)]);
        for (key, id) in [(&curve, "c"), (&rsa, "r")] {
            let signed = token(key, id);
            assert_eq!(fixture.verify(&signed).await.unwrap(), "u");
            let (head, signature) = signed.rsplit_once('.').unwrap();
            let (header, _) = head.split_once('.').unwrap();
            let other = json!({"iss": "https://a.example", "sub": "admin", "aud": "files",
                               "exp": START_MS / 1_000 + 600});
            let (_, payload) = signing_input(&json!({}), &other)
                .split_once('.')
                .map(|(header, payload)| (header.to_owned(), payload.to_owned()))
                .unwrap();
            let refused = fixture
                .verify(&format!("{header}.{payload}.{signature}"))
                .await;
            let invalid = TokenError::Invalid("the signature of the token is not valid");
            assert_eq!(refused, Err(invalid));
        }
        // The id of one key with the algorithm of the other.
        assert!(fixture.verify(&token(&curve, "r")).await.is_err());
        assert_eq!(fixture.loads(), 1);
    }

    #[tokio::test]
    async fn unsigned_tokens_and_shared_secrets_are_refused_before_keys_are_loaded() {
        let fixture = VerifierFixture::new(&[("c", &SigningKey::generate_curve())]);
        for algorithm in ["none", "None", "HS256", "HS512", "ES256K", ""] {
            let head = signing_input(&json!({"alg": algorithm, "kid": "c"}), &claims());
            for signature in ["", "AAAA"] {
                let refused = fixture.verify(&format!("{head}.{signature}")).await;
                assert!(
                    matches!(refused, Err(TokenError::Invalid(_))),
                    "{algorithm}"
                );
            }
        }
        assert_eq!(fixture.loads(), 0);
    }

    #[tokio::test]
    async fn a_new_key_is_loaded_when_a_token_names_it_and_an_unknown_one_once_in_30_seconds() {
        let (old, new) = (SigningKey::generate_curve(), SigningKey::generate_curve());
        let fixture = VerifierFixture::new(&[("old", &old)]);
        assert!(fixture.verify(&token(&old, "old")).await.is_ok());
        *fixture.source.text.lock().unwrap() = key_set(&[("new", &new)]);
        let unknown = TokenError::Invalid("the key of the token is not known");
        assert_eq!(fixture.verify(&token(&new, "new")).await, Err(unknown));
        fixture.clock.advance(Duration::from_secs(30));
        assert!(fixture.verify(&token(&new, "new")).await.is_ok());
        assert_eq!(fixture.loads(), 2);
        for invented in 0..10 {
            let token = token(&new, &format!("invented-{invented}"));
            assert_eq!(fixture.verify(&token).await, Err(unknown));
        }
        assert_eq!(fixture.verify(&token(&old, "old")).await, Err(unknown));
        assert_eq!(fixture.loads(), 2);
    }

    #[tokio::test]
    async fn an_unknown_key_is_not_judged_by_the_keys_before_a_failed_fetch() {
        let (old, new) = (SigningKey::generate_curve(), SigningKey::generate_curve());
        let fixture = VerifierFixture::new(&[("old", &old)]);
        assert!(fixture.verify(&token(&old, "old")).await.is_ok());
        *fixture.source.text.lock().unwrap() = "<html>".to_owned();
        fixture.clock.advance(Duration::from_mins(1));
        for _ in 0..2 {
            let refused = fixture.verify(&token(&new, "new")).await;
            assert_eq!(refused, Err(TokenError::KeysUnavailable));
        }
        assert!(fixture.verify(&token(&old, "old")).await.is_ok());
        *fixture.source.text.lock().unwrap() = key_set(&[("new", &new)]);
        fixture.clock.advance(Duration::from_secs(30));
        assert!(fixture.verify(&token(&new, "new")).await.is_ok());
        let unknown = TokenError::Invalid("the key of the token is not known");
        assert_eq!(fixture.verify(&token(&new, "invented")).await, Err(unknown));
        assert_eq!(fixture.loads(), 3);
    }

    #[tokio::test]
    async fn keys_are_fetched_again_after_the_clock_was_set_back() {
        let (old, new) = (SigningKey::generate_curve(), SigningKey::generate_curve());
        let fixture = VerifierFixture::new(&[("old", &old)]);
        // The machine boots with its clock ahead, within the lifetime of the tokens of this test.
        fixture.clock.set(START_MS + 5 * 60_000);
        assert!(fixture.verify(&token(&old, "old")).await.is_ok());
        *fixture.source.text.lock().unwrap() = key_set(&[("new", &new)]);
        fixture.clock.set(START_MS);
        fixture.clock.advance(Duration::from_secs(30));
        assert!(fixture.verify(&token(&new, "new")).await.is_ok());
        assert!(fixture.verify(&token(&old, "old")).await.is_err());
    }

    #[tokio::test]
    async fn a_token_does_not_wait_for_a_key_set_that_was_just_refused() {
        let key = SigningKey::generate_curve();
        let fixture = VerifierFixture::new(&[("c", &key)]);
        *fixture.source.text.lock().unwrap() = "<html>".to_owned();
        for _ in 0..3 {
            let refused = fixture.verify(&token(&key, "c")).await;
            assert_eq!(refused, Err(TokenError::KeysUnavailable));
        }
        assert_eq!(fixture.loads(), 1);
    }
}
