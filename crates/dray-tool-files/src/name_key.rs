//! Names of stored files for clients and models: `artifact/<sha256>/<size>/<mac>`.
//!
//! The MAC covers the tenant, the conversation, the digest and the size. The digest of a file of another conversation
//! is not enough to create a name for the file, and a name that was copied from another conversation is invalid. The
//! key is the same in all replicas, so that each can check the names of the others.
//!
//! Keys of the file-resolver (`artifact/<sha256>/<size>`) have no MAC: they stay between the services and are made only
//! from names that were checked here.

use std::fmt;

use dray_store::DerivedKeys;
use dray_types::{Artifact, Sha256Digest, TenantId};
use hmac::{Hmac, Mac};
use sha2::Sha256;

/// How the name of a stored file begins.
pub(super) const NAME_PREFIX: &str = "artifact/";
/// Hexadecimal digits of the MAC: 128 bits, more than enough when every guess takes a request.
const MAC_DIGITS: usize = 32;
/// Separates this use of the key from every other.
const KEY_DOMAIN: &[u8] = b"dray stored file name v1";

/// Signs and checks the names of stored files.
#[derive(Clone)]
pub(super) struct NameKey {
    mac: Hmac<Sha256>,
    /// The key of earlier names, during a change of the secret.
    previous: Option<Hmac<Sha256>>,
}

impl fmt::Debug for NameKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("NameKey(***)")
    }
}

impl NameKey {
    /// Derives the key from material of any length.
    pub(super) fn new(key: &[u8]) -> Self {
        Self {
            mac: mac_of(key),
            previous: None,
        }
    }

    /// The key that all replicas derive, which also checks names of the previous one.
    pub(super) fn derived(keys: &DerivedKeys) -> Self {
        Self {
            mac: mac_of(keys.current()),
            previous: keys.previous().map(|key| mac_of(key)),
        }
    }

    /// The name of a stored file in a conversation. The same file has the same name for as long as the conversation
    /// lasts.
    pub(super) fn name(
        &self,
        tenant: &TenantId,
        conversation: &str,
        sha256: &Sha256Digest,
        size: u64,
    ) -> String {
        name_with(&self.mac, tenant, conversation, sha256, size)
    }

    /// The digest and size in a name of this conversation; `None` for any other text.
    pub(super) fn check(
        &self,
        tenant: &TenantId,
        conversation: &str,
        name: &str,
    ) -> Option<(Sha256Digest, u64)> {
        let mut parts = name.strip_prefix(NAME_PREFIX)?.split('/');
        let sha256 = parts.next()?.parse().ok()?;
        let size = parts.next()?.parse().ok()?;
        // Digests are compared, so that the timing reveals nothing about the MAC.
        let digest = Sha256Digest::of(name.as_bytes());
        let mut keys = std::iter::once(&self.mac).chain(&self.previous);
        let is_ours = keys.any(|key| {
            let expected = name_with(key, tenant, conversation, &sha256, size);
            Sha256Digest::of(expected.as_bytes()) == digest
        });
        is_ours.then_some((sha256, size))
    }
}

/// The MAC of a key of any length.
fn mac_of(key: &[u8]) -> Hmac<Sha256> {
    // HMAC does the same with keys longer than its block (RFC 2104 section 3).
    let digest = Sha256Digest::of(key);
    let mut block = [0_u8; 64];
    for (slot, byte) in block.iter_mut().zip(digest.as_bytes()) {
        *slot = *byte;
    }
    <Hmac<Sha256> as Mac>::new(&block.into())
}

fn name_with(
    key: &Hmac<Sha256>,
    tenant: &TenantId,
    conversation: &str,
    sha256: &Sha256Digest,
    size: u64,
) -> String {
    let mut mac = key.clone();
    for field in [
        KEY_DOMAIN,
        tenant.as_str().as_bytes(),
        conversation.as_bytes(),
    ] {
        // Each field is preceded by its length, so that no two lists of fields have the same bytes.
        let length = u64::try_from(field.len()).unwrap_or(u64::MAX);
        mac.update(&length.to_be_bytes());
        mac.update(field);
    }
    mac.update(sha256.as_bytes());
    mac.update(&size.to_be_bytes());
    let code = Sha256Digest::from_bytes(mac.finalize().into_bytes().into()).to_hex();
    let code = code.get(..MAC_DIGITS).unwrap_or_default();
    format!("{}/{code}", key_of(sha256, size))
}

