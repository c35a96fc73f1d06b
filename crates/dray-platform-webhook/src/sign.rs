//! Signatures: HMAC-SHA256 of the time stamp, a dot, and the event or the body (platform-delivery 7.6).

use dray_platform::{ErrorKind, PlatformError};
use dray_types::{Secret, Sha256Digest};
use hmac::{Hmac, Mac as _};
use sha2::Sha256;

/// Largest difference between a time stamp and our clock, in seconds; older requests may be replays.
const MAX_CLOCK_SKEW_SECONDS: u64 = 300;

fn keyed_mac(secret: &Secret, stamp: &str, body: &[u8]) -> Result<Hmac<Sha256>, PlatformError> {
    let mut mac = Hmac::<Sha256>::new_from_slice(secret.expose().as_bytes())
        .map_err(|_| PlatformError::new(ErrorKind::Auth, "the secret cannot be used"))?;
    mac.update(stamp.as_bytes());
    // The dot separates both, so that digits cannot move from the time stamp into the body.
    mac.update(b".");
    mac.update(body);
    Ok(mac)
}

/// The value of `X-Signature-256` for a body: `sha256=` and 64 hexadecimal digits.
pub(crate) fn sign_body(
    secret: &Secret,
    stamp: &str,
    body: &[u8],
) -> Result<String, PlatformError> {
    let sum: [u8; 32] = keyed_mac(secret, stamp, body)?
        .finalize()
        .into_bytes()
        .into();
    Ok(format!("sha256={}", Sha256Digest::from_bytes(sum).to_hex()))
}

/// Verifies that a signature is correct and recent. `now` is in Unix seconds; the comparison takes constant time.
pub(crate) fn verify_signature(
    secret: &Secret,
    (stamp, signature): (&str, &str),
    body: &[u8],
    now: u64,
) -> Result<(), PlatformError> {
    let refused = |reason: &str| PlatformError::new(ErrorKind::Auth, reason);
    // HMAC accepts an empty key, with which anyone could sign.
    if secret.is_empty() {
        return Err(refused("no secret is configured"));
    }
    let sent: u64 = stamp
        .parse()
        .map_err(|_| refused("the timestamp is not a number"))?;
    // The difference counts in both directions: a time stamp from the future would be valid for longer.
    if now.abs_diff(sent) > MAX_CLOCK_SKEW_SECONDS {
        return Err(refused("the signature is not fresh"));
    }
    let received = signature
        .strip_prefix("sha256=")
        .and_then(|digits| digits.parse::<Sha256Digest>().ok())
        .ok_or_else(|| refused("the signature is not hexadecimal"))?;
    keyed_mac(secret, stamp, body)?
        .verify_slice(received.as_bytes())
        .map_err(|_| refused("the signature is wrong"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signature_equals_the_one_of_openssl() {
        // printf '1700000000.{"a":1}' | openssl dgst -sha256 -hmac key
        let signed = sign_body(&Secret::new("key"), "1700000000", br#"{"a":1}"#).unwrap();
        assert_eq!(
            signed,
            "sha256=a438e398bfafc57e4396bb7fc2304422f0f768e965d073ca313cb52e22e6ad03"
        );
    }

    #[test]
    fn only_fresh_and_valid_signatures_pass() {
        let secret = Secret::new("key");
        let signed = sign_body(&secret, "1000", b"x").unwrap();
        let check = |secret: &Secret, stamp: &str, signed: &str, body: &[u8], now| {
            verify_signature(secret, (stamp, signed), body, now).is_ok()
        };
        assert!(check(&secret, "1000", &signed, b"x", 1300));
        assert!(check(&secret, "1000", &signed, b"x", 700));
        assert!(!check(&secret, "1000", &signed, b"x", 1301));
        assert!(!check(&secret, "1000", &signed, b"y", 1000));
        assert!(!check(&secret, "1001", &signed, b"x", 1000));
        assert!(!check(&secret, "", &signed, b"x", 1000));
        assert!(!check(&Secret::new("other"), "1000", &signed, b"x", 1000));
        for invalid in ["", "sha256=", "sha256=zz", &signed[7..], &signed[..70]] {
            assert!(!check(&secret, "1000", invalid, b"x", 1000), "{invalid}");
        }
        let empty_secret = Secret::default();
        let signed = sign_body(&empty_secret, "1000", b"x").unwrap();
        assert!(!check(&empty_secret, "1000", &signed, b"x", 1000));
    }
}
