//! Stable references: the file that a key names, and a link to it that works now (agent-file-context 16, R-15).

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use dray_file_context::limits::SIGNED_URL_TTL;
use dray_file_context::renew::RenewedLinks;
use dray_store::ArtifactLabel;
use dray_types::{Claim, Fault, Sha256Digest, TenantId};

use super::ReadingContext;
use dray_dial::origin::FileUrl;

/// The file that a key names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum StoredKey {
    /// `artifact/<sha256>` or `artifact/<sha256>/<size>`: a stored file of the caller's tenant. The digest alone
    /// identifies it.
    Artifact(Sha256Digest),
    /// `files/<bucket>/<path>`: a file of DIAL Core.
    Dial(FileUrl),
}

impl StoredKey {
    /// Reads a key; `None` for other text.
    pub(super) fn parse(key: &str) -> Option<Self> {
        if let Some(stored) = key.strip_prefix("artifact/") {
            let (digest, size) = stored.split_once('/').unwrap_or((stored, "0"));
            // The size is parsed only, so that only keys of this form pass; the size itself comes from the store.
            size.parse::<u64>().ok()?;
            return digest.parse().ok().map(Self::Artifact);
        }
        // A key has one spelling, without leading slashes.
        FileUrl::parse(key)
            .filter(|_| key.starts_with("files/"))
            .map(Self::Dial)
    }
}

impl ReadingContext {
    /// Makes links for these keys, each valid for `seconds` (0: two hours). A key whose file is missing gets no link;
    /// text that is not a key is listed as invalid.
    pub(super) async fn renew(
        &self,
        tenant: &TenantId,
        keys: Vec<String>,
        seconds: u32,
    ) -> Result<RenewedLinks, Fault> {
        let mut signed = BTreeMap::new();
        let mut invalid = BTreeSet::new();
        for key in keys {
            if StoredKey::parse(&key).is_none() {
                invalid.insert(key);
                continue;
            }
            let url = self.link(tenant, &key, seconds).await?;
            signed.insert(key, url);
        }
        Ok(RenewedLinks {
            signed,
            invalid,
            ..RenewedLinks::default()
        })
    }

    /// Makes a link for one key; `None` if its file is missing.
    pub(super) async fn link(
        &self,
        tenant: &TenantId,
        key: &str,
        seconds: u32,
    ) -> Result<Option<String>, Fault> {
        match StoredKey::parse(key) {
            None => Ok(None),
            // A URL of DIAL has no signature: the reader shows its own credentials.
            Some(StoredKey::Dial(path)) => Ok(self
                .dial
                .as_ref()
                .map(|dial| dial.origin().url(&format!("v1/{path}")))),
            Some(StoredKey::Artifact(sha256)) => {
                let Some(claim) = self.claim(tenant, sha256, "").await? else {
                    return Ok(None);
                };
                let lifetime = match seconds {
                    0 => SIGNED_URL_TTL,
                    seconds => Duration::from_secs(u64::from(seconds)),
                };
                let link = self.store.presign_get(tenant, &claim, lifetime).await?;
                Ok(Some(link.url.expose().to_owned()))
            }
        }
    }

    /// The claim of a stored file of this tenant, under a name for people.
    pub(super) async fn claim(
        &self,
        tenant: &TenantId,
        sha256: Sha256Digest,
        name: &str,
    ) -> Result<Option<Claim>, Fault> {
        let label = ArtifactLabel::new("application/octet-stream", name);
        Ok(self.store.claim(tenant, sha256, label).await?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_name_stored_files_and_files_of_dial() {
        let digest = Sha256Digest::of(b"x");
        assert_eq!(
            StoredKey::parse(&format!("artifact/{}", digest.to_hex())),
            Some(StoredKey::Artifact(digest))
        );
        let sized = format!("artifact/{}/1", digest.to_hex());
        assert_eq!(StoredKey::parse(&sized), Some(StoredKey::Artifact(digest)));
        for garbled in [format!("{sized}/2"), format!("{sized}x")] {
            assert_eq!(StoredKey::parse(&garbled), None, "{garbled}");
        }
        assert!(
            matches!(StoredKey::parse("files/b/a b.pdf"), Some(StoredKey::Dial(path)) if path.as_str() == "files/b/a%20b.pdf")
        );
        for key in [
            "",
            "artifact/",
            "artifact/zz",
            "files/b/../c",
            "files/b/",
            "chat/a",
            "https://x/",
        ] {
            assert_eq!(StoredKey::parse(key), None, "{key}");
        }
    }
}
