//! The keys of a key set (RFC 7517) that can verify tokens.

use jsonwebtoken::jwk::{AlgorithmParameters, EllipticCurve, Jwk, PublicKeyUse};
use jsonwebtoken::{Algorithm, DecodingKey};
use serde::Deserialize;
use serde_json::Value;

/// Most keys of a set; further ones are ignored.
const MAX_KEYS: usize = 100;

/// The keys of one issuer.
#[derive(Debug, Default)]
pub(crate) struct KeySet(Vec<VerifyingKey>);

/// A key that can verify tokens.
#[derive(Clone, Debug)]
struct VerifyingKey {
    id: Option<String>,
    /// The algorithms for which the key may be used.
    algorithms: Vec<Algorithm>,
    key: DecodingKey,
}

#[derive(Deserialize)]
struct KeySetDocument {
    keys: Vec<Value>,
}

/// The reason why a text is not a usable key set.
#[derive(Debug, thiserror::Error)]
pub(crate) enum KeySetError {
    #[error("the text is not a key set: {0}")]
    Syntax(serde_json::Error),
    #[error("the key set holds no key for signatures")]
    Empty,
}

impl KeySet {
    /// Reads the keys of a set that can verify tokens. Others are left out: keys for encryption, shared secrets and
    /// unknown kinds.
    pub(crate) fn parse(text: &str) -> Result<Self, KeySetError> {
        let document: KeySetDocument = serde_json::from_str(text).map_err(KeySetError::Syntax)?;
        let keys: Vec<_> = document
            .keys
            .into_iter()
            .filter_map(verifying_key)
            .take(MAX_KEYS)
            .collect();
        // If an issuer loses its keys, sessions of its users must not end.
        if keys.is_empty() {
            return Err(KeySetError::Empty);
        }
        Ok(Self(keys))
    }

    /// The key for a token with this key id and algorithm.
    pub(crate) fn find_key(&self, id: Option<&str>, algorithm: Algorithm) -> Option<DecodingKey> {
        let mut matching = self.0.iter().filter(|key| {
            key.algorithms.contains(&algorithm) && (id.is_none() || key.id.as_deref() == id)
        });
        let first = matching.next()?;
        // Without an id, only a single matching key is used.
        (id.is_some() || matching.next().is_none()).then(|| first.key.clone())
    }
}

fn verifying_key(value: Value) -> Option<VerifyingKey> {
    let key: Jwk = serde_json::from_value(value).ok()?;
    let usage = &key.common.public_key_use;
    if usage
        .as_ref()
        .is_some_and(|usage| *usage != PublicKeyUse::Signature)
    {
        return None;
    }
    let supported: &[Algorithm] = match &key.algorithm {
        AlgorithmParameters::RSA(_) => &[
            Algorithm::RS256,
            Algorithm::RS384,
            Algorithm::RS512,
            Algorithm::PS256,
            Algorithm::PS384,
            Algorithm::PS512,
        ],
        AlgorithmParameters::EllipticCurve(curve) => match curve.curve {
            EllipticCurve::P256 => &[Algorithm::ES256],
            EllipticCurve::P384 => &[Algorithm::ES384],
            _ => return None,
        },
        AlgorithmParameters::OctetKeyPair(pair) if pair.curve == EllipticCurve::Ed25519 => {
            &[Algorithm::EdDSA]
        }
        _ => return None,
    };
    let algorithms = match key.common.key_algorithm {
        Some(declared) => {
            let declared = declared.to_string().parse().ok()?;
            supported.contains(&declared).then(|| vec![declared])?
        }
        None => supported.to_vec(),
    };
    Some(VerifyingKey {
        id: key.common.key_id.clone(),
        algorithms,
        key: DecodingKey::from_jwk(&key).ok()?,
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn keys_for_other_purposes_and_unknown_kinds_are_left_out() {
        let coordinate = "f83OJ3D2xF1Bg8vub9tLe1gHMzV76e8Tus9uPHvRVEU";
        let curve = |further: Value| {
            let mut key = json!({"kty": "EC", "crv": "P-256", "x": coordinate, "y": coordinate});
            for (name, value) in further.as_object().unwrap() {
                key[name] = value.clone();
            }
            key
        };
        let set = json!({"keys": [
            curve(json!({"kid": "good"})),
            curve(json!({"kid": "encryption", "use": "enc"})),
            curve(json!({"kid": "mismatch", "alg": "RS256"})),
            curve(json!({"kid": "future", "crv": "P-1024"})),
            {"kty": "oct", "kid": "secret", "k": "c2VjcmV0"},
            {"kty": "lattice", "kid": "unknown"},
            "not a key",
        ]});
        let KeySet(keys) = KeySet::parse(&set.to_string()).unwrap();
        let ids: Vec<_> = keys.iter().map(|key| key.id.as_deref()).collect();
        assert_eq!(ids, [Some("good")]);
        assert_eq!(keys[0].algorithms, [Algorithm::ES256]);
        for text in [
            "",
            "[]",
            "{}",
            r#"{"keys": []}"#,
            r#"{"keys": [{"kty": "oct", "k": "YQ"}]}"#,
        ] {
            assert!(KeySet::parse(text).is_err(), "{text}");
        }
    }
}
