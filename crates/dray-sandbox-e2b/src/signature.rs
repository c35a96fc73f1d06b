//! Signed URLs of files, version 1 (sandbox-transfer 8.4).
//!
//! The token is inside the hash and neither size nor digest is bound, so a signature is for one file and a short time.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD_NO_PAD;
use dray_types::{Secret, Sha256Digest};

/// The operation that a signature allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// Reading one file by `GET /files`.
    Read,
    /// Writing one file by `POST /files`.
    Write,
}

impl Operation {
    /// The word in the hash.
    const fn as_str(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Write => "write",
        }
    }
}

/// The parameter `signature`. It has the standard alphabet, so `+` and `/` must be escaped in a query. `user` is empty
/// for the default user. `expiration` is in Unix seconds and goes into `signature_expiration` too.
pub fn sign(
    path: &str,
    operation: Operation,
    user: &str,
    token: &Secret,
    expiration: Option<u64>,
) -> String {
    let mut signed = format!("{path}:{}:{user}:{}", operation.as_str(), token.expose());
    if let Some(expiration) = expiration {
        signed.push(':');
        signed.push_str(&expiration.to_string());
    }
    let digest = Sha256Digest::of(signed.as_bytes());
    format!("v1_{}", STANDARD_NO_PAD.encode(digest.as_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signatures_equal_those_of_the_vendor() {
        let token = Secret::new("tok123");
        let until = Some(1_700_000_000);
        let report = "/home/user/report.pdf";
        for (path, operation, user, expiration, expected) in [
            (
                report,
                Operation::Read,
                "user",
                until,
                "v1_kmk2TM4cwmaNyuDPcdsxmI2DI2zKTjO3i4PEETeY6aQ",
            ),
            (
                report,
                Operation::Write,
                "user",
                None,
                "v1_4v/vt8jsn2xeehwxjbTb4NVDNejwHcDaoIi6m0Chby8",
            ),
            (
                "/home/user/отчёт 1.csv",
                Operation::Read,
                "",
                until,
                "v1_kC5McJDTDoPcfayqAGCyJQFwq5Y8FgOp2AC6AzazJLg",
            ),
        ] {
            assert_eq!(sign(path, operation, user, &token, expiration), expected);
        }
    }

    #[test]
    fn a_signature_depends_on_every_argument() {
        let sign = |path, operation, token, until| {
            sign(path, operation, "user", &Secret::new(token), Some(until))
        };
        let one = sign("/a", Operation::Read, "t", 1);
        assert_ne!(one, sign("/b", Operation::Read, "t", 1));
        assert_ne!(one, sign("/a", Operation::Write, "t", 1));
        assert_ne!(one, sign("/a", Operation::Read, "u", 1));
        assert_ne!(one, sign("/a", Operation::Read, "t", 2));
    }
}
