//! Signatures of JWT over the crypto library of TLS.
//!
//! `jsonwebtoken` has two providers: one adds a second crypto library in C, the other an RSA implementation with an
//! open advisory. This third provider uses `ring`, which the program already contains. It only verifies public-key
//! signatures. It does not sign, and it refuses HMAC, so that a public key is never used as a shared secret.

use jsonwebtoken::crypto::{CryptoProvider, JwtVerifier, KeyUtils};
use jsonwebtoken::errors::{Error, ErrorKind};
use jsonwebtoken::signature::{self, Verifier};
use jsonwebtoken::{Algorithm, AlgorithmFamily, DecodingKey, DecodingKeyKind};
use ring::signature as ring_signature;

static PROVIDER: CryptoProvider = CryptoProvider {
    signer_factory: |_, _| Err(ErrorKind::UnsupportedAlgorithm.into()),
    verifier_factory: |algorithm, key| Ok(Box::new(RingVerifier::new(*algorithm, key)?)),
    key_utils: KeyUtils {
        rsa_pub_components_from_private_key: |_| Err(ErrorKind::UnsupportedAlgorithm.into()),
        rsa_pub_components_from_public_key: |_| Err(ErrorKind::UnsupportedAlgorithm.into()),
        ec_pub_components_from_private_key: |_, _| Err(ErrorKind::UnsupportedAlgorithm.into()),
        ed_pub_components_from_private_key: |_, _| Err(ErrorKind::UnsupportedAlgorithm.into()),
        compute_digest: |_, _| Err(ErrorKind::UnsupportedAlgorithm.into()),
    },
};

/// Makes `jsonwebtoken` verify with this provider. It can be called any number of times.
pub(crate) fn install_provider() {
    // An error means that another server of this process has already installed this provider.
    let _ = PROVIDER.install_default();
}

struct RingVerifier {
    algorithm: Algorithm,
    key: DecodingKey,
}

impl RingVerifier {
    fn new(algorithm: Algorithm, key: &DecodingKey) -> Result<Self, Error> {
        let family = algorithm.family();
        // The sender chooses the algorithm and the issuer the key, so they have to match.
        if family == AlgorithmFamily::Hmac || family != key.family() {
            return Err(ErrorKind::InvalidAlgorithm.into());
        }
        Ok(Self {
            algorithm,
            key: key.clone(),
        })
    }

    fn is_valid(&self, message: &[u8], signature: &[u8]) -> bool {
        match self.key.kind() {
            DecodingKeyKind::RsaModulusExponent { n, e } => {
                let key = ring_signature::RsaPublicKeyComponents { n, e };
                rsa_parameters(self.algorithm)
                    .is_some_and(|parameters| key.verify(parameters, message, signature).is_ok())
            }
            DecodingKeyKind::SecretOrDer(bytes) => {
                verification(self.algorithm).is_some_and(|algorithm| {
                    let key = ring_signature::UnparsedPublicKey::new(algorithm, bytes);
                    key.verify(message, signature).is_ok()
                })
            }
        }
    }
}

impl Verifier<Vec<u8>> for RingVerifier {
    fn verify(&self, message: &[u8], signature: &Vec<u8>) -> Result<(), signature::Error> {
        if self.is_valid(message, signature) {
            Ok(())
        } else {
            Err(signature::Error::new())
        }
    }
}

impl JwtVerifier for RingVerifier {
    fn algorithm(&self) -> Algorithm {
        self.algorithm
    }
}

/// RSA from 2048 to 8192 bits.
fn rsa_parameters(algorithm: Algorithm) -> Option<&'static ring_signature::RsaParameters> {
    Some(match algorithm {
        Algorithm::RS256 => &ring_signature::RSA_PKCS1_2048_8192_SHA256,
        Algorithm::RS384 => &ring_signature::RSA_PKCS1_2048_8192_SHA384,
        Algorithm::RS512 => &ring_signature::RSA_PKCS1_2048_8192_SHA512,
        Algorithm::PS256 => &ring_signature::RSA_PSS_2048_8192_SHA256,
        Algorithm::PS384 => &ring_signature::RSA_PSS_2048_8192_SHA384,
        Algorithm::PS512 => &ring_signature::RSA_PSS_2048_8192_SHA512,
        _ => return None,
    })
}

