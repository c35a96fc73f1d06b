//! Tests of clients that sign in with a private key.

use std::process::Command;

use base64::Engine as _;
use base64::prelude::{BASE64_STANDARD, BASE64_URL_SAFE_NO_PAD};
use ring::rand::SystemRandom;
use ring::signature::{
    ECDSA_P256_SHA256_FIXED, ECDSA_P256_SHA256_FIXED_SIGNING, ED25519, EcdsaKeyPair,
    Ed25519KeyPair, KeyPair as _, RSA_PKCS1_2048_8192_SHA256, RsaKeyPair, UnparsedPublicKey,
    VerificationAlgorithm,
};
use serde_json::{Value, json};

use super::oauth::{ProtectedServer, connected, protected};
use super::support::{call, messages, named, options};

fn pem(document: &[u8]) -> String {
    let text = BASE64_STANDARD.encode(document);
    format!("-----BEGIN PRIVATE KEY-----\n{text}\n-----END PRIVATE KEY-----\n")
}

/// A key as in a manifest, its public half, and what verifies its signatures.
struct TestKey {
    pem: String,
    public: Vec<u8>,
    algorithm: &'static str,
    verification: &'static dyn VerificationAlgorithm,
}

fn curve_key() -> TestKey {
    let (random, algorithm) = (SystemRandom::new(), &ECDSA_P256_SHA256_FIXED_SIGNING);
    let document = EcdsaKeyPair::generate_pkcs8(algorithm, &random).unwrap();
    let pair = EcdsaKeyPair::from_pkcs8(algorithm, document.as_ref(), &random).unwrap();
    TestKey {
        pem: pem(document.as_ref()),
        public: pair.public_key().as_ref().to_vec(),
        algorithm: "ES256",
        verification: &ECDSA_P256_SHA256_FIXED,
    }
}

fn edwards_key() -> TestKey {
    let document = Ed25519KeyPair::generate_pkcs8(&SystemRandom::new()).unwrap();
    let pair = Ed25519KeyPair::from_pkcs8(document.as_ref()).unwrap();
    TestKey {
        pem: pem(document.as_ref()),
        public: pair.public_key().as_ref().to_vec(),
        algorithm: "EdDSA",
        verification: &ED25519,
    }
}

fn rsa_key() -> TestKey {
    // `ring` generates no RSA keys.
    let generated = Command::new("openssl")
        .args(["genpkey", "-algorithm", "RSA"])
        .output()
        .unwrap();
    assert!(generated.status.success(), "{generated:?}");
    let pem_text = String::from_utf8(generated.stdout).unwrap();
    let encoded: String = pem_text
        .lines()
        .filter(|line| !line.starts_with('-'))
        .collect();
    let document = BASE64_STANDARD.decode(encoded).unwrap();
    let pair = RsaKeyPair::from_pkcs8(&document).unwrap();
    TestKey {
        pem: pem(&document),
        public: pair.public_key().as_ref().to_vec(),
        algorithm: "RS256",
        verification: &RSA_PKCS1_2048_8192_SHA256,
    }
}

fn decode_part(part: &str) -> Value {
    serde_json::from_slice(&BASE64_URL_SAFE_NO_PAD.decode(part).unwrap()).unwrap()
}

#[tokio::test]
async fn a_client_signs_in_with_its_private_key_and_sends_no_secret() {
    for key in [curve_key(), edwards_key(), rsa_key()] {
        let server = protected(ProtectedServer::default()).await;
        let url = server.shared().url();
        let client = json!({"client_id": "c", "client_secret": "not-sent", "grant": "client_credentials",
            "scope": "files", "private_key": key.pem, "key_id": "k1"});
        let built = connected(&server, &client, &options()).await;
        assert_eq!(messages(&built), [""; 0]);
        let output = call(&named(&built, "s_echo"), json!({})).await.unwrap();
        assert_eq!(output.content, "files");
        let form = server.shared().lock().exchanges[0].clone();
        let names: Vec<_> = form.iter().map(|(name, _)| name.as_str()).collect();
        assert!(
            !names.contains(&"client_secret") && !names.contains(&"client_id"),
            "{form:?}"
        );
        let field = |name: &str| &form.iter().find(|(known, _)| known == name).unwrap().1;
        assert_eq!(field("resource"), &format!("{url}/mcp"));
        let assertion = field("client_assertion");
        let (message, signature) = assertion.rsplit_once('.').unwrap();
        let signature = BASE64_URL_SAFE_NO_PAD.decode(signature).unwrap();
        let public = UnparsedPublicKey::new(key.verification, &key.public);
        public.verify(message.as_bytes(), &signature).unwrap();
        let (header, claims) = message.split_once('.').unwrap();
        let (header, claims) = (decode_part(header), decode_part(claims));
        assert_eq!(
            (&header["alg"], &header["kid"]),
            (&json!(key.algorithm), &json!("k1"))
        );
        assert_eq!((&claims["iss"], &claims["sub"]), (&json!("c"), &json!("c")));
        assert_eq!(claims["aud"], url, "only for the authorization server");
        assert_eq!(
            (&claims["iat"], &claims["exp"]),
            (&json!(1_700_000_000), &json!(1_700_000_060))
        );
    }
}

#[tokio::test]
async fn a_key_that_cannot_be_used_is_named_and_nothing_is_sent_to_the_token_endpoint() {
    let without_id = json!({"grant": "client_credentials", "private_key": curve_key().pem});
    let without_key =
        json!({"client_id": "c", "grant": "client_credentials", "private_key": "-----BEGIN"});
    for (client, reason) in [
        (without_id, "`private_key` needs a `client_id`"),
        (
            without_key,
            "`private_key` is not a PKCS #8 key in PEM for RSA (2048 bits or more), P-256, P-384 or Ed25519",
        ),
    ] {
        let server = protected(ProtectedServer::default()).await;
        let built = connected(&server, &client, &options()).await;
        assert_eq!(
            messages(&built),
            [format!("Sign-in failed for toolset 's': {reason}")]
        );
        assert!(server.shared().lock().exchanges.is_empty());
    }
}
