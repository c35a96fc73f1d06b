//! Keys that all replicas of a service share, derived from a secret of the configuration.

use std::fmt;

use dray_types::{Secret, Sha256Digest};

use crate::StoreOptions;

/// The key of one purpose, and the one before the secret was changed.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct DerivedKeys {
    current: [u8; 32],
    previous: Option<[u8; 32]>,
}

impl StoreOptions {
    /// The keys of a purpose: those of a store that is opened with these options. Another purpose results in unrelated
    /// keys.
    pub fn derive_keys(&self, purpose: &str) -> DerivedKeys {
        let secret = if self.derivation_key.is_empty() {
            &self.secret_key
        } else {
            &self.derivation_key
        };
        let previous = &self.previous_derivation_key;
        DerivedKeys {
            current: derive_key(secret, purpose),
            previous: (!previous.is_empty()).then(|| derive_key(previous, purpose)),
        }
    }
}

impl DerivedKeys {
    /// The key for what is made now.
    pub const fn current(&self) -> &[u8; 32] {
        &self.current
    }

    /// The key with which earlier things may have been made, during a change of the secret.
    pub const fn previous(&self) -> Option<&[u8; 32]> {
        self.previous.as_ref()
    }

    /// The keys with which a thing may have been made, the current one first.
    pub fn accepted(&self) -> impl Iterator<Item = &[u8; 32]> {
        std::iter::once(&self.current).chain(&self.previous)
    }
}

/// One key without a previous one.
impl From<[u8; 32]> for DerivedKeys {
    fn from(current: [u8; 32]) -> Self {
        Self {
            current,
            previous: None,
        }
    }
}

impl fmt::Debug for DerivedKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("DerivedKeys(***)")
    }
}

fn derive_key(secret: &Secret, purpose: &str) -> [u8; 32] {
    let secret = secret.expose();
    // The length comes first, so that two pairs of purpose and secret never give the same text.
    let material = format!("dray derived key\0{}\0{purpose}\0{secret}", purpose.len());
    *Sha256Digest::of(material.as_bytes()).as_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(secret: &str, derivation: &str, previous: &str) -> StoreOptions {
        StoreOptions {
            secret_key: Secret::new(secret),
            derivation_key: Secret::new(derivation),
            previous_derivation_key: Secret::new(previous),
            ..StoreOptions::default()
        }
    }

    #[test]
    fn processes_with_other_credentials_derive_the_same_keys_from_the_derivation_key() {
        let derive = |secret, derivation| options(secret, derivation, "").derive_keys("a");
        assert_eq!(derive("one", "shared"), derive("two", "shared"));
        assert_ne!(derive("one", ""), derive("two", ""));
        assert_ne!(derive("one", "shared"), derive("one", "other"));
        let other_purpose = options("one", "shared", "").derive_keys("b");
        assert_ne!(derive("one", "shared"), other_purpose);
    }

    #[test]
    fn the_previous_key_is_accepted_and_the_current_one_comes_first() {
        let before = options("secret", "", "").derive_keys("a");
        // The change from the credentials to a derivation key.
        let after = options("rotated", "new", "secret").derive_keys("a");
        assert_ne!(after.current(), before.current());
        assert_eq!(after.previous(), Some(before.current()));
        let accepted: Vec<_> = after.accepted().collect();
        assert_eq!(accepted, [after.current(), before.current()]);
        assert_eq!(before.previous(), None);
    }

    #[test]
    fn keys_do_not_print() {
        assert_eq!(
            format!("{:?}", DerivedKeys::from([7; 32])),
            "DerivedKeys(***)"
        );
    }
}
