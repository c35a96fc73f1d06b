//! Presigned URLs for reading: a bearer secret for one object until it expires (messaging-reliability 11).
//!
//! Mint them as late as possible, give them to the caller, and keep no copy.

use std::time::{Duration, UNIX_EPOCH};

use aws_sdk_s3::presigning::PresigningConfig;
use dray_http_server::extended_attachment;
use dray_types::{Claim, Secret, TenantId, whole_millis};

use crate::cache::ObjectArea;
use crate::error::PresignError;
use crate::request::RequestError;
use crate::store::{Store, StoreInner};

/// Shortest lifetime that is minted on request (L-2).
pub const MIN_LIFETIME: Duration = Duration::from_mins(5);
/// Longest lifetime that `SigV4` allows (L-2).
pub const MAX_LIFETIME: Duration = Duration::from_hours(7 * 24);
/// Time before the end of temporary credentials at which links end (L-2).
const CREDENTIALS_MARGIN: Duration = Duration::from_mins(1);

/// A URL that opens one object to its holder (a bearer link). Its debug form has no URL.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PresignedLink {
    /// The URL itself, signature included.
    pub url: Secret,
    /// Unix milliseconds at which the link expires, which may be earlier than requested.
    pub expires_at_ms: u64,
}

/// Media types that browsers do not execute. Any other is served as `application/octet-stream` (L-4).
const INERT_MEDIA_TYPES: [&str; 14] = [
    "application/gzip",
    "application/json",
    "application/zip",
    "audio/mpeg",
    "audio/ogg",
    "audio/wav",
    "image/gif",
    "image/jpeg",
    "image/png",
    "image/webp",
    "text/csv",
    "text/plain",
    "video/mp4",
    "video/webm",
];

impl Store {
    /// Mints a URL that downloads the claim's object of `tenant`, always as an attachment under the artifact's name.
    ///
    /// `requested` is limited to between 5 minutes and 7 days. The URL expires no later than the object, and at least a
    /// minute before the signing credentials. For an object of the cache, the claim has the time at which it expires.
    ///
    /// # Errors
    ///
    /// [`PresignError`]. [`PresignError::FromWeb`] is returned for content from the web that
    /// [`StoreOptions::web_links`](crate::StoreOptions::web_links) keeps out of links.
    pub async fn presign_get(
        &self,
        tenant: &TenantId,
        claim: &Claim,
        requested: Duration,
    ) -> Result<PresignedLink, PresignError> {
        if claim.artifact.tenant != *tenant {
            return Err(PresignError::ForeignTenant);
        }
        self.check_web_link(tenant, claim).await?;
        self.presign_judged(tenant, claim, requested).await
    }

    /// Like [`Self::presign_get`], for an operator, or for a recipient that the caller has checked by separate rules.
    ///
    /// # Errors
    ///
    /// Every reason that prevents a link, except the origin of the content.
    pub async fn presign_judged(
        &self,
        tenant: &TenantId,
        claim: &Claim,
        requested: Duration,
    ) -> Result<PresignedLink, PresignError> {
        let inner = &self.inner;
        if claim.artifact.tenant != *tenant {
            return Err(PresignError::ForeignTenant);
        }
        let area = ObjectArea::of(inner, claim)
            .ok_or_else(|| PresignError::UnknownStore(claim.store.clone()))?;
        let object_expires_at_ms = Some(claim.expires_at_ms);
        let (lifetime, expires_at_ms) = link_lifetime(inner, requested, object_expires_at_ms)?;
        let request = inner
            .clients
            .public
            .get_object()
            .bucket(&inner.options.bucket)
            .key(area.key(&claim.artifact))
            // The version is pinned where the bucket has versions, so that the link cannot show a later object (L-4).
            .set_version_id(claim.version_id.clone())
            .response_content_disposition(extended_attachment(&claim.artifact.name))
            .response_content_type(served_type(&claim.artifact.media_type))
            .presigned(lifetime);
        let signed = Box::pin(request)
            .await
            .map_err(|error| PresignError::Signing(RequestError::from_sdk(error)))?;
        Ok(PresignedLink {
            url: Secret::new(signed.uri()),
            expires_at_ms,
        })
    }
}

/// The lifetime to sign, and the Unix milliseconds at which it ends.
pub(crate) fn link_lifetime(
    inner: &StoreInner,
    requested: Duration,
    object_expires_at_ms: Option<u64>,
) -> Result<(PresigningConfig, u64), PresignError> {
    // Signatures count in whole seconds, rounded down so that the URL is not signed for the future (L-7).
    let start_ms = inner.clock.now_ms() / 1000 * 1000;
    let until = |end_ms: u64| Duration::from_secs(end_ms.saturating_sub(start_ms) / 1000);
    // SigV4 allows 604,800 seconds and no more (L-2).
    let mut lifetime = requested.clamp(MIN_LIFETIME, MAX_LIFETIME);
    if let Some(end_ms) = object_expires_at_ms {
        lifetime = lifetime.min(until(end_ms));
        if lifetime.is_zero() {
            return Err(PresignError::ObjectEnds);
        }
    }
    let credentials_end = inner.credentials.expire_at_ms();
    if credentials_end != 0 {
        // With temporary credentials the URL expires with the session, even if it was signed for longer.
        lifetime = lifetime.min(until(credentials_end).saturating_sub(CREDENTIALS_MARGIN));
        if lifetime.is_zero() {
            return Err(PresignError::CredentialsEnd);
        }
    }
    let lifetime = Duration::from_secs(lifetime.as_secs());
    let config = PresigningConfig::builder()
        .start_time(UNIX_EPOCH + Duration::from_millis(start_ms))
        .expires_in(lifetime)
        .build()
        .map_err(|error| PresignError::Signing(RequestError::InvalidResponse(error.to_string())))?;
    let lifetime_ms = whole_millis(lifetime);
    Ok((config, start_ms.saturating_add(lifetime_ms)))
}

/// The media type under which browsers see the object.
fn served_type(media_type: &str) -> &'static str {
    // Only the essence counts; parameters of the claim are not served.
    let essence = dray_media_type::essence(media_type);
    INERT_MEDIA_TYPES
        .iter()
        .find(|inert| essence == **inert)
        .copied()
        .unwrap_or("application/octet-stream")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_inert_types_keep_their_name() {
        for (declared, served) in [
            ("image/png", "image/png"),
            ("IMAGE/PNG; q=1", "image/png"),
            ("text/plain; charset=utf-8", "text/plain"),
            ("text/html", "application/octet-stream"),
            ("image/svg+xml", "application/octet-stream"),
            ("application/xhtml+xml", "application/octet-stream"),
            ("text/javascript", "application/octet-stream"),
            ("", "application/octet-stream"),
        ] {
            assert_eq!(served_type(declared), served, "{declared}");
        }
    }
}
