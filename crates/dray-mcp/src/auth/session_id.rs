//! Session ids of the protocol, bound to the caller that began the session.
//!
//! A caller must not be able to use the session of another caller, even if it has the id. Clients get the id together
//! with an authentication code over the id and the caller's subject. The key belongs to the process, as the sessions
//! do, so no state has to be stored.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use hmac::{Hmac, Mac as _};
use sha2::Sha256;

/// Signs and checks session ids.
#[derive(Clone)]
pub(super) struct SessionIdSigner {
    key: [u8; 32],
}

impl std::fmt::Debug for SessionIdSigner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("SessionIdSigner(***)")
    }
}

impl SessionIdSigner {
    pub(super) fn new() -> Self {
        Self {
            key: rand::random(),
        }
    }

    /// The id for the client.
    pub(super) fn seal(&self, id: &str, subject: &str) -> String {
        let code = self.mac(id, subject).finalize().into_bytes();
        format!("{id}.{}", URL_SAFE_NO_PAD.encode(code))
    }

    /// The id of the session; `None` for one of another caller, and for every text that this process has not sealed.
    pub(super) fn open<'a>(&self, sealed: &'a str, subject: &str) -> Option<&'a str> {
        let (id, code) = sealed.rsplit_once('.')?;
        let code = URL_SAFE_NO_PAD.decode(code).ok()?;
        self.mac(id, subject)
            .verify_slice(&code)
            .is_ok()
            .then_some(id)
    }

    fn mac(&self, id: &str, subject: &str) -> Hmac<Sha256> {
        // The length of the id comes first, so that another split of id and subject gives another code.
        #[expect(clippy::expect_used, reason = "HMAC takes keys of every length")]
        let mut mac = Hmac::<Sha256>::new_from_slice(&self.key).expect("any length");
        mac.update(&(id.len() as u64).to_be_bytes());
        mac.update(id.as_bytes());
        mac.update(subject.as_bytes());
        mac
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_opens_for_its_own_caller_only() {
        let signer = SessionIdSigner::new();
        let sealed = signer.seal("s1", "alice");
        assert_eq!(signer.open(&sealed, "alice"), Some("s1"));
        for (text, subject) in [
            (sealed.as_str(), "bob"),
            ("s1", "alice"),
            ("s1.", "alice"),
            (&sealed.replace("s1", "s2"), "alice"),
            ("", "alice"),
        ] {
            assert_eq!(signer.open(text, subject), None, "{text} {subject}");
        }
        assert_eq!(SessionIdSigner::new().open(&sealed, "alice"), None);
    }
}
