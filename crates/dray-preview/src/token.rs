//! The secret of a link, and the record to which it belongs.

use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use dray_proto::v1::{self, sandbox_ref::Sandbox};
use dray_types::{Sha256Digest, TenantId};
use subtle::ConstantTimeEq as _;

/// Bytes of the name of a record.
const KEY_BYTES: usize = 16;
/// Random bytes of a secret, 256 bits, too many to guess.
const SECRET_BYTES: usize = 32;

/// Identifies the record of one tenant and one sandbox reference, without containing the name of either.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct PreviewKey([u8; KEY_BYTES]);

/// The content of a link: the record, and the secret of one preview in it.
#[derive(Clone, PartialEq, Eq)]
pub struct PreviewToken {
    key: PreviewKey,
    secret: [u8; SECRET_BYTES],
}

impl PreviewKey {
    /// The record of a session.
    pub fn of_session(tenant: &TenantId, session: &str) -> Self {
        Self::of_parts(tenant, "session", session)
    }

    /// The record of a reference; `None` for a reference without a sandbox or a session.
    pub(crate) fn of_reference(tenant: &TenantId, sandbox: &v1::SandboxRef) -> Option<Self> {
        Some(match sandbox.sandbox.as_ref()? {
            Sandbox::Session(session) => Self::of_session(tenant, session),
            Sandbox::Address(address) => Self::of_parts(tenant, "address", address),
        })
    }

    fn of_parts(tenant: &TenantId, kind: &str, name: &str) -> Self {
        // The tenant's token has no spaces, so that no two triples read the same.
        let digest = Sha256Digest::of(format!("{} {kind} {name}", tenant.token()).as_bytes());
        let mut key = [0; KEY_BYTES];
        for (byte, of_digest) in key.iter_mut().zip(digest.as_bytes()) {
            *byte = *of_digest;
        }
        Self(key)
    }

    /// The key in the bucket.
    pub(crate) fn record_key(self) -> String {
        format!("preview.{:032x}", u128::from_be_bytes(self.0))
    }
}

impl PreviewToken {
    /// A token with a secret from the system's random numbers.
    pub fn mint(key: PreviewKey) -> Self {
        Self {
            key,
            secret: rand::random(),
        }
    }

    /// Parses the token of a link; `None` for other text.
    pub fn parse(text: &str) -> Option<Self> {
        let bytes = URL_SAFE_NO_PAD.decode(text).ok()?;
        let (key, secret) = bytes.split_at_checked(KEY_BYTES)?;
        Some(Self {
            key: PreviewKey(key.try_into().ok()?),
            secret: secret.try_into().ok()?,
        })
    }

    /// The token as a link has it: 64 letters, digits, `-` and `_`.
    pub fn text(&self) -> String {
        URL_SAFE_NO_PAD.encode([self.key.0.as_slice(), &self.secret].concat())
    }

    /// The record in which the preview is.
    pub const fn key(&self) -> PreviewKey {
        self.key
    }

    /// The digest of the secret, which records keep.
    pub(crate) fn secret_sha256(&self) -> Sha256Digest {
        Sha256Digest::of(&self.secret)
    }

    /// Whether a record is that of this token.
    pub(crate) fn opens(&self, record: &v1::PreviewRecord) -> bool {
        // These are digests of random values, so timing reveals nothing. They are compared in constant time
        // nevertheless.
        let own = self.secret_sha256();
        own.as_bytes().ct_eq(&record.secret_sha256).into()
    }
}

/// Logs never hold a secret.
impl fmt::Debug for PreviewToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PreviewToken({:?}, ***)", self.key)
    }
}

impl fmt::Debug for PreviewKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.record_key())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_opens_only_its_own_record_and_is_not_printed() {
        let tenant = TenantId::new("acme").unwrap();
        let token = PreviewToken::mint(PreviewKey::of_session(&tenant, "s"));
        let record = v1::PreviewRecord {
            secret_sha256: token.secret_sha256().as_bytes().to_vec(),
            ..v1::PreviewRecord::default()
        };
        assert!(PreviewToken::parse(&token.text()).unwrap().opens(&record));
        assert!(!PreviewToken::mint(token.key()).opens(&record));
        assert!(!token.opens(&v1::PreviewRecord::default()));
        let printed = format!("{token:?}");
        assert!(
            printed.contains("***") && !printed.contains(&token.text()),
            "{printed}"
        );
    }

    #[test]
    fn text_that_is_not_a_token_is_refused() {
        let tenant = TenantId::new("acme").unwrap();
        let text = PreviewToken::mint(PreviewKey::of_session(&tenant, "s")).text();
        assert_eq!(text.len(), 64);
        for wrong in [
            "",
            "a",
            &text[1..],
            &format!("{text}AA"),
            &text.replace(&text[..1], "="),
        ] {
            assert_eq!(PreviewToken::parse(wrong), None, "{wrong}");
        }
    }
}