/// The file-resolver's key of a stored file.
pub(super) fn key_of(sha256: &Sha256Digest, size: u64) -> String {
    format!("{NAME_PREFIX}{}/{size}", sha256.to_hex())
}

/// The key of a stored artifact.
pub(super) fn key_of_artifact(artifact: &Artifact) -> String {
    key_of(&artifact.sha256, artifact.size)
}

/// The digest in a key of the file-resolver.
pub(super) fn digest_of_key(key: &str) -> Option<Sha256Digest> {
    key.strip_prefix(NAME_PREFIX)?
        .split('/')
        .next()?
        .parse()
        .ok()
}

#[cfg(test)]
mod tests {
    use dray_store::StoreOptions;
    use dray_types::Secret;

    use super::*;

    fn tenant(name: &str) -> TenantId {
        TenantId::new(name).unwrap()
    }

    #[test]
    fn a_name_opens_its_file_in_its_own_conversation_with_every_replica() {
        let digest = Sha256Digest::of(b"abc");
        let name = NameKey::new(b"key").name(&tenant("a"), "c-1", &digest, 3);
        assert!(name.starts_with(&format!("artifact/{}/3/", digest.to_hex())));
        let other_replica = NameKey::new(b"key");
        assert_eq!(
            other_replica.check(&tenant("a"), "c-1", &name),
            Some((digest, 3))
        );
    }

    #[test]
    fn names_of_the_previous_key_open_their_files() {
        let digest = Sha256Digest::of(b"abc");
        let store = |derivation: &str, previous: &str| {
            let options = StoreOptions {
                derivation_key: Secret::new(derivation),
                previous_derivation_key: Secret::new(previous),
                ..StoreOptions::default()
            };
            NameKey::derived(&options.derive_keys("names"))
        };
        let name = store("former", "").name(&tenant("a"), "c-1", &digest, 3);
        let check = |key: NameKey| key.check(&tenant("a"), "c-1", &name);
        assert_eq!(check(store("present", "former")), Some((digest, 3)));
        assert_eq!(check(store("present", "")), None);
    }

    #[test]
    fn a_name_of_another_conversation_tenant_or_key_names_nothing() {
        let digest = Sha256Digest::of(b"abc");
        let key = NameKey::new(b"key");
        let name = key.name(&tenant("a"), "c-1", &digest, 3);
        assert_eq!(key.check(&tenant("a"), "c-2", &name), None);
        assert_eq!(key.check(&tenant("b"), "c-1", &name), None);
        assert_eq!(NameKey::new(b"yek").check(&tenant("a"), "c-1", &name), None);
        // Tenant and conversation do not run into each other.
        let name = key.name(&tenant("ab"), "c", &digest, 3);
        assert_eq!(key.check(&tenant("a"), "bc", &name), None);
    }

    #[test]
    fn digest_and_size_alone_or_changed_are_not_a_name() {
        let digest = Sha256Digest::of(b"abc");
        let key = NameKey::new(b"key");
        let name = key.name(&tenant("a"), "c", &digest, 3);
        let hex = digest.to_hex();
        let mac = name.rsplit('/').next().unwrap();
        let other = Sha256Digest::of(b"abd").to_hex();
        for forged in [
            format!("artifact/{hex}"),
            format!("artifact/{hex}/3"),
            format!("artifact/{hex}/3/"),
            format!("artifact/{hex}/03/{mac}"),
            format!("artifact/{hex}/+3/{mac}"),
            format!("artifact/{hex}/4/{mac}"),
            format!("artifact/{other}/3/{mac}"),
            format!("artifact/{hex}/3/{}", mac.to_uppercase()),
            format!("{name}/"),
            format!("/{name}"),
            String::new(),
        ] {
            if forged != name {
                assert_eq!(key.check(&tenant("a"), "c", &forged), None, "{forged}");
            }
        }
    }

    #[test]
    fn keys_do_not_print() {
        assert_eq!(format!("{:?}", NameKey::new(b"hunter2")), "NameKey(***)");
    }
}
