//! Encryption of records with a key that all replicas derive from the configuration of the store.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use dray_store::DerivedKeys;
use ring::aead::{Aad, CHACHA20_POLY1305, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use ring::rand::{SecureRandom as _, SystemRandom};

/// Encrypts and opens records: `ChaCha20-Poly1305` (RFC 8439) with a random nonce for each.
pub(super) struct RecordSeal {
    key: LessSafeKey,
    /// Key of earlier records, during a change of the secret.
    previous: Option<LessSafeKey>,
    random: SystemRandom,
}

impl RecordSeal {
    pub(super) fn new(keys: &DerivedKeys) -> Self {
        Self {
            key: sealing_key(keys.current()),
            previous: keys.previous().map(sealing_key),
            random: SystemRandom::new(),
        }
    }

    /// Encrypts a value; it opens only with the same `associated_data`. `None` if the system provides no random
    /// numbers.
    pub(super) fn seal(&self, associated_data: &str, mut value: Vec<u8>) -> Option<String> {
        let mut nonce = [0; NONCE_LEN];
        self.random.fill(&mut nonce).ok()?;
        let unique_nonce = Nonce::assume_unique_for_key(nonce);
        self.key
            .seal_in_place_append_tag(unique_nonce, Aad::from(associated_data), &mut value)
            .ok()?;
        let mut all = nonce.to_vec();
        all.append(&mut value);
        Some(URL_SAFE_NO_PAD.encode(all))
    }

    /// Opens what [`Self::seal`] made; `None` for anything else.
    pub(super) fn open(&self, associated_data: &str, sealed: &str) -> Option<Vec<u8>> {
        let all = URL_SAFE_NO_PAD.decode(sealed).ok()?;
        let (nonce, value) = all.split_first_chunk::<NONCE_LEN>()?;
        let mut keys = std::iter::once(&self.key).chain(&self.previous);
        keys.find_map(|key| {
            let mut value = value.to_vec();
            let nonce = Nonce::assume_unique_for_key(*nonce);
            let opened = key.open_in_place(nonce, Aad::from(associated_data), &mut value);
            Some(opened.ok()?.to_vec())
        })
    }
}

fn sealing_key(key: &[u8; 32]) -> LessSafeKey {
    let Ok(key) = UnboundKey::new(&CHACHA20_POLY1305, key) else {
        unreachable!("the algorithm takes keys of 32 bytes")
    };
    LessSafeKey::new(key)
}

#[cfg(test)]
mod tests {
    use dray_store::StoreOptions;
    use dray_types::Secret;

    use super::*;

    #[test]
    fn a_record_opens_only_with_its_key_and_associated_data() {
        let seal = RecordSeal::new(&[1; 32].into());
        let sealed = seal.seal("a", b"secret".to_vec()).unwrap();
        assert!(!sealed.contains("secret"));
        assert_eq!(seal.open("a", &sealed).unwrap(), b"secret");
        assert_ne!(seal.seal("a", b"secret".to_vec()).unwrap(), sealed);
        assert!(seal.open("b", &sealed).is_none());
        assert!(
            RecordSeal::new(&[2; 32].into())
                .open("a", &sealed)
                .is_none()
        );
        let options = |derivation: &str, previous: &str| StoreOptions {
            derivation_key: Secret::new(derivation),
            previous_derivation_key: Secret::new(previous),
            ..StoreOptions::default()
        };
        let former = RecordSeal::new(&options("former", "").derive_keys("a"));
        let sealed = former.seal("a", b"secret".to_vec()).unwrap();
        let opened =
            |options: StoreOptions| RecordSeal::new(&options.derive_keys("a")).open("a", &sealed);
        assert_eq!(opened(options("present", "former")).unwrap(), b"secret");
        assert!(opened(options("present", "")).is_none());
        for invalid in ["", "x", "AAAA"] {
            assert!(seal.open("a", invalid).is_none());
        }
    }
}
