//! Keys that sign tokens (feature `fake-issuer`), for fake issuers of tests.
#![expect(
    clippy::expect_used,
    reason = "a fake issuer that cannot sign ends its test"
)]

use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use ring::rand::SystemRandom;
use ring::signature::{
    ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair as _, RSA_PKCS1_SHA256, RsaKeyPair,
};
use serde_json::{Value, json};

/// A key of 2048 bits, PKCS #8 in Base64: `ring` generates no RSA keys. It signs nothing outside tests.
const RSA_TEST_KEY: &str = "\
    MIIEvgIBADANBgkqhkiG9w0BAQEFAASCBKgwggSkAgEAAoIBAQC4dgeZhNvHS/crY1zmbZDvRGsElRlu8JToKvpI1acZyYv2yVseuG4pK4HWrk\
    FLay2XNasl2BbJahsW9h+9U0Z07BLxjkLEKo3jTiHX0GNgbwYRdqHs/X2b0wDRO8Vhm1WCWyXzrTRAyM1ndv9vvZiIGZlC9WcZ0Dt74KJe89wy\
    kEvM+yTZpE3Sngi5nnxPw31PKzYz/Sw215bqivh2vTgBF716gQ8Rs5SJ/QirpTNffKLLr55z1ToHP78OKWqvlzKGzmZlwD7RoHpRW5mZ3HCDlD\
    BzvZ21lIZGDZFZ62P7CqsGP2zzj6hrkeekog74EEMLJw0JRItphyghCKdVFfLXAgMBAAECggEAPS8ZMji5VY/C+mdI5z2sd1CwVqLF/uBZ4/Bt\
    eD813/3UKRV83eG62HkP5g+CpOt2AdPRYwob9M73EVSuDnRSyHGNjwXq63pZ+e1umFEMxW3OC3jYGO2z/j2s5bn3rHqDkGt/WSY4UMzKJOl5rK\
    ysrWggR+9yNUO2l05ZTTmB7lsRV7VDzr4pMw9MS5qVsrUMCW34b0ghLrSC2kFWSDezgsn18niX5b7l8RpNpq2msibpGk/MZLnMElnwNH6A4irV\
    1yKykOCBVfq7uzXZtegLQeW3JMk2AAXLmbzkiE+A2qX56w+R6mCX9hYTVLilrOBbSVhUe/oPZBgaMztuYxVmMQKBgQDzI25itGgvAqw6OT5v0i\
    +mHcwTkFcqMlsO7OSRzG8dTB2bAnBK7Az93h3wbY9YYXeE8eJXPo9RnajEWA3N2HXKHWX4qnt9eA4WtwPUgV2W1WIIDZ52OSnFcLfbGaRcwg22\
    ARLOXelJLKOqZ9nUwmgTKYfELSJLIoCfPWgJSZNtwwKBgQDCN/4aKewcWS7vUvRHB1TfwrfuvJu1q/QXtB1Wp4ChEoNe4MDSfKun+6SyhzPqrl\
    gUcEveUcUuGs3aD747QF6fYqRN8I6RjgAggBwHMFuZ2hZya7kiztUHo8vsIG7d1nqPTh/prEFHEnw5k8m66PehUTLG47wtyU3rzAgLR1xxXQKB\
    gQCgq41KlMU0K6P8Zc+ovVDXiWFOnFe9fsFFv63b2yiiR6ZYxOfH2u1K5fkK5JuRX/dHV0CnPqQe3vyjozycBqrwATVdeetZInjM8ewKBeL+xc\
    ueXsGUhnngC3izxOIkmefNmi//R3fd7y3IchA01LNJ1mvta5X56Lbug/m4CXLvWQKBgDeQBzz681Zk2T2UcNgFK+3b6fz9rlo5+FnzqFULFIyA\
    HF8/U0qkagNjxYlhjqO7/uzR95KBuDRpbKzOxjBzSN62PKUjhdX0Vur1W49e8UXBk5xmXw+rNly6KnPCD5Wdb3Ch/BVAt2gazLk4I4U6cuWOsk\
    UeD87VgVpNA5webT7tAoGBAIpQxvQEWRTaAiugYF3JrVlpH1k4MRXDzbpg7xuoYJmnyr85hFUiVx8OqcY9OF6o3Fy0fUznn7LHCBuJe6bnjpY5\
    f8AsSn5Mj/tTGj0BF98ejXMNJzZurDZVfvX187w9G1S4Xcnhs6mgbT9+1h4p+UjYszi4Gi0tMBGcEd3turrg";