fn verification(
    algorithm: Algorithm,
) -> Option<&'static dyn ring_signature::VerificationAlgorithm> {
    Some(match algorithm {
        Algorithm::ES256 => &ring_signature::ECDSA_P256_SHA256_FIXED,
        Algorithm::ES384 => &ring_signature::ECDSA_P384_SHA384_FIXED,
        Algorithm::EdDSA => &ring_signature::ED25519,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    // The key, the signed text and the signature of RFC 7515, appendix A.2.
    const RSA_MODULUS: &str = "ofgWCuLjybRlzo0tZWJjNiuSfb4p4fAkd_wWJcyQoTbji9k0l8W26mPddxHmfHQp-Vaw-4qPCJrcS2mJPMEzP1Pt0Bm4d4QlL-yRT-SFd2lZS-pCgNMsD1W_YpRPEwOWvG6b32690r2jZ47soMZo9wGzjb_7OMg0LOL-bSf63kpaSHSXndS5z5rexMdbBYUsLA9e-KXBdQOS-UTo7WTBEMa2R2CapHg665xsmtdVMTBQY4uDZlxvb3qCo5ZwKh9kG4LT6_I5IhlJH7aGhyxXFvUK-DWNmoudF8NAco9_h9iaGNj8q2ethFkMLs91kzk2PAcDTW9gb54h4FRWyuXpoQ";
    const RSA_MESSAGE: &str = "eyJhbGciOiJSUzI1NiJ9.eyJpc3MiOiJqb2UiLA0KICJleHAiOjEzMDA4MTkzODAsDQogImh0dHA6Ly9leGFtcGxlLmNvbS9pc19yb290Ijp0cnVlfQ";
    const RSA_SIGNATURE: &str = "cC4hiUPoj9Eetdgtv3hF80EGrhuB__dzERat0XF9g2VtQgr9PJbu3XOiZj5RZmh7AAuHIm4Bh-0Qc_lF5YKt_O8W2Fp5jujGbds9uJdbF9CUAr7t1dnZcAcQjbKBYNX4BAynRFdiuB--f_nZLgrnbyTyWzO75vRK5h6xBArLIARNPvkSjtQBMHlb1L07Qe7K0GarZRmB_eSN9383LcOLn6_dO--xi12jzDwusC-eOkHWEsqtFZESc6BfI7noOPqvhJ1phCnvWh6IeYI2w9QOYEUipUTI8np6LbgGY9Fs98rqVt5AXLIhWkWywlVmtVrBp0igcN_IoypGlUPQGe77Rw";

    #[test]
    fn the_rsa_example_of_rfc_7515_verifies_and_a_changed_message_does_not() {
        install_provider();
        let key = DecodingKey::from_rsa_components(RSA_MODULUS, "AQAB").unwrap();
        let verify = |message: &str, algorithm| {
            jsonwebtoken::crypto::verify(RSA_SIGNATURE, message.as_bytes(), &key, algorithm)
        };
        assert!(verify(RSA_MESSAGE, Algorithm::RS256).unwrap());
        assert!(!verify(&RSA_MESSAGE.replace("eyJp", "eyJq"), Algorithm::RS256).unwrap());
        assert!(!verify(RSA_MESSAGE, Algorithm::PS256).unwrap());
        for algorithm in [Algorithm::HS256, Algorithm::ES256, Algorithm::EdDSA] {
            assert!(verify(RSA_MESSAGE, algorithm).is_err(), "{algorithm:?}");
        }
    }
}
