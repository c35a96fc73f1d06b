//! Encryption of records with a key that is derived from the credentials of the store.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use ring::aead::{Aad, CHACHA20_POLY1305, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use ring::rand::{SecureRandom as _, SystemRandom};

/// Encrypts and opens records: `ChaCha20-Poly1305` (RFC 8439) with a random nonce for each.
pub(super) struct RecordSeal {
    key: LessSafeKey,
    random: SystemRandom,
}

impl RecordSeal {
    pub(super) fn new(key: &[u8; 32]) -> Self {
        let Ok(key) = UnboundKey::new(&CHACHA20_POLY1305, key) else {
            unreachable!("the algorithm takes keys of 32 bytes")
        };
        Self {
            key: LessSafeKey::new(key),
            random: SystemRandom::new(),
        }
    }

    /// Encrypts a value; it opens with the same `bound` text only. `None` if the system provides no random numbers.
    pub(super) fn seal(&self, bound: &str, mut value: Vec<u8>) -> Option<String> {
        let mut nonce = [0; NONCE_LEN];
        self.random.fill(&mut nonce).ok()?;
        let used = Nonce::assume_unique_for_key(nonce);
        self.key
            .seal_in_place_append_tag(used, Aad::from(bound), &mut value)
            .ok()?;
        let mut all = nonce.to_vec();
        all.append(&mut value);
        Some(URL_SAFE_NO_PAD.encode(all))
    }

    /// Opens what [`Self::seal`] made; `None` for anything else.
    pub(super) fn open(&self, bound: &str, sealed: &str) -> Option<Vec<u8>> {
        let mut all = URL_SAFE_NO_PAD.decode(sealed).ok()?;
        let nonce = all.get(..NONCE_LEN)?.try_into().ok()?;
        let mut value = all.split_off(NONCE_LEN);
        let nonce = Nonce::assume_unique_for_key(nonce);
        let opened = self.key.open_in_place(nonce, Aad::from(bound), &mut value);
        Some(opened.ok()?.to_vec())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_opens_in_its_own_place_with_its_own_key() {
        let seal = RecordSeal::new(&[1; 32]);
        let sealed = seal.seal("a", b"secret".to_vec()).unwrap();
        assert!(!sealed.contains("secret"));
        assert_eq!(seal.open("a", &sealed).unwrap(), b"secret");
        assert_ne!(seal.seal("a", b"secret".to_vec()).unwrap(), sealed);
        assert!(seal.open("b", &sealed).is_none());
        assert!(RecordSeal::new(&[2; 32]).open("a", &sealed).is_none());
        for wrong in ["", "x", "AAAA"] {
            assert!(seal.open("a", wrong).is_none());
        }
    }
}