/// A key pair of a fake issuer.
#[derive(Debug)]
pub enum SigningKey {
    /// For `ES256`.
    Curve(EcdsaKeyPair),
    /// For `RS256`.
    Rsa(RsaKeyPair),
}

impl SigningKey {
    /// A new key for `ES256`.
    ///
    /// # Panics
    ///
    /// When the system has no random numbers.
    #[must_use]
    pub fn generate_curve() -> Self {
        let random = SystemRandom::new();
        let algorithm = &ECDSA_P256_SHA256_FIXED_SIGNING;
        let pair = EcdsaKeyPair::generate_pkcs8(algorithm, &random).and_then(|document| {
            Ok(EcdsaKeyPair::from_pkcs8(
                algorithm,
                document.as_ref(),
                &random,
            )?)
        });
        Self::Curve(pair.expect("a key of a fake issuer is generated"))
    }

    /// The key for `RS256`, which is the same in every test.
    ///
    /// # Panics
    ///
    /// Never: the key is a constant.
    #[must_use]
    pub fn test_rsa() -> Self {
        let document = STANDARD.decode(RSA_TEST_KEY).expect("the key is Base64");
        Self::Rsa(RsaKeyPair::from_pkcs8(&document).expect("the key is PKCS #8"))
    }

    /// The name of its algorithm in the header of a token.
    #[must_use]
    pub fn algorithm(&self) -> &'static str {
        match self {
            Self::Curve(_) => "ES256",
            Self::Rsa(_) => "RS256",
        }
    }

    /// The public half: the point of a curve, or PKCS #1.
    #[must_use]
    pub fn public_bytes(&self) -> &[u8] {
        match self {
            Self::Curve(pair) => pair.public_key().as_ref(),
            Self::Rsa(pair) => pair.public_key().as_ref(),
        }
    }

    /// The entry of a key set with this id (RFC 7517).
    #[must_use]
    pub fn to_jwk(&self, id: &str) -> Value {
        match self {
            Self::Curve(_) => {
                // The point is one byte of its form and two coordinates (SEC 1 section 2.3.3).
                let (x, y) = self.public_bytes().split_at(1).1.split_at(32);
                json!({"kty": "EC", "crv": "P-256", "use": "sig", "kid": id,
                       "x": URL_SAFE_NO_PAD.encode(x), "y": URL_SAFE_NO_PAD.encode(y)})
            }
            Self::Rsa(pair) => {
                let public: ring::rsa::PublicKeyComponents<Vec<u8>> = pair.public().into();
                json!({"kty": "RSA", "use": "sig", "kid": id,
                       "n": URL_SAFE_NO_PAD.encode(&public.n), "e": URL_SAFE_NO_PAD.encode(&public.e)})
            }
        }
    }

    /// A token with this header and these claims.
    ///
    /// # Panics
    ///
    /// When the system has no random numbers.
    #[must_use]
    pub fn sign_token(&self, header: &Value, claims: &Value) -> String {
        let message = signing_input(header, claims);
        let random = SystemRandom::new();
        let signature = match self {
            Self::Curve(pair) => {
                let signature = pair.sign(&random, message.as_bytes());
                signature.expect("a fake issuer signs").as_ref().to_vec()
            }
            Self::Rsa(pair) => {
                let mut signature = vec![0; pair.public().modulus_len()];
                pair.sign(
                    &RSA_PKCS1_SHA256,
                    &random,
                    message.as_bytes(),
                    &mut signature,
                )
                .expect("a fake issuer signs");
                signature
            }
        };
        format!("{message}.{}", URL_SAFE_NO_PAD.encode(signature))
    }
}

/// Header and claims of a token, as they are signed (RFC 7515 section 5.1).
#[must_use]
pub fn signing_input(header: &Value, claims: &Value) -> String {
    let part = |value: &Value| URL_SAFE_NO_PAD.encode(value.to_string());
    format!("{}.{}", part(header), part(claims))
}
