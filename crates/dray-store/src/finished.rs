//! The finished content of one tenant, as the store lists it.

use dray_types::{Sha256Digest, TenantId};

use crate::cache::ObjectArea;
use crate::request::RequestError;
use crate::store::Store;

/// Most objects of one page.
pub const MAX_PAGE_OBJECTS: usize = 1_000;

/// An object with finished content.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FinishedObject {
    /// Digest of its bytes, from its key.
    pub sha256: Sha256Digest,
    /// Size in bytes.
    pub bytes: u64,
    /// Unix milliseconds of the last write: when it was stored, or claimed again after a day.
    pub stored_at_ms: u64,
    /// Unix milliseconds after which it may be removed.
    pub expires_at_ms: u64,
}

/// A page of the list.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FinishedPage {
    /// Objects in the order of their digests.
    pub objects: Vec<FinishedObject>,
    /// Whether the store has more objects.
    pub truncated: bool,
}

impl Store {
    /// Lists finished content of a tenant by digest, after `after`, at most `limit` objects and at most
    /// [`MAX_PAGE_OBJECTS`].
    ///
    /// # Errors
    /// The store could not be reached or refused the request.
    pub async fn finished(
        &self,
        tenant: &TenantId,
        after: Option<Sha256Digest>,
        limit: usize,
    ) -> Result<FinishedPage, RequestError> {
        let inner = &self.inner;
        let limit = limit.clamp(1, MAX_PAGE_OBJECTS);
        // The slash ends the name: the prefix of one tenant is never the beginning of another's.
        let prefix = format!("cas/{}/", tenant.token());
        let after = after.map(|digest| object_key(&prefix, digest));
        let request = inner
            .clients
            .inside
            .list_objects_v2()
            .bucket(&inner.options.bucket)
            .prefix(&prefix)
            .set_start_after(after)
            .max_keys(i32::try_from(limit).unwrap_or(i32::MAX))
            .send();
        let page = inner.request(None, Box::pin(request)).await?;
        let objects = page.contents().iter().filter_map(|object| {
            let (_, digits) = object.key()?.rsplit_once('/')?;
            let sha256: Sha256Digest = digits.parse().ok()?;
            // A key of another form is not finished content.
            if object.key()? != object_key(&prefix, sha256) {
                return None;
            }
            let stored = object
                .last_modified()
                .and_then(|time| time.to_millis().ok());
            let stored_at_ms = stored.and_then(|stored| u64::try_from(stored).ok())?;
            Some(FinishedObject {
                sha256,
                bytes: u64::try_from(object.size().unwrap_or_default()).unwrap_or_default(),
                stored_at_ms,
                expires_at_ms: ObjectArea::Finished.expires_at_ms(inner, stored_at_ms),
            })
        });
        Ok(FinishedPage {
            objects: objects.collect(),
            truncated: page.is_truncated() == Some(true),
        })
    }
}

fn object_key(prefix: &str, digest: Sha256Digest) -> String {
    let hex = digest.to_hex();
    let (first_digits, _) = hex.split_at(2);
    format!("{prefix}{first_digits}/{hex}")
}
