//! Authentication of a client at token endpoints by a signed assertion (RFC 7523, `private_key_jwt`), as the MCP
//! extension `io.modelcontextprotocol/oauth-client-credentials` prefers it to a secret. `rmcp` has it only over another
//! crypto library, so the form of a token request is changed here.

use std::fmt;
use std::sync::{Mutex, PoisonError};

use base64::Engine as _;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use dray_agent::manifest::toolset::{OauthClient, OauthGrant};
use dray_types::{Clock, Secret};
use ring::rand::{SecureRandom as _, SystemRandom};
use ring::signature::{
    ECDSA_P256_SHA256_FIXED_SIGNING, ECDSA_P384_SHA384_FIXED_SIGNING, EcdsaKeyPair, Ed25519KeyPair,
    RSA_PKCS1_SHA256, RsaKeyPair,
};
use rustls_pki_types::PrivatePkcs8KeyDer;
use rustls_pki_types::pem::PemObject as _;
use serde_json::{Value, json};
use thiserror::Error;

/// Time for which an assertion is valid. It is sent immediately, so this covers differences between clocks.
const ASSERTION_LIFETIME_SECONDS: u64 = 60;

const ASSERTION_TYPE: &str = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer";

/// Why no assertion can be made.
#[derive(Clone, Copy, Debug, Error, PartialEq, Eq)]
pub(crate) enum AssertionError {
    /// The key cannot be used.
    #[error(
        "`private_key` is not a PKCS #8 key in PEM for RSA (2048 bits or more), P-256, P-384 or Ed25519"
    )]
    Key,
    /// The client has no id.
    #[error("`private_key` needs a `client_id`")]
    ClientId,
    /// The authorization server has no issuer in its metadata, for which the assertion would be.
    #[error("the authorization server does not name its issuer")]
    NoIssuer,
    /// The system has no random numbers, or the key does not sign.
    #[error("the assertion cannot be signed")]
    Signature,
}

/// Signs assertions of one client.
pub(super) struct AssertionSigner {
    client_id: String,
    key_id: Option<String>,
    key: SigningKey,
    clock: Clock,
    /// The authorization server, once it is known.
    issuer: Mutex<Option<String>>,
}

impl fmt::Debug for AssertionSigner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The key is secret and not printed.
        f.debug_struct("AssertionSigner")
            .field("client_id", &self.client_id)
            .finish_non_exhaustive()
    }
}

enum SigningKey {
    /// A key with its algorithm.
    Curve(EcdsaKeyPair, &'static str),
    Edwards(Ed25519KeyPair),
    Rsa(RsaKeyPair),
}

impl SigningKey {
    fn from_pem(pem: &Secret) -> Option<Self> {
        let key = PrivatePkcs8KeyDer::from_pem_slice(pem.expose().as_bytes()).ok()?;
        let document = key.secret_pkcs8_der();
        let random = SystemRandom::new();
        let curves = [
            (&ECDSA_P256_SHA256_FIXED_SIGNING, "ES256"),
            (&ECDSA_P384_SHA384_FIXED_SIGNING, "ES384"),
        ];
        for (algorithm, name) in curves {
            if let Ok(pair) = EcdsaKeyPair::from_pkcs8(algorithm, document, &random) {
                return Some(Self::Curve(pair, name));
            }
        }
        // Programs such as OpenSSL write the form without the public key.
        if let Ok(pair) = Ed25519KeyPair::from_pkcs8_maybe_unchecked(document) {
            return Some(Self::Edwards(pair));
        }
        RsaKeyPair::from_pkcs8(document).ok().map(Self::Rsa)
    }

    const fn algorithm(&self) -> &'static str {
        match self {
            Self::Curve(_, name) => name,
            Self::Edwards(_) => "EdDSA",
            Self::Rsa(_) => "RS256",
        }
    }

