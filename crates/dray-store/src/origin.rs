//! Where content came from: records of fetches beside the finished content, found by its digest.
//!
//! `origin/<tenant>/<2 hex>/<64 hex>/<32 hex>` holds one record in JSON; the last part is a digest of its hosts. So the
//! same bytes from several chains of hosts have several records, and a fetch through the same chain renews its own.
//! Records are only added: content that a person stored and a fetch brought too keeps the record of the fetch.
//!
//! A record is about bytes, not about an object: it holds for the same bytes under `cas/` and in the cache, and for
//! bytes that left the store and came back unchanged. It does not apply to content that was changed or packed on the
//! way.

use aws_sdk_s3::primitives::ByteStream;
use bytes::Bytes;
use dray_types::{Deadline, Sha256Digest, TenantId};
use futures_util::future::BoxFuture;
use serde::{Deserialize, Serialize};

use crate::checksum::ObjectChecksum;
use crate::object::{self, ObjectHead};
use crate::request::RequestError;
use crate::store::{Store, StoreInner};

/// Prefix of all records.
pub(crate) const ORIGIN_PREFIX: &str = "origin/";
/// Most records that are read of one content.
pub const MAX_ORIGINS: usize = 64;
/// Most bytes of one record. A chain has at most a few hosts of 253 characters.
const MAX_RECORD_BYTES: u64 = 16 * 1024;
/// Hexadecimal digits of the digest of the hosts in a key.
const CHAIN_DIGITS: usize = 32;

/// One fetch that brought a content.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WebOrigin {
    /// Hosts of the chain of redirects: first the one that was requested, last the one that sent the bytes.
    pub hosts: Vec<String>,
    /// Unix milliseconds of the newest fetch through these hosts.
    pub fetched_at_ms: u64,
    /// SHA-256 (hex) of the effective policy of that fetch.
    pub policy_digest: String,
    /// SHA-256 (hex) of the policy files; empty without them.
    pub rules_digest: String,
    /// Media type as the server declared it; empty without one.
    pub media_type: String,
}

/// The known origins of a content.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ContentOrigins {
    /// Fetches, the newest first. Empty for content that no fetch brought, as far as records say.
    pub fetches: Vec<WebOrigin>,
    /// Whether further records exist that were not read, or cannot be.
    pub is_cut: bool,
}

impl Store {
    /// Records that a fetch brought the bytes of this digest. Written before the content is stored, so that content is
    /// never stored without its record.
    ///
    /// # Errors
    /// The record was not written.
    pub fn record_origin<'a>(
        &'a self,
        tenant: &'a TenantId,
        sha256: Sha256Digest,
        origin: &'a WebOrigin,
        deadline: Option<Deadline>,
    ) -> BoxFuture<'a, Result<(), RequestError>> {
        let inner = &self.inner;
        let key = record_key(tenant, sha256, origin);
        // Texts and numbers always have a form in JSON.
        let record = Bytes::from(serde_json::to_vec(origin).unwrap_or_default());
        Box::pin(async move {
            let sum = ObjectChecksum::Sha256(Sha256Digest::of(&record));
            // The write has no condition: a newer fetch through the same hosts replaces the record, and renews its
            // lifetime.
            let request = inner
                .clients
                .inside
                .put_object()
                .bucket(&inner.options.bucket)
                .key(key)
                .set_checksum_sha256(sum.sha256())
                .body(ByteStream::from(record))
                .send();
            inner.request(deadline, Box::pin(request)).await.map(drop)
        })
    }

    /// Returns what is known about where the bytes of this digest came from.
    ///
    /// # Errors
    /// A request to the store failed. The origin of the content is then unknown.
    pub fn origins<'a>(
        &'a self,
        tenant: &'a TenantId,
        sha256: Sha256Digest,
        deadline: Option<Deadline>,
    ) -> BoxFuture<'a, Result<ContentOrigins, RequestError>> {
        Box::pin(async move {
            let inner = &self.inner;
            let request = inner
                .clients
                .inside
                .list_objects_v2()
                .bucket(&inner.options.bucket)
                .prefix(content_prefix(tenant, sha256))
                .max_keys(i32::try_from(MAX_ORIGINS).unwrap_or(i32::MAX))
                .send();
            let page = inner.request(deadline, Box::pin(request)).await?;
            let mut origins = ContentOrigins {
                is_cut: page.is_truncated() == Some(true),
                ..ContentOrigins::default()
            };
            for object in page.contents() {
                let size = u64::try_from(object.size().unwrap_or_default()).unwrap_or(u64::MAX);
                let Some(key) = object.key().filter(|_| size <= MAX_RECORD_BYTES) else {
                    origins.is_cut = true;
                    continue;
                };
                match read_record(inner, key, deadline).await? {
                    Some(origin) => origins.fetches.push(origin),
                    // The record exists, so a fetch brought the content. A reader must not treat it as content of
                    // unknown origin.
                    None => origins.is_cut = true,
                }
            }
            let newest_first = |origin: &WebOrigin| std::cmp::Reverse(origin.fetched_at_ms);
            origins.fetches.sort_by_key(newest_first);
            Ok(origins)
        })
    }
}

/// Reads one record; `None` for a record in another form.
async fn read_record(
    inner: &StoreInner,
    key: &str,
    deadline: Option<Deadline>,
) -> Result<Option<WebOrigin>, RequestError> {
    let head = ObjectHead {
        size: 0,
        sha256: None,
        crc64: None,
        modified_ms: 0,
        // Any version of it counts: a fetch may renew it meanwhile.
        tag: None,
        version: None,
    };
    let mut record = Vec::new();
    let read = object::read_object(inner, key, &head, deadline, |bytes| {
        record.extend_from_slice(bytes);
    });
    match read.await {
        Ok(()) => Ok(serde_json::from_slice(&record).ok()),
        // The lifetime of the record ended since it was listed.
        Err(RequestError::Missing) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Prefix of the records of one content.
fn content_prefix(tenant: &TenantId, sha256: Sha256Digest) -> String {
    let hex = sha256.to_hex();
    let (begin, _) = hex.split_at(2);
    format!("{ORIGIN_PREFIX}{}/{begin}/{hex}/", tenant.token())
}

fn record_key(tenant: &TenantId, sha256: Sha256Digest, origin: &WebOrigin) -> String {
    // No host has a line break, so different chains have different texts.
    let mut chain = Sha256Digest::of(origin.hosts.join("\n").as_bytes()).to_hex();
    chain.truncate(CHAIN_DIGITS);
    format!("{}{chain}", content_prefix(tenant, sha256))
}
