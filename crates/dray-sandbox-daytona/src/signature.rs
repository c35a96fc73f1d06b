//! Signed URLs of files (sandbox-transfer 9).

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use dray_types::Secret;
use hmac::{Hmac, Mac as _};
use sha2::Sha256;

/// The parameter `signature` for a method (`GET`, `POST`) and a path of the sandbox. `expires` is in Unix seconds and
/// goes into a separate parameter; 0 means never. Returns `None` for a key that HMAC refuses, which does not occur:
/// HMAC takes keys of any length.
pub fn sign(key: &Secret, method: &str, path: &str, expires: u64) -> Option<String> {
    let mut mac = Hmac::<Sha256>::new_from_slice(key.expose().as_bytes()).ok()?;
    mac.update(format!("v1:files:{method}:{path}:{expires}").as_bytes());
    let code = mac.finalize().into_bytes();
    Some(format!("v1_{}", URL_SAFE_NO_PAD.encode(code)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signatures_equal_those_of_the_vendor() {
        let key = Secret::new("signing-key");
        for (method, path, expires, expected) in [
            (
                "GET",
                "/home/daytona/report.pdf",
                1_700_000_000,
                "v1_31Z12NzLFlzOmtJsY7zUzL76CU5azNGR_tr5dyuyK_k",
            ),
            (
                "POST",
                "/home/daytona/in.bin",
                0,
                "v1_L5eopZ57oNphtiqXMC5ydBptvueI5wMLdjpZevEb0xA",
            ),
        ] {
            assert_eq!(sign(&key, method, path, expires).unwrap(), expected);
        }
    }

    #[test]
    fn a_signature_depends_on_every_argument() {
        let sign = |key, method, path, expires| sign(&Secret::new(key), method, path, expires);
        let one = sign("k", "GET", "/a", 1);
        assert_ne!(one, sign("l", "GET", "/a", 1));
        assert_ne!(one, sign("k", "POST", "/a", 1));
        assert_ne!(one, sign("k", "GET", "/b", 1));
        assert_ne!(one, sign("k", "GET", "/a", 2));
    }
}
