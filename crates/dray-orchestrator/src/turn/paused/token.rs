//! The tokens of records: digest and size with a MAC for the tenant and the principal.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use dray_types::Sha256Digest;
use hmac::{Hmac, Mac};
use sha2::Sha256;

use super::{PausedTurnError, PausedTurns};

/// Bytes of a token: digest, size, MAC.
const TOKEN_BYTES: usize = 32 + 4 + MAC_BYTES;
/// Bytes of the MAC. They are enough, because every guess takes a request.
const MAC_BYTES: usize = 16;
/// Separates this use of the key from every other.
const KEY_DOMAIN: &[u8] = b"dray paused turn v1";

impl PausedTurns {
    pub(super) fn token(&self, principal: &str, sha256: &Sha256Digest, size: u32) -> String {
        let tokens = self.tokens(principal, sha256, size);
        // There is a key at least.
        tokens.into_iter().next().unwrap_or_default()
    }

    /// The tokens of a record under all keys.
    fn tokens(&self, principal: &str, sha256: &Sha256Digest, size: u32) -> Vec<String> {
        let keys = self.keys.iter();
        keys.map(|key| self.token_with(key, principal, sha256, size))
            .collect()
    }

    fn token_with(
        &self,
        key: &Hmac<Sha256>,
        principal: &str,
        sha256: &Sha256Digest,
        size: u32,
    ) -> String {
        let mut mac = key.clone();
        for field in [
            KEY_DOMAIN,
            self.tenant.as_str().as_bytes(),
            principal.as_bytes(),
        ] {
            // Each field is preceded by its length, so that no two lists of fields have the same bytes.
            let length = u64::try_from(field.len()).unwrap_or(u64::MAX);
            mac.update(&length.to_be_bytes());
            mac.update(field);
        }
        mac.update(sha256.as_bytes());
        mac.update(&size.to_be_bytes());
        let code = mac.finalize().into_bytes();
        let mut token = Vec::with_capacity(TOKEN_BYTES);
        token.extend_from_slice(sha256.as_bytes());
        token.extend_from_slice(&size.to_be_bytes());
        token.extend(code.iter().take(MAC_BYTES));
        URL_SAFE_NO_PAD.encode(token)
    }

    /// Digest and size in a token of this principal.
    pub(super) fn check_token(
        &self,
        principal: &str,
        token: &str,
    ) -> Result<(Sha256Digest, u32), PausedTurnError> {
        let bytes = URL_SAFE_NO_PAD.decode(token).ok();
        let bytes = bytes.filter(|bytes| bytes.len() == TOKEN_BYTES);
        let parts = bytes.as_deref().and_then(|bytes| {
            let (digest, rest) = bytes.split_first_chunk::<32>()?;
            let (size, _) = rest.split_first_chunk::<4>()?;
            Some((Sha256Digest::from_bytes(*digest), u32::from_be_bytes(*size)))
        });
        let (sha256, size) = parts.ok_or(PausedTurnError::Expired)?;
        let expected = self.tokens(principal, &sha256, size);
        // Digests are compared, so that the timing reveals nothing about the MAC.
        let digest = Sha256Digest::of(token.as_bytes());
        let is_ours = |expected: &String| Sha256Digest::of(expected.as_bytes()) == digest;
        if expected.iter().any(is_ours) {
            Ok((sha256, size))
        } else {
            Err(PausedTurnError::Expired)
        }
    }
}

/// The key of MACs that is derived for this use.
pub(super) fn mac_key(material: &[u8; 32]) -> Hmac<Sha256> {
    let mut block = [0_u8; 64];
    for (slot, byte) in block.iter_mut().zip(material) {
        *slot = *byte;
    }
    <Hmac<Sha256> as Mac>::new(&block.into())
}
