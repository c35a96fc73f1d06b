//! Identifiers that are used in headers, subjects and keys.

use std::fmt;
use std::str::FromStr;

use crate::Sha256Digest;

/// Error for a text that is not a valid identifier of this kind.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{kind} must be 1 to 128 printable ASCII characters")]
pub struct InvalidId {
    kind: &'static str,
}

fn is_printable(text: &str) -> bool {
    // Only printable characters are permitted, so that an id cannot break out of a header (E-1) or a log line.
    (1..=128).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_graphic())
}

/// Whether `text` is valid as one token of a subject: `[a-z0-9_-]{1,64}` (messaging-reliability 3.2).
pub fn is_subject_token(text: &str) -> bool {
    (1..=64).contains(&text.len())
        && text
            .bytes()
            .all(|byte| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'_' | b'-'))
}

/// Returns `h_` and the first 40 hexadecimal digits of the text's SHA-256 (messaging-reliability 3.2).
fn hashed_token(text: &str) -> String {
    let hex = Sha256Digest::of(text.as_bytes()).to_hex();
    let (head, _) = hex.split_at(40);
    format!("h_{head}")
}

fn has_hashed_form(text: &str) -> bool {
    text.strip_prefix("h_").is_some_and(|hex| {
        hex.len() == 40
            && hex
                .bytes()
                .all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
    })
}

macro_rules! identifier {
    ($(#[$doc:meta])* $name:ident, $kind:literal) => {
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(String);

        impl $name {
            /// Makes an id of 1 to 128 printable ASCII characters without blanks.
            ///
            /// # Errors
            ///
            /// [`InvalidId`] for any other text.
            pub fn new(text: impl Into<String>) -> Result<Self, InvalidId> {
                let text = text.into();
                if is_printable(&text) { Ok(Self(text)) } else { Err(InvalidId { kind: $kind }) }
            }

            /// The text as given.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl FromStr for $name {
            type Err = InvalidId;

            fn from_str(text: &str) -> Result<Self, InvalidId> {
                Self::new(text)
            }
        }
    };
}

identifier!(
    /// The owner of data. Everything that is stored, published or counted belongs to one tenant (tenant isolation): the
    /// id is part of subjects, store keys and ledger keys.
    TenantId,
    "a tenant"
);
identifier!(
    /// A conversation of people with an agent.
    SessionId,
    "a session id"
);
identifier!(
    /// An agent application, whose manifest may restrict permissions.
    AppId,
    "an app id"
);
identifier!(
    /// The id of one operation, its idempotency key: the same id is the same work and has its effects once. The service
    /// that accepts the work creates the id; all later messages about it carry it.
    OperationId,
    "an operation id"
);

impl TenantId {
    /// The tenant as a token of subjects and object keys: the id itself if it fits the alphabet, otherwise
    /// `h_` and 40 hexadecimal digits of its SHA-256 (messaging-reliability 3.2).
    pub fn token(&self) -> String {
        // An id that looks like a hash is hashed too; otherwise it could equal the token of another tenant.
        if is_subject_token(&self.0) && !has_hashed_form(&self.0) {
            self.0.clone()
        } else {
            hashed_token(&self.0)
        }
    }
}

impl Default for TenantId {
    /// The tenant of a system on one machine.
    fn default() -> Self {
        Self("default".to_owned())
    }
}

impl OperationId {
    /// Makes a new id that is time-ordered and cannot be guessed (`UUIDv7`, RFC 9562 section 5.7).
    pub fn mint() -> Self {
        // 74 random bits: the server deduplicates across tenants, so a guessed id could suppress a message of another
        // tenant (4.2).
        Self(uuid::Uuid::now_v7().to_string())
    }

    /// The last token of the operation's ledger key: the id itself if it matches `[A-Za-z0-9_-]{1,64}`, otherwise
    /// `h_` and 40 hexadecimal digits of its SHA-256 (messaging-reliability 7.1).
    pub fn ledger_token(&self) -> String {
        // Upper case is kept, because ledger keys are case-sensitive.
        let plain = self.0.len() <= 64
            && self
                .0
                .bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-'));
        if plain && !has_hashed_form(&self.0) {
            self.0.clone()
        } else {
            hashed_token(&self.0)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tenants_outside_the_alphabet_are_hashed_and_cannot_collide() {
        let plain = TenantId::new("acme-1").unwrap();
        assert_eq!(plain.token(), "acme-1");
        let upper = TenantId::new("Acme").unwrap();
        assert_eq!(upper.token().len(), 42);
        assert!(upper.token().starts_with("h_"));
        let forged = TenantId::new(upper.token()).unwrap();
        assert_ne!(forged.token(), upper.token());
    }

    #[test]
    fn ids_are_printable_ascii() {
        for wrong in ["", " ", "a b", "a\n", "ü", &"x".repeat(129)] {
            assert!(OperationId::new(wrong).is_err(), "{wrong:?}");
        }
        assert!(OperationId::new("x".repeat(128)).is_ok());
    }

    #[test]
    fn ledger_tokens_fit_one_key_token() {
        assert_eq!(OperationId::new("A-b_9").unwrap().ledger_token(), "A-b_9");
        assert!(
            OperationId::new("a.b")
                .unwrap()
                .ledger_token()
                .starts_with("h_")
        );
        assert!(
            OperationId::new("x".repeat(65))
                .unwrap()
                .ledger_token()
                .starts_with("h_")
        );
    }
}