    fn sign(&self, message: &[u8]) -> Option<Vec<u8>> {
        let random = SystemRandom::new();
        match self {
            Self::Curve(pair, _) => Some(pair.sign(&random, message).ok()?.as_ref().to_vec()),
            Self::Edwards(pair) => Some(pair.sign(message).as_ref().to_vec()),
            Self::Rsa(pair) => {
                let mut signature = vec![0; pair.public().modulus_len()];
                pair.sign(&RSA_PKCS1_SHA256, &random, message, &mut signature)
                    .ok()?;
                Some(signature)
            }
        }
    }
}

impl AssertionSigner {
    /// The signer of a client; `None` for one that does not sign in with a private key.
    ///
    /// # Errors
    ///
    /// [`AssertionError::Key`] and [`AssertionError::ClientId`].
    pub(super) fn of_client(
        client: &OauthClient,
        clock: &Clock,
    ) -> Result<Option<Self>, AssertionError> {
        let key = client.private_key.as_ref();
        let Some(pem) = key.filter(|_| client.grant == OauthGrant::ClientCredentials) else {
            return Ok(None);
        };
        Ok(Some(Self {
            client_id: client.client_id.clone().ok_or(AssertionError::ClientId)?,
            key_id: client.key_id.clone(),
            key: SigningKey::from_pem(pem).ok_or(AssertionError::Key)?,
            clock: clock.clone(),
            issuer: Mutex::default(),
        }))
    }

    /// Sets the authorization server for which assertions are.
    pub(super) fn set_issuer(&self, issuer: Option<&str>) {
        *self.issuer.lock().unwrap_or_else(PoisonError::into_inner) = issuer.map(str::to_owned);
    }

    /// The form of a token request with an assertion in place of a secret. Other bodies stay as they are.
    ///
    /// # Errors
    ///
    /// [`AssertionError::NoIssuer`] and [`AssertionError::Signature`].
    pub(super) fn authenticate(&self, body: Vec<u8>) -> Result<Vec<u8>, AssertionError> {
        let pairs: Vec<_> = url::form_urlencoded::parse(&body).into_owned().collect();
        if !pairs.iter().any(|(name, _)| name == "grant_type") {
            return Ok(body);
        }
        let others = pairs
            .iter()
            // The assertion names the client (RFC 7521 section 4.2).
            .filter(|(name, _)| name != "client_secret" && name != "client_id");
        let mut form = url::form_urlencoded::Serializer::new(String::new());
        form.extend_pairs(others)
            .append_pair("client_assertion_type", ASSERTION_TYPE)
            .append_pair("client_assertion", &self.assertion()?);
        Ok(form.finish().into_bytes())
    }

    fn assertion(&self) -> Result<String, AssertionError> {
        let issuer = self.issuer.lock().unwrap_or_else(PoisonError::into_inner);
        let issuer = issuer.clone().ok_or(AssertionError::NoIssuer)?;
        let mut id = [0; 16];
        let random = SystemRandom::new();
        random
            .fill(&mut id)
            .map_err(|_| AssertionError::Signature)?;
        let now = self.clock.now_ms() / 1000;
        let mut header = json!({"alg": self.key.algorithm(), "typ": "client-authentication+jwt"});
        if let (Some(key_id), Some(members)) = (&self.key_id, header.as_object_mut()) {
            members.insert("kid".to_owned(), json!(key_id));
        }
        // The issuer is the only audience: with the token endpoint, another server could get the assertion sent to it
        // and use it there (draft-ietf-oauth-rfc7523bis).
        let claims = json!({
            "iss": self.client_id, "sub": self.client_id, "aud": issuer, "iat": now,
            "exp": now + ASSERTION_LIFETIME_SECONDS, "jti": BASE64_URL_SAFE_NO_PAD.encode(id),
        });
        let part = |value: &Value| BASE64_URL_SAFE_NO_PAD.encode(value.to_string());
        let message = format!("{}.{}", part(&header), part(&claims));
        let signature = self.key.sign(message.as_bytes());
        let signature = signature.ok_or(AssertionError::Signature)?;
        Ok(format!(
            "{message}.{}",
            BASE64_URL_SAFE_NO_PAD.encode(signature)
        ))
    }
}
